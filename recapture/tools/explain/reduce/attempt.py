"""One try, inside its own process: runs a candidate as a cell, and refuses changes to files outside its own folders.

A candidate is a program that nobody wrote. An edit may leave it with a path that its author never meant, so what it
does to files is limited before it runs. Processes that it starts are not limited: compilers have to work.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from recapture.pool.protocol import task_name
from recapture.run.cell import CellSpec, examine
from recapture.torch_api.compat import skip_guard_timing

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
"""Flags of which a file that is only read is opened with none."""

CHANGING: dict[str, tuple[tuple[int, int], ...]] = {
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.truncate": ((0, -1),),
    "os.utime": ((0, 3),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "shutil.rmtree": ((0, 1),),
    "shutil.move": ((0, -1), (1, -1)),
    "shutil.chown": ((0, -1),),
}
"""Python's audit events that change files: positions of each path in the arguments, and of its folder's number."""

ALWAYS = ("/dev", "/proc")
"""Folders that any program may write to."""


class Candidate(msgspec.Struct, frozen=True):
    """A candidate to run. `imports` is the folder of the suite, whose other modules it may import."""

    spec: CellSpec
    imports: str
    writable: tuple[str, ...]


def attempt(payload: bytes, enter: Callable[[str], None]) -> bytes:
    """Run a candidate: `Candidate` → `CellResult`."""
    candidate = msgspec.json.decode(payload, type=Candidate)
    if candidate.imports not in sys.path:
        sys.path.append(candidate.imports)
    protect_files((*candidate.writable, str(Path.cwd())))
    skip_guard_timing()
    return msgspec.json.encode(examine(candidate.spec, enter))


def protect_files(writable: tuple[str, ...]) -> None:
    """Make this process unable to change files outside these folders, and to signal processes other than itself.

    This lasts until the process ends. What is not allowed raises PermissionError.
    """
    roots = tuple(os.path.realpath(folder) for folder in (*writable, *ALWAYS))
    owner = os.getpid()

    def check(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            flags = arguments[2]
            if isinstance(flags, int) and flags & WRITING and not _inside(arguments[0], None, roots):
                raise PermissionError(f"a candidate of a reduction may not write {arguments[0]!r}")
        elif event in CHANGING:
            for path, folder in CHANGING[event]:
                number = arguments[folder] if 0 <= folder < len(arguments) else None
                if not _inside(arguments[path], number, roots):
                    raise PermissionError(f"a candidate of a reduction may not change {arguments[path]!r}")
        elif event in ("os.kill", "os.killpg") and arguments[0] != owner and os.getpid() == owner:
            raise PermissionError("a candidate of a reduction may not signal other processes")

    sys.addaudithook(check)


def _inside(path: Any, folder: Any, roots: tuple[str, ...]) -> bool:
    """Whether a path is below one of some folders; `folder` is the number of the open folder it is relative to."""
    if not isinstance(path, (str, bytes, os.PathLike)):  # an open file
        return True
    name = os.fsdecode(path)
    if not name.startswith("/") and isinstance(folder, int) and folder >= 0:
        name = os.path.join(os.path.realpath(f"/proc/self/fd/{folder}"), name)  # noqa: PTH118 - the module is small
    full = os.path.join(os.path.realpath(os.path.dirname(name) or "."), os.path.basename(name))  # noqa: PTH118, PTH119, PTH120
    return any(full == root or full.startswith(f"{root}/") for root in roots)


ATTEMPT = task_name(attempt)
