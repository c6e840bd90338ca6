"""Reduces one cell: finds the fault again, chooses how to look for it cheaply, searches, and checks the result."""

from __future__ import annotations

import ast
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from recapture.base.errors import UsageError
from recapture.base.option_fields import GIB, MOST_GIB, WEEK, known_device, option
from recapture.base.text import one_line
from recapture.cases.collection import find_suites
from recapture.machine.hardware import cores
from recapture.pool.client import ServerDiedError
from recapture.pool.protocol import Ended
from recapture.pool.worker_pool import WorkerPool
from recapture.records.guilty_stage import STAGES
from recapture.records.verdicts import Verdict
from recapture.run.plan import RunOptions, plan_cells
from recapture.run.preparation import IMPORTS, collect_suites, preload_level
from recapture.tools.explain.compiler_stages import FACTS, StageFacts, StagePrefix, shortest_prefix
from recapture.tools.explain.reduce.attempt import ATTEMPT
from recapture.tools.explain.reduce.candidates import CandidateRunner, Condition, TryPlace
from recapture.tools.explain.reduce.edits import (
    definition_edits,
    deletions,
    hoists,
    inlinings,
    input_edits,
    item_drops,
    number_edits,
    parts,
    without_unused_imports,
)
from recapture.tools.explain.reduce.faults import Fault, fault_of, same_fault
from recapture.tools.explain.reduce.program import (
    Program,
    Size,
    case_program,
    copied,
    text_of,
    unbound,
    weight,
    whole_program,
)

if TYPE_CHECKING:
    from recapture.run.cell import CellResult, CellSpec

Edit = Callable[[list[ast.AST]], object]
Pass = Callable[[ast.Module, str], Iterator[Edit]]

PASSES: tuple[Pass, ...] = (
    deletions,
    input_edits,
    hoists,
    item_drops,
    definition_edits,
    parts,
    inlinings,
    number_edits,
)
"""The passes in order: runs of statements first, single numbers last."""


class Search:
    """The reduction of one program; `best` is the smallest so far, which an interruption leaves as it is.

    `advanced` is called with every smaller program.
    """

    def __init__(self, runner: CandidateRunner, program: Program, advanced: Callable[[Program], object]) -> None:
        self.runner = runner
        self.best = program
        self.finished = False
        self._advanced = advanced
        self._allowed = unbound(program.tree)

    def run(self) -> None:
        """Search until nothing helps any more, or until the time is over."""
        while True:
            before = weight(self.best.tree)
            for edits_of in PASSES:
                self._exhaust(edits_of)
                if self.runner.is_over:
                    return
            if weight(self.best.tree) == before:
                break
        # Imports do not count as nodes, so that no pass is led by them: unused ones go at the end, in one try.
        self._exhaust(lambda tree, _: iter([without_unused_imports(tree)]))
        self.finished = not self.runner.is_over

    def _exhaust(self, edits_of: Pass) -> None:
        """Apply the edits of a pass until none of them gives a smaller program; go on behind the last that did."""
        begin = 0
        while not self.runner.is_over:
            edits = list(edits_of(self.best.tree, self.best.name))
            # Edits before the last that helped failed on nearly this program: those behind it are likelier to help.
            order = [*edits[begin:], *edits[:begin]]
            success = self.runner.first(map(self._candidate, order))
            if success is None:
                return
            number, tree = success
            begin = (begin + number) % max(len(edits), 1)
            self.best = self.best._replace(tree=tree)
            self._advanced(self.best)

    def _candidate(self, edit: Edit) -> ast.Module | None:
        """Return an edited program; None if it is not smaller, not valid, or uses names that it does not have."""
        tree = copied(self.best.tree, edit)
        if tree is None:
            return None
        try:
            smaller = weight(tree) < weight(self.best.tree)
            if not smaller or not unbound(tree) <= self._allowed:
                return None
            # A tree may unparse to what is no program, such as a `return` outside a function. To see that here costs
            # far less than a try in a process.
            compile(text_of(tree), "candidate", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, TypeError, AttributeError, RecursionError):  # no program
            return None
        return tree


IMPORTED = (*IMPORTS, ATTEMPT.split(":")[0], FACTS.split(":")[0], "recapture.tools.explain.script.choice")
"""Modules that the server of a reduction imports when it starts."""

SHORTEST = 10.0
"""Seconds that a try has at least, however fast the whole case was."""

FACTS_SECONDS = 120.0
"""Seconds that it may take to find out about a compiler."""

SLOWER = 5.0
"""How many times longer than the whole case a try may take."""

