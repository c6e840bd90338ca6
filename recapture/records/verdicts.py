"""The table of verdicts: one row each, with everything that runs, reports and tools need to know about it."""

from __future__ import annotations

from enum import Enum
from typing import Literal, NamedTuple

Group = Literal["right", "silently wrong", "failing", "not run"]
"""What a verdict amounts to. One that is not run says nothing about the compiler."""

Tone = Literal["right", "broken", "wrong", "failing", "none"]
"""How a verdict looks; each kind of output has a style for every tone."""

Outcome = Literal["right", "wrong", "failing"]
"""What the verdict of a compiler amounts to, in one word."""

OUTCOMES: dict[Group, Outcome] = {"right": "right", "silently wrong": "wrong", "failing": "failing"}
"""The outcomes of the groups that say something about the compiler."""


class Mark(NamedTuple):
    """The character of an outcome in a matrix, and its meaning in the legend."""

    letter: str
    words: str


class VerdictFacts(NamedTuple):
    """The row of a verdict.

    `state` is what a compiler with this verdict does, in a word or two; empty if it depends on the phase, or if the
    verdict says nothing about the compiler. `does` says the same at length, for an issue. `advice` is what a user can
    do about it.
    """

    group: Group
    tone: Tone
    mark: Mark
    mark_at_capture: Mark | None = None
    """The mark of a cell that ended at capture, if it is another."""
    state: str = ""
    does: str = ""
    advice: str = ""
    died: bool = False
    """Whether the process did not end by itself, so that nothing can be observed from inside it."""
    reusable: bool = False
    """Whether the process can run another cell afterwards, if nothing else shows that it cannot."""
    uneventful: bool = False
    """Whether nothing failed or differed."""
    reducible: bool = False
    """Whether a smaller program can show the same fault."""
    may_be_machine: bool = False
    """Whether a fault of the machine can be all that the cell shows."""
    skipped: bool = False
    """Whether the question cannot be asked here, so that a test of it is skipped."""


class Verdict(str, Enum):
    """The result of one cell (case × compiler × device); every planned cell has exactly one."""

    def __new__(cls, value: str, *row: VerdictFacts) -> Verdict:
        """Make the member of a value, with its row of the table."""
        member = str.__new__(cls, value)
        member._value_ = value
        (member.facts,) = row
        return member

    facts: VerdictFacts

    PASS = (
        "pass",
        VerdictFacts(
            group="right",
            tone="right",
            mark=Mark("P", "right on every input, captured whole"),
            state="right",
            reusable=True,
            uneventful=True,
            may_be_machine=True,
        ),
    )
    """Captured whole. There is no silent difference from eager on any input."""
    PASS_WITH_BREAKS = (
        "pass_with_breaks",
        VerdictFacts(
            group="right",
            tone="broken",
            mark=Mark("p", "right on every input, the graph was broken"),
            state="right, with graph breaks",
            advice="nothing is wrong; fullgraph=True or TORCH_LOGS=graph_breaks shows where the graph breaks",
            reusable=True,
            uneventful=True,
            may_be_machine=True,
        ),
    )
    """The same, but the graph was broken. The record says how often and why."""
    SPECIALIZED = (
        "specialized",
        VerdictFacts(
            group="silently wrong",
            tone="wrong",
            mark=Mark("w", "silently wrong on a held-out input"),
            state="silently wrong",
            does="is right on the example and silently wrong on another input",
            reusable=True,
            reducible=True,
        ),
    )
    """Right on the example, silently wrong on a held-out input."""
    WRONG = (
        "wrong",
        VerdictFacts(
            group="silently wrong",
            tone="wrong",
            mark=Mark("W", "silently wrong on the example it was captured with"),
            state="silently wrong",
            does="silently gives another result than eager on the example itself",
            reusable=True,
            reducible=True,
        ),
    )
    """Silently wrong on the example itself, or capturing had effects that a call does not have."""
    ERROR = (
        "error",
        VerdictFacts(
            group="failing",
            tone="failing",
            mark=Mark("e", "failed at the call"),
            mark_at_capture=Mark("E", "refused at capture"),
            reusable=True,
            reducible=True,
            may_be_machine=True,
        ),
    )
    """An exception, in the phase `capture`, `call` or `backward`. The record has its type, message and fingerprint."""
    CRASH = (
        "crash",
        VerdictFacts(
            group="failing",
            tone="failing",
            mark=Mark("C", "the process died"),
            state="crashes",
            does="ends the process",
            advice="do not use it for this code; the process dies",
            died=True,
            reducible=True,
            may_be_machine=True,
        ),
    )
    """The process died of a signal, or left no result."""
    TIMEOUT = (
        "timeout",
        VerdictFacts(
            group="failing",
            tone="failing",
            mark=Mark("T", "passed its deadline"),
            state="too slow",
            does="does not end",
            advice="raise --timeout, or do not use it for this code",
            died=True,
            reducible=True,
        ),
    )
    """The process was still running at its deadline."""
    OOM = (
        "oom",
        VerdictFacts(
            group="failing",
            tone="failing",
            mark=Mark("M", "ran out of memory"),
            state="out of memory",
            does="runs out of memory",
            advice="raise --memory, or try a smaller input",
            died=True,
            reducible=True,
        ),
    )
    """Out of memory: the process passed its limit, or torch said so."""
    UNSTABLE = (
        "unstable",
        VerdictFacts(
            group="not run",
            tone="none",
            mark=Mark("U", "eager does not agree with itself"),
            advice="eager disagrees with itself on one input: seed what is random, or leave the input out",
            reusable=True,
            reducible=True,
        ),
    )
    """Two runs of eager do not agree, so no compiler can be judged."""
    NOT_APPLICABLE = (
        "not_applicable",
        VerdictFacts(
            group="not run",
            tone="none",
            mark=Mark("–", "does not apply to this torch"),
            reusable=True,
            uneventful=True,
            skipped=True,
        ),
    )
    """This torch has no such API, or the case needs a newer torch or another package. Or eager cannot run the example
    of a generated case, dies, does not end, or fails an assertion on the GPU, after which the process cannot use it."""
    ENVIRONMENT = (
        "environment",
        VerdictFacts(group="not run", tone="none", mark=Mark("!", "the machine is at fault"), skipped=True),
    )
    """The machine or installation is at fault: the record names the check of `recapture doctor`. Or the case's file was
    edited after the run began."""

    def __str__(self) -> str:
        return str.__str__(self)


