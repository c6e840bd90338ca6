import torch

from recapture import case


@case(example=lambda: (torch.ones(1, 2) @ torch.ones(1, 2),))
def unreachable(x):
    return x
