"""What a check of user code says: one row a compiler, with verdict, reason and advice, and one sentence for all."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from recapture.base.text import one_line, plural, shorten
from recapture.records.kinds import KINDS
from recapture.records.verdicts import FAILING, RIGHT, SILENTLY_WRONG, Verdict
from recapture.report.summary import explain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from recapture.records.record import Record

REASON = 220
"""Characters of a row's reason."""

SLOW = 0.1
"""Seconds of a call from which the number of inputs is small because of it."""

FAIL_ON = ("silently_wrong", "failing", "breaks", "any")
"""What ``--fail-on`` and ``raise_if`` look for: silently wrong compilers, failing ones, graph breaks, any of these."""

_OF_A_RESULT = re.compile(
    r"output of the tracer|Tracer cannot infer type|Only tensors, lists|didn't return any values|"
    r"unrecognized type .* at output|^argument of type: <class"
)
"""What tracers and exporters say about a result that they cannot represent."""

_HELD_OUT = re.compile(r"held_out\[(\d+)\]")


class CheckRow(msgspec.Struct, frozen=True, kw_only=True):
    """One compiler: its verdict, on which input, why, and what to do about it.

    `seconds` is the time of its process. `speedup` is eager's time divided by the compiler's, with the ends of its 95 %
    interval, or None if it was not measured; `finding` is what that shows: ``faster``, ``slower``, or neither.
    `other_ranks` are the inputs that an exporter refuses because their tensors have more or fewer dimensions than the
    example's: a program is exported for the ranks of its example, so that they do not count against it.
    """

    compiler: str
    verdict: str
    phase: str | None = None
    input: str | None = None
    reason: str = ""
    advice: str = ""
    differences: tuple[str, ...] = ()
    wrong_on: tuple[str, ...] = ()
    other_ranks: tuple[str, ...] = ()
    break_reasons: tuple[str, ...] = ()
    seconds: float = 0.0
    speedup: tuple[float, float, float] | None = None
    finding: str = ""

    def __post_init__(self) -> None:
        Verdict(self.verdict)  # a kept row may be of another version, and have a verdict that this one does not know

    @property
    def speed(self) -> str:
        """The speed in words: ``1.48× as fast as eager [1.45, 1.53]``; empty if it was not measured."""
        if self.speedup is None:
            return ""
        ratio, low, high = self.speedup
        interval = f"{ratio:.2f}× as fast as eager [{low:.2f}, {high:.2f}]"
        return interval if self.finding in ("faster", "slower") else f"inconclusive: {interval}, {self.finding}"

    @property
    def note(self) -> str:
        """What a reader of a right verdict may want to know, and what does not count against the compiler."""
        right = self.verdict in _values(RIGHT)
        return f"refuses other ranks loudly: {', '.join(self.other_ranks)}" if right and self.other_ranks else ""

    @property
    def is_narrow(self) -> bool:
        """Whether a compiler is right on the example and raises an exception on another input, which eager takes."""
        if self.verdict != Verdict.ERROR:
            return False
        return self.phase in ("call", "backward") and self.input not in (None, "example")

    @property
    def words(self) -> str:
        """The verdict in words: ``silently wrong on batch=1``."""
        if self.verdict in _values(SILENTLY_WRONG):
            more = f" and {plural(len(self.wrong_on) - 1, 'more input')}" if len(self.wrong_on) > 1 else ""
            return f"{self.verdict}: wrong on {self.input}{more}"
        if self.is_narrow:
            return (
                f"right on the example, {'no backward' if self.phase == 'backward' else 'fails loudly'} on {self.input}"
            )
        if self.verdict == Verdict.ERROR:
            where = {
                "capture": "refuses it",
                "call": f"fails on {self.input}",
                "backward": "no backward",
            }
            return f"error: {where.get(self.phase or '', 'fails')}"
        return Verdict(self.verdict).facts.state if self.verdict in _values(RIGHT) else self.verdict


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a check: what was checked, where, on which inputs, and a row for each compiler.

    `inputs` are the names of the held-out inputs, `refused` those that eager itself refuses, with its reason,
    `must_raise` those of them that compilers were called with, `untried` those that were left out. `random` says that
    eager's result depends on the seed.
    """

    target: str
    torch: str
    device: str
    image: str = ""
    inputs: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    must_raise: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()
    random: bool = False
    train: bool = False
    eager_seconds: float = 0.0
    rows: tuple[CheckRow, ...] = ()
    version: Literal[1] = 1

    def with_verdict(self, *verdicts: Verdict) -> list[CheckRow]:
        """Return the rows that have one of some verdicts."""
        return [row for row in self.rows if row.verdict in _values(verdicts)]

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        wrong = [row.compiler for row in self.with_verdict(*SILENTLY_WRONG)]
        narrow = [row.compiler for row in self.rows if row.is_narrow]
        failing = [row.compiler for row in self.with_verdict(*FAILING) if not row.is_narrow]
        right = [row.compiler for row in self.with_verdict(*RIGHT)]
        parts = [
            f"silently wrong under {', '.join(wrong)}" if wrong else "",
            f"right under {', '.join(right)}" if right else "",
            f"right on the example, but refuses other inputs loudly under {', '.join(narrow)}" if narrow else "",
            f"not usable under {', '.join(failing)}" if failing else "",
        ]
        return f"{self.target} on torch {self.torch}: {'; '.join(filter(None, parts)) or 'nothing could be judged'}"

    @property
    def inputs_in_words(self) -> str:
        """How many inputs were tried, refused by eager, and left out."""
        parts = [f"the example and {plural(len(self.inputs), 'held-out input')}"]
        if self.refused:
            tried = f", {len(self.must_raise)} of them tried: they must raise" if self.must_raise else ""
            parts.append(f"{len(self.refused)} refused by eager{tried}")
        if self.untried:
            slow = f" because one call takes {self.eager_seconds:.1f} s" if self.eager_seconds > SLOW else ""
            parts.append(f"{len(self.untried)} left out{slow}")
        return ", ".join(parts)


def _values(verdicts: Iterable[Verdict]) -> set[str]:
    return {one.value for one in verdicts}


def failed(report: CheckReport, wanted: Sequence[str]) -> list[CheckRow]:
    """Return the rows that ``--fail-on`` names; see FAIL_ON."""
    groups: Mapping[str, Iterable[Verdict]] = {
        "silently_wrong": SILENTLY_WRONG,
        "failing": FAILING,
        "breaks": (Verdict.PASS_WITH_BREAKS,),
        "any": [verdict for verdict in Verdict if verdict is not Verdict.PASS and not verdict.facts.skipped],
    }
    verdicts = [one for name in wanted for one in groups[name]]
    return report.with_verdict(*verdicts)


def row_of(record: Record, inputs: Sequence[str], seconds: float = 0.0, *, random: bool = False) -> CheckRow:
    """Return the row of a record; `inputs` are the names of the held-out inputs, `random`: see `CheckReport`."""

    def named(text: str) -> str:
        return _HELD_OUT.sub(lambda found: _name(int(found[1]), inputs), text)

    on = [named(one.input) for one in record.differences]
    return CheckRow(
        compiler=record.compiler,
        verdict=record.verdict.value,
        phase=record.phase,
        input=None if record.input is None else named(record.input),
        reason=named(shorten(_unplaced(explain(record, REASON), record), REASON)),
        advice=_advice(record, named(record.input or ""), random=random),
        differences=tuple(
            named(f"{one.input}: {one.where} ({one.kind}): {one_line(one.detail)}") for one in record.differences
        ),
        wrong_on=tuple(dict.fromkeys(on)),
        other_ranks=tuple(named(one.input) for one in record.noted if one.unlike == "rank"),
        break_reasons=tuple(one_line(one) for one in record.break_reasons),
        seconds=round(seconds, 2),
    )


def _unplaced(text: str, record: Record) -> str:
    """Return a reason without the input at its beginning, which the verdict in words names."""
    return text.removeprefix(f"on {record.input}, ") if record.verdict in SILENTLY_WRONG else text


def _name(index: int, inputs: Sequence[str]) -> str:
    return inputs[index] if index < len(inputs) else f"held_out[{index}]"


def _advice(record: Record, on: str, *, random: bool) -> str:
    """Return what a user can do about an outcome, in one sentence; empty if nothing needs to be done."""
    family = record.compiler.partition(":")[0]
    if record.verdict in SILENTLY_WRONG:
        return _advice_if_wrong(record, family, on, random=random)
    if record.verdict is Verdict.ERROR:
        return _advice_if_refused(record, family, on)
    return record.verdict.facts.advice


def _advice_if_wrong(record: Record, family: str, on: str, *, random: bool) -> str:
    if random and family in ("compile", "aoti"):
        return "the code draws random numbers: torch._inductor.config.fallback_random = True gives eager's"
    kinds = {one.kind for one in record.differences}
    if family in ("jit.trace", "make_fx") and record.verdict is Verdict.SPECIALIZED:
        return (
            f"it recorded the path and sizes of the example, and {on} needs others: use torch.compile or torch.export"
        )
    if family in ("export", "aoti") and record.verdict is Verdict.SPECIALIZED:
        return f"it holds for inputs like the example alone: check inputs first, or export with dynamic shapes ({on})"
    if all(KINDS[kind].side_effect for kind in kinds):
        return "a side effect is lost or done at capture: return the new value instead of changing state"
    if kinds <= {"alias"}:
        return "memory is shared differently: do not write to results or arguments afterwards, or clone them"
    if record.differences and record.differences[0].kind == "type":
        return "the result has another Python type: return a tensor, tuple or dict, or convert it after the call"
    if family == "compile":
        return "compare backend='eager' and backend='aot_eager' above to find the layer, and report it upstream"
    return "do not use it for this code without a test on such inputs"


def _advice_if_refused(record: Record, family: str, on: str) -> str:
    if record.phase == "capture":
        message = "" if record.error is None else record.error.message
        if _OF_A_RESULT.search(message):
            return "it cannot record a result of this type: return tensors or tuples of them, or use torch.compile"
        return {
            "jit.trace": "it cannot record this call: use torch.compile or torch.export",
            "compile": "leave the part out with torch.compiler.disable, and report it upstream",
            "fx": "rewrite the data-dependent Python for symbolic tracing, or use torch.compile",
            "jit.script": "TorchScript does not know this construct: use torch.compile or torch.export",
            "make_fx": "it needs values while tracing: use torch.cond or torch.where, or torch.compile",
            "export": "use torch.cond or torch.where where a value decides, or torch.compile, which breaks the graph",
            "aoti": "it needs a program that torch.export accepts",
        }.get(family, "")
    if family in ("export", "aoti"):
        return f"it refuses {on} loudly: export with dynamic shapes, or once for each kind of input"
    return f"it fails loudly on {on}, where eager works"
