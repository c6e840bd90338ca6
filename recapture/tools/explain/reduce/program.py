"""The program that is reduced: one case with what it uses, as a syntax tree and as text."""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from recapture.cases.source import parse_file
from recapture.cases.syntax import DEFINITION, PROJECT, called_part, dotted, imported_names, is_import

LONGEST = 110
"""Characters of the longest line that joining two statements may give."""


RANDOM = ("rand", "randn", "empty")
"""Functions of torch that make a tensor of some sizes whose numbers are not known from reading them."""


class Size(NamedTuple):
    """The size of a program: its lines, without blank ones, and its bytes."""

    lines: int
    bytes: int


class Program(NamedTuple):
    """A case that stands alone in its file, and the names by which the file calls this project's decorators."""

    tree: ast.Module
    name: str
    decorators: frozenset[str]

    @property
    def text(self) -> str:
        """The file's text."""
        return text_of(self.tree)

    @property
    def size(self) -> Size:
        """The size of the text."""
        return size_of(self.text)


def size_of(text: str) -> Size:
    """Return the size of a text."""
    return Size(sum(1 for line in text.splitlines() if line.strip()), len(text.encode()))


def case_program(path: Path, name: str, made_by: str | None = None) -> Program:
    """Return a case of a suite file with all that it uses, and without other cases, docstrings and claims.

    `made_by` names the function that makes a generated case. Raises KeyError if the file does not define it.
    """
    parsed = parse_file(path)
    definition = made_by or name
    needed = parsed.needs(definition)
    body = [node for node in parsed.body if node in needed or (is_import(node) and _is_ours(node))]
    tree = ast.Module(body=copy.deepcopy(body), type_ignores=[])
    for node in ast.walk(tree):
        if isinstance(node, DEFINITION) and node.name != definition:
            node.decorator_list = [
                decorator for decorator in node.decorator_list if dotted(called_part(decorator)) not in parsed.ours
            ]
    return Program(_without_words(tree, definition, parsed.ours), name, parsed.ours)


def whole_program(path: Path, name: str) -> Program:
    """Return a whole suite file, for a case that works differently alone."""
    parsed = parse_file(path)
    tree = ast.Module(body=copy.deepcopy(parsed.body), type_ignores=[])
    return Program(_without_words(tree, name, parsed.ours), name, parsed.ours)


def _is_ours(node: ast.stmt) -> bool:
    module = (getattr(node, "module", None) or "").split(".")[0]
    return any(PROJECT in (module, alias.name.split(".")[0]) for alias in getattr(node, "names", []))


def _without_words(tree: ast.Module, name: str, ours: frozenset[str]) -> ast.Module:
    """Remove docstrings and the options of the case that only describe it."""
    for node in ast.walk(tree):
        if isinstance(node, (*DEFINITION, ast.Module)) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        for call in options_of(node, ours) if getattr(node, "name", None) == name else ():
            call.keywords = [keyword for keyword in call.keywords if keyword.arg not in ("claims", "compilers")]
    return ast.fix_missing_locations(tree)


def options_of(node: ast.AST, ours: frozenset[str]) -> list[ast.Call]:
    """Return the calls of this project's decorators on a definition."""
    decorators = [
        decorator for decorator in getattr(node, "decorator_list", []) if dotted(called_part(decorator)) in ours
    ]
    return [decorator for decorator in decorators if isinstance(decorator, ast.Call)]


def definition_of(tree: ast.Module, name: str) -> ast.FunctionDef | ast.ClassDef | None:
    """Return the top-level function or class with this name; None if there is none, or if it is a coroutine."""
    definitions = [
        statement
        for statement in tree.body
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) and statement.name == name
    ]
    return definitions[-1] if definitions else None


def copied(tree: ast.Module, change: Callable[[list[ast.AST]], object]) -> ast.Module | None:
    """Return a copy of a tree after a change; `change` is given the copy's nodes in the order of `ast.walk`.

    None if the change returns False, or if the result is no valid syntax tree.
    """
    changed_tree = copy.deepcopy(tree)
    if change(list(ast.walk(changed_tree))) is False:
        return None
    return ast.fix_missing_locations(changed_tree)


def text_of(tree: ast.Module) -> str:
    """Return a tree as text, with blank lines around definitions."""
    parts: list[str] = []
    for index, node in enumerate(tree.body):
        before = tree.body[index - 1] if index else None
        if before is not None and (isinstance(node, DEFINITION) or isinstance(before, DEFINITION)):
            parts.append("\n\n")
        elif before is not None and is_import(before) and not is_import(node):
            parts.append("\n")
        parts.append(f"{_unparsed(node)}\n")
    return "".join(parts)


def _unparsed(node: ast.stmt) -> str:
    """Return a statement as text; a decorator with long options has one line for each."""
    text = ast.unparse(node)
    decorators = getattr(node, "decorator_list", [])
    if not decorators or max(map(len, text.splitlines())) <= LONGEST:
        return text
    first, following = text.split("\n", 1)
    decorator = decorators[0]
    if len(decorators) > 1 or not isinstance(decorator, ast.Call) or len(first) <= LONGEST:
        return text
    arguments = [*map(ast.unparse, decorator.args), *(ast.unparse(keyword) for keyword in decorator.keywords)]
    lines = "".join(f"    {argument},\n" for argument in arguments)
    return f"@{ast.unparse(decorator.func)}(\n{lines})\n{following}"


def unbound(tree: ast.AST) -> frozenset[str]:
    """Return the names that are used in a program and bound nowhere in it: a program with fewer bindings would fail."""
    used: set[str] = set()
    bound: set[str] = {*dir(builtins), "__file__", "__class__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, DEFINITION):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif (isinstance(node, ast.ExceptHandler) and node.name) or (
            isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name
        ):
            bound.add(node.name)
        bound |= imported_names(node)
    return frozenset(used - bound)


def weight(tree: ast.AST) -> tuple[int, int, float]:
    """Return what a smaller program has less of: nodes of its tree, characters, and the size of its numbers."""
    nodes = 0
    numbers = 0.0
    for node in ast.walk(tree):
        nodes += not isinstance(node, (ast.expr_context, ast.alias, ast.Import, ast.ImportFrom))
        numbers += 0.5 * (isinstance(node, ast.Attribute) and node.attr in RANDOM)
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            numbers += min(abs(float(node.value)), 1e30) if node.value == node.value else 1e30
    return nodes, len(ast.unparse(tree)), numbers
