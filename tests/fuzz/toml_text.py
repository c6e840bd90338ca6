"""Writes a document as TOML, every value of the top level in one line, so that the JSON editor can damage tables, too."""

from __future__ import annotations

import datetime as dt
import json


def to_toml(document: object) -> str:
    """Return a document as TOML text; what TOML cannot say, such as a null, becomes a mistake in it."""
    if not isinstance(document, dict):
        return value(document) + "\n"
    return "".join(f"{_key(name)} = {value(one)}\n" for name, one in document.items())


def value(one: object) -> str:
    """Return a value as TOML text, tables and arrays inline."""
    if isinstance(one, dict):
        return "{ " + ", ".join(f"{_key(name)} = {value(each)}" for name, each in one.items()) + " }"
    if isinstance(one, list):
        return "[" + ", ".join(map(value, one)) + "]"
    if isinstance(one, (dt.date, dt.datetime)):
        return one.isoformat()
    return json.dumps(one).replace("\x7f", "\\u007f")


def _key(name: object) -> str:
    return json.dumps(str(name)).replace("\x7f", "\\u007f")
