"""Code of a user, as a check finds it: right and wrong in known ways."""

import torch

CALLS = []


class OneRowIsOther(torch.nn.Module):
    """Specialised on the batch size: a tracer keeps the branch of the example."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x) * 2 if x.shape[0] == 1 else self.linear(x)


def wide(x):
    """Branches on a shape that is a number of the source."""
    return x.sum(0) if x.shape[0] > 6 else x.mean(0)


def positive(x):
    return x + 1 if x.sum() > 0 else x * 2


def scored(x):
    """Takes any number of rows of three, in any number of dimensions."""
    return torch.nn.functional.linear(x, torch.ones(2, 3)).relu()


def drops(x, training: bool):
    """A flag that decides whether values are dropped."""
    return x * 0 if training else x


def reduced(x, mode: str):
    return x.sum() if mode == "sum" else x.mean()


def plain(x, y):
    return torch.relu(x) @ y


def listed(xs: list[torch.Tensor]):
    return torch.cat(xs).sum()


def refuses_small(x):
    if x.shape[0] < 3:
        raise ValueError("too few rows")
    return x * 2


def refuses_odd(x):
    if x.shape[0] % 2:
        raise ValueError("an odd number of rows")
    return x.view(2, -1, x.shape[1]) * 2


def dies(x):
    """Dies in eager on one derived input alone."""
    if (x == 0).all():
        import os

        os.kill(os.getpid(), 9)
    return x


def drawn(x):
    return x + torch.rand_like(x)


def asks_for_identity(x, y):
    return x * 10 if x is y else x + y


def equal_tensors():
    return torch.ones(3), torch.ones(3)


def inputs():
    return {"y": torch.randn(3, 2), "x": torch.randn(4, 3)}


class NeedsSize(torch.nn.Module):
    def __init__(self, size):
        super().__init__()


class Regression(torch.nn.Module):
    """Trains; after the first step it takes another branch, which a tracer has not seen."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        loss = (x * self.weight).sum()
        return loss if (self.weight == 1).all() else loss * 10


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, x):
        return torch.tanh(self.linear(x))


def make_linear():
    return Linear()


number = 3
