"""Ordinary computations for `rounding.py`, with other ways to compute the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from benchmarks.summation_orders import (
    ORDERS,
    layer_norm_of,
    log_softmax_of,
    mean_of,
    product_of,
    softmax_of,
    variance_of,
    with_orders,
)

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
WIDE = (torch.float32, torch.float64)
HALF = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Computation:
    """A function of tensors, its inputs, and other ways to compute the same."""

    name: str
    function: Callable[..., Any]
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    dtypes: tuple[torch.dtype, ...] = (torch.float32,)
    others: dict[str, Callable[..., Any]] = field(default_factory=dict)
    call: Callable[..., Any] | None = None
    """Calls the function, compiled or not, for computations with a backward pass."""

    def make(self) -> tuple[torch.Tensor, ...]:
        """Return inputs, with the weights of `with_gradients` as the last one: they are rounded like any input."""
        weights = (torch.linspace(-1, 1, WEIGHTS, dtype=torch.float64).sin(),) if self.call is with_gradients else ()
        return (*self.inputs(), *weights)

    @property
    def is_large(self) -> bool:
        """Whether one comparison takes so long that few are made."""
        return self.name.endswith(("1e+06", " 1024"))

    def run(self, function: Callable[..., Any], args: tuple[torch.Tensor, ...]) -> Any:
        """Compute with eager's or a compiled function on fresh copies of the inputs."""
        args = tuple(tensor.clone() for tensor in args)
        return self.call(function, *args) if self.call else function(*args)


WEIGHTS = 20000
"""Number of weights for the elements of a result in a backward."""


def with_gradients(function: Callable[..., Any], *args: torch.Tensor) -> list[torch.Tensor]:
    """Call and go backward with the weights that the last argument begins with; return the result and gradients."""
    leaves = [argument.requires_grad_(True) for argument in args[:-1]]
    result = function(*leaves)
    result.backward(args[-1][: result.numel()].reshape(result.shape))
    return [result.detach(), *(leaf.grad for leaf in leaves)]


