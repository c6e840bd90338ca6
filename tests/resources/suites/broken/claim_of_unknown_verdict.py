import torch

from recapture import case


@case(example=lambda: (torch.ones(2),), claims={'jit.trace': ('X1', 'passes')})
def claimed(x):
    return x
