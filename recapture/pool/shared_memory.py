"""System V shared memory: a segment belongs to no process, and outlives its creator unless somebody removes it."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path
from typing import NamedTuple

TABLE = Path("/proc/sysvipc/shm")

IPC_RMID = 0
"""Number of the shmctl operation that removes a segment, which takes effect when no process has it attached."""


class Segment(NamedTuple):
    """One segment of shared memory."""

    id: int
    creator: int
    """Process id of its creator, which may have ended."""
    occupied: int
    """Bytes in memory or swapped out."""


def segments() -> list[Segment]:
    """Return all segments of this machine, or of this container."""
    listed = []
    with contextlib.suppress(OSError, ValueError, KeyError):  # a kernel without System V shared memory
        head, *lines = TABLE.read_text().splitlines()
        names = head.split()
        for line in lines:
            row = dict(zip(names, line.split(), strict=False))
            listed.append(Segment(int(row["shmid"]), int(row["cpid"]), int(row["rss"]) + int(row["swap"])))
    return listed


def remove_segment(segment: Segment) -> None:
    """Remove a segment; does nothing if it is gone or belongs to another user."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).shmctl(segment.id, IPC_RMID, None)
