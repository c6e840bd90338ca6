"""Cells in which a compiler that should change nothing does change something, each looked at by hand."""

from __future__ import annotations

__all__ = ["GENUINE"]

GENUINE: dict[str, str] = {}
"""Addresses of cells, each with what the compiler really does there."""
