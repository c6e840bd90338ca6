"""What torch compiled in the processes of a command, read from the file of `recapture.tools.upgrade.process_counts`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from packaging.version import InvalidVersion, Version

from recapture.tools.upgrade.outcomes import own_path

Count = Literal["compiled", "saved", "instructions"]
"""What can be counted."""

FIRST_TRACED = Version("2.6")
"""The first torch whose trace tells graph breaks and recompiles."""


class FrameCounts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The places in a function at which graphs are broken, and how often it is compiled again."""

    breaks: int = 0
    recompiles: int = 0

    @property
    def words(self) -> str:
        """Both numbers in words."""
        return f"{_number(self.breaks, 'break')}, {_number(self.recompiles, 'recompile')}"


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


class CompileCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of all processes of a command; None for what its torch, or the machine, does not tell.

    `saved` are the most bytes that one process saved for backward passes at a time, `instructions` those of compiling.
    `frames` has the functions of the user's own code, as ``file:function``, that have graph breaks or recompiles.
    """

    graphs: int | None = None
    breaks: int | None = None
    recompiles: int | None = None
    saved: int | None = None
    instructions: int | None = None
    frames: dict[str, FrameCounts] | None = None

    def why_unknown(self, torch: str) -> str:
        """Return why graph breaks and recompiles are not known; `torch` is the version, empty if that is not known."""
        if self.graphs is not None or (torch and not _is_traced(torch)):
            return f"torch is older than {FIRST_TRACED}"
        return f"torch is older than {FIRST_TRACED}, or no process of the command imports it and ends by itself"


class _End(msgspec.Struct):
    torch: str = ""
    graphs: int | None = None
    saved: int | None = None
    instructions: int | None = None


class _Line(msgspec.Struct):
    broke: tuple[str, int, str] | None = msgspec.field(name="break", default=None)
    recompile: tuple[str, str] | None = None
    end: _End | None = None


_LINES = msgspec.json.Decoder(_Line)


def read_counts(path: Path, root: Path) -> CompileCounts:
    """Return the counts in a file; `root` is the folder of the user's code. A line that was cut short is left out."""
    breaks: set[tuple[str, int, str]] = set()
    recompiles: list[tuple[str, str]] = []
    ends: list[_End] = []
    try:
        data = path.read_bytes()
    except FileNotFoundError:  # no process of the command imported torch
        data = b""
    for text in data.splitlines():
        try:
            line = _LINES.decode(text)
        except msgspec.DecodeError:
            continue
        if line.broke is not None:
            breaks.add(line.broke)
        elif line.recompile is not None:
            recompiles.append(line.recompile)
        elif line.end is not None:
            ends.append(line.end)
    traced = any(_is_traced(end.torch) for end in ends)
    return CompileCounts(
        graphs=_total(end.graphs for end in ends),
        breaks=len(breaks) if traced else None,
        recompiles=len(recompiles) if traced else None,
        saved=max((end.saved for end in ends if end.saved is not None), default=None),
        instructions=_total(end.instructions for end in ends),
        frames=_frames(breaks, recompiles, root) if traced else None,
    )


def _is_traced(torch: str) -> bool:
    try:
        return Version(Version(torch).base_version) >= FIRST_TRACED
    except InvalidVersion:
        return False


def _total(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _frames(
    breaks: Iterable[tuple[str, int, str]], recompiles: Iterable[tuple[str, str]], root: Path
) -> dict[str, FrameCounts]:
    numbers: dict[str, list[int]] = {}
    for column, places in enumerate(
        ([(file, function) for file, _, function in breaks], recompiles),
    ):
        for file, function in places:
            inside = own_path(file, root)
            if inside:
                numbers.setdefault(f"{inside}:{function}", [0, 0])[column] += 1
    return {frame: FrameCounts(breaks=counted[0], recompiles=counted[1]) for frame, counted in sorted(numbers.items())}


class FrameChange(msgspec.Struct, frozen=True, kw_only=True):
    """A function of the user's code with more or fewer graph breaks or recompiles than in the baseline."""

    frame: str
    before: FrameCounts
    after: FrameCounts

    @property
    def worse(self) -> bool:
        """Whether one of the numbers is larger."""
        return self.after.breaks > self.before.breaks or self.after.recompiles > self.before.recompiles

    @property
    def sentence(self) -> str:
        """The change in one line."""
        return f"{self.frame}: {self.before.words} → {self.after.words}"


Frames = Mapping[str, FrameCounts]
"""The counts of one run by function."""


def frame_changes(old: Sequence[Frames | None], new: Frames | None) -> list[FrameChange]:
    """Return the functions that differ from every run of the baseline; none where one side does not tell.

    A function that does not count alike in each run of the baseline is left out.
    """
    if not old or new is None:
        return []
    runs = [frames for frames in old if frames is not None]
    if len(runs) < len(old):
        return []
    nothing = FrameCounts()
    changes = []
    for frame in sorted({*new, *(name for frames in runs for name in frames)}):
        before = {frames.get(frame, nothing) for frames in runs}
        after = new.get(frame, nothing)
        if len(before) == 1 and after not in before:
            changes.append(FrameChange(frame=frame, before=before.pop(), after=after))
    return changes
