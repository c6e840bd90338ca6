"""`torch.fx`: symbolic tracing, with and without concrete arguments, and `make_fx`."""

from __future__ import annotations

import inspect
from typing import Any

from recapture.cases.compiler import Family, compiler


@compiler(
    "fx", family=Family.SYMBOLIC, also_called=("torch.fx",), share_passing=0.41, run_by=("check", "pytest", "bench")
)
def fx_symbolic(fn: Any, example: Any) -> Any:  # noqa: ARG001
    """`torch.fx.symbolic_trace`: runs the Python code once on proxies."""
    import torch.fx

    return torch.fx.symbolic_trace(fn)


@compiler("fx:concrete_args", family=Family.SYMBOLIC, fixes_values=True, share_passing=0.33)
def fx_concrete_args(fn: Any, example: Any, concrete_args: Any = None) -> Any:
    """`torch.fx.symbolic_trace(concrete_args=…)`: specialises on the named arguments, or on all that hold no tensor."""
    import torch.fx

    plain = (bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)

    def is_checked(value: Any) -> bool:
        leaves: list[Any] = []
        torch.fx.node.map_aggregate(value, leaves.append)
        return bool(leaves) and all(type(leaf) in plain for leaf in leaves)  # fx checks these at each call

    forward = fn.forward if isinstance(fn, torch.nn.Module) else fn
    bound = inspect.signature(forward).bind(*example)
    if concrete_args is None:
        concrete_args = [name for name, value in bound.arguments.items() if is_checked(value)]
    bound.apply_defaults()  # a case may name an argument that its example leaves out
    values = {name: bound.arguments[name] for name in concrete_args}
    return torch.fx.symbolic_trace(fn, concrete_args=values)


@compiler("make_fx", family=Family.ATEN, share_passing=0.27, run_by=("check", "generate"))
def make_fx(fn: Any, example: Any) -> Any:
    """`make_fx`: records the ATen operators that one call dispatches."""
    from torch.fx.experimental.proxy_tensor import make_fx as trace

    return trace(fn)(*example)
