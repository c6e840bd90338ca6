"""Cells of the suites that look like a finding: the same kind of difference, and programs that use the same names."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from recapture.cases.collection import shipped_suites
from recapture.cases.compilers import compiler_facts
from recapture.records.verdicts import SILENTLY_WRONG
from recapture.report.findings import known_lines
from recapture.tools.generate.explanations import committed_records

ALIKE = 0.6
"""The share of the names of the shorter of two programs that both have if they look alike."""

FEWEST = 2
"""Names that two programs have in common if they look alike."""

EVERYWHERE = frozenset(
    {
        "torch",
        "case",
        "example",
        "held_out",
        "rewrite_of",
        "x",
        "y",
        "n",
        "randn",
        "rand",
        "ones",
        "tensor",
        "Generator",
    }
    | {"randint", "manual_seed", "generator", "zeros", "dtype", "to", "requires_grad_", "float32", "int64", "uint8"}
    | {"nn", "Module", "super", "__init__"}
)
"""Names that say nothing about a program."""

MOST = 3
"""Cells that are named for a finding."""


def similar_cases(text: str, kind: str, compiler: str, torch: str) -> list[str]:
    """Return what is known of the cells of the suites that look like a program, the most similar first."""
    names = names_used(ast.parse(text))
    of_cases = dict(_cases())
    family = compiler_facts(compiler).family
    rated = []
    for record in committed_records(torch):
        if record.verdict not in SILENTLY_WRONG or compiler_facts(record.compiler).family != family:
            continue
        if all(difference.kind != kind for difference in record.differences):
            continue
        others = of_cases.get(record.case, frozenset())
        common = len(names & others)
        share = common / max(min(len(names), len(others)), 1)
        if common >= FEWEST and share >= ALIKE:
            rated.append((-share, record.cell, "; ".join(known_lines(record)) or "no known reason"))
    return [f"{cell}: {words}" for _, cell, words in sorted(rated)[:MOST]]


def names_used(tree: ast.AST) -> frozenset[str]:
    """Return the names of functions, methods and attributes that a program uses."""
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return frozenset(names) - EVERYWHERE


def _cases() -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the cases of the suites that ship, each with the names that it and its helpers use."""
    for suite in shipped_suites():
        body = ast.parse(Path(suite.path).read_text(encoding="utf-8")).body
        nodes = {node.name: node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        for name, node in nodes.items():
            if node.decorator_list:
                yield f"{suite.name}::{name}", _names_with_helpers(node, nodes)


def _names_with_helpers(node: ast.AST, definitions: Mapping[str, ast.AST]) -> frozenset[str]:
    """Return the names that a definition uses, and those of the definitions in its file that it mentions."""
    mentioned = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} & definitions.keys()
    helpers = [names_used(definitions[name]) for name in mentioned if definitions[name] is not node]
    return names_used(node).union(*helpers) - definitions.keys()
