"""What a page says about strips: segments, the worst of several, and sentences such as "right again in 2.13.0"."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from recapture.data import NOT_RECORDED, Data

SYMBOLS = {"right": "✓", "broken": "◐", "wrong": "✗", "failing": "!", "none": "–"}
"""The symbol of each tone, so that no outcome is told by its colour alone."""

WORST_FIRST = ("wrong", "failing", "broken", "right", "none")
"""The tones, the worst for a user first."""

PHRASES = {
    "wrong": "silently wrong",
    "failing": "fails",
    "broken": "right, with graph breaks",
    "right": "right",
    "none": "does not apply",
}
"""What a compiler of each tone does, in a sentence."""


class Segment(NamedTuple):
    """Neighbouring releases with one mark: the index of the first, how many they are, and what the page shows of them.

    `target` is the cell whose records it opens, where the row is not that of a cell.
    """

    first: int
    width: int
    mark: str
    tone: str
    label: str
    target: str = ""


def segments(data: Data, marks: str, columns: Sequence[int]) -> list[Segment]:
    """Return the segments of a strip, along the releases of some columns."""
    parts = []
    for mark, group in itertools.groupby(columns, key=lambda index: marks[index]):
        indexes = list(group)
        facts = data.marks.get(mark)
        tone, label = ("empty", "not recorded") if facts is None else (facts.tone, facts.short)
        parts.append(Segment(indexes[0], len(indexes), mark, tone, label))
    return parts


def tone_of(data: Data, mark: str) -> str | None:
    """Return the tone of a mark; None if nothing is recorded."""
    return None if mark == NOT_RECORDED else data.marks[mark].tone


def worst(data: Data, strips: Iterable[str]) -> str:
    """Return, for each release, the worst of the marks of several strips."""
    order = {tone: place for place, tone in enumerate(WORST_FIRST)}

    def badness(mark: str) -> int:
        tone = tone_of(data, mark)
        return len(order) if tone is None else order[tone]

    # The letter decides between marks of one tone, so that the result does not depend on the order of the strips.
    return "".join(min(marks, key=lambda mark: (badness(mark), mark)) for marks in zip(*strips, strict=True))


class Phrase(NamedTuple):
    """What a strip amounts to in words, with the tone of its newest release that says anything."""

    tone: str
    words: str


def phrase(data: Data, marks: str) -> Phrase | None:
    """Return what a strip amounts to: "silently wrong since 2.9.1, right again in 2.13.0"; None if nothing is recorded.

    Releases that do not have the compiler are left out: a strip begins with the first that has it.
    """
    named = [
        (release, tone_of(data, mark))
        for release, mark in zip(data.releases, marks, strict=True)
        if tone_of(data, mark) not in (None, "none")
    ]
    if not named:
        return None if set(marks) == {NOT_RECORDED} else Phrase("none", "does not apply to any release")
    spans = [
        (tone, [release for release, _ in group]) for tone, group in itertools.groupby(named, key=lambda pair: pair[1])
    ]
    tone = str(spans[-1][0])
    begins = named[0][0]
    since = "" if begins == data.releases[0] or len(named) == 1 else f", from {begins} on"
    if len(named) == 1:
        return Phrase(tone, f"{PHRASES[tone]} on {begins}")
    if len(spans) == 1:
        everywhere = "on every release" if begins == data.releases[0] else f"on every release from {begins} on"
        return Phrase(tone, f"{PHRASES[tone]} {everywhere}")
    if len(spans) == 2:
        before = str(spans[0][0])
        return Phrase(tone, f"{PHRASES[before]} until {spans[0][1][-1]}, {PHRASES[tone]} since {spans[1][1][0]}{since}")
    if len(spans) == 3 and spans[0][0] == spans[2][0]:
        middle = str(spans[1][0])
        return Phrase(
            tone, f"{PHRASES[middle]} since {spans[1][1][0]}, {PHRASES[tone]} again in {spans[2][1][0]}{since}"
        )
    words = [f"{PHRASES[str(name)]} {_span(releases)}" for name, releases in spans]
    return Phrase(tone, ", ".join(words))


def _span(releases: Sequence[str]) -> str:
    return f"on {releases[0]}" if len(releases) == 1 else f"{releases[0]}–{releases[-1]}"


class InShort(NamedTuple):
    """One line of a summary: compilers whose strips amount to the same."""

    tone: str
    words: str
    compilers: tuple[str, ...]


def in_short(data: Data, strips: dict[str, str]) -> list[InShort]:
    """Return what the strips of some compilers amount to, the worst first; the same words make one line."""
    lines: dict[Phrase, list[str]] = {}
    for compiler, marks in strips.items():
        meaning = phrase(data, marks)
        if meaning is not None:
            lines.setdefault(meaning, []).append(compiler)
    ordered = sorted(lines.items(), key=lambda item: (WORST_FIRST.index(item[0].tone), -len(item[1]), item[0].words))
    return [InShort(meaning.tone, meaning.words, tuple(names)) for meaning, names in ordered]
