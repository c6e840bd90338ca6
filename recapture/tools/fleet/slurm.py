"""Runs the tasks of a folder as Slurm arrays: submits what is missing, waits, and submits again what a machine broke.

No state is kept beside the files that attempts write: a submitter that was killed and starts again finds its jobs by
their name, and what they published in the folder. Slurm's own account of how a job ended is never read; it only says
which jobs are still there.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from recapture.base.errors import EnvironmentUnfitError
from recapture.base.files import write_atomically
from recapture.base.text import duration_text, plural, shorten
from recapture.tools.fleet.folder import attempts_of, published
from recapture.tools.fleet.slurm_script import TRIES, array_scripts, job_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from recapture.tools.fleet.folder import Attempt
    from recapture.tools.fleet.slurm_script import SlurmOptions
    from recapture.tools.fleet.work import MatrixWork

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
    _said: str = ""

    def run(self) -> None:
        """Submit and wait until every task has published or is given up; raises EnvironmentUnfitError without Slurm.

        If this is interrupted, the jobs go on.
        """
        scripts = write_scripts(self.folder, self.work, self.options)
        began = answered = self.clock()
        first_done = sum(published(self.folder, task) for task in self.work.tasks)
        gone_before: set[int] = set()
        while True:
            try:
                jobs = self._jobs()
                answered = self.clock()
            except EnvironmentUnfitError as error:
                if not self.submissions or self.clock() - answered > AWAY_SECONDS:
                    raise
                self._say(f"{error}: waiting for it")
                self.sleep(self._pause(began))
                continue
            open_tasks = [index for index, task in enumerate(self.work.tasks) if not published(self.folder, task)]
            gone = {index for index in open_tasks if index not in jobs}
            # Seen twice: a rename on another machine may take a moment to be seen here.
            wanted = [index for index in sorted(gone) if self._runs_again(index, seen=index in gone_before)]
            if wanted:
                self._submit(scripts, wanted)
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
        attempts = attempts_of(self.folder, self.work.tasks[index])
        return seen and number < TRIES and bool(attempts) and _machine_broke(_latest(attempts))

    def _submit(self, scripts: dict[str, list[int]], wanted: Sequence[int]) -> None:
        for name, indices in scripts.items():
            mine = [index for index in indices if index in wanted]
            if not mine:
                continue
            at_once = f"%{self.options.at_once}" if self.options.at_once else ""
            array = f"--array={','.join(map(str, mine))}{at_once}"
            job = _slurm("sbatch", "--parsable", array, str(self.folder / name)).partition(";")[0].strip()
            self.submissions.update(mine)
            again = sum(self.submissions[index] > 1 for index in mine)
            said = f", {again} of them again" if again else ""
            self._say(f"job {job}: {plural(len(mine), 'shard')} submitted{said}")

    def _jobs(self) -> dict[int, QueuedTask]:
        """Return the tasks that Slurm still has, without those that would wait for ever: these are cancelled."""
        listed = _slurm("squeue", "--noheader", "--array", f"--name={job_name(self.folder)}", "--format=%i|%K|%T|%r")
        found = {}
        for line in listed.splitlines():
            name, index, state, reason = (part.strip() for part in line.split("|", 3))
            if state == "PENDING" and reason.strip("()") in STUCK:
                _slurm("scancel", name)
            elif index.isdecimal():
                found[int(index)] = QueuedTask(name, state, reason)
        return found

    def _progress(self, jobs: dict[int, QueuedTask], left: Sequence[int], first_done: int, began: float) -> None:
        total = len(self.work.tasks)
        running = sum(job.state != "PENDING" for job in jobs.values())
        waiting = len(jobs) - running
        done = total - len(left)
        about = ""
        if left and done > first_done:
            seconds = (self.clock() - began) / (done - first_done) * len(left)
            about = f"; about {duration_text(seconds)} left"
        state = f"{done} of {plural(total, 'shard')} done, {running} running, {waiting} waiting"
        if state != self._said:
            self._said = state
            self.show(state + about)

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self.show(text)

    def _pause(self, began: float) -> float:
        return min(SLOWEST_POLL, 1.0 + (self.clock() - began) / 60)


def write_scripts(folder: Path, work: MatrixWork, options: SlurmOptions) -> dict[str, list[int]]:
    """Write the scripts into the folder; return the indices of the tasks of each, by its file name."""
    scripts = array_scripts(folder, work, options)
    for name, (text, _) in scripts.items():
        write_atomically(folder / name, text.encode())
    return {name: indices for name, (_, indices) in scripts.items()}


def _latest(attempts: Sequence[Attempt]) -> Attempt:
    """Return the attempt of the newest job, by the number of the job and of its restart."""

    def order(attempt: Attempt) -> tuple[int, ...]:
        return tuple(int(part) for part in attempt.name.replace("_", ".").split(".") if part.isdecimal())

    return max(attempts, key=order)


def _machine_broke(attempt: Attempt) -> bool:
    """Whether an attempt ended because of its machine: without a word, unfit, or killed; not if it was told to end."""
    status = attempt.status
    return not attempt.told and (status is None or status in UNFIT or status > 128)


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
        said = shorten(done.stderr or f"exit status {done.returncode}", 300)
        raise EnvironmentUnfitError(f"{words[0]} failed: {said}")
    return done.stdout
