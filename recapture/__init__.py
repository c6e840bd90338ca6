"""What happens to PyTorch code when the torch version, the packages, the GPU or the way graphs are captured changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recapture.cases.case import case, case_for_each
from recapture.cases.compiler import Compiler, compiler
from recapture.cases.workload import workload

if TYPE_CHECKING:
    from recapture.tools.check.api import check, check_across

__all__ = ["Compiler", "__version__", "case", "case_for_each", "check", "check_across", "compiler", "workload"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import what checks when it is first used: what runs in an image's environment does without it."""
    if name in ("check", "check_across"):
        import importlib

        return getattr(importlib.import_module("recapture.tools.check.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