Ending = Literal["finished", "time limit", "interrupted"]


@dataclass(frozen=True, kw_only=True)
class ReduceOptions:
    """How a reduction runs: `seconds` limits the search, `timeout` (seconds) and `memory` (bytes) each try."""

    device: str = option("--device", default="cpu", metavar="cpu|cuda", parse=known_device, help="Device of the cell.")
    seconds: float = option(
        "--seconds", default=120.0, metavar="S", between=(0.0, WEEK), help="Time limit of the search; the best is kept."
    )
    timeout: float = option(
        "--timeout", default=120.0, metavar="S", between=(1.0, WEEK), help="Time limit of one try, in seconds."
    )
    memory: int = option(
        "--memory", default=16 * GIB, metavar="GIB", between=(0.25, MOST_GIB), unit=GIB, help="Memory limit of one try."
    )
    jobs: int = option(
        "-j", "--jobs", default_factory=cores, between=(1, 1024), help="Tries at a time. [default: the processors]"
    )


@dataclass(frozen=True, kw_only=True)
class Reduced:
    """A reduced cell.

    `program` is the smallest program, and `result` what it shows; `before` and `after` are sizes of the case alone in
    its file. `stage` is the part of the compiler at fault, as far as its backends show it. `seconds` is the time of the
    search. `holds` says whether the cell's own compiler showed the same fault again at the
    end; None if it was not run, because the reduction was interrupted.
    """

    cell: str
    device: str
    verdict: Verdict
    fault: str
    stage: str | None
    searched_with: str
    before: Size
    after: Size
    tries: int
    seconds: float
    ending: Ending
    holds: bool | None
    program: Program
    result: CellResult

    @property
    def case(self) -> str:
        """The text of the smallest program as a case."""
        return self.program.text

    @property
    def tries_per_second(self) -> float:
        """Tries a second during the search."""
        return self.tries / self.seconds if self.seconds else 0.0


@contextlib.contextmanager
def open_reduction(address: str, options: ReduceOptions, opened: WorkerPool | None = None) -> Iterator[Reduction]:
    """Prepare the reduction of the cell ``suite::case::compiler``, in a folder that is removed at the end.

    `opened` is a pool to use instead of a new one. Raises UsageError, in one line, for a cell that does not exist.
    """
    with contextlib.ExitStack() as stack:
        pool = opened or stack.enter_context(WorkerPool(device=options.device, jobs=options.jobs, imports=IMPORTED))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="recapture-reduce-"))
        yield Reduction(pool, _cell(pool, address, options), options, Path(folder))


def _cell(pool: WorkerPool, address: str, options: ReduceOptions) -> CellSpec:
    """Return the cell at an address, and prepare the pool for it."""
    if len(address.split("::")) != 3:
        raise UsageError(f"{address!r} is not a cell: write suite::case::compiler")
    selection = find_suites((address,))
    suites = collect_suites(pool, selection.suites)
    failed = [suite for suite in suites if suite.error is not None]
    if failed:
        raise UsageError(f"suite {failed[0].name!r} cannot be collected: {failed[0].error}")
    cells = plan_cells(RunOptions(selection=selection, device=options.device), suites, failed)
    modules = sorted({module for suite in suites for module in suite.imports})
    level = preload_level(options.device, modules, {cells[0].spec.compiler}, compiles=True)
    if (pool.level, pool.modules) != (level, modules):
        pool.prepare(level, modules)
    return cells[0].spec


