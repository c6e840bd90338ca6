"""DenseNet-121: many small convolutions, so that launching kernels costs more than running them."""

import torch
from torch.nn import functional as F
from torchvision.models import densenet121

from recapture import workload


def images():
    return (torch.randn(16, 3, 128, 128),)


def labels():
    return (torch.randint(1000, (16,)),)


@workload(
    inputs=images,
    claims={"compile:reduce-overhead": [("T7", ">=2", "2.91x")]},
)
def densenet121_eval():
    """Inference on a batch of 16 images of 128 × 128."""
    return densenet121()


@workload(
    inputs=images,
    targets=labels,
    loss=F.cross_entropy,
    optimizer=torch.optim.Adam,
    whole_step=True,
    claims={"compile:reduce-overhead": [("T8", ">=2", "3.49x"), ("S1", ">=2", "2.53x")]},
)
def densenet121_train():
    """A training step on a batch of 16 images: cross-entropy and Adam, compiled as a whole."""
    return densenet121()


@workload(
    inputs=images,
    no_grad=False,
    devices=["cuda"],
    claims={"compile:reduce-overhead": [("S2", "<0.1", "0.004x")]},
)
def densenet121_eval_with_grad():
    """Inference with `torch.no_grad()` forgotten: each result keeps a backward pass pending."""
    return densenet121()
