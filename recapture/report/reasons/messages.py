"""Rules that turn messages of torch into a sentence about the user's code, for all supported releases."""

from __future__ import annotations

from recapture.cases.compiler import Family
from recapture.report.reasons.export_messages import EXPORTED, TRACED
from recapture.report.reasons.sentence import MessageRule, rule
from recapture.report.reasons.torchscript_messages import TORCHSCRIPT

_BRANCH = "an `if`, a loop, `and` or an assert"

_DATA_DEPENDENT = [
    rule(
        "data-dependent",
        r"Data-dependent branching|Dynamic control flow is not supported|generic_jump TensorVariable"
        r"|torch\.cond.{0,80}dynamic control flow|Data-dependent jump|data-dependent control flow on",
        f"{_BRANCH} needs the value of a tensor, and one graph has one path: torch.cond or torch.where can express it",
        (Family.DYNAMO, *TRACED),
    ),
    rule(
        "data-dependent",
        r"(?:guard on|evaluate) data-dependent (?:expression|expr) (?:zuf?\d+|\w*cast\w*\(.*?\)) ",
        "the code makes a Python number of a tensor's value, which is unknown at capture",
    ),
    rule(
        "data-dependent",
        r"Could not (?:guard on|extract specialized integer from) data-dependent expression [^\n]+? \(unhinted",
        f"{_BRANCH} needs the value of a tensor, which is unknown at capture: torch.cond, torch.where or torch._check "
        "can express it",
    ),
    rule(
        "data-dependent",
        r"data-dependent|DataDependentOutputException|_local_scalar_dense|GuardOnDataDependent",
        "the code takes a value out of a tensor (`item`, `bool`, `int`, an `if`), which is unknown at capture",
    ),
    rule(
        "data-dependent",
        r"symbolically traced variables cannot be used as inputs to control flow",
        f"{_BRANCH} needs the value of a proxy: symbolic tracing runs the code without values",
        (Family.SYMBOLIC,),
    ),
    rule(
        "data-dependent",
        r"Proxy object cannot be iterated|'Proxy' object cannot be interpreted as an integer|__round__ method"
        r"|int\(\) argument must be.*'Proxy'|float\(\) argument must be.*'Proxy'|Proxy'? .*__index__"
        r"|'len' is not supported in symbolic tracing|__(?:float|int|len|bool|index)__.* returned non-"
        r"|Proxy has no len",
        "Python needs a real number or a length where symbolic tracing has a proxy: {first}",
        (Family.SYMBOLIC,),
    ),
]
"""The value of a tensor decides."""

_STATIC = [
    rule(
        "other arguments",
        r"expected inputs vector size to be (?P<was>\d+), but got (?P<got>\d+)",
        "the library takes {was} tensors, as many as the example has, and {input} has {got}",
    ),
    rule(
        "static size",
        r"Guard failed: (?P<guard>\S+\.size\(\)\[\d+\] == \d+)",
        "exported with the sizes of the example: {guard} fails on {input}{advice}",
    ),
    rule(
        "static size",
        r"(?P<guard>\S+\.shape\[\d+\]) to be (?:equal to|>=|<=) (?P<was>\S+), but got (?P<got>\d+)"
        r"|(?P<guard2>\S+\.shape\[\d+\]) is specialized at \d+",
        "exported with the sizes of the example, and {input} has another: {first}{advice}",
    ),
    rule(
        "static size",
        r"expected (?:Tensor|input).{0,120}(?:rank|dim|shape|size)|Input shapes? differ|shape mismatch for",
        "the program holds for the shape of the example, and {input} has another: {first}",
        TRACED,
        "call",
    ),
    rule(
        "static size",
        r"Constraints violated|specialized (?:it|because)|marked as dynamic but",
        "a size that was asked to be dynamic is fixed by the code: {first}",
        TRACED,
    ),
    rule(
        "static size",
        r"Guard failed: (?P<guard>[^\n]*\.size\(\)\[\d+\][^\n]*)",
        "the sizes of the program are dynamic as far as the code and the example let them, and {input} has others: "
        "{guard} fails",
    ),
    rule(
        "fixed value",
        r"Guard failed: (?P<guard>\S+ (?:==|is) .+)",
        "a Python value of the example is a constant of the program: {guard} fails on {input}",
    ),
    rule(
        "fixed value",
        r"Guard failed: (?P<guard>.+)",
        "the program holds where its guards do, and on {input} one fails: {guard}",
    ),
    rule(
        "fixed value",
        r"(?P<name>\w+) has been specialized to have value (?P<value>.+?) but got another value",
        "concrete_args made {name} = {value} a constant of the graph, and {input} has another value",
    ),
    rule(
        "fixed value",
        r"[Ee]xpected input (?:at )?(?P<name>.*?)to be (?:equal to )?(?P<value>\S+), but got (?P<got>.+)",
        "a Python value of the example is a constant of the program, and {input} has another: {first}",
    ),
    rule(
        "other arguments",
        r"Trying to flatten user inputs with exported input tree spec|in_spec|structure of the inputs|TreeSpec.*but"
        r"|Node arity mismatch",
        "the program takes arguments in the number and structure of the example, and {input} has others",
        TRACED,
        "call",
    ),
    rule(
        "other arguments",
        r"expected (?:at most|exactly) (?P<was>\d+) argument\(s\) but received (?P<got>\d+)",
        "the program takes as many arguments as the example has ({was}), and {input} has {got}",
    ),
    rule(
        "other arguments",
        r"Tracing expected (?P<was>\d+) arguments but got (?P<got>\d+)",
        "make_fx wants a value for each of the function's {was} arguments, and the example leaves defaults out",
    ),
    rule(
        "other arguments",
        r"missing (?P<n>\d+) required positional|takes \d+ positional arguments? but \d+|forward\(\) (?:missing|got)"
        r"|got an unexpected keyword",
        "the captured function takes other arguments than the original: {first}",
        (Family.SYMBOLIC, Family.ATEN, Family.TRACE, *TRACED),
    ),
]
"""The program says for which inputs it holds."""

