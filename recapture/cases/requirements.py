"""What cases and compilers need from the installation: a release of torch, and other modules."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable

from recapture.torch_api.compat import release


def absent_modules(names: Iterable[str]) -> list[str]:
    """Return the modules that are not installed."""
    return [name for name in names if not is_installed(name)]


def unmet(owner: str, since: str | None, requires: Iterable[str]) -> str | None:
    """Return a message about the torch release or modules that `owner` needs and that are missing, or None."""
    if _is_too_old(since):
        return f"{owner} needs torch {since} or newer"
    absent = absent_modules(requires)
    return f"{owner} needs {', '.join(absent)}" if absent else None


def _is_too_old(since: str | None) -> bool:
    """Whether this torch is older than a release; a nightly build counts as the upcoming release."""
    if since is None:
        return False
    import torch

    return release(str(torch.__version__)) < release(since)


def is_installed(name: str) -> bool:
    """Whether a module can be imported, judged without importing it."""
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # its parent package is missing or not a package
        return False
