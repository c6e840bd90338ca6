"""Several diffs, from each results directory to the next: one table over all of them, then each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from recapture.report.document import Inline, Table
from recapture.report.markdown_writer import table_markdown
from recapture.report.terminal_writer import say, say_table
from recapture.tools.compare.changes import found
from recapture.tools.compare.diff_report import print_diff

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from recapture.tools.compare.changes import Diff

STEPS_SCHEMA_VERSION = 1
"""Version of the JSON form of several diffs."""


def print_steps(console: Console, steps: Sequence[Diff]) -> None:
    """Print diffs one after the other; before several, a table of what each step changed."""
    if len(steps) > 1:
        say_table(console, _table(steps))
        say(console)
    for number, changes in enumerate(steps):
        if number:
            say(console)
        print_diff(console, changes)


def steps_to_markdown(steps: Sequence[Diff]) -> list[str]:
    """Return the parts of Markdown that come before several diffs."""
    return ["# From one to the next", "", table_markdown(_table(steps)), ""]


def steps_to_json(steps: Sequence[Diff]) -> str:
    """Return several diffs as JSON, indented; `recapture.tools.compare.changes.diff_schema` describes each."""
    document = {"schema": STEPS_SCHEMA_VERSION, "diffs": list(steps)}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _table(steps: Sequence[Diff]) -> Table:
    """Return the number of changed cells of each category, and of regressions, for each step."""
    seen = [name for name, _ in steps[0].categories() if any(getattr(changes, name) for changes in steps)]
    rows: list[list[Inline]] = [
        [
            f"{changes.old.image} → {changes.new.image}",
            str(found(changes, "regression")),
            *(str(len(getattr(changes, name))) for name in seen),
        ]
        for changes in steps
    ]
    heads = ["", "regressions", *(name.replace("_", " ") for name in seen)]
    return Table(heads, rows, "l" + "r" * (len(heads) - 1))
