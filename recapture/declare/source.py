"""The source a definition needs: for hashing a case, and for printing a cell as a script of its own.

Only the standard library is used, and only what Python 3.10 to 3.14 agree on: one file has one hash on all of them.
"""

from __future__ import annotations

import ast
import hashlib
import re
import tokenize
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["Closure", "closure", "decorator_arguments", "defined_names"]

PROJECT = "recapture"
DECORATORS = frozenset({"case", "compiler"})
DESCRIPTIVE_ARGUMENTS = frozenset({"claims", "codegen_on"})
"""Arguments of a decorator that say something about a case without changing what runs."""

_EVERYTHING = "*"
"""Stands for every name: a statement acts on the whole process (torch.set_default_dtype) or imports everything."""

_Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_OPERATOR = re.compile(r"([A-Za-z_]\w*)::\w")
"""A string that names an operator, as `torch.library` takes it: ``namespace::name``."""


@dataclass(frozen=True)
class Closure:
    """A top-level definition with everything in its file that it refers to.

    `text` is runnable source: imports, then definitions in file order, without this project's decorators. `hash` is 12
    hexadecimal digits over what decides a case's outcome: comments, layout, docstrings and claims do not count.
    What a file imports from elsewhere is outside of both.
    """

    text: str
    hash: str


def closure(path: Path, name: str) -> Closure:
    """Return the closure of the top-level definition `name` of a Python file.

    Raises KeyError when the file defines no such name, OSError and SyntaxError as reading and parsing do.
    """
    parsed = _parse(path, path.stat().st_mtime_ns)
    needed = parsed.needs(name)
    digest = hashlib.sha256("\n".join(parsed.canonical(node) for node in needed).encode()).hexdigest()
    return Closure(parsed.text(needed), digest[:12])


def decorator_arguments(path: Path, name: str) -> dict[str, str]:
    """Return the source of each keyword argument of this project's decorator on the definition `name`."""
    parsed = _parse(path, path.stat().st_mtime_ns)
    text = b"".join(parsed.lines).decode()
    found: dict[str, str] = {}
    for statement in parsed.binders[name]:
        for node in ast.walk(statement):
            if not isinstance(node, _Definition) or node.name != name:
                continue
            for decorator in parsed.our_decorators(node):
                for keyword in getattr(decorator, "keywords", []):
                    found[keyword.arg or "**"] = ast.get_source_segment(text, keyword.value) or ""
    return found


def defined_names(text: str, *, imports: bool = True) -> set[str]:
    """Return the names that some source gives a meaning at its top level, those that it imports there among them."""
    tree = ast.parse(text)
    imported = set() if imports else {name for node in tree.body for name in _imported_names(node)}
    return _defined_names(tree) - imported


