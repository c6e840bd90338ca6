"""The JSON Schemas of the result files, for programs not written in Python.

`python -m recapture.records.schema` regenerates them, and those of the tools, which ship in the folders of the tools.
A test fails if they are out of date.
"""

from __future__ import annotations

import json
from typing import Any

from recapture.base.paths import module_file
from recapture.records import record as records

PATH = module_file("records", "schema", f"conformance-{records.SCHEMA_VERSION}.json")
"""Path of the shipped schema of records; earlier versions stay beside it."""


def schema_text(schema: dict[str, Any]) -> str:
    """Return the content of the file of a schema."""
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def text() -> str:
    """Return the content of the schema file for conformance records."""
    return schema_text(records.json_schema())
