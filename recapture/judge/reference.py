"""The reference: what eager does on every input, once more, and with rounding noise."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from recapture.judge.compare import Comparison, Rules, compare
from recapture.judge.float64 import widening_tensors
from recapture.judge.fresh_case import FreshCase
from recapture.judge.large_tensors import sharing, without_unused
from recapture.judge.perturbation import perturbed
from recapture.judge.repetition import RUNS, differ_by_rounding_alone
from recapture.judge.rounding import ENOUGH
from recapture.judge.torch_state import read_flags, restore_flags
from recapture.torch_api.compat import compiled_code_off

if TYPE_CHECKING:
    from recapture.cases.case import Case
    from recapture.judge.observe import Observation


class Eager:
    """The reference observations of a case, each from a new execution of its file."""

    def __init__(self, load: Callable[[], Case], device: str, *, rewrite: bool = False) -> None:
        self.load = load
        self.device = device
        self.rewrite = rewrite
        self._first: list[Observation] | None = None
        self._samples: dict[int, dict[str, Observation]] = {}
        self._early: dict[int, dict[str, Observation]] = {}
        self._needed: dict[str, Observation] | None = None
        self.needed: Callable[[], dict[str, Observation] | None] = lambda: None
        """Returns what is compared with eager on each input whose runs with noise are needed; None if not known."""

    def observe(self, *, again: bool = False, skip: frozenset[str] = frozenset()) -> list[Observation]:
        """Call eager on every input in order, except those in `skip`; with `again`, call it once more on the first.

        Before that last call the state is restored. It shows whether the original of a captured callable can be
        expected to work as before.
        """
        subject = FreshCase(self.load(), self.device)
        observations = self._calls(subject, skip)
        if self._first is None:
            self._first = observations
        if again:
            observations = [*observations, sharing(first_again(subject, self._target(subject)), self._first[0])]
        subject.leave()
        return observations

    def find_rounding(self, again: list[Observation]) -> bool:
        """Find out whether eager's first run and another one differ, by rounding alone.

        If so, later runs may differ from the first as far as rounding explains. What it may do is measured here, on
        runs with noise: before a compiler runs, which may change what eager does.
        """
        try:
            runs = (self._in_float64() for _ in range(RUNS))
            if differ_by_rounding_alone(self._first or [], again, runs):
                self._early = {run: self._noisy(run) for run in range(ENOUGH)}
                self._samples = dict(self._early)
        except (Exception, SystemExit):  # this case cannot be made in float64
            return False
        return self.rounds_anew

    @property
    def rounds_anew(self) -> bool:
        """Whether each run of eager rounds in another way, as far as `find_rounding` was asked."""
        return bool(self._early)

    def _in_float64(self) -> list[Observation]:
        """Call eager on every input in order, with all numbers in float64."""
        with widening_tensors() as widening:
            subject = FreshCase(self.load(), self.device, widening=widening)
            try:
                with widening.in_calls():
                    return self._calls(subject)
            finally:
                subject.leave()

    def _calls(self, subject: FreshCase, skip: frozenset[str] = frozenset()) -> list[Observation]:
        target = self._target(subject)
        first = {observation.input: observation for observation in self._first or []}
        observations: list[Observation] = []
        for label, make in subject.case.inputs():
            if label not in skip:
                observation = subject.call(target, label, make)
                observations.append(sharing(observation, first.get(label), observations[-1] if observations else None))
        return observations

    def sample(self, label: str, run: int) -> Observation | None:
        """Return the observation of one input in a run with rounding noise; None if that run fails.

        There is none either if eager no longer does what it did at first, but for rounding where `rounds_anew` is true:
        a compiler may have replaced parts of torch.
        Nor is there one where eager gives something else when its operators are watched, without any noise: an operator
        may take another way then, and the spread of that way says nothing about this one. It does where that spread
        also explains what eager itself gives.
        """
        if not self._samples:
            self._needed = self.needed()
        if self._needed is not None and label not in self._needed:  # more is needed than was known
            self.keep_all()
        observation = self._run(label, run)
        return observation if label not in self._changed_by_watching else None

    def _run(self, label: str, run: int) -> Observation | None:
        if run not in self._samples:  # one run of the case serves every input and every element
            self._samples[run] = self._noisy(run) if self._unchanged else {}
        return self._samples[run].get(label)

    def keep_all(self) -> None:
        """Make runs with noise for every input from now on, and keep all of them."""
        self._needed, self.needed = None, lambda: None
        self._samples.clear()

    @cached_property
    def _unchanged(self) -> bool:
        try:
            now = self.observe()
        except Exception:
            return False
        pairs = zip(self._first or [], now, strict=True)
        differences = [
            difference
            for before, after in pairs
            for difference in compare(before, after, sample=self._early_sample(before.input)).differences
        ]
        # Settings are not asked: what ran between the two may have changed one, and noise does not depend on them.
        return all(difference.kind == "state" for difference in differences)

    def _early_sample(self, label: str) -> Callable[[int], Observation | None] | None:
        """Return the runs with noise that were made before a compiler ran; None if none were needed."""
        if not self._early:
            return None
        return lambda run: self._early.get(run, {}).get(label)

    @cached_property
    def _changed_by_watching(self) -> frozenset[str]:
        """The inputs on which eager gives other values when its operators are watched."""
        first = {observation.input: observation for observation in self._first or []}
        watched = self._noisy(None)
        quiet = Rules(show_values=False)
        return frozenset(
            label
            for label, two in watched.items()
            if _values_differ(compare(first[label], two, rules=quiet))
            and _values_differ(compare(two, first[label], sample=partial(self._run, label), rules=quiet))
        )

    def _noisy(self, run: int | None) -> dict[str, Observation]:
        """Observe the values of the inputs that are needed, with noise; those before them may change the state."""
        first = {observation.input: observation for observation in self._first or []}
        observations: dict[str, Observation] = {}
        # Settings that no call changes are read once for the run: to read them costs more than a small call.
        changed = any(observation.left for observation in first.values())
        settings = read_flags()
        try:
            with compiled_code_off():
                watching = partial(perturbed, run)
                subject = FreshCase(self.load(), self.device, watching=watching, settings=changed)
                target = self._target(subject)
                for label, make in subject.case.inputs():
                    observation = subject.call(target, label, make)
                    if observation.raised is not None:
                        restore_flags(settings)
                    if self._needed is None:
                        observations[label] = sharing(observation, first.get(label))
                    elif label in self._needed:
                        observations[label] = without_unused(observation, first[label], self._needed[label])
                        if observations.keys() == self._needed.keys():
                            break  # the inputs that follow are not asked for, and a run of a large model is dear
                subject.leave()
        except Exception:  # a case that cannot run with noise has no such reference
            return {}
        finally:
            restore_flags(settings)
        return {label: observation for label, observation in observations.items() if observation.raised is None}

    def _target(self, subject: FreshCase) -> Callable[..., Any]:
        original = subject.case.rewrite_of if self.rewrite else None
        target: Callable[..., Any] = subject.target if original is None else original
        return target


def _values_differ(comparison: Comparison) -> bool:
    return any(difference.kind in ("value", "gradient", "mutation") for difference in comparison.differences)


def first_again(subject: FreshCase, target: Callable[..., Any]) -> Observation:
    """Restore the state and call a target as on the first input."""
    subject.start_again()
    label, make = subject.case.inputs()[0]
    return subject.call(target, "original", make, seed=label)
