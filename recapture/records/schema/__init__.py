"""The JSON Schemas of the result files, for programs not written in Python.

`python -m recapture.records.schema` regenerates them from `recapture.records.record` and
`recapture.tools.speed.speedups`; a test fails if they are out of date.
"""

from __future__ import annotations

import json

from recapture.base.paths import module_file
from recapture.records import record as records
from recapture.tools.speed import speedups

PATH = module_file("records", "schema", f"conformance-{records.SCHEMA_VERSION}.json")
"""Path of the shipped schema of records; earlier versions stay beside it."""

SPEEDUPS_PATH = module_file("records", "schema", f"speedups-{speedups.SCHEMA_VERSION}.json")


def text() -> str:
    """Return the content of the schema file for conformance records."""
    return json.dumps(records.json_schema(), indent=2, sort_keys=True) + "\n"


def speedups_text() -> str:
    """Return the content of the schema file for speedups."""
    return json.dumps(speedups.json_schema(), indent=2, sort_keys=True) + "\n"
