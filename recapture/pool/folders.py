"""The temporary folders of a run: not accessible to other users, and removed at the end or by a later run.

They stay known, and are removed, wherever a task moved them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from pathlib import Path

from recapture.base.errors import EnvironmentUnfitError


class Folder:
    """An existing directory, held open: its inode is not reused, and the kernel knows its path after a rename.

    Raises OSError if the path is not a directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._identity = _identity(os.fstat(self._handle))

    def is_in_place(self) -> bool:
        """Whether the directory is still at its path; a task may have removed, moved or replaced it."""
        return self._is_at(self.path)

    def remove(self) -> None:
        """Remove the directory wherever it is, and nothing else.

        Something else at its path stays: a parent may have become a link to a place where this name is somebody's.
        """
        with contextlib.suppress(OSError):
            place = Path(f"/proc/self/fd/{self._handle}").readlink()
            if self._is_at(place):
                remove(place)

    def remove_for_good(self) -> None:
        """Remove the directory, and again if dying processes add files to it meanwhile, for ten seconds at most."""
        for _ in range(100):
            self.remove()
            if not os.path.lexists(self.path):
                return
            time.sleep(0.1)

    def close(self) -> None:
        """Stop holding the directory, if it is still held."""
        with contextlib.suppress(OSError):
            os.close(self._handle)
        self._handle = -1

    def _is_at(self, path: Path) -> bool:
        try:
            return _identity(path.lstat()) == self._identity
        except OSError:
            return False


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def remove(path: Path) -> None:
    """Remove a directory and everything below it, even if nested too deep for Python or not accessible to its owner."""
    if path.is_symlink():  # its target is not ours to remove
        path.unlink(missing_ok=True)
        return
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            with contextlib.suppress(OSError):
                subprocess.run([*command, "--", path], stderr=subprocess.DEVNULL, check=False)


PREFIX = "recapture-"

CACHE = "cache"
"""Name of the folder in a home for compile caches."""

TEMPORARY = "tmp"
"""Name of the folder in a home for temporary files of servers; each task has its own."""

OWNER = "owner"
"""Name of the file in a home that the owning process keeps locked; it contains the owner's process id."""


class Home:
    """A directory with mode 0700 in the temporary directory, whose owner is this process."""

    def __init__(self) -> None:
        parent = _parent()
        remove_dead_homes(parent)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        self._settle()

    @property
    def name(self) -> str:
        """The path as text, like that of `tempfile.TemporaryDirectory`."""
        return str(self.path)

    def is_whole(self) -> bool:
        """Whether the directory and its folders still exist; a case may have removed or moved them."""
        named = not self._locked or os.path.isfile(self.path / OWNER)  # noqa: PTH113 - Path.is_file raises if forbidden
        return named and all(folder.is_in_place() for folder in self._folders)

    def renew(self) -> None:
        """Create the directory again, empty, at the same path. Raises EnvironmentUnfitError if that is impossible."""
        self.cleanup()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.mkdir(mode=0o700)
        except OSError as error:
            raise EnvironmentUnfitError(f"{self.path} was removed and cannot be made again: {error.strerror}") from None
        self._settle()

    def cleanup(self) -> None:
        """Remove the directory with everything in it, also where a case moved it or its folders."""
        with contextlib.suppress(OSError):  # closed already, if the directory could not be made again
            os.close(self._lock)
        for folder in self._folders:
            folder.remove()
            folder.close()
        remove(self.path)  # what took its place

    def _settle(self) -> None:
        """Lock the owner's file before renaming it into place, so that an unlocked file means a dead owner."""
        inside = [self.path / CACHE, self.path / TEMPORARY]
        for path in inside:
            path.mkdir(mode=0o700)
        self._folders = [Folder(path) for path in (*inside, self.path)]
        unnamed = self.path / f".{OWNER}"
        self._lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(self._lock, f"{os.getpid()}\n".encode())
        self._locked = False
        with contextlib.suppress(OSError):  # a file system without locks: no other run then removes this home
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unnamed.rename(self.path / OWNER)
            self._locked = True


def remove_dead_homes(parent: Path) -> list[Path]:
    """Remove the homes of this user's killed runs, and return them.

    The lock shows whether an owner lives even if it runs in another container that shares this directory.
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
        except OSError:  # not a home, or one that is being created
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
    """Return where to create a home: not below a path with a blank, because Inductor splits g++ commands at blanks."""
    usual = tempfile.gettempdir()
    if re.search(r"\s", usual):
        usual = next((place for place in ("/tmp", "/var/tmp") if os.access(place, os.W_OK | os.X_OK)), usual)  # noqa: S108
    return Path(usual)
