"""Says what a user can do about an outcome, in one sentence. It follows from what happened, not from the compiler."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from recapture.cases.compiler import Family
from recapture.cases.compilers import compiler_facts, shorter_compilers
from recapture.records.kinds import KINDS
from recapture.records.verdicts import SILENTLY_WRONG, Verdict

if TYPE_CHECKING:
    from recapture.records.record import Record
    from recapture.tools.check.answers import Circumstances

ON_DATA = (
    r"data[- ]dependent (branch|expression|control flow|jump|assertion)|guard on data|generic_jump|"
    r"dynamic control flow|"
    r"converting a tensor to a Python (boolean|bool)|is_nonzero|symbolically traced variables|bool\(\)|"
    r"call_function.*_local_scalar_dense|torch\.cond"
)
"""What torch says about a branch that a tensor's value decides."""

OF_SIZE = r"dynamic shape operator|nonzero|masked_select|boolean (mask|ind)|_unique|data[- ]dependent (output|shape)"
"""What torch says about a result whose size depends on values."""

_OF_A_RESULT = re.compile(
    r"output of the tracer|Tracer cannot infer type|Only tensors, lists|didn't return any values|"
    r"unrecognized type .* at output|^argument of type: <class"
)
"""What tracers and exporters say about a result that they cannot represent."""


def advice_for(record: Record, around: Circumstances) -> str:
    """Return what a user can do about an outcome, in one sentence; empty if nothing needs to be done."""
    if record.verdict in SILENTLY_WRONG:
        return _if_wrong(record, around)
    if record.verdict is Verdict.ERROR:
        return _if_refused(record) if record.phase == "capture" else _if_failed(record, around)
    if record.input not in (None, "example") and record.verdict in (Verdict.CRASH, Verdict.TIMEOUT):
        return f"do not use it on inputs like {around.name(record.input or '')}, or compare it on others with held_out"
    return record.verdict.facts.advice


def _if_wrong(record: Record, around: Circumstances) -> str:
    compiler = compiler_facts(record.compiler)
    family = compiler.family
    kinds = {difference.kind for difference in record.differences}
    on = around.name(record.input or "")
    if around.depends_on_calls and not kinds & {"dtype", "shape", "type"}:
        return "the result depends on earlier calls: pass that state in as a tensor, and return the new one"
    if around.random and kinds <= {"value"}:
        if compiler.generates_code and not around.sets_fallback_random:
            return "the code draws random numbers: torch._inductor.config.fallback_random = True gives eager's"
        return "the code draws random numbers, and these are others than eager's"
    if kinds <= {"state"}:
        return "a setting of torch is left changed after the call: set it back, also where the call raises"
    if all(KINDS[kind].side_effect for kind in kinds):
        return "a side effect is lost or done at capture: return the new value instead of changing state"
    if kinds <= {"alias"}:
        return "memory is shared differently: do not write to results or arguments afterwards, or clone them"
    if kinds <= {"gradient"}:
        return "the gradients differ and the results do not: do not train through it"
    if record.differences[0].kind == "type":
        return "the result has another Python type: return a tensor, tuple or dict, or convert it after the call"
    if " is args" in on or " overlaps args" in on:
        return "tensors that share memory change one another: clone one of them before the call"
    if family in (Family.TRACE, Family.ATEN) and record.verdict is Verdict.SPECIALIZED:
        return (
            f"it recorded the path and sizes of the example, and {on} needs others: use torch.compile or torch.export"
        )
    if family in (Family.EXPORT, Family.AOTI) and record.verdict is Verdict.SPECIALIZED:
        return f"it holds for inputs like the example alone: compare inputs such as {on} with the example before a call"
    if family == Family.DYNAMO:
        layers = [name for name in shorter_compilers(family) if name in around.compilers and name != record.compiler]
        compare = f"compare {' and '.join(layers)} above to find the layer, and report" if layers else "report"
        return f"{compare} it upstream"
    return "do not use it for this code without a test on such inputs"


def _if_refused(record: Record) -> str:
    message = "" if record.error is None else record.error.message
    if _OF_A_RESULT.search(message):
        return "it cannot record a result of this type: return tensors or tuples of them, or use torch.compile"
    if re.search(ON_DATA, message, re.IGNORECASE):
        return (
            "a tensor's value decides a branch: use torch.where or torch.cond, or torch.compile, which breaks the graph"
        )
    if re.search(OF_SIZE, message, re.IGNORECASE):
        return "a size depends on the values: keep the size and use a mask as a weight, or use torch.compile"
    by_family: dict[str, str] = {
        Family.TRACE: "it cannot record this call: use torch.compile or torch.export",
        Family.DYNAMO: "leave the part out with torch.compiler.disable, and report it upstream",
        Family.SYMBOLIC: "it cannot trace this Python symbolically: use torch.compile",
        Family.SCRIPT: "TorchScript does not know this construct: use torch.compile or torch.export",
        Family.AOTI: "it needs a program that torch.export accepts",
    }
    return by_family.get(
        compiler_facts(record.compiler).family, "`recapture migrate` names the line, and what other code does instead"
    )


def _if_failed(record: Record, around: Circumstances) -> str:
    """Return what helps where a call or backward raises, and eager's does not."""
    compiler = compiler_facts(record.compiler)
    on = around.name(record.input or "the example")
    if compiler.family not in (Family.EXPORT, Family.AOTI):
        return f"it fails loudly on {on}, where eager works"
    if not compiler.sees_held_out:
        return f"it refuses {on} loudly: export with dynamic shapes, or once for each kind of input"
    if around.size_of_one:
        return f"it refuses {on} loudly: the example has a size of 1, which torch takes as fixed: use 2 or more"
    return f"it refuses {on} loudly: torch fixed a size or value of the example, which its message names"
