"""Why a cell is silently wrong, from the kinds of its differences and the nature of its compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.cases.compiler import Family
from recapture.cases.compilers import compiler_facts, plain_compiler, shorter_compilers
from recapture.records.record import EXAMPLE
from recapture.records.verdicts import RIGHT, SILENTLY_WRONG, Verdict
from recapture.report.reasons.sentence import Reason, family

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from recapture.records.difference import Difference, InputChange
    from recapture.records.record import Record

_PROXY = "torch.fx.proxy.Proxy"
"""The type of what fx passes through the code that it traces."""

SHORT = 70
"""Characters of the longest detail that is quoted."""

RETURNED: dict[str, str] = {
    Family.TRACE: "a trace returns tensors and plain containers of tensors alone",
    Family.SCRIPT: "TorchScript has types of its own",
    Family.EXPORT: "an exported program returns tensors, numbers and registered containers alone",
    Family.AOTI: "the library returns tensors alone",
    Family.ATEN: "make_fx records tensors alone",
    Family.SYMBOLIC: "the type of eager's result depends on Python that ran once, on proxies",
    Family.DYNAMO: "Dynamo builds the result anew around the graph's tensors",
    Family.ONNX: "ONNX returns tensors alone",
}
"""What each family of compilers can return."""


def silent_reason(record: Record, beside: Sequence[Record]) -> Reason:
    """Return why a silently wrong cell differs from eager; `beside` are records of the same case."""
    if compiler_facts(record.compiler).is_reference:
        return Reason("rewrite", f"the rewrite is not equivalent to the original function: it differs {_on(record)}")
    first = [difference for difference in record.differences if difference.input == record.input]
    # The first rule that applies decides: rules about effects and exceptions come before those about values, which
    # follow from them.
    for rule in _RULES:
        reason = rule(record, first)
        if reason is not None:
            return _with_stage(record, reason, beside)
    return _computed(record, beside)


def _on(record: Record) -> str:
    words = {"capture": "while capturing", "original": "in the original function, after the capture"}
    return words.get(record.input or "", f"on {record.input}")


def _output(record: Record, first: Sequence[Difference]) -> Reason | None:
    if not first or first[0].kind != "output":
        return None
    how = (
        "not in the compiled call"
        if family(record.compiler) == Family.DYNAMO
        else "once, at capture, and not in a call"
    )
    return Reason("lost effect", f"what the code prints, warns or logs appears {how}: Python outside the graph")


def _proxy(_: Record, first: Sequence[Difference]) -> Reason | None:
    if not any(_PROXY in (difference.eager or "", difference.other or "") for difference in first):
        return None
    return Reason(
        "lost effect", "tracing replaced state by a proxy and left it there: the code assigns to it, and fx ran it once"
    )


def unlike_example(record: Record) -> bool:
    """Whether a cell is right on the example, and wrong on an input that it says has other sizes, dtypes or values."""
    first = [difference for difference in record.differences if difference.input == record.input]
    unlike = any(difference.changes or difference.kind in ("shape", "dtype", "type") for difference in first)
    return record.verdict is Verdict.SPECIALIZED and unlike


def _unlike(record: Record, first: Sequence[Difference]) -> Reason | None:
    if family(record.compiler) != Family.AOTI or not unlike_example(record):
        return None
    changes = next((difference.changes_in_words(_change) for difference in first if difference.changes), "")
    form = next((difference for difference in first if difference.kind in ("shape", "dtype", "type")), None)
    how = changes or _short_words(form)
    text = f"the library is compiled for inputs like the example, and takes {record.input} for one unchecked: {how}"
    return Reason("unchecked input", text)


def _change(change: InputChange) -> str:
    """Return a change of an input in words; one of the order of items says so, where the numbers are the same."""
    reordered = change.what == "items" and change.value == change.example
    return f"{change.where} has its items in another order" if reordered else str(change)


def _short_words(difference: Difference | None) -> str:
    """Return a difference in a few words; empty for one that takes too many."""
    if difference is None or len(difference.detail) > SHORT:
        return ""
    return f"{difference.where} {difference.kind}: {difference.detail}"


def _effect(record: Record, first: Sequence[Difference]) -> Reason | None:
    changed = next((difference for difference in first if difference.kind == "mutation"), None)
    if changed is None:
        return None
    place, detail = changed.where, f" ({changed.detail})" if len(changed.detail) <= SHORT else ""
    kind = family(record.compiler)
    # Where eager sets a place and the capture does not, the code ran and its effect was lost: the rules below say so.
    set_by_capture = changed.unlike == "set" and changed.eager is None
    if changed.input == "capture" or set_by_capture:
        return Reason("lost effect", f"capturing itself changes {place}, which eager leaves alone in that way{detail}")
    if kind == Family.DYNAMO:
        return Reason("compiled", f"the compiled call leaves {place} with another content than eager{detail}")
    if kind == Family.SCRIPT:
        return Reason("own language", f"TorchScript does not change {place} as Python does{detail}")
    # Both export the module first, and the program then owns copies of its tensors.
    if kind in (Family.AOTI, Family.ONNX) and place.startswith("state["):
        return Reason("lost effect", f"the compiled program has copies of the module's tensors: {place} is not updated")
    if place.startswith("args") and changed.elements is not None:
        how = "the write to {} goes past the recorded operators, or is recorded as an operation on a copy"
        return Reason("lost effect", f"{how.format(place)}{detail}")
    text = f"Python ran once, at capture: the change of {place} that each eager call makes is not in the graph{detail}"
    return Reason("lost effect", text)


def _exception(record: Record, first: Sequence[Difference]) -> Reason | None:
    raised = next((difference.eager for difference in first if difference.eager_alone_raises), None)
    if raised is None:
        return None
    kind = family(record.compiler)
    if kind == Family.SCRIPT:
        return Reason("lost exception", f"TorchScript computes a result {_on(record)} where Python raises {raised}")
    if kind == Family.DYNAMO:
        return Reason("lost exception", f"the graph computes a result {_on(record)} where eager raises {raised}")
    text = f"the check that raises {raised} {_on(record)} is not part of the graph, which returns a result"
    return Reason("lost exception", text)


def _type(record: Record, first: Sequence[Difference]) -> Reason | None:
    types = next((difference for difference in first if difference.kind == difference.unlike == "type"), None)
    if types is None or (record.verdict is Verdict.SPECIALIZED and family(record.compiler) != Family.DYNAMO):
        return None
    why = RETURNED.get(family(record.compiler), "the compiler returns what its graph can hold")
    return Reason("other type", f"{why}: {types.other} in the place of eager's {types.eager}")


def _alias(record: Record, first: Sequence[Difference]) -> Reason | None:
    if not first or first[0].kind != "alias":
        return None
    difference = first[0]
    text = f"{difference.where} {difference.detail}"
    if difference.unlike == "memory" and difference.eager is None:
        text += ": a copy that eager makes was left out"
    elif difference.unlike == "memory":
        text += ": it is a copy where eager returns a view or the tensor itself"
    return Reason("shared memory", f"{text}, which a later write shows ({_on(record)})")


def _after(_: Record, first: Sequence[Difference]) -> Reason | None:
    if not first or first[0].kind != "state":
        return None
    what = f"{first[0].where} ({first[0].detail})"
    return Reason("lost effect", f"afterwards something outside the graph is different: {what}")


def _gradient(record: Record, first: Sequence[Difference]) -> Reason | None:
    """Return the reason of a gradient that differs although the values of the results do not."""
    kind = family(record.compiler)
    gradual = all(difference.kind == "gradient" or difference.unlike == "requires_grad" for difference in first)
    if kind in (Family.DYNAMO, Family.SCRIPT) or record.verdict is Verdict.SPECIALIZED or not first or not gradual:
        return None
    required = {difference.eager for difference in first if difference.unlike == "requires_grad"}
    if "True" in required or any(
        difference.unlike == "gradient" and difference.eager is not None for difference in first
    ):
        how = "the graph records no operators between the argument and the result that autograd could follow back"
    elif "False" in required:
        how = "the graph has the operators, but not that gradients were off (no_grad, detach, a gradient as a result)"
    else:
        how = (
            "the graph has the operators of the forward pass, and autograd differentiates these alone: no_grad, "
            "`detach_`, hooks and the backward of an autograd.Function are not in it"
        )
    quotes = [_short_words(difference) for difference in first if difference.kind == "gradient"]
    quote = next(filter(None, quotes), "")
    return Reason("capture changes it", f"{how}{f': {quote}' if quote else ''}")


_RULES: tuple[Callable[[Record, Sequence[Difference]], Reason | None], ...] = (
    _output,
    _proxy,
    _unlike,
    _effect,
    _exception,
    _type,
    _alias,
    _after,
    _gradient,
)
"""Rules in the order in which they are tried, from the most telling difference to the least."""


def _computed(record: Record, beside: Sequence[Record]) -> Reason:
    """Return the reason of a difference in values, dtypes, shapes or gradients."""
    on, kind = _on(record), family(record.compiler)
    specialized = record.verdict is Verdict.SPECIALIZED
    quote = f": {words}" if (words := _short_words(next(iter(record.differences), None))) else ""
    if kind == Family.DYNAMO:
        return _with_stage(record, Reason("compiled", f"the compiled call gives another result {on}{quote}"), beside)
    if kind == Family.AOTI and specialized:
        return _like_example(record, beside, quote)
    if kind == Family.SCRIPT:
        sentence = record.differences[0].detail if record.differences else ""
        text = f"TorchScript infers types and computes with rules of its own, other than Python's: {sentence}"
        return Reason("own language", f"{text} {on}")
    if not specialized:
        return Reason("capture changes it", f"{_UNREPEATED.get(kind, _UNREPEATED[Family.EXPORT])}{quote}")
    if kind == Family.TRACE:
        warned = any("TracerWarning" in note for note in record.notes)
        constant = (
            "a number or decision that Python took from a tensor (torch warned: TracerWarning)"
            if warned
            else "what Python computed from the example's sizes, dtypes or flags, without a warning"
        )
        return Reason("recorded path", f"the trace keeps {constant}; {record.input} needs another")
    fixes = compiler_facts(record.compiler).fixes_values
    text = _FIXED if fixes else _KEPT.get(kind, "the captured path is the example's")
    return Reason("recorded path", text.format(input=record.input))


def _is_static_export(name: str) -> bool:
    compiler = compiler_facts(name)
    return compiler.family == Family.EXPORT and not compiler.sees_held_out


def _like_example(record: Record, beside: Sequence[Record], quote: str) -> Reason:
    """Return the reason of a wrong result of AOTInductor on an input with the example's sizes and dtypes."""
    others = {other.compiler: other for other in beside if other.device == record.device and other.case == record.case}
    static = [name for name in others if _is_static_export(name)]
    if any(_same(record, others[name]) for name in static):
        text = (
            f"the exported program is wrong already (export is too): it is the path of the example, and {record.input} "
        )
        return Reason("recorded path", f"{text}needs another")
    compiled = others.get(plain_compiler(Family.DYNAMO))
    if compiled is not None and _same(record, compiled):
        return Reason("Inductor", f"Inductor is at fault (compile is wrong in the same way){quote}")
    how = "with sizes and dtypes of the example; what else differs is not checked, or the generated code is at fault"
    return Reason("unchecked input", f"another result on {record.input}, {how}{quote}")


