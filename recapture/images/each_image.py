"""Runs one command in several images, one after the other: a failing image does not stop the rest."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from recapture.base.errors import EnvironmentUnfitError, RecaptureError
from recapture.base.text import duration_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


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
            for one in outcomes:
                show(str(one))
            raise
        outcomes.append(ImageOutcome(name, status, problem, clock() - began))
        if number < len(names):  # the caller shows all of them after the last
            show(str(outcomes[-1]))
    return outcomes


def seconds_left(names: Sequence[str], outcomes: Sequence[ImageOutcome], expected: Mapping[str, float]) -> float | None:
    """Return the seconds that the images after these outcomes will take, or None if nothing is known yet.

    An image that was never run counts as the mean of those that were. The pace of the images that are done, against
    what was expected of them, corrects the rest; images that failed at once say nothing about it.
    """
    done = [one for one in outcomes if not one.problem]
    known = list(expected.values()) or [one.seconds for one in done]
    if not known:
        return None
    usual = sum(known) / len(known)
    foreseen = sum(expected.get(one.image, usual) for one in done)
    pace = sum(one.seconds for one in done) / foreseen if foreseen else 1.0
    return pace * sum(expected.get(name, usual) for name in names[len(outcomes) :])
