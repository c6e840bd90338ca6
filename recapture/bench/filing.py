"""The file of a benchmark: locked while it is written, and set aside where another machine or installation made it."""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from typing import TYPE_CHECKING

from recapture.base.errors import UsageError
from recapture.machine.environment import differences
from recapture.results.speedups import read_speedups

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from recapture.machine.environment import Environment

__all__ = ["joined", "set_aside", "writing"]


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Hold the lock of a file that another benchmark, of other workloads, or a report may write too.

    Raises UsageError where the file's directory cannot be made or written to.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (path.parent / ".speedups.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise UsageError(f"cannot write results to {path.parent}: {error.strerror}") from None


def set_aside(path: Path, environment: Environment) -> tuple[Path, str] | None:
    """Keep a file of another machine or installation under another name; return that name, and what differs."""
    if not path.is_file():
        return None
    before = read_speedups(path).environment
    difference = ", ".join(filter(None, (_hardware(before, environment), differences(before, environment))))
    if not difference:
        return None
    number = 1
    while (moved := path.with_name(f"{path.stem}.before-{number}.json")).exists():
        number += 1
    path.rename(moved)
    return moved, difference


def _hardware(before: Environment, now: Environment) -> str:
    """In what two machines differ that may not time rows of one table; empty where in nothing."""
    found = [
        f"{was} became {has}"
        for was, has in (
            (before.cpu.model, now.cpu.model),
            (f"{before.cpu.cores} cores", f"{now.cpu.cores} cores"),
            (f"driver {before.gpu and before.gpu.driver}", f"driver {now.gpu and now.gpu.driver}"),
        )
        if was != has
    ]
    return ", ".join(found)


def joined(before: dict[str, str | int | float], now: dict[str, str | int | float]) -> dict[str, str | int | float]:
    """Say how rows were measured that come from several runs: with every value there was."""
    told = {name: dict.fromkeys([*str(before[name]).split(" and "), str(now[name])]) for name in before if name in now}
    return now | {name: " and ".join(values) for name, values in told.items() if len(values) > 1}
