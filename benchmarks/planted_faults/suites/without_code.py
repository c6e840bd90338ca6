"""Ten faults that need no generated code, for `benchmarks.generated_faults`: programs that are generated find them.

Six change the graph behind AOTAutograd, as a wrong decomposition or pass would. Four are faults of a capture: of
guards, side effects, aliases and gradients.
"""

import torch

from recapture import compiler

aten = torch.ops.aten


def with_changed_graph(change):
    """Return `torch.compile` with a backend that applies a change to each node of AOTAutograd's graphs."""

    def capture(fn, example):
        from torch._dynamo.backends.common import aot_autograd
        from torch._functorch.aot_autograd import make_boxed_func

        def edited(graph, inputs):
            for node in list(graph.graph.nodes):
                if node.op == "call_function":
                    change(node)
            graph.recompile()
            return make_boxed_func(graph.forward)

        return torch.compile(fn, backend=aot_autograd(fw_compiler=edited))

    return capture


def another_function(old, new):
    """Return a change that calls another function of the same arguments."""

    def change(node):
        if node.target in old:
            node.target = new

    return change


@compiler("planted:maximum-for-minimum", family="dynamo")
def maximum_for_minimum(fn, example):
    """A minimum is written as a maximum."""
    return with_changed_graph(another_function((aten.minimum.default,), aten.maximum.default))(fn, example)


@compiler("planted:branches-swapped", family="dynamo")
def branches_swapped(fn, example):
    """`where` takes its second operand where it needs the first."""

    def change(node):
        if node.target is aten.where.self:
            condition, yes, no = node.args
            node.args = (condition, no, yes)

    return with_changed_graph(change)(fn, example)


@compiler("planted:alpha-ignored", family="dynamo")
def alpha_ignored(fn, example):
    """The factor of an addition is left out."""

    def change(node):
        if node.target is aten.add.Tensor:
            node.kwargs = {name: value for name, value in node.kwargs.items() if name != "alpha"}

    return with_changed_graph(change)(fn, example)


@compiler("planted:last-dimension", family="dynamo")
def last_dimension(fn, example):
    """A running sum goes along the last dimension."""

    def change(node):
        if node.target is aten.cumsum.default:
            node.args = (node.args[0], -1)

    return with_changed_graph(change)(fn, example)


@compiler("planted:truncating-division", family="dynamo")
def truncating_division(fn, example):
    """A division that rounds down rounds towards zero instead."""

    def change(node):
        if node.target is aten.div.Tensor_mode:
            node.kwargs = {"rounding_mode": "trunc"}

    return with_changed_graph(change)(fn, example)


@compiler("planted:step-ignored", family="dynamo")
def step_ignored(fn, example):
    """A slice with a step and a slice of the same length without one are taken for the same."""

    def change(node):
        if node.target is aten.slice.Tensor and len(node.args) == 5:
            node.args = (node.args[0], node.args[1], 0, node.meta["val"].shape[node.args[1]])

    return with_changed_graph(change)(fn, example)


@compiler("planted:number-kept", family="planted")
def number_kept(fn, example):
    """A Python number is that of the example in every call: no guard asks for it."""
    return lambda x, y, n: fn(x, y, example[2])


@compiler("planted:globals-kept", family="dynamo")
def globals_kept(fn, example):
    """What a call writes into globals and attributes is lost."""
    from torch._dynamo.side_effects import SideEffects

    SideEffects.codegen_update_mutated = lambda *args, **kwargs: None
    return torch.compile(fn, backend="aot_eager")


@compiler("planted:results-copied", family="planted")
def results_copied(fn, example):
    """A result that is an argument, or a view of one, is a copy."""
    return lambda *args: tuple(part.clone() for part in fn(*args))


@compiler("planted:gradient-scaled", family="planted")
def gradient_scaled(fn, example):
    """Gradients are one and a half times too large."""

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(context, value):
            return value.view_as(value)

        @staticmethod
        def backward(context, gradient):
            return gradient * 1.5

    def call(*args):
        return tuple(Scaled.apply(part) if part.requires_grad else part for part in fn(*args))

    return call
