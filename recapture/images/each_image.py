"""Runs one command in several images, one after the other, and foresees how long they take.

An image that fails does not stop the others.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, NamedTuple

from recapture.base.errors import EnvironmentUnfitError, RecaptureError, UsageError
from recapture.base.text import duration_text
from recapture.machine.environment import ENVIRONMENT, read_environment
from recapture.machine.hardware import cores
from recapture.machine.pins import lock_hash, lock_path
from recapture.records.record import PARTIAL, TIMINGS, Timing, read_jsonl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

START_SECONDS = 30.0
"""Seconds of a run in which no cell has to run again."""


class ImageOutcome(NamedTuple):
    """What a command did in an image: its exit status, why it did not run if it did not, and its seconds."""

    image: str
    status: int
    problem: str
    seconds: float

    def __str__(self) -> str:
        """The one line that is shown at the end."""
        if self.problem:
            return f"{self.image}: not finished: {self.problem}"
        ended = "done" if self.status == 0 else f"ended with exit status {self.status}"
        return f"{self.image}: {ended} in {duration_text(self.seconds)}"


def run_in_each(
    names: Sequence[str],
    run: Callable[[str], int],
    show: Callable[[str], object],
    expected: Mapping[str, float],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> list[ImageOutcome]:
    """Run a command in each image, show the progress over all, and return every outcome in the same order.

    `run` takes an image's name and returns an exit status; what it raises is that image's outcome alone. `expected` are
    the seconds that images took before, as far as known. An interruption ends all, after the outcomes so far were
    shown.
    """
    outcomes: list[ImageOutcome] = []
    for number, name in enumerate(names, 1):
        left = seconds_left(names, outcomes, expected)
        about = "" if left is None else f"; about {duration_text(left)} left"
        show(f"image {number} of {len(names)}: {name}{about}")
        began = clock()
        status, problem = 0, ""
        try:
            status = run(name)
        except RecaptureError as error:
            status, problem = error.exit_status, str(error)
        except OSError as error:  # a full disk, or no permission: the next image may fit
            status = EnvironmentUnfitError.exit_status
            problem = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
        except BaseException:
            for outcome in outcomes:
                show(str(outcome))
            raise
        outcomes.append(ImageOutcome(name, status, problem, clock() - began))
        if number < len(names):  # the caller shows all of them after the last
            show(str(outcomes[-1]))
    return outcomes


def seconds_left(names: Sequence[str], outcomes: Sequence[ImageOutcome], expected: Mapping[str, float]) -> float | None:
    """Return the seconds that the images after these outcomes will take, or None if nothing is known yet.

    An image that was never run counts as the mean of those that were. The pace of the images that are done, against
    what was expected of them, corrects the estimate; images that failed at once say nothing about it.
    """
    done = [outcome for outcome in outcomes if not outcome.problem]
    known = list(expected.values()) or [outcome.seconds for outcome in done]
    if not known:
        return None
    usual = sum(known) / len(known)
    foreseen = sum(expected.get(outcome.image, usual) for outcome in done)
    pace = sum(outcome.seconds for outcome in done) / foreseen if foreseen else 1.0
    return pace * sum(expected.get(name, usual) for name in names[len(outcomes) :])


def expected_seconds(images: Sequence[str], results: Path, device: str, *, resume: bool) -> dict[str, float]:
    """Return the seconds of a whole run in each image that has timings below `results`, with one cell a core.

    With `resume`, an image whose results are finished takes no longer than starting. Unreadable files are ignored: only
    the shown estimate depends on them.
    """
    expected = {}
    for image in images:
        for directory in sorted((results / image).glob("cpu" if device == "cpu" else "sm_*")):
            with contextlib.suppress(UsageError):
                seconds = sum(row.seconds for row in read_jsonl(directory / TIMINGS, Timing))
                finished = resume and _finished(directory, image)
                expected[image] = START_SECONDS + (0.0 if finished else seconds / cores())
    return expected


def _finished(directory: Path, image: str) -> bool:
    """Whether the results are complete and of the image's current lock."""
    if (directory / PARTIAL).exists():
        return False
    environment = read_environment(directory / ENVIRONMENT)
    complete = environment.planned is not None and environment.planned == environment.recorded
    return complete and not environment.selection and environment.lock_hash == lock_hash(lock_path(image))
