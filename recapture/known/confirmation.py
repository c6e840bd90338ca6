"""Where a sentence about torch is confirmed: the address of a thread, change or document, or "not documented"."""

from __future__ import annotations

UNDOCUMENTED = "not documented"
"""The source of what no thread, change or document was found for."""


def check_source(name: str, source: str) -> None:
    """Raise ValueError, naming the entry, for a source that is neither an address nor `UNDOCUMENTED`."""
    if source != UNDOCUMENTED and not source.startswith("https://"):
        raise ValueError(f"{name}: the source is neither an address nor {UNDOCUMENTED!r}")
