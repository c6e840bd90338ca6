"""Lock files, and files opened for appending. A link, device or other irregular file in their place is refused."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from recapture.base.errors import UsageError
from recapture.base.files import kind_of_file


class LockedError(UsageError):
    """Another process holds the lock."""


def refuse_irregular(paths: Iterable[Path]) -> None:
    """Raise UsageError where one of the paths is a symbolic link, a FIFO, a device, a socket or a directory.

    A path that does not exist is fine.
    """
    for path in paths:
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue
        except OSError as error:
            raise UsageError(f"cannot write results to {path}: {error.strerror}") from None
        if not stat.S_ISREG(mode):
            raise _irregular(path, mode)


def _irregular(path: Path, mode: int) -> UsageError:
    return UsageError(f"{path} is {kind_of_file(mode)}, not a regular file: remove it, or name other --results")


def _open(path: Path, flags: int) -> int:
    """Open a regular file, creating it if necessary. Opening does not change an existing file."""
    refuse_irregular([path])  # checked first, because opening a device or a FIFO can have side effects
    try:
        # A file replaced after that check is refused by these flags and by the second check.
        handle = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _irregular(path, stat.S_IFLNK) from None
        raise UsageError(f"cannot write results to {path}: {error.strerror}") from None
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise _irregular(path, mode)
    return handle


def open_to_append(path: Path) -> int:
    """Open a file of lines for appending, first removing a last line that a killed run left incomplete.

    Returns a file descriptor. Raises UsageError if the file cannot be written or is not a regular file.
    """
    handle = _open(path, os.O_RDWR | os.O_APPEND)
    try:
        os.ftruncate(handle, _whole_lines(handle))
    except OSError as error:
        os.close(handle)
        raise UsageError(f"cannot write results to {path}: {error.strerror}") from None
    return handle


def _whole_lines(handle: int, block: int = 1 << 16) -> int:
    """Return the size in bytes of an open file up to and including its last newline."""
    end = os.fstat(handle).st_size
    while end > 0:
        start = max(0, end - block)
        at = os.pread(handle, end - start, start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0


@contextlib.contextmanager
def locked(path: Path, *, wait: bool, shared: bool = False) -> Iterator[int]:
    """Hold a lock on the file `path`, which is created together with its folder; its content is never changed.

    Yields the descriptor of the lock file; a child process that inherits it keeps the lock until it ends. Several
    processes may hold a `shared` lock at a time. If another process holds the lock, `wait` waits for it; without
    `wait`, LockedError is raised at once. Raises UsageError if the lock file cannot be opened, is not a regular file,
    or the file system has no locks.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write results to {path.parent}: {error.strerror}") from None
    handle = _open(path, os.O_RDWR)
    try:
        _lock(handle, path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, wait=wait)
        yield handle
    finally:
        os.close(handle)


def _lock(handle: int, path: Path, kind: int, *, wait: bool) -> None:
    try:
        fcntl.flock(handle, kind | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise LockedError(f"another run is writing to {path.parent}") from None
    except OSError as error:
        raise UsageError(f"cannot lock {path.parent}: {error.strerror}") from None
