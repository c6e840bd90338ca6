"""The source a definition needs: for hashing a case, and for printing a cell as a script of its own."""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Closure", "closure", "decorator_arguments"]

DECORATORS = frozenset({"case", "compiler"})
DESCRIPTIVE_ARGUMENTS = frozenset({"claims"})
"""Arguments of a decorator that say something about a case without changing what runs."""


@dataclass(frozen=True)
class Closure:
    """A top-level definition with everything in its file that it refers to.

    `text` is runnable source: imports, then definitions in file order, without this project's decorators. `hash` is 12
    hexadecimal digits over what decides a case's outcome: comments, blank lines, docstrings and claims do not count.
    """

    text: str
    hash: str


def closure(path: Path, name: str) -> Closure:
    """Return the closure of the top-level definition `name` of a Python file.

    Raises KeyError when the file defines no such name, OSError and SyntaxError as reading and parsing do.
    """
    parsed = _parse(path, path.stat().st_mtime_ns)
    needed = parsed.needs(name)
    parts = [parsed.source(node, bare=True) for node in needed]
    digest = hashlib.sha256()
    for node in needed:
        digest.update(_canonical(parsed.source(node, bare=False, forget=_descriptive(node))).encode())
    return Closure("\n".join(parts), digest.hexdigest()[:12])


def decorator_arguments(path: Path, name: str) -> dict[str, str]:
    """Return the source of each keyword argument of this project's decorator on the definition `name`."""
    parsed = _parse(path, path.stat().st_mtime_ns)
    text = b"".join(parsed.lines).decode()
    found: dict[str, str] = {}
    for node in parsed.binders[name]:
        for decorator in getattr(node, "decorator_list", []):
            if _is_ours(decorator) and isinstance(decorator, ast.Call):
                for keyword in decorator.keywords:
                    found[keyword.arg or ""] = ast.get_source_segment(text, keyword.value, padded=False) or ""
    return found


class _File:
    """One parsed source file: its top-level statements, by the names they bind."""

    def __init__(self, text: str) -> None:
        self.lines = [line.encode() for line in text.splitlines(keepends=True)]  # ast counts columns in UTF-8 bytes
        self.body = ast.parse(text).body
        self.binders: dict[str, list[ast.stmt]] = {}
        for node in self.body:
            for bound in _bound_names(node):
                self.binders.setdefault(bound, []).append(node)

    def needs(self, name: str) -> list[ast.stmt]:
        """The statements that `name` refers to, directly or not, in file order."""
        if name not in self.binders:
            raise KeyError(name)
        wanted: set[ast.stmt] = set()
        queue = [name]
        while queue:
            for node in self.binders.get(queue.pop(), ()):
                if node not in wanted:
                    wanted.add(node)
                    queue.extend(_names(node) - DECORATORS)
        future = [node for node in self.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
        return future + [node for node in self.body if node in wanted and node not in future]

    def source(self, node: ast.stmt, *, bare: bool, forget: list[ast.AST] | None = None) -> str:
        """The text of one statement; `bare` leaves out this project's decorators, `forget` blanks parts of it."""
        decorators = getattr(node, "decorator_list", [])
        ours = [one for one in decorators if _is_ours(one)]
        start = min([node.lineno, *(one.lineno for one in decorators)])
        end = node.end_lineno or node.lineno
        lines = dict(enumerate(self.lines[start - 1 : end], start))
        for part in forget or []:
            _blank(lines, part)
        if bare and ours:
            for one in ours:
                for number in range(one.lineno, (one.end_lineno or one.lineno) + 1):
                    lines.pop(number, None)
        return b"".join(lines[number] for number in sorted(lines)).decode()


@lru_cache(maxsize=64)
def _parse(path: Path, _mtime: int) -> _File:
    with tokenize.open(path) as handle:
        return _File(handle.read())


def _bound_names(node: ast.stmt) -> set[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    # Assignments, and whatever binds or changes a name inside a try, if or with at top level.
    stored = {sub.id for sub in ast.walk(node) if isinstance(sub, ast.Name) and isinstance(sub.ctx, ast.Store)}
    if isinstance(node, (ast.Try, ast.If, ast.With)):
        for sub in ast.walk(node):
            if isinstance(sub, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
                stored |= _bound_names(sub)
    if isinstance(
        node, ast.Expr
    ):  # a call such as torch.fx.wrap("helper") or LIBRARY.define(...): it acts on its names
        stored |= _names(node)
        stored |= {sub.value for sub in ast.walk(node) if isinstance(sub, ast.Constant) and isinstance(sub.value, str)}
    return stored


def _names(node: ast.AST) -> set[str]:
    return {sub.id for sub in ast.walk(node) if isinstance(sub, ast.Name)}


def _is_ours(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", None)
    return name in DECORATORS


def _descriptive(node: ast.stmt) -> list[ast.AST]:
    """The parts of a statement that do not change what runs: docstrings, and claims in the decorator."""
    parts: list[ast.AST] = []
    for sub in ast.walk(node):
        body = getattr(sub, "body", None)
        if isinstance(sub, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and isinstance(body, list):
            first = body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                parts.append(first)
    for decorator in getattr(node, "decorator_list", []):
        if _is_ours(decorator) and isinstance(decorator, ast.Call):
            parts += [keyword for keyword in decorator.keywords if keyword.arg in DESCRIPTIVE_ARGUMENTS]
    return parts


def _blank(lines: dict[int, bytes], part: ast.AST) -> None:
    first, last = part.lineno, part.end_lineno  # type: ignore[attr-defined]
    for number in range(first, last + 1):
        line = lines[number]
        begin = part.col_offset if number == first else 0  # type: ignore[attr-defined]
        end = part.end_col_offset if number == last else len(line.rstrip(b"\r\n"))  # type: ignore[attr-defined]
        lines[number] = line[:begin] + b" " * (end - begin) + line[end:]


def _canonical(text: str) -> str:
    """Drop comments and lines without code; strings keep their own line breaks. Stable from Python 3.10 to 3.14."""
    comments: dict[int, int] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                comments[token.start[0]] = token.start[1]
    except (tokenize.TokenError, IndentationError):  # a function whose whole body was its docstring
        pass
    lines = text.splitlines()
    kept = (line[: comments.get(number, len(line))].rstrip().rstrip(",") for number, line in enumerate(lines, 1))
    return "\n".join(line for line in kept if line)