_FIXED = (
    "concrete_args fixes the path that the example takes; {input} needs another, and the check of the fixed values "
    "does not see it: a tensor is not checked, and equal numbers of two types pass"
)
"""What a compiler that fixes Python values keeps of the code."""

_KEPT: dict[str, str] = {
    Family.ATEN: "make_fx keeps the operators that the example ran, with its branches, loop counts and Python numbers; "
    "{input} needs others",
    Family.SYMBOLIC: "fx ran the Python code once on proxies and keeps that path; {input} needs another",
    Family.EXPORT: "the exported program is the path of the example; its guards accept {input}, which needs another: "
    "they check sizes and Python values, but not dtypes, None, requires_grad, or the sign of zero",
    Family.ONNX: "the ONNX program is the path of the example; {input} needs another",
}
"""What the compilers that run the Python code once keep of it."""

_UNREPEATED: dict[str, str] = {
    Family.ATEN: "what the code does outside torch's operators (numpy, random numbers, .data) ran at capture alone: "
    "its result is a constant of the graph, or missing",
    Family.TRACE: "what the code does outside torch's operators (numpy, .data, looking up a size) ran once, with "
    "tensors in the place of sizes: its result is a constant of the trace, or missing",
    Family.SYMBOLIC: "the code ran once, on proxies: what asks for a type, a size or a mode went another way than on "
    "tensors, and what numpy and other libraries computed is a constant",
    Family.EXPORT: "already the captured program computes something else: random numbers drawn at another time, code "
    "that asks whether it is compiled, or a function that capturing replaces by one with other rules",
    Family.ONNX: "ONNX has other rules than torch for an operator of the code (dtypes, random numbers), or the "
    "exported program computes something else already",
}
"""Why a graph is wrong on the very input that it was captured with."""


