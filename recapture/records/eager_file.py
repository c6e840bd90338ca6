"""``eager.jsonl``: what eager itself gave for each case, so that a change of eager between two results can be seen.

A row has digests, not values: below two kilobytes a case. Results of earlier versions have no such file.

History of the file format, newest first (``SCHEMA_VERSION``):

1. first version.
"""

from __future__ import annotations

import os
import re
from dataclasses import fields as dataclass_fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from recapture.base.decode import Format
from recapture.base.errors import UsageError
from recapture.base.files import read_regular
from recapture.base.paths import module_file
from recapture.records.eager_calls import Digest, EagerCall
from recapture.records.record import schema_of

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION: Literal[1] = 1

PATH = module_file("records", "schema", f"eager-{SCHEMA_VERSION}.json")
"""Path of the shipped schema of a row."""

MOST_ROW = 1 << 14
"""Bytes of the longest row that is accepted."""


class CaseKey(NamedTuple):
    """What identifies a case among the rows of a directory."""

    case: str
    device: str


class EagerRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What eager gave for one case on each input; without `calls`, its cell ended before it was known."""

    case: str
    device: str
    case_hash: str
    calls: tuple[EagerCall, ...] = ()
    schema: Literal[1] = SCHEMA_VERSION

    @property
    def key(self) -> CaseKey:
        """What identifies the row."""
        return CaseKey(self.case, self.device)


def _check(row: EagerRow) -> None:
    """Raise ValueError for a call that is there twice, or that is not stable and has digests all the same."""
    names = [call.input for call in row.calls]
    if len(set(names)) < len(names):
        raise ValueError("`calls` has an input twice")
    if any(call.unstable and (call.result or call.gradients or call.effects) for call in row.calls):
        raise ValueError("`calls` has one that is unstable, with digests")


_EMPTY = re.compile(
    rb',"(?:given|dtypes)":""|,"(?:result|gradients|effects|raised)":null|,"numbers":\[\]|,"unstable":false'
)
"""What msgspec writes for the empty fields of a call: it omits those of its own structs alone.

Nothing inside a string matches, because quotation marks have a backslash there.
"""


def eager_line(row: EagerRow) -> bytes:
    """Return a row as a line of the file, without the empty fields of its calls."""
    return _text(row) + b"\n"


def _text(row: EagerRow) -> bytes:
    return _EMPTY.sub(b"", msgspec.json.encode(row))


def _check_names(document: dict[str, Any]) -> None:
    """Raise ValueError for a field of a call or digest that this version does not have: msgspec ignores it."""
    for call in document.get("calls") or ():
        for fields, kind in [(call, EagerCall), *((call.get(name), Digest) for name in _DIGESTS)]:
            for unknown in (fields or {}).keys() - {field.name for field in dataclass_fields(kind)}:
                raise ValueError(f"Object contains unknown field `{unknown}`")


_DIGESTS = ("result", "gradients", "effects")
_FORMAT: Format[EagerRow] = Format(
    EagerRow,
    "row of eager's digests",
    SCHEMA_VERSION,
    _check,
    encode=_text,
    check_document=_check_names,
)


def check_calls(calls: tuple[EagerCall, ...]) -> None:
    """Raise ValueError for calls of which no row can be written that is read again."""
    text = _text(EagerRow(case="", device="", case_hash="", calls=calls))
    if len(text) > MOST_ROW:
        raise ValueError(f"digests of {len(text)} bytes")
    _FORMAT.decode(text)


def read_eager(path: Path, *, tolerate_torn_tail: bool = False) -> dict[CaseKey, EagerRow]:
    """Return the rows of a file by case and device, the newest of each; none if there is no such file.

    `tolerate_torn_tail` ignores an incomplete last line, which a run leaves when it is killed. Raises UsageError,
    naming file and line, for content that this version does not understand.
    """
    if not os.path.lexists(path):
        return {}
    lines = read_regular(path).split(b"\n")
    torn = lines.pop()
    if torn and not tolerate_torn_tail:
        raise UsageError(f"{path}: the last line is cut off; the run that wrote it was interrupted")
    rows: dict[CaseKey, EagerRow] = {}
    for number, line in enumerate(lines, 1):
        try:
            row = _FORMAT.decode(line)
        except ValueError as error:
            raise UsageError(f"{path}:{number}: {error}") from None
        rows[row.key] = row
    return rows


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of one line."""
    schema = schema_of(EagerRow, f"recapture digests of eager, version {SCHEMA_VERSION}")
    for part in ("EagerCall", "Digest"):
        schema["$defs"][part]["additionalProperties"] = False
    return schema
