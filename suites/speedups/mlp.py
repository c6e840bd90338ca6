"""A multilayer perceptron: three matrix products with a GELU between them."""

import torch
from torch import nn
from torch.nn import functional as F

from recapture import workload

LESSON = [("L1", ">=1.5", "1.5-3x")]


@workload(
    inputs=lambda: (torch.randn(64, 1024),),
    targets=lambda: (torch.randn(64, 1024),),
    loss=F.mse_loss,
    optimizer=torch.optim.AdamW,
    dtype="amp",
    devices=["cuda"],
    claims={"compile": LESSON, "compile:reduce-overhead": LESSON, "compile:max-autotune": LESSON},
)
def mlp_train():
    """A training step of 1024 → 4096 → 4096 → 1024, batch 64: AdamW under bfloat16 autocast."""
    return nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 1024))
