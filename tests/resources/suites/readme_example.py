"""A case and a compiler of one's own."""

import torch

from recapture import case
from recapture.cases.compiler import compiler


@case(example=lambda: (torch.ones(4),), held_out=[lambda: (-torch.ones(4),)])
def clip_by_sign(x):
    """Clips from above or from below, by a look at the values."""
    return x.clamp(max=0.5) if x.sum() > 0 else x.clamp(min=-0.5)


@compiler("trace-without-check")
def trace_without_check(fn, example):
    """`torch.jit.trace` that does not run the function again to see whether it agrees."""
    return torch.jit.trace(fn, example, check_trace=False)