class _File:
    """One parsed source file: its top-level statements, by the names they bind or act on."""

    def __init__(self, text: str) -> None:
        # As ast counts: lines end in a newline and nothing else (not a form feed, say), columns are UTF-8 bytes.
        self.lines = [f"{line}\n".encode() for line in text.split("\n")]
        self.body = ast.parse(text).body
        self.ours = frozenset(_our_names(self.body))
        self.imported = frozenset(name for node in self.body for name in _imported_names(node))
        self.foreign = self.imported | frozenset(_aliases(self.body, self.imported))
        self.defined = frozenset(name for node in self.body for name in _defined_names(node))
        self.binders: dict[str, list[ast.stmt]] = {}
        for node in self.body:
            for name in self._bound(node):
                self.binders.setdefault(name, []).append(node)

    def needs(self, name: str) -> list[ast.stmt]:
        """The statements that `name` refers to, directly or not, in file order."""
        if name not in self.binders:
            raise KeyError(name)
        wanted: set[ast.stmt] = set()
        queue = [name, _EVERYTHING]
        while queue:
            for node in self.binders.get(queue.pop(), ()):
                if node not in wanted:
                    wanted.add(node)
                    queue.extend(self._references(node) | self._bound(node))
        return [node for node in self.body if node in wanted]

    def text(self, nodes: list[ast.stmt]) -> str:
        """The source of some statements, without this project's decorators, spaced as the usual style has it."""
        parts: list[str] = []
        for index, node in enumerate(nodes):
            before = nodes[index - 1] if index else node
            if isinstance(node, _Definition) or isinstance(before, _Definition):
                parts.append("\n\n" if index else "")
            elif _is_import(before) and not _is_import(node):
                parts.append("\n")
            parts.append(self._source(node))
        return "".join(parts)

    def canonical(self, node: Any) -> str:
        """A statement as text that says what it does and not how it was written."""
        if isinstance(node, list):
            return f"[{','.join(self.canonical(one) for one in node)}]"
        if isinstance(node, ast.Constant):
            return f"{type(node.value).__name__}:{node.value!a}"
        if not isinstance(node, ast.AST):
            return ascii(node)
        fields = dict(ast.iter_fields(node))
        if isinstance(node, ast.JoinedStr):  # releases differ in how they cut the text between replacements
            fields["values"] = list(_merged(node.values))
        if isinstance(node, _Definition):
            if ast.get_docstring(node, clean=False) is not None:
                fields["body"] = node.body[1:]
            ours = self.our_decorators(node)
            fields["decorator_list"] = [one for one in node.decorator_list if one not in ours]
            arguments = [one for call in ours for one in getattr(call, "keywords", [])]
            decisive = (one for one in arguments if one.arg not in DESCRIPTIVE_ARGUMENTS)
            fields["case"] = sorted(decisive, key=lambda one: one.arg or "")
        # Empty and absent fields go: later releases have more of them.
        written = (
            f"{name}={self.canonical(value)}"
            for name, value in fields.items()
            if value is not None and value != [] and name not in ("ctx", "kind", "type_comment")
        )
        return f"{type(node).__name__}({','.join(written)})"

    def our_decorators(self, node: ast.AST) -> list[ast.expr]:
        """The decorators of a definition that are this project's, under whatever name the file imports them."""
        return [one for one in getattr(node, "decorator_list", []) if _dotted(_called(one)) in self.ours]

    def _source(self, node: ast.stmt) -> str:
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
        last = node.end_lineno or node.lineno
        lines = dict(enumerate(self.lines[first - 1 : last], first))
        end = node.end_col_offset or 0
        rest = lines[last][end:].strip()
        if rest and not rest.startswith(b"#"):  # another statement after a semicolon
            lines[last] = lines[last][:end] + b"\n"
        if first == node.lineno:
            lines[first] = lines[first][node.col_offset :]
        for inner in ast.walk(node):
            for decorator in self.our_decorators(inner):
                for number in range(decorator.lineno, (decorator.end_lineno or decorator.lineno) + 1):
                    lines.pop(number, None)
        return b"".join(lines[number] for number in sorted(lines)).decode()

    def _references(self, node: ast.stmt) -> set[str]:
        """The names a statement uses, and ``ops::namespace`` for operators it uses by name."""
        described: set[ast.AST] = set()
        for inner in ast.walk(node):
            for decorator in self.our_decorators(inner):
                described.update(ast.walk(_called(decorator)))
                for keyword in getattr(decorator, "keywords", []):
                    if keyword.arg in DESCRIPTIVE_ARGUMENTS:
                        described.update(ast.walk(keyword))
        return _names(one for one in ast.walk(node) if one not in described)

    def _bound(self, node: ast.stmt) -> set[str]:
        """The names that a statement binds, changes or registers something for."""
        if isinstance(node, _Definition):
            return {node.name} | {name for one in node.decorator_list for name in self._registers(one)}
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = getattr(node, "module", None) or ""
            if module == "__future__":
                return {_EVERYTHING}
            ours = module.split(".")[0] == PROJECT
            return {name for name in _imported_names(node) if not ours or name not in {*self.ours, _EVERYTHING}}
        if isinstance(node, ast.If) and "__name__" in _names(ast.walk(node.test)):
            return set()  # what a file does when it is run is no part of a case
        if isinstance(node, ast.Expr):
            return self._acted_on(node)
        found = {one for one in _names(ast.walk(node)) if one.startswith("ops::")}
        if isinstance(node, (ast.For, ast.While, ast.With)) and any(map(_is_call, node.body)):
            found.add(_EVERYTHING)  # whatever it calls, by names that it binds itself
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                found |= self._bound(child)
            elif isinstance(child, (ast.ExceptHandler, ast.match_case)):
                found |= {name for inner in child.body for name in self._bound(inner)}
            else:
                found |= self._stored(child)
        return found

    def _stored(self, node: ast.AST) -> set[str]:
        """The names assigned to; an attribute or item of what is imported is a setting of the whole process."""
        found: set[str] = set()
        for inner in ast.walk(node):
            written = isinstance(getattr(inner, "ctx", None), (ast.Store, ast.Del))
            if written and isinstance(inner, (ast.Name, ast.Attribute, ast.Subscript)):
                target: ast.expr = inner
                while isinstance(target, (ast.Attribute, ast.Subscript)):
                    target = target.value
                name = target.id if isinstance(target, ast.Name) else _EVERYTHING
                found |= {name, _EVERYTHING} if target is not inner and name in self.foreign else {name}
        return found

    def _acted_on(self, node: ast.Expr) -> set[str]:
        """What a call at top level acts on: ``torch.fx.wrap("helper")``, ``LIBRARY.define(…)``, or on anything."""
        if isinstance(node.value, ast.Constant):  # the file's docstring
            return set()
        strings = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}
        names = _names(ast.walk(node))
        found = ((names | strings) & (self.defined - self.foreign)) | {one for one in names if one.startswith("ops::")}
        called = _called(node.value)
        unknown = not found or (isinstance(called, ast.Name) and called.id in self.defined - self.foreign)
        return found | {_EVERYTHING} if unknown else found

    def _registers(self, decorator: ast.expr) -> set[str]:
        """What a decorator registers its function for: ``@operator.register_fake``, ``@torch.library.impl(LIB, …)``."""
        dotted = _dotted(_called(decorator)) or ""
        root, _, attribute = dotted.partition(".")
        found = {root} if attribute and root in self.defined - self.imported else set()
        if isinstance(decorator, ast.Call) and "library" in dotted.split("."):
            arguments = [*decorator.args, *(keyword.value for keyword in decorator.keywords)]
            found |= {name for one in arguments for name in _names(ast.walk(one))} - self.imported
        return found


