"""The records that a run writes: their schema, and reading and writing them without losing any.

History of the file format, newest first (``SCHEMA_VERSION``):

3. A difference has fields, from which its sentence is made (`recapture.records.difference`). Empty fields are left out.
   Records of version 2 become records of this version when they are read: they were judged by the same rules.
2. `Record.noted`: differences that do not decide the verdict, with kind, input and place. `Difference` says how far
   numbers differ. Kinds have the names of `recapture.records.kinds`. The phase ``backward``.
1. first version. It is still read: kinds get their present names, and `schema` stays 1.
"""

from __future__ import annotations

import inspect
import os
import re
from dataclasses import fields as dataclass_fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import msgspec

from recapture.base.decode import LARGEST, Format, too_large
from recapture.base.errors import UsageError
from recapture.base.files import append_line, read_regular, write_atomically
from recapture.records.difference import Difference, sentence_of
from recapture.records.guilty_stage import GuiltyStage, check_stage
from recapture.records.kinds import KINDS
from recapture.records.older_versions import OlderRecords
from recapture.records.verdicts import RIGHT, SILENTLY_WRONG, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

SCHEMA_VERSION: Literal[3] = 3  # repeated in the annotations of `schema`, so that other versions are refused
OLDER_VERSIONS = (1, 2)
"""Versions of records that are still read."""

TIMINGS_VERSION: Literal[1] = 1
"""Version of the rows of timings."""

CONFORMANCE = "conformance.jsonl"
PARTIAL = "conformance.partial.jsonl"
TIMINGS = "timings.jsonl"
MOST_RECORD = 1 << 18
"""Bytes of the longest record; those of real cells have a few thousand."""

MOST_OUTPUT = 512 << 20
"""Bytes of the largest file of cells' printed output that is read."""

EXAMPLE = "example"
"""Name of the input that a compiler captures with."""

HELD_OUT = "held_out"
"""Beginning of the names of the other inputs."""

INPUT = re.compile(r"example|held_out\[\d{1,6}\]|capture|original")
"""Names of the inputs on which differences and failures are recorded."""

Phase = Literal["reference", "capture", "call", "backward"]


class ErrorInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An exception, without addresses, folders, times and advice, so that two runs give the same bytes."""

    type: str
    message: str
    fingerprint: str


class ClaimResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One published claim about this cell; `holds` is None if the cell neither confirms nor refutes it."""

    id: str
    expected: str
    holds: bool | None


