"""A case and a compiler of one's own."""

import torch

from recapture import case
from recapture.compilers.base import compiler


@case(example=lambda: (torch.ones(4),), held_out=[lambda: (-torch.ones(4),)])
def clip_if_positive(x):
    """Clips by a rule that looks at the values."""
    return x.clamp(max=0.5) if x.sum() > 0 else x


@compiler("trace-without-check")
def trace_without_check(fn, example):
    """`torch.jit.trace` that does not run the function again to see whether it agrees."""
    return torch.jit.trace(fn, example, check_trace=False)
