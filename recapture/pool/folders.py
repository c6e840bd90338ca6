"""A run's directories, which stay known and are removed wherever a task moved them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path


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
