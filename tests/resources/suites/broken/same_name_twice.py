import torch

from recapture import case


@case(example=lambda: (torch.ones(1),))
def twin(x):
    return x


@case(example=lambda: (torch.ones(1),))
def twin(x):
    return x + 1