class CellKey(NamedTuple):
    """What identifies a cell among the rows of a directory: its case (``suite::name``), compiler and device."""

    case: str
    compiler: str
    device: str


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One cell of ``conformance.jsonl``, without times, addresses, paths or dates.

    `case` is ``suite::name``. `graphs`, `graph_breaks` and `recompiles` are totals over all inputs of the case. They
    are None if the compiler has no such concept or this torch does not report it. `input` names the input with the
    failure or the first silent difference. `reason` explains why a cell is not_applicable, environment or unstable,
    and describes a crash, timeout or oom. `differences` are silent and decide the verdict; `noted` are differences that
    do not. `notes` are other remarks, such as warnings that only torch issues. `schema` is the version of the rules
    that judged the cell. `stage` is the guilty stage, where a run was asked for it.
    """

    case: str
    compiler: str
    device: str
    verdict: Verdict
    phase: Phase | None = None
    input: str | None = None
    error: ErrorInfo | None = None
    reason: str | None = None
    differences: tuple[Difference, ...] = ()
    noted: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    graphs: int | None = None
    graph_breaks: int | None = None
    recompiles: int | None = None
    break_reasons: tuple[str, ...] = ()
    explanation: tuple[str, ...] = ()
    claims: tuple[ClaimResult, ...] = ()
    case_hash: str
    stage: GuiltyStage | msgspec.UnsetType = msgspec.UNSET
    schema: Literal[1, 3] = msgspec.field(default_factory=lambda: SCHEMA_VERSION)  # always written, unlike a default

    @property
    def cell(self) -> str:
        """The cell's address, ``suite::name::compiler``."""
        return f"{self.case}::{self.compiler}"

    @property
    def key(self) -> CellKey:
        """What identifies the cell among the rows of a directory."""
        return CellKey(self.case, self.compiler, self.device)


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One line of ``timings.jsonl``: seconds of wall time and peak resident memory (bytes) of one cell's process.

    `origin` is an id that ``environment.json`` explains: the machine and the suites. Older files do not have it.
    """

    case: str
    compiler: str
    device: str
    seconds: float
    peak_rss: int | None = None
    worker: Literal["fork", "fresh"] = "fork"
    origin: str | None = None
    schema: Literal[1] = TIMINGS_VERSION

    @property
    def key(self) -> CellKey:
        """What identifies the cell among the rows of a directory."""
        return CellKey(self.case, self.compiler, self.device)


R = TypeVar("R", Record, Timing)


def key_of(row: Record | Timing) -> CellKey:
    """Return the key of a row; the rows of a finished file are in the order of their keys."""
    return row.key


def write_jsonl(path: Path, rows: Iterable[Record] | Iterable[Timing]) -> None:
    """Write rows sorted by case, compiler and device, atomically."""
    write_atomically(path, b"".join(_line(row) for row in sorted(rows, key=key_of)))


def append_record(handle: int, row: Record | Timing) -> None:
    """Append one row to an open file descriptor in a single write, so that a killed run leaves complete lines.

    If the disk is full, raises OSError and writes no part of the row.
    """
    append_line(handle, _line(row))


def check_writable(row: Record) -> None:
    """Raise ValueError for a record that `read_jsonl` would refuse, or that is absurdly long."""
    text = _record_text(row)
    if len(text) > MOST_RECORD:
        raise ValueError(f"a record of {len(text)} bytes")
    _decode_record(text)


def read_jsonl(
    path: Path, kind: type[R], *, tolerate_torn_tail: bool = False, known: dict[bytes, R] | None = None
) -> list[R]:
    """Read rows of one kind.

    `known` are the rows that were read from other files, by their text; this adds those of the file. Lines that two
    releases have in common, which most are, become one object.

    `tolerate_torn_tail` ignores an incomplete last line, which a run leaves when it is killed while writing. Such a
    file may contain a cell more than once; a finished file may not. Raises UsageError, naming file, line and field,
    for content that this version does not understand and for impossible values (see `_check_record`).
    """
    decode: Callable[[bytes], R] = _DECODERS[kind]
    rows: list[R] = []
    lines = read_regular(path).split(b"\n")
    # A line is written in one piece, with its end: what has none was cut off.
    torn = lines.pop()  # the text after the last newline: empty in a complete file
    places: dict[CellKey, int] = {}
    known = {} if known is None else known
    for number, line in enumerate(lines, 1):
        row = known.get(line)
        if row is None:
            try:
                row = known[line] = decode(line)
            except ValueError as error:
                raise UsageError(f"{path}:{number}: {error}") from None
        rows.append(row)
        first = places.setdefault(rows[-1].key, number)
        if first != number and not tolerate_torn_tail:
            case, compiler, device = rows[-1].key
            raise UsageError(f"{path}: {case}::{compiler} on {device} is recorded twice, on lines {first} and {number}")
    if torn and not tolerate_torn_tail:
        if not torn.startswith(b"{"):
            raise UsageError(f"{path}:{len(lines) + 1}: not a JSON record")
        raise UsageError(f"{path}: the last line is cut off; the run that wrote it was interrupted")
    return rows


def read_output(path: Path) -> dict[str, dict[str, str]]:
    """Return the latest output of each cell, by its address: ``cell`` and, unless empty, ``stdout`` and ``stderr``.

    Unreadable lines are skipped, because they hold no results. A missing file gives an empty dict. Raises UsageError
    if the file is not a regular file or has more than `MOST_OUTPUT` bytes.
    """
    outputs: dict[str, dict[str, str]] = {}
    for line in read_regular(path, most=MOST_OUTPUT).splitlines() if os.path.lexists(path) else ():
        try:
            row = _OUTPUT.decode(line)
        except (ValueError, RecursionError):
            continue
        if "cell" in row:
            outputs[row["cell"]] = {"cell": row["cell"]} | {key: text for key, text in row.items() if text}
    return outputs


def read_conformance(directory: Path, known: dict[bytes, Record] | None = None) -> list[Record]:
    """Read the finished conformance records of one results directory; `read_jsonl` explains `known`.

    Raises UsageError if there are none, or if they cannot be read.
    """
    path = directory / CONFORMANCE
    if not os.path.lexists(path):
        interrupted = (
            " (a run there was interrupted: finish it with --resume)" if (directory / PARTIAL).exists() else ""
        )
        raise UsageError(f"no {CONFORMANCE} in {directory}{interrupted}")
    return read_jsonl(path, Record, known=known)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of one line of conformance.jsonl; a copy ships in ``recapture/schema``."""
    schema = schema_of(Record, f"recapture conformance record, version {SCHEMA_VERSION}")
    schema["$defs"]["Record"]["properties"]["schema"]["enum"] = [SCHEMA_VERSION]
    schema["$defs"]["Difference"]["properties"]["kind"]["enum"] = list(KINDS)
    schema["$defs"]["Record"]["required"].append("schema")
    schema["$defs"]["Difference"]["additionalProperties"] = False
    return schema


def schema_of(kind: type[msgspec.Struct], title: str) -> dict[str, Any]:
    """Return the JSON Schema of a struct, the same on every Python."""
    schema = msgspec.json.schema(kind)
    for part in schema["$defs"].values():
        if "description" in part:
            part["description"] = inspect.cleandoc(part["description"])  # as Python 3.13 does by itself
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}


def _line(row: Record | Timing) -> bytes:
    return (_record_text(row) if isinstance(row, Record) else msgspec.json.encode(row)) + b"\n"


def _record_text(row: Record) -> bytes:
    if row.schema != SCHEMA_VERSION:
        return _OLDER.text(row)
    text = msgspec.json.encode(row)
    # Most cells have no difference, and most of a difference's fields are empty: left out, the files are a third
    # smaller.
    return _EMPTY.sub(b"", text) if row.differences or row.noted else text


