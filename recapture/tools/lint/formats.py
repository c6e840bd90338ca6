"""How warnings are written: as lines, as annotations of GitHub, as JSON, and as SARIF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from recapture.base.version import __version__
from recapture.tools.lint.warnings import LintWarning

Format = Literal["text", "github", "json", "sarif"]

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
"""The address that names the version of SARIF."""


def text_lines(warnings: Sequence[LintWarning]) -> list[str]:
    """Return a line for each warning: the place, the behaviour, where it is bad, and the cure."""
    return [f"{one.path}:{one.line}:{one.column} {one.behaviour}: {one.message}" for one in warnings]


def github_lines(warnings: Sequence[LintWarning]) -> list[str]:
    """Return GitHub's workflow commands that annotate the lines of a pull request."""
    return [
        f"::{'warning' if one.silent else 'notice'} file={_property(one.path)},line={one.line},col={one.column},"
        f"title={_property(one.behaviour)}::{_data(one.message)}"
        for one in warnings
    ]


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def json_document(warnings: Sequence[LintWarning]) -> list[dict[str, Any]]:
    """Return the warnings as a JSON array of objects."""
    return [{**msgspec.to_builtins(one), "message": one.message} for one in warnings]


def sarif_document(warnings: Sequence[LintWarning]) -> dict[str, Any]:
    """Return the warnings as a SARIF log, which code scanning reads."""
    rules = {one.behaviour: one for one in warnings}
    return {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "recapture",
                        "version": __version__,
                        "rules": [
                            {
                                "id": name,
                                "shortDescription": {"text": one.title},
                                "fullDescription": {"text": one.sentence},
                            }
                            for name, one in sorted(rules.items())
                        ],
                    }
                },
                "results": [
                    {
                        "ruleId": one.behaviour,
                        "level": "warning" if one.silent else "note",
                        "message": {"text": one.message},
                        "locations": [
                            {
                                "physicalLocation": {
                                    "artifactLocation": {"uri": Path(one.path).as_posix()},
                                    "region": {"startLine": one.line, "startColumn": one.column},
                                }
                            }
                        ],
                    }
                    for one in warnings
                ],
            }
        ],
    }
