"""A model that a project scripts with `jit.script`, and the same model rewritten so that others can capture it."""

import torch


class Detector(torch.nn.Module):
    """Score rows, and return the mean of the scores that are high enough."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        """Return one number for x of shape (rows, 4)."""
        scores = self.linear(x)
        if x.sum() > 0:
            scores = scores * 2
        return scores[scores > 0.1].mean()


class Rewritten(Detector):
    """The same without a branch and without a size that depends on the values."""

    def forward(self, x):
        """Return one number for x of shape (rows, 4)."""
        scores = self.linear(x)
        scores = torch.where(x.sum() > 0, scores * 2, scores)
        high = (scores > 0.1).to(scores.dtype)
        return (scores * high).sum() / high.sum()
