"""Where `recapture explain --debug` leaves the graphs and the generated code of a cell, beside the records."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from recapture.records.record import Record

ARTIFACTS = "debug"
"""Name of the folder with artifacts in a results directory; git ignores it."""

INDEX = "README.md"
"""Name of the file that lists the artifacts of a cell."""


TRACE = "trace.log"
"""Name of torch's structured trace among the artifacts, the file that tlparse reads."""


def artifacts_folder(root: Path, suite: str, case: str, compiler: str) -> Path:
    """Return the folder of a cell below the folder of all artifacts; no name leads out of it."""
    return root.joinpath(*(_name(part) for part in (suite, case, compiler)))


def left_artifacts(directory: Path, records: Iterable[Record]) -> dict[str, str]:
    """Return the folders of artifacts that exist in a results directory, by the cell's address, relative to it."""
    root = directory / ARTIFACTS
    if not root.is_dir():
        return {}
    folders = {}
    for record in records:
        suite, _, case = record.case.partition("::")
        folder = artifacts_folder(root, suite, case, record.compiler)
        if (folder / INDEX).is_file():
            folders[record.cell] = folder.relative_to(directory).as_posix()
    return folders


def _name(text: str) -> str:
    """Return a name as one part of a path."""
    safe = re.sub(r"[^\w.-]", "-", text)[:120]
    return safe if safe.strip(".") else f"_{safe}"
