"""Writes paragraphs, lists and folds as HTML, for a page and for the parts of Markdown that only HTML can express."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recapture.base.escape import html_text
from recapture.report.document import Block, Fold, Heading, Inline, Item, Items, Table, ends_kept, spans_of

_TAGS = {"code": "code", "strong": "b"}


def to_html(blocks: Iterable[Block]) -> str:
    """Return blocks as HTML, in which text neither starts a tag nor ends one; without links."""
    return "\n".join(map(_block, blocks))


def _block(block: Block) -> str:
    if isinstance(block, Fold):
        return f"<details><summary>{_inline(block.summary)}</summary>\n{to_html(block.blocks)}\n</details>"
    if isinstance(block, Items):
        return _list(block.items)
    if isinstance(block, Heading):
        return f"<h{block.level}>{_inline(block.text)}</h{block.level}>"
    if isinstance(block, Table):
        head = "".join(f"<th>{_inline(header)}</th>" for header in block.headers)
        rows = ("".join(f"<td>{_inline(cell)}</td>" for cell in row) for row in block.rows)
        return "\n".join(["<table>", f"<tr>{head}</tr>", *(f"<tr>{row}</tr>" for row in rows), "</table>"])
    return f"<p>{_inline(block.text)}</p>"


def _list(items: Sequence[Item]) -> str:
    lines = (f"<li>{_inline(item.text)}{_list(item.items) if item.items else ''}</li>" for item in items)
    return "\n".join(["<ul>", *lines, "</ul>"])


def _inline(text: Inline) -> str:
    parts = []
    for span in spans_of(text):
        tag = _TAGS.get(span.form)
        escaped = html_text(span.text)
        parts.append(f"<{tag}>{escaped}</{tag}>" if tag else ends_kept(span.text, escaped))
    return "".join(parts)
