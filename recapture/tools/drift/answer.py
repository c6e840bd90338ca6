"""The answer: what differs between two sides, where first, whether that explains the end, and because of what."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from recapture.base.text import plural
from recapture.tools.drift.alignment import Layer, Place, differing_places, layers
from recapture.tools.drift.facts import (
    GIVEN,
    KEPT,
    OBSERVED,
    SAME_BITS,
    VERDICTS,
    Operator,
    OperatorDifference,
    Part,
    SideReport,
    Task,
    Verdict,
    worst,
)
from recapture.tools.drift.sides import SideOf, SideRuns, read_operators, read_report, settings_to_try
from recapture.tools.drift.training_steps import StepDifference, first_step_that_differs

MOST_PLACES = 10
"""Number of places that are listed besides the first."""


class FirstPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The first operators whose inputs agree and whose results do not.

    `old` and `new` are their calls. `difference` compares what the last of them gave; None where that was not
    possible, as with a side that was saved elsewhere. `explains` is the worst verdict of the parts after the old
    side's result was put into the new side: ``same bits`` means that this place alone makes all differences. `others`
    counts the further places whose inputs agree.
    """

    old: tuple[Operator, ...]
    new: tuple[Operator, ...]
    difference: OperatorDifference | None = None
    explains: Verdict | None = None
    others: int = 0

    @property
    def name(self) -> str:
        """The operators in words."""
        names = [" + ".join(call.name for call in side) for side in (self.old, self.new)]
        return names[0] if names[0] == names[1] else f"{names[0]} → {names[1]}"

    @property
    def where(self) -> str:
        """The submodule and the source line, as far as known."""
        call = self.new[-1]
        place = f"in {call.module}" if call.module else "in the backward" if call.backward else ""
        return " ".join(filter(None, (place, f"({call.line})" if call.line else "")))


class DriftReport(msgspec.Struct, frozen=True, kw_only=True):
    """Two sides compared: `parts` are results, gradients and buffers; `steps` are those of a training.

    `streams` and `initial` name random numbers and initial weights that differ under the same seed. `causes` are
    settings under which the sides agree. `amplified` is how many digits are lost between the first place and the end.
    """

    target: str
    sides: tuple[str, str]
    about: tuple[SideReport, SideReport]
    parts: tuple[Part, ...] = ()
    streams: tuple[str, ...] = ()
    initial: tuple[str, ...] = ()
    place: FirstPlace | None = None
    layers: tuple[Layer, ...] = ()
    marked: int | None = None
    amplified: float | None = None
    causes: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    training: StepDifference | None = None
    steps: int = 0
    version: Literal[1] = 1

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all parts, or that of the training."""
        if self.training is not None:
            return "changed" if self.training.beyond else "rounding"
        return worst(tuple(part.verdict for part in self.parts))

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        between = f"{self.sides[0]} → {self.sides[1]}"
        if self.steps:
            return f"{self.target}, {between}: {_training_words(self.training, self.steps)}"
        counts = [
            f"{number} of {len(self.parts)} {name}"
            for name in VERDICTS
            if (number := sum(part.verdict == name for part in self.parts)) and name != "same bits"
        ]
        if not counts:
            return f"{self.target}, {between}: the same bits ({plural(len(self.parts), 'part')})"
        first = f"; first at {self.place.name} {self.place.where}".rstrip() if self.place is not None else ""
        why = f", because of {' and '.join(self.causes)}" if self.causes else ""
        return f"{self.target}, {between}: {', '.join(counts)}{first}{why}"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, with the answer in words."""
        return {"sentence": self.sentence, "verdict": self.verdict, **msgspec.to_builtins(self)}


def _training_words(difference: StepDifference | None, steps: int) -> str:
    if difference is None:
        return f"the same bits over {plural(steps, 'training step')}"
    if not difference.beyond:
        return f"within rounding over {plural(steps, 'training step')}; other bits from step {difference.step} on"
    return f"beyond rounding from step {difference.step} on, first in {difference.name}"


