# ruff: noqa: D102 - each class has one method, `forward`
"""Small models whose operators the benchmark of `recapture drift` changes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Attention(nn.Module):  # type: ignore[misc]
    """An encoder layer with a norm before it, and a softmax at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.first = nn.Linear(32, 96)
        self.last = nn.Linear(32, 8)

    def forward(self, x: Any) -> Any:
        query, key, value = self.first(self.norm(x)).chunk(3, -1)
        weights = torch.softmax(torch.bmm(query, key.transpose(1, 2)) * 0.17, -1)
        return torch.log_softmax(self.last(nn.functional.gelu(8 * torch.bmm(weights, value))), -1)


class Convolutions(nn.Module):  # type: ignore[misc]
    """Two convolutions with norms, pools and an average."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 16, 3)
        self.last = nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.first(x))), 2)
        x = nn.functional.avg_pool2d(nn.functional.silu(self.second(x)), 3, padding=1)
        return torch.sigmoid(self.last(x.mean((2, 3))))


class Words(nn.Module):  # type: ignore[misc]
    """An embedding, sums and functions of single elements."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 24)
        self.last = nn.Linear(24, 24)

    def forward(self, tokens: Any) -> Any:
        x = torch.cumsum(self.table(tokens), 1)
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        x = torch.tanh(self.last(x * scale))
        return torch.exp(x.clamp(-0.5, 0.5)).sum(1) / x.var(1)


class Dropping(nn.Module):  # type: ignore[misc]
    """A layer with dropout: its result follows from the random stream."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.dropout(self.last(x), 0.5, training=True)


class Trained(nn.Module):  # type: ignore[misc]
    """A network with a batch norm, a hook in its forward and one in its backward, to plant faults of a training in."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 16)
        self.norm = nn.BatchNorm1d(16)
        self.second = nn.Linear(16, 16)
        self.last = nn.Linear(16, 4)
        self.forward_hook = self.second.register_forward_hook(lambda _module, _args, result: result * 1.5)
        self.backward_hook = self.norm.register_full_backward_hook(lambda _module, before, _after: (before[0] * 0.5,))

    def forward(self, x: Any) -> Any:
        return self.last(torch.tanh(self.second(torch.relu(self.norm(self.first(x))))))
