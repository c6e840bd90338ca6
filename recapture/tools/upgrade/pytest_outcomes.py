"""A pytest plugin that writes the outcome of each test to a file as soon as it is known.

It is copied into a folder of its own and runs in the environment of a release, so that it needs pytest 7 or newer and
nothing else. ``RECAPTURE_OUTCOMES`` is the file. ``RECAPTURE_SELECT`` is a JSON file ``{"only": …, "without": […]}`` of
test ids: those to run alone, or null for all, and those to leave out. Both names, and the options for this pytest, are
taken out of the environment again: a test may itself run pytest. Every line of the outcomes is one JSON object; its
first key says what it is about:

- ``prefix``: the folder of the Python that runs pytest, as ``sys.prefix`` has it
- ``collected``: ids of the tests that the command asked for, also those that the selection leaves out
- ``start``: the id of a test that begins
- ``test``: the id of a test that ended, with its outcome and seconds, and its failure
- ``uncollected``: the id of a file or class that could not be collected, with its failure
- ``warning``: the category, message and file of a warning about something deprecated
- ``finish``: the exit status of pytest, after the last test; ``interrupted`` if code under test ended pytest, as by
  ``pytest.exit``, Ctrl-C or what pytest itself cannot handle
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTCOMES, SELECT = "RECAPTURE_OUTCOMES", "RECAPTURE_SELECT"

OPTIONS = "--continue-on-collection-errors --maxfail=0"
"""What ``PYTEST_ADDOPTS`` ends with: a file that cannot be imported, or a failure where the project's own settings have
``-x``, would otherwise keep every other test from running. What is typed counts more."""

LONGEST = 20_000
"""Characters of the longest message that is written."""

MOST_FRAMES = 60
"""Frames of a failure that are written, the innermost ones."""

IDS_A_LINE = 500
"""Test ids in one line of the file."""

CANNOT_WRITE = 74
"""Exit status of pytest where the outcomes cannot be written, as EX_IOERR of sysexits.h."""

INTERNAL_ERROR = 3
"""Exit status of pytest where it or a plugin failed: a test that was running is to blame."""

_encode = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would make an encoder for each line

_DEPRECATIONS = (DeprecationWarning, PendingDeprecationWarning, FutureWarning)


def failure_of(excinfo: Any) -> dict[str, Any]:
    """Return the facts about an exception that pytest caught: its type, message, and frames, the outermost first."""
    error = excinfo.value
    if type(error).__name__ == "CollectError" and error.__cause__ is not None:
        error = error.__cause__  # pytest's own says only that a file cannot be imported
    try:
        message = str(error)
    except Exception as broken:  # of the user's own class
        message = f"its message raises {type(broken).__name__}"
    frames = [
        (frame.f_code.co_filename, frame.f_code.co_name, line) for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    kind = type(error)
    prefix = "" if kind.__module__ in ("builtins", "_pytest.outcomes") else f"{kind.__module__}."
    return {"type": f"{prefix}{kind.__qualname__}", "message": message[:LONGEST], "frames": frames[-MOST_FRAMES:]}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Iterator[None]:  # noqa: ARG001 - the hook has these arguments
    """Note the failure in the report, which also reaches the main process from a worker of xdist."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.outcome == "failed" and call.excinfo is not None:
        report.recapture_failure = failure_of(call.excinfo)


def pytest_exception_interact(node: Any, call: Any, report: Any) -> None:  # noqa: ARG001 - as above
    """Note why a file cannot be collected: its report has no exception."""
    if call.excinfo is not None and not hasattr(report, "recapture_failure"):
        report.recapture_failure = failure_of(call.excinfo)


@pytest.hookimpl(trylast=True)  # a conftest may start pytest anew here, which then needs the environment
def pytest_configure(config: Any) -> None:
    """Write outcomes from the main process; a worker of xdist sends it its reports."""
    worker = getattr(config, "workerinput", {}).get("workerid", "")
    path, select = os.environ.get(OUTCOMES), os.environ.get(SELECT, "")
    if worker or getattr(config.option, "dist", "no") == "no":  # else xdist starts its workers with it
        taken = _leave_environment()
        config.add_cleanup(lambda: os.environ.update(taken))  # a program may call pytest once more
    if path and not config.pluginmanager.has_plugin("recapture outcomes"):
        config.pluginmanager.register(_Selection(path, select, writes=worker in ("", "gw0")), "recapture selection")
        if not worker:
            config.pluginmanager.register(_Outcomes(path), "recapture outcomes")


def _leave_environment() -> dict[str, str]:
    """Take what is for this pytest alone out of the environment that its tests see; return what this changed."""
    names = (OUTCOMES, SELECT, "PYTEST_PLUGINS", "PYTEST_ADDOPTS")
    before = {name: os.environ[name] for name in names if name in os.environ}
    for name, value in before.items():
        own = {"PYTEST_PLUGINS": __name__, "PYTEST_ADDOPTS": OPTIONS}.get(name, value)
        if value.endswith(own):
            os.environ[name] = value[: -len(own)].rstrip(", ")
        if not os.environ[name]:
            del os.environ[name]
    return before


