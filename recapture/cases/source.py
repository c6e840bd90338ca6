"""The source that a definition needs, for hashing a case and for printing a cell as a stand-alone script.

This uses only the standard library, and only features that are the same in Python 3.10 to 3.14, so that a file has
the same hash on all of them.
"""

from __future__ import annotations

import ast
import hashlib
import tokenize
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from recapture.cases.syntax import (
    DEFINITION,
    PROJECT,
    aliases,
    called_part,
    dotted,
    imported_names,
    is_call,
    is_future,
    is_import,
    merged_text,
    names_defined,
    names_of_decorators,
    names_used,
    users_of,
    without_project,
)

if TYPE_CHECKING:
    from pathlib import Path

DESCRIPTIVE_ARGUMENTS = frozenset(
    {"claims", "codegen_on", "compilers", "names", "seconds"}  # of a case
    | {"family", "last_stage", "arguments", "run_by", "share_passing", "fixes_values", "also_called"}  # of a compiler
)
"""Arguments of a decorator that describe a case or a compiler without changing what runs."""

LINE = 120
"""Characters of the longest decorator that is written on one line."""

_EVERYTHING = "*"
"""Name used for statements that affect every definition, such as torch.set_default_dtype(…) or a star import."""


@dataclass(frozen=True)
class Closure:
    """A top-level definition with everything in its file that it uses.

    `text` is runnable source: imports, then definitions in file order, without this project's decorators and imports.
    `body` is the same without ``from __future__`` imports, whose names are in `futures`. `declared` is the body with
    the definition's own decorator, except for arguments that only describe it, and `called` lists this project's
    decorators in it by the file's names: ``case`` for ``@case(example=…)`` and for ``case(example=…)(f)``. `hash` has
    12 hexadecimal digits and covers everything that affects a case's outcome: not comments, layout, docstrings or
    claims. None of these includes the source of imported modules.
    """

    text: str
    hash: str
    body: str
    declared: str
    futures: tuple[str, ...]
    called: tuple[str, ...]


def closure(path: Path, name: str, *more: str) -> Closure:
    """Return the closure of the top-level definition `name` of a Python file, or of several definitions at once.

    Raises KeyError if the file does not define the name, and OSError or SyntaxError from reading and parsing.
    """
    parsed = parse_file(path)
    needed = parsed.needs(name, *more)
    digest = hashlib.sha256("\n".join(parsed.canonical(node) for node in needed).encode()).hexdigest()
    futures = [node for node in needed if is_future(node)]
    others = [node for node in needed if not is_future(node)]
    return Closure(
        text=parsed.text(needed),
        hash=digest[:12],
        body=parsed.text(others),
        declared=parsed.text(others, decorated=name),
        futures=tuple(alias.name for node in futures for alias in getattr(node, "names", [])),
        called=tuple(sorted(parsed.called(needed, name))),
    )


def defined_names(text: str, *, imports: bool = True) -> set[str]:
    """Return the names that some source defines at its top level; with `imports`, also those that it imports."""
    tree = ast.parse(text)
    imported = set() if imports else {name for node in tree.body for name in imported_names(node)}
    return names_defined(tree) - imported


