"""Moves older results that a run does not continue into a separate folder (``before-1``, ``before-2``, …)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from recapture.base.errors import UsageError
from recapture.records.directories import BEFORE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def set_aside(directory: Path, names: Iterable[str]) -> Path:
    """Move the named files of a results directory, if they exist, into a new folder inside it; return that folder.

    Raises UsageError if the folder cannot be created or a file cannot be moved.
    """
    folder = _new_folder(directory)
    try:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                (directory / name).rename(folder / name)
    except OSError as error:
        raise UsageError(f"cannot write results to {folder}: {error.strerror}") from None
    return folder


def _new_folder(directory: Path) -> Path:
    number = 1
    while True:
        folder = directory / f"{BEFORE}{number}"
        try:
            folder.mkdir()
        except FileExistsError:  # also raised for a broken link
            number += 1
        except OSError as error:
            raise UsageError(f"cannot write results to {folder}: {error.strerror}") from None
        else:
            return folder
