"""Torch's own search for the pass, decomposition or lowering at fault: ``torch._inductor.compiler_bisector``."""

from __future__ import annotations

import contextlib
import importlib
import io
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BisectorAnswer", "ask_bisector"]


class BisectorAnswer(NamedTuple):
    """What the bisector names: a backend, a subsystem of it, and the number of the application that is at fault.

    `backend` is None where it finds no fault. `tries` is the number of times that it called the predicate.
    """

    backend: str | None
    subsystem: str | None
    number: int | None
    about: str | None
    tries: int


def ask_bisector(is_right: Callable[[str], bool]) -> BisectorAnswer | None:
    """Let torch's bisector search, and return its answer; None where the release has no bisector (before 2.6).

    `is_right` is called often, with the name of a backend, and must compile anew each time. What the bisector prints is
    dropped. It never ends by itself within a given time: run it in a process with a deadline.
    """
    try:
        bisector = importlib.import_module("torch._inductor.compiler_bisector").CompilerBisector
    except (ImportError, AttributeError):
        return None
    tries = 0

    def again() -> bool:
        nonlocal tries
        tries += 1
        return is_right(bisector.get_backend() or "inductor")

    with contextlib.redirect_stdout(io.StringIO()):
        found = bisector.do_bisect(again)
    if found is None:
        return BisectorAnswer(None, None, None, None, tries)
    about = getattr(found, "debug_info", None)
    return BisectorAnswer(
        found.backend, found.subsystem, found.bisect_number, None if about is None else str(about)[:200], tries
    )
