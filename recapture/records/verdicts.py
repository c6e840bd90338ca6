"""The verdicts of cells, and the groups of verdicts: right, silently wrong, failing, not run."""

from __future__ import annotations

from enum import Enum
from typing import Literal


class Verdict(str, Enum):
    """The result of one cell (case × compiler × device); every planned cell has exactly one."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    """Captured whole. There is no silent difference from eager on any input."""
    PASS_WITH_BREAKS = "pass_with_breaks"  # noqa: S105
    """The same, but the graph was broken. The record says how often and why."""
    SPECIALIZED = "specialized"
    """Right on the example, silently wrong on a held-out input."""
    WRONG = "wrong"
    """Silently wrong on the example itself, or capturing had effects that a call does not have."""
    ERROR = "error"
    """An exception, in the phase `capture`, `call` or `backward`. The record has its type, message and fingerprint."""
    CRASH = "crash"
    """The process died of a signal, or left no result."""
    TIMEOUT = "timeout"
    """The process was still running at its deadline."""
    OOM = "oom"
    """Out of memory: the process passed its limit, or torch said so."""
    UNSTABLE = "unstable"
    """Two runs of eager do not agree, so no compiler can be judged."""
    NOT_APPLICABLE = "not_applicable"
    """This torch has no such API, or the case needs a newer torch or another package. Or eager cannot run the example
    of a generated case, or fails an assertion on the GPU, after which the process cannot use it."""
    ENVIRONMENT = "environment"
    """The machine or installation is at fault. The record names the check of `recapture doctor`."""

    def __str__(self) -> str:
        return self.value


RIGHT = frozenset({Verdict.PASS, Verdict.PASS_WITH_BREAKS})
"""Verdicts of callables that matched eager on every input."""

SILENTLY_WRONG = frozenset({Verdict.SPECIALIZED, Verdict.WRONG})
"""Verdicts of callables that differed from eager without any error."""

FAILING = frozenset({Verdict.ERROR, Verdict.CRASH, Verdict.TIMEOUT, Verdict.OOM})
"""Verdicts of visible failures."""

NOT_RUN = frozenset({Verdict.UNSTABLE, Verdict.NOT_APPLICABLE, Verdict.ENVIRONMENT})
"""Verdicts that say nothing about the compiler."""

Outcome = Literal["right", "wrong", "failing"]
"""What a verdict amounts to: right, silently wrong, or failing."""


def outcome_of(verdict: Verdict) -> Outcome | None:
    """Return what a verdict amounts to; None if it says nothing about the compiler."""
    groups: tuple[tuple[frozenset[Verdict], Outcome], ...] = (
        (RIGHT, "right"),
        (SILENTLY_WRONG, "wrong"),
        (FAILING, "failing"),
    )
    return next((outcome for group, outcome in groups if verdict in group), None)
