"""The folder in which files are kept from one command to the next, of which some are executed.

Their names can be predicted. So a folder that is a link, belongs to another user, or can be written by others is
refused.
"""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.option_fields import GIB, MOST_GIB


def cache_root() -> Path:
    """Return RECAPTURE_CACHE, or ``recapture`` in XDG_CACHE_HOME or in ``~/.cache``; it need not exist."""
    shared = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "recapture"
    return Path(os.environ.get("RECAPTURE_CACHE") or shared).absolute()


def gib_of(variable: str, default: int, *, least: float) -> int:
    """Return the bytes that an environment variable gives in GiB, at `least` so many; `default` if it is not set.

    Raises UsageError for what is no such number.
    """
    text = os.environ.get(variable)
    if not text:
        return default
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= MOST_GIB:
        raise UsageError(f"{variable} is {text!r}: it is a number of GiB, such as {default // GIB}")
    return int(number * GIB)


def private_folder(*parts: str) -> Path:
    """Return a folder below `cache_root` to which this user alone has access; it is made if it is absent.

    Raises EnvironmentUnfitError if it cannot be made, or if another user could have changed what is in it.
    """
    folder = cache_root()
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        # Whoever can write a folder can exchange what is in it, unless it is sticky as /tmp is.
        check_trusted(folder.resolve(), sticky=True)
        for part in parts:
            folder /= part
            folder.mkdir(mode=0o700, exist_ok=True)
            check_trusted(folder, owners=(os.getuid(),))
    except OSError as error:
        raise EnvironmentUnfitError(f"{folder} cannot be made: {error.strerror}") from None
    return folder


def check_trusted(
    folder: Path,
    *,
    sticky: bool = False,
    owners: tuple[int, ...] | None = None,
    fix: str = "remove it with `recapture images clean`",
) -> None:
    """Raise EnvironmentUnfitError unless a folder is one, of this user or of root, that nobody else can write.

    With `sticky`, others may make names in it, if they cannot exchange what is there. `owners` are other user ids to
    accept instead. `fix` is the advice for what is no folder.
    """
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "no folder"
        raise EnvironmentUnfitError(f"{folder} is {kind}: {fix}")
    if status.st_uid not in ((os.getuid(), 0) if owners is None else owners):
        raise EnvironmentUnfitError(
            f"{folder} belongs to another user (id {status.st_uid}): choose a folder of your own with RECAPTURE_CACHE"
        )
    if status.st_mode & 0o022 and not (sticky and status.st_mode & stat.S_ISVTX):
        raise EnvironmentUnfitError(
            f"other users can write to {folder}: remove it, or make it yours alone with `chmod go-w`, if nobody did"
        )
