import torch

from recapture import case


@case(example=lambda: torch.ones(2))
def forgot_the_comma(x):
    return x
