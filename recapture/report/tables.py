"""Tables rendered from one description: as GitHub Markdown with tabulate, for a terminal with rich."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from recapture.base.text import one_line
from recapture.report.markup import code, link, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.text import Text

UNLIMITED = 100_000
"""Terminal width in columns at which no table is cut."""

GAP = 2
"""Number of spaces between two columns on a terminal."""

INDENT = 4
"""Number of spaces kept at each end of a cell's text."""


class Span(NamedTuple):
    """A part of a cell: its unescaped text, its Markdown style, and its terminal style.

    ``verbatim`` is for text that the project itself generates, such as figures: it is not escaped.
    """

    text: str
    form: Literal["plain", "code", "strong", "verbatim"] = "plain"
    link: str = ""
    style: str = ""


Cell: TypeAlias = "str | int | Span | Sequence[str | Span]"
"""A cell: plain text, a number, a span, or several of them one after another."""


@dataclass(frozen=True)
class Table:
    """A table of unescaped text. A line break is kept in a header, and becomes a space in a cell.

    `align` has ``l``, ``c`` or ``r`` for each column; the last letter applies to the remaining columns.
    """

    headers: Sequence[str | Span]
    rows: Sequence[Sequence[Cell]]
    align: str = "l"

    def alignment(self, column: int) -> Literal["left", "center", "right"]:
        """Return the alignment of a column."""
        letter = self.align[min(column, len(self.align) - 1)]
        return "left" if letter == "l" else "center" if letter == "c" else "right"

    def stacked(self) -> Table:
        """Return the table with narrow columns: headers on two lines and centred numbers."""
        headers = [header if isinstance(header, Span) else header.replace(" ", "\n", 1) for header in self.headers]
        return Table(headers, self.rows, "lc")

    def split(self, width: int) -> list[Table]:
        """Return tables of at most `width` characters on a terminal, each with the first column and some others.

        A single column wider than that is not split.
        """
        widths = [max((len(line.text) for line in _header_lines(header)), default=0) for header in self.headers]
        for row in self.rows:
            for column, cell in enumerate(row):
                widths[column] = max(widths[column], sum(len(_line(span.text)) for span in _spans(cell)))
        blocks: list[list[int]] = []
        for column in range(1, len(widths)):
            if not blocks or sum(widths[one] + GAP for one in blocks[-1]) + widths[column] > width:
                blocks.append([0])
            blocks[-1].append(column)
        return [self._columns(block) for block in blocks] or [self]

    def _columns(self, chosen: Sequence[int]) -> Table:
        return Table(
            [self.headers[column] for column in chosen],
            [[row[column] for column in chosen if column < len(row)] for row in self.rows],
            "".join(self.alignment(column)[0] for column in chosen),
        )


def code_span(text: str) -> Span:
    """Return a span in code style."""
    return Span(text, "code")


def strong(text: str) -> Span:
    """Return a span in bold."""
    return Span(text, "strong")


def verbatim(text: str) -> Span:
    """Return an unescaped span, for figures and headers with brackets, never for text from records."""
    return Span(text, "verbatim")


def code_list(texts: Sequence[str]) -> list[str | Span]:
    """Return a cell of several code spans, separated by commas."""
    cell: list[str | Span] = []
    for text in texts:
        cell += [", ", code_span(text)] if cell else [code_span(text)]
    return cell


def to_markdown(table: Table) -> str:
    """Return a table as GitHub Markdown, with text escaped so that it cannot end its cell or act as markup."""
    import tabulate

    # Widths are counted in characters, so that the bytes do not depend on whether wcwidth is installed.
    tabulate.WIDE_CHARS_MODE = False
    return tabulate.tabulate(
        [["".join(map(_markdown, _spans(cell))) for cell in row] for row in table.rows],
        headers=["<br>".join(map(_markdown, lines)) for lines in map(_header_lines, table.headers)],
        tablefmt="pipe",
        colalign=[table.alignment(column) for column in range(len(table.headers))],
        disable_numparse=True,
    )


def terminal_lines(
    table: Table, *, width: int | None = None, gap: int = GAP, wrapped: Sequence[int] = ()
) -> list[Text]:
    """Return the lines of a table for a terminal, without trailing spaces.

    Columns are separated by `gap` spaces. With a `width` in characters, long text in the columns whose numbers are in
    `wrapped` continues on further lines; without it, every column is as wide as its longest text.
    """
    from rich.table import Table as Layout
    from rich.text import Text

    from recapture.report.console import SafeConsole

    shown = any(header.text if isinstance(header, Span) else header for header in table.headers)
    layout = Layout(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="", show_header=shown)
    headers = [[one_line(line.text) for line in _header_lines(header)] for header in table.headers]
    height = max(map(len, headers), default=0)
    for column, lines in enumerate(headers):
        style = header.style if isinstance(header := table.headers[column], Span) else ""
        text = "\n".join([*lines, *[""] * (height - len(lines))])  # rich would align short headers at the bottom
        heading = Text(text, style=style)
        justify = table.alignment(column)
        layout.add_column(heading, justify=justify, no_wrap=column not in wrapped, overflow="fold")
    for row in table.rows:
        cells = ([(_line(span.text), span.style) for span in _spans(cell)] for cell in row)
        layout.add_row(*(Text.assemble(*parts) for parts in cells))
    console = SafeConsole(width=width or UNLIMITED)
    printed = []
    for segments in console.render_lines(layout, pad=False):
        line = Text.assemble(*((segment.text, segment.style or "") for segment in segments))
        line.rstrip()
        printed.append(line)
    return printed


def _header_lines(header: str | Span) -> list[Span]:
    return [header] if isinstance(header, Span) else [Span(line) for line in header.split("\n")]


def _spans(cell: Cell) -> list[Span]:
    if isinstance(cell, Span):
        return [cell]
    if isinstance(cell, (str, int)):
        return [Span(str(cell))]
    return [one if isinstance(one, Span) else Span(one) for one in cell]


def _line(text: str, escape: Callable[[str], str] = one_line) -> str:
    """Return text on one line, keeping up to `INDENT` spaces at its ends as separators."""
    before = len(text) - len(text.lstrip(" "))
    after = len(text) - len(text.rstrip(" ")) if before < len(text) else 0
    return " " * min(before, INDENT) + escape(text) + " " * min(after, INDENT)


def _markdown(span: Span) -> str:
    if span.form == "code":
        text = code(span.text, in_table=True)
    elif span.form == "strong":
        text = f"**{plain(span.text)}**" if span.text else ""
    elif span.form == "verbatim":
        text = span.text
    else:
        text = _line(span.text, plain)
    return link(text, span.link) if span.link else text
