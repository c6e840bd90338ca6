"""Plants one defect into eager: what a defect is, and the tools that defects share.

A defect is a function of a `Run`, declared with `plants`. It becomes a compiler that calls the original and changes one
thing about the call. A defect decides from the real call whether it can exist there: where it cannot, it raises
`Nothing`, and the call stays as it was. `PLANTED` counts where it was planted, so that a catch rate has a denominator.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch

from recapture.cases.compiler import compiler

DEFECTS_ATTRIBUTE = "__defects__"
"""Name of the list in a module's namespace that `plants` appends to."""

PLANTED: list[str] = []
"""Where a defect was planted since the last clearing of this list, one entry a call."""

CONDITION: dict[str, dict[str, float]] = {}
"""Relative change that rounding may cause in the results of the case under test, by dtype (see `condition`)."""

BACKWARD: list[bool] = [True]
"""Whether the judge runs a backward after the calls of the case under test; the case may say that it does not."""

ASKED: set[str] = set()
"""What the case under test asks to be judged strictly."""

MARGIN = 8.0
"""Smallest ratio of a planted change of a value to what rounding may change there."""


class Nothing(Exception):  # noqa: N818 - it is no error: there is nothing to plant here
    """This defect cannot exist in this call."""


class Raising(Exception):  # noqa: N818 - it carries the error that is planted
    """The planted difference is an exception: the call raises `error`."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


@dataclasses.dataclass(frozen=True)
class Defect:
    """One planted difference: its name, the kinds under which it may be filed, and how serious it is.

    `level` is ``silent``, ``note``, ``error`` (an exception that the verdict must say) or an option of a case's
    `strict`: then it is a note, and silent in cases that ask for it.
    """

    name: str
    kinds: tuple[str, ...]
    level: str
    summary: str


@dataclasses.dataclass
class Run:
    """One call that a defect changes: the original callable, its arguments, and the example it was captured with.

    `memory` lasts from the capture to the last call. During the capture, `args` is the example.
    """

    target: Any
    args: tuple[Any, ...]
    example: tuple[Any, ...]
    memory: dict[str, Any]
    _results: list[Any] = dataclasses.field(default_factory=list)

    def result(self) -> Any:
        """Call the original, once, and return its result."""
        if not self._results:
            self._results.append(self.target(*self.args))
        return self._results[0]

    @property
    def module(self) -> torch.nn.Module:
        """The original, if it is a module; raises Nothing for a function."""
        if not isinstance(self.target, torch.nn.Module):
            raise Nothing
        return self.target

    @property
    def function(self) -> Any:  # a FunctionType, which mypy would take for a method
        """The Python function of the original: the function itself, or a module's forward."""
        function = self.target.forward if isinstance(self.target, torch.nn.Module) else self.target
        function = getattr(function, "__func__", function)
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        if not isinstance(function, types.FunctionType):
            raise Nothing
        return function

    def tensor_args(self) -> list[torch.Tensor]:
        """Return the plain tensors in the arguments; raises Nothing if there are none."""
        arguments = [argument for argument in tensors(self.args) if plain(argument) and argument.numel()]
        if not arguments:
            raise Nothing
        return arguments

    def on_copies(self, args: tuple[Any, ...] | None = None, seed: int | None = None) -> Any:
        """Return the result of a copy of the original on copies of arguments.

        Its random numbers are those that this call would use, or those of another seed.
        """
        target, args = self.copies(args)
        before = torch.get_rng_state()
        if seed is not None:
            torch.manual_seed(seed)
        try:
            return target(*args)
        except Exception as error:
            raise Nothing from error
        finally:
            torch.set_rng_state(before)

    def copies(self, args: tuple[Any, ...] | None = None) -> tuple[Any, tuple[Any, ...]]:
        """Return copies of the original and of arguments, for a trial that must leave no trace; raises Nothing."""
        try:
            target, copied = copy.deepcopy((self.target, self.args if args is None else args))
        except Exception as error:  # what cannot be copied cannot be tried
            raise Nothing from error
        return target, copied

    def resolves(self, dtype: torch.dtype, size: float, which: str) -> bool:
        """Whether a relative change of `size` is far beyond what rounding may do to results of a dtype.

        `which` chooses the elements: the ``largest``, the ``median``, ``any``, or the ``mean`` of their changes.
        """
        least = 0.0 if which == "mean" else torch.finfo(dtype).eps / 2
        return size >= MARGIN * max(CONDITION.get(str(dtype), {}).get(which, 0.0), least)


def change_an_element(tensor: torch.Tensor) -> None:
    """Change the first element of a tensor in place: 1 more or, where that is the same number or none, 0."""
    place = tensor.detach()[(0,) * tensor.dim()]
    more = place + 1
    place.copy_(torch.where((more == place) | more.isnan(), torch.zeros_like(place), more))


Plant = Callable[[Run], Any]


