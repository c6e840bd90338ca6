"""The JSON Schema of a conformance record, as a file for readers that are not written in Python.

`python -m recapture.schema` writes it again from `recapture.records`; a test fails where that was forgotten.
"""

from __future__ import annotations

import json
from pathlib import Path

from recapture.records import SCHEMA_VERSION, json_schema

__all__ = ["PATH", "text"]

PATH = Path(__file__).with_name(f"conformance-{SCHEMA_VERSION}.json")
"""The shipped copy; earlier versions stay beside it."""


def text() -> str:
    """Return what belongs into the file."""
    return json.dumps(json_schema(), indent=2, sort_keys=True) + "\n"
