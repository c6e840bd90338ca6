"""A small model of a project: a batch of one takes another path, as many detection heads do."""

import torch


class Scorer(torch.nn.Module):
    """Score rows; a single row is not normalised, because it has no spread."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, x):
        """Return two scores for each row of x, of shape (rows, 4)."""
        scores = self.linear(x)
        if x.shape[0] == 1:
            return scores
        return scores - scores.mean(0)


def soft_clip(x, limit=2.0):
    """Keep every value within the limit, smoothly."""
    return limit * torch.tanh(x / limit)
