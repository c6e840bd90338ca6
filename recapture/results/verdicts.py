"""The verdicts a cell can end with, and what each says about right, wrong and silence."""

from __future__ import annotations

from enum import Enum

__all__ = ["FAILING", "NOT_RUN", "RIGHT", "SILENTLY_WRONG", "Verdict"]


class Verdict(str, Enum):
    """How one cell (case × compiler × device) ended; every planned cell has exactly one."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    PASS_WITH_BREAKS = "pass_with_breaks"  # noqa: S105
    SPECIALIZED = "specialized"
    WRONG = "wrong"
    ERROR = "error"
    CRASH = "crash"
    TIMEOUT = "timeout"
    OOM = "oom"
    UNSTABLE = "unstable"
    NOT_APPLICABLE = "not_applicable"
    ENVIRONMENT = "environment"

    def __str__(self) -> str:
        return self.value


RIGHT = frozenset({Verdict.PASS, Verdict.PASS_WITH_BREAKS})
"""The compiled callable did what eager does, on every input."""

SILENTLY_WRONG = frozenset({Verdict.SPECIALIZED, Verdict.WRONG})
"""It returned something else than eager and said nothing."""

FAILING = frozenset({Verdict.ERROR, Verdict.CRASH, Verdict.TIMEOUT, Verdict.OOM})
"""It failed loudly."""

NOT_RUN = frozenset({Verdict.UNSTABLE, Verdict.NOT_APPLICABLE, Verdict.ENVIRONMENT})
"""Nothing is said about the compiler."""
