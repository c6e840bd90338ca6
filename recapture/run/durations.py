"""What earlier runs of cells lead to expect: long cells start first, and cells that pass can share a process."""

from __future__ import annotations

import contextlib
import math
import os
import re
import stat
from typing import TYPE_CHECKING

import msgspec

from recapture.base.errors import UsageError
from recapture.base.paths import data_folder
from recapture.cases.compilers import builtin_compilers, plain_name
from recapture.records.record import CONFORMANCE, TIMINGS, CellKey
from recapture.records.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


MOST_BYTES = 64 << 20
"""Bytes of the largest file that is read: all results of the project take a tenth of this."""


CODEGEN_SECONDS = 10.0
"""Expected seconds of a cell that generates code, where nothing like it was run."""

CAPTURE_SECONDS = 0.1
"""Expected seconds of any other cell, where nothing like it was run."""


LONG_ON_ANY_DEVICE = 60.0
"""Seconds of a cell on a CPU that are not spent on building its C++ code, which another device does not do."""


class Expected(msgspec.Struct):
    """Data from earlier runs of a cell: its durations in seconds, and the verdicts that it had.

    `seconds` is the longest duration: a cell that may take long starts early. `likely` is the duration with the nearest
    release of torch, None if there is none.
    """

    seconds: float = 0.0
    likely: float | None = None
    verdicts: set[str] = msgspec.field(default_factory=set)

    @property
    def hangs(self) -> bool:
        """Whether the cell exceeded its deadline."""
        return Verdict.TIMEOUT.value in self.verdicts


class _Line(msgspec.Struct):
    """The fields of a record or a timing that are used here; other fields are ignored."""

    case: str
    compiler: str
    device: str
    verdict: str = ""
    seconds: float = 0.0

    @property
    def key(self) -> CellKey:
        return CellKey(self.case, self.compiler, self.device)


def earlier_runs(results: Path, device: str, image: str) -> dict[CellKey, Expected]:
    """Return the expected durations of cells, from all finished results below `results` and in the checkout.

    `image` is the name that this run's results are filed under. Other environments are included because a cell that
    hangs on one release often hangs on the next, and a first run has no timings of its own. Unreadable files are
    ignored: only the order of cells and the time shown depend on them.

    On another device, what takes `LONG_ON_ANY_DEVICE` seconds in the same image is not the code that is generated.
    """
    earlier: dict[CellKey, Expected] = {}
    decoder = msgspec.json.Decoder(_Line)
    for root in dict.fromkeys((results.absolute(), data_folder("results").absolute())):
        for name in (TIMINGS, CONFORMANCE):
            # The nearest release comes last, and replaces the likely durations of the others.
            paths = sorted(root.rglob(name))
            for path in sorted(paths, key=lambda path: _distance(path.parent.parent.name, image), reverse=True):
                own = name == TIMINGS and path.parent.parent.name == image.removeprefix("bare-")
                for line in lines_of(path):
                    # To look for the text is much cheaper than to decode the line.
                    if device.encode() not in line and not own:
                        continue
                    with contextlib.suppress(ValueError, RecursionError):
                        row = decoder.decode(line)
                        if row.device == device:
                            expected = earlier.setdefault(row.key, Expected())
                            expected.seconds = max(expected.seconds, row.seconds)
                            if name == TIMINGS:
                                expected.likely = row.seconds
                            expected.verdicts |= {row.verdict} - {""}
                        elif own and row.seconds > LONG_ON_ANY_DEVICE:
                            expected = earlier.setdefault(CellKey(row.case, row.compiler, device), Expected())
                            expected.seconds = max(expected.seconds, row.seconds)
    return earlier


def _distance(image: str, own: str) -> tuple[float, bool]:
    """Return how far an image is from this run's, in minor releases of torch; False for the image itself."""
    releases = [re.search(r"torch(\d+)\.(\d+)", name) for name in (image, own)]
    if None in releases:
        return math.inf, True
    first, second = (100 * int(release[1]) + int(release[2]) for release in releases if release)
    return abs(first - second), image != own.removeprefix("bare-")


def recorded_seconds(place: Path, device: str) -> dict[CellKey, float]:
    """Return the longest recorded duration of each cell, in seconds, in a file or in all results below a folder.

    Unreadable lines are ignored: only the division of a run into shards depends on them. Raises UsageError for a file
    with no other: it is not one of durations.
    """
    paths = [place] if place.is_file() else sorted(place.rglob(TIMINGS))
    longest: dict[CellKey, float] = {}
    decoder = msgspec.json.Decoder(_Line)
    lines = read = 0
    for path in paths:
        for line in lines_of(path):
            lines += 1
            with contextlib.suppress(ValueError, RecursionError):
                row = decoder.decode(line)
                read += 1
                if row.device == device:
                    longest[row.key] = max(longest.get(row.key, 0.0), row.seconds)
    if place.is_file() and lines and not read:
        raise UsageError(f"{place} has no durations: a line of them is as in timings.jsonl of results")
    return longest


def frozen_seconds(place: Path, device: str) -> bytes:
    """Return the durations below a folder as a file that `recorded_seconds` reads: a copy that stays as it is."""
    rows = sorted(recorded_seconds(place, device).items())
    return b"".join(
        msgspec.json.encode({"case": case, "compiler": compiler, "device": device, "seconds": seconds}) + b"\n"
        for (case, compiler, device), seconds in rows
    )


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file of results; none if it cannot be read or is not a regular file of a usual size."""
    with contextlib.suppress(OSError):
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
            return
        # Without waiting: the file may have become a FIFO since it was examined.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            yield from file


def usual_seconds(key: CellKey, seconds: Mapping[CellKey, float]) -> float:
    """Return the expected seconds of a cell that was never run.

    `aoti:dynamic` is expected to take what `aoti` took in `seconds` for the case, if both generate code or neither.
    """
    case, compiler, device = key
    plain = plain_name(compiler)
    likely = CellKey(case, plain, device)
    if likely in seconds and _generates_code(compiler) == _generates_code(plain):
        return seconds[likely]
    return CODEGEN_SECONDS if _generates_code(compiler) else CAPTURE_SECONDS


def _generates_code(compiler: str) -> bool:
    how = builtin_compilers().get(compiler)
    return how is not None and how.generates_code
