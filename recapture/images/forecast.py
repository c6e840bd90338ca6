"""How long images will take, from their recorded timings."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from recapture.base.errors import UsageError
from recapture.machine.environment import ENVIRONMENT, read_environment
from recapture.machine.hardware import cores
from recapture.machine.pins import lock_hash, lock_path
from recapture.records.record import PARTIAL, TIMINGS, Timing, read_jsonl

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

START_SECONDS = 30.0
"""Seconds of a run in which no cell has to run again."""


def expected_seconds(images: Sequence[str], results: Path, device: str, *, resume: bool) -> dict[str, float]:
    """Return the seconds of a whole run in each image that has timings below `results`, with one cell a core.

    With `resume`, an image whose results are finished takes no longer than starting. Unreadable files are ignored: only
    the shown estimate depends on them.
    """
    found = {}
    for image in images:
        for directory in sorted((results / image).glob("cpu" if device == "cpu" else "sm_*")):
            with contextlib.suppress(UsageError):
                seconds = sum(row.seconds for row in read_jsonl(directory / TIMINGS, Timing))
                finished = resume and _finished(directory, image)
                found[image] = START_SECONDS + (0.0 if finished else seconds / cores())
    return found


def _finished(directory: Path, image: str) -> bool:
    """Whether the results are complete and of the image's current lock."""
    if (directory / PARTIAL).exists():
        return False
    environment = read_environment(directory / ENVIRONMENT)
    complete = environment.planned is not None and environment.planned == environment.recorded
    return complete and not environment.selection and environment.lock_hash == lock_hash(lock_path(image))
