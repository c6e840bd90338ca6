"""The held-out inputs as a compiler may see them: the same structure, with tensors that have no values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recapture.judge.observe import ARGUMENTS_SEED
from recapture.torch_api.compat import pytree, seed_everything

if TYPE_CHECKING:
    from recapture.cases.case import Case


def held_out_shapes(case: Case) -> tuple[tuple[Any, ...], ...]:
    """Return the arguments of each held-out input that eager takes, with every tensor replaced by one on ``meta``.

    The factories run under the fixed seed, as for a call. Use a case that is executed for this alone: a factory may
    change what it is made from. Containers are made again, because they may belong to a module that all executions
    share; an object that torch does not know as a container is returned as it is. A tensor without sizes, as a nested
    one, has no elements here.
    """
    found: list[tuple[Any, ...]] = []
    for label, make in case.inputs()[1:]:
        if label in case.refused_inputs:
            continue
        seed_everything(ARGUMENTS_SEED)
        found.append(pytree().tree_map(_without_values, make()))
    return tuple(found)


def _without_values(leaf: Any) -> Any:
    import torch

    if not isinstance(leaf, torch.Tensor):
        return leaf
    sizes = (0,) if leaf.is_nested else tuple(leaf.shape)
    return torch.empty(sizes, dtype=leaf.dtype, device="meta")
