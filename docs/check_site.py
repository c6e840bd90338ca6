"""Checks a built site: every local link and anchor exists, and no page loads anything from other sites.

``python docs/check_site.py FOLDER`` prints the problems and exits with status 1, or with 0 if there are none.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}
"""Attributes that load another file, by tag."""


class Page(HTMLParser):
    """The ids, links and loaded files of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the ids and addresses of one tag."""
        attributes = {name: value or "" for name, value in attrs}
        if "id" in attributes:
            self.ids.add(attributes["id"])
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])
        if tag in LOADED and attributes.get(LOADED[tag]):
            self.loaded.append(attributes[LOADED[tag]])


def problems(folder: Path) -> list[str]:
    """Return the problems of the site in a folder, one line each."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    if not pages:
        return [f"no page in {folder}"]
    messages = []
    for path, page in pages.items():
        name = path.relative_to(folder.resolve())
        messages += [f"{name}: loads {address} from elsewhere" for address in page.loaded if urlsplit(address).netloc]
        for address in [*page.links, *page.loaded]:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                messages.append(f"{name}: {address} does not exist")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                messages.append(f"{name}: {address} names no place of that page")
    return messages


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]))
    print("\n".join(wrong) or "every link and anchor of the site exists")
    sys.exit(1 if wrong else 0)
