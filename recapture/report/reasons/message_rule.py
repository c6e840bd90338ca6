"""A rule that turns messages of torch into a sentence about the user's code."""

from __future__ import annotations

import re
from typing import NamedTuple


class MessageRule(NamedTuple):
    """Which messages a rule is for, and its sentence.

    `pattern` is searched in ``TYPE: MESSAGE``. `families` and `phase` restrict the cells; empty means all. The sentence
    may name groups of the pattern, and ``input``, ``during``, ``compiler``, ``type``, ``first`` (the first line of the
    message), ``explanation`` (torch's own) and ``advice`` (what to do about a size that is not dynamic).
    """

    kind: str
    pattern: re.Pattern[str]
    text: str
    families: tuple[str, ...] = ()
    phase: str = ""


def rule(kind: str, pattern: str, text: str, families: tuple[str, ...] = (), phase: str = "") -> MessageRule:
    """Return a rule whose pattern also matches across lines."""
    return MessageRule(kind, re.compile(pattern, re.DOTALL), text, families, phase)
