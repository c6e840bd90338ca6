"""Writing files so that a reader, a crash or a full disk never leaves half of one."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path

__all__ = ["append_line", "write_atomically"]


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file in one step, so that a reader or a crash never sees half of it; OSError names the folder."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)  # mkstemp's 0600 would hide results from everyone else
        Path(name).replace(path)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # "No space left on device": on which?
            error.filename = str(path.parent)
        raise


def append_line(handle: int, line: bytes) -> None:
    """Append a whole line to an open file descriptor, or raise OSError, which names the file, and append nothing.

    A full disk takes the part of a line that fits.
    """
    size = os.fstat(handle).st_size
    try:
        if os.write(handle, line) < len(line):
            os.ftruncate(handle, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        with contextlib.suppress(OSError):
            error.filename = os.readlink(f"/proc/self/fd/{handle}")  # noqa: PTH115 - it is no path but a name
        raise
