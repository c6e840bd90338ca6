"""AOTAutograd without Inductor, with a fault planted in Dynamo's graph or in functionalization: no C++ is compiled."""

import torch

from recapture import case, compiler


@case(example=lambda: (torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])), compilers=("wrong-graph", "unplanted"))
def of_difference(x, y):
    """A difference."""
    return torch.sub(x, y)


@case(example=lambda: (torch.tensor([1.0, 2.0]),), compilers=("lost-mutation",))
def of_change(x):
    """Changes its argument."""
    x.add_(1)
    return x * 2


@compiler("unplanted", family="dynamo", last_stage="aot_autograd")
def unplanted(fn, example):
    """Nothing is planted: right."""
    return torch.compile(fn, backend="aot_eager")


@compiler("wrong-graph", family="dynamo", last_stage="aot_autograd")
def wrong_graph(fn, example):
    """Dynamo adds where the program subtracts."""
    from torch._dynamo.output_graph import OutputGraph

    call = OutputGraph.call_user_compiler

    def with_additions(self, gm, *args, **kwargs):
        for node in gm.graph.nodes:
            if node.target is torch.sub:
                node.target = torch.add
        gm.recompile()
        return call(self, gm, *args, **kwargs)

    OutputGraph.call_user_compiler = with_additions
    return torch.compile(fn, backend="aot_eager")


@compiler("lost-mutation", family="dynamo", last_stage="aot_autograd")
def lost_mutation(fn, example):
    """Functionalization takes changed arguments for unchanged ones."""
    from torch._functorch._aot_autograd import collect_metadata_analysis

    collect_metadata_analysis.has_data_mutation = lambda *args, **kwargs: False
    return torch.compile(fn, backend="aot_eager")
