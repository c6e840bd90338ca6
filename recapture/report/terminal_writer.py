"""Writes lines, tables and documents to a terminal, without text that could control it."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.table import Table as Layout
from rich.text import Text

from recapture.base.columns import NARROWEST, UNLIMITED, asked_columns
from recapture.base.text import one_line, printable
from recapture.report.document import (
    Block,
    Fold,
    Heading,
    Inline,
    Item,
    Items,
    Paragraph,
    Span,
    Table,
    ends_kept,
    header_lines,
    spans_of,
)

if TYPE_CHECKING:
    from rich.console import ConsoleOptions, RenderableType

GAP = 2
"""Number of spaces between two columns of a table."""

STEP = 2
"""Number of spaces by which a list, and the second line of a sentence, is indented."""

MANY = 4
"""Number of rows with the same text from which this text is printed once."""


class SafeConsole(Console):
    """A console that replaces control characters in all text; only rich itself controls the terminal.

    A printed string is one line: line breaks inside it are replaced as well, so that no name can add a line. It may
    begin with empty lines. A name between colons, as the case in ``suite::key::fx``, is no emoji. A value of COLUMNS
    that is no sensible width is ignored.
    """

    def __init__(self, **options: Any) -> None:
        if "COLUMNS" in os.environ and asked_columns() is None:  # rich would take any number
            options["_environ"] = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        super().__init__(emoji=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects as `rich.console.Console.print` does, each string as one line."""
        super().print(*(_printed_line(part) if isinstance(part, str) else part for part in objects), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments to print, with control characters removed from text segments."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else printable(segment.text)
            yield segment if text == segment.text else Segment(text, segment.style, segment.control)

    def on_broken_pipe(self) -> None:
        """Let the command end when the reader of its output is gone; without a reader of its messages, go on silently.

        Rich itself would exit with status 1, which means that a regression was found.
        """
        if not self.stderr:
            raise  # noqa: PLE0704 - rich calls this while it handles the BrokenPipeError
        self.quiet = True


def _printed_line(text: str) -> str:
    words = text.lstrip("\n")
    return text[: len(text) - len(words)] + (words if words.isprintable() else printable(words, keep=""))


def line_width(console: Console) -> int | None:
    """Return the columns that a line may have; None in a file or a pipe for which COLUMNS asks for no width."""
    return console.width if console.is_terminal else asked_columns()


def say(console: Console, text: str | Text = "", style: str = "") -> None:
    """Print one line, without markup, wrapping or cutting."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def say_all(console: Console, lines: Iterable[str | Text], style: str = "") -> None:
    """Print several lines as `say` does."""
    for line in lines:
        say(console, line, style)


def say_wrapped(console: Console, text: Inline | Text, style: str = "", indent: int = 0, hang: int = STEP) -> None:
    """Print a sentence. Where lines have a width it is wrapped between words, and further lines are indented by `hang`.

    Elsewhere it is one line, so that a pipe gets one line for each fact.
    """
    words = text if isinstance(text, Text) else _rich_text(text)
    width = max((line_width(console) or UNLIMITED) - indent - hang, NARROWEST)
    for number, line in enumerate(_wrapped(words, width)):
        say(console, Text(" " * (indent + hang * bool(number))) + line, style)


def _wrapped(text: Text, width: int) -> Iterator[Text]:
    """Yield lines of at most `width` columns; a word that is longer, such as an address, stays whole."""
    breaks: list[int] = []
    used = 0
    for match in re.finditer(r"\S+\s*", text.plain):
        if used and used + cell_len(match[0].rstrip()) > width:
            breaks.append(match.start())
            used = 0
        used += cell_len(match[0])
    for line in text.divide(breaks):
        line.rstrip()
        yield line


def say_table(console: Console, table: Table) -> None:
    """Print a table; where lines have a width, in blocks that fit, and long text on several lines."""
    table = _stacked(table)
    width = line_width(console)
    if width is None:
        say_all(console, terminal_lines(table))
        return
    for number, block in enumerate(split(table, width)):
        if number:
            say(console)
        widths = _widths(block)
        wide = sum(widths) + GAP * (len(widths) - 1) > width
        wrapped = [column for column, needed in enumerate(widths) if needed == max(widths)] if wide else []
        say_all(console, terminal_lines(block, width=width if wide else None, wrapped=wrapped))


def print_document(console: Console, blocks: Iterable[Block]) -> None:
    """Print a document. An empty line separates its sections and tables."""
    before: Block | None = None
    for block in blocks:
        under_heading = isinstance(before, Heading)
        if before is not None and (isinstance(block, Heading) or (_is_wide_table(block) and not under_heading)):
            say(console)
        _print_block(console, block)
        before = block


def _is_wide_table(block: Block) -> bool:
    return isinstance(block, Table) and block.terminal == "table"


def _print_block(console: Console, block: Block) -> None:
    if isinstance(block, (Heading, Paragraph)):
        say_wrapped(console, block.text, block.style, hang=0)
    elif isinstance(block, Items):
        _print_items(console, block.items)
    elif isinstance(block, Fold):
        say_wrapped(console, block.summary)
        for part in block.blocks:
            _print_block(console, part)
    elif block.terminal == "table":
        say_table(console, block)
    elif block.terminal == "lines":
        width = max((_rich_text(row[0]).cell_len for row in block.rows), default=0)
        for row in block.rows:
            first = _rich_text(row[0])
            first.pad_right(width - first.cell_len + GAP)
            say_wrapped(console, first + _rich_text(_joined(_described(block, row))), indent=STEP)
    else:
        _print_groups(console, block)


def _print_groups(console: Console, table: Table) -> None:
    """Print rows by their first column; what many rows say alike after the second is printed once, with its number."""
    by_text: dict[str, list[Sequence[Inline]]] = {}
    for row in table.rows:
        by_text.setdefault("\0".join(map(_plain, row[2:])), []).append(row)
    shared = {text: rows for text, rows in by_text.items() if len(rows) >= MANY and any(map(_plain, rows[0][2:]))}
    for rows in sorted(shared.values(), key=len, reverse=True):
        say_wrapped(console, [f"{len(rows)}× ", *_joined(_described(table, rows[0], first=2))], indent=STEP)
        for row in rows:
            say_wrapped(console, _joined(row[:2]), indent=2 * STEP)
    alone = [row for row in table.rows if "\0".join(map(_plain, row[2:])) not in shared]
    for first, group in itertools.groupby(alone, key=lambda row: row[0]):
        say_wrapped(console, first, indent=STEP)
        for row in group:
            say_wrapped(console, _joined(_described(table, row)), indent=2 * STEP)


def _print_items(console: Console, items: Sequence[Item], indent: int = STEP) -> None:
    for item in items:
        say_wrapped(console, item.text, item.style, indent)
        _print_items(console, item.items, indent + STEP)


def _described(table: Table, row: Sequence[Inline], first: int = 1) -> Iterator[Inline]:
    """Yield a row's cells from column `first` that are not empty, ``old`` and ``new`` as one, with their labels."""
    old: Inline = ""
    for column, (header, cell) in enumerate(zip(table.headers, row, strict=True)):
        if header == "old":
            old = cell
        elif header == "new":
            yield [*spans_of(old), " → ", *spans_of(cell)]
        elif column >= first and _plain(cell):
            yield [f"{_plain(header)}: ", *spans_of(cell)] if column in table.labels else cell


def _joined(parts: Iterable[Inline]) -> list[str | Span]:
    spans: list[str | Span] = []
    for part in parts:
        spans += [" " * GAP, *spans_of(part)] if spans else spans_of(part)
    return spans


def terminal_lines(
    table: Table, *, width: int | None = None, gap: int = GAP, wrapped: Sequence[int] = ()
) -> list[Text]:
    """Return the lines of a table for a terminal, without trailing spaces.

    Columns are separated by `gap` spaces. With a `width` in characters, long text in the columns whose numbers are in
    `wrapped` continues on further lines; without it, every column is as wide as its longest text.
    """
    named = any(header.text if isinstance(header, Span) else header for header in table.headers)
    layout = Layout(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="", show_header=named)
    headers = [[one_line(line.text) for line in header_lines(header)] for header in table.headers]
    height = max(map(len, headers), default=0)
    for column, lines in enumerate(headers):
        style = header.style if isinstance(header := table.headers[column], Span) else ""
        text = "\n".join([*lines, *[""] * (height - len(lines))])  # rich would align short headers at the bottom
        heading = Text(text, style=style)
        justify = table.alignment(column)
        layout.add_column(heading, justify=justify, no_wrap=column not in wrapped, overflow="fold")
    for row in table.rows:
        layout.add_row(*map(_rich_text, row))
    console = SafeConsole(width=width or UNLIMITED)
    printed = []
    for segments in console.render_lines(layout, pad=False):
        line = Text.assemble(*((segment.text, segment.style or "") for segment in segments))
        line.rstrip()
        printed.append(line)
    return printed


def split(table: Table, width: int) -> list[Table]:
    """Return tables of at most `width` characters on a terminal, each with the first column and some others.

    A single column wider than that is not split.
    """
    widths = _widths(table)
    blocks: list[list[int]] = []
    for column in range(1, len(widths)):
        if not blocks or sum(widths[other] + GAP for other in blocks[-1]) + widths[column] > width:
            blocks.append([0])
        blocks[-1].append(column)
    return [_columns(table, block) for block in blocks] or [table]


def _columns(table: Table, chosen: Sequence[int]) -> Table:
    return Table(
        [table.headers[column] for column in chosen],
        [[row[column] for column in chosen if column < len(row)] for row in table.rows],
        "".join(table.alignment(column)[0] for column in chosen),
    )


def _stacked(table: Table) -> Table:
    """Return a table with headers of several words on two lines, so that the columns are narrow."""
    headers = [header if isinstance(header, Span) else header.replace(" ", "\n", 1) for header in table.headers]
    return Table(headers, table.rows, table.align)


def _widths(table: Table) -> list[int]:
    widths = [max((len(line.text) for line in header_lines(header)), default=0) for header in table.headers]
    for row in table.rows:
        for column, cell in enumerate(row):
            widths[column] = max(widths[column], len(_plain(cell)))
    return widths


def _plain(text: Inline) -> str:
    return "".join(ends_kept(span.text, one_line(span.text)) for span in spans_of(text))


def _rich_text(text: Inline) -> Text:
    return Text.assemble(*((ends_kept(span.text, one_line(span.text)), span.style) for span in spans_of(text)))
