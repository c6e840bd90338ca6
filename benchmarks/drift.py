# ruff: noqa: SLF001, ARG005 - operators with private names, and kernels that must take every argument of one
"""Plants changes in one of two sides, and counts what `recapture drift` says: ``python -m benchmarks.drift``.

A change replaces a kernel of torch for one side alone, as another release would. It counts as placed if the first place
is its operator, and a change that only rounds otherwise must be called rounding. Pairs without any change must never be
called changed; ``--pairs`` is their number. Both sides run in this process, one after the other, so that hundreds of
pairs take minutes; `recapture drift` itself gives each side a process.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from recapture.tools.drift.answer import Drift, DriftReport
from recapture.tools.drift.facts import SideReport, Task
from recapture.tools.drift.side import examine
from recapture.tools.drift.sides import SideOf

TARGETS = Path(__file__).with_name("drift_targets.py")

INPUTS: dict[str, tuple[tuple[tuple[int, ...], str], ...]] = {
    "Attention": (((4, 12, 32), "float32"),),
    "Convolutions": (((2, 3, 16, 16), "float32"),),
    "Words": (((4, 9), "int64"),),
    "Dropping": (((4, 16), "float32"),),
}

aten = torch.ops.aten


class Plant(NamedTuple):
    """A planted change: the model, the operator that shows it first, what it is, and how the operator computes now."""

    target: str
    operator: str
    kind: str
    kernel: Callable[..., Any]


def _wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that computes in float64 and rounds once."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        wide = [arg.double() if isinstance(arg, torch.Tensor) and arg.is_floating_point() else arg for arg in args]
        result = function(*wide, **kwargs)
        if isinstance(result, tuple):
            return tuple(part.float() if part.is_floating_point() else part for part in result)
        return result.float()

    return kernel


def _scaled(function: Callable[..., Any], factor: float = 1.001) -> Callable[..., Any]:
    """Return a kernel whose first result is off by a factor."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        wide = [arg.double() if isinstance(arg, torch.Tensor) and arg.is_floating_point() else arg for arg in args]
        result = function(*wide, **kwargs)
        if isinstance(result, tuple):
            return (
                (result[0] * factor).float(),
                *(part.float() if part.is_floating_point() else part for part in result[1:]),
            )
        return (result * factor).float()

    return kernel


def _half(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that rounds its arguments to bfloat16."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        low = [
            arg.bfloat16().double() if isinstance(arg, torch.Tensor) and arg.is_floating_point() else arg
            for arg in args
        ]
        return function(*low, **kwargs).float()

    return kernel


def _layer_norm(eps: float) -> Callable[..., Any]:
    return lambda x, shape, weight, bias, _: _wide(aten.native_layer_norm)(x, shape, weight, bias, eps)


def _batch_norm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: Any, momentum: Any, _: Any) -> Any:
    return _wide(aten.native_batch_norm)(x, weight, bias, mean, var, training, momentum, 1e-3)


