"""Finds what is named as ``module:name``: tasks of the pool, commands, and what tools do for the core."""

from __future__ import annotations

import importlib
from typing import Any


def load(name: str) -> Any:
    """Return what ``module:name`` names, or the module that ``module`` names; it is imported if it was not."""
    module, _, attribute = name.partition(":")
    imported = importlib.import_module(module)
    return getattr(imported, attribute) if attribute else imported


def module_of(name: str) -> str:
    """Return the module of ``module:name``."""
    return name.partition(":")[0]
