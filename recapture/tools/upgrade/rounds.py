"""Runs a command once in one environment, until each of its tests has an outcome; a later call continues it.

A round is a folder: the outcomes as they arrive, the output of the command, and a summary once it is complete. pytest
runs again for the tests that are left where it died or hung, and where this process was killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.files import read_regular, write_atomically
from recapture.base.paths import module_file
from recapture.base.scrub import scrub, without_secrets
from recapture.base.text import shorten
from recapture.images.command_container import CommandContainer
from recapture.images.interpreter import Interpreter
from recapture.tools.upgrade.compile_counts import CompileCounts, Count, read_counts
from recapture.tools.upgrade.outcomes import COMMAND, NOT_RUN, OutcomeFile, TestOutcome, Warned, failure
from recapture.tools.upgrade.started import start

OUTCOMES_VARIABLE, SELECT_VARIABLE, CANNOT_WRITE = "RECAPTURE_OUTCOMES", "RECAPTURE_SELECT", 74
"""The names and the exit status of `pytest_outcomes`, which is not imported, because it needs pytest."""

PYTEST_OPTIONS = "--continue-on-collection-errors --maxfail=0"
"""What pytest's options end with, as `pytest_outcomes` says."""

COUNTS_VARIABLE, COUNT_VARIABLE = "RECAPTURE_COUNTS", "RECAPTURE_COUNT"
"""The names of `process_counts`, which is not imported, because it is Python's own ``sitecustomize``."""

MOST_DEATHS = 25
"""Times that pytest may die in one round before the tests that are left count as not run."""

STARTS = 2
"""Times that a test begins before it is blamed for the end of this process: the first may be the user's Ctrl-C."""

POLL_SECONDS = 0.2
"""Seconds between two looks at the outcomes of a running command."""

TAIL = 1 << 16
"""Bytes at the end of a command's output that are read."""

TAIL_LINES = 12
"""Lines at the end of a command's output that stand for its failure."""

KEY = "key"
"""The file of a round that names what decides its outcomes."""

DISCARDED = "discarded"
"""The key of a round that says nothing about one state of the code."""

_OUTCOMES, _OUTPUT, _SUMMARY, _SELECT = "outcomes.jsonl", "output.txt", "summary.json", "select.json"
_MEMORY, _COUNTS, _COUNTING = "memory", "counts.jsonl", "counting"

_HUNG = "no answer within the time of --timeout"

_NO_CONTAINER = 125
"""Exit status of the docker command where it could not start a container; the command itself may have it, too."""

_REASON = 300
"""Characters of the reason why a container did not start."""

_NO_TESTS = 5
"""Exit status of pytest where no test was left to run."""


class RoundResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one round says: an outcome for each planned test and for the command, in the order of their ids.

    `planned` is the number of tests that were to run, with the files that cannot be collected and the command itself.
    `memory` are the bytes of its largest process, 0 if that is not known.
    `unlike` are tests with two outcomes in this round. `deaths` is how often the command died before its end, and
    `status` its last exit status. `counts` are there if they were asked for.
    """

    tests: tuple[TestOutcome, ...]
    planned: int = 0
    warnings: tuple[Warned, ...] = ()
    unlike: tuple[str, ...] = ()
    status: int = 0
    seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    memory: int = 0
    deaths: int = 0
    counts: CompileCounts | None = None
    prefix: str = ""
    """The folder of the Python that ran pytest, as `sys.prefix` has it; empty if no pytest ran."""


class _End(NamedTuple):
    """How an attempt ended: the exit status (128 and more: a signal), and whether it stood still and was killed."""

    status: int
    hung: bool


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round of a command: `folder` is its own, `words` the command, `root` the folder in which it runs.

    A command from which nothing new was heard for `timeout` seconds is killed. `key` names what decides the outcomes: a
    round that was begun with another key begins anew. `only` are the tests to run, None for all, and `count`
    is what is counted in the command's processes.
    """

    folder: Path
    words: Sequence[str]
    root: Path
    timeout: float
    key: str
    only: Collection[str] | None = None
    count: tuple[Count, ...] = ()

    def result(self) -> RoundResult | None:
        """Return the result of a complete round; None if it was not run to its end."""
        try:
            if (self.folder / KEY).read_text(encoding="utf-8") == self.key:
                return _RESULTS.decode(read_regular(self.folder / _SUMMARY))
        except (OSError, UsageError, ValueError):
            pass
        return None

    def run(self, interpreter: Interpreter | CommandContainer) -> RoundResult:
        """Run the round, or what is left of it. Raises EnvironmentUnfitError if outcomes cannot be written."""
        complete = self.result()
        if complete is not None:
            return complete
        self._begin()
        outcomes = OutcomeFile(self.folder / _OUTCOMES, self.root)
        outcomes.update()
        self._blame(outcomes, "the process that ran it was killed", least=STARTS)
        began, deaths = time.monotonic(), 0
        while True:
            before = len(outcomes.tests), len(outcomes.running)
            end = self._attempt(interpreter, outcomes)
            if end.status == CANNOT_WRITE and outcomes.finish is None:
                raise EnvironmentUnfitError(f"no space left in {self.folder}; finished tests are kept")
            if outcomes.finish is not None or not (outcomes.collected or outcomes.running):
                break
            deaths += 1
            kind = "timeout" if end.hung else "died"
            self._blame(outcomes, _HUNG if end.hung else _ended_by(end.status), kind)
            if deaths >= MOST_DEATHS or (len(outcomes.tests), len(outcomes.running)) == before:
                break
        result = self._closed(outcomes, end, time.monotonic() - began, deaths)
        write_atomically(self.folder / _SUMMARY, msgspec.json.encode(result))
        return result

    def rekey(self, key: str) -> None:
        """Let the round count for another `key`; with `DISCARDED` for none, so that it begins anew."""
        write_atomically(self.folder / KEY, key.encode())

    def _begin(self) -> None:
        """Make the folder, without what belongs to other code or another environment."""
        key = self.folder / KEY
        if key.is_file() and key.read_text(encoding="utf-8", errors="replace") != self.key:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(key, self.key.encode())
        if self.count:
            (self.folder / _COUNTING).mkdir(exist_ok=True)
            text = module_file("tools", "upgrade", "process_counts.py").read_bytes()
            write_atomically(self.folder / _COUNTING / "sitecustomize.py", text)
        plugin = self.folder / "plugin"
        plugin.mkdir(exist_ok=True)
        write_atomically(
            plugin / "recapture_outcomes.py", module_file("tools", "upgrade", "pytest_outcomes.py").read_bytes()
        )

    def _blame(self, outcomes: OutcomeFile, why: str, kind: str = "died", *, least: int = 1) -> None:
        """Record the tests that were running when the command died; `least` is how often they must have begun."""
        for test, starts in list(outcomes.running.items()):
            if starts >= least:
                outcomes.add(TestOutcome(test=test, outcome=kind, failure=failure(kind, why)))

    def _attempt(self, interpreter: Interpreter | CommandContainer, outcomes: OutcomeFile) -> _End:
        """Run the command for the tests without an outcome, and wait for its end."""
        outcomes.begin()
        (self.folder / _MEMORY).unlink(missing_ok=True)
        choice = {"only": None if self.only is None else sorted(self.only), "without": sorted(outcomes.tests)}
        write_atomically(self.folder / _SELECT, msgspec.json.encode(choice))
        with (self.folder / _OUTPUT).open("ab") as output:
            started = start(
                interpreter,
                self.words,
                memory=self.folder / _MEMORY,
                root=self.root,
                folder=self.folder,
                variables=self._environment(interpreter.variables),
                output=output,
            )
        process = started.process
        try:
            heard = time.monotonic()
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_SECONDS)
                if outcomes.update():
                    heard = time.monotonic()
                if time.monotonic() - heard > self.timeout:
                    return _End(128 + signal.SIGKILL, hung=True)
        finally:
            started.end()
            outcomes.update()
        status = process.returncode
        if started.container and status == _NO_CONTAINER and not (self.folder / _MEMORY).exists():
            raise EnvironmentUnfitError(f"the container did not start: {shorten(self.tail(), _REASON)}")
        return _End(status if status >= 0 else 128 - status, hung=False)

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables of the command: with them, pytest loads the plugin."""
        own = dict(variables)
        path = [str(self.folder / "plugin"), *filter(None, [own.get("PYTHONPATH")])]
        plugins = [*filter(None, [own.get("PYTEST_PLUGINS")]), "recapture_outcomes"]
        options = [*filter(None, [own.get("PYTEST_ADDOPTS")]), PYTEST_OPTIONS]
        own |= {"PYTHONPATH": os.pathsep.join(path), "PYTEST_PLUGINS": ",".join(plugins)}
        own |= {"PYTEST_ADDOPTS": " ".join(options), OUTCOMES_VARIABLE: str(self.folder / _OUTCOMES)}
        own[SELECT_VARIABLE] = str(self.folder / _SELECT)
        own.setdefault("PYTHONHASHSEED", "0")  # else the order of sets differs from run to run, and messages with it
        if self.count:
            own["PYTHONPATH"] = os.pathsep.join([str(self.folder / _COUNTING), own["PYTHONPATH"]])
            own |= {COUNTS_VARIABLE: str(self.folder / _COUNTS), COUNT_VARIABLE: ",".join(self.count)}
        return own

    def _closed(self, outcomes: OutcomeFile, end: _End, seconds: float, deaths: int) -> RoundResult:
        """Return the result: each planned test has an outcome, and so has the command."""
        tests = outcomes.tests | outcomes.uncollected
        planned = outcomes.collected if self.only is None else dict.fromkeys(self.only)
        tests |= {test: TestOutcome(test=test, outcome=NOT_RUN) for test in planned if test not in tests}
        status = end.status if outcomes.finish is None else outcomes.finish
        # A failing test or file explains pytest's own status, and is a row of its own.
        explained = any(outcome.fails for outcome in tests.values()) or (self.only is not None and status == _NO_TESTS)
        if end.hung and not tests:
            whole = failure("timeout", _HUNG)
            tests[COMMAND] = TestOutcome(test=COMMAND, outcome="timeout", seconds=seconds, failure=whole)
        elif end.status == 0 or explained:
            tests[COMMAND] = TestOutcome(test=COMMAND, outcome="passed", seconds=seconds)
        else:
            whole = failure(_ended_by(end.status), self.tail())
            tests[COMMAND] = TestOutcome(test=COMMAND, outcome="failed", seconds=seconds, failure=whole)
        return RoundResult(
            tests=tuple(tests[name] for name in sorted(tests)),
            planned=len(planned) + len(outcomes.uncollected) + 1,
            warnings=tuple(sorted(outcomes.warnings, key=lambda warned: (warned.category, warned.message))),
            unlike=tuple(sorted(outcomes.unlike)),
            status=status,
            seconds=round(seconds, 2),
            memory=self._memory(),
            deaths=deaths,
            prefix=outcomes.prefix,
            counts=read_counts(self.folder / _COUNTS, self.root) if self.count else None,
        )

    def _memory(self) -> int:
        try:
            return int((self.folder / _MEMORY).read_text(encoding="ascii"))
        except (OSError, ValueError):  # the supervisor was killed
            return 0

    def output(self) -> str:
        """Return what the command wrote, of much only the end."""
        try:
            with (self.folder / _OUTPUT).open("rb") as file:
                file.seek(max(0, (self.folder / _OUTPUT).stat().st_size - TAIL))
                return file.read().decode(errors="replace")
        except OSError:  # removed meanwhile
            return ""

    def tail(self) -> str:
        """Return the last lines that the command wrote."""
        lines = without_secrets(self.output()).strip().splitlines()  # a private key has many lines
        return "\n".join(scrub(line) for line in lines[-TAIL_LINES:] if line.strip())


_RESULTS = msgspec.json.Decoder(RoundResult)


def _ended_by(status: int) -> str:
    """Return how a command ended, in words."""
    if status > 128:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(status - 128).name}"
    return f"exit status {status}"