PLANTS = {
    "gelu: tanh approximation": Plant(
        "Attention",
        "gelu",
        "changed",
        lambda x, **_: _wide(aten.gelu)(x, approximate="tanh"),
    ),
    "gelu: float64": Plant("Attention", "gelu", "rounding", _wide(aten.gelu)),
    "gelu backward": Plant("Attention", "gelu_backward", "changed", _scaled(aten.gelu_backward)),
    "layer norm: epsilon": Plant("Attention", "native_layer_norm", "changed", _layer_norm(1e-2)),
    "layer norm: float64": Plant("Attention", "native_layer_norm", "rounding", _layer_norm(1e-5)),
    "layer norm backward": Plant(
        "Attention", "native_layer_norm_backward", "changed", _scaled(aten.native_layer_norm_backward)
    ),
    "softmax: scale": Plant("Attention", "_softmax", "changed", _scaled(aten._softmax)),
    "softmax: float64": Plant("Attention", "_softmax", "rounding", _wide(aten._softmax)),
    "softmax backward": Plant(
        "Attention",
        "_softmax_backward_data",
        "changed",
        lambda grad, output, dim, dtype: _scaled(aten._softmax_backward_data)(grad, output, dim, torch.float64),
    ),
    "log softmax: scale": Plant("Attention", "_log_softmax", "changed", _scaled(aten._log_softmax)),
    "log softmax: float64": Plant("Attention", "_log_softmax", "rounding", _wide(aten._log_softmax)),
    "bmm: bfloat16": Plant("Attention", "bmm", "changed", _half(aten.bmm)),
    "bmm: float64": Plant("Attention", "bmm", "rounding", _wide(aten.bmm)),
    "addmm: alpha": Plant("Attention", "addmm", "changed", _scaled(aten.addmm)),
    "addmm: float64": Plant("Attention", "addmm", "rounding", _wide(aten.addmm)),
    "mm: float64": Plant("Attention", "mm", "rounding", _wide(aten.mm)),
    "mm in a backward": Plant("Attention", "mm", "changed", _scaled(aten.mm)),
    "convolution: bias": Plant(
        "Convolutions",
        "convolution",
        "changed",
        lambda x, weight, _, *more: _wide(aten.convolution)(x, weight, None, *more),
    ),
    "convolution: float64": Plant("Convolutions", "convolution", "rounding", _wide(aten.convolution)),
    "convolution: bfloat16": Plant("Convolutions", "convolution", "changed", _half(aten.convolution)),
    "batch norm: epsilon": Plant("Convolutions", "native_batch_norm", "changed", _batch_norm),
    "relu: threshold": Plant(
        "Convolutions", "relu", "changed", lambda x: torch.where(x > 0.05, x, torch.zeros_like(x))
    ),
    "max pool: smaller": Plant(
        "Convolutions", "max_pool2d_with_indices", "changed", _scaled(aten.max_pool2d_with_indices)
    ),
    "silu: approximation": Plant("Convolutions", "silu", "changed", lambda x: x * (x / 6 + 0.5).clamp(0, 1)),
    "silu: formula": Plant("Convolutions", "silu", "rounding", lambda x: x / (1 + torch.exp(-x))),
    "average pool: padding": Plant(
        "Convolutions",
        "avg_pool2d",
        "changed",
        lambda x, kernel, stride=(), padding=0, ceil=False, include=True, divisor=None: _wide(aten.avg_pool2d)(
            x, kernel, stride, padding, ceil, not include, divisor
        ),
    ),
    "mean: divisor": Plant("Convolutions", "mean.dim", "changed", _scaled(aten.mean.dim)),
    "mean: float64": Plant("Convolutions", "mean.dim", "rounding", _wide(aten.mean.dim)),
    "sigmoid: scale": Plant("Convolutions", "sigmoid", "changed", _scaled(aten.sigmoid)),
    "sigmoid: float64": Plant("Convolutions", "sigmoid", "rounding", _wide(aten.sigmoid)),
    "cumsum: order": Plant(
        "Words",
        "cumsum",
        "changed",
        lambda x, dim, dtype=None: x.double().flip(dim).cumsum(dim).float(),
    ),
    "cumsum: from the end": Plant(
        "Words",
        "cumsum",
        "rounding",
        lambda x, dim, dtype=None: x.sum(dim, keepdim=True) - x.flip(dim).cumsum(dim).flip(dim) + x,
    ),
    "rsqrt: approximation": Plant("Words", "rsqrt", "changed", _scaled(aten.rsqrt, 1.0005)),
    "rsqrt: formula": Plant("Words", "rsqrt", "rounding", lambda x: torch.exp(torch.log(x) * -0.5)),
    "pow: exponent": Plant("Words", "pow.Tensor_Scalar", "changed", lambda x, _: x.double().abs().pow(2.01).float()),
    "tanh: clamped": Plant("Words", "tanh", "changed", lambda x: x.clamp(-1, 1)),
    "tanh: formula": Plant("Words", "tanh", "rounding", lambda x: 2 * torch.sigmoid(2 * x) - 1),
    "exp: approximation": Plant("Words", "exp", "changed", lambda x: 1 + x + x * x / 2),
    "exp: float64": Plant("Words", "exp", "rounding", _wide(aten.exp)),
    "sum: bfloat16": Plant(
        "Words",
        "sum.dim_IntList",
        "changed",
        lambda x, dim, keep=False, dtype=None: x.bfloat16().double().sum(dim, keep).float(),
    ),
    "sum: promotion": Plant(
        "Words",
        "sum.dim_IntList",
        "form",
        lambda x, dim, keep=False, dtype=None: x.double().sum(dim, keep),
    ),
    "variance: correction": Plant(
        "Words",
        "var.correction",
        "changed",
        lambda x, dim=None, correction=1, keepdim=False: (
            ((x.double() - x.double().mean(dim, keepdim=True)) ** 2).mean(dim, keepdim=keepdim).float()
        ),
    ),
    "clamp: bound": Plant(
        "Words",
        "clamp",
        "changed",
        lambda x, low=None, high=None: x.maximum(torch.tensor(low)).minimum(torch.tensor(high * 0.9)),
    ),
    "embedding: row": Plant(
        "Words",
        "embedding",
        "changed",
        lambda weight, tokens, *_: weight.index_select(0, (tokens.reshape(-1) + 1) % 10).reshape(*tokens.shape, -1),
    ),
    "random stream": Plant(
        "Dropping",
        "bernoulli_.float",
        "changed",
        lambda x, p=0.5, generator=None: x.copy_((torch.rand(x.shape) < p).float()),
    ),
}
"""The planted changes by name."""


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """Replace the kernel of an operator on CPUs; inside a replacement, torch's own kernels run."""
    if not name:
        yield
        return
    plant = PLANTS[name]
    operator, _, overload = plant.operator.partition(".")
    original = getattr(getattr(aten, operator), overload or "default")
    before = torch.library.get_kernel(original, "CPU")
    library = torch.library.Library("aten", "IMPL")
    inside = False

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        dtypes = {arg.dtype for arg in args if isinstance(arg, torch.Tensor)}
        if inside or torch.float32 not in dtypes:  # what replaces the kernel, and the judge, compute in float64
            return before.call_boxed(keys, *args, **kwargs)
        inside = True
        try:
            return plant.kernel(*args, **kwargs)
        finally:
            inside = False

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.impl(original, kernel, "CPU", with_keyset=True)
        try:
            yield
        finally:
            library._destroy()


