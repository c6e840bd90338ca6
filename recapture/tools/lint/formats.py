"""How warnings are written: as lines, as annotations of GitHub, as JSON, and as SARIF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from recapture.base.escape import workflow_property, workflow_text
from recapture.base.version import __version__
from recapture.tools.lint.warnings import LintWarning

Format = Literal["text", "github", "json", "sarif"]

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
"""The address that names the version of SARIF."""


def text_lines(warnings: Sequence[LintWarning]) -> list[str]:
    """Return a line for each warning: the place, the behaviour, where it is bad, and the cure."""
    return [
        f"{warning.path}:{warning.line}:{warning.column} {warning.behaviour}: {warning.message}" for warning in warnings
    ]


def github_lines(warnings: Sequence[LintWarning]) -> list[str]:
    """Return GitHub's workflow commands that annotate the lines of a pull request."""
    return [
        f"::{'warning' if warning.silent else 'notice'} file={workflow_property(warning.path)},line={warning.line},"
        f"col={warning.column},title={workflow_property(warning.behaviour)}::{workflow_text(warning.message)}"
        for warning in warnings
    ]


def json_document(warnings: Sequence[LintWarning]) -> list[dict[str, Any]]:
    """Return the warnings as a JSON array of objects."""
    return [{**msgspec.to_builtins(warning), "message": warning.message} for warning in warnings]


def sarif_document(warnings: Sequence[LintWarning]) -> dict[str, Any]:
    """Return the warnings as a SARIF log, which code scanning reads."""
    rules = {warning.behaviour: warning for warning in warnings}
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
                                "shortDescription": {"text": warning.title},
                                "fullDescription": {"text": warning.sentence},
                            }
                            for name, warning in sorted(rules.items())
                        ],
                    }
                },
                "results": [
                    {
                        "ruleId": warning.behaviour,
                        "level": "warning" if warning.silent else "note",
                        "message": {"text": warning.message},
                        "locations": [
                            {
                                "physicalLocation": {
                                    "artifactLocation": {"uri": Path(warning.path).as_posix()},
                                    "region": {"startLine": warning.line, "startColumn": warning.column},
                                }
                            }
                        ],
                    }
                    for warning in warnings
                ],
            }
        ],
    }
