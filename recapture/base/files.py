"""Reading and writing files: size-limited reads of regular files only, and writes that never leave half a file."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from recapture.base.errors import UsageError

MOST_BYTES = 64 << 20
"""Bytes of the largest file that is read. The results of 20,000 cases take about 20 MB."""

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def read_regular(path: Path, *, most: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file.

    Never waits for a pipe or a device and never follows a symbolic link. Raises UsageError, naming the file, if it is
    not a regular file, has more than `most` bytes, or cannot be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        if isinstance(error, OSError) and error.errno in (errno.ELOOP, errno.ENXIO):
            raise UsageError(f"cannot read {path}: {_irregular(path)}, not a regular file") from None
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"cannot read {path}: {kind_of_file(status.st_mode)}, not a regular file")
        if status.st_size > most:
            raise UsageError(f"cannot read {path}: {status.st_size} bytes, more than the {most} that are read")
        return _read(handle, most + 1, path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    finally:
        os.close(handle)


def _read(handle: int, most: int, path: Path) -> bytes:
    """Read to the end, or raise UsageError for a file that grows beyond the limit while it is read."""
    parts: list[bytes] = []
    left = most
    while left > 0 and (part := os.read(handle, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    if not left:
        raise UsageError(f"cannot read {path}: it grew beyond {most - 1} bytes")
    return b"".join(parts)


def _irregular(path: Path) -> str:
    try:
        return kind_of_file(path.lstat().st_mode)
    except OSError:
        return "something"


def kind_of_file(mode: int) -> str:
    """Return what a file's mode says it is, in words."""
    return next((words for test, words in _KINDS if test(mode)), "something")


def is_file_name(text: str) -> bool:
    """Whether a text is one plain component of a path, neither hidden nor like an option: it leads out of no folder."""
    if not text or text[0] in ".-" or "/" in text or not text.isprintable():
        return False
    return len(text.encode()) <= 255


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file in one step, so that a reader or a crash never sees half of it.

    Raises OSError, also where the path is a link, a pipe, a device or a directory, which is left unchanged. When the
    disk is full, the error names the folder.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    if not stat.S_ISREG(mode):
        raise OSError(errno.EEXIST, f"{kind_of_file(mode)} has its name", str(path))
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)  # mkstemp's 0600 would hide results from other users
        Path(name).replace(path)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # "No space left on device" alone does not say which
            error.filename = str(path.parent)
        raise


def remove_unfinished(folder: Path, names: Iterable[str]) -> None:
    """Remove what `write_atomically` leaves of files with these names if it is killed. The caller keeps others out."""
    for name in names:
        unfinished = re.compile(re.escape(f".{name[:100]}.") + "[a-z0-9_]{8}")
        for path in folder.iterdir():
            if unfinished.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                path.unlink(missing_ok=True)


def write_output(path: Path, data: bytes) -> None:
    """Write to a path that a user named: a regular file is replaced in one step, a device or pipe is written to.

    A link is followed, because the user chose it. Raises OSError, also for a pipe that has no reader.
    """
    path = path.resolve()
    try:
        regular = stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        regular = True
    if regular:
        write_atomically(path, data)
        return
    handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    os.set_blocking(handle, True)
    with os.fdopen(handle, "wb") as out:
        out.write(data)


def why_not_writable(path: Path) -> str:
    """Return why `write_output` cannot write to a path now, empty if it can. Nothing is left at the path."""
    real = path
    try:
        real = Path(os.path.realpath(path))
        mode = real.stat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        return getattr(error, "strerror", None) or str(error)
    if stat.S_ISDIR(mode):
        return os.strerror(errno.EISDIR)
    if not stat.S_ISREG(mode):
        return "" if os.access(real, os.W_OK) else os.strerror(errno.EACCES)
    try:
        with tempfile.TemporaryFile(dir=real.parent):  # a file is replaced by one that is made beside it
            return ""
    except OSError as error:
        return f"{real.parent}: {error.strerror}"


def append_line(handle: int, line: bytes) -> None:
    """Append a whole line to an open file descriptor, or append nothing and raise OSError naming the file.

    A full disk accepts only the part of a line that fits, so a part already written is removed again.
    """
    size = os.fstat(handle).st_size
    try:
        if os.write(handle, line) < len(line):
            os.ftruncate(handle, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        with contextlib.suppress(OSError):
            error.filename = os.readlink(f"/proc/self/fd/{handle}")  # noqa: PTH115 - a name is wanted, not a Path
        raise
