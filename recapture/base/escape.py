"""Escaping of untrusted text (names, messages, file contents) for Markdown, HTML in Markdown, JSON and GitHub's log."""

from __future__ import annotations

import html
import re
from typing import Any

from recapture.base.text import one_line, printable, shorten

LONGEST = 1000
"""Characters shown of one name or message in Markdown, where a table pads every row to its longest cell."""

LONGEST_TEXT = 20_000
"""Characters shown of one text outside code, such as the line of differing packages."""

_MARKUP = re.compile(
    r"([\\`*{}\[\]<>#|~$&]|(?<![^\W_])_|_(?![^\W_])"
    r"|^[-+](?=\s|$)|^[-=](?=[-= ]*$)"  # start of a list, a rule, or a heading's underline
    r"|(?<=[A-Za-z]):(?=//)|(?<=\b[wW]{3})\.|(?<=\w)@(?=\w))"  # what GitHub turns into a link by itself
)
_NUMBERED = re.compile(r"^([0-9]{1,9})([.)])(?=\s|$)")

_UNSHOWN = re.compile(r"[^\n -~]")


def markdown_text(text: str) -> str:
    """Return text on one line, with all Markdown markup escaped."""
    return _NUMBERED.sub(r"\1\\\2", _MARKUP.sub(r"\\\1", shorten(text, LONGEST_TEXT)))


def markdown_code(text: str, *, in_table: bool = False) -> str:
    """Return any text as a code span; with `in_table`, no character of it ends the table's cell."""
    text = shorten(text, LONGEST) or " "
    if in_table and re.search(r"\\+\|", text):  # Markdown cannot write a backslash before a pipe in a cell
        entities = (char if char.isalnum() or char == " " else f"&#{ord(char)};" for char in text)
        return f"<code>{''.join(entities)}</code>"
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    if text.startswith("`") or text.endswith("`"):
        text = f" {text} "
    span = f"{fence}{text}{fence}"
    return span.replace("|", "\\|") if in_table else span


def html_text(text: str) -> str:
    """Return text on one line for an HTML block in Markdown, so that it neither ends the block nor starts a tag."""
    return html.escape(one_line(text), quote=False)


def workflow_text(text: str) -> str:
    """Return text as the message of a workflow command, which GitHub reads from the output of a job."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def workflow_property(text: str) -> str:
    """Return text as a property of a workflow command, such as its title or file."""
    return workflow_text(text).replace(":", "%3A").replace(",", "%2C")


def indented_json(value: Any) -> str:
    """Return plain data and msgspec's structures as an indented JSON document, with a line break at its end."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def json_text(text: str) -> str:
    r"""Return an equivalent JSON document with ``\u`` escapes for control and invisible characters."""
    return _UNSHOWN.sub(_as_escape, text)


def _as_escape(match: re.Match[str]) -> str:
    char = match[0]
    if printable(char) == char:
        return char
    data = char.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{data[place] << 8 | data[place + 1]:04x}" for place in range(0, len(data), 2))
