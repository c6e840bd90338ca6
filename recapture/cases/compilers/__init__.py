"""The compilers that ship, by name, in the order of the reports; each file declares one family."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from recapture.cases.compiler import COMPILERS_ATTRIBUTE, Compiler

if TYPE_CHECKING:
    from types import ModuleType

FAMILIES = ("eager", "dynamo", "torchscript", "fx", "export")
"""Names of the modules that declare compilers, in the order of the reports."""


def compilers_of(module: ModuleType) -> dict[str, Compiler]:
    """Return the compilers that a module declared, by name; raises ValueError for a duplicate name."""
    found: dict[str, Compiler] = {}
    for one in getattr(module, COMPILERS_ATTRIBUTE, []):
        if one.name in found:
            raise ValueError(f"two compilers are named {one.name!r}")
        found[one.name] = one
    return found


def builtin_compilers() -> dict[str, Compiler]:
    """Return the compilers that ship, without importing torch."""
    found: dict[str, Compiler] = {}
    for family in FAMILIES:
        found |= compilers_of(importlib.import_module(f"{__name__}.{family}"))
    return found
