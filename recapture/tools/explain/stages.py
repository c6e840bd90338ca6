"""Finds the guilty stage of a wrong or failing cell: the compiler up to each stage first, then the switches of a stage.

Each trial is the cell in a process of its own, where eager runs too, and is judged as any cell is. It shows the same as
the cell, or is right, or does something else. The guilty stage is the lowest one that shows the same in two processes.
The search decides what to try; it runs nothing itself.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from recapture.cases.compilers import EAGER
from recapture.records.guilty_stage import STAGES, GuiltyStage, StageName
from recapture.records.verdicts import FAILING, RIGHT, SILENTLY_WRONG, Verdict
from recapture.run.cell import CellResult, Variation
from recapture.tools.explain.compiler_stages import (
    StageFacts,
    StagePrefix,
    Switch,
    code_of,
    combined,
    in_order,
    last_resort,
    shortest_prefix,
    weight_of,
)
from recapture.tools.explain.run_options import BUDGET

if TYPE_CHECKING:
    from recapture.cases.compiler import Family
    from recapture.records.record import Record

MOST_NAMED = 3
"""The most settings that a recorded workaround has; a longer one says little."""

FEW = 2
"""Number of cells left from which the likeliest part is tried alone, instead of the likelier half of them."""

CHECKED = Variation(variables={"AOTI_RUNTIME_CHECK_INPUTS": "1"})

Outcome = Literal["same", "right", "other"]

Shown: TypeAlias = "Record | CellResult"


class StageRun(NamedTuple):
    """One extra cell: what it is for, in words, and what it changes."""

    words: str
    variation: Variation


@dataclass(frozen=True)
class StageStep:
    """One extra cell that was run: `shown` is its verdict, with the reason if it does something else."""

    words: str
    outcome: Outcome
    shown: str


Search: TypeAlias = Generator[StageRun, "CellResult", "StageReport"]


@dataclass(frozen=True)
class StageReport:
    """What a search found: the guilty stage, or in `unknown` why none can be named, and the steps that show it.

    `remarks` say what was not tried, or what this release lacks.
    """

    stage: GuiltyStage | None
    steps: tuple[StageStep, ...] = ()
    unknown: str | None = None
    remarks: tuple[str, ...] = ()
    prefix: StagePrefix | None = None
    """The prefix of the guilty stage; None for the whole compiler."""

    @property
    def cells(self) -> int:
        """The number of extra cells."""
        return len(self.steps)


def stageable(record: Record) -> bool:
    """Whether a cell is wrong or fails because of its compiler, so that a stage of it can be guilty."""
    return record.verdict in SILENTLY_WRONG | FAILING and record.phase != "reference" and record.compiler != EAGER


def outcome(cell: Shown, trial: Shown) -> Outcome:
    """Return whether a trial shows the same as the cell: the same kind of difference at the same place, or failure.

    For a silently wrong cell its first difference decides. Errors are the same if their phase, type and the first words
    of their message are, whichever backend the message names.
    """
    if trial.verdict in RIGHT:
        return "right"
    if cell.verdict in SILENTLY_WRONG:
        first = next(
            (difference for difference in cell.differences if difference.input == cell.input), cell.differences[0]
        )
        same = any(
            (difference.input, difference.where, difference.kind) == (first.input, first.where, first.kind)
            for difference in trial.differences
        )
        return "same" if same and trial.verdict in SILENTLY_WRONG else "other"
    return "same" if cell.verdict is trial.verdict and _failure(cell) == _failure(trial) else "other"


def _failure(result: Shown) -> tuple[object, ...]:
    if result.error is None:
        return (result.phase, result.reason if result.verdict is Verdict.CRASH else None)
    # The name of the backend is what a trial changes; numbers and names of generated functions change by themselves.
    words = re.sub(r"backend='[^']*'|\d+|\bfn_\w+", "…", result.error.message).split()[:12]
    return (result.phase, result.error.type, words)


def search(
    cell: Record, facts: StageFacts, budget: int = BUDGET, known: Mapping[str, Shown] = MappingProxyType({})
) -> Search:
    """Search the guilty stage of a cell: yields trials, receives their results, and returns the report."""
    if not stageable(cell):
        return StageReport(None, unknown=f"the cell is {cell.verdict}: no stage is guilty")
    if facts.family is None or facts.top is None:
        return StageReport(None, unknown="the stages of this compiler cannot be told apart")
    return (yield from _Search(cell, facts, facts.family, facts.top, budget, known).run())


@dataclass
class _Search:
    """The state of one search."""

    cell: Record
    facts: StageFacts
    family: Family
    top: StageName
    budget: int
    known: Mapping[str, Shown]
    steps: list[StageStep] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    confirmed: bool = False
    last: Shown = field(init=False)
    """What the last extra cell showed."""
    backend: str | None = None
    """That of the guilty prefix, once it is known."""

    @property
    def left(self) -> int:
        """The number of extra cells that may still run, without the one that confirms the stage."""
        return self.budget - len(self.steps) - (not self.confirmed)

    def run(self) -> Search:
        prefix, refused = yield from self._prefixes()
        stage: StageName = prefix.stage if prefix is not None else self.top
        self.backend = prefix.backend if prefix is not None else None
        stage_found: GuiltyStage | None = None
        if refused and self.facts.checks_inputs and self.left > 0:
            stage_found = yield from self._input_checks(stage)
        if stage_found is None:
            stage_found = yield from self._switches(stage)
        if not self.confirmed and len(self.steps) < self.budget:
            again = yield from self._try("the same again, in another process", Variation(backend=self.backend))
            if again != "same":
                unknown = f"{STAGES[stage]} shows it in one process and not in another"
                return StageReport(None, tuple(self.steps), unknown, tuple(self.remarks))
            self.confirmed = True
        if not self.confirmed:
            unknown = f"it may be {STAGES[stage]}: a larger --budget is needed to confirm that"
            return StageReport(None, tuple(self.steps), unknown, tuple(self.remarks))
        if absent := self.facts.absent.get(stage):
            self.remarks.append(f"this release has no switch for: {', '.join(absent)}")
        return StageReport(stage_found, tuple(self.steps), None, tuple(self.remarks), prefix)

    def _try(self, words: str, variation: Variation) -> Generator[StageRun, CellResult, Outcome]:
        """Run one extra cell; one that shows the same with the guilty prefix's own backend confirms the stage."""
        self.last = result = yield StageRun(words, variation)
        compared = outcome(self.cell, result)
        self.steps.append(StageStep(words, compared, _shown(result)))
        return compared

    def _prefixes(self) -> Generator[StageRun, CellResult, tuple[StagePrefix | None, bool]]:
        """Find the shortest prefix that shows the same.

        Returns None for the whole compiler, and whether a shorter prefix refuses what the cell is silently wrong on.
        """
        steps = shortest_prefix(self.facts.prefixes, self.cell.error.type if self.cell.error else "", self.known)
        refused = False
        same: bool | None = None
        while True:
            try:
                prefix = steps.send(same)
            except StopIteration as end:
                return end.value, refused
            result = self.known.get(prefix.backend)
            if result is not None:
                compared = outcome(self.cell, result)
            elif len(self.steps) < self.budget:
                compared = yield from self._try(prefix.words, Variation(backend=prefix.backend))
                result = self.last
            else:
                same = None
                continue
            # A shorter prefix that raises where the whole compiler is silently wrong checks what a later stage does
            # not.
            refused |= compared == "other" and self.cell.verdict in SILENTLY_WRONG
            if compared == "other":
                self.remarks.append(f"up to {STAGES[prefix.stage]} it does something else: {_shown(result)}")
            same = compared == "same"

    def _input_checks(self, stage: StageName) -> Generator[StageRun, CellResult, GuiltyStage | None]:
        """Try AOTInductor's own checks: they refuse what the exported program refuses."""
        compared = yield from self._try("with AOTI_RUNTIME_CHECK_INPUTS=1", CHECKED)
        self.confirmed |= compared == "same"
        if compared == "same" or self.last.verdict in SILENTLY_WRONG:
            return None
        return GuiltyStage(stage, "input checks", "AOTI_RUNTIME_CHECK_INPUTS=1")

    def _switches(self, stage: StageName) -> Generator[StageRun, CellResult, GuiltyStage]:
        """Turn all switches of a stage at once; if that makes the cell right, find the smallest part that does."""
        switches = self.facts.switches.get(stage, ())
        together = in_order(switches, self.cell)
        smallest: list[Switch] = []
        compared: Outcome = "same"
        if together and self.left > 0:
            what = _words(together) if len(together) <= MOST_NAMED else f"all {len(together)} switches at once"
            compared = yield from self._with(together, what)
            if compared == "right":
                smallest = yield from self._narrow(together)
            elif compared == "other":  # together they do something else: at least the likeliest part alone
                first = [switch for switch in together if switch.part == together[0].part]
                fewer = len(first) < len(together)
                if fewer and self.left > 0 and (yield from self._with(first, _words(first))) == "right":
                    smallest = first
        if not smallest:
            for switch in last_resort(switches, self.cell):
                if self.left > 0 and (yield from self._with([switch], _words([switch]))) == "right":
                    smallest = [switch]
                    break
        if len(smallest) == 1:
            milder = [switch for switch in switches if switch.milder_than == smallest[0].name]
            if milder and self.left > 0 and (yield from self._with(milder, _words(milder))) == "right":
                smallest = milder
        return self._guilty(stage, smallest)

    def _with(self, switches: Sequence[Switch], words: str) -> Generator[StageRun, CellResult, Outcome]:
        compared = yield from self._try(f"with {words}", combined(switches, self.backend))
        # A switch that changes nothing is the same cell in a second process, which confirms the stage. One that
        # exchanges the backend is another compiler.
        if compared == "same" and not any(switch.name == "backend" for switch in switches):
            self.confirmed = True
        return compared

    def _narrow(self, switches: list[Switch]) -> Generator[StageRun, CellResult, list[Switch]]:
        """Return the smallest part of switches, which together cure the cell, that was seen to cure it."""
        smallest = candidates = switches
        while self.left > 0 and candidates:
            first, second = self._halves(candidates)
            # They are known to cure the cell, and cannot be divided further.
            if first == smallest:
                break
            compared = yield from self._with(first, _words(first))
            if compared == "right":
                smallest = candidates = first
            else:
                candidates = second
        return smallest

    def _halves(self, switches: list[Switch]) -> tuple[list[Switch], list[Switch]]:
        """Divide switches where half of their weight is, but no part while there are several."""
        parts = list(dict.fromkeys(switch.part for switch in switches))
        if self.left <= FEW and len(parts) > 1:
            return [switch for switch in switches if switch.part == parts[0]], [
                switch for switch in switches if switch.part != parts[0]
            ]
        if len(switches) == 1:
            return switches, []
        kind = self.cell.differences[0].kind if self.cell.differences else ""
        # Switches that were often the cure weigh more, so that fewer cells find the usual one.
        half, total = sum(weight_of(switch, kind) for switch in switches) / 2, 0.0
        places: list[tuple[float, int]] = []
        for place, switch in enumerate(switches[:-1], 1):
            total += weight_of(switch, kind)
            if len(parts) == 1 or switches[place].part != switch.part:
                places.append((abs(total - half), place))
        _, place = min(places)
        return switches[:place], switches[place:]

    def _guilty(self, stage: StageName, cure: Sequence[Switch]) -> GuiltyStage:
        parts = list(dict.fromkeys(switch.part for switch in cure))
        if not parts:
            return GuiltyStage(stage)
        if len(cure) > MOST_NAMED:
            if len(parts) > 1:
                self.remarks.append(f"one of {', '.join(parts)}: a larger --budget says which")
                return GuiltyStage(stage)
            return GuiltyStage(stage, parts[0])
        code = code_of(cure, self.family)
        return GuiltyStage(stage, " and ".join(parts), code)


def _words(switches: Sequence[Switch]) -> str:
    parts = " and ".join(dict.fromkeys(switch.part for switch in switches))
    if len(switches) > MOST_NAMED:
        return f"the switches of {parts}"
    return f"{', '.join(f'{switch.name}={switch.value!r}' for switch in switches)} ({parts})"


def _shown(result: Shown) -> str:
    """Return a trial's verdict, with the type of its error."""
    kind = f": {result.error.type.rsplit('.', 1)[-1]}" if result.error is not None else ""
    return f"{result.verdict}{kind}"
