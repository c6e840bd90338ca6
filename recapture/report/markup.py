"""Text as Markdown: escaped, as code, or as a link, whatever characters it holds."""

from __future__ import annotations

import html
import re

from recapture.base.text import one_line

__all__ = ["code", "html_text", "link", "plain"]

_SPECIAL = re.compile(r"([\\`*{}\[\]<>#|~$&]|(?<![^\W_])_|_(?![^\W_]))")


def code(text: str, *, in_table: bool = False) -> str:
    """Return text as a code span, whatever characters it holds; inside a table no character ends the table's cell."""
    text = one_line(text) or " "
    if in_table and re.search(r"\\+\|", text):  # no number of backslashes puts a backslash before a pipe into a cell
        entities = (char if char.isalnum() or char == " " else f"&#{ord(char)};" for char in text)
        return f"<code>{''.join(entities)}</code>"
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    if text.startswith("`") or text.endswith("`"):
        text = f" {text} "
    span = f"{fence}{text}{fence}"
    return span.replace("|", "\\|") if in_table else span


def plain(text: str) -> str:
    """Return text on one line with everything escaped that Markdown would read as markup."""
    return _SPECIAL.sub(r"\\\1", one_line(text))


def link(markdown: str, address: str) -> str:
    """Return Markdown as a link; the characters of the address that could end the link are percent-encoded."""
    encoded = re.sub(r"[\s()<>|\\`\"]", lambda match: f"%{ord(match[0]):02X}", address)
    return f"[{markdown}]({encoded})"


def html_text(text: str) -> str:
    """Return text for an HTML block of Markdown: a blank line in it would end the block, so it is put on one line."""
    return html.escape(one_line(text), quote=False)
