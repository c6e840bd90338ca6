"""Faults of torch.export and of AOTInductor."""

import torch

from recapture import case, compiler


class Module(torch.nn.Module):
    """What torch.export takes."""

    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        """Call the function."""
        return self.fn(*args)


@case(
    example=lambda: (torch.randn(4), torch.randn(4)),
    compilers=("export-writes-another-operator", "aoti-of-a-wrong-program"),
)
def of_difference(x, y):
    """A difference."""
    return torch.sub(x, y).sin()


@case(example=lambda: (torch.randn(4),), compilers=("aoti-with-a-wrong-decomposition",))
def of_silu(x):
    """An activation that Inductor decomposes."""
    return torch.nn.functional.silu(x) + 1


@case(example=lambda: (torch.randn(16),), compilers=("aoti-with-a-wrong-relu",))
def of_relu(x):
    """A rectified sum."""
    return torch.relu(x + 0.5) * 2


def plant_in_export():
    """Make torch.export write an addition into its program where the code subtracts."""
    from torch.export import _trace

    aten = torch.ops.aten
    export = _trace._export

    def wrong(*args, **kwargs):
        program = export(*args, **kwargs)
        for node in program.graph_module.graph.nodes:
            if node.target is aten.sub.Tensor:
                node.target = aten.add.Tensor
        program.graph_module.recompile()
        return program

    _trace._export = wrong


def packaged(fn, example):
    """Export, compile to a library and load it."""
    program = torch.export.export(Module(fn), example)
    return torch._inductor.aoti_load_package(torch._inductor.aoti_compile_and_package(program))


@compiler("export-writes-another-operator", family="exported_program", shares_state=False)
def export_writes_another_operator(fn, example):
    """The exported program adds where the code subtracts."""
    plant_in_export()
    return torch.export.export(Module(fn), example).module()


@compiler(
    "aoti-of-a-wrong-program", family="aot_inductor", shares_state=False, checks_inputs=False, inference_only=True
)
def aoti_of_a_wrong_program(fn, example):
    """AOTInductor of a program that adds where the code subtracts."""
    plant_in_export()
    return packaged(fn, example)


@compiler(
    "aoti-with-a-wrong-decomposition",
    family="aot_inductor",
    shares_state=False,
    checks_inputs=False,
    inference_only=True,
)
def aoti_with_a_wrong_decomposition(fn, example):
    """AOTInductor with the wrong sign in the decomposition of an activation."""
    from torch._inductor import decomposition

    def wrong(x):
        return x * torch.sigmoid(-x)

    for table in (decomposition.decompositions, decomposition.fast_random_decomps()):
        table[torch.ops.aten.silu.default] = wrong
    return packaged(fn, example)


@compiler("aoti-with-a-wrong-relu", family="aot_inductor", shares_state=False, checks_inputs=False, inference_only=True)
def aoti_with_a_wrong_relu(fn, example):
    """AOTInductor with Inductor's own test fault in the code of a rectifier."""
    from torch._inductor import config

    config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
    return packaged(fn, example)