class SourceFile:
    """One parsed source file: its top-level statements, indexed by the names that they bind or affect."""

    def __init__(self, text: str) -> None:
        # ast counts lines by newlines only (not form feeds, for example) and columns in UTF-8 bytes.
        self.lines = [f"{line}\n".encode() for line in text.split("\n")]
        self.body = ast.parse(text).body
        # The file's names for this project's decorators, which describe a definition and are not part of it.
        self.ours = frozenset(names_of_decorators(self.body))
        self.imported = frozenset(name for node in self.body for name in imported_names(node))
        # Writing to what other modules own changes the whole process, and so every case: see `_stored`.
        self.foreign = self.imported | frozenset(aliases(self.body, self.imported))
        self.defined = frozenset(name for node in self.body for name in names_defined(node))
        # A helper that calls `case(…)` declares cases as the decorator does: see `_declared`.
        self.declaring = self.ours | users_of(self.ours, self.body)
        # A name may be bound more than once, and a later statement may change what it is bound to: all are needed.
        self.binders: dict[str, list[ast.stmt]] = {}
        for node in self.body:
            for name in self._bound(node):
                self.binders.setdefault(name, []).append(node)

    def needs(self, *names: str) -> list[ast.stmt]:
        """Return the statements that some names need, directly or indirectly, in file order.

        Raises KeyError for a name that the file does not bind.
        """
        for name in names:
            if name not in self.binders:
                raise KeyError(name)
        needed: set[ast.stmt] = set()
        queue = [*names, _EVERYTHING]
        while queue:
            for node in self.binders.get(queue.pop(), ()):
                if node not in needed:
                    needed.add(node)
                    queue.extend(self._references(node) | self._bound(node))
        return [node for node in self.body if node in needed]

    def called(self, nodes: list[ast.stmt], decorated: str) -> set[str]:
        """Return this project's decorators, by the file's names, that `text` of the same arguments contains."""
        dropped: set[ast.AST] = set()
        for inner in (inner for node in nodes for inner in ast.walk(node)):
            if getattr(inner, "name", None) != decorated:
                for decorator in self.our_decorators(inner):
                    dropped.update(ast.walk(decorator))
        used = (dotted(inner) for node in nodes for inner in ast.walk(node) if inner not in dropped)
        return {name for name in used if name in self.ours}

    def text(self, nodes: list[ast.stmt], decorated: str | None = None) -> str:
        """Return the source of statements with standard blank lines.

        This project's decorators are left out, except on the definition `decorated`.
        """
        parts: list[str] = []
        pairs = [(node, remaining) for node in nodes if (remaining := without_project(node)) is not None]
        for index, (node, remaining) in enumerate(pairs):
            before = pairs[index - 1][0] if index else node
            if isinstance(node, DEFINITION) or isinstance(before, DEFINITION):
                parts.append("\n\n" if index else "")
            elif is_import(before) and not is_import(node):
                parts.append("\n")
            parts.append(self._source(node, decorated) if remaining is node else f"{ast.unparse(remaining)}\n")
        return "".join(parts)

    def canonical(self, node: Any) -> str:
        """Return a statement as text that does not depend on layout or comments."""
        if isinstance(node, list):
            return f"[{','.join(self.canonical(item) for item in node)}]"
        if isinstance(node, ast.Constant):
            return f"{type(node.value).__name__}:{node.value!a}"
        if not isinstance(node, ast.AST):
            return ascii(node)
        fields = dict(ast.iter_fields(node))
        if isinstance(node, ast.JoinedStr):  # Python releases split the text between fields differently
            fields["values"] = list(merged_text(node.values))
        if isinstance(node, DEFINITION):
            if ast.get_docstring(node, clean=False) is not None:
                fields["body"] = node.body[1:]
            ours = self.our_decorators(node)
            fields["decorator_list"] = [decorator for decorator in node.decorator_list if decorator not in ours]
            arguments = [argument for call in ours for argument in getattr(call, "keywords", [])]
            decisive = (argument for argument in arguments if argument.arg not in DESCRIPTIVE_ARGUMENTS)
            fields["case"] = sorted(decisive, key=lambda argument: argument.arg or "")
        # Drop empty and absent fields: later releases have more of them.
        field_texts = (
            f"{name}={self.canonical(value)}"
            for name, value in fields.items()
            if value is not None and value != [] and name not in ("ctx", "kind", "type_comment")
        )
        return f"{type(node).__name__}({','.join(field_texts)})"

    def our_decorators(self, node: ast.AST) -> list[ast.expr]:
        """Return this project's decorators on a definition, under any name the file imports them by."""
        return [
            decorator
            for decorator in getattr(node, "decorator_list", [])
            if dotted(called_part(decorator)) in self.ours
        ]

    def _source(self, node: ast.stmt, decorated: str | None) -> str:
        first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
        last = node.end_lineno or node.lineno
        lines = dict(enumerate(self.lines[first - 1 : last], first))
        end = node.end_col_offset or 0
        after = lines[last][end:].strip()
        if after and not after.startswith(b"#"):  # another statement after a semicolon
            lines[last] = lines[last][:end] + b"\n"
        if first == node.lineno:
            lines[first] = lines[first][node.col_offset :]
        for inner in ast.walk(node):
            for decorator in self.our_decorators(inner):
                for number in range(decorator.lineno, (decorator.end_lineno or decorator.lineno) + 1):
                    lines.pop(number, None)
                if getattr(inner, "name", None) == decorated and isinstance(decorator, ast.Call):
                    lines[decorator.lineno] = self._call(decorator)
        return b"".join(lines[number] for number in sorted(lines)).decode()

    def _call(self, decorator: ast.Call) -> bytes:
        """Return the lines of a decorator without the arguments that only describe the case."""
        margin = b" " * (decorator.col_offset - 1)
        decisive = [argument for argument in decorator.keywords if argument.arg not in DESCRIPTIVE_ARGUMENTS]
        arguments = [*map(self._segment, decorator.args), *map(self._segment, decisive)]
        line = margin + b"@" + self._segment(decorator.func) + b"("
        whole = line + b", ".join(arguments) + b")\n"
        if len(whole) <= LINE and whole.count(b"\n") == 1:
            return whole
        return line + b"\n" + b"".join(margin + b"    " + argument + b",\n" for argument in arguments) + margin + b")\n"

    def _segment(self, node: ast.expr | ast.keyword) -> bytes:
        """Return the source of an expression or a keyword argument."""
        last = node.end_lineno or node.lineno
        lines = self.lines[node.lineno - 1 : last]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return b"".join(lines)

    def _references(self, node: ast.stmt) -> set[str]:
        """Return the names that a statement uses, and ``ops::namespace`` for operators that it uses by name."""
        described: set[ast.AST] = set()
        for inner in ast.walk(node):
            for decorator in self.our_decorators(inner):
                described.update(ast.walk(called_part(decorator)))
                for keyword in getattr(decorator, "keywords", []):
                    if keyword.arg in DESCRIPTIVE_ARGUMENTS:
                        described.update(ast.walk(keyword))
        return names_used(inner for inner in ast.walk(node) if inner not in described)

    def _bound(self, node: ast.stmt) -> set[str]:
        """Return the names that a statement binds, changes or registers something for."""
        if isinstance(node, DEFINITION):
            return {node.name} | {name for decorator in node.decorator_list for name in self._registers(decorator)}
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = getattr(node, "module", None) or ""
            if module == "__future__":
                return {_EVERYTHING}
            ours = module.split(".")[0] == PROJECT
            return {name for name in imported_names(node) if not ours or name not in {*self.ours, _EVERYTHING}}
        if isinstance(node, ast.If) and "__name__" in names_used(ast.walk(node.test)):
            return set()  # code that runs only as a script is not part of a case
        if isinstance(node, ast.Expr):
            return self._acted_on(node)
        bound = {name for name in names_used(ast.walk(node)) if name.startswith("ops::")}
        declared = self._declared(node)
        bound |= declared
        if isinstance(node, (ast.For, ast.While, ast.With)) and (declared or any(map(is_call, node.body))):
            bound.add(_EVERYTHING)  # it may call anything through names that it binds itself
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                bound |= self._bound(child)
            elif isinstance(child, (ast.ExceptHandler, ast.match_case)):
                bound |= {name for inner in child.body for name in self._bound(inner)}
            else:
                bound |= self._stored(child)
        return bound

    def _stored(self, node: ast.AST) -> set[str]:
        """Return the assigned names; assigning to an attribute or item of an import changes the whole process."""
        stored: set[str] = set()
        for inner in ast.walk(node):
            is_stored = isinstance(getattr(inner, "ctx", None), (ast.Store, ast.Del))
            if is_stored and isinstance(inner, (ast.Name, ast.Attribute, ast.Subscript)):
                target: ast.expr = inner
                while isinstance(target, (ast.Attribute, ast.Subscript)):
                    target = target.value
                name = target.id if isinstance(target, ast.Name) else _EVERYTHING
                stored |= {name, _EVERYTHING} if target is not inner and name in self.foreign else {name}
        return stored

    def _acted_on(self, node: ast.Expr) -> set[str]:
        """Return what a top-level call affects: ``torch.fx.wrap("helper")``, ``LIBRARY.define(…)``, or everything."""
        if isinstance(node.value, ast.Constant):  # the file's docstring
            return set()
        declared = self._declared(node)
        if declared:
            return declared
        strings = {
            inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
        }
        names = names_used(ast.walk(node))
        affected = ((names | strings) & (self.defined - self.foreign)) | {
            name for name in names if name.startswith("ops::")
        }
        called = called_part(node.value)
        unknown = not affected or (isinstance(called, ast.Name) and called.id in self.defined - self.foreign)
        return affected | {_EVERYTHING} if unknown else affected

    def _declared(self, node: ast.stmt) -> set[str]:
        """Return the definitions that a statement declares as cases or compilers: ``f`` in ``case(example=…)(f)``."""
        calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
        arguments: list[ast.expr] = []
        for call in calls:
            function: ast.expr = call
            passed: list[ast.expr] = []
            while isinstance(function, ast.Call):
                passed += function.args
                function = function.func
            if self.declaring & {dotted(function), *names_used(ast.walk(function))}:
                arguments += passed
        if arguments and any(isinstance(inner, ast.comprehension) for inner in ast.walk(node)):
            arguments = [inner for inner in ast.walk(node) if isinstance(inner, ast.expr)]  # it may bind their names
        return names_used(inner for argument in arguments for inner in ast.walk(argument)) & (
            self.defined - self.foreign
        )

    def _registers(self, decorator: ast.expr) -> set[str]:
        """Return what a decorator registers for: ``@operator.register_fake``, ``@torch.library.impl(LIB, …)``."""
        called = dotted(called_part(decorator)) or ""
        root, _, attribute = called.partition(".")
        names = {root} if attribute and root in self.defined - self.imported else set()
        if isinstance(decorator, ast.Call) and "library" in called.split("."):
            arguments = [*decorator.args, *(keyword.value for keyword in decorator.keywords)]
            names |= {name for argument in arguments for name in names_used(ast.walk(argument))} - self.imported
        return names


def parse_file(path: Path) -> SourceFile:
    """Read and parse a Python file; the result is cached until the file changes."""
    return _parsed(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _parsed(path: Path, _mtime: int) -> SourceFile:
    with tokenize.open(path) as handle:
        return SourceFile(handle.read())
