"""The JSON Schemas of the result files, for readers that are not written in Python.

`python -m recapture.schema` writes them again from `recapture.records` and `recapture.bench.rows`; a test fails where
that was forgotten.
"""

from __future__ import annotations

import json
from pathlib import Path

from recapture import records
from recapture.bench import rows

__all__ = ["PATH", "SPEEDUPS_PATH", "speedups_text", "text"]

PATH = Path(__file__).with_name(f"conformance-{records.SCHEMA_VERSION}.json")
"""The shipped copy; earlier versions stay beside it."""

SPEEDUPS_PATH = Path(__file__).with_name(f"speedups-{rows.SCHEMA_VERSION}.json")


def text() -> str:
    """Return what belongs into the file of conformance records."""
    return json.dumps(records.json_schema(), indent=2, sort_keys=True) + "\n"


def speedups_text() -> str:
    """Return what belongs into the file of speedups."""
    return json.dumps(rows.json_schema(), indent=2, sort_keys=True) + "\n"
