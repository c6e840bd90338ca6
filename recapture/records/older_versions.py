"""Reads records of versions 1 and 2, whose differences are sentences, and writes those of version 1.

A sentence is split into the fields that make it again, to the byte. One that cannot be split stays as it is, in
`Difference.text`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from recapture.base.decode import Format
from recapture.records.difference import SENTENCES, Difference, InputChange, Unlike
from recapture.records.kinds import Bits, current_kind


class _Versioned(msgspec.Struct):
    schema: Any = None


class SentenceDifference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A difference in a record of version 1 or 2."""

    input: str
    where: str
    kind: str
    detail: str
    bits: Bits | None = None
    ulps: int | None = None
    elements: tuple[int, int] | None = None


_SIDE: dict[Unlike, str] = {
    "type": r"\S+",
    "structure": r"a tensor|a value|\d+ items",
    "items": r"\d+",
    "keys": r"\[.*",
    "property": r"a value",
    "dtype": r"torch\.(?!strided|sparse|jagged|_mkldnn)\w+|[<>|]?(?:bool|u?int|float|complex|str|object|[US])\w*",
    "shape": r"\([\d, ]*\)",
    "device": r"cpu|meta|(?:cuda|xpu|mps|hpu)(?::\d+)?",
    "layout": r"torch\.(?:strided|sparse\w*|jagged|_mkldnn)|numpy",
    "flags": r"none of its flags|(?:leaf|inference|conj|neg)(?: and (?:leaf|inference|conj|neg))*",
    "stride": r"None|\([\d, ]*\)",
    "requires_grad": r"True|False",
    "gradient": r"a gradient",
    "zero_gradient": r"zeros",
    "raises": r"\S+",
    "backward": r"\S+",
    "outside": r"\d+",
}
"""Pattern of each side by what the sides are unlike in; any text for others."""

_NOTHING_TO_SHOW = {
    "set": "set",
    "capture": "changed",
    "moved": "moves",
    "overwritten": "writes",
    "version": "raises",
}
"""What a side has where the sentence does not show it."""


def _patterns() -> Iterator[tuple[Unlike, re.Pattern[str], dict[str, str]]]:
    """Yield a pattern for every sentence, with the sides that it does not show; those of values last."""
    for unlike in sorted(SENTENCES, key=lambda name: name == "value"):
        for form, sides in (
            ("both", ("eager", "other")),
            ("eager", ("eager",)),
            ("other", ("other",)),
            ("neither", ()),
        ):
            sentence = getattr(SENTENCES[unlike], form)
            if sentence and unlike != "value":
                pattern = re.escape(sentence)
                for side in sides:
                    # The eager side ends at the first place where the rest of the sentence fits.
                    pattern = pattern.replace(
                        re.escape(f"{{{side}}}"), f"(?P<{side}>{_SIDE.get(unlike, '.*?' if side == 'eager' else '.*')})"
                    )
                hidden = {side: _NOTHING_TO_SHOW[unlike] for side in sides if f"(?P<{side}>" not in pattern}
                yield unlike, re.compile(pattern, re.DOTALL), hidden


_PATTERNS = tuple(_patterns())

_VALUE = re.compile(
    r"(?:(?P<count>\d+ of \d+ elements differ|value differs)(?:: )?)?(?:eager (?P<eager>.*?), this (?P<other>.*?))?"
    r"(?: at \[(?P<at>\d+(?:, \d+)*)\])?(?:; (?P<changes>(?:args|kwargs)\S* (?:is|has) .*))?",
    re.DOTALL,
)
_NEXT_CHANGE = re.compile(r", (?=(?:args|kwargs)\S* (?:is|has) )")
_MORE = re.compile(r"(.*) and (\d+) more", re.DOTALL)
_CHANGES = (
    ("", re.compile(r"(?P<where>.+?) has (?P<what>dtype|shape|stride) (?P<value>.*), the example's (?P<example>.*)")),
    ("items", re.compile(r"(?P<where>.+?) has (?P<value>\d+) items, the example's (?P<example>\d+)")),
    ("", re.compile(r"(?P<where>.+?) is (?P<value>.*?), the example's (?P<example>.*)", re.DOTALL)),
)
_TYPE_NAME = re.compile(r"(?!(?:None|True|False|nan|inf)$)[A-Za-z_][\w.<>]*")
_NAMED_CHANGES = 3
"""Number of changes of an input from which a sentence only counts the others."""


def difference_of(old: SentenceDifference) -> Difference:
    """Return a difference with its sentence split into fields."""
    whole = Difference(old.input, old.where, old.kind, bits=old.bits, ulps=old.ulps, elements=old.elements)
    for fields in _readings(old):
        difference = dataclasses.replace(whole, **fields)
        if difference.detail == old.detail:
            return difference
    return dataclasses.replace(whole, text=old.detail)


