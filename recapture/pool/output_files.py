"""The files with what tasks print, read so that no task can block or mislead the server.

A task controls its directory: a file there may be a link, a FIFO, a device, a directory, or larger than memory. Only
regular files are opened, without following links and without waiting, and reads are limited in size.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from pathlib import Path

TAIL_BYTES = 8 * 1024
"""Bytes kept from the end of each output file."""

LONG_LINE = f"(the end of a line of more than {TAIL_BYTES // 1024} KiB is left out)\n"
"""What stands for output whose end has no line break."""

OUTPUT_CAP_BYTES = 32 * 1024 * 1024
"""Bytes of disk that an output file may occupy; a larger file is emptied except for its end."""


def tail(path: Path) -> str:
    """Return the end of an output file, in whole lines; an empty text if it is missing or not a regular file."""
    with contextlib.suppress(OSError), os.fdopen(_open(path, os.O_RDONLY), "rb") as handle:
        beyond = handle.seek(0, os.SEEK_END) - TAIL_BYTES
        handle.seek(max(0, beyond))
        text = handle.read(TAIL_BYTES).decode(errors="replace")
        # In half a line, a secret would stand without the name that tells that it is one.
        return text if beyond <= 0 else text.partition("\n")[2] or LONG_LINE
    return ""


def cut(path: Path) -> None:
    """Empty an output file above its disk limit except for its end, even while the task is writing to it."""
    try:
        if path.lstat().st_blocks * 512 <= OUTPUT_CAP_BYTES:
            return
        with os.fdopen(_open(path, os.O_RDWR), "r+b") as handle:
            size = os.fstat(handle.fileno()).st_size
            if _punch(handle.fileno(), size - TAIL_BYTES):
                return
            end = tail(path).encode()
            handle.truncate(0)  # what is written between these lines is lost
        with os.fdopen(_open(path, os.O_WRONLY | os.O_APPEND), "ab") as handle:
            handle.write(end)
    except OSError:
        return


def _open(path: Path, flags: int) -> int:
    """Open a regular file; raise OSError for anything else."""
    if not stat.S_ISREG(path.lstat().st_mode):  # checked first, because opening a device can have side effects
        raise OSError(f"{path} is not a regular file")
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file")
    return descriptor


def _punch(descriptor: int, length: int) -> bool:
    """Free the blocks of a file's beginning, if the file system can, without changing its size and its end."""
    keep_size_and_punch_hole = 0x01 | 0x02
    try:
        fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):  # not Linux
        return False
    return bool(fallocate(descriptor, keep_size_and_punch_hole, ctypes.c_int64(0), ctypes.c_int64(length)) == 0)
