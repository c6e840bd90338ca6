"""Runs many cells of one case in a child of the pool: each in a fork of its own, so that no defect touches another."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import torch

from recapture.cases.case import CASES_ATTRIBUTE, Case
from recapture.cases.collection import execute
from recapture.cases.compilers import compilers_of
from recapture.pool.protocol import task_name
from recapture.run.cell import CellSpec, examine

Condition = dict[str, dict[str, float]]
"""What `condition.condition` returns."""

T = TypeVar("T")

CRASHED = "crash"
"""Verdict of a cell whose process died."""


class Group(msgspec.Struct, frozen=True):
    """Cells of one case: compilers, each with the file that declares it (None for the built-in ones).

    Every compiler is tried `repetitions` times; `turn` tells apart groups that are the same otherwise. `planted` says
    that the compilers plant defects, so that the condition of the case must be known.
    """

    suite: str
    path: str
    case: str
    compilers: tuple[tuple[str, str | None], ...]
    device: str
    planted: bool
    repetitions: int = 1
    turn: int = 0

    @property
    def dynamo(self) -> bool:
        """Whether a built-in compiler is among them, which needs Dynamo."""
        return any(file is None for _, file in self.compilers)

    @property
    def key(self) -> tuple[str, str, str, tuple[tuple[str, str | None], ...], int]:
        """The identity of the group, for the driver."""
        return (self.suite, self.case, self.device, self.compilers, self.turn)


class Outcome(msgspec.Struct, frozen=True):
    """One cell: its verdict, what the judge found, and where the defect was planted."""

    case: str
    compiler: str
    verdict: str
    differences: tuple[tuple[str, str, str], ...] = ()
    """Input, kind and detail of each silent difference."""
    noted: tuple[tuple[str, str, str], ...] = ()
    """The same of each difference that does not decide the verdict."""
    error: str = ""
    strict: tuple[str, ...] = ()
    """What the case asks to be judged strictly."""
    planted: tuple[str, ...] = ()
    """One entry for every call, or capture, in which the defect was planted."""

    @property
    def cell(self) -> str:
        """The address of the cell, without the device."""
        return f"{self.case}::{self.compiler}"


def group(payload: bytes, _enter: Callable[[str], None]) -> bytes:
    """Run the cells of a group: `Group` → a list of `Outcome`."""
    job = msgspec.json.decode(payload, type=Group)
    device, compilers = job.device, job.compilers
    condition: Condition = {}
    if job.planted:
        condition = _forked(lambda: _condition(job), Condition, device) or {}
        possible = _forked(lambda: _possible(job, condition), list[str], device)
        compilers = tuple(named for named in compilers if possible is None or named[0] in possible)
    outcomes = []
    for name, file in compilers:
        processes, each = (job.repetitions, 1) if job.dynamo else (1, job.repetitions)
        for _ in range(processes):  # Dynamo keeps what it compiled before, and recorded cells have a process each
            cells = _forked(lambda: _cells(job, name, file, condition, each), list[Outcome], device)  # noqa: B023
            outcomes += cells or [Outcome(f"{job.suite}::{job.case}", name, CRASHED)]
    return msgspec.json.encode(outcomes)


def _load(job: Group) -> Case:
    cases: list[Case] = getattr(execute(job.suite, Path(job.path)), CASES_ATTRIBUTE)
    return next(case for case in cases if case.name == job.case)


def _tell(case: Case) -> None:
    """Tell the defects what the judge compares in a case."""
    from benchmarks.judge import planting

    planting.BACKWARD[:] = [case.backward is not False]
    planting.ASKED.clear()
    planting.ASKED.update(case.strict)


def _condition(job: Group) -> Condition:
    from benchmarks.judge.condition import condition

    return condition(lambda: _load(job), job.device)


def _possible(job: Group, condition: Condition) -> list[str]:
    """Return the compilers that plant something in a trial without the judge, which is much faster than a cell."""
    from benchmarks.judge import planting
    from benchmarks.judge.condition import calls, unchanged_settings

    planting.CONDITION.update(condition)
    _tell(_load(job))
    names = []
    files = {file: compilers_of(execute(Path(file).stem, Path(file))) for _, file in job.compilers if file}
    for name, file in ((name, file) for name, file in job.compilers if file is not None):
        planting.PLANTED.clear()
        with unchanged_settings(), contextlib.suppress(BaseException):
            for _ in calls(_load(job), job.device, capture=files[file][name].function):
                pass
        if planting.PLANTED:
            names.append(name)
    return names


def _cells(job: Group, name: str, file: str | None, condition: Condition, repetitions: int) -> list[Outcome]:
    from benchmarks.judge import planting

    planting.CONDITION.update(condition)
    how = (None, None) if file is None else (Path(file).stem, file)
    spec = CellSpec(job.suite, job.path, job.case, name, job.device, *how)
    case = _load(job)
    _tell(case)
    outcomes = []
    for _ in range(repetitions):
        planting.PLANTED.clear()
        findings = examine(spec, lambda _: None)
        outcomes.append(
            Outcome(
                case=f"{job.suite}::{job.case}",
                compiler=name,
                verdict=str(findings.verdict),
                differences=tuple(
                    (difference.input, difference.kind, f"{difference.where}: {difference.detail}")
                    for difference in findings.differences
                ),
                noted=tuple(
                    (difference.input, difference.kind, f"{difference.where}: {difference.detail}")
                    for difference in findings.noted
                ),
                error=findings.error.type if findings.error else findings.reason or "",
                strict=tuple(case.strict),
                planted=tuple(planting.PLANTED),
            )
        )
    return outcomes


def _forked(work: Callable[[], T], kind: type[T], device: str) -> T | None:
    """Return the result of `work`, done in a forked process; None if that process dies.

    On a GPU, every process would have to make a context of its own, so the work is done in this one. Raises
    RuntimeError if `work` raises, because the judge reports what a case raises.
    """
    if device != "cpu":
        return work()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            torch.set_num_threads(1)  # makes the pool of threads anew; two threads that do so at once abort
            text = b"+" + msgspec.msgpack.encode(work())  # JSON has no infinity
        except BaseException:  # shown by the parent
            text = b"-" + traceback.format_exc().encode(errors="replace")
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(text)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    if text.startswith(b"-"):
        raise RuntimeError(text[1:].decode())
    return msgspec.msgpack.decode(text[1:], type=kind) if text else None


GROUP = task_name(group)