@dataclass(frozen=True, kw_only=True)
class Drift:
    """Compares two sides of a target."""

    target: str
    own_code: dict[str, Any]
    old: SideOf
    new: SideOf
    why: bool = False
    train: int = 0
    optimizer: str = "sgd"
    rate: float = 0.01

    def task(self, side: SideOf, folder: Path, **fields: Any) -> Task:
        """Return a task for a side."""
        return Task(
            own_code=self.own_code,
            folder=str(folder),
            device=side.device,
            compiler=side.compiler,
            mkldnn=side.mkldnn,
            train=self.train,
            optimizer=self.optimizer,
            rate=self.rate,
            **fields,
        )

    def save(self, runs: SideRuns, folder: Path) -> SideReport:
        """Run the first side and keep its files in a folder, for another machine to compare with."""
        folder.mkdir(parents=True, exist_ok=True)
        return runs.run(self.old, self.task(self.old, folder.absolute()))

    def compare(self, runs: SideRuns) -> DriftReport:
        """Run both sides and compare them; the second begins with the weights and inputs of the first."""
        before = self.old.stored.absolute() if self.old.stored is not None else runs.folder()
        first = read_report(before) if self.old.stored is not None else runs.run(self.old, self.task(self.old, before))
        after = runs.folder()
        second = runs.run(self.new, self.task(self.new, after, other=str(before)))
        report = DriftReport(
            target=self.target,
            sides=(self.old.name, self.new.name),
            about=tuple(msgspec.structs.replace(side, steps=(), parts=()) for side in (first, second)),  # type: ignore[arg-type]
            parts=second.parts,
            streams=_unlike(first.streams, second.streams),
            initial=_unlike(first.initial, second.initial),
            steps=self.train,
        )
        if self.train:
            training = first_step_that_differs(first.steps, second.steps)
            return msgspec.structs.replace(report, training=training)
        if report.verdict == SAME_BITS or not first.stable or not second.stable:
            return report
        report = self._with_place(report, runs, before, after)
        return self._with_causes(report, runs) if self.why else report

    def _with_place(self, report: DriftReport, runs: SideRuns, before: Path, after: Path) -> DriftReport:
        """Add the first place, how it differs, and whether it alone explains the end."""
        old, new = read_operators(before), read_operators(after)
        if not old or not new:
            return report
        places = list(differing_places(old, new))
        picture = layers(old, new)
        if not places:
            return msgspec.structs.replace(report, layers=tuple(picture))
        first = places[0]
        place = FirstPlace(
            old=tuple(old[number] for number in first.old),
            new=tuple(new[number] for number in first.new),
            others=len(places) - 1,
        )
        if self.old.stored is None:
            place = self._kept(place, first, runs, before)
        marked = next((index for index, layer in enumerate(picture) if layer.new == first.new[-1]), None)
        return msgspec.structs.replace(
            report, place=place, layers=tuple(picture), marked=marked, amplified=_amplified(report, place)
        )

    def _kept(self, place: FirstPlace, first: Place, runs: SideRuns, before: Path) -> FirstPlace:
        """Keep the tensors of the first place on both sides, and put the old side's into the new side."""
        kept_old, kept_new = runs.folder(), runs.folder()
        for name in (GIVEN, OBSERVED):
            shutil.copyfile(before / name, kept_old / name)
        runs.run(self.old, self.task(self.old, kept_old, other=str(before), keep=first.old[-1], record=False))
        if not (kept_old / KEPT).exists():
            return place
        task = self.task(self.new, kept_new, other=str(kept_old), keep=first.new[-1], substitute=True, record=False)
        report = runs.run(self.new, task)
        verdict = worst(tuple(part.verdict for part in report.parts)) if report.parts else None
        return msgspec.structs.replace(place, difference=report.operator, explains=verdict)

    def _with_causes(self, report: DriftReport, runs: SideRuns) -> DriftReport:
        """Add the settings under which both sides give the same bits: what they switch off makes the difference."""
        causes, tried = [], []
        for name, variables, mkldnn in settings_to_try(self.new.device):
            digests = []
            other: str | None = None
            for side in (self.old, self.new):
                changed = side.with_setting(f"without {name}", variables, mkldnn=mkldnn)
                folder = runs.folder()
                digests.append(runs.run(changed, self.task(changed, folder, other=other, record=False)).digests)
                other = str(folder)
            tried.append(name)
            if digests[0] == digests[1]:
                causes.append(name)
        return msgspec.structs.replace(report, causes=tuple(causes), tried=tuple(tried))


def _unlike(old: dict[str, str], new: dict[str, str]) -> tuple[str, ...]:
    return tuple(name for name in old if name in new and old[name] != new[name])


def _amplified(report: DriftReport, place: FirstPlace) -> float | None:
    """Return how many digits are lost between the first place and the results."""
    end = min((part.digits for part in report.parts if part.digits is not None), default=None)
    if end is None or place.difference is None or place.difference.digits is None:
        return None
    return max(0.0, round(place.difference.digits - end, 1))
