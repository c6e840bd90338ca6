"""Text for people: single lines, shortened, without control characters; counts with nouns, ratios, durations."""

from __future__ import annotations

import re
from collections.abc import Sequence

_REPLACEMENT = "\ufffd"
_SPACES = frozenset("\xa0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000")
"""Harmless spaces that `str.isprintable` rejects."""

_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Invisible characters that `str.isprintable` accepts."""


def printable(text: str, *, keep: str = "\n") -> str:
    """Return text in which no character controls a terminal, changes the direction of writing, or is invisible.

    Each such character (C0, C1, ANSI's escape, bidirectional overrides, zero-width characters, lone surrogates) becomes
    U+FFFD. The characters in `keep` are kept, by default line breaks.
    """
    if text.isascii() and (text.isprintable() or (keep == "\n" and text.replace("\n", "").isprintable())):
        return text  # the usual case
    allowed = _SPACES.union(keep)
    text = "".join(char if char.isprintable() or char in allowed else _REPLACEMENT for char in text)
    return _INVISIBLE.sub(_REPLACEMENT, text)


def one_line(text: str) -> str:
    """Return `printable` text with every run of white space, including line breaks, replaced by one space."""
    return printable(" ".join(text.split()), keep="")


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 cell``, ``2 cells``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def in_a_row(names: Sequence[str], word: str = "and") -> str:
    """Return names as in a sentence: ``a, b and c``; with another `word`, ``a, b or c``."""
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def shorten(text: str, limit: int) -> str:
    """Return text on one line and at most `limit` characters long; an ellipsis replaces what was cut."""
    # A message may have millions of characters: read only its beginning, with a margin for runs of spaces.
    text = one_line(text if len(text) <= 20 * limit else text[: 20 * limit] + " …")
    return text if len(text) <= limit else text[: max(limit - 1, 0)].rstrip() + "…"


def time_text(seconds: float | None) -> str:
    """Return a duration in a readable unit."""
    if seconds is None:
        return ""
    if seconds >= 1:
        return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def ratio_text(ratio: tuple[float, float, float]) -> str:
    """Return a ratio with its interval, such as ``2.83× [2.80, 2.86]``."""
    middle, low, high = (f"{value:.2f}" if value >= 0.1 else f"{value:.2g}" for value in ratio)
    return f"{middle}× [{low}, {high}]"


def duration_text(seconds: float) -> str:
    """Return a duration of seconds, minutes or hours: ``12 s``, ``3 min 05 s``, ``2 h 10 min``."""
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {seconds_left:02} s" if minutes else f"{seconds_left} s"
