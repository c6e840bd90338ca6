"""One cell, inside its own process: loads the case and the compiler from their files, runs them, reports findings."""

from __future__ import annotations

import dataclasses
import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from recapture.base.scrub import encodable, fingerprint, scrub
from recapture.base.text import one_line, shorten
from recapture.cases.case import CASES_ATTRIBUTE, Case
from recapture.cases.collection import execute, executed
from recapture.cases.compilers import builtin_compilers, compilers_of
from recapture.cases.requirements import unmet
from recapture.judge.observe import Raised, describe_raised
from recapture.judge.recorded_output import add_to_log
from recapture.judge.steps import carry_out
from recapture.judge.verdict import CellEvents, Failure, Ruling, decide
from recapture.records.cell_facts import CellFacts
from recapture.records.difference import Difference
from recapture.records.eager_calls import EagerCall
from recapture.records.record import CellKey, ErrorInfo, Phase
from recapture.records.verdicts import Verdict
from recapture.torch_api.stages import redirected

if TYPE_CHECKING:
    from collections.abc import Callable

    from recapture.cases.compiler import Compiler

EXAMINE = f"{__name__}:examine"
"""The name of `examine`, which runs a cell unless its plan names another function."""

MOST_DIFFERENCES = 200
"""Differences that a record has at most, so that it stays below the size that readers accept. A large model may have a
different gradient for each of its parameters on each of its inputs."""

MOST_REFUSAL = 178
"""Characters of the error in a note about an input that a compiler refuses; the sentence is then 200 long."""


class Variation(msgspec.Struct, frozen=True):
    """What a child changes before it runs a cell.

    `backend` replaces that of `torch.compile` or, as ``exported`` or ``decomposed``, what AOTInductor does. `settings`
    are values by module and dotted name, `arguments` those of `torch.compile` and `torch.export.export`, and
    `variables` those of the environment.
    """

    backend: str | None = None
    settings: dict[str, dict[str, Any]] = {}
    arguments: dict[str, Any] = {}
    variables: dict[str, str] = {}


class CellSpec(msgspec.Struct, frozen=True):
    """Everything a child needs to run one cell.

    `compiler_file` is the suite file of a user's own compiler, `varied` what is changed to find the guilty stage.
    `examiner` names the function that runs the cell as `examine` does; a tool may have one that records more.
    `artifacts` is a folder for it, which receives graphs and generated code for a person to read.
    """

    suite: str
    path: str
    case: str
    compiler: str
    device: str
    compiler_suite: str | None = None
    compiler_file: str | None = None
    varied: Variation | None = None
    examiner: str = EXAMINE
    artifacts: str | None = None

    @property
    def key(self) -> CellKey:
        """The key that identifies the cell among a directory's records."""
        return CellKey(f"{self.suite}::{self.case}", self.compiler, self.device)

    @property
    def address(self) -> str:
        """The cell as written on the command line."""
        return f"{self.suite}::{self.case}::{self.compiler}"


class CellResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a child reports about its cell; the host adds claims and hash to make a record.

    A record has neither `facts` nor `eager`, digests of what eager gave, which have a file of their own.
    """

    verdict: Verdict
    phase: Phase | None = None
    input: str | None = None
    error: ErrorInfo | None = None
    reason: str | None = None
    differences: tuple[Difference, ...] = ()
    noted: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    graphs: int | None = None
    graph_breaks: int | None = None
    recompiles: int | None = None
    break_reasons: tuple[str, ...] = ()
    explanation: tuple[str, ...] = ()
    facts: CellFacts | None = None
    eager: tuple[EagerCall, ...] = ()


def examine(spec: CellSpec, enter: Callable[[str], None]) -> CellResult:
    """Run one cell in this process; `enter` is called at the start of each phase, to show where a crash happened."""
    ruling, events = rule(spec, enter)
    return result_of(ruling, events)


def rule(
    spec: CellSpec, enter: Callable[[str], None], watched: Callable[[Compiler], Compiler] = lambda compiler: compiler
) -> tuple[Ruling, CellEvents]:
    """Run one cell and decide it; `watched` may replace its compiler by one that is observed."""
    enter("reference")
    events = _try(spec, enter, watched)
    ruling = decide(events)
    if ruling is None:
        raise RuntimeError("a cell whose steps were carried out has a verdict")
    if ruling.raised is not None:
        add_to_log(sys.stderr, f"{ruling.raised.traceback}\n")
    return ruling, events


def _try(spec: CellSpec, enter: Callable[[str], None], watched: Callable[[Compiler], Compiler]) -> CellEvents:
    case = _load(spec)
    compiler = compiler_of(spec)
    if spec.varied is not None:
        compiler = varied(compiler, spec.varied)
    compiler = watched(compiler)
    try:
        missing = _not_applicable(case, compiler, spec.device)
    except Exception as error:  # raised by the compiler's own `unavailable`
        return CellEvents(failure=Failure("capture", None, describe_raised(error)))
    if missing is not None:
        return CellEvents(not_applicable=missing)
    return carry_out(lambda: _load(spec), compiler, spec.device, enter)


def varied(compiler: Compiler, how: Variation) -> Compiler:
    """Return a compiler that captures in the varied way."""

    @functools.wraps(compiler.function)
    def capture(*args: Any, **kwargs: Any) -> Any:
        with redirected(how.backend, how.settings, how.arguments, how.variables):
            return compiler.function(*args, **kwargs)

    return dataclasses.replace(compiler, function=capture)


def _load(spec: CellSpec) -> Case:
    module = execute(spec.suite, Path(spec.path))
    cases: list[Case] = getattr(module, CASES_ATTRIBUTE)
    return next(case for case in cases if case.name == spec.case)


def compiler_of(spec: CellSpec) -> Compiler:
    """Return the compiler of a cell, from its file.

    One that the case's own file declares is of the same execution as the case that it captures: its classes and globals
    are those that eager uses.
    """
    if spec.compiler_file is None or spec.compiler_suite is None:
        return builtin_compilers()[spec.compiler]
    if (spec.compiler_suite, spec.compiler_file) != (spec.suite, spec.path):
        return compilers_of(execute(f"compilers_of_{spec.compiler_suite}", Path(spec.compiler_file)))[spec.compiler]
    compiler = compilers_of(execute(spec.suite, Path(spec.path)))[spec.compiler]

    @functools.wraps(compiler.function)
    def capture(fn: Any, *args: Any, **kwargs: Any) -> Any:
        return compilers_of(executed(spec.suite))[spec.compiler].function(fn, *args, **kwargs)

    return dataclasses.replace(compiler, function=capture)


def _not_applicable(case: Case, compiler: Compiler, device: str) -> str | None:
    lacking = unmet("the case", case.since, case.requires) or unmet(compiler.name, compiler.since, compiler.requires)
    if lacking is not None:
        return lacking
    if compiler.generates_code and case.codegen_on is not None and device not in case.codegen_on:
        return f"the case generates code on {', '.join(case.codegen_on)} alone"
    reason = compiler.unavailable() if compiler.unavailable is not None else None
    return None if reason is None else encodable(reason)


def result_of(ruling: Ruling, events: CellEvents) -> CellResult:
    """Return the ruling in recorded form: texts without addresses and paths, and the counts of the capture."""
    log = events.log
    differences, left_out = _most_important(ruling.differences, ruling.input)
    noted, notes_left_out = _most_important(ruling.noted, None)
    notes = [*events.warnings] if events.calls is not None else []
    if left_out or notes_left_out:
        notes.append(f"{left_out + notes_left_out} more differences are left out")
    return CellResult(
        verdict=ruling.verdict,
        phase=ruling.phase,
        input=ruling.input,
        error=None if ruling.raised is None else _error(ruling.raised),
        reason=ruling.reason,
        differences=differences,
        noted=(*noted, *map(_refusal, ruling.refusals)),
        notes=tuple(notes),
        graphs=None if log is None else log.graphs,
        graph_breaks=None if log is None else log.graph_breaks,
        recompiles=None if log is None else log.recompiles,
        eager=events.eager,
        break_reasons=() if log is None else tuple(dict.fromkeys(scrub(reason) for reason in log.break_reasons)),
    )


def _most_important(differences: tuple[Difference, ...], shown_by: str | None) -> tuple[tuple[Difference, ...], int]:
    """Return at most MOST_DIFFERENCES, one on the input that the record names among them, and how many are left out."""
    most = differences[:MOST_DIFFERENCES]
    if len(most) < len(differences) and shown_by is not None and all(item.input != shown_by for item in most):
        named = next((item for item in differences if item.input == shown_by), most[-1])
        most = (*most[:-1], named)
    return most, len(differences) - len(most)


def _refusal(failure: Failure) -> Difference:
    text = f"{failure.raised.type}: {scrub(failure.raised.message)}"
    return Difference(
        str(failure.input), "call", "exception", unlike="rank", other=shorten(encodable(one_line(text)), MOST_REFUSAL)
    )


def _error(raised: Raised) -> ErrorInfo:
    return ErrorInfo(
        type=raised.type, message=scrub(raised.message), fingerprint=fingerprint(raised.type, raised.message)
    )
