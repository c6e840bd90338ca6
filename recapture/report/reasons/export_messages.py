"""Rules for what `torch.export`, AOTInductor, and the exporter and runtime of ONNX say."""

from __future__ import annotations

from recapture.cases.compiler import Family
from recapture.report.reasons.sentence import rule

TRACED = (Family.EXPORT, Family.AOTI, Family.ONNX)
"""The families of compilers that export."""

_ONNX = [
    rule(
        "static size",
        r"Got invalid dimensions for input: (?P<name>\S+).*?index: (?P<at>\d+) Got: (?P<got>\d+) "
        r"Expected: (?P<was>\d+)",
        "exported with the sizes of the example: dimension {at} of {name} is {got} in {input}, and the program takes "
        "{was}{advice}",
        (Family.ONNX,),
    ),
    rule(
        "static size",
        r"Invalid rank for input: (?P<name>\S+) Got: (?P<got>\d+) Expected: (?P<was>\d+)",
        "exported with the shape of the example: {name} has {got} dimensions in {input}, and the program takes {was}",
        (Family.ONNX,),
    ),
    rule(
        "other arguments",
        r"Unexpected input data type\. Actual: \(tensor\((?P<got>\w+)\)\) ?, expected: \(tensor\((?P<was>\w+)\)\)",
        "the program takes the dtype of the example, {was}, and {input} has {got} there",
        (Family.ONNX,),
    ),
    rule(
        "compiler fault",
        r"INVALID_GRAPH : This is an invalid model\. (?:Type Error: )?(?P<why>[^\n]+)",
        "the exporter wrote a program that the ONNX runtime refuses: {why}",
        (Family.ONNX,),
    ),
    rule(
        "compiler fault",
        r"while running (?P<node>\w+) node\..*?Status Message: (?P<why>[^\n]+)",
        "the ONNX runtime fails in a {node} node of the exported program: {why}",
        (Family.ONNX,),
    ),
    rule(
        "unsupported code",
        r"No ONNX function found for <(?:OpOverload\(op='(?P<op>[^']+)'|function (?P<function>\w+))"
        r"[^\n]*?(?P<values> for the complex-valued input)?\n",
        "the ONNX exporter knows no counterpart of the operator {op}{function}{values}",
        (Family.ONNX,),
    ),
    rule(
        "compiler fault",
        r"\nFailed to decompose the FX graph",
        "the program is exported, and the ONNX exporter fails to decompose it: {type}: {first}",
        (Family.ONNX,),
    ),
    rule(
        "compiler fault",
        r"Error when translating node (?P<node>%\w+|return\b)",
        "the ONNX exporter fails to translate the step {node} of the exported program: {type}: {first}",
        (Family.ONNX,),
    ),
    rule(
        "compiler fault",
        r"\nFailed to convert the exported program",
        "the ONNX exporter fails to translate a step of the exported program: {type}: {first}",
        (Family.ONNX,),
    ),
]
"""The exporter of ONNX in its three steps, and the ONNX runtime."""

_EARLY = [
    rule(
        "unsupported code",
        r"Encountered autograd state manager op",
        "the code turns gradients off or on, which the export of this release refuses",
        TRACED,
    ),
    rule(
        "unsupported code",
        r"Found following user inputs located at \[[\d, ]+\] are mutated",
        "the code changes its argument in place, which the export of this release refuses",
        TRACED,
    ),
    rule(
        "unsupported code",
        r"Found a graph input that requires gradients, and received a mutation",
        "the code changes a parameter in place, which the export of this release refuses",
        TRACED,
    ),
    rule(
        "unsupported code",
        r"Found a custom \(non-ATen\) operator that either mutates or its inputs: (?P<what>[\w:]+)",
        "the operator {what} writes into its argument, which the export of this release refuses",
        TRACED,
    ),
    rule(
        "needs tensors",
        r"original output #\d+ is .*?, but only the following types are supported",
        "the code returns something that is no tensor and no size, and the export of this release takes nothing else",
        TRACED,
    ),
    rule(
        "needs tensors",
        r"traced result #\d+ \(<class '(?P<what>[^']+)'>\) is not among graph-captured outputs",
        "the code returns a {what} that is no result of the graph, and the export of this release takes nothing else",
        TRACED,
    ),
    rule(
        "needs tensors",
        r"graph-captured input #\d+,? .*?(?:is|are) not among original (?:args|inputs)",
        "the code uses a tensor that is not an argument itself: another object holds it",
        TRACED,
    ),
    rule(
        "needs tensors",
        r"Dynamo attempts to add additional input during export",
        "the code uses a number that would be a further input of the program",
        TRACED,
    ),
    rule(
        "needs tensors",
        r"AttributeError: '(?P<what>int|float|bool|str|NoneType|dtype|device|Size|Device)' object has no attribute "
        r"'meta'",
        "the code returns a {what}, and the export of this release without Dynamo takes tensors alone",
        TRACED,
        "capture",
    ),
    rule(
        "needs tensors",
        r"Node\.meta \w+ has invalid val field (?P<what>[^\n]+)",
        "an argument is {what}: no tensor and no number, and the export of this release takes nothing else",
        TRACED,
    ),
    rule(
        "data-dependent",
        r"DynamicOutputShapeException: aten\.(?P<what>\w+)",
        "the size of the result of {what} depends on values, which are unknown at capture",
        TRACED,
    ),
    rule(
        "other arguments",
        r"Trying to flatten user inputs with exported input tree spec",
        "export itself passes the arguments in another structure than it recorded: a fault of this release",
        TRACED,
        "capture",
    ),
]
"""What `torch.export` says on early releases, and some of it on all."""

