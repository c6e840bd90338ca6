"""What happens to PyTorch code when the torch version, the packages, the GPU or the way graphs are captured changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recapture.base.version import __version__

if TYPE_CHECKING:
    from recapture.cases.case import case, case_for_each
    from recapture.cases.compiler import Compiler, compiler
    from recapture.cases.workload import workload

__all__ = ["Compiler", "__version__", "case", "case_for_each", "check", "check_across", "compiler", "workload"]

_PLACES = {
    "Compiler": "recapture.cases.compiler",
    "case": "recapture.cases.case",
    "case_for_each": "recapture.cases.case",
    "check": "recapture.tools.check.api",
    "check_across": "recapture.tools.check.api",
    "compiler": "recapture.cases.compiler",
    "workload": "recapture.cases.workload",
}
"""The public names, with the module of each."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `recapture --version` and a cell in an old image need few of them."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = globals()[name] = getattr(importlib.import_module(_PLACES[name]), name)
    return value
