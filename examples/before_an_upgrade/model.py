"""A small model of a project that wants to move from torch 2.6 to 2.11."""

import scipy.linalg
import torch
from einops import rearrange


class Drift(torch.nn.Module):
    """Score readings of four sensors against their running sum, which every call updates."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, x):
        """Return two scores for each time step of x, of shape (batch, sensors, time)."""
        steps = rearrange(x, "batch sensor time -> (batch time) sensor")
        self.seen += steps.mean(0)
        return self.linear(steps - self.seen)


def calibrate(a, b):
    """Return the gains that solve a @ gains = b."""
    return torch.from_numpy(scipy.linalg.solve(a.numpy(), b.numpy())) * 2


def readings():
    """Return inputs of `calibrate`: a system that has a solution."""
    return torch.eye(3, dtype=torch.float64) * 2, torch.ones(3, dtype=torch.float64)