EXPORTED = [
    *_EARLY,
    rule(
        "unsupported code",
        r"UnsupportedOperatorException: (?P<what>[\w.:]+)",
        "the operator {what} says nothing about its result on tensors without values (torch.library.register_fake), "
        "which capturing needs",
        (Family.ATEN, *TRACED),
    ),
    rule(
        "unsupported code",
        r"found a fake tensor in the exported program constant's list",
        "the code makes a tensor and changes it or asks for its gradient: the program would hold it as a constant, and "
        "it has no values",
        TRACED,
    ),
    rule(
        "unsupported code",
        r"Expected FakeTensor, got <class 'torch\.Tensor'>",
        "a transform of torch.func (grad, jvp, hessian, …) wraps tensors, and export accepts none there but its own "
        "fake ones",
        TRACED,
    ),
    rule(
        "unsupported code",
        r"_checkpoint_context_fn|tag_activation_checkpoint",
        "strict export records torch.utils.checkpoint as an operator of its own, which it cannot lower afterwards",
        TRACED,
    ),
    rule(
        "unsupported code",
        r"Encountered duplicated inputs that are mutated",
        "the module holds one tensor under two names and changes it: the program would have two inputs for it",
        TRACED,
    ),
    rule(
        "unsupported code",
        r"Found an input that received a metadata mutation",
        "the code changes the shape or the strides of an argument in place (`t_`, `resize_`, …), and an exported "
        "program cannot",
        TRACED,
    ),
    rule(
        "needs tensors",
        r"unrecognized type UserDefinedObjectVariable\((?P<what>\w+)\) at output",
        "the code returns a {what}, and an exported program returns tensors, numbers and registered containers alone",
        TRACED,
    ),
    rule(
        "needs tensors",
        r"unhashable type: '(?P<what>\w+)'",
        "the code takes or returns a {what}, and an exported program knows tensors, numbers and registered containers "
        "alone",
        TRACED,
        "capture",
    ),
    rule(
        "needs tensors",
        r"unsupported object of type <class '(?P<what>[^']+)'> while writing the metadata",
        "an argument is a {what}, which the description of an exported program cannot hold",
        TRACED,
    ),
    rule(
        "needs tensors",
        r"structure of `inputs` and `dynamic_shapes`: `[^`]+` is a <class '(?P<what>[^']+)'>",
        "dynamic shapes cannot be given for what a {what} holds",
        TRACED,
    ),
    rule(
        "numpy",
        r"AssertionError: NumpyTensorSource\(|Unexpectedly found a <class 'torch\.Tensor'> in the inputs",
        "an argument is a number of numpy: strict export makes a tensor of it and then finds no input that is this "
        "tensor",
        TRACED,
    ),
    rule(
        "numpy",
        r"ufunc '(?P<what>\w+)' not supported for the input types",
        "numpy's {what} was given a tensor of tracing, which holds no values",
        (Family.ATEN, *TRACED),
    ),
    rule(
        "needs tensors",
        r"No registered serialization name for <class '(?P<what>[^']+)'>",
        "the package stores containers by name, and {what} is registered without one",
        (Family.AOTI,),
    ),
    rule(
        "needs tensors",
        r"^TypeError: unhashable type: 'list'",
        "the package writes the structure of a call down as JSON, where a tuple that is a key of a dict becomes a list",
        (Family.AOTI,),
        "call",
    ),
    rule(
        "needs tensors",
        r"InductorError: AssertionError: \(TensorBox",
        "beside tensors the code returns what Inductor does not accept as a result of a program, for example text",
        (Family.AOTI,),
    ),
    rule(
        "compiler fault",
        r"^(?:Type|Runtime)Error: (?:Expected a proper Tensor but got None"
        r"|aten::\w+\(\) [^\n]*instead found type '(?:NoneType|immutable_list)'"
        r"|unsupported operand type\(s\) for [^\n]*'NoneType')",
        "a number that is dynamic in the exported program has no input in a library of AOTInductor, where it is None",
        (Family.AOTI,),
        "capture",
    ),
    rule(
        "unsupported code",
        r"unhashable type: non-nested SymInt",
        "the code looks a dynamic number up in a dict or a set, and a symbol has no hash",
        TRACED,
    ),
    rule(
        "unsupported code",
        r"'SymInt' and 'SymInt'|expected a long, but got SymInt|for entropy not s\d|np\.ndarray of type numpy\.object_",
        "the code gives a dynamic number to a function that takes no symbol: {first}",
        TRACED,
    ),
    rule(
        "compiler fault",
        r"Not all inputs to pattern found in match\.kwargs",
        "a pattern that Inductor replaces does not fit its own replacement: {first}",
        (Family.DYNAMO, *TRACED),
    ),
    *_ONNX,
]
"""The rules, in the order in which they are tried."""
