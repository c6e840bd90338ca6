"""Writes a document as TOML, every value of the top level in one line, so that the JSON editor can damage tables, too."""

from __future__ import annotations

import datetime as dt
import json


def to_toml(document: object) -> str:
    """Return a document as TOML text; what TOML cannot say, such as a null, becomes a mistake in it."""
    if not isinstance(document, dict):
        return value(document) + "\n"
    return "".join(f"{_key(name)} = {value(item)}\n" for name, item in document.items())


def value(item: object) -> str:
    """Return a value as TOML text, tables and arrays inline."""
    if isinstance(item, dict):
        return "{ " + ", ".join(f"{_key(name)} = {value(each)}" for name, each in item.items()) + " }"
    if isinstance(item, list):
        return "[" + ", ".join(map(value, item)) + "]"
    if isinstance(item, (dt.date, dt.datetime)):
        return item.isoformat()
    return json.dumps(item).replace("\x7f", "\\u007f")


def _key(name: object) -> str:
    return json.dumps(str(name)).replace("\x7f", "\\u007f")
