"""What a check of user code says: one row a compiler, with verdict, reason and advice, and one sentence for all.

Advice follows from what happened, and from what is known about the target, not from the type of an exception.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from recapture.base.text import one_line, plural, shorten
from recapture.cases.compiler import Family
from recapture.cases.compilers import compiler_facts, shorter_compilers
from recapture.pool.protocol import CALLED_EXIT, DIED, EXITED
from recapture.records.kinds import KINDS
from recapture.records.verdicts import FAIL_ON as VERDICTS_TO_FAIL_ON
from recapture.records.verdicts import FAILING, RIGHT, SILENTLY_WRONG, Verdict
from recapture.report.differences import describe_difference
from recapture.report.summary import explain
from recapture.tools.check.torchscript_message import OF_THE_INTERPRETER, cause

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from recapture.records.record import Record

REASON = 220
"""Characters of a row's reason."""

FAIL_ON = (*VERDICTS_TO_FAIL_ON, "accepts_refused")
"""What ``--fail-on`` and ``raise_if`` look for.

These are silently wrong compilers, failing ones, graph breaks, and any of these. Values where eager raises an exception
count only where they are named.
"""

SHOWN_NAMES = 4
"""The most inputs that are named in a sentence."""

_HELD_OUT = re.compile(r"held_out\[(\d+)\]")

ON_BRANCH = (
    r"data[- ]dependent (branch|control flow|jump|assertion)|generic_jump|dynamic control flow|"
    r"converting a tensor to a Python (boolean|bool)|is_nonzero|symbolically traced variables|bool\(\)"
)
"""What torch says about a branch that a tensor's value decides."""

ON_NUMBER = r"data[- ]dependent expression|guard on data|call_function.*_local_scalar_dense"
"""What torch says about a number read from a tensor, which may decide a branch, a size or a place."""

ON_DATA = rf"{ON_BRANCH}|{ON_NUMBER}|torch\.cond"
"""What torch says about Python that depends on a tensor's value."""

OF_SIZE = r"dynamic shape operator|nonzero|masked_select|boolean (mask|ind)|_unique|data[- ]dependent (output|shape)"
"""What torch says about a result whose size depends on values."""

_UNKNOWN_TO_FX = "symbolically traced variables cannot be used as inputs to control flow"
"""What `torch.fx` says about any branch on what it traces: also one on a size, a dtype or the device."""

_GUARD = re.compile(r"\bguard", re.IGNORECASE)
"""What an exported program says about an input that breaks a condition under which it was exported."""

ENDS_ITS_PROCESS = "the code ends its process"
"""What user code did that called `os._exit` or the like: compilers raise exceptions, or die of signals."""

_CALLED = {"torch.compile": Family.DYNAMO, "torch.export": Family.EXPORT}
"""The family of compilers behind each function of torch that advice recommends."""

_ON_EARLIER_CALLS = "the result depends on earlier calls: pass that state in as a tensor, and return the new one"

ASK_MIGRATE = "`recapture migrate` names the line, and what other code does instead"
"""The advice where nothing more is known; `recapture migrate` itself does not give it."""

_SIDE_EFFECT = "a side effect is lost or done at capture: return the new value instead of changing state"

_TOO_FEW_ARGUMENTS = re.compile(r"Tracing expected \d+ arguments but got \d+")
"""What `make_fx` says where the call leaves an argument to its default."""

_RECORDED_TWICE = "Tracing failed sanity checks"
"""What `torch.jit.trace` says where it records the code again and gets another graph."""

_WHILE_COMPILING = re.compile(r"\b_inductor\b|InductorError|CppCompileError")
"""The types of exceptions that Inductor raises for a program that was captured."""

_OF_A_RESULT = re.compile(
    r"output of the tracer|Tracer cannot infer type|Only tensors, lists|didn't return any values|"
    r"unrecognized type .* at output|^argument of type: <class|cannot be traced\. Only Tensors"
)
"""What tracers and exporters say about an argument or result that they cannot represent."""


