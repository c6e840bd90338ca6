"""Runs the tasks of a folder as Slurm arrays: submits what is missing, waits, and submits again what a machine broke.

Each type of GPU has its own array of the shipped file ``examples/fleet/shard.sbatch``. No state is kept beside the
files that attempts write: a submitter that was killed and starts again finds its jobs by their name, and what they
published in the folder. Slurm's own account of how a job ended is never read; it only says which jobs are still there.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.option_fields import option
from recapture.base.paths import data_folder
from recapture.base.text import duration_text, plural, shorten
from recapture.images.interpreter import Interpreter
from recapture.run.attempts import Attempt, refuse_other_than_folders
from recapture.tools.fleet.work import DURATIONS, LOGS, TASKS, MatrixWork, attempts_at, task_is_published

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

SCRIPT = "shard.sbatch"
"""Name of the shipped script that runs one shard a task."""

TRIES = 3
"""Number of submissions of a shard that the machine broke."""

_PLAIN_PATH = re.compile(r"/[\w./+=:@,-]*", re.ASCII)
"""Paths that mean the same to Slurm, where ``%`` and white space have a meaning, and in the words of a task."""

COMMAND_SECONDS = 120.0
"""Seconds that a command of Slurm may take."""

AWAY_SECONDS = 1800.0
"""Seconds without an answer of Slurm's controller after which the submitter gives up; the jobs go on without it."""

SLOWEST_POLL = 30.0
"""Most seconds between two questions to Slurm."""

UNFIT = (3, 75)
"""Exit statuses of an attempt that found its machine unfit."""

STUCK = ("launch failed requeued held",)
"""Reasons of pending tasks that would wait for ever because a machine broke them."""


class QueuedTask(NamedTuple):
    """A task that Slurm still has: the name of its job, its state, and why it waits."""

    name: str
    state: str
    reason: str


def _partition(text: str) -> str:
    if not re.fullmatch(r"[\w./+=:@,-]+", text, re.ASCII):
        raise UsageError(f"--partition {text!r}: a partition's name has no white space and no special characters")
    return text


def _further_option(text: str) -> str:
    if not re.fullmatch(r"--?[a-z][\w-]*(=[^\s'\"#]*)?", text, re.ASCII):
        raise UsageError(f"--sbatch {text!r}: write one option without white space, as in --sbatch=--account=lab")
    return text


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """What an sbatch array asks of the cluster."""

    gpu_by: Literal["gres", "constraint"] = option(
        "--gpu-by", default="gres", help="How the type of GPU is asked for: --gres=gpu:TYPE:1, or a node's feature."
    )
    partition: str | None = option(
        "--partition", default=None, metavar="NAME", parse=_partition, help="Partition of the cluster."
    )
    minutes: int = option("--minutes", default=240, between=(2, 10080), help="Minutes that a shard may take.")
    at_once: int | None = option("--at-once", default=None, between=(1, None), help="The most shards at a time.")
    sbatch: tuple[str, ...] = option(
        "--sbatch",
        default=(),
        metavar="OPTION",
        parse=_further_option,
        help="A further option for sbatch, as in --sbatch=--account=lab.",
    )


def job_name(folder: Path) -> str:
    """Return the name of the jobs of a folder, by which a submitter that starts again finds them."""
    return f"recapture-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]}"


def plain_folder(folder: Path) -> Path:
    """Return the absolute path of a folder for attempts; raises UsageError for a link, or what Slurm would misread."""
    refuse_other_than_folders(folder)
    folder = folder.resolve()
    if not _PLAIN_PATH.fullmatch(str(folder)):
        raise UsageError(f"{folder}: Slurm would misread this path; choose a folder of plain letters with --folder")
    return folder


def sbatch_commands(
    folder: Path, work: MatrixWork, options: SlurmOptions, chosen: Collection[int] | None = None
) -> list[tuple[list[str], list[int]]]:
    """Return the commands that submit tasks, one for each type of GPU, each with the indices of its tasks.

    `chosen` are the indices of the tasks in `work.tasks`; without it, all are submitted.
    """
    commands = []
    for gpu in dict.fromkeys(task.gpu for task in work.tasks):
        indices = [
            index for index, task in enumerate(work.tasks) if task.gpu == gpu and (chosen is None or index in chosen)
        ]
        if indices:
            commands.append((_sbatch_command(folder, work, options, gpu, indices), indices))
    return commands


def _sbatch_command(
    folder: Path, work: MatrixWork, options: SlurmOptions, gpu: str | None, indices: Sequence[int]
) -> list[str]:
    at_once = f"%{options.at_once}" if options.at_once else ""
    words = [
        "sbatch",
        "--parsable",
        f"--job-name={job_name(folder)}",
        f"--array={_ranges(indices)}{at_once}",
        f"--output={folder / LOGS}/%A_%a.log",
        f"--time={options.minutes}",
    ]
    if options.partition:
        words.append(f"--partition={options.partition}")
    if gpu:
        words += [f"--gres=gpu:{gpu}:1"] if options.gpu_by == "gres" else ["--gres=gpu:1", f"--constraint={gpu}"]
    script = data_folder("examples/fleet", marker=SCRIPT) / SCRIPT
    # This Python and this copy of recapture: both are on a disk that all nodes see.
    run = Interpreter.here().command("recapture", "run", "--durations", str(folder / DURATIONS))
    return [*words, *options.sbatch, str(script), str(folder / TASKS), *run, "--", *work.arguments]


