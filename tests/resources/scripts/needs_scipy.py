from contextlib import suppress

import torch
from recapture import case

with suppress(ImportError):
    import scipy.special


@case(example=lambda: (torch.ones(2),), requires=("scipy",))
def gamma(x):
    return torch.from_numpy(scipy.special.gamma(x.numpy()))
