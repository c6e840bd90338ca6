"""The answer: what differs between two sides, where first, whether that explains the end, and because of what."""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from recapture.base.text import plural
from recapture.cases.compilers import EAGER
from recapture.tools.drift.alignment import Layer, Place, differing_places, layers
from recapture.tools.drift.causes import (
    Agreement,
    FirstRelease,
    Trial,
    better,
    find_first_release,
    releases_between,
    try_causes,
)
from recapture.tools.drift.facts import (
    BEYOND_ROUNDING,
    GIVEN,
    KEPT,
    OBSERVED,
    REFUSES,
    SAME_BITS,
    VERDICTS,
    Operator,
    OperatorDifference,
    Part,
    Raised,
    SideReport,
    Task,
    Training,
    Verdict,
    worst,
)
from recapture.tools.drift.sides import SideOf, SideRuns, read_operators, read_report
from recapture.tools.drift.training_steps import StepDifference, first_step_that_differs, training_verdict

if TYPE_CHECKING:
    from recapture.machine.pins import Image

MOST_PLACES = 10
"""Number of places that are listed besides the first."""


SHORT_DTYPES = {"bfloat16": 2.4, "float16": 3.3, "float8_e4m3fn": 1.2, "float8_e5m2": 0.9}
"""Dtypes of few bits, and the decimal digits that their numbers have."""

MANY_DIGITS = 2.0
"""Digits by which two sides agree better if what was switched off makes most of the difference."""

MOST_NAMES = 3
"""Number of operators of one side that are named."""


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
        names = [_names(side) for side in (self.old, self.new)]
        return names[0] if names[0] == names[1] else f"{names[0]} → {names[1]}"

    @property
    def short_dtype(self) -> str:
        """The dtype of the results if its numbers have few digits, else nothing."""
        dtypes = {form.partition("[")[0] for form in self.new[-1].forms}
        return next((name for name in SHORT_DTYPES if name in dtypes), "")

    @property
    def where(self) -> str:
        """The submodule and the source line, as far as known."""
        call = self.new[-1]
        place = f"in {call.module}" if call.module else "in the backward" if call.backward else ""
        return " ".join(filter(None, (place, f"({call.line})" if call.line else "")))


