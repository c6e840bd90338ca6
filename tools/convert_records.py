"""Convert recorded results to the present version of records: ``python tools/convert_records.py results``.

Differences get fields in the place of sentences, empty fields are left out, and messages lose the frames of recapture's
own files. Nothing is measured anew. The script prints the sentences that no fields make and the cells whose messages
change. A file in which a sentence would be lost stays as it is, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from pathlib import Path

import msgspec

from recapture.base.scrub import recorded_fingerprint
from recapture.records.record import CONFORMANCE, ErrorInfo, Record, read_jsonl, write_jsonl

CUT = "…"
"""The end of a message that was shortened."""

_OWN = re.compile(r'(?P<indent>[ \t]*)File "(?:(?:export|bootstrap|server)\.py|<frozen runpy>)"(?:, line \d+.*)?')
"""The first line of a frame of recapture as records have it: with the name of its file, without the folder."""

_MARKS = re.compile(r"[ \t]+[~^]*[ \t]*…?")
"""The line below a quoted line of code that marks a part of it."""


def without_own_frames(message: str) -> str:
    """Return a recorded message without recapture's own frames, as a run of this version records it."""
    lines = message.split("\n")
    remaining: list[str] = []
    while lines:
        line = lines.pop(0)
        frame = _OWN.fullmatch(line)
        if frame is None:
            remaining.append(line)
            continue
        if lines and lines[0] != CUT and _is_code(lines[0], frame["indent"], last=len(lines) == 1):
            line = lines.pop(0)
            if lines and _MARKS.fullmatch(lines[0]) and (lines[0].strip() != CUT or len(lines) == 1):
                line = lines.pop(0)
        if line.endswith(CUT) and not lines:
            remaining.append(CUT)
    return "\n".join(remaining)


def _is_code(line: str, indent: str, *, last: bool) -> bool:
    """Whether the line below the first line of a frame is the code that the frame quotes, perhaps cut short."""
    if last and line.strip() == CUT:
        return True
    return line.startswith((f"{indent} ", f"{indent}\t")) and not line.lstrip().startswith('File "')


def converted(record: Record) -> Record:
    """Return a record whose message has no frames of recapture."""
    if record.error is None:
        return record
    message = without_own_frames(record.error.message)
    if message == record.error.message:
        return record
    kind = record.error.type
    error = ErrorInfo(kind, message, recorded_fingerprint(kind, message))
    return msgspec.structs.replace(record, error=error)


def sentences(path: Path) -> dict[tuple[str, str, str], list[str]]:
    """Return the sentences of a file of version 1 or 2 as they stand in it, by cell; of a later version, nothing."""
    by_cell = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["schema"] <= 2:
            differences = [*row["differences"], *row.get("noted", ())]
            by_cell[row["case"], row["compiler"], row["device"]] = [difference["detail"] for difference in differences]
    return by_cell


def convert(path: Path, counts: Counter[str]) -> bool:
    """Convert one file; return False, and leave it alone, if a sentence would be lost."""
    before = sentences(path)
    records = read_jsonl(path, Record)
    for record in records:
        differences = (*record.differences, *record.noted)
        cell = (record.case, record.compiler, record.device)
        if cell in before and [difference.detail for difference in differences] != before[cell]:
            print(f"{path}: {record.cell} would lose a sentence")
            return False
        for difference in differences:
            counts["sentences"] += 1
            if difference.text is not None:
                counts["sentences that no fields make"] += 1
                print(f"{path}: {record.cell}: no fields make: {difference.text}")
    changed = [converted(record) for record in records]
    for old, new in zip(records, changed, strict=True):
        counts["records"] += 1
        if old is not new:
            counts["records whose message changes"] += 1
            print(f"{path}: {old.cell}: its message loses frames of recapture")
    write_jsonl(path, changed)
    return True


def main() -> int:
    """Convert every file of records below a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    counts = Counter({"files": 0, "sentences that no fields make": 0, "records whose message changes": 0})
    complete = True
    for path in sorted(parser.parse_args().folder.rglob(CONFORMANCE)):
        complete = convert(path, counts) and complete
        counts["files"] += 1
    print(*(f"{number} {noun}" for noun, number in counts.items()), sep="\n")
    return 0 if complete else 1


if __name__ == "__main__":
    raise SystemExit(main())
