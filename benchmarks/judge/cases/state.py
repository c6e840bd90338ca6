"""Cases with state: buffers, attributes, training flags, closures, globals, classes, hooks, settings of torch."""

import contextlib
import dataclasses
import os

import torch
from torch import nn

from recapture import case

counter = 0
history = []
settings = {"scale": 2.0}
total = torch.zeros(2)


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.zeros(2),)], watch=lambda: counter)
def counts_in_a_global(x):
    """Counts its calls in a global variable."""
    global counter
    counter += 1
    return x + counter


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.zeros(2),)])
def appends_to_a_global(x):
    """Appends to a global list."""
    history.append(float(x.sum()))
    return x * 2


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.zeros(2),)])
def adds_to_a_global_tensor(x):
    """Adds to a global tensor in place."""
    total.add_(x + 1)
    return x - 1


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.zeros(2),)])
def reads_a_global(x):
    """Reads a global dict."""
    return x * settings["scale"]


def with_closure():
    calls = [0]
    number = 0

    def counts_in_a_closure(x):
        """Counts its calls in a list and a number of the enclosing function."""
        nonlocal number
        calls[0] += 1
        number += 1
        return x + calls[0]

    return counts_in_a_closure


counts_in_a_closure = case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.zeros(2),)])(with_closure())


class Registry:
    """A class that counts in an attribute of its own."""

    entries = 0


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.zeros(2),)])
def counts_in_a_class(x):
    """Counts its calls in a class attribute."""
    Registry.entries += 1
    return x * 2


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.zeros(2),)])
def counts_in_itself(x):
    """Counts its calls in an attribute of the function."""
    counts_in_itself.calls = getattr(counts_in_itself, "calls", 0) + 1
    return x * 2


counts_in_itself.calls = 0


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.zeros(2),)])
class CountsCalls(nn.Module):
    """Counts its calls in an attribute."""

    made = 0

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.seen = []

    def forward(self, x):
        self.calls += 1
        self.seen.append(tuple(x.shape))
        type(self).made = self.calls
        return x * 2


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.zeros(2),)])
class SwitchesToEvaluation(nn.Module):
    """Switches itself to evaluation mode in its first call."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        y = self.dropout(x + 1)
        self.eval()
        return y


@case(example=lambda: (torch.randn(4, 3),), held_out=[lambda: (torch.randn(4, 3) * 3,), lambda: (torch.randn(2, 3),)])
class Normalizes(nn.Module):
    """Batch normalization in training: running statistics are buffers."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(x)


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.zeros(2),), lambda: (torch.ones(2),)])
class WithHooks(nn.Module):
    """A forward hook counts calls and doubles the result."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.fired = 0
        self.linear.register_forward_hook(self.hook)

    def hook(self, module, args, result):
        self.fired += 1
        return result * 2

    def forward(self, x):
        return self.linear(x)


@dataclasses.dataclass
class Box:
    """An argument with attributes."""

    number: int
    tensor: torch.Tensor


@case(example=lambda: (Box(1, torch.ones(2)),), held_out=[lambda: (Box(5, torch.zeros(2)),)])
def changes_an_object(box):
    """Sets an attribute of a dataclass."""
    box.number += 1
    return box.tensor * box.number


@case(example=lambda: (torch.ones(2), [1]), held_out=[lambda: (torch.zeros(2), [1, 2])])
def appends_to_an_argument(x, items):
    """Appends to a list that it gets."""
    items.append(len(items))
    return x + len(items)


@case(example=lambda: ({"a": torch.ones(2)},), held_out=[lambda: ({"a": torch.zeros(2)},)])
def puts_into_a_dict(named):
    """Puts a result into a dict that it gets."""
    named["b"] = named["a"] + 1
    return named["b"] * 2


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.zeros(2),)])
def tags_its_argument(x):
    """Puts an attribute on its argument and on its result."""
    x.tag = "seen"
    y = x + 1
    y.tag = "made"
    return y


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.zeros(2),)])
def leaves_grad_mode(x):
    """Leaves autograd switched off."""
    torch.set_grad_enabled(False)
    return x + 1


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.zeros(2),)])
def reads_a_setting(x):
    """Reads an environment variable."""
    return x * (2 if os.environ.get("RECAPTURE_UNSET") is None else 3)


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.zeros(2),)])
def suppresses(x):
    """Catches an exception of its own and goes on."""
    with contextlib.suppress(ValueError):
        if x.sum() > 1:
            raise ValueError
        return x + 1
    return x - 1