def sentence_difference(difference: Difference) -> SentenceDifference:
    """Return a difference in the form of versions 1 and 2."""
    return SentenceDifference(
        difference.input,
        difference.where,
        difference.kind,
        difference.detail,
        difference.bits,
        difference.ulps,
        difference.elements,
    )


def _readings(old: SentenceDifference) -> Iterator[dict[str, Any]]:
    """Yield the ways to read a sentence, the likeliest first."""
    yield {}  # a sentence without words
    if old.bits is not None:
        yield from _value_readings(old.detail)
    for unlike, pattern, hidden in _PATTERNS:
        match = pattern.fullmatch(old.detail)
        if match is not None and (old.kind not in ("dtype", "shape") or unlike == old.kind):
            yield {"unlike": unlike, **match.groupdict(), **hidden}
    yield from _value_readings(old.detail)


def _value_readings(detail: str) -> Iterator[dict[str, Any]]:
    yield {"unlike": "value"}
    match = _VALUE.fullmatch(detail)
    if match is None:
        return
    fields: dict[str, Any] = {"unlike": "value", "eager": match["eager"], "other": match["other"]}
    if match["at"]:
        fields["at"] = tuple(int(number) for number in match["at"].split(", "))
    if match["changes"]:
        fields |= _changes(match["changes"])
    yield fields


def _changes(text: str) -> dict[str, Any]:
    """Return the fields that say in what an input is unlike the example; none if the text says something else."""
    parts = _NEXT_CHANGE.split(text)
    fields: dict[str, Any] = {}
    if len(parts) == _NAMED_CHANGES and (more := _MORE.fullmatch(parts[-1])) is not None:
        parts[-1], fields["more_changes"] = more[1], int(more[2])
    changes = [_change(part) for part in parts]
    return {**fields, "changes": tuple(changes)} if None not in changes else {}


def _change(text: str) -> InputChange | None:
    for what, pattern in _CHANGES:
        match = pattern.fullmatch(text)
        if match is not None:
            names = match.groupdict()
            types = _TYPE_NAME.fullmatch(names["value"]) and _TYPE_NAME.fullmatch(names["example"])
            aspect: Any = names.get("what") or what or ("type" if types else "value")
            return InputChange(names["where"], aspect, names["value"], names["example"])
    return None


class OlderRecords:
    """Reads records of versions 1 and 2, and writes those of version 1; `record` is the struct of the present version.

    A record of version 2 becomes one of the present version, because the rules are the same. One of version 1 stays
    one, with the present names of kinds.
    """

    def __init__(self, record: type[msgspec.Struct], versions: tuple[int, ...]) -> None:
        self._record, self._versions = record, versions
        replaced: dict[str, Any] = {
            "differences": tuple[SentenceDifference, ...],
            "noted": tuple[SentenceDifference, ...],
            "schema": Literal[versions],
        }
        fields: list[Any] = []
        for field in msgspec.structs.fields(record):
            kind = replaced.get(field.name, field.type)
            optional = not field.required and field.name != "schema"
            fields.append((field.name, kind, field.default) if optional else (field.name, kind))
        self._older: Any = msgspec.defstruct("Record", fields, frozen=True, forbid_unknown_fields=True, kw_only=True)
        self._format: Format[Any] = Format(
            self._older, "record", versions[-1], _check_noted, older=versions[:-1], encode=_older_text
        )

    def understands(self, line: bytes) -> bool:
        """Whether a line says that it is of an older version."""
        try:
            return msgspec.json.decode(line, type=_Versioned).schema in self._versions
        except (ValueError, RecursionError):
            return False

    def decode(self, line: bytes, present: int) -> Any:
        """Return the record on a line; raises ValueError with the reason for one that no run can have written."""
        older = self._format.decode(line)
        changed: dict[str, Any] = {
            name: tuple(map(difference_of, getattr(older, name))) for name in ("differences", "noted")
        }
        changed["schema"] = present
        if older.schema == 1:
            renamed = (
                dataclasses.replace(difference, kind=current_kind(difference.kind, difference.where))
                for difference in changed["differences"]
            )
            changed |= {"schema": 1, "differences": tuple(renamed)}
        return _converted(older, self._record, changed)

    def text(self, record: msgspec.Struct) -> bytes:
        """Return the line of a record that is still of an older version."""
        changed = {name: tuple(map(sentence_difference, getattr(record, name))) for name in ("differences", "noted")}
        return _older_text(_converted(record, self._older, changed))


def _converted(row: msgspec.Struct, kind: Any, changed: dict[str, Any]) -> Any:
    return kind(**{name: getattr(row, name) for name in row.__struct_fields__} | changed)


def _older_text(row: Any) -> bytes:
    text = msgspec.json.encode(row)
    # These versions write empty fields, except those that were added without a new version.
    for name in ("explanation",) if row.schema != 1 else ("explanation", "noted"):
        text = text.replace(f'"{name}":[],'.encode(), b"")
    return text


def _check_noted(row: Any) -> None:
    if row.schema == 1 and row.noted:
        raise ValueError("`schema` is 1, which has no `noted`")
