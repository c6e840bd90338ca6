"""Reads the cases of a suite file from its syntax tree: no line of the file is executed, and torch is not imported.

So `recapture list` takes half a second; the import of torch alone takes several. This is for suites that are known to
import, such as those that ship: what a line of the file raises is not seen.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from recapture.cases.case import Case
from recapture.cases.claim import ClaimSyntaxError, parse_claims
from recapture.cases.collection import CaseInfo, case_info
from recapture.cases.source import closure, parse_file
from recapture.cases.syntax import DEFINITION, called_part, dotted, names_defined

if TYPE_CHECKING:
    from pathlib import Path

_INPUTS = frozenset({"example", "held_out", "other_ranks", "refused"})
"""Options whose values nobody sees in a list."""

_FUNCTIONS = frozenset({"watch", "reset", "rewrite_of"})
"""Options that a list shows by the names of the functions."""

_NAMES = frozenset({"concrete_args", "requires", "codegen_on", "compilers"})
"""Options that are lists of names."""

_PLAIN = frozenset({"backward", "train_step", "since", "seconds"})
"""Options that are a word or a number."""


class _UndecidedError(Exception):
    """The syntax tree does not say what the file declares."""


def declared_cases(path: Path) -> list[CaseInfo] | None:
    """Describe the cases of a suite file as `collect_suite` does; None if only executing the file would tell.

    That is so for cases that a function makes, that are declared within a condition or a loop, or whose options are
    computed.
    """
    try:
        source = parse_file(path)
        cases = [(node, decorator) for node in source.body for decorator in source.our_decorators(node)]
        names = [name for node in source.body for name in names_defined(node)]
        uses = sum(dotted(node) in source.ours for statement in source.body for node in ast.walk(statement))
        if not cases or uses != len(cases):  # a decorator within a condition, or called as a function
            return None
        return [_case_info(path, node, decorator, names) for node, decorator in cases]
    except (_UndecidedError, ClaimSyntaxError, OSError, ValueError, SyntaxError):
        return None


def _case_info(path: Path, node: ast.stmt, decorator: ast.expr, names: list[str]) -> CaseInfo:
    name = str(getattr(node, "name", ""))
    alone = isinstance(node, DEFINITION) and len(node.decorator_list) == 1 and names.count(name) == 1
    if not alone or not isinstance(decorator, ast.Call) or decorator.args:
        raise _UndecidedError
    if not (dotted(called_part(decorator)) or "").endswith("case"):
        raise _UndecidedError
    case = _case(name, {keyword.arg: keyword.value for keyword in decorator.keywords})
    docstring = ast.get_docstring(node) if isinstance(node, DEFINITION) else None
    return case_info(case, closure(path, name), (docstring or "").split("\n")[0])


def _case(name: str, options: dict[str | None, ast.expr]) -> Case:
    """Return a case with the options that a list shows; its target and its inputs are stand-ins."""
    known = _INPUTS | _FUNCTIONS | _NAMES | _PLAIN | {"claims", "strict", "compare_output"}
    if "example" not in options or not options.keys() <= known:
        raise _UndecidedError
    values: dict[str, Any] = dict.fromkeys((*_FUNCTIONS, *_NAMES, *_PLAIN))
    for option, node in options.items():
        if option in _FUNCTIONS:
            values[option] = _named_function(node)
        elif option is not None and option not in _INPUTS:
            values[option] = ast.literal_eval(node)
    for option in _NAMES:
        values[option] = None if values[option] is None else tuple(values[option])
    strict = [*(values.pop("strict", None) or ()), *(["output"] if values.pop("compare_output", False) else [])]
    return Case(
        **values | {"claims": parse_claims(values.pop("claims", None)), "requires": values["requires"] or ()},
        name=name,
        line=None,
        target=_stand_in,
        example=_stand_in,
        held_out=(),
        strict=tuple(dict.fromkeys(strict)),
    )


def _stand_in() -> Any:
    raise AssertionError("the inputs of a case that was read from a syntax tree")


def _named_function(node: ast.expr) -> Any:
    """Return a function with the name that a function of the file has: ``f``, ``f`` of ``module.f``, or a lambda's."""

    def function() -> None: ...

    name = "<lambda>" if isinstance(node, ast.Lambda) else (dotted(node) or "").rpartition(".")[2]
    if not name:
        raise _UndecidedError
    function.__name__ = name
    return function
