"""What every compiler should manage: functions and modules as tutorials introduce them."""

import torch
from torch import nn

from recapture import case


@case(
    example=lambda: (torch.randn(10, 10), torch.randn(10, 10)),
    held_out=[lambda: (torch.rand(10, 10) + 2, torch.rand(10, 10)), lambda: (torch.randn(3, 7), torch.randn(3, 7))],
    claims={"compile": ("T1", "right")},
)
def sine_plus_cosine(x, y):
    """The sine of one tensor plus the cosine of another: the first function anyone compiles."""
    return torch.sin(x) + torch.cos(y)


@case(
    example=lambda: (torch.randn(10, 10), torch.randn(10, 10)),
    held_out=[lambda: (torch.randn(3, 7), torch.randn(3, 7))],
    rewrite_of=sine_plus_cosine,
    claims={"eager": ("T2", "pass")},
)
class DecoratorForm(nn.Module):
    """Holds the same function decorated with `@torch.compile`: even run as it is, it must give eager's values."""

    def __init__(self):
        super().__init__()

        @torch.compile  # not at the top of the file: a Python that torch.compile refuses would lose the whole suite
        def decorated(x, y):
            return torch.sin(x) + torch.cos(y)

        self.decorated = decorated

    def forward(self, x, y):
        return self.decorated(x, y)


@case(
    example=lambda: (torch.randn(10, 100),),
    held_out=[lambda: (torch.rand(10, 100),), lambda: (torch.randn(3, 100),)],
    claims={"compile": ("T3", "right")},
)
class LinearReLU(nn.Module):
    """A linear layer from 100 to 10 features and a ReLU."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(100, 10)

    def forward(self, x):
        return torch.nn.functional.relu(self.linear(x))


def squared_distance(x, y):
    """Stand for any helper of one's own."""
    return ((x - y) ** 2).sum(-1)


@case(
    example=lambda: (torch.randn(10, 10), torch.randn(10, 10)),
    held_out=[lambda: (torch.rand(10, 10) + 2, torch.rand(10, 10))],  # the same shapes: one graph is claimed
    claims={"compile": ("T4", "pass graphs=1")},
)
def calls_a_helper(x, y):
    """Calls a function of its own, which is compiled with it into one graph."""
    return torch.exp(-squared_distance(x, y)) + torch.sin(x).sum(-1)


@case(
    example=lambda: (torch.randn(10, 100),),
    held_out=[lambda: (torch.rand(10, 100),), lambda: (torch.randn(3, 100),)],
    claims={"compile": ("T5", "pass")},
)
class ModuleInAModule(nn.Module):
    """A module that holds another, then a second linear layer: it is compiled through, without a break."""

    def __init__(self):
        super().__init__()
        self.inner = LinearReLU()
        self.outer = nn.Linear(10, 2)

    def forward(self, x):
        return torch.nn.functional.relu(self.outer(self.inner(x)))


def conjugate(z):
    """Give the complex conjugate."""
    return torch.conj(z)


def complex_conjugate(real, imaginary):
    """Build a complex tensor and conjugate it."""
    return conjugate(torch.complex(real, imaginary))


@case(
    example=lambda: (torch.tensor([2.0, 3.0]), torch.tensor([4.0, 5.0])),
    held_out=[lambda: (torch.tensor([-1.0, 0.0]), torch.tensor([0.5, -7.0]))],
    claims={"compile": ("T6", "right")},
    since="2.1",
)
class DisabledInside(nn.Module):
    """Keeps one function out of the compiler with `torch.compiler.disable(recursive=False)`: abs is 4.4721, 5.8310."""

    def __init__(self):
        super().__init__()
        self.inner = torch.compiler.disable(complex_conjugate, recursive=False)

    def forward(self, real, imaginary):
        return torch.abs(self.inner(real, imaginary))


def random_bytes(*shape):
    """Give random uint8 values: their negative wraps around."""
    return torch.randint(256, shape, dtype=torch.uint8)


@case(
    example=lambda: (random_bytes(1, 8), random_bytes(8390, 8)),
    held_out=[
        lambda: (torch.full((1, 8), 255, dtype=torch.uint8), random_bytes(8390, 8)),
        lambda: (torch.zeros(5, 3, dtype=torch.uint8), random_bytes(5, 3)),
    ],
    claims={
        "compile": [("I1", "right"), ("I2", "right")],
        "compile:aot_eager": ("I2", "right"),
        "compile:eager": ("I2", "right"),
    },
)
def negate_maximum_concatenate(x, y):
    """Negates bytes, takes a maximum with broadcasting and concatenates: code generators get the wrap-around wrong."""
    return torch.cat([torch.maximum(y, torch.neg(x))], dim=0)


@case(
    example=lambda: (torch.randn(4, 3),),
    held_out=[lambda: (torch.randn(4, 3), 2.0, False), lambda: (torch.randn(2, 5), 0.5)],
)
def default_arguments(x, scale=1.0, keepdim=True):
    """Called without its optional arguments first, with other values later."""
    return (x * scale).mean(dim=-1, keepdim=keepdim)


@case(
    example=lambda: ({"a": torch.randn(3), "b": torch.randn(3)},),
    held_out=[
        lambda: ({"b": torch.randn(3), "a": torch.randn(3)},),
        lambda: ({"a": torch.randn(5), "b": torch.randn(1)},),
    ],
)
def dict_in_dict_out(batch):
    """Takes a dict and gives a dict, also when the keys come in another order."""
    return {"sum": batch["a"] + batch["b"], "ratio": batch["a"] / (batch["b"].abs() + 1)}


@case(
    example=lambda: (torch.randn(4, 3), torch.randn(3)),
    held_out=[lambda: (torch.rand(4, 3), torch.rand(3)), lambda: (torch.randn(2, 1), torch.randn(1))],
)
def adds_in_place(x, y):
    """Changes its argument in place: the caller must see that, and the returned alias too."""
    x.add_(y)
    return x, x.sum(0)


@case(
    example=lambda: (torch.arange(12.0).reshape(3, 4),),
    held_out=[lambda: (torch.arange(12.0).reshape(4, 3).t(),), lambda: (torch.randn(2, 2),)],
)
def writes_through_a_view(x):
    """Writes through a transposed view of its argument and returns another view of it."""
    columns = x.t()
    columns[0].mul_(10)
    return x[:, :1]


@case(
    example=lambda: (torch.randn(8, 4),),
    held_out=[lambda: (torch.rand(8, 4) + 3,), lambda: (torch.randn(5, 4),)],
)
class BatchNormTraining(nn.Module):
    """Batch normalisation in training mode: running statistics and the batch counter change with every call."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(x)


@case(
    example=lambda: (torch.randn(6, 4),),
    held_out=[lambda: (torch.rand(6, 4),), lambda: (torch.randn(2, 4),)],
)
class DropoutInEval(nn.Module):
    """Dropout in evaluation mode does nothing, so every call repeats."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.dropout = nn.Dropout(0.5)
        self.eval()

    def forward(self, x):
        return self.dropout(torch.tanh(self.linear(x)))


@case(
    example=lambda: (torch.ones(3),),
    held_out=[lambda: (torch.full((3,), 2.0),), lambda: (torch.full((3,), 4.0),)],
)
class RunningTotal(nn.Module):
    """Adds its argument to a buffer and returns a copy: each call depends on the one before."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total += x
        return self.total.clone()
