"""Cells of the suites that look like a finding: the same kind of difference, and programs that use the same names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from recapture.cases.collection import shipped_suites
from recapture.cases.compilers import compiler_facts
from recapture.records.verdicts import SILENTLY_WRONG
from recapture.report.findings import known_lines
from recapture.tools.generate.explanations import committed_records

ALIKE = 0.5
"""The share of names that two programs have in common if they look alike."""

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
)
"""Names that say nothing about a program."""

MOST = 3
"""Cells that are named for a finding."""


def similar_cases(text: str, kind: str, compiler: str, torch: str) -> list[str]:
    """Return what is known of the cells of the suites that look like a program, the most similar first."""
    names = names_used(ast.parse(text))
    trees = dict(_cases())
    family = compiler_facts(compiler).family
    rated = []
    for record in committed_records(torch):
        if record.verdict not in SILENTLY_WRONG or compiler_facts(record.compiler).family != family:
            continue
        if all(difference.kind != kind for difference in record.differences):
            continue
        tree = trees.get(record.case)
        others = names_used(tree) if tree is not None else frozenset()
        share = len(names & others) / max(len(names | others), 1)
        if share >= ALIKE:
            rated.append((-share, record.cell, "; ".join(known_lines(record)) or "no known reason"))
    return [f"{cell}: {words}" for _, cell, words in sorted(rated)[:MOST]]


def names_used(tree: ast.AST) -> frozenset[str]:
    """Return the names of functions, methods and attributes that a program uses."""
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return frozenset(names) - EVERYWHERE


def _cases() -> Iterator[tuple[str, ast.AST]]:
    """Yield the cases of the suites that ship, as source."""
    for suite in shipped_suites():
        for node in ast.parse(Path(suite.path).read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.decorator_list:
                yield f"{suite.name}::{node.name}", node