_DYNAMO = [
    rule(
        "already compiled",
        r"symbolically trace a dynamo-optimized function|torch\.jit\.trace a dynamo-optimized function",
        "the function is already compiled with torch.compile, and {compiler} cannot look into that",
    ),
    rule(
        "already compiled",
        r"torch\.compiler\.disable|torch\._dynamo\.disable|torch\._disable_dynamo|call torch\._dynamo\.disable\(\)",
        "the code excludes a function from compilation (torch.compiler.disable), and one whole graph needs it",
    ),
    rule(
        "numpy",
        r"\.numpy\(\) is not supported for tensor subclasses|Cannot convert fake tensor.*numpy",
        "the code makes a numpy array, and non-strict export runs it on fake tensors, which hold no values",
        TRACED,
    ),
    rule(
        "numpy",
        r"invalid __array_struct__|expected np\.ndarray \(got Proxy\)|numpy.*Proxy|Proxy.*numpy|__array__",
        "numpy was given a proxy: symbolic tracing cannot record what numpy computes",
        (Family.SYMBOLIC,),
    ),
    rule(
        "needs tensors",
        r"argument of type: <class '(?P<what>[^']+)'>",
        "{compiler} records tensors and plain Python values, and met an object of the type {what}",
    ),
    rule(
        "recorded step fails",
        r"'NoneType'",
        "a proxy is never None: the graph has the path for a tensor, and the call has none ({first})",
        (Family.SYMBOLIC,),
        "call",
    ),
    rule(
        "other exception",
        r"TorchRuntimeError: .*?got (?P<what>\w+\([^\n]*\))",
        "Dynamo tries an operation on fake tensors, which raised {what}; it reports TorchRuntimeError instead, which "
        "an `except` for that does not catch",
    ),
    rule(
        "other exception",
        r"TorchRuntimeError: (?P<what>[^\n]+)",
        "Dynamo tries an operation on fake tensors and reports TorchRuntimeError in the place of its exception: "
        "{explanation}",
    ),
    rule(
        "compiler fault",
        r"CppCompileError|C\+\+ compile error|CompilationError|(?:^|\.)SubprocException",
        "Inductor generated code that the C++ compiler refuses: {first}",
    ),
    rule(
        "numpy",
        r"Unsupported: .*(?:numpy|scipy|ufunc|NumpyNdarray|_Function`)",
        "the code calls into numpy or scipy where Dynamo cannot trace it: {explanation}",
    ),
    rule(
        "unsupported code",
        r"_dynamo\.exc\.(?:Unsupported|UserError|SkipFrame|Uncapturable)\w*: ",
        "Dynamo cannot trace it into one graph: {explanation}",
    ),
    rule(
        "lost effect",
        r"Mutating module attribute (?P<name>\w+) during export",
        "the code changes the module's attribute {name}, which an exported program cannot",
        TRACED,
    ),
    rule(
        "compiler fault",
        r"Cannot construct `ConstantVariable` for value of type <class '[\w.]*\.(?P<what>\w+)'>",
        "an internal error of Dynamo, which takes what it holds as {what} for a constant {during}",
        (Family.DYNAMO, *TRACED),
    ),
    rule(
        "other exception",
        r"one of the variables needed for gradient computation has been modified by an inplace operation",
        "the code changes a tensor that its backward needs: eager raises when the backward runs, and compiling, which "
        "traces the backward, already raises {during}",
        (Family.DYNAMO, *TRACED),
    ),
    rule(
        "compiler fault",
        r"InternalTorchDynamoError|BackendCompilerFailed|InductorError|LoweringException"
        r"|^AssertionError: from user code",
        "an internal error of the compiler: {type}: {first}",
        (Family.DYNAMO, *TRACED),
    ),
    rule(
        "compiler fault",
        r"AssertionError: (?:\w*Source\(|$)",
        "an assertion of the compiler failed {during}: {first}",
        (Family.DYNAMO, *TRACED),
    ),
    rule(
        "needs tensors",
        r"serialize TreeSpec of (?P<what>\w+) class <class '(?P<name>[^']+)'>",
        "the package stores containers by name, and {name} is not registered",
        (Family.AOTI,),
    ),
    rule(
        "unsupported code",
        r"not registered|pytree.*register|register_dataclass|Unsupported input type",
        "the program takes and returns registered containers alone: {first}",
        TRACED,
    ),
    rule(
        "recorded step fails",
        r"Expected a value of type '(?P<was>[^']+)' for argument '(?P<name>\w+)' but instead found type '(?P<got>\w+)'",
        "the graph has the path for a {was}, and {input} has a {got} there",
        (Family.ATEN, Family.TRACE, Family.SYMBOLIC),
        "call",
    ),
]
"""Dynamo, export, AOTInductor and fx."""

