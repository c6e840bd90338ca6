"""The temporary directory of one run: closed to other users, and removed with the run, or by a later run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import tempfile
from pathlib import Path

from recapture.base.errors import EnvironmentUnfitError
from recapture.pool.output_files import identity, remove

__all__ = ["Home", "remove_dead_homes"]

PREFIX = "recapture-"

OWNER = "owner"
"""Name of the file in a home that its owner keeps locked while it lives; it holds the owner's process id."""


class Home:
    """A directory with mode 0700 in the temporary directory, whose owner is this process."""

    def __init__(self) -> None:
        parent = _parent()
        remove_dead_homes(parent)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        self._settle()

    @property
    def name(self) -> str:
        """The path as text, as `tempfile.TemporaryDirectory` has it."""
        return str(self.path)

    def is_whole(self) -> bool:
        """Whether the directory is still there; a case may have removed it."""
        named = not self._locked or (self.path / OWNER).is_file()
        return named and identity(self.path) == self._identity

    def renew(self) -> None:
        """Make the directory again, empty, in its old place. Raises EnvironmentUnfitError where that is impossible."""
        self.cleanup()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.mkdir(mode=0o700)
        except OSError as error:
            raise EnvironmentUnfitError(f"{self.path} was removed and cannot be made again: {error.strerror}") from None
        self._settle()

    def cleanup(self) -> None:
        """Remove the directory with everything in it."""
        os.close(self._descriptor)
        os.close(self._lock)
        remove(self.path)

    def _settle(self) -> None:
        """Lock the owner's file before it gets its name: whoever finds it unlocked finds a home without an owner."""
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)  # keeps the inode from being used again
        self._identity = identity(self.path)
        unnamed = self.path / f".{OWNER}"
        self._lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(self._lock, f"{os.getpid()}\n".encode())
        self._locked = False
        with contextlib.suppress(OSError):  # a file system without locks: then no other run removes this home
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unnamed.rename(self.path / OWNER)
            self._locked = True


def remove_dead_homes(parent: Path) -> list[Path]:
    """Remove the homes of this user's runs that were killed; return them.

    A lock tells a dead owner from a live one also where it runs in another container and shares this directory.
    """
    removed = []
    for path in parent.glob(f"{PREFIX}*"):
        try:
            status = path.lstat()
            if (
                not stat.S_ISDIR(status.st_mode)
                or status.st_uid != os.getuid()
                or stat.S_IMODE(status.st_mode) != 0o700
            ):
                continue
            lock = os.open(path / OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # without the file it is no home, or one that is just being made
            continue
        try:
            if stat.S_ISREG(os.fstat(lock).st_mode):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(path)
                removed.append(path)
        except OSError:  # its owner lives
            continue
        finally:
            os.close(lock)
    return removed


def _parent() -> Path:
    """Return where to make a home: not below a path with a blank, at which Inductor splits its g++ commands."""
    usual = tempfile.gettempdir()
    if re.search(r"\s", usual):
        usual = next((place for place in ("/tmp", "/var/tmp") if os.access(place, os.W_OK | os.X_OK)), usual)  # noqa: S108
    return Path(usual)
