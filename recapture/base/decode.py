"""Reading JSON that may be damaged or hostile: an invalid document is refused, with the field and the reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from recapture.base.errors import UsageError
from recapture.base.files import read_regular
from recapture.base.text import shorten

T = TypeVar("T")

# `Format` refuses numbers above LARGEST before it looks at types, so that these types need no upper end.
Count = Annotated[int, msgspec.Meta(ge=0)]
"""A count or a size."""

NonNegative = Annotated[float, msgspec.Meta(ge=0)]
"""Seconds, or another figure that is never negative."""

LARGEST = 2.0**63
"""The largest number that a file may hold; every real count, size and duration is far smaller."""

REASON_LIMIT = 300
"""Characters shown of a reason, which may quote the file."""


class _Versioned(msgspec.Struct):
    schema: Any = msgspec.UNSET


class Format(Generic[T]):
    """One kind of JSON document: its type, its name in messages, its version, and a check of its values.

    `older` are earlier versions that the type describes, too. `check` raises ValueError, naming the field, for
    impossible values that the type allows. `encode` writes a document as its files have it: what it encodes to the same
    bytes again cannot have a duplicate field, which saves a second parse. Any other document is parsed again as plain
    JSON, and `check_document` raises ValueError for what the type cannot refuse.
    """

    def __init__(
        self,
        kind: type[T],
        noun: str,
        version: int,
        check: Callable[[T], None] | None = None,
        *,
        older: Sequence[int] = (),
        encode: Callable[[T], bytes] | None = None,
        check_document: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._versions = (*older, version)
        self._noun, self._check, self._encode, self._check_document = noun, check, encode, check_document

    def decode(self, data: bytes) -> T:
        """Return the document; raises ValueError with the reason if this version does not understand it."""
        try:
            document = self._decoder.decode(data)
            if self._encode is None or self._encode(document) != data:
                fields = json.loads(data, object_pairs_hook=_unique, parse_int=_integer, parse_float=_float)
                if "schema" not in fields:
                    raise ValueError("missing required field `schema`")
                if self._check_document is not None:
                    self._check_document(fields)
            if self._check is not None:
                self._check(document)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        except ValueError as error:  # from msgspec, from decoding bytes that are not UTF-8, or from a check
            raise ValueError(self._reason(data, error)) from None
        return document

    def read(self, path: Path) -> T:
        """Return the document in a file; raises UsageError naming the file, the field and the reason."""
        data = read_regular(path)
        try:
            return self.decode(data)
        except ValueError as error:
            raise UsageError(f"{path}: {error}") from None

    def _reason(self, data: bytes, error: ValueError) -> str:
        """Say what is wrong. A different version is reported first, because it causes the other errors."""
        if isinstance(error, UnicodeDecodeError):
            return f"not UTF-8: {shorten(str(error), REASON_LIMIT)}"
        try:
            version = msgspec.json.decode(data, type=_Versioned).schema
        except (ValueError, RecursionError):
            return f"not a JSON {self._noun}: {shorten(str(error), REASON_LIMIT)}"
        if version is not msgspec.UNSET and version not in self._versions:
            named, known = shorten(repr(version), 40), " and ".join(map(str, self._versions))
            return f"{self._noun} schema {named} is not understood by this version, which reads {known}"
        return shorten(str(error), REASON_LIMIT)


def too_large(number: float | None) -> bool:
    """Whether a number is negative or larger than any real count."""
    return number is not None and not 0 <= number < LARGEST


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the field `{twice}` appears twice")
    return fields


def _integer(digits: str) -> int:
    if len(digits) > 20 or abs(int(digits)) > LARGEST:
        raise ValueError(f"the number {shorten(digits, 24)} is out of range")
    return int(digits)


def _float(digits: str) -> float:
    if abs(float(digits)) > LARGEST:
        raise ValueError(f"the number {shorten(digits, 24)} is out of range")
    return float(digits)
