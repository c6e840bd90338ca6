"""Faults of Inductor: in its code generator, its lowerings, its passes, its scheduler and its cache."""

import torch

from recapture import case, compiler

BYTES = ("neg-without-cast",)
NEG = ("neg-doubled", "neg-doubled-in-vectors")
RELU = ("relu-wrong", "relu-does-not-compile", "relu-raises")


@case(
    example=lambda: (torch.randint(256, (1, 8), dtype=torch.uint8), torch.randint(256, (64, 8), dtype=torch.uint8)),
    compilers=BYTES,
)
def of_bytes(x, y):
    """Negates bytes, takes a maximum with broadcasting and concatenates."""
    return torch.cat([torch.maximum(y, torch.neg(x))], dim=0)


@case(example=lambda: (torch.randn(1, 8), torch.randn(64, 8)), compilers=NEG)
def of_floats(x, y):
    """The same on floating-point numbers."""
    return torch.cat([torch.maximum(y, torch.neg(x))], dim=0)


@case(example=lambda: (torch.randn(16),), compilers=RELU)
def of_relu(x):
    """A rectified sum."""
    return torch.relu(x + 0.5) * 2


@case(example=lambda: (torch.rand(16),), compilers=("log1p-wrong",))
def of_log1p(x):
    """A logarithm."""
    return torch.log1p(x) * 2


@case(example=lambda: (torch.randn(16), torch.randn(16)), compilers=("lowering-of-another-operator",))
def of_subtraction(x, y):
    """A difference."""
    return torch.sub(x, y).sin()


@case(example=lambda: (torch.randn(16),), compilers=("fusion-moves-a-mutation",))
def of_mutation(x):
    """Reads an argument, then changes it."""
    y = x + 1
    x.mul_(2)
    return y


@case(example=lambda: (torch.randn(16), torch.randn(16)), compilers=("wrong-pattern",))
def of_product(x, y):
    """A product of a sine."""
    return torch.sin(x) * y


@case(example=lambda: (torch.randn(16),), compilers=("stale-cache-entry",))
def of_sine(x):
    """A sine."""
    return torch.sin(x) + 1


def with_neg(text, fn):
    """Compile with `text` as the code of the operator; one element at a time, where its scalar version is used."""
    from torch._inductor import config
    from torch._inductor.codegen.cpp import CppOverrides

    CppOverrides.neg = staticmethod(text)
    config.cpp.simdlen = 1
    return torch.compile(fn)


@compiler("neg-without-cast", family="dynamo")
def neg_without_cast(fn, example):
    """The code of a negation without the cast of its result, as I3 plants it."""
    return with_neg(lambda x: f"-{x}", fn)


@compiler("neg-doubled", family="dynamo")
def neg_doubled(fn, example):
    """The code of a negation doubles its operand instead, as I4 plants it."""
    return with_neg(lambda x: f"decltype({x})(2 * {x})", fn)


@compiler("neg-doubled-in-vectors", family="dynamo")
def neg_doubled_in_vectors(fn, example):
    """The vectorized code of a negation doubles it; the code for single elements is right."""
    from torch._inductor.codegen.cpp import CppVecOverrides

    CppVecOverrides.neg = staticmethod(lambda x: f"({x}.neg() + {x}.neg())")
    return torch.compile(fn)


def with_relu(fault, fn):
    """Compile with one of the faults that Inductor has for its own tests."""
    from torch._inductor import config

    config.cpp.inject_relu_bug_TESTING_ONLY = fault
    return torch.compile(fn)


@compiler("relu-wrong", family="dynamo")
def relu_wrong(fn, example):
    """Inductor's own test fault: a rectifier with wrong values."""
    return with_relu("accuracy", fn)


@compiler("relu-does-not-compile", family="dynamo")
def relu_does_not_compile(fn, example):
    """Inductor's own test fault: code that the C++ compiler refuses."""
    return with_relu("compile_error", fn)


@compiler("relu-raises", family="dynamo")
def relu_raises(fn, example):
    """Inductor's own test fault: code that raises when it runs."""
    return with_relu("runtime_error", fn)


@compiler("log1p-wrong", family="dynamo")
def log1p_wrong(fn, example):
    """Inductor's own test fault: a logarithm with wrong values."""
    from torch._inductor import config

    config.cpp.inject_log1p_bug_TESTING_ONLY = "accuracy"
    return torch.compile(fn)


@compiler("lowering-of-another-operator", family="dynamo")
def lowering_of_another_operator(fn, example):
    """Subtraction is lowered as addition."""
    from torch._inductor.lowering import lowerings

    aten = torch.ops.aten
    lowerings[aten.sub.Tensor] = lowerings[aten.sub] = lowerings[aten.add.Tensor]
    return torch.compile(fn)


@compiler("fusion-moves-a-mutation", family="dynamo")
def fusion_moves_a_mutation(fn, example):
    """Fused nodes run in the reverse order, so that a read comes after the write."""
    from torch._inductor.scheduler import FusedSchedulerNode

    made = FusedSchedulerNode.__init__

    def reversed_nodes(self, scheduler, snodes):
        made(self, scheduler, snodes)
        self.snodes = self.snodes[::-1]

    FusedSchedulerNode.__init__ = reversed_nodes
    return torch.compile(fn)


@compiler("wrong-pattern", family="dynamo")
def wrong_pattern(fn, example):
    """A pattern after the gradients replaces products by sums."""
    from torch._inductor.fx_passes import post_grad
    from torch._inductor.pattern_matcher import Arg, CallFunction, register_graph_pattern

    @register_graph_pattern(
        CallFunction(torch.ops.aten.mul.Tensor, Arg(), Arg()),
        pass_dict=post_grad.pass_patterns[1],
    )
    def replaced(match, x, y):
        match.replace_by_example(lambda x, y: x + y, [x, y])

    return torch.compile(fn)


@compiler("stale-cache-entry", family="dynamo")
def stale_cache_entry(fn, example):
    """The cache of whole graphs has one key for all, and an entry of another function."""
    from torch._inductor import codecache, config

    config._config["fx_graph_cache"].env_value_force = True  # the variable of the environment would keep it off
    codecache.compiled_fx_graph_hash = lambda *args, **kwargs: ("fplantedplantedplantedplanted", [])
    torch.compile(lambda x: torch.cos(x) - 1)(*(one.clone() for one in example))
    torch._dynamo.reset()
    return torch.compile(fn)
