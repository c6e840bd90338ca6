"""A document: headings, paragraphs, lists, tables and folds.

Its text is unescaped. `markdown_writer`, `html_writer` and `terminal_writer` turn one document into their forms; each
escapes the text for its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

INDENT = 4
"""Number of spaces kept at each end of a piece of text, where they separate it from its neighbours."""


class Span(NamedTuple):
    """A piece of text in one style: `form` says how it looks on a page, `style` is its colour on a terminal.

    ``verbatim`` is for text that the project itself generates, such as figures: Markdown does not escape it.
    """

    text: str
    form: Literal["plain", "code", "strong", "verbatim"] = "plain"
    link: str = ""
    style: str = ""


Inline: TypeAlias = "str | int | Span | Sequence[str | Span]"
"""Text within a block: plain text, a number, a span, or several of them one after another."""


@dataclass(frozen=True)
class Heading:
    """The title of what follows; level 1 is that of the document."""

    text: Inline
    level: int = 2
    style: str = "bold"


@dataclass(frozen=True)
class Paragraph:
    """One or more sentences."""

    text: Inline
    style: str = ""


@dataclass(frozen=True)
class Item:
    """An entry of a list, with the entries below it."""

    text: Inline
    items: Sequence[Item] = ()
    style: str = ""


@dataclass(frozen=True)
class Items:
    """A list."""

    items: Sequence[Item]


@dataclass(frozen=True)
class Table:
    """A table. A line break is kept in a header, and becomes a space in a cell.

    `align` has ``l``, ``c`` or ``r`` for each column; the last letter applies to the remaining columns.

    `terminal` says what a terminal shows, where a table of sentences would be too wide: ``lines`` is a line for each
    row, ``groups`` the text of the first column with the rows that share it below. There, cells under the headers
    ``old`` and ``new`` are joined by an arrow, and the columns in `labels` are preceded by their header.
    """

    headers: Sequence[str | Span]
    rows: Sequence[Sequence[Inline]]
    align: str = "l"
    terminal: Literal["table", "lines", "groups"] = "table"
    labels: Sequence[int] = ()

    def alignment(self, column: int) -> Literal["left", "center", "right"]:
        """Return the alignment of a column."""
        letter = self.align[min(column, len(self.align) - 1)]
        return "left" if letter == "l" else "center" if letter == "c" else "right"


@dataclass(frozen=True)
class Fold:
    """A line that a reader opens to see what is below it."""

    summary: Inline
    blocks: Sequence[Block]


Block: TypeAlias = "Heading | Paragraph | Items | Table | Fold"


def code_span(text: str, style: str = "") -> Span:
    """Return a span in code style."""
    return Span(text, "code", style=style)


def strong(text: str, style: str = "") -> Span:
    """Return a span in bold."""
    return Span(text, "strong", style=style)


def verbatim(text: str) -> Span:
    """Return an unescaped span, for figures and headers with brackets, never for text from records."""
    return Span(text, "verbatim")


def code_list(texts: Sequence[str]) -> list[str | Span]:
    """Return several code spans, separated by commas."""
    spans: list[str | Span] = []
    for text in texts:
        spans += [", ", code_span(text)] if spans else [code_span(text)]
    return spans


def spans_of(text: Inline) -> list[Span]:
    """Return text as spans."""
    if isinstance(text, Span):
        return [text]
    if isinstance(text, (str, int)):
        return [Span(str(text))]
    return [part if isinstance(part, Span) else Span(part) for part in text]


def header_lines(header: str | Span) -> list[Span]:
    """Return the lines of a table's header."""
    return [header] if isinstance(header, Span) else [Span(line) for line in header.split("\n")]


def ends_kept(text: str, written: str) -> str:
    """Return `written`, the one-line form of a text, with up to `INDENT` of the spaces at the text's ends."""
    before = len(text) - len(text.lstrip(" "))
    after = len(text) - len(text.rstrip(" ")) if before < len(text) else 0
    return " " * min(before, INDENT) + written + " " * min(after, INDENT)
