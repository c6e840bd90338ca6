"""A limit for the time of a whole command, which then ends as after Ctrl-C: what is finished is kept."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

from recapture.base.errors import TimeOver


@contextlib.contextmanager
def ending_after(seconds: float | None) -> Iterator[None]:
    """Raise `TimeOver` in the body `seconds` after its begin, wherever it is then; never if it is None.

    Only the main thread can have such a limit: elsewhere, ValueError is raised.
    """
    if seconds is None:
        yield
        return
    before = signal.signal(signal.SIGALRM, _time_over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _time_over(*_signal: object) -> None:
    raise TimeOver