class InThisProcess:
    """Runs the tasks of sides in this process; the name of a side is that of what is planted in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.number = 0

    def folder(self) -> Path:
        """Return a new folder for the files of a task."""
        self.number += 1
        path = self.root / str(self.number)
        path.mkdir()
        return path

    def clear(self) -> None:
        """Leave the files: their folder is removed after each pair."""

    def run(self, side: SideOf, task: Task) -> SideReport:
        """Carry out a task."""
        with planted(side.name if side.name in PLANTS else ""):
            report = examine(task)
        if report.problem:
            raise RuntimeError(f"{side.name}: {report.problem}")
        return report


def compared(target: str, new: str = "", seed: int = 0) -> DriftReport:
    """Compare a model with itself, with something planted on the new side."""
    torch.manual_seed(seed)
    own_code = {"place": str(TARGETS), "name": target, "inputs": INPUTS[target], "folder": str(TARGETS.parent)}
    root = Path(tempfile.mkdtemp(prefix="drift-"))
    try:
        drift = Drift(target=target, own_code=own_code, old=SideOf(name="plain"), new=SideOf(name=new or "plain"))
        return drift.compare(InThisProcess(root))  # type: ignore[arg-type]
    finally:
        shutil.rmtree(root)


def main() -> None:
    """Run the planted changes and the pairs without one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    began = time.process_time()
    seen = placed = called = 0
    plants = {name: plant for name, plant in PLANTS.items() if options.only in name}
    for name, plant in plants.items():
        report = compared(plant.target, name)
        place = report.place.name if report.place is not None else "nowhere"
        operator = plant.operator if "." in plant.operator else f"{plant.operator}.default"
        right = [report.verdict != "same bits", operator in place, report.verdict == plant.kind]
        seen, placed, called = seen + right[0], placed + right[1], called + right[2]
        explains = report.place.explains if report.place is not None else None
        print(f"{'ok ' if all(right) else 'BAD'} {name}: {report.verdict} at {place}; explains {explains}")
    number = len(plants)
    print(f"{seen} of {number} seen, {placed} of {number} at their operator, {called} of {number} called by their kind")
    targets = list(INPUTS)
    verdicts = [compared(targets[pair % len(targets)], seed=pair).verdict for pair in range(options.pairs)]
    changed = sum(verdict != "same bits" for verdict in verdicts)
    print(f"{changed} of {options.pairs} pairs without a change called changed")
    print(f"{time.process_time() - began:.0f} CPU seconds")


if __name__ == "__main__":
    main()
