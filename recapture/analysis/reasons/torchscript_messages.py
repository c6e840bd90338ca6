"""Rules for what TorchScript says, when it compiles a source and when it traces."""

from __future__ import annotations

from recapture.analysis.reasons.message_rule import rule

__all__ = ["TORCHSCRIPT"]

TORCHSCRIPT = [
    rule(
        "unsupported code",
        r"function '(?P<what>\w+)' is called recursively",
        "TorchScript does not compile a function that calls itself: {what}",
        ("jit.script",),
    ),
    rule(
        "unsupported code",
        r"has no attribute '(?P<name>\w+)' \(This function exists.*error stack is reproduced here:"
        r"\s*(?P<why>[^\n]+?):?\n",
        "TorchScript cannot compile the function {name} that the module holds: {why}",
        ("jit.script",),
    ),
    rule(
        "needs tensors",
        r"Inferred the value for argument '(?P<name>\w+)' to be of type 'Tensor'",
        "TorchScript takes an argument without annotation for a Tensor, and the code passes it as {name}: annotate it",
        ("jit.script",),
    ),
    rule(
        "needs tensors",
        r"Expected a value of type 'Tensor \(inferred\)' for argument '(?P<name>\w+)' but instead found type "
        r"'(?P<found>[^']+)'.*Declaration",
        "TorchScript takes an argument without annotation for a Tensor, and {name} is {found} {during}: annotate it",
        ("jit.script",),
        "call",
    ),
    rule(
        "unsupported code",
        r"Error: (?P<what>[\w .']+?) (?:aren't|isn't|is not|are not) (?:currently )?supported"
        r"(?: in Torchscript)?[.:]?\s*\n",
        "TorchScript compiles a part of Python alone, without this construct: {what}",
        ("jit.script",),
        "capture",
    ),
    rule(
        "unsupported code",
        r"Python builtin <built-in (?:function|method) (?P<what>\w+)[^>]*> is currently not supported",
        "TorchScript cannot call the Python builtin {what}",
        ("jit.script",),
    ),
    rule(
        "unsupported code",
        r"Unknown builtin op: (?P<what>\S+?)\.\n",
        "TorchScript does not know the operator {what}",
        ("jit.script",),
    ),
    rule(
        "unsupported code",
        r"python value of type '(?P<what>[^']+)' cannot be used as a value",
        "TorchScript cannot use a Python object from outside the function, here of type {what}: pass it as an argument",
        ("jit.script",),
    ),
    rule(
        "unsupported code",
        r"cannot create weak reference to '(?P<what>[^']+)'",
        "TorchScript cannot compile what the code calls: an object of type {what} has no source",
        ("jit.script",),
    ),
    rule(
        "needs tensors",
        r"'?Tensor \(inferred\)'? object has no attribute|indexing tensor with unsupported index type"
        r"|non-class: Tensor \(inferred\)|Inferred (?:the value for argument )?'\w+' to be of type 'Tensor'"
        r"|found type 'Tensor \(inferred\)'|Expected a proper Tensor but got None",
        "TorchScript takes an argument without annotation for a Tensor, and the code uses it otherwise: {first}",
        ("jit.script",),
    ),
    rule(
        "unsupported code",
        r"'(?P<what>[\w.]+)' object has no attribute or method '(?P<name>\w+)'",
        "TorchScript's {what} has no {name}",
        ("jit.script",),
    ),
    rule(
        "other exception",
        r"torch\.jit\.Error: .*\n(?:RuntimeError: |torch\.jit\.Error: )?(?P<what>[^\n]+)$",
        "TorchScript raises its own torch.jit.Error {during}, which an `except` for eager's does not catch: {what}",
        ("jit.script",),
        "call",
    ),
    rule(
        "unsupported code",
        r"(?P<what>.+)",
        "TorchScript cannot compile the source: {first}",
        ("jit.script",),
        "capture",
    ),
    rule(
        "needs tensors",
        r"Type '(?P<what>[^\n]+?)' cannot be traced",
        "jit.trace takes tensors and containers of tensors alone, and the example is {what}",
        ("jit.trace",),
    ),
    rule(
        "needs tensors",
        r"Tracer cannot infer type of (?P<value>[^\n]+)",
        "jit.trace takes and returns tensors and non-empty containers of tensors alone, and this is {value}",
        ("jit.trace",),
    ),
    rule(
        "needs tensors",
        r"Encountering a (?P<what>\w+) at the output of the tracer",
        "jit.trace refuses a {what} as result, because its keys or length might depend on the input",
        ("jit.trace",),
    ),
    rule(
        "not repeatable",
        r"Tracing failed sanity checks|Graphs differed across invocations|TracingCheckError",
        "jit.trace traced twice and got two graphs: the code depends on state, on random numbers or on what it changes",
        ("jit.trace",),
    ),
]
"""The rules, in the order in which they are tried."""
