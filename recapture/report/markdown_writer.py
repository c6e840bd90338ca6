"""Writes documents as GitHub Markdown, with the same bytes for the same document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from recapture.base.escape import markdown_code as code
from recapture.base.escape import markdown_text as plain
from recapture.report.document import (
    Block,
    Fold,
    Heading,
    Inline,
    Item,
    Items,
    Span,
    Table,
    ends_kept,
    header_lines,
    spans_of,
)
from recapture.report.html_writer import to_html


def to_markdown(blocks: Iterable[Block]) -> str:
    """Return a document as Markdown; text is escaped so that it cannot act as markup."""
    parts: list[str] = []
    before: Block | None = None
    for block in blocks:
        # Folds are HTML: without an empty line between them, a page shows them as one list.
        gap = "\n" if isinstance(block, Fold) and isinstance(before, Fold) else "\n\n"
        parts += [gap, _block(block)] if parts else [_block(block)]
        before = block
    return "".join(parts) + "\n"


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {_inline(block.text)}"
    if isinstance(block, Items):
        return "\n".join(_item_lines(block.items))
    if isinstance(block, Table):
        return table_markdown(block)
    if isinstance(block, Fold):
        return to_html([block])  # a summary cannot contain Markdown
    return _inline(block.text)


def _item_lines(items: Sequence[Item], indent: str = "") -> Iterator[str]:
    for item in items:
        yield f"{indent}- {_inline(item.text)}"
        yield from _item_lines(item.items, f"{indent}  ")


def table_markdown(table: Table) -> str:
    """Return a table as Markdown, with text escaped so that it cannot end its cell."""
    import tabulate

    # Widths are counted in characters, so that the bytes do not depend on whether wcwidth is installed.
    tabulate.WIDE_CHARS_MODE = False
    return tabulate.tabulate(
        [[_inline(cell, in_table=True) for cell in row] for row in table.rows],
        headers=[
            "<br>".join(_inline(line, in_table=True) for line in header_lines(header)) for header in table.headers
        ],
        tablefmt="pipe",
        colalign=[table.alignment(column) for column in range(len(table.headers))],
        disable_numparse=True,
    )


def _inline(text: Inline, *, in_table: bool = False) -> str:
    return "".join(_span(span, in_table=in_table) for span in spans_of(text))


def _span(span: Span, *, in_table: bool) -> str:
    if span.form == "code":
        text = code(span.text, in_table=in_table)
    elif span.form == "strong":
        text = f"**{plain(span.text)}**" if span.text else ""
    elif span.form == "verbatim":
        text = span.text
    else:
        text = ends_kept(span.text, plain(span.text))
    return link(text, span.link) if span.link else text


def link(markdown: str, address: str) -> str:
    """Return Markdown as a link; the characters of the address that could end the link are percent-encoded."""
    encoded = re.sub(r"[\s()<>|\\`\"]", lambda match: f"%{ord(match[0]):02X}", address)
    return f"[{markdown}]({encoded})"
