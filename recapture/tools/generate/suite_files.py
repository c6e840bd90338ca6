"""The file of generated programs: its text, and what is known of each program in it."""

from __future__ import annotations

import sys
import types
from typing import Any

import msgspec

from recapture.base.exceptions import safe_text
from recapture.base.text import one_line, shorten
from recapture.cases.case import CASES_ATTRIBUTE, REFUSED_ATTRIBUTE
from recapture.torch_api.compat import seed_everything, tree_leaves

LONGEST_REASON = 160
"""Characters of the reason why eager refuses a program."""


class MadeProgram(msgspec.Struct, frozen=True):
    """One program: its name in the suite and its form; why eager refuses it, if it does.

    `steps` are the constructs and the expressions that a program of Python is made of, and `rewrites` say in which ways
    it differs from the program that it is another spelling of.
    """

    name: str
    form: str
    refused: str | None = None
    steps: tuple[str, ...] = ()
    rewrites: tuple[str, ...] = ()
    unwritten: bool = False


class GeneratedSuite(msgspec.Struct, frozen=True):
    """The programs of one file, which are about one `subject`, and the text of the file with those that eager takes.

    `excused` are torch's own tests that an operator does not pass. `lacking` says why there is no program.
    """

    subject: str
    name: str
    dtype: str = ""
    text: str = ""
    programs: tuple[MadeProgram, ...] = ()
    excused: tuple[str, ...] = ()
    lacking: str | None = None


def suite_text(head: str, parts: list[str]) -> str:
    """Return the source of a file: its head, then its definitions."""
    return "\n\n\n".join([head.rstrip("\n"), *parts]) + "\n"


def refusal(text: str) -> str | None:
    """Return why eager refuses one of a file's programs, on its example or a held-out input; None if it takes all."""
    module = types.ModuleType("generated_programs")
    namespace = vars(module)
    namespace[REFUSED_ATTRIBUTE] = []
    sys.modules[module.__name__] = module  # where dataclasses look for the names of their annotations
    try:
        exec(compile(text, f"{module.__name__}.py", "exec"), namespace)  # noqa: S102 - written by this tool
        for declared in namespace[CASES_ATTRIBUTE]:
            for _, make in declared.inputs():
                seed_everything()
                _backward(declared.target(*make()))
    except Exception as error:
        return short(error)
    return None


def _backward(result: Any) -> None:
    """Run a backward of the sum of what requires a gradient."""
    import torch

    leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    total = sum(leaf.abs().sum() if leaf.is_complex() else leaf.sum() for leaf in leaves)
    if isinstance(total, torch.Tensor):
        total.backward()


def short(error: BaseException) -> str:
    """Return an exception in one line."""
    return shorten(one_line(f"{type(error).__name__}: {safe_text(error)}"), LONGEST_REASON)
