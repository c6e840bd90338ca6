"""The JSON Schemas of the result files, for readers that are not written in Python.

`python -m recapture.results.schema` writes them again from `recapture.results.records` and
`recapture.results.speedups`; a test fails where that was forgotten.
"""

from __future__ import annotations

import json

from recapture.base.paths import module_file
from recapture.results import records, speedups

__all__ = ["PATH", "SPEEDUPS_PATH", "speedups_text", "text"]

PATH = module_file("results", "schema", f"conformance-{records.SCHEMA_VERSION}.json")
"""The shipped copy; earlier versions stay beside it."""

SPEEDUPS_PATH = module_file("results", "schema", f"speedups-{speedups.SCHEMA_VERSION}.json")


def text() -> str:
    """Return what belongs into the file of conformance records."""
    return json.dumps(records.json_schema(), indent=2, sort_keys=True) + "\n"


def speedups_text() -> str:
    """Return what belongs into the file of speedups."""
    return json.dumps(speedups.json_schema(), indent=2, sort_keys=True) + "\n"