def adam_step(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Take three steps of Adam with a constant gradient."""
    for step in range(1, 4):
        m = m * 0.9 + g * 0.1
        v = v * 0.999 + g * g * 0.001
        p = p - 1e-3 * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
    return p, m, v


def train(function: Callable[..., Any], x: torch.Tensor, w: torch.Tensor, target: torch.Tensor) -> list[torch.Tensor]:
    """Take three steps of Adam on a linear layer with a loss."""
    weight = torch.nn.Parameter(w)
    optimizer = torch.optim.Adam([weight], lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        function(x, weight, target).backward()
        optimizer.step()
    return [weight.detach(), weight.grad]


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention written out."""
    return ((q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5).softmax(-1) @ v


def gelu_chain(x: torch.Tensor) -> torch.Tensor:
    """Several activations in a row."""
    return functional.gelu(functional.silu(x * 1.7 + 0.3).tanh() * 2 - 0.1)


def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A chain of pointwise operators: compiled code keeps float32 between them."""
    z = x * y + x
    z = torch.sigmoid(z) * y - x / 3
    return (z * z + 0.5).sqrt() - y.exp() * 0.1


def randn(*shape: int) -> torch.Tensor:
    """Return normal random numbers in float64, which are rounded to the dtype in question."""
    return torch.randn(*shape, dtype=torch.float64)


def rand(*shape: int) -> torch.Tensor:
    """Return uniform random numbers in float64."""
    return torch.rand(*shape, dtype=torch.float64)


def inputs_of(numbers: Callable[..., torch.Tensor], *shape: int) -> tuple[torch.Tensor, ...]:
    """Return one input."""
    return (numbers(*shape),)


def sums() -> list[Computation]:
    """Return computations that are mostly long sums."""
    sum_of = with_orders(lambda total, x: total(x))
    computations = []
    for count in (10**5, 10**6):
        for kind, numbers in (("randn", randn), ("rand", rand)):
            make = partial(inputs_of, numbers, count)
            dtypes = FLOATS if count == 10**5 else WIDE
            computations += [
                Computation(f"sum {kind} {count:.0e}", lambda x: x.sum(), make, dtypes, sum_of),
                Computation(f"mean {kind} {count:.0e}", lambda x: x.mean(), make, WIDE, with_orders(mean_of)),
                Computation(f"var {kind} {count:.0e}", lambda x: x.var(), make, WIDE, with_orders(variance_of)),
            ]
    return [
        *computations,
        Computation("std", lambda x: x.std(-1), lambda: (randn(64, 1000) + 3,), FLOATS),
        Computation("norm", lambda x: x.norm(dim=-1), lambda: (randn(64, 1000),), FLOATS),
        Computation("logsumexp", lambda x: x.logsumexp(-1), lambda: (randn(64, 1000) * 5,), FLOATS),
        Computation("cumsum", lambda x: x.cumsum(-1), lambda: (randn(8, 5000),), WIDE),
        Computation(
            "bias gradient",
            lambda g: g.sum(0),
            lambda: (randn(4096, 16),),
            FLOATS,
            {name: lambda g, total=total: total(g.T.contiguous()).to(g.dtype) for name, total in ORDERS.items()},
        ),
        Computation("tall sum", lambda x: (x * x).sum((0, 2)), lambda: (randn(64, 8, 500),), FLOATS),
    ]


def normalisations() -> list[Computation]:
    """Return softmax and norm layers."""
    return [
        Computation(
            "softmax", lambda x: x.softmax(-1), lambda: (randn(64, 1000) * 3,), FLOATS, with_orders(softmax_of)
        ),
        Computation(
            "log_softmax",
            lambda x: x.log_softmax(-1),
            lambda: (randn(64, 1000) * 3,),
            FLOATS,
            with_orders(log_softmax_of),
        ),
        Computation(
            "layer_norm",
            lambda x: functional.layer_norm(x, x.shape[-1:]),
            lambda: (randn(64, 768) * 2 + 5,),
            FLOATS,
            with_orders(layer_norm_of),
        ),
        Computation(
            "batch_norm",
            lambda x: functional.batch_norm(x, None, None, training=True),
            lambda: (randn(16, 8, 14, 14) + 1,),
            FLOATS,
        ),
        Computation("group_norm", lambda x: functional.group_norm(x, 4), lambda: (randn(16, 8, 14, 14) + 1,), FLOATS),
        Computation(
            "layer_norm gradients",
            lambda x, w, b: functional.layer_norm(x, x.shape[-1:], w, b),
            lambda: (randn(64, 256), randn(256), randn(256)),
            WIDE,
            call=with_gradients,
        ),
        Computation(
            "batch_norm gradients",
            lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
            lambda: (randn(32, 8, 7, 7), randn(8), randn(8)),
            WIDE,
            call=with_gradients,
        ),
        Computation(
            "cross_entropy gradients",
            lambda x: functional.cross_entropy(x, torch.arange(64, device=x.device) * 7 % 100),
            lambda: (randn(64, 100) * 3,),
            FLOATS,
            call=with_gradients,
        ),
    ]


def two_matrices(size: int) -> tuple[torch.Tensor, ...]:
    """Return two square matrices."""
    return randn(size, size), randn(size, size)


def products() -> list[Computation]:
    """Return matrix products, convolutions and attention."""
    split = {
        "split": lambda a, b: sum(x @ y for x, y in zip(a.split(16, -1), b.split(16, -2), strict=True)),
        "reversed": lambda a, b: a.flip(-1) @ b.flip(-2),
    }
    orders = with_orders(product_of)
    return [
        Computation("matmul 64", torch.matmul, partial(two_matrices, 64), WIDE, split | orders),
        Computation("matmul 256", torch.matmul, partial(two_matrices, 256), WIDE, split),
        Computation("matmul 1024", torch.matmul, partial(two_matrices, 1024), (torch.float32,), split),
        Computation("matmul half", torch.matmul, lambda: (randn(64, 256), randn(256, 64)), HALF),
        Computation("bmm", torch.bmm, lambda: (randn(8, 64, 96), randn(8, 96, 32)), WIDE, split),
        Computation(
            "linear relu gradients",
            lambda x, w, b: functional.linear(x, w, b).relu(),
            lambda: (randn(256, 64), randn(32, 64), randn(32)),
            FLOATS,
            call=with_gradients,
        ),
        Computation(
            "conv1d",
            lambda x, w: functional.conv1d(x, w, padding=1),
            lambda: (randn(4, 16, 100), randn(8, 16, 3)),
            WIDE,
        ),
        Computation(
            "conv2d",
            lambda x, w, b: functional.conv2d(x, w, b, padding=1).relu(),
            lambda: (randn(4, 16, 28, 28), randn(32, 16, 3, 3), randn(32)),
            FLOATS,
        ),
        Computation(
            "conv2d gradients",
            lambda x, w, b: functional.conv2d(x, w, b, stride=2),
            lambda: (randn(4, 8, 14, 14), randn(16, 8, 3, 3), randn(16)),
            WIDE,
            call=with_gradients,
        ),
        Computation(
            "attention",
            attend,
            lambda: (randn(2, 4, 64, 32), randn(2, 4, 64, 32), randn(2, 4, 64, 32)),
            FLOATS,
            {"fused": functional.scaled_dot_product_attention},
        ),
        Computation(
            "attention fused",
            functional.scaled_dot_product_attention,
            lambda: (randn(2, 4, 64, 32), randn(2, 4, 64, 32), randn(2, 4, 64, 32)),
            FLOATS,
            {"written out": attend},
        ),
    ]


def pointwise() -> list[Computation]:
    """Return chains of pointwise operators, differences that cancel, and optimizers."""
    return [
        Computation("exp", torch.exp, lambda: (randn(10000) * 4,), FLOATS),
        Computation("gelu tail", functional.gelu, lambda: (rand(10000) * -8,), FLOATS),
        Computation("activations", gelu_chain, lambda: (randn(10000) * 3,), FLOATS),
        Computation("activations gradients", gelu_chain, lambda: (randn(2000) * 3,), FLOATS, call=with_gradients),
        Computation("chain", chain, lambda: (randn(10000), randn(10000)), FLOATS),
        Computation(
            "powers",
            # Not `expm1`, `erf` and `atanh`: Inductor's are off by several percent near zero on the CPU.
            lambda x, y: x**3 + x.abs() ** y - torch.exp2(x) * torch.log1p(y.abs()),
            lambda: (randn(10000), randn(10000)),
            FLOATS,
        ),
        Computation("sin² + cos² - 1", lambda x: x.sin() ** 2 + x.cos() ** 2 - 1, lambda: (randn(10000) * 10,), FLOATS),
        Computation(
            "difference",
            lambda x, y: (x + y) - (x - y) - 2 * y,
            lambda: (randn(10000), randn(10000)),
            FLOATS,
            {"regrouped": lambda x, y: (y + x) + (y - x) - y * 2},
        ),
        Computation(
            "relu near zero",
            lambda x, y: ((x * y + 1) - x * y - 1).relu(),
            lambda: (randn(10000), randn(10000)),
            FLOATS,
        ),
        Computation(
            "centred product", lambda x: (x - x.mean(0)).T @ (x - x.mean(0)), lambda: (randn(500, 20) + 10,), WIDE
        ),
        Computation(
            "adam", adam_step, lambda: (randn(1000), randn(1000) * 1e-3, randn(1000) * 1e-3, rand(1000) * 1e-6), WIDE
        ),
        Computation(
            "training with adam",
            lambda x, w, t: functional.mse_loss(torch.tanh(x @ w.T), t),
            lambda: (randn(128, 20), randn(8, 20), randn(128, 8)),
            WIDE,
            call=train,
        ),
        Computation("fft", lambda x: torch.fft.fft(x).abs(), lambda: (randn(8, 256),), WIDE),
        Computation(
            "interpolate",
            lambda x: functional.interpolate(x, scale_factor=1.7, mode="bilinear", align_corners=False),
            lambda: (randn(1, 3, 16, 16),),
            WIDE,
        ),
        Computation("solve", torch.linalg.solve, lambda: (randn(30, 30), randn(30, 4)), WIDE),
    ]


def all_computations() -> list[Computation]:
    """Return every computation."""
    return [*sums(), *normalisations(), *products(), *pointwise()]
