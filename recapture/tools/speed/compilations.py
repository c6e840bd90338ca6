"""Schedules compilations: which rows may compile at the same time."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

T = TypeVar("T")


class Compilations(Generic[T]):
    """Rows that wait to compile, `most` at a time; rows that must compile `alone` come last, one at a time.

    Autotuning times kernels. Other work at the same time could change the choice, and several rows that tune at the
    same time may never finish.
    """

    def __init__(self, rows: Iterable[T], *, most: int, alone: Callable[[T], bool]) -> None:
        self._most = most
        self._alone = alone
        self._waiting = deque(sorted(rows, key=alone))  # the sort is stable

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def next(self, running: Sequence[T]) -> T | None:
        """Take a row that may start beside those that are compiling; None if there is none at the moment."""
        if not self._waiting:
            return None
        most = 1 if any(map(self._alone, [self._waiting[0], *running])) else self._most
        return self._waiting.popleft() if len(running) < most else None
