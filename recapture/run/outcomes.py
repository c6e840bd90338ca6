"""The outcome of a task: its own result if that is readable, otherwise a verdict on how its process ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, get_args

import msgspec

from recapture.base.option_fields import GIB
from recapture.base.scrub import without_secrets_inside
from recapture.machine import doctor
from recapture.pool.worker_pool import cause_of_death
from recapture.records.eager_file import check_calls
from recapture.records.record import INPUT, Phase, Record, check_writable
from recapture.records.verdicts import SILENTLY_WRONG, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recapture.pool.protocol import Ended
    from recapture.records.record import ErrorInfo
    from recapture.run.cell import CellResult

MOST_EXPLAINED = 200
"""Characters kept of the reason why a result is unreadable, which may quote the result."""


class Judged(Protocol):
    """The part of a task's result that this module uses: a struct with at least these fields."""

    __struct_fields__: ClassVar[tuple[str, ...]]

    @property
    def verdict(self) -> Verdict:
        """The task's own verdict."""

    @property
    def error(self) -> ErrorInfo | None:
        """The exception that ended the task."""


R = TypeVar("R", bound=Judged)


def accept(result: Judged) -> None:
    """Accept any result of the right type."""


@dataclass(frozen=True)
class OutcomeReader(Generic[R]):
    """Turns the end of a task's process into a result of type `kind`.

    `timeout` (seconds) and `memory` (bytes) are the limits that tasks ran under; `checks` are the doctor's. If a result
    is `explainable` and a failing check explains its error or output, the machine is at fault, not the compiler, and
    the verdict becomes ``environment``; a silently wrong result loses its differences, because nothing was compared.
    `checks` are read only for text that a check could explain.

    `check` raises ValueError for a result that has the right type and that no task of this project gives. Such a result
    is a crash of its cell: in a file, it would make every later reader refuse all results there.
    """

    kind: type[R]
    timeout: float
    memory: int
    checks: Iterable[doctor.Check]
    explainable: Callable[[R], bool]
    check: Callable[[R], None] = accept

    def read(self, ended: Ended, timeout: float | None = None) -> R:
        """Return the outcome of a task that ended; no result that a task leaves makes this raise.

        `timeout` is the task's own limit in seconds, if it had one.
        """
        if ended.cause == "timeout":
            return self._failed(Verdict.TIMEOUT, ended.phase, f"still running after {timeout or self.timeout:g} s")
        if ended.cause == "memory":
            return self._failed(Verdict.OOM, ended.phase, f"used more than {self.memory / GIB:g} GiB")
        # A result of a process that then died in its last steps is not trusted: what killed it may have begun before.
        if ended.result is None or ended.status != 0:
            return self._explained(self._failed(Verdict.CRASH, ended.phase, cause_of_death(ended)), ended)
        try:
            msgspec.json.decode(ended.result, type=self.kind)  # its errors name the place in the text
            result = msgspec.convert(
                without_secrets_inside(msgspec.json.decode(ended.result)), self.kind, str_keys=True
            )
            self.check(result)
        except (ValueError, RecursionError) as error:  # a task may write any bytes
            why = " ".join(str(error).split())[:MOST_EXPLAINED]
            result = self._failed(Verdict.CRASH, ended.phase, f"left an unreadable result: {why}")
        return self._explained(result, ended)

    def crash(self, reason: str) -> R:
        """Return the outcome of a task that was given up."""
        return self._failed(Verdict.CRASH, None, reason)

    def _failed(self, verdict: Verdict, entered: str | None, reason: str) -> R:
        """Return an outcome without a result; `entered` is a phase, alone or with a blank and the name of an input."""
        phase, _, label = (entered or "").partition(" ")
        where: dict[str, str] = {}
        if phase in get_args(Phase):
            where["phase"] = phase
            if INPUT.fullmatch(label) and "input" in self.kind.__struct_fields__:
                where["input"] = label
        return self.kind(verdict=verdict, reason=reason, **where)  # type: ignore[call-arg]

    def _explained(self, result: R, ended: Ended) -> R:
        if not self.explainable(result):
            return result
        kind = result.error.type if result.error else ""
        text = f"{result.error.message if result.error else ''}\n{ended.stderr}"
        check = doctor.explain(kind, text, self.checks)
        if check is None:
            return result
        changed: dict[str, Any] = {"verdict": Verdict.ENVIRONMENT, "reason": check.reason}
        if result.verdict in SILENTLY_WRONG:
            changed |= {"differences": (), "input": None}  # of an eager that the machine broke
        replaced: R = msgspec.structs.replace(result, **changed)  # type: ignore[type-var]
        return replaced


def check_result(result: CellResult) -> None:
    """Raise ValueError for a result of a cell whose record could not be read again."""
    row = Record(case="", compiler="", device="", case_hash="", **recorded_fields(result))
    check_writable(row)
    check_calls(result.eager)


def recorded_fields(result: CellResult) -> dict[str, Any]:
    """Return the fields of a result that its record has."""
    return {name: getattr(result, name) for name in result.__struct_fields__ if name not in ("facts", "eager")}


def explainable(result: CellResult) -> bool:
    """Whether a fault of the machine can be all that a result shows.

    Right results are among them: if eager and a compiled call fail in the same way because of the machine, they agree,
    but that says nothing about the compiler. A silently wrong result shows no more if each of its differences is an
    exception that eager alone raises: where the machine breaks eager, as a numpy does that this torch cannot convert,
    there is nothing to compare with.
    """
    if result.verdict in SILENTLY_WRONG:
        return bool(result.differences) and all(difference.eager_alone_raises for difference in result.differences)
    return result.verdict.facts.may_be_machine