class DriftReport(msgspec.Struct, frozen=True, kw_only=True):
    """Two sides compared: `parts` are results, gradients and buffers; `steps` are those of a training.

    `streams` and `initial` name random numbers and initial weights that differ under the same seed. `trials` compare
    the sides with one thing changed. `amplified` is how many digits are lost between the first place and the end.
    `against_eager` compares each of two compiled sides with eager mode of its own, if they differ beyond rounding.
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
    trials: tuple[Trial, ...] = ()
    release: FirstRelease | None = None
    against_eager: tuple[Verdict, ...] = ()
    training: StepDifference | None = None
    steps: int = 0
    version: Literal[1] = 1

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all parts, or that of the training."""
        if self.steps:
            return training_verdict(self.training)
        return worst(tuple(part.verdict for part in self.parts))

    @property
    def raised(self) -> list[tuple[str, Raised]]:
        """The exceptions that ended a training, or those of a call if the sides do not raise the same one, by side."""
        if not self.steps and self.verdict != REFUSES:
            return []
        named = zip(self.sides, self.about, strict=True)
        return [(name, side.raised) for name, side in named if side.raised is not None]

    @property
    def causes(self) -> tuple[str, ...]:
        """What makes the difference: packages or settings without which the sides agree better, or else torch."""
        wrong = [
            name for name, verdict in zip(self.sides, self.against_eager, strict=False) if verdict in BEYOND_ROUNDING
        ]
        if len(wrong) == 1:
            return (f"the compiled code of {wrong[0]}",)
        guilty = [trial.name for trial in self.trials if self._agrees_better(trial)]
        if guilty or not self.trials:
            return tuple(guilty)
        releases, devices = [side.torch for side in self.about], [side.settings.get("device") for side in self.about]
        if releases[0] != releases[1]:
            return (f"torch itself ({' → '.join(releases)})",)
        return (f"the device ({devices[0]} → {devices[1]})",) if devices[0] != devices[1] else ()

    def _agrees_better(self, trial: Trial) -> bool:
        if trial.verdict != self.verdict:
            return trial.verdict is not None and better(trial.verdict, self.verdict)
        return trial.digits is not None and self.digits is not None and trial.digits - self.digits >= MANY_DIGITS

    @property
    def digits(self) -> float | None:
        """The fewest decimal digits to which a part agrees; None if no part can be compared by them."""
        return _fewest_digits(self.parts)

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        between = f"{self.sides[0]} → {self.sides[1]}"
        if self.steps:
            raised = self.raised
            finished = min([self.steps, *((error.step or 1) - 1 for _, error in raised)])
            errors = "".join(f"; {name} raises {error.type} in step {error.step}" for name, error in raised)
            return f"{self.target}, {between}: {_training_words(self.training, finished)}{self._why}{errors}"
        counts = [
            f"{number} of {len(self.parts)} {name}"
            for name in VERDICTS
            if (number := sum(part.verdict == name for part in self.parts)) and name != "same bits"
        ]
        if not counts:
            return f"{self.target}, {between}: the same bits ({plural(len(self.parts), 'part')})"
        return f"{self.target}, {between}: {', '.join(counts)}{self._why}"

    @property
    def _why(self) -> str:
        """Where the sides first differ, and because of what, as far as known."""
        first = f"; first at {self.place.name} {self.place.where}".rstrip() if self.place is not None else ""
        if self.place is not None and self.place.short_dtype:
            first += f", in {self.place.short_dtype}"
        return f"{first}, because of {' and '.join(self.causes)}" if self.causes else first

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, with the answer in words."""
        words = {"sentence": self.sentence, "verdict": self.verdict, "causes": list(self.causes)}
        return {**words, **msgspec.to_builtins(self)}


def _training_words(difference: StepDifference | None, steps: int) -> str:
    if difference is None:
        return f"the same bits over {plural(steps, 'training step')}"
    if not difference.beyond:
        return f"within rounding over {plural(steps, 'training step')}; other bits from step {difference.step} on"
    return f"beyond rounding from step {difference.step} on, first in {difference.name}"


@dataclass(frozen=True, kw_only=True)
class Drift:
    """Compares two sides of a target.

    With `why`, it says because of what they differ. Releases between the two are tried if their environments are
    there, or with `make_environments`.
    """

    target: str
    own_code: dict[str, Any]
    old: SideOf
    new: SideOf
    why: bool = False
    make_environments: bool = False
    training: Training | None = None

    def task(self, side: SideOf, folder: Path, **fields: Any) -> Task:
        """Return a task for a side."""
        return Task(
            own_code=self.own_code,
            folder=str(folder),
            device=side.device,
            compiler=side.compiler,
            without=side.without,
            ranks=side.ranks,
            parallel=side.parallel,
            **{"training": self.training, **fields},
        )

    def save(self, runs: SideRuns, folder: Path) -> SideReport:
        """Run the first side and keep its files in a folder, for another machine to compare with."""
        folder.mkdir(parents=True, exist_ok=True)
        return runs.run(self.old, self.task(self.old, folder.absolute()))

    def compare(self, runs: SideRuns) -> DriftReport:
        """Run both sides and compare them; the second begins with the weights and inputs of the first."""
        try:
            return self._compare(runs)
        finally:
            runs.clear()

    def _compare(self, runs: SideRuns) -> DriftReport:
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
            steps=self.training.steps if self.training is not None else 0,
        )
        if self.training is not None:
            training = first_step_that_differs(first.steps, second.steps)
            report = msgspec.structs.replace(report, training=training)
        if report.verdict == SAME_BITS or not first.stable or not second.stable:
            return report
        if self.training is None:
            report = self._with_place(report, runs, before, after)
            report = self._with_eager(report, runs, before)
        else:
            report = self._with_step(report, self.training, runs, before)
        return self._with_causes(report, runs, before) if self.why else report

    def _agreement(self, runs: SideRuns, old: SideOf | Path, new: SideOf) -> Agreement:
        """Compare two sides without recording operators; the old one may be a folder with what it gave."""
        before = old if isinstance(old, Path) else runs.folder()
        first = read_report(before) if isinstance(old, Path) else runs.run(old, self.task(old, before, record=False))
        second = runs.run(new, self.task(new, runs.folder(), other=str(before), record=False))
        if self.training is not None:
            return Agreement(training_verdict(first_step_that_differs(first.steps, second.steps)), None)
        return Agreement(worst(tuple(part.verdict for part in second.parts)), _fewest_digits(second.parts))

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

    def _with_eager(self, report: DriftReport, runs: SideRuns, before: Path) -> DriftReport:
        """Compare each of two compiled sides with eager mode of its own: the one that differs is at fault.

        Only parts in which the sides differ count: compiled code may have other forms of others.
        """
        both_compiled = EAGER not in (self.old.compiler, self.new.compiler)
        if report.verdict not in BEYOND_ROUNDING or not both_compiled or self.old.stored is not None:
            return report
        names = {part.name for part in report.parts if part.verdict in BEYOND_ROUNDING}
        verdicts = []
        for side in (self.old, self.new):
            eager, folder = dataclasses.replace(side, name=f"eager mode of {side.name}", compiler=EAGER), runs.folder()
            shutil.copyfile(before / GIVEN, folder / GIVEN)
            runs.run(eager, self.task(eager, folder, other=str(before), record=False))
            compiled = runs.run(side, self.task(side, runs.folder(), other=str(folder), record=False))
            parts = [part for part in compiled.parts if part.name in names] or compiled.parts
            verdicts.append(worst(tuple(part.verdict for part in parts)))
        return msgspec.structs.replace(report, against_eager=tuple(verdicts))

    def _with_step(self, report: DriftReport, training: Training, runs: SideRuns, before: Path) -> DriftReport:
        """Add the first place of the first step that has other bits: both sides train up to it again, watched."""
        alike = self.old.compiler == self.new.compiler == EAGER and self.old.ranks == self.new.ranks
        if report.training is None or self.old.stored is not None or not alike:
            return report
        step = report.training.first_bits
        watched = msgspec.structs.replace(training, steps=step, watched=step)
        folders = [runs.folder(), runs.folder()]
        for side, folder in zip((self.old, self.new), folders, strict=True):
            runs.run(side, self.task(side, folder, other=str(before), training=watched))
        old, new = map(read_operators, folders)
        places = list(differing_places(old, new))
        if not places:
            return report
        place = FirstPlace(
            old=tuple(old[number] for number in places[0].old),
            new=tuple(new[number] for number in places[0].new),
            others=len(places) - 1,
        )
        return msgspec.structs.replace(report, place=place)

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

    def _with_causes(self, report: DriftReport, runs: SideRuns, before: Path) -> DriftReport:
        """Add what makes the difference, and the release that has it first."""

        def compare(old: SideOf, new: SideOf) -> Agreement:
            return self._agreement(runs, before if old == self.old else old, new)

        trials = tuple(try_causes(self.old, self.new, report.about, compare))
        report = msgspec.structs.replace(report, trials=trials)
        old, new = self.old.image, self.new.image
        if old is None or new is None or old == new:
            return report
        between = releases_between(old, new)
        present = between if self.make_environments else runs.environments_here(between)

        def differs(image: Image) -> bool:
            verdict, _ = self._agreement(runs, before, dataclasses.replace(self.new, name=image.torch, image=image))
            return not better(verdict, report.verdict)

        return msgspec.structs.replace(report, release=find_first_release(old, new, present, differs))


def _names(calls: tuple[Operator, ...]) -> str:
    """Return the names of a few operators, or the first and last of many."""
    names = [call.name for call in calls]
    return " + ".join(names) if len(names) <= MOST_NAMES else f"{len(names)} operators from {names[0]} to {names[-1]}"


def _unlike(old: dict[str, str], new: dict[str, str]) -> tuple[str, ...]:
    return tuple(name for name in old if name in new and old[name] != new[name])


def _fewest_digits(parts: tuple[Part, ...]) -> float | None:
    return min((part.digits for part in parts if part.digits is not None), default=None)


def _amplified(report: DriftReport, place: FirstPlace) -> float | None:
    """Return how many digits are lost between the first place and the results."""
    end = report.digits
    if end is None or place.difference is None or place.difference.digits is None:
        return None
    return max(0.0, round(place.difference.digits - end, 1))
