"""Public issues about random numbers under `torch.compile`, with the switch that promises eager's random stream.

`fallback_random` makes Inductor draw as eager does, so that the values can be compared. It is on for this whole file.
"""

import torch
from torch import nn
from torch._inductor import config

from recapture import case

config.fallback_random = True


@case(
    example=lambda: (torch.ones(2, 8, 3),),
    held_out=[lambda: (torch.full((2, 8, 3), 2.0),)],
    compilers=("compile",),
)
class DropoutOfChannels(nn.Module):
    """pytorch#142853, CVE-2025-46153: dropout of whole channels of a signal, in training mode."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout1d(0.5)

    def forward(self, x):
        return self.dropout(x)


@case(
    example=lambda: (torch.ones(2, 8, 3, 3),),
    held_out=[lambda: (torch.full((2, 8, 3, 3), 2.0),)],
    compilers=("compile",),
)
class DropoutOfImages(nn.Module):
    """pytorch#142853, CVE-2025-46153: dropout of whole channels of an image, in training mode."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout2d(0.5)

    def forward(self, x):
        return self.dropout(x)


@case(
    example=lambda: (torch.ones(4, 6),),
    held_out=[lambda: (torch.full((4, 6), 2.0),)],
    compilers=("compile",),
)
def dropout_of_a_transpose(x):
    """pytorch#174078: dropout of a transposed tensor: the mask follows the order of eager's draws."""
    return torch.nn.functional.dropout(x.t() * 2, 0.5, training=True)


@case(
    example=lambda: (torch.ones(3, 5),),
    held_out=[lambda: (torch.zeros(3, 5),)],
    compilers=("compile",),
)
def noise_like_a_rotated_image(x):
    """pytorch#147847, CVE-2025-55552: random numbers shaped like a rotated tensor."""
    return torch.randn_like(torch.rot90(x + 1))


@case(
    example=lambda: (torch.randn(1, 1, 10, 10),),
    held_out=[lambda: (torch.rand(1, 1, 10, 10),)],
    compilers=("compile",),
)
class RandomPooling(nn.Module):
    """pytorch#141538, CVE-2025-46150: pooling of regions that are drawn at random."""

    def __init__(self):
        super().__init__()
        self.pool = nn.FractionalMaxPool2d(kernel_size=(1, 1), output_ratio=(0.5, 0.5))

    def forward(self, x):
        return self.pool(x)


@case(
    example=lambda: (torch.randn(1, 1, 6, 6, 6),),
    held_out=[lambda: (torch.rand(1, 1, 6, 6, 6),)],
    compilers=("compile",),
)
class RandomPoolingOfVolumes(nn.Module):
    """pytorch#141536: the same pooling in three dimensions."""

    def __init__(self):
        super().__init__()
        self.pool = nn.FractionalMaxPool3d(kernel_size=(1, 1, 1), output_ratio=(0.5, 0.5, 0.5))

    def forward(self, x):
        return self.pool(x)