_OPTIONAL = [field.name for field in dataclass_fields(Difference) if field.default in (None, ())]
_EMPTY = re.compile(f',"(?:{"|".join(_OPTIONAL)})":(?:null|\\[\\])'.encode())
"""What msgspec writes for the empty fields of a difference: it omits those of its own structs alone.

Nothing inside a string matches, because quotation marks have a backslash there.
"""

_DIFFERENCE_FIELDS = frozenset(field.name for field in dataclass_fields(Difference))


def _check_names(document: dict[str, Any]) -> None:
    """Raise ValueError for a field of a difference that this version does not have: msgspec ignores it."""
    for name in ("differences", "noted"):
        for index, difference in enumerate(document.get(name) or ()):
            for unknown in difference.keys() - _DIFFERENCE_FIELDS:
                raise ValueError(f"Object contains unknown field `{unknown}` - at `$.{name}[{index}]`")


def _check_record(row: Record) -> None:
    """Raise ValueError for a record that no run can have written, so that it was edited or damaged."""
    for name in ("graphs", "graph_breaks", "recompiles"):
        if too_large(getattr(row, name)):
            raise ValueError(f"`{name}` is negative or out of range")
    if row.verdict in RIGHT and row.differences:
        raise ValueError(f"`verdict` is {row.verdict}, but `differences` has {len(row.differences)}")
    if row.verdict in RIGHT and row.error:
        raise ValueError(f"`verdict` is {row.verdict}, but there is an `error`")
    if row.verdict in SILENTLY_WRONG and not row.differences:
        raise ValueError(f"`verdict` is {row.verdict}, but `differences` is empty")
    on_example = any(difference.input == EXAMPLE for difference in row.differences)
    if row.verdict is Verdict.WRONG and all(difference.input.startswith(HELD_OUT) for difference in row.differences):
        raise ValueError("`verdict` is wrong, but `differences` has none on example")
    if row.verdict is not Verdict.WRONG and on_example:
        raise ValueError(f"`verdict` is {row.verdict}, but `differences` has one on example")
    if row.verdict in SILENTLY_WRONG:
        # The differences are in the order of what matters, so that another input may stand first among them.
        held_out = row.verdict is Verdict.SPECIALIZED
        inputs = [
            difference.input for difference in row.differences if held_out or not difference.input.startswith(HELD_OUT)
        ]
        if row.input not in inputs:
            raise ValueError(f"`input` is {row.input}, but `differences` are on {', '.join(dict.fromkeys(inputs))}")
    if any(not line.strip() or "\n" in line for line in row.explanation):
        raise ValueError("`explanation` has a line that is empty or is several lines")
    if row.verdict is Verdict.ERROR and row.error is None:
        raise ValueError("`verdict` is error, but there is no `error`")
    if row.stage is not msgspec.UNSET:
        check_stage(row.stage, row.verdict)
    for name, differences in (("differences", row.differences), ("noted", row.noted)):
        for difference in differences:
            _check_difference(name, difference)


def _check_difference(name: str, difference: Difference) -> None:
    """Raise ValueError for a difference in the field `name` that no run can have recorded."""
    if difference.kind not in KINDS:
        raise ValueError(f"`{name}` has a difference of the unknown kind {difference.kind!r}")
    if difference.unlike is not None and not sentence_of(difference):
        raise ValueError(
            f"`{name}` has one unlike in {difference.unlike}, but with other sides than such a difference has"
        )
    if name == "differences" and difference.bits == "rounding":
        raise ValueError(f"`{name}` has one that is only rounding")
    if too_large(difference.ulps):
        raise ValueError(f"`ulps` of `{name}` is negative or out of range")
    if difference.elements is not None and not 0 < difference.elements[0] <= difference.elements[1] < LARGEST:
        raise ValueError(f"`elements` of `{name}` is {list(difference.elements)}, which is not a part of a whole")


def _check_timing(row: Timing) -> None:
    for name in ("seconds", "peak_rss"):
        if too_large(getattr(row, name)):
            raise ValueError(f"`{name}` is negative or out of range")


_OUTPUT = msgspec.json.Decoder(dict[str, str])
_OLDER = OlderRecords(Record, OLDER_VERSIONS)


_PRESENT = Format(
    Record,
    "record",
    SCHEMA_VERSION,
    _check_record,
    older=OLDER_VERSIONS,
    encode=_record_text,
    check_document=_check_names,
)
_PRESENT_ENDING = f'"schema":{SCHEMA_VERSION}}}'.encode()
"""The end of a line that a run of this version wrote."""


def _decode_record(line: bytes) -> Record:
    if line.endswith(_PRESENT_ENDING) or not _OLDER.understands(line):
        return _PRESENT.decode(line)
    record: Record = _OLDER.decode(line, SCHEMA_VERSION)
    _check_record(record)
    return record


_DECODERS: dict[type[Any], Callable[[bytes], Any]] = {
    Record: _decode_record,
    Timing: Format(Timing, "record", TIMINGS_VERSION, _check_timing, encode=msgspec.json.encode).decode,
}
