"""Runs eager with rounding-sized noise in each operator, to see what rounding may do to its results.

This is Monte Carlo arithmetic: where an operator had to round, its result is replaced by another one that is as good.
Exact results (integers in floating point, selected or moved numbers) stay as they are, so that `floor` or a comparison
after exact arithmetic gives the same in every run. `operators.arithmetic` says how an operator is perturbed:

- one that rounds once: its result moves by up to one unit in the last place;
- one with several roundings: its inputs move as well;
- one that accumulates: its terms change by what another order of summation does (`noise.Noise.accumulation`).

numpy computes outside torch's operators. A tensor that is handed to numpy is perturbed as if numpy accumulated it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, reduce
from typing import Any

from recapture.judge.noise import Noise, can_round, can_round_inside, is_short, unit_roundoff, wide_dtype
from recapture.judge.operators import (
    DIVIDING,
    Arithmetic,
    adds_sparse,
    arguments_written,
    arithmetic,
    attention_error,
    bias_of,
    cancels,
    creates,
    interpolates,
    is_deterministic,
    name_of,
    never_rounds,
    normalises,
    spectral,
    summed_dims,
    tf32_error,
    widens,
)
from recapture.torch_api.compat import (
    compiled_code_off,
    dispatch_mode,
    operator_schema,
    pytree,
    stored_values,
    with_stored_values,
)

_EXACT: set[Any] = set()
"""Operators that never round and do not consist of others."""


@contextmanager
def perturbed(seed: int | None) -> Iterator[None]:
    """Add rounding-sized noise to every floating-point operator of torch that runs inside, backward passes included.

    The noise follows from `seed` alone. The random generators of torch, Python and numpy are not used. Without a seed
    there is no noise, and what runs inside shows whether being watched changes it.
    """
    noise = None if seed is None else Noise(seed)
    with compiled_code_off(), _numpy_mode()(noise), _operator_mode()(noise):
        yield


@cache
def _operator_mode() -> Any:
    import torch

    class Perturbing(dispatch_mode()):  # type: ignore[misc]
        supports_higher_order_operators = True

        def __init__(self, noise: Noise | None) -> None:
            super().__init__()
            self.noise = noise

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if any(kind.__module__.startswith("torch._subclasses") for kind in types):
                return func(*args, **kwargs)  # a fake tensor has no numbers
            if any(kind not in (torch.Tensor, torch.nn.Parameter) for kind in types):
                return NotImplemented  # the subclass calls operators on the tensors that it wraps
            if operator_schema(func) is None:  # an operator that calls functions, such as cond
                result = func(*args, **kwargs)
                return result if self.noise is None else pytree().tree_map(self.noise.moved, result)
            if func in _EXACT:
                return func(*args, **kwargs)
            with self:  # under inference mode, operators that consist of others arrive whole
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
            if never_rounds(func):
                _EXACT.add(func)
                return func(*args, **kwargs)
            if self.noise is None:
                return func(*args, **kwargs)
            return _OperatorCall(self.noise, func, args, kwargs).carry_out()

    return Perturbing


@cache
def _numpy_mode() -> Any:
    import torch
    from torch.overrides import TorchFunctionMode

    leaving = (torch.Tensor.numpy, torch.Tensor.__array__)

    class PerturbingNumpy(TorchFunctionMode):  # type: ignore[misc]
        def __init__(self, noise: Noise | None) -> None:
            super().__init__()
            self.noise = noise

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if self.noise is not None and func in leaving and can_round(args[0]) and args[0].device.type == "cpu":
                values = args[0].detach()
                wide = values.to(wide_dtype(values.dtype))
                every = [(dim,) for dim in range(wide.ndim)]
                noisy = self.noise.accumulation(wide, unit_roundoff(values.dtype), every)
                with torch.no_grad():
                    values.copy_(torch.where(is_short(wide), wide, noisy))  # the array shares this memory
            return func(*args, **(kwargs or {}))

    return PerturbingNumpy


class _OperatorCall:
    """One call of an operator, carried out with noise."""

    def __init__(self, noise: Noise, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.noise = noise
        self.func = func
        self.args = args
        self.kwargs = kwargs
        self.schema = operator_schema(func)
        self.names = [argument.name for argument in self.schema.arguments]
        self.arguments = {
            argument.name: argument.default_value for argument in self.schema.arguments if argument.has_default_value()
        }
        self.arguments.update(zip(self.names, args, strict=False), **kwargs)
        self.writes = arguments_written(func, self.arguments)
        leaves = list(_leaves((args, kwargs)))
        self.inputs = [value for value in leaves if can_round(value)]
        if adds_sparse(func):
            self.inputs += [stored_values(value) for value in leaves if can_round_inside(value)]
        self.kind = arithmetic(func, self.arguments)

    def carry_out(self) -> Any:
        """Call the operator and put noise into what it returned and wrote."""
        if self.kind is Arithmetic.NONE or not (self.inputs or creates(self.func)):
            return self.func(*self.args, **self.kwargs)
        # Before the call, because it may write to its inputs.
        short = self._short()
        scale = self._scale()
        exact, noisy = self._in_wider_dtype()
        result = self.func(*self.args, **self.kwargs)
        for index, output in enumerate(self._outputs(self.arguments, result)):
            if can_round_inside(output) and adds_sparse(self.func):
                with suppress(RuntimeError):
                    wide = [outputs and stored_values(outputs[index]) for outputs in (exact, noisy)]
                    self._replace(stored_values(output), wide[0], wide[1], short, None)
            elif can_round(output):
                with suppress(RuntimeError, NotImplementedError, TypeError, ValueError):  # a dtype without arithmetic
                    self._replace(output, exact and exact[index], noisy and noisy[index], short, scale)
        return result

    def _replace(self, output: Any, exact: Any, noisy: Any, short: Any, scale: Any) -> None:
        """Write noisy numbers into a result where the operator rounded."""
        import torch

        dtype = output.dtype
        plain = output.detach()
        wide = plain.to(wide_dtype(dtype))
        if scale is None and spectral(self.func) and wide.ndim:
            scale = wide.abs().amax(-1, keepdim=True)
        moved = self.noise.step(wide if noisy is None else noisy.to(wide.dtype), dtype)
        if scale is not None:
            moved = moved + (self.noise.step(wide, dtype, scale.to(wide.dtype).expand_as(wide)) - wide)
        moved = moved.to(dtype).to(wide.dtype)
        if dtype == wide.dtype:
            unchanged = is_short(wide) & short
        else:
            unchanged = torch.zeros_like(wide, dtype=torch.bool) if exact is None else (wide == exact) & short
        if interpolates(self.func):
            unchanged = unchanged.all()  # one rounded coordinate means that they all are
        plain.copy_(torch.where(unchanged | ~moved.isfinite() | ~wide.isfinite(), wide, moved))

    def _scale(self) -> Any:
        """Return the size of the terms that cancel in each result or shift a coordinate; None without such terms."""
        with suppress(RuntimeError):  # no elements, or an output of another shape among the inputs
            bias = bias_of(self.func, self.arguments)
            if bias is not None:
                return bias.detach().abs()
            if cancels(self.func):
                return reduce(_sum, (value.detach().abs() for value in self.inputs))
            if interpolates(self.func):
                # The coordinate is rounded, and so are the weights, whose sum is 1 but not that of their sizes.
                return self.inputs[0].detach().abs().amax() * (max(self.inputs[0].shape) / 4 + 1)
        return None

    def _outputs(self, arguments: dict[str, Any], result: Any) -> list[Any]:
        """Return the tensors that the call wrote to and then those that it made, always in the same order."""
        import torch

        changed = [arguments.get(name) for name in self.names if name in self.writes]
        outputs: list[Any] = []
        for output in _leaves((changed, result)):
            if isinstance(output, torch.Tensor) and not any(output is other for other in outputs):
                outputs.append(output)
        return outputs

    def _short(self) -> Any:
        """Return where the inputs of a result are so short that arithmetic on them is exact.

        One rounding can be seen in a wider dtype, so only float64 inputs matter to it. A sum can be exact by luck in
        one order and not in another.
        """
        if self.kind is Arithmetic.MANY:
            return all(bool(is_short(value.detach().to(wide_dtype(value.dtype))).all()) for value in self.inputs)
        wide = [value.detach() for value in self.inputs if value.dtype == wide_dtype(value.dtype)]
        try:
            return reduce(_both, map(is_short, wide), self._divides_exactly())
        except RuntimeError:  # lists of tensors, which do not broadcast
            return False

    def _divides_exactly(self) -> Any:
        """Return where a quotient by a reciprocal is the quotient: where the divisor is a power of two.

        Elsewhere even 6 / 3 may be off by a rounding, as on a GPU, where torch itself multiplies by the reciprocal.
        """
        import torch

        if name_of(self.func).replace("_foreach_", "") not in DIVIDING or self.arguments.get("rounding_mode"):
            return True
        divisor = self.arguments.get("other")
        if not isinstance(divisor, (int, float, torch.Tensor)) or getattr(divisor, "is_complex", bool)():
            return False
        sizes = torch.as_tensor(divisor).detach().to(torch.float64).abs()
        mantissa, _ = torch.frexp(sizes)
        return (mantissa == 0.5) | ~sizes.isfinite() | (sizes == 0)

    def _in_wider_dtype(self) -> tuple[list[Any] | None, list[Any] | None]:
        """Return what the call gives in a wider dtype, without and with noise in its inputs.

        The first is None if that dtype is not supported, and the second if the operator cannot be called again.
        """
        if not self.schema.name.startswith("aten::") or not is_deterministic(self.func, self.arguments):
            return None, None
        if widens(self.func):
            with suppress(Exception):  # float64 is not supported, or the call itself will raise as well
                exact = self._again(lambda _position, wide, _dtype: wide)
                return exact, exact if self.kind is Arithmetic.ONCE else self._again(self._noisy)
        with suppress(Exception):
            return None, self._again(self._noisy, widen=False)
        return None, None

    def _again(self, change: Callable[[int, Any, Any], Any], *, widen: bool = True) -> list[Any]:
        """Call the operator on changed copies of its arguments, by default in a wider dtype."""
        import torch

        arguments: dict[str, Any] = {}
        for position, name in enumerate(self.names):

            def copy(value: Any, position: int = position, name: str = name) -> Any:
                if can_round(value):
                    wide = value.detach().to(wide_dtype(value.dtype), copy=True)
                    changed = change(position, wide, value.dtype)
                    return changed if widen else changed.to(value.dtype)
                if can_round_inside(value) and adds_sparse(self.func):
                    inside = stored_values(value).detach()
                    wide = inside.to(wide_dtype(value.dtype), copy=True)
                    return with_stored_values(
                        value, change(position, wide, value.dtype).to(wide.dtype if widen else value.dtype)
                    )
                if isinstance(value, torch.Tensor):
                    return value.clone() if name in self.writes else value
                rounds = isinstance(value, torch.dtype) and (value.is_floating_point or value.is_complex)
                return wide_dtype(value) if rounds and widen else value

            if name in self.arguments:
                arguments[name] = _mapped(self.arguments[name], copy)
        if creates(self.func) and widen:
            arguments["dtype"] = torch.float64
        by_position = self.names[: len(self.args)]
        arguments = {name: value for name, value in arguments.items() if name in by_position or value is not None}
        result = self.func(
            *(arguments[name] for name in by_position),
            **{name: arguments[name] for name in self.names[len(self.args) :] if name in arguments},
        )
        return self._outputs(arguments, result)

    def _noisy(self, position: int, wide: Any, dtype: Any) -> Any:
        """Return one input with the noise of this kind of operator, in the wide dtype."""
        import torch

        unit = unit_roundoff(dtype)
        if self.kind is Arithmetic.MANY:
            unit = max(unit, tf32_error(self.func, wide.device.type) if dtype == torch.float32 else 0.0)
            groups = summed_dims(self.func, position, self.arguments, wide.ndim)
            noisy = self.noise.accumulation(wide, unit, groups, common=normalises(self.func))
            rounded = attention_error(self.func, dtype)
            return noisy + 2 * rounded * self.noise.uniform(wide) * wide if rounded else noisy
        return wide * (1 + 2 * unit * self.noise.uniform(wide).to(wide.abs().dtype))


def _leaves(value: Any) -> Iterator[Any]:
    """Yield what is in the lists, tuples and dicts of an operator's arguments or results.

    Operators know no other containers, and torch's own functions for them take a third of the time of a run with noise.
    """
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    else:
        yield value


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a function to what is in the lists and tuples of an argument."""
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    if isinstance(value, tuple):
        return tuple(_mapped(item, change) for item in value)
    return change(value)


def _both(first: Any, second: Any) -> Any:
    return first & second


def _sum(first: Any, second: Any) -> Any:
    return first + second
