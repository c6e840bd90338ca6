import torch

from recapture import case


@case(example=lambda: (torch.ones(2),), claims={'jit.tracer': ('X1', 'pass')})
def claimed(x):
    return x
