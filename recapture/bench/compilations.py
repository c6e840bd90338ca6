"""Which rows may compile side by side."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["Compilations"]

T = TypeVar("T")


class Compilations(Generic[T]):
    """Rows that wait to compile: `most` at a time, but those that are to be `alone` last, and one by one.

    Whatever else ran then would decide which kernels autotuning finds fastest, and several that tune at a time keep
    each other from ever ending.
    """

    def __init__(self, rows: Iterable[T], *, most: int, alone: Callable[[T], bool]) -> None:
        self._most = most
        self._alone = alone
        self._waiting = deque(sorted(rows, key=alone))  # the sort is stable: else they keep their order

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def next(self, running: Sequence[T]) -> T | None:
        """Take a row that may start beside those that are compiling; None if there is none for now."""
        if not self._waiting:
            return None
        most = 1 if any(map(self._alone, [self._waiting[0], *running])) else self._most
        return self._waiting.popleft() if len(running) < most else None