def plants(name: str, *kinds: str, level: str = "silent", at: str = "call") -> Callable[[Plant], Plant]:
    """Declare the decorated function as a defect and register it as the compiler ``planted:NAME``.

    At a call, it returns what the call returns. At ``capture``, it returns the captured callable.
    """

    def declare(defect: Plant) -> Plant:
        def plant(run: Run, otherwise: Callable[[], Any]) -> Any:
            try:
                value = defect(run)
            except Nothing:
                return otherwise()
            except Raising as planted:
                PLANTED.append(at)
                raise planted.error from None
            PLANTED.append(at)
            return value

        def capture(fn: Any, example: tuple[Any, ...]) -> Any:
            memory: dict[str, Any] = {}
            if at == "capture":
                return plant(Run(fn, example, example, memory), lambda: fn)

            def call(*args: Any) -> Any:
                run = Run(fn, args, example, memory)
                return plant(run, run.result)

            return call

        capture.__module__ = defect.__module__
        capture.__doc__ = defect.__doc__
        compiler(f"planted:{name}")(capture)
        summary = (defect.__doc__ or name).strip().splitlines()[0]
        declared: list[Defect] = defect.__globals__.setdefault(DEFECTS_ATTRIBUTE, [])
        declared.append(Defect(name, kinds, level, summary))
        return defect

    return declare


def plain(value: Any) -> bool:
    """Whether a value is a tensor of torch's own class, with elements in memory."""
    return (
        type(value) is torch.Tensor
        and value.layout == torch.strided
        and not value.is_quantized
        and not value.is_nested
        and value.device.type != "meta"
    )


def parts(value: Any) -> list[tuple[Any, Any]] | None:
    """Return the items of a container, by index, key or field; None for a leaf."""
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return list(enumerate(value))
    if type(value) in (dict, OrderedDict, defaultdict):
        return list(value.items())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return None


def leaves(value: Any) -> Iterator[Any]:
    """Yield what is in a value's containers, at any depth."""
    items = parts(value)
    if items is None:
        yield value
    for _, item in items or ():
        yield from leaves(item)


def tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors in a value's containers."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def container_like(value: Any, items: Any) -> Any:
    """Return a container of the type of `value`, with its attributes and other items."""
    new = type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if hasattr(value, "__dict__"):
        vars(new).update(vars(value))
    return new


def rebuild(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value with `change` applied to every leaf, in new containers of the same types and attributes."""
    items = parts(value)
    if items is None:
        return change(value)
    if isinstance(value, (list, tuple)):
        new = [rebuild(item, change) for _, item in items]
        return container_like(value, new)
    again = copy.copy(value)
    for key, item in items:
        if isinstance(value, dict):
            again[key] = rebuild(item, change)
        else:
            object.__setattr__(again, key, rebuild(item, change))
    return again


def change_first(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value with the first leaf changed for which `change` gives a value; raises Nothing without one."""
    done: list[bool] = []

    def once(leaf: Any) -> Any:
        new = None if done else change(leaf)
        if new is None:
            return leaf
        done.append(True)
        return new

    changed = rebuild(value, once)
    if not done:
        raise Nothing
    return changed


class _Replace(torch.autograd.Function):  # type: ignore[misc]
    """Other elements with the gradients of the original."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        return torch.empty_like(tensor).copy_(data)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # noqa: ARG004
        return gradient, None


def with_data(tensor: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Return a tensor like `tensor`, with its gradients and attributes, but with other elements."""
    with torch.set_grad_enabled(tensor.requires_grad):
        new: torch.Tensor = _Replace.apply(tensor, data.detach().to(tensor.dtype))
    new.__dict__.update(tensor.__dict__)
    if tensor.retains_grad and tensor.grad is not None:  # torch keeps these two elsewhere
        new.retain_grad()
        new.grad = tensor.grad
    return new


def clearly_different(first: Any, second: Any) -> bool:
    """Whether two values differ by much more than rounding: in form, or by 1 % of the largest element."""
    if type(first) is not type(second):
        return True
    if isinstance(first, torch.Tensor):
        if first.shape != second.shape or first.dtype != second.dtype or first.layout != second.layout:
            return True
        first, second = (
            tensor.detach().dequantize() if tensor.is_quantized else tensor.detach() for tensor in (first, second)
        )
        first, second = (tensor.to_dense() if tensor.layout != torch.strided else tensor for tensor in (first, second))
        if not (first.is_floating_point() or first.is_complex()) or first.numel() == 0:
            return not torch.equal(first, second)
        kind = torch.complex128 if first.is_complex() else torch.float64
        first, second = first.to(kind), second.to(kind)
        finite = first.isfinite()
        size = float(first[finite].abs().max()) if finite.any() else 0.0
        return not torch.allclose(first, second, rtol=1e-2, atol=1e-2 * size, equal_nan=True)
    items, other_items = parts(first), parts(second)
    if items is not None and other_items is not None:
        return [key for key, _ in items] != [key for key, _ in other_items] or any(
            clearly_different(item, other) for (_, item), (_, other) in zip(items, other_items, strict=True)
        )
    if isinstance(first, float):
        return not (math.isclose(first, second, rel_tol=1e-2) or (math.isnan(first) and math.isnan(second)))
    if type(first).__module__ == "numpy":
        import numpy as np

        return not np.allclose(first, second, rtol=1e-2, equal_nan=True) if first.dtype.kind in "fciub" else False
    try:
        return bool(first != second) and not callable(first)
    except Exception:
        return False
