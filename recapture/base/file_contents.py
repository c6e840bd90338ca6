"""Whether files are as they were: a stamp that costs nothing, and the content where the stamp is another one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

_Stamp = tuple[int, int, int, int]


class FileContents:
    """The contents of some files at one moment. A file that cannot be read has none."""

    def __init__(self, files: Iterable[Path | str]) -> None:
        self._known = {str(file): (_stamp(file), _digest(file)) for file in files}

    def changed(self, file: Path | str) -> bool:
        """Whether a file has another content than at that moment, or is gone; False for a file that is not known."""
        if str(file) not in self._known:
            return False
        stamp, digest = self._known[str(file)]
        now = _stamp(file)
        if now == stamp:
            return False
        if _digest(file) != digest:
            return True
        self._known[str(file)] = now, digest  # written again with the same content
        return False


def _stamp(file: Path | str) -> _Stamp | None:
    try:
        status = Path(file).stat()
    except (OSError, ValueError):
        return None
    # The time of the last change of the inode, unlike that of the content, cannot be set.
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _digest(file: Path | str) -> str | None:
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except (OSError, ValueError):
        return None
