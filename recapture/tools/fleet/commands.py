"""The command that runs one task of a matrix, on whatever machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.images.interpreter import Interpreter
from recapture.tools.fleet.folder import DURATIONS

if TYPE_CHECKING:
    from pathlib import Path

    from recapture.tools.fleet.work import MatrixWork, WorkTask


def options_of_task(work: MatrixWork, task: WorkTask) -> list[str]:
    """Return the options of `recapture run` that a task has on any machine, without folders."""
    words = ["--image", task.image, "--via", work.via, "--device", task.device]
    return [*words, "--shard", f"{task.shard}/{task.shards}", *work.arguments]


def words_of_task(folder: Path, work: MatrixWork, task: WorkTask) -> tuple[list[str], list[str]]:
    """Return the command of every task, by this Python and this copy of recapture, and the words of one task.

    The folder is on a disk that all machines see, and so are this Python and this copy.
    """
    command = Interpreter.here().command("recapture", "run", "--durations", str(folder.resolve() / DURATIONS))
    return command, options_of_task(work, task)