class CheckRow(msgspec.Struct, frozen=True, kw_only=True):
    """One compiler: its verdict, on which input, why, and what to do about it.

    `seconds` is the time of its process. `speedup` is eager's time divided by the compiler's, with the ends of its 95 %
    interval, or None if it was not measured; `finding` is what that shows: ``faster``, ``slower``, or neither.
    `other_ranks` are the inputs that an exporter refuses because their tensors have more or fewer dimensions than the
    example's: a program is exported for the ranks of its example, so that they do not count against it.
    `accepts_refused` are the inputs that eager refuses with an exception and the compiler returns a value for.
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
    accepts_refused: tuple[str, ...] = ()
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
        """What a reader may want to know, and what does not count against the compiler."""
        right = self.verdict in _values(RIGHT)
        ranks = f"refuses other ranks loudly: {', '.join(self.other_ranks)}" if right and self.other_ranks else ""
        accepted = f"returns a value where eager raises: {_first(self.accepts_refused)}" if self.accepts_refused else ""
        return "; ".join(filter(None, (ranks, accepted)))

    @property
    def is_narrow(self) -> bool:
        """Whether a compiler is right on the example and raises an exception on another input, which eager takes."""
        return self.verdict == Verdict.ERROR and self.phase in ("call", "backward") and self._on_another_input

    @property
    def dies_elsewhere(self) -> bool:
        """Whether the process of a compiler ends on another input than the example: it dies, or takes too much."""
        return self.verdict in _values(FAILING - {Verdict.ERROR}) and self._on_another_input

    @property
    def code_ends_process(self) -> bool:
        """Whether the user's code ended the process of a compiler, as `os._exit` does: that is no compiler's fault."""
        return self.verdict == Verdict.CRASH and self.reason.startswith(ENDS_ITS_PROCESS)

    @property
    def _on_another_input(self) -> bool:
        return self.input not in (None, "example")

    @property
    def words(self) -> str:
        """The verdict in words: ``silently wrong on batch=1``."""
        if self.verdict in _values(SILENTLY_WRONG):
            more = f" and {plural(len(self.wrong_on) - 1, 'more input')}" if len(self.wrong_on) > 1 else ""
            return f"{self.verdict}: wrong on {self.input}{more}"
        if self.is_narrow:
            how = "no backward" if self.phase == "backward" else "fails loudly"
            return f"right on the example, {how} on {self.input}"
        if self.verdict == Verdict.ERROR:
            where = {"capture": "refuses it", "call": f"fails on {self.input}", "backward": "no backward"}
            return f"error: {where.get(self.phase or '', 'fails')}"
        if self.code_ends_process:
            return f"{self.verdict}: {ENDS_ITS_PROCESS}" + (f" on {self.input}" if self.dies_elsewhere else "")
        if self.dies_elsewhere:
            return f"{self.verdict} on {self.input}"
        words = Verdict(self.verdict).facts.state if self.verdict in _values(RIGHT) else self.verdict
        return f"{words}; accepts what eager refuses" if self.accepts_refused else words


def _first(names: Sequence[str]) -> str:
    """Return the first of some names, and how many more there are."""
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more


class CheckedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """A custom operator of the user's code: where it is defined, and what `torch.library.opcheck` says of its calls.

    `file` is a name without its folder, empty if torch does not tell. `calls` is the number of calls that were tested,
    0 if the example does not reach the operator. `failures` are tests with torch's reasons. `problem` says why it could
    not be tested.
    """

    name: str
    file: str = ""
    line: int = 0
    calls: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    problem: str = ""

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        place = f" ({self.file}:{self.line})" if self.file else ""
        if self.problem:
            answer = f"not tested: {self.problem}"
        elif not self.calls:
            answer = "not tested: the example does not call it"
        elif self.failures:
            tests: dict[str, list[str]] = {}
            for test, reason in self.failures:
                tests.setdefault(reason, []).append(test)
            answer = "; ".join(f"fails {', '.join(names)}: {reason}" for reason, names in tests.items())
        else:
            answer = "passes"
        return f"custom operator {self.name}{place}, torch.library.opcheck: {answer}"


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a check: what was checked, where, on which inputs, and a row for each compiler.

    `inputs` are the names of the held-out inputs, `refused` those that eager itself refuses, with its reason,
    `must_raise` those of them that compilers were called with, `unaffordable` those that eager has not the time or
    memory for, `untried` those beyond the limit. `random` says that eager's result depends on the seed. `remarks` are
    sentences about what could not be compared. `operators` are the custom operators that the target's code defines.
    """

    target: str
    torch: str
    device: str
    image: str = ""
    inputs: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    must_raise: tuple[str, ...] = ()
    unaffordable: tuple[tuple[str, str], ...] = ()
    untried: tuple[str, ...] = ()
    random: bool = False
    train: bool = False
    eager_seconds: float = 0.0
    remarks: tuple[str, ...] = ()
    operators: tuple[CheckedOperator, ...] = ()
    rows: tuple[CheckRow, ...] = ()
    version: Literal[1] = 1

    def with_verdict(self, *verdicts: Verdict) -> list[CheckRow]:
        """Return the rows that have one of some verdicts."""
        return [row for row in self.rows if row.verdict in _values(verdicts)]

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        rows = self.with_verdict(*FAILING)
        ended = [row for row in rows if row.code_ends_process]
        failing = [row for row in rows if row not in ended]
        groups = {
            "silently wrong under": self.with_verdict(*SILENTLY_WRONG),
            "right under": self.with_verdict(*RIGHT),
            "right on the example, but refuses other inputs loudly under": [row for row in failing if row.is_narrow],
            "ends on another input than the example under": [row for row in failing if row.dies_elsewhere],
            "not usable under": [row for row in failing if not row.is_narrow and not row.dies_elsewhere],
            f"{ENDS_ITS_PROCESS} under": ended,
            "accepts what eager refuses under": [row for row in self.rows if row.accepts_refused],
        }
        parts = [f"{words} {', '.join(row.compiler for row in rows)}" for words, rows in groups.items() if rows]
        return f"{self.target} on torch {self.torch}: {'; '.join(parts) or 'nothing could be judged'}"

    @property
    def inputs_in_words(self) -> str:
        """How many inputs were tried, refused by eager, and left out."""
        parts = [f"the example and {plural(len(self.inputs), 'held-out input')}"]
        if self.refused:
            were = "was" if len(self.must_raise) == 1 else "were"
            which = "which" if len(self.refused) == 1 else f"{len(self.must_raise)} of which"
            tried = f", {which} {were} tried as well and must raise" if self.must_raise else ""
            parts.append(f"eager refuses {plural(len(self.refused), 'other')}{tried}")
        ends = [name for name, reason in self.unaffordable if reason.startswith((EXITED, CALLED_EXIT, DIED))]
        if costly := len(self.unaffordable) - len(ends):
            parts.append(f"{costly} left out because eager needs too much time or memory")
        if ends:
            parts.append(f"{len(ends)} left out because eager's process ends")
        if self.untried:
            parts.append(f"{len(self.untried)} left out beyond the limit")
        return "; ".join(parts)


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a target besides its records, and decides what helps.

    `refused` are the labels of inputs that eager refuses. `random` and `depends_on_calls` are about eager's result,
    `size_of_one` says that a tensor of the example has such a size, `compilers` are those that the check runs.
    `sets_fallback_random` says that the target's file sets that option of Inductor. `failing` are the families that
    this check has shown to be right nowhere, which no advice recommends.
    """

    inputs: tuple[str, ...] = ()
    refused: frozenset[str] = frozenset()
    random: bool = False
    depends_on_calls: bool = False
    size_of_one: bool = False
    sets_fallback_random: bool = False
    compilers: tuple[str, ...] = ()
    failing: frozenset[Family] = frozenset()

    def remedies(self, *remedies: str) -> str:
        """Return the end of a sentence of advice: what can be done, without what this check has shown to fail."""
        left = [
            remedy
            for remedy in remedies
            if not any(function in remedy and family in self.failing for function, family in _CALLED.items())
        ]
        joined = ", or " if any("," in remedy or " or " in remedy for remedy in left) else " or "
        return f": use {joined.join(left)}" if left else ""

    def name(self, label: str) -> str:
        """Return the name of an input for its label in a record; a text around labels is kept."""
        return _HELD_OUT.sub(lambda match: self._name(int(match[1])), label)

    def _name(self, index: int) -> str:
        return self.inputs[index] if index < len(self.inputs) else f"held_out[{index}]"


def failing_families(rows: Iterable[CheckRow]) -> frozenset[Family]:
    """Return the families of compilers of which some ran and none is right.

    A static export that refuses other sizes does not count: one with dynamic sizes may take them.
    """
    verdicts: dict[Family, set[bool]] = {}
    for row in rows:
        compiler = compiler_facts(row.compiler)
        if not (row.is_narrow and not compiler.sees_held_out):
            verdicts.setdefault(Family(compiler.family), set()).add(row.verdict in _values(RIGHT))
    return frozenset(family for family, right in verdicts.items() if right == {False})


def _values(verdicts: Iterable[Verdict]) -> set[str]:
    return {verdict.value for verdict in verdicts}


def failed(report: CheckReport, fail_on: Sequence[str]) -> list[CheckRow]:
    """Return the rows that ``--fail-on`` names; see FAIL_ON."""
    verdicts = _values(verdict for name in fail_on for verdict in VERDICTS_TO_FAIL_ON.get(name, ()))
    accepted = "accepts_refused" in fail_on
    return [row for row in report.rows if row.verdict in verdicts or (accepted and row.accepts_refused)]


def row_of(record: Record, around: Circumstances, seconds: float = 0.0) -> CheckRow:
    """Return the row of a record. Values where eager raises an exception are no part of the verdict.

    What such a call leaves behind, such as a write into its argument, is no part of it either: eager refused the call.
    """
    accepted = [
        difference
        for difference in record.differences
        if difference.kind == "exception" and difference.input in around.refused
    ]
    accepted_inputs = {difference.input for difference in accepted}
    others = tuple(difference for difference in record.differences if difference.input not in accepted_inputs)
    if record.verdict is Verdict.SPECIALIZED and not others:
        right = Verdict.PASS_WITH_BREAKS if record.break_reasons else Verdict.PASS
        record = msgspec.structs.replace(record, verdict=right, input=None, differences=())
    elif record.verdict is Verdict.SPECIALIZED:
        record = msgspec.structs.replace(record, input=others[0].input, differences=others)
    name = around.name
    if record.error is not None and record.error.message.startswith(OF_THE_INTERPRETER):
        message = cause(record.error.message, record.error.type)
        record = msgspec.structs.replace(record, error=msgspec.structs.replace(record.error, message=message))
    return CheckRow(
        compiler=record.compiler,
        verdict=record.verdict.value,
        phase=record.phase,
        input=None if record.input is None else name(record.input),
        reason=name(_reason(record)),
        advice=advice_for(record, around),
        differences=tuple(
            name(f"{difference.input}: {difference.where} ({difference.kind}): {one_line(difference.detail)}")
            for difference in others
        ),
        wrong_on=tuple(dict.fromkeys(name(difference.input) for difference in others)),
        other_ranks=tuple(name(note.input) for note in record.noted if note.unlike == "rank"),
        accepts_refused=tuple(dict.fromkeys(name(difference.input) for difference in accepted)),
        break_reasons=tuple(one_line(reason) for reason in record.break_reasons),
        seconds=round(seconds, 2),
    )


def _reason(record: Record) -> str:
    """Return the reason of an outcome, without the input that the verdict in words names.

    A cell that is wrong on the example begins with what differs there. What differs on another input and matters more,
    such as a value beside a side effect, follows.
    """
    text = explain(record, REASON)
    if _code_exits(record):
        return f"{ENDS_ITS_PROCESS}: {text}"
    if record.verdict not in SILENTLY_WRONG:
        return shorten(text, REASON)
    text = shorten(text.removeprefix(f"on {record.input}, "), REASON)
    first, worst = record.differences[0], min(record.differences, key=lambda difference: KINDS[difference.kind].rank)
    if KINDS[worst.kind].rank < KINDS[first.kind].rank:
        text += f"; {shorten(describe_difference(worst), REASON)}"
    return text


def _code_exits(record: Record) -> bool:
    """Whether a process ended with an exit status of its own, before it could report anything."""
    return record.verdict is Verdict.CRASH and record.reason is not None and record.reason.startswith(EXITED)


# --- advice ----------------------------------------------------------------------------------------------------------


def advice_for(record: Record, around: Circumstances) -> str:
    """Return what a user can do about an outcome, in one sentence; empty if nothing needs to be done."""
    if record.verdict in SILENTLY_WRONG:
        return _if_wrong(record, around)
    if record.verdict is Verdict.ERROR:
        return _if_refused(record, around) if record.phase == "capture" else _if_failed(record, around)
    if _code_exits(record):
        return "raise an exception in place of a call such as os._exit: no compiler is at fault"
    if record.input not in (None, "example") and record.verdict in (Verdict.CRASH, Verdict.TIMEOUT):
        return f"do not use it on inputs like {around.name(record.input or '')}, or compare it on others with held_out"
    return record.verdict.facts.advice


def _if_wrong(record: Record, around: Circumstances) -> str:
    compiler = compiler_facts(record.compiler)
    family = compiler.family
    kinds = {difference.kind for difference in record.differences}
    on = around.name(record.input or "")
    if around.depends_on_calls and not kinds & {"dtype", "shape", "type"}:
        return _ON_EARLIER_CALLS
    others = tuple(difference for difference in record.differences if not KINDS[difference.kind].side_effect)
    if others and others[0] != record.differences[0]:
        remainder = msgspec.structs.replace(record, input=others[0].input, differences=others)
        if remainder.input != "example":
            remainder = msgspec.structs.replace(remainder, verdict=Verdict.SPECIALIZED)
        return f"{_SIDE_EFFECT}; {_if_wrong(remainder, around)}"
    if around.random and kinds <= {"value"}:
        if compiler.generates_code and not around.sets_fallback_random:
            return "the code draws random numbers: torch._inductor.config.fallback_random = True gives eager's"
        return "the code draws random numbers, and these are others than eager's"
    if kinds <= {"state"}:
        return (
            "a setting differs after the call: change settings outside of the code, and set them back where it raises"
        )
    if all(KINDS[kind].side_effect for kind in kinds):
        return _SIDE_EFFECT
    if kinds <= {"alias"}:
        return "memory is shared differently: do not write to results or arguments afterwards, or clone them"
    if kinds <= {"gradient"}:
        return "the gradients differ and the results do not: do not train through it"
    if record.differences[0].kind == "type":
        return "the result has another Python type: return a tensor, tuple or dict, or convert it after the call"
    if " is args" in on or " overlaps args" in on:
        return "tensors that share memory change one another: clone one of them before the call"
    if family in (Family.TRACE, Family.ATEN) and record.verdict is Verdict.SPECIALIZED:
        return f"it recorded the path and sizes of the example, and {on} needs others{around.remedies(*_CALLED)}"
    if family in (Family.EXPORT, Family.AOTI) and record.verdict is Verdict.SPECIALIZED:
        return f"it holds for inputs like the example alone: compare inputs such as {on} with the example before a call"
    if family == Family.DYNAMO:
        layers = [name for name in shorter_compilers(family) if name in around.compilers and name != record.compiler]
        compare = f"compare {' and '.join(layers)} above to find the layer, and report" if layers else "report"
        return f"{compare} it upstream"
    return "do not use it for this code without a test on such inputs"


def _if_refused(record: Record, around: Circumstances) -> str:
    message = "" if record.error is None else record.error.message
    family = compiler_facts(record.compiler).family
    # A tracer runs the code again to check what it recorded, so that such code fails at capture.
    if around.depends_on_calls and _RECORDED_TWICE in message:
        return _ON_EARLIER_CALLS
    if family == Family.AOTI and record.error is not None and _WHILE_COMPILING.search(record.error.type):
        remedy = "" if Family.EXPORT in around.failing else ": run the exported program instead"
        return f"torch.export accepts the program, and Inductor cannot compile it{remedy}"
    if _OF_A_RESULT.search(message):
        remedies = around.remedies("tensors and tuples of them", "torch.compile")
        return f"it cannot record an argument or result of this type{remedies}"
    if _TOO_FEW_ARGUMENTS.search(message):
        return "it does not fill in defaults: give every argument with --input or --inputs"
    if _UNKNOWN_TO_FX in message:
        remedies = around.remedies("torch.compile", "a Tracer whose is_leaf_module keeps its module whole")
        return f"a branch needs a value, size or device, which fx does not know while it traces{remedies}"
    if re.search(ON_BRANCH, message, re.IGNORECASE):
        remedies = around.remedies("torch.where or torch.cond", "torch.compile, which breaks the graph")
        return f"a tensor's value decides a branch{remedies}"
    # Torch does not tell what the number is for: torch.cond would be no help with a size or a place.
    if re.search(ON_NUMBER, message, re.IGNORECASE):
        remedies = around.remedies("a tensor in its place", "torch.compile, which breaks the graph")
        return f"a number is read from a tensor{remedies}"
    if re.search(OF_SIZE, message, re.IGNORECASE):
        remedies = around.remedies("a mask as a weight, which keeps the size", "torch.compile")
        return f"a size depends on the values{remedies}"
    by_family: dict[str, str] = {
        Family.TRACE: f"it cannot record this call{around.remedies(*_CALLED)}",
        Family.DYNAMO: "leave the part out with torch.compiler.disable, and report it upstream",
        Family.SYMBOLIC: f"it cannot trace this Python symbolically{around.remedies('torch.compile')}",
        Family.SCRIPT: f"TorchScript does not know this construct{around.remedies(*_CALLED)}",
        Family.AOTI: "it needs a program that torch.export accepts",
    }
    return by_family.get(family, ASK_MIGRATE)


def _if_failed(record: Record, around: Circumstances) -> str:
    """Return what helps where a call or backward raises, and eager's does not."""
    compiler = compiler_facts(record.compiler)
    on = around.name(record.input or "the example")
    if compiler.family in (Family.TRACE, Family.ATEN) and record.phase == "call" and record.input != "example":
        return f"it recorded the path and sizes of the example, and {on} needs others{around.remedies(*_CALLED)}"
    if compiler.family not in (Family.EXPORT, Family.AOTI):
        return f"it fails loudly on {on}, where eager works"
    if not compiler.sees_held_out:
        return f"it refuses {on} loudly: export with dynamic shapes, or once for each kind of input"
    if around.size_of_one:
        return f"it refuses {on} loudly: the example has a size of 1, which torch takes as fixed: use 2 or more"
    if _GUARD.search("" if record.error is None else record.error.message):
        return f"it refuses {on} loudly: the program holds under the condition that the message names"
    return f"it refuses {on} loudly: export once for each kind of input"