_FX = [
    rule(
        "two devices",
        r"found (?:at least )?two(?: different)? devices,? (?P<one>\S+?),? (?:and )?(?P<other>[\w:]+)",
        "an operator gets tensors on two devices, {one} and {other}",
    ),
    rule(
        "other exception",
        r"a leaf Variable that requires grad is being used in an in-place operation",
        "the code changes a parameter where gradients are off (no_grad), and the graph does not record that they are",
        (Family.SYMBOLIC, Family.ATEN, Family.TRACE),
        "call",
    ),
    rule(
        "other exception",
        r"functions with out=\.\.\. arguments don't support automatic differentiation",
        "the code writes into `out=` where gradients are off (no_grad), and the graph does not record that they are",
        (Family.SYMBOLIC, Family.ATEN, Family.TRACE),
        "call",
    ),
    rule(
        "other arguments",
        r"Real spec TreeSpec|is missing value for argument",
        "the graph takes arguments in the number and structure of the example, and {input} has others",
        (Family.ATEN, Family.TRACE),
        "call",
    ),
    rule(
        "unsupported code",
        r"\"(?P<what>\w+)\" not implemented for '(?P<dtype>\w+)'",
        "this release has no {what} for the dtype {dtype} on this device",
    ),
    rule(
        "unsupported code",
        r"^StopIteration: ",
        "the code reads an iterator of its caller, and this was used up before the code ran {during}",
        (),
        "capture",
    ),
    rule(
        "unsupported code",
        r"TorchScript interpreter",
        "the code calls a function of TorchScript, into which {compiler} cannot look: {first}",
        (Family.ATEN,),
        "capture",
    ),
    rule(
        "unsupported code",
        r"Proxy|'Attribute' object",
        "symbolic tracing runs the code on proxies, which cannot do this: {first}",
        (Family.SYMBOLIC,),
        "capture",
    ),
    rule(
        "unsupported code",
        r"(?P<what>.+)",
        "symbolic tracing runs the code on proxies in the place of tensors and numbers, and there it raises {type}: "
        "{first}",
        (Family.SYMBOLIC,),
        "capture",
    ),
]
"""`torch.fx` and the graphs that it and its like make; the last rule fits every message."""

RULES: tuple[MessageRule, ...] = (*_STATIC, *_DYNAMO[:2], *_DATA_DEPENDENT, *TORCHSCRIPT, *EXPORTED, *_DYNAMO[2:], *_FX)
"""The rules in the order in which they are tried."""
