"""What no output may hold, whatever the files said: control characters, markup that is not the report's own."""

from __future__ import annotations

import functools
import json
import re
from html.parser import HTMLParser

from markdown_it import MarkdownIt

from recapture.base.escape import markdown_text
from recapture.base.text import one_line
from tests.fuzz.mutations import MARKS

CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Characters that a terminal obeys, that turn the direction of writing, or that cannot be seen; not the line break."""

INLINE = re.compile(r"<br>|</?code>")
BLOCK_TAGS = {"p", "details", "summary", "b", "code", "ul", "li"}
UNUSED = {"fence", "code_block", "hr", "blockquote_open", "ordered_list_open", "image"}

WHOLE = {markdown_text(one_line(mark)).strip() for mark in MARKS}
"""The hostile texts as a cell shows them."""

_MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
setattr(_MARKDOWN, "validateLink", lambda _address: True)  # noqa: B010 - a link that a browser would refuse is a finding too


def control(text: str, what: str) -> list[str]:
    """Return what is wrong with any text that people see."""
    match = CONTROL.search(text)
    if match is None:
        return []
    return [f"{what} has U+{ord(match[0]):04X} after {text[max(0, match.start() - 30) : match.start()]!r}"]


def markdown(text: str, what: str, *, titled: bool = True) -> list[str]:
    """Return what is wrong with a report in Markdown, as a parser of CommonMark with tables reads it.

    Its headings and cells begin with words of the report, unless it is not `titled`: then it is the check of a user's
    target, whose heading begins with the target's name, and whose cells may hold a text of the check as a whole.
    """
    problems = control(text, what)
    above = ""
    for token in _MARKDOWN.parse(text):
        if token.type == "html_block":
            problems += _block(token.content, what)
        elif token.type in UNUSED:
            problems.append(f"{what} has a {token.type}: {token.content[:80]!r}")
        elif token.type == "inline":
            whole = above in ("td_open", "th_open") and token.content.strip() in WHOLE
            problems += _inline(token, what, may_begin=not titled and (above == "heading_open" or whole))
        above = token.type
    return problems


def _inline(token, what: str, *, may_begin: bool) -> list[str]:
    problems = []
    if not may_begin and token.content.lstrip().startswith("injected"):
        problems.append(f"{what} has a paragraph, heading or cell of its own: {token.content[:80]!r}")
    for child in token.children:
        if child.type == "html_inline" and not INLINE.fullmatch(child.content):
            problems.append(f"{what} has {child.content[:80]!r}")
        elif child.type == "link_open" and re.search("evil|javascript", str(child.attrs)):
            problems.append(f"{what} has a link to {child.attrs}")
        elif child.type in UNUSED:
            problems.append(f"{what} has a {child.type}: {child.attrs}")
    return problems


def _block(text: str, what: str) -> list[str]:
    tags = _Tags()
    tags.feed(text)
    return [
        f"{what} has <{tag}> with {dict(attributes)}"
        for tag, attributes in tags.found
        if tag not in BLOCK_TAGS or attributes
    ]


def page(text: str, what: str, *, scripts: int | None = None) -> list[str]:
    """Return what is wrong with a page of HTML: a tag or an attribute that its template does not have.

    Its template has this number of scripts, by default that of the page of results.
    """
    tags = _Tags()
    tags.feed(text)
    problems = control(text, what)
    number = sum(tag == "script" for tag, _ in tags.found)
    if number != (_scripts() if scripts is None else scripts):
        problems.append(f"{what} has {number} scripts")
    for tag, attributes in tags.found:
        bad = [name for name, value in attributes if name.startswith("on") or "javascript:" in (value or "")[:20]]
        if bad or tag in ("img", "iframe", "object"):
            problems.append(f"{what} has <{tag}> with {bad}")
    return problems


@functools.lru_cache
def _scripts() -> int:
    """The number of scripts in a page that nothing hostile is in."""
    from recapture.report.html_page import render_html

    tags = _Tags()
    tags.feed(render_html([], None))
    return sum(tag == "script" for tag, _ in tags.found)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, list[tuple[str, str | None]]]] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.found.append((tag, attrs))


def document(text: str, what: str) -> list[str]:
    """Return what is wrong with JSON on standard output."""
    try:
        json.loads(text)
    except ValueError as error:
        return [f"{what} is no JSON: {error}"]
    return control(text, what)
