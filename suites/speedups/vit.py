"""A vision transformer: matrix products and attention."""

import torch
from torchvision.models import vit_b_16

from recapture import workload


@workload(inputs=lambda: (torch.randn(8, 3, 224, 224),))
def vit_b_16_eval():
    """Inference on a batch of 8 images of 224 × 224."""
    return vit_b_16()
