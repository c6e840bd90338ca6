"""Faults of Dynamo, AOTAutograd, the partitioner and the decompositions."""

import functools

import torch

from recapture import case, compiler


@case(
    example=lambda: (torch.randn(4), True),
    held_out=[lambda: (torch.randn(4), False)],
    compilers=("guard-of-a-flag-dropped",),
)
def of_flag(x, flip):
    """Negates its argument if a flag is set."""
    return -x if flip else x * 2


@case(example=lambda: (torch.randn(4), torch.randn(4)), compilers=("wrong-operator-in-the-graph",))
def of_difference(x, y):
    """A difference."""
    return torch.sub(x, y).sin()


@case(example=lambda: (torch.randn(4),), compilers=("mutation-not-written-back",))
def of_change(x):
    """Changes its argument."""
    x.add_(1)
    return x * 2


@case(
    example=lambda: (torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)),
    compilers=("wrong-backward-from-the-partitioner", "different-expressions-merged"),
)
def of_gradient(x, y):
    """A product whose gradients need both factors."""
    return (torch.sin(x) * torch.cos(x) * y).sum()


@case(example=lambda: (torch.randn(4),), compilers=("wrong-decomposition",))
def of_silu(x):
    """An activation that Inductor decomposes."""
    return torch.nn.functional.silu(x) + 1


@compiler("guard-of-a-flag-dropped", family="dynamo")
def guard_of_a_flag_dropped(fn, example):
    """Dynamo does not check that a Python constant is the one it captured with."""
    from torch._dynamo.guards import GuardBuilder

    @functools.wraps(GuardBuilder.CONSTANT_MATCH)
    def nothing(self, guard, *args, **kwargs):
        return None

    GuardBuilder.CONSTANT_MATCH = nothing
    return torch.compile(fn)


@compiler("wrong-operator-in-the-graph", family="dynamo")
def wrong_operator_in_the_graph(fn, example):
    """Dynamo writes an addition into its graph where the program subtracts."""
    from torch._dynamo.output_graph import OutputGraph

    call = OutputGraph.call_user_compiler

    def with_additions(self, gm, *args, **kwargs):
        for node in gm.graph.nodes:
            if node.target is torch.sub:
                node.target = torch.add
        gm.recompile()
        return call(self, gm, *args, **kwargs)

    OutputGraph.call_user_compiler = with_additions
    return torch.compile(fn)


@compiler("mutation-not-written-back", family="dynamo")
def mutation_not_written_back(fn, example):
    """Functionalization takes changed arguments for unchanged ones."""
    from torch._functorch._aot_autograd import collect_metadata_analysis

    collect_metadata_analysis.has_data_mutation = lambda *args, **kwargs: False
    return torch.compile(fn)


@compiler("wrong-backward-from-the-partitioner", family="dynamo")
def wrong_backward_from_the_partitioner(fn, example):
    """The min-cut partitioner writes a sum into the backward graph where it needs a product."""
    from torch._dynamo.backends import debugging
    from torch._inductor import compile_fx

    aten = torch.ops.aten
    cut = debugging.min_cut_rematerialization_partition

    @functools.wraps(cut)
    def wrong(*args, **kwargs):
        forward, backward = cut(*args, **kwargs)
        for node in backward.graph.nodes:
            if node.target is aten.mul.Tensor:
                node.target = aten.add.Tensor
        backward.recompile()
        return forward, backward

    debugging.min_cut_rematerialization_partition = compile_fx.min_cut_rematerialization_partition = wrong
    return torch.compile(fn)


@compiler("different-expressions-merged", family="dynamo")
def different_expressions_merged(fn, example):
    """The elimination of common subexpressions takes a cosine for a sine of the same argument."""
    from torch._functorch import partitioners

    aten = torch.ops.aten
    merge = partitioners.fx_graph_cse

    def too_much(graph, *args, **kwargs):
        merged = merge(graph, *args, **kwargs)
        for node in merged.nodes:
            if node.target is aten.cos.default:
                node.target = aten.sin.default
        return merged

    partitioners.fx_graph_cse = too_much
    return torch.compile(fn)


def plant_decomposition():
    """Plant a wrong decomposition of an activation into Inductor's tables."""
    from torch._inductor import decomposition

    def wrong(x):
        return x * torch.sigmoid(-x)

    for table in (decomposition.decompositions, decomposition.fast_random_decomps()):
        table[torch.ops.aten.silu.default] = wrong


@compiler("wrong-decomposition", family="dynamo")
def wrong_decomposition(fn, example):
    """An activation is decomposed with the wrong sign."""
    plant_decomposition()
    return torch.compile(fn)
