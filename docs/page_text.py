"""Markdown for the generated pages: tables, escaped text, docstrings."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable


def grid(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table; each cell is one line of Markdown."""
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join("| " + " | ".join(part.replace("|", r"\|") for part in line) + " |\n" for line in lines)


def plain(text: str) -> str:
    """Return help text with the characters escaped that Markdown reads as structure outside of back-ticks."""
    parts = re.split(r"(`+[^`]+`+)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"([*_<>\[\]\\])", r"\\\1", part) for part in parts)


def docstring(documented: object) -> str:
    """Return a docstring as Markdown paragraphs."""
    return "\n\n".join(plain_block(part) for part in (inspect.getdoc(documented) or "").split("\n\n"))


def plain_block(text: str) -> str:
    """Escape one paragraph, or each item of a list; indented text is not changed."""
    if all(line.startswith("    ") for line in text.splitlines()):
        return f"```text\n{inspect.cleandoc(text)}\n```"
    text = text.removesuffix("::") + (":" if text.endswith("::") else "")
    if not text.startswith("- "):
        return plain(text)
    return "\n".join("- " + plain(item) for item in re.split(r"^- ", text, flags=re.MULTILINE)[1:])


def member_docs(owner: type) -> dict[str, str]:
    """Return the docstrings below the fields of a class."""
    body = ast.parse(inspect.cleandoc("\n" + inspect.getsource(owner))).body[0]
    if not isinstance(body, ast.ClassDef):
        raise TypeError(owner)
    docstrings: dict[str, str] = {}
    for before, after in zip(body.body, body.body[1:], strict=False):
        target = before.targets[0] if isinstance(before, ast.Assign) else getattr(before, "target", None)
        text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
        if isinstance(target, ast.Name) and isinstance(text, str):
            docstrings[target.id] = " ".join(text.split())
    return docstrings
