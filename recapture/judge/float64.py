"""Lets calls compute in float64, to see whether what differs between runs shrinks with the precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from recapture.judge.noise import can_round, is_short, wide_dtype

ALL_DIGITS = 1 + 2.0**-28 / 3
"""A factor that gives a number digits in all places of float64, and leaves its nearest float32 number as it is."""


@contextmanager
def widening_tensors() -> Iterator[Widening]:
    """Return what widens tensors; afterwards they are as before, because other executions of a file may share them."""
    widening = Widening()
    try:
        yield widening
    finally:
        widening.undo()


class Widening:
    """Gives tensors and what calls compute a wider dtype: float64, or complex128."""

    def __init__(self) -> None:
        import torch

        self.paused = False
        self._usual = torch.get_default_dtype()
        self._before: list[tuple[Any, Any]] = []

    def widen(self, tensor: Any) -> Any:
        """Give a tensor wider elements; return the tensor, which remains the same object.

        The values are the same in the narrower dtype. In the wider one they have all digits, but for short ones such as
        integers: else sums would be exact, and show nothing of the order of their terms.
        """
        import torch

        if can_round(tensor) and tensor.dtype != wide_dtype(tensor.dtype):
            self._before.append((tensor, tensor.data))
            wide = tensor.data.to(wide_dtype(tensor.dtype))
            tensor.data = torch.where(is_short(wide), wide, wide * ALL_DIGITS)
        return tensor

    def undo(self) -> None:
        """Give back the elements that the tensors had."""
        for tensor, data in reversed(self._before):
            tensor.data = data
        self._before.clear()

    @contextmanager
    def in_calls(self) -> Iterator[None]:
        """Take a wider dtype where code asks for none, and where it names one."""
        import torch

        torch.set_default_dtype(torch.float64)
        try:
            with _widening_mode()(self):
                yield
        finally:
            torch.set_default_dtype(self._usual)

    @contextmanager
    def paused_for_inputs(self) -> Iterator[None]:
        """Make inputs as usual, to be widened afterwards: random numbers in float64 would be other ones."""
        import torch

        torch.set_default_dtype(self._usual)
        self.paused = True
        try:
            yield
        finally:
            self.paused = False
            torch.set_default_dtype(torch.float64)


@cache
def _widening_mode() -> Any:
    import torch
    from torch.overrides import TorchFunctionMode

    casts = dict.fromkeys((torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16), torch.Tensor.double)

    def wide(value: Any) -> Any:
        rounds = isinstance(value, torch.dtype) and (value.is_floating_point or value.is_complex)
        return wide_dtype(value) if rounds else value

    class WideningMode(TorchFunctionMode):  # type: ignore[misc]
        """Takes the wider dtype for each one that is given to a function of torch."""

        def __init__(self, widening: Widening) -> None:
            super().__init__()
            self.widening = widening

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if self.widening.paused:
                return func(*args, **kwargs)
            return casts.get(func, func)(*map(wide, args), **{name: wide(value) for name, value in kwargs.items()})

    return WideningMode
