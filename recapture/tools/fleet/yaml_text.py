"""Plain data as YAML in block style, for files that people read and edit."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_PLAIN = re.compile(r"[A-Za-z/][\w./-]*", re.ASCII)
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})
"""Words that YAML does not read as text."""


def to_yaml(data: Any) -> str:
    """Return dicts, lists, texts, numbers and truth values as YAML; a text with line breaks becomes a literal block."""
    return "\n".join(_block(data, "")) + "\n"


def _block(data: Any, indent: str) -> Iterator[str]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _entry(f"{indent}{_scalar(key) if key != 'on' else key}:", value, indent)
    else:
        for value in data:
            if isinstance(value, dict) and value:
                first, *rest = _block(value, f"{indent}  ")
                yield f"{indent}- {first.strip()}"
                yield from rest
            else:
                yield from _entry(f"{indent}-", value, indent)


def _entry(begin: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, (dict, list)) and value and not _short(value):
        yield begin
        yield from _block(value, f"{indent}  ")
    elif isinstance(value, str) and "\n" in value:
        yield f"{begin} |"
        yield from (f"{indent}  {line}".rstrip() for line in value.splitlines())
    else:
        yield f"{begin} {_inline(value)}"


def _short(value: Any) -> bool:
    """Whether a list or dict of scalars fits on a line."""
    members = value.values() if isinstance(value, dict) else value
    return all(not isinstance(one, (dict, list)) and "\n" not in str(one) for one in members) and (
        len(_inline(value)) <= 60 or len(value) == 1
    )


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {_inline(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value)