def _ranges(indices: Sequence[int]) -> str:
    """Return ascending numbers as sbatch reads them: ``0-3,7``. Each as a number of its own could be too long."""
    ranges: list[list[int]] = []
    for index in indices:
        if ranges and index == ranges[-1][-1] + 1:
            ranges[-1][1:] = [index]
        else:
            ranges.append([index])
    return ",".join("-".join(map(str, ends)) for ends in ranges)


@dataclass
class SlurmRun:
    """The tasks of a folder while Slurm runs them."""

    folder: Path
    work: MatrixWork
    options: SlurmOptions
    show: Callable[[str], object]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    submissions: Counter[int] = field(default_factory=Counter)
    _last_line: str = ""

    def run(self) -> None:
        """Submit and wait until every task has published or is given up; raises EnvironmentUnfitError without Slurm.

        If this is interrupted, the jobs go on.
        """
        began = answered = self.clock()
        first_done = sum(task_is_published(self.folder, task) for task in self.work.tasks)
        gone_before: set[int] = set()
        while True:
            try:
                jobs = self._jobs()
                answered = self.clock()
            except EnvironmentUnfitError as error:
                if not self.submissions or self.clock() - answered > AWAY_SECONDS:
                    raise
                self._show(f"{error}: waiting for it")
                self.sleep(self._pause(began))
                continue
            open_tasks = [
                index for index, task in enumerate(self.work.tasks) if not task_is_published(self.folder, task)
            ]
            gone = {index for index in open_tasks if index not in jobs}
            # Seen twice: a rename on another machine may take a moment to be seen here.
            missing = [index for index in sorted(gone) if self._runs_again(index, seen=index in gone_before)]
            if missing:
                self._submit(missing)
                gone_before = set()
                continue
            self._progress(jobs, open_tasks, first_done, began)
            if gone == set(open_tasks) and gone == gone_before:
                return
            gone_before = gone
            self.sleep(self._pause(began))

    def _runs_again(self, index: int, *, seen: bool) -> bool:
        """Whether a task that Slurm no longer has is submitted: it never was, or a machine broke its last attempt."""
        number = self.submissions[index]
        if number == 0:
            return True
        attempts = attempts_at(self.folder, self.work.tasks[index])
        return seen and number < TRIES and bool(attempts) and _machine_broke(attempts[-1])

    def _submit(self, missing: Sequence[int]) -> None:
        for words, indices in sbatch_commands(self.folder, self.work, self.options, missing):
            job = _slurm(*words).partition(";")[0].strip()
            self.submissions.update(indices)
            repeated = sum(self.submissions[index] > 1 for index in indices)
            again = f", {repeated} of them again" if repeated else ""
            self._show(f"job {job}: {plural(len(indices), 'shard')} submitted{again}")

    def _jobs(self) -> dict[int, QueuedTask]:
        """Return the tasks that Slurm still has, without those that would wait for ever: these are cancelled."""
        listed = _slurm("squeue", "--noheader", "--array", f"--name={job_name(self.folder)}", "--format=%i|%K|%T|%r")
        jobs = {}
        for line in listed.splitlines():
            name, index, state, reason = (part.strip() for part in line.split("|", 3))
            if state == "PENDING" and reason.strip("()") in STUCK:
                _slurm("scancel", name)
            elif index.isdecimal():
                jobs[int(index)] = QueuedTask(name, state, reason)
        return jobs

    def _progress(self, jobs: dict[int, QueuedTask], open_tasks: Sequence[int], first_done: int, began: float) -> None:
        total = len(self.work.tasks)
        running = sum(job.state != "PENDING" for job in jobs.values())
        waiting = len(jobs) - running
        done = total - len(open_tasks)
        about = ""
        if open_tasks and done > first_done:
            seconds = (self.clock() - began) / (done - first_done) * len(open_tasks)
            about = f"; about {duration_text(seconds)} left"
        state = f"{done} of {plural(total, 'shard')} done, {running} running, {waiting} waiting"
        if state != self._last_line:
            self._last_line = state
            self.show(state + about)

    def _show(self, text: str) -> None:
        if text != self._last_line:
            self._last_line = text
            self.show(text)

    def _pause(self, began: float) -> float:
        return min(SLOWEST_POLL, 1.0 + (self.clock() - began) / 60)


def _machine_broke(attempt: Attempt) -> bool:
    """Whether an attempt ended because of its machine: without a word, unfit, or killed; not if it was told to end."""
    status = attempt.status
    # 0: killed between its last record and its publication
    return not attempt.told and (status is None or status == 0 or status in UNFIT or status > 128)


def _slurm(*words: str) -> str:
    """Run a command of Slurm and return what it prints; raises EnvironmentUnfitError, in one line, if it fails."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=COMMAND_SECONDS,
        )
    except FileNotFoundError:
        raise EnvironmentUnfitError(f"{words[0]} is not on PATH: run this on a machine of a Slurm cluster") from None
    except subprocess.TimeoutExpired:
        raise EnvironmentUnfitError(f"{words[0]} does not answer within {COMMAND_SECONDS:.0f} s") from None
    if done.returncode != 0:
        message = shorten(done.stderr or f"exit status {done.returncode}", 300)
        raise EnvironmentUnfitError(f"{words[0]} failed: {message}")
    return done.stdout
