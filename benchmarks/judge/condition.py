"""How much rounding may change the results of a case: an estimate that shares nothing with the judge.

Eager runs again with every floating-point input and parameter moved by up to one unit in the last place, and once with
all of them in float64. The largest relative change of any run says how ill-conditioned the results are. A defect of
values is planted only where it is far larger, because nobody could tell a smaller one from rounding.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks.judge.planting import leaves, rebuild
from recapture.cases.case import Case
from recapture.torch_api.compat import seed_everything

FAR = 1e300
"""The largest change that is reported, for infinite ones: JSON has no infinity."""

RUNS = 4
"""Number of runs with moved inputs."""


def condition(load: Callable[[], Case], device: str) -> dict[str, dict[str, float]]:
    """Return the relative change of the largest, the median and any element, and the mean, by dtype of the results.

    `load` executes the case's file again, so that the runs share no state. An input on which a run fails, or gives
    another form, counts as an infinite change.
    """
    first = _results(load, device, lambda tensor: tensor)
    changes = [_moved(torch.Generator().manual_seed(seed)) for seed in range(1, RUNS + 1)]
    others = [_results(load, device, change) for change in changes]
    others.append(_results(load, device, _widened))
    largest: dict[str, dict[str, float]] = {}
    for number, results in enumerate(others):
        widened = number == len(changes)
        for own, changed in zip(first, results, strict=True):
            if widened and (changed is None or len(own or ()) != len(changed)):
                continue  # the case cannot run in float64
            for dtype, change in _changes(own or [], changed):
                worst = largest.setdefault(dtype, dict.fromkeys(change, 0.0))
                worst.update({which: min(max(size, worst[which]), FAR) for which, size in change.items()})
    return largest


def _moved(generator: torch.Generator) -> Any:
    def change(tensor: torch.Tensor) -> torch.Tensor:
        steps = torch.randint(-1, 2, tensor.shape, generator=generator).to(tensor.device)
        unit = torch.finfo(tensor.dtype).eps / 2
        return (tensor.detach() * (1 + 2 * unit * steps)).to(tensor.dtype)

    return change


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)


def _results(load: Callable[[], Case], device: str, change: Any) -> list[list[torch.Tensor] | None]:
    """Return, for each input, the floating-point tensors and masks of the result; None where the case raises."""

    def changed(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.is_quantized or value.is_nested:
            return value
        if not (value.is_floating_point() or value.is_complex()) or value.layout != torch.strided:
            return value
        new = change(value)
        if new is value:
            return value
        if isinstance(value, torch.nn.Parameter):
            return torch.nn.Parameter(new, requires_grad=value.requires_grad)
        return new.requires_grad_(value.requires_grad) if value.is_leaf else new

    tensors_of_inputs: list[list[torch.Tensor] | None] = []
    case = load()
    try:
        with unchanged_settings():
            results = calls(case, device, change=changed)
            tensors_of_inputs += [None if isinstance(result, BaseException) else _rounded(result) for result in results]
    except Exception:  # the module or its inputs cannot be made
        return [None for _ in case.inputs()]
    return tensors_of_inputs


def calls(
    case: Case, device: str, *, change: Callable[[Any], Any] = lambda leaf: leaf, capture: Any = None
) -> Iterator[Any]:
    """Call a case on each of its inputs, and yield what it returns, or the exception that it raises.

    `change` is applied to every leaf of the arguments and to the parameters and buffers of a module; `capture` is a
    compiler, which gets the example first.
    """
    seed_everything()
    target: Any = case.target().to(device) if case.is_module else case.target
    for module in target.modules() if case.is_module else ():
        for tensors in (module._parameters, module._buffers):  # noqa: SLF001
            tensors.update({name: change(tensor) for name, tensor in tensors.items() if tensor is not None})

    def arguments(make: Callable[[], tuple[Any, ...]]) -> Any:
        seed_everything()
        args = rebuild(make(), lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf)
        return rebuild(args, change)

    called = target if capture is None else capture(target, arguments(case.example))
    for number, (_, make) in enumerate(case.inputs()):
        args = arguments(make)
        seed_everything(number + 1)
        try:
            yield called(*args)
        except BaseException as error:  # the case's own code
            yield error


@contextlib.contextmanager
def unchanged_settings() -> Iterator[None]:
    """Restore the settings of torch that cases and defects change."""
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    deterministic, precision = torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision()
    anomaly, benchmark = torch.is_anomaly_enabled(), torch.backends.cudnn.benchmark
    try:
        yield
    finally:
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)
        torch.set_default_device(None)
        torch.use_deterministic_algorithms(deterministic)
        torch.set_float32_matmul_precision(precision)
        torch.autograd.set_detect_anomaly(anomaly)
        torch.backends.cudnn.benchmark = benchmark
        torch.set_autocast_enabled("cpu", False)


def _rounded(result: Any) -> list[torch.Tensor]:
    tensors = []
    for leaf in leaves(result):
        value = torch.tensor(leaf, dtype=torch.float64) if type(leaf) is float else leaf
        if not isinstance(value, torch.Tensor) or value.is_quantized or value.is_nested:
            continue
        if value.is_floating_point() or value.is_complex() or value.dtype is torch.bool:
            data = value.detach().as_subclass(torch.Tensor)
            tensors.append((data.to_dense() if data.layout != torch.strided else data).clone())
    return tensors


def _changes(first: list[torch.Tensor], second: list[torch.Tensor] | None) -> list[tuple[str, dict[str, float]]]:
    """Return the relative changes of each tensor of a result, by its dtype."""
    changes = []
    for number, tensor in enumerate(first):
        changed = second[number] if second is not None and number < len(second) else None
        size = dict.fromkeys(("largest", "median", "any", "mean"), float("inf"))
        if changed is not None and changed.shape == tensor.shape:
            wide = torch.complex128 if tensor.is_complex() or changed.is_complex() else torch.float64
            own, moved = tensor.to(wide).flatten(), changed.to(wide).flatten()
            finite = own.isfinite()
            if bool((moved.isfinite() == finite).all()):
                own, moved = own[finite], moved[finite]
                if not own.numel():
                    own = moved = torch.ones(1, dtype=torch.float64)
                signed = torch.where(own == moved, torch.zeros_like(own), (moved - own) / own)
                change = signed.abs()
                size = {
                    "mean": float(signed.mean().abs()),
                    "largest": float(change[own.abs().argmax()]),
                    "median": float(change.median()),
                    "any": float(change.max()),
                }
        changes.append((str(tensor.dtype), size))
    return changes