def _of_group(group: Group) -> frozenset[Verdict]:
    return frozenset(verdict for verdict in Verdict if verdict.facts.group == group)


RIGHT = _of_group("right")
"""Verdicts of callables that matched eager on every input."""

SILENTLY_WRONG = _of_group("silently wrong")
"""Verdicts of callables that differed from eager without any error."""

FAILING = _of_group("failing")
"""Verdicts of visible failures."""

NOT_RUN = _of_group("not run")
"""Verdicts that say nothing about the compiler."""


FAIL_ON = {
    "silently_wrong": SILENTLY_WRONG,
    "failing": FAILING,
    "breaks": frozenset({Verdict.PASS_WITH_BREAKS}),
    "any": frozenset(verdict for verdict in Verdict if verdict is not Verdict.PASS and not verdict.facts.skipped),
}
"""The words of ``--fail-on`` that are about verdicts, and the verdicts that they name."""


def outcome_of(verdict: Verdict) -> Outcome | None:
    """Return what a verdict amounts to; None if it says nothing about the compiler."""
    return OUTCOMES.get(verdict.facts.group)


def mark_of(verdict: Verdict, phase: str | None) -> Mark:
    """Return the mark of a verdict, which may be another one for a cell that ended in the phase of the capture."""
    facts = verdict.facts
    return facts.mark_at_capture if phase == "capture" and facts.mark_at_capture is not None else facts.mark


def legend() -> dict[str, tuple[str, Tone]]:
    """Return the meaning and the tone of every mark, in the order of the verdicts.

    Of a letter that stands for two outcomes, the capital comes first, because it is the worse one.
    """
    marks = [
        (mark, verdict.facts.tone)
        for verdict in Verdict
        for mark in (verdict.facts.mark, verdict.facts.mark_at_capture)
        if mark is not None
    ]
    letters = [mark.letter.upper() for mark, _ in marks]
    marks.sort(key=lambda marked: (letters.index(marked[0].letter.upper()), marked[0].letter.islower()))
    return {mark.letter: (mark.words, tone) for mark, tone in marks}