def _with_stage(record: Record, reason: Reason, beside: Sequence[Record]) -> Reason:
    """Return a reason for `torch.compile` with the stage at fault, as far as cells of the same case tell."""
    if family(record.compiler) != Family.DYNAMO:
        return reason
    others = {other.compiler: other for other in beside if other.device == record.device and other.case == record.case}
    ends = {stage: name for name, stage in shorter_compilers(Family.DYNAMO).items()}
    dynamo, aot = others.get(ends["dynamo"]), others.get(ends["aot_autograd"])
    stage = compiler_facts(record.compiler).last_stage
    again = f" after {record.recompiles} recompilations" if (record.recompiles or 0) > 1 else ""
    generic = reason.kind == "compiled"
    if stage == "dynamo" or (dynamo is not None and _same(record, dynamo)):
        if record.input != EXAMPLE and generic:
            how = (
                f"its guards accept {record.input} for a graph that does not hold for it, or an operation has another "
            )
            how += f"meaning in the graph{_quoted(record)}"
        elif generic:
            how = "an operation has another meaning in the graph, random numbers are drawn in another way, or the code "
            how += f"asks whether it is compiled{_quoted(record)}"
        else:
            how = reason.text
        return Reason("Dynamo", f"Dynamo's capture is at fault (its graphs, run eagerly, are wrong too){again}: {how}")
    if dynamo is None or dynamo.verdict not in RIGHT:
        return reason
    if stage == "aot_autograd" or (aot is not None and _same(record, aot)):
        return Reason("AOTAutograd", f"AOTAutograd is at fault ({dynamo.compiler} is right): {reason.text}")
    if aot is None or aot.verdict not in RIGHT:
        return reason
    return Reason("Inductor", f"Inductor is at fault ({dynamo.compiler} and {aot.compiler} are right): {reason.text}")


def _quoted(record: Record) -> str:
    words = _short_words(next(iter(record.differences), None))
    return f" ({words})" if words else ""


def eager_raises(records: Sequence[Record], label: str | None) -> str:
    """Return the type that eager raises on an input, as cells that return there have recorded it; empty if none has."""
    types = (
        difference.eager
        for record in records
        for difference in record.differences
        if difference.input == label and difference.eager_alone_raises and difference.eager is not None
    )
    return next(types, "")


def _same(record: Record, other: Record) -> bool:
    """Whether another compiler is silently wrong in the same way on the same input."""
    if other.verdict not in SILENTLY_WRONG:
        return False
    places = {(difference.input, difference.where, difference.kind) for difference in other.differences}
    return any((difference.input, difference.where, difference.kind) in places for difference in record.differences)
