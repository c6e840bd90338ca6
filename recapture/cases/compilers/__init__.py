"""The compilers that ship, by name, in the order in which they run; each file declares some of one frontend."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

from recapture.cases.compiler import COMPILERS_ATTRIBUTE, OTHER_STAGE, Compiler, CompilerFacts, Family, family_of_name

if TYPE_CHECKING:
    from recapture.records.guilty_stage import StageName

FIRST = ("eager", "dynamo", "torchscript", "fx", "export")
"""Names of the files whose compilers come first, in this order; those of other files follow by name."""

EAGER = "eager"
"""Name of the reference."""


def compilers_of(module: ModuleType) -> dict[str, Compiler]:
    """Return the compilers that a module declared, by name; raises ValueError for a duplicate name."""
    compilers: dict[str, Compiler] = {}
    for compiler in getattr(module, COMPILERS_ATTRIBUTE, []):
        if compiler.name in compilers:
            raise ValueError(f"two compilers are named {compiler.name!r}")
        compilers[compiler.name] = compiler
    return compilers


def builtin_compilers() -> dict[str, Compiler]:
    """Return the compilers that ship, without importing torch."""
    return dict(_builtin())


@cache
def _builtin() -> dict[str, Compiler]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    compilers: dict[str, Compiler] = {}
    for name in [*FIRST, *(name for name in names if name not in FIRST)]:
        compilers |= compilers_of(importlib.import_module(f"{__name__}.{name}"))
    return compilers


@cache
def compiler_facts(name: str) -> CompilerFacts:
    """Return what is known of a compiler by its name, without importing torch.

    A record has only the name. Of a compiler of a user, whose file may be gone, nothing is known but its family, and
    that by a convention: see `family_of_name`.
    """
    return _builtin().get(name) or CompilerFacts(name=name, family=family_of_name(name))


def plain_compiler(family: Family) -> str:
    """Return the name of a family's first compiler, the one without options: ``compile`` of those of Dynamo."""
    return next(name for name, compiler in _builtin().items() if compiler.family == family)


def shorter_compilers(family: str) -> dict[str, StageName]:
    """Return the compilers that end before the last stage of their family, with the stage, the shortest first.

    Where one of them is right and the whole compiler is not, a later stage is at fault.
    """
    last = family.last_stage if isinstance(family, Family) else None
    shorter = {name: compiler.last_stage for name, compiler in _builtin().items() if compiler.family == family}
    return {name: stage for name, stage in shorter.items() if stage is not None and stage not in (last, OTHER_STAGE)}


def plain_name(name: str) -> str:
    """Return the name of the plain compiler that a compiler is a variant of: ``compile`` of ``compile:dynamic``."""
    family = compiler_facts(name).family
    return plain_compiler(family) if isinstance(family, Family) else family
