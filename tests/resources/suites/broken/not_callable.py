import torch

from recapture import case


@case(example=(1, 2))
def gave_values(x, y):
    return x