class Reduction:
    """The reduction of one cell on an open pool; `folder` receives the candidates."""

    def __init__(self, pool: WorkerPool, spec: CellSpec, options: ReduceOptions, folder: Path) -> None:
        self.spec = spec
        self.options = options
        place = TryPlace(spec, Path(spec.path).parent, folder)
        self.runner = CandidateRunner(
            pool, place, timeout=options.timeout, memory=options.memory, deadline=float("inf")
        )
        self.address = spec.address
        self.interruption: KeyboardInterrupt | None = None
        """What ended the search: Ctrl-C, or SIGTERM."""

    def run(self, advanced: Callable[[Program], object]) -> Reduced:
        """Reduce the cell; Ctrl-C during the search ends it with the best program so far.

        `advanced` is called with every smaller program. Raises UsageError for a cell that shows no fault.
        """
        program, result, fault = self.begin()
        stage, checks = self._checks(program, result)
        self.runner.deadline = time.monotonic() + self.options.seconds
        search = Search(self.runner, program, advanced)
        holds = None
        try:
            holds, result = self._search(search, checks, result)
            if holds is False and checks[0].backend is not None:  # what the lower backend shows is another fault
                search, holds = Search(self.runner, program, advanced), None
                checks = (Condition(fault), *(condition for condition in checks if not condition.shows))
                holds, result = self._search(search, checks, result)
        except KeyboardInterrupt as interruption:
            self.interruption = interruption
        if holds is False:
            search.best = program
        ending: Ending = "interrupted" if self.interruption else "finished" if search.finished else "time limit"
        return Reduced(
            cell=self.address,
            device=self.spec.device,
            verdict=fault.verdict,
            fault=str(fault),
            stage=stage,
            searched_with=" up to ".join(filter(None, (self.spec.compiler, checks[0].backend))),
            before=program.size,
            after=search.best.size,
            tries=self.runner.tries,
            seconds=round(self.runner.seconds, 2),
            ending=ending,
            holds=holds,
            program=search.best,
            result=result,
        )

    def begin(self) -> tuple[Program, CellResult, Fault]:
        """Return the program to begin with, and its fault. Raises UsageError if there is no fault, or none alone."""
        path, name = Path(self.spec.path), self.spec.case
        result, seconds = self.runner.run_file(self.spec.path)
        if not result.verdict.facts.reducible:
            why = f": {one_line(result.reason)}" if result.reason else ""
            raise UsageError(f"{self.address} is {result.verdict} here{why}: there is nothing to reduce")
        if result.verdict is not Verdict.TIMEOUT:
            # A candidate that takes much longer than the whole case hangs. To wait for the user's limit would cost the
            # search.
            self.runner.timeout = min(self.options.timeout, max(SHORTEST, SLOWER * seconds))
        fault = fault_of(result)
        programs = []
        with contextlib.suppress(KeyError):  # a generated case
            programs.append(case_program(path, name))
        programs.append(whole_program(path, name))
        for program in programs:
            again = self.runner.result(program.text)[0]
            if same_fault(fault, fault_of(again)):
                return program, again, fault_of(again)
        raise UsageError(
            f"{self.address} cannot be reduced: in a file of its own it is {again.verdict}, not {fault.verdict}"
        )

    def _checks(self, program: Program, result: CellResult) -> tuple[str | None, tuple[Condition, ...]]:
        """Return the stage at fault, and what candidates must show: the fault with the lowest backend that has it.

        A candidate must not show it with the backend below that one, so that the stage stays the same.
        """
        fault = fault_of(result)
        facts = self._facts() if fault.verdict is not Verdict.UNSTABLE and fault.phase != "reference" else StageFacts()
        if facts.top is None:
            return None, (Condition(fault),)
        prefix = self._shortest_prefix(program, result, facts.prefixes)
        # One backend below is enough: a stage that shows the fault shows it with all that follow.
        below = facts.prefixes[: facts.prefixes.index(prefix)] if prefix is not None else facts.prefixes
        before = [Condition(fault, prefix_below.backend, shows=False) for prefix_below in below[-1:]]
        if prefix is None:
            return STAGES[facts.top], (Condition(fault), *before)
        return STAGES[prefix.stage], (Condition(fault, prefix.backend), *before)

    def _facts(self) -> StageFacts:
        """Return what is known about the stages of the cell's compiler: nothing if it cannot be examined."""
        pool = self.runner.pool
        try:
            facts = pool.client.run(FACTS, self.spec, StageFacts, timeout=FACTS_SECONDS)
        except ServerDiedError:
            pool.restart()
            return StageFacts()
        return StageFacts() if isinstance(facts, Ended) else facts

    def _shortest_prefix(
        self, program: Program, result: CellResult, prefixes: tuple[StagePrefix, ...]
    ) -> StagePrefix | None:
        """Return the shortest prefix that shows the fault of a program; None for the whole compiler."""
        steps = shortest_prefix(prefixes, result.error.type if result.error is not None else "")
        same: bool | None = None
        while True:
            try:
                prefix = steps.send(same)
            except StopIteration as end:
                lowest: StagePrefix | None = end.value
                return lowest
            partial_result, _ = self.runner.result(program.text, prefix.backend)
            same = same_fault(fault_of(result), fault_of(partial_result))

    def _search(self, search: Search, checks: tuple[Condition, ...], result: CellResult) -> tuple[bool, CellResult]:
        """Search, and run the cell's own compiler on the result: whether it shows the fault, and what it shows."""
        self.runner.expect(checks)
        search.run()
        again, _ = self.runner.result(search.best.text)
        return (True, again) if same_fault(checks[0].fault, fault_of(again)) else (False, result)