@lru_cache(maxsize=64)
def _parse(path: Path, _mtime: int) -> _File:
    with tokenize.open(path) as handle:
        return _File(handle.read())


def _aliases(body: list[ast.stmt], imported: frozenset[str]) -> set[str]:
    """The names that are given to something imported as it is: ``config`` in ``config = torch._dynamo.config``."""
    found: set[str] = set()
    outside = (statement for statement in body if not isinstance(statement, _Definition))
    for node in (inner for statement in outside for inner in ast.walk(statement)):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None) if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if value is not None and (_dotted(value) or "").split(".")[0] in imported | found:
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def _our_names(body: list[ast.stmt]) -> Iterator[str]:
    """The names by which a file calls this project's decorators: ``case``, ``c``, ``recapture.case``, ``rc.case``."""
    for node in (inner for statement in body for inner in ast.walk(statement)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == PROJECT:
                    yield from (f"{alias.asname or alias.name}.{one}" for one in DECORATORS)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PROJECT:
            for alias in node.names:
                if alias.name == "*":
                    yield from DECORATORS
                elif alias.name in DECORATORS:
                    yield alias.asname or alias.name
                else:  # a module of this project
                    yield from (f"{alias.asname or alias.name}.{one}" for one in DECORATORS)


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom))


def _is_call(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def _imported_names(node: ast.AST) -> set[str]:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return set()


def _defined_names(node: ast.AST) -> set[str]:
    """The names that a top-level statement gives a meaning, inside an if or a try as well."""
    if isinstance(node, _Definition):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return _imported_names(node)
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Store) else set()
    return {name for child in ast.iter_child_nodes(node) for name in _defined_names(child)}


def _called(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _dotted(node: ast.AST) -> str | None:
    """``a.b.c`` for names and attributes; None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value)
        return owner and f"{owner}.{node.attr}"
    return None


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    """Names, and ``ops::namespace`` for ``torch.ops.namespace``, ``"namespace::name"`` and ``Library("namespace")``."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and (_dotted(node.value) or "").split(".")[-1] == "ops":
            found.add(f"ops::{node.attr}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            operator = _OPERATOR.match(node.value)
            found |= {f"ops::{operator[1]}"} if operator else set()
        elif isinstance(node, ast.Call) and (_dotted(node.func) or "").split(".")[-1] == "Library":
            found |= {
                f"ops::{one.value}"
                for one in node.args[:1]
                if isinstance(one, ast.Constant) and isinstance(one.value, str)
            }
    return found


def _merged(values: list[ast.expr]) -> Iterator[ast.expr]:
    text: list[str] = []
    for value in values:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            text.append(value.value)
            continue
        yield from _text(text)
        text = []
        yield value
    yield from _text(text)


def _text(pieces: list[str]) -> Iterator[ast.expr]:
    joined = "".join(pieces)
    if joined:  # 3.12 leaves empty pieces behind
        yield ast.Constant(joined)
