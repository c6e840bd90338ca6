"""The work of a matrix as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.base.text import duration_text, plural
from recapture.report.document import Inline, Table
from recapture.report.terminal_writer import say, say_table

if TYPE_CHECKING:
    from rich.console import Console

    from recapture.tools.fleet.work import MatrixWork


def print_work(console: Console, work: MatrixWork) -> None:
    """Print one row for each image, and the number of tasks; the durations are those of one core."""
    rows: list[list[Inline]] = [
        [
            image.name,
            image.python,
            "?" if image.cells is None else str(image.cells),
            "?" if image.seconds is None else duration_text(image.seconds),
            str(image.shards),
            "?" if image.seconds is None else duration_text(image.seconds / image.shards),
        ]
        for image in work.images
    ]
    say_table(console, Table(["image", "Python", "recorded cells", "their time", "shards", "each"], rows, "llrrrr"))
    say(console, f"{plural(len(work.images), 'image')}, {plural(len(work.tasks), 'task')}")
    for line in work.left_out:
        say(console, f"left out: {line}")
