"""Files of records that a benchmark appends to, line by line, so that an interrupted one goes on."""

from pathlib import Path
from typing import TypeVar

import msgspec

Row = TypeVar("Row")


def read_lines(file: Path, kind: type[Row]) -> list[Row]:
    """Return the records of a file, each one line of JSON; a line that an interruption cut off is left out."""
    rows = []
    for line in file.read_bytes().splitlines() if file.is_file() else ():
        try:
            rows.append(msgspec.json.decode(line, type=kind))
        except msgspec.DecodeError:  # the last line of a run that was killed while it wrote
            continue
    return rows
