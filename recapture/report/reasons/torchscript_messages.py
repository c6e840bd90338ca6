"""Rules for what TorchScript says, when it compiles a source and when it traces."""

from __future__ import annotations

from recapture.cases.compiler import Family
from recapture.report.reasons.sentence import rule

TORCHSCRIPT = [
    rule(
        "unsupported code",
        r"Freezing is currently only implemented for modules in eval mode",
        "`torch.jit.freeze` takes modules in evaluation mode alone: call `.eval()` before",
        (Family.TRACE, Family.SCRIPT),
    ),
    rule(
        "data-dependent",
        r"type Tensor doesn't define __(?P<what>\w+)__ method"
        r"|expected \(.*<class 'int'>.*\), got <class 'torch\.Tensor'>",
        "a size or a number of the code is a tensor while it is traced, and the code needs a Python number: {first}",
        (Family.TRACE,),
        "capture",
    ),
    rule(
        "unsupported code",
        r"function '(?P<what>\w+)' is called recursively",
        "TorchScript does not compile a function that calls itself: {what}",
        (Family.SCRIPT,),
    ),
    rule(
        "unsupported code",
        r"has no attribute '(?P<name>\w+)' \(This function exists.*error stack is reproduced here:"
        r"\s*(?P<why>[^\n]+?):?\n",
        "TorchScript cannot compile the function {name} that the module holds: {why}",
        (Family.SCRIPT,),
    ),
    rule(
        "needs tensors",
        r"Inferred the value for argument '(?P<name>\w+)' to be of type 'Tensor'",
        "TorchScript takes an argument without annotation for a Tensor, and the code passes it as {name}: annotate it",
        (Family.SCRIPT,),
    ),
    rule(
        "needs tensors",
        r"Expected a value of type 'Tensor \(inferred\)' for argument '(?P<name>\w+)' but instead found type "
        r"'(?P<found>[^']+)'.*Declaration",
        "TorchScript takes an argument without annotation for a Tensor, and {name} is {found} {during}: annotate it",
        (Family.SCRIPT,),
        "call",
    ),
    rule(
        "unsupported code",
        r"Error: (?P<what>[\w .']+?) (?:aren't|isn't|is not|are not) (?:currently )?supported"
        r"(?: in Torchscript)?[.:]?\s*\n",
        "TorchScript compiles a part of Python alone, without this construct: {what}",
        (Family.SCRIPT,),
        "capture",
    ),
    rule(
        "unsupported code",
        r"Python builtin <built-in (?:function|method) (?P<what>\w+)[^>]*> is currently not supported",
        "TorchScript cannot call the Python builtin {what}",
        (Family.SCRIPT,),
    ),
    rule(
        "unsupported code",
        r"Unknown builtin op: (?P<what>\S+?)\.\n",
        "TorchScript does not know the operator {what}",
        (Family.SCRIPT,),
    ),
    rule(
        "unsupported code",
        r"python value of type '(?P<what>[^']+)' cannot be used as a value",
        "TorchScript cannot use a Python object from outside the function, here of type {what}: pass it as an argument",
        (Family.SCRIPT,),
    ),
    rule(
        "unsupported code",
        r"cannot create weak reference to '(?P<what>[^']+)'",
        "TorchScript cannot compile what the code calls: an object of type {what} has no source",
        (Family.SCRIPT,),
    ),
    rule(
        "needs tensors",
        r"'?Tensor \(inferred\)'? object has no attribute|indexing tensor with unsupported index type"
        r"|non-class: Tensor \(inferred\)|Inferred (?:the value for argument )?'\w+' to be of type 'Tensor'"
        r"|found type 'Tensor \(inferred\)'|Expected a proper Tensor but got None",
        "TorchScript takes an argument without annotation for a Tensor, and the code uses it otherwise: {first}",
        (Family.SCRIPT,),
    ),
    rule(
        "unsupported code",
        r"'(?P<what>[\w.]+)' object has no attribute or method '(?P<name>\w+)'",
        "TorchScript's {what} has no {name}",
        (Family.SCRIPT,),
    ),
    rule(
        "other exception",
        r"torch\.jit\.Error: .*\n(?:RuntimeError: |torch\.jit\.Error: )?(?P<what>[^\n]+)$",
        "TorchScript raises its own torch.jit.Error {during}, which an `except` for eager's does not catch: {what}",
        (Family.SCRIPT,),
        "call",
    ),
    rule(
        "needs tensors",
        r"Expected a default value of type Tensor \(inferred\) on parameter \"(?P<name>\w+)\"",
        "TorchScript takes an argument without annotation for a Tensor, and the default of {name} is none: annotate it",
        (Family.SCRIPT,),
    ),
    rule(
        "unsupported code",
        r"^\w*RuntimeError: (?P<what>[\w.:]+)\([^\n]*\) -> [^\n]*\n(?P<why>[^\n]+)",
        "TorchScript's {what} takes other arguments than Python's: {why}",
        (Family.SCRIPT,),
        "capture",
    ),
    rule(
        "unsupported code",
        r"undefined value (?P<what>\w+):[^~]*torch/utils/_contextlib\.py",
        "a decorator of torch wraps the function, and TorchScript looks up {what} in the decorator's module, not in "
        "the function's",
        (Family.SCRIPT,),
    ),
    rule(
        "unsupported code",
        r"RecursionError",
        "TorchScript compiles what a function calls, and these call each other without end",
        (Family.SCRIPT,),
        "capture",
    ),
    rule(
        "unsupported code",
        r"builtin cannot be used as a value",
        "TorchScript can call a builtin function or method, but not hold it in a variable; and an argument without "
        "annotation is a Tensor, whose methods hide attributes of that name",
        (Family.SCRIPT,),
    ),
    rule(
        "unsupported code",
        r"Expected a single top-level function",
        "TorchScript reads the source of each function, and a lambda or a hook has none of its own: {first}",
        (Family.SCRIPT,),
    ),
    rule(
        "unsupported code",
        r"(?P<what>.+)",
        "TorchScript cannot compile the source: {first}",
        (Family.SCRIPT,),
        "capture",
    ),
    rule(
        "needs tensors",
        r"Type '(?P<what>[^\n]+?)' cannot be traced",
        "jit.trace takes tensors and containers of tensors alone, and the example is {what}",
        (Family.TRACE,),
    ),
    rule(
        "needs tensors",
        r"Tracer cannot infer type of (?P<value>[^\n]+)",
        "jit.trace takes and returns tensors and non-empty containers of tensors alone, and this is {value}",
        (Family.TRACE,),
    ),
    rule(
        "needs tensors",
        r"Encountering a (?P<what>\w+) at the output of the tracer",
        "jit.trace refuses a {what} as result, because its keys or length might depend on the input",
        (Family.TRACE,),
    ),
    rule(
        "needs tensors",
        r"Only tensors, lists, tuples of tensors, or dictionary of tensors can be output",
        "a trace returns tensors, and lists, tuples and dicts of tensors alone, and the code returns something else",
        (Family.TRACE,),
    ),
    rule(
        "needs tensors",
        r"Cannot create dict for key type '(?P<what>[^']+)'",
        "a trace returns dicts with numbers, strings or tensors as keys, and the code returns one with {what}",
        (Family.TRACE,),
    ),
    rule(
        "needs tensors",
        r"'(?P<kind>dict|list|tuple)' object has no attribute '(?P<name>\w+)'",
        "jit.trace hands the code a plain {kind} in the place of the caller's container, and that has no {name}",
        (Family.TRACE,),
        "capture",
    ),
    rule(
        "needs tensors",
        r"Could not cast attribute '(?P<name>\w+)' to type (?P<what>[^:\n]+?):",
        "jit.trace compiles the class of an argument with TorchScript, which takes its attribute {name} for a {what}",
        (Family.TRACE,),
    ),
    rule(
        "not repeatable",
        r"element \d+ of tensors does not require grad and does not have a grad_fn",
        "the code computes a gradient, and jit.trace traces a second time without gradients to compare the two graphs",
        (Family.TRACE,),
        "capture",
    ),
    rule(
        "unsupported code",
        r"Cannot insert a Tensor that requires grad as a constant",
        "the code makes a tensor that requires a gradient: a trace would hold it as a constant, and refuses",
        (Family.TRACE,),
    ),
    rule(
        "unsupported code",
        r"did not have observable data dependence with trace inputs",
        "a result is not computed from the inputs by operators that jit.trace records",
        (Family.TRACE,),
    ),
    rule(
        "unsupported code",
        r"cond must be a bool, but got <class 'torch\.Tensor'>",
        "while jit.trace runs the code, a size is a tensor, and so is what torch._check is given",
        (Family.TRACE,),
    ),
    rule(
        "unsupported code",
        r"Cannot access data pointer of Tensor that doesn't have storage|Unsupported value kind: Tensor",
        "jit.trace cannot record what torch.func and torch.autograd.functional wrap tensors in: {first}",
        (Family.TRACE,),
    ),
    rule(
        "unsupported code",
        r"The stateless API can't be used with Jitted modules",
        "jit.trace turns the module into one of TorchScript, and torch.func.functional_call accepts none",
        (Family.TRACE,),
    ),
    rule(
        "unsupported code",
        r"Modules that have backward hooks assigned can't be compiled: (?P<what>\w+)",
        "the module {what} has a backward hook, which TorchScript cannot call",
        (Family.TRACE, Family.SCRIPT),
    ),
    rule(
        "compiler fault",
        r"INTERNAL ASSERT FAILED.*We don't have an op for (?P<what>[\w:]+)",
        "an internal error of TorchScript: it has no form of {what} for the arguments that the code gives",
        (Family.TRACE, Family.SCRIPT),
    ),
    rule(
        "not repeatable",
        r"Tracing failed sanity checks|Graphs differed across invocations|TracingCheckError",
        "jit.trace traced twice and got two graphs: the code depends on state, on random numbers or on what it changes",
        (Family.TRACE,),
    ),
]
"""The rules, in the order in which they are tried."""
