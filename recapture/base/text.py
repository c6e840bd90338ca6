"""Text for people: on one line, cut to a length, numbers with their nouns, ratios and durations."""

from __future__ import annotations

__all__ = ["one_line", "plural", "ratio_text", "shorten", "time_text"]


def one_line(text: str) -> str:
    """Return text with every run of white space, line breaks included, as one space, and nothing unprintable in it."""
    text = " ".join(text.split())
    return text if text.isprintable() else "".join(char if char.isprintable() else "\ufffd" for char in text)


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 cell``, ``2 cells``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def shorten(text: str, limit: int) -> str:
    """Return text on one line and at most `limit` characters long, an ellipsis standing for what was cut."""
    text = one_line(text)
    return text if len(text) <= limit else text[: max(limit - 1, 0)].rstrip() + "…"


def time_text(seconds: float | None) -> str:
    """Return a duration in the unit that suits it."""
    if seconds is None:
        return ""
    if seconds >= 1:
        return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def ratio_text(ratio: tuple[float, float, float]) -> str:
    """Return a ratio with its interval, such as ``2.83× [2.80, 2.86]``."""
    middle, low, high = (f"{value:.2f}" if value >= 0.1 else f"{value:.2g}" for value in ratio)
    return f"{middle}× [{low}, {high}]"
