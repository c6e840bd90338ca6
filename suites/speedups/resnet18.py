"""ResNet-18: few, large convolutions, which libraries run well already."""

import torch
from torchvision.models import resnet18

from recapture import workload


@workload(inputs=lambda: (torch.randn(16, 3, 224, 224),))
def resnet18_eval():
    """Inference on a batch of 16 images of 224 × 224."""
    return resnet18()