def _written(text: str) -> str:
    """Return a text as the file has it: half of a surrogate pair, which is no text in any file, is a question mark."""
    return text if text.isascii() else text.encode(errors="replace").decode()


class _File:
    """The file of outcomes; what a fork of this process would write is left out."""

    def __init__(self, path: str) -> None:
        self._process, self._path = os.getpid(), path
        self._open()
        size = os.fstat(self._handle).st_size
        if size and os.pread(self._handle, 1, size - 1) != b"\n":  # a killed process left half a line
            self._append(b"\n")

    def write(self, **fields: Any) -> None:
        """Append one line, or end pytest: no further outcome could be kept."""
        if os.getpid() == self._process:
            self._append(_written(_encode(fields)).encode() + b"\n")

    def _open(self) -> None:
        self._handle = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._identity = _identity(self._handle)

    def _append(self, line: bytes) -> None:
        try:
            if _identity(self._handle) != self._identity:  # a test closed it, and another file may have its number
                self._open()
            if os.write(self._handle, line) < len(line):
                raise OSError("no space left on device")
        except OSError as error:
            pytest.exit(f"recapture: the outcomes cannot be written: {error}", returncode=CANNOT_WRITE)


def _identity(handle: int) -> tuple[int, int]:
    """Return which file a descriptor is of; zeros if it is closed."""
    try:
        facts = os.fstat(handle)
    except OSError:
        return 0, 0
    return facts.st_dev, facts.st_ino


class _Selection:
    """Notes which tests were asked for, and leaves out those that need not run."""

    def __init__(self, path: str, select: str, *, writes: bool) -> None:
        self._file = _File(path) if writes else None
        self._select = select

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        ids = [item.nodeid for item in items]
        for place in range(0, len(ids), IDS_A_LINE):
            if self._file is not None:
                self._file.write(collected=ids[place : place + IDS_A_LINE])
        if not self._select:
            return
        with open(self._select, encoding="utf-8") as file:  # noqa: PTH123 - as old releases of Python read it fastest
            choice = json.load(file)
        only = None if choice["only"] is None else frozenset(choice["only"])
        without = frozenset(choice["without"])
        chosen = [
            item for item in items if (name := _written(item.nodeid)) not in without and (only is None or name in only)
        ]
        if len(chosen) < len(items):
            names = {id(item) for item in chosen}
            config.hook.pytest_deselected(items=[item for item in items if id(item) not in names])
            items[:] = chosen


class _Outcomes:
    """Writes what becomes of each test."""

    def __init__(self, path: str) -> None:
        self._file = _File(path)
        self._file.write(prefix=sys.prefix)
        self._reports: dict[str, list[Any]] = {}
        self._warnings: set[tuple[str, str, str]] = set()
        self._interrupted = False

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._file.write(start=nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.outcome == "rerun":  # a plugin repeats it: only the last attempt counts
            self._reports.pop(report.nodeid, None)
        elif report.when == "???":  # a worker of xdist died
            failure = {"type": "died", "message": str(report.longrepr)[:LONGEST], "frames": []}
            self._file.write(test=report.nodeid, outcome="died", seconds=0.0, failure=failure)
        else:
            self._reports.setdefault(report.nodeid, []).append(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        reports = self._reports.pop(nodeid, [])
        if reports:
            seconds = round(sum(report.duration for report in reports), 4)
            self._file.write(test=nodeid, outcome=_outcome(reports), seconds=seconds, failure=_failure(reports))

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome == "failed":
            self._file.write(uncollected=report.nodeid or ".", failure=_failure([report]))

    def pytest_warning_recorded(self, warning_message: Any) -> None:
        category, text = warning_message.category, str(warning_message.message)[:LONGEST]
        if issubclass(category, _DEPRECATIONS) or "deprecat" in text.lower():
            row = (category.__name__, text, str(warning_message.filename))
            if row not in self._warnings:
                self._warnings.add(row)
                self._file.write(warning=row[0], message=row[1], file=row[2])

    def pytest_keyboard_interrupt(self, excinfo: Any) -> None:
        # pytest's own Interrupted is that of --maxfail, which the user asked for.
        self._interrupted = type(excinfo.value).__name__ != "Interrupted"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: Any) -> None:
        interrupted = self._interrupted or int(exitstatus) == INTERNAL_ERROR
        self._file.write(finish=int(exitstatus), interrupted=interrupted)


def _outcome(reports: list[Any]) -> str:
    """Return how a test ended, of the reports of its set-up, its call and what follows."""
    failed = [report for report in reports if report.outcome == "failed"]
    if failed:
        return "failed" if any(report.when == "call" for report in failed) else "error"
    expected = any(hasattr(report, "wasxfail") for report in reports)
    if any(report.outcome == "skipped" for report in reports):
        return "xfailed" if expected else "skipped"
    return "xpassed" if expected else "passed"


def _failure(reports: list[Any]) -> dict[str, Any] | None:
    for report in reports:
        if report.outcome == "failed":
            # A strict xfail that passes fails without an exception.
            unnamed = {"type": "failure", "message": str(report.longrepr)[:LONGEST], "frames": []}
            facts: dict[str, Any] = getattr(report, "recapture_failure", unnamed)
            return facts
    return None
