"""Whether the judge sees differences between tensors of the installed torch: asked once, before a run's first cell.

Where a release of torch changes what the judge reads tensors with, every tensor would equal every other, and each cell
would pass.
"""

from __future__ import annotations

from typing import Any

from recapture.judge.compare import compare
from recapture.judge.observe import Observation
from recapture.judge.snapshot import snapshot_of


def blind_to() -> str | None:
    """Return which planted difference between tensors the judge does not see; None if it sees all, as it should."""
    try:
        as_is = _observed()
        equal = compare(as_is, _observed())
        if equal.differences or equal.notes:  # a note says that a tensor could not be read
            return "a tensor is not read, or does not equal itself"
        for planted in ("value", "gradient", "shape", "dtype"):
            if planted not in [difference.kind for difference in compare(as_is, _observed(planted)).differences]:
                return f"another {planted} of a tensor is not seen"
    except Exception as error:
        return f"a tensor is not read: {type(error).__name__}: {error}"
    return None


def _observed(planted: str | None = None) -> Observation:
    """Return a call's result, a tensor with a gradient, with a difference of a kind."""
    import torch

    values: Any = [1.0, 3.0 if planted == "value" else 2.0]
    tensor = torch.tensor(values, dtype=torch.float64 if planted == "dtype" else None, requires_grad=True)
    tensor.grad = torch.full_like(tensor, 2.0 if planted == "gradient" else 1.0)
    return Observation("example", result=snapshot_of(tensor[None] if planted == "shape" else tensor))
