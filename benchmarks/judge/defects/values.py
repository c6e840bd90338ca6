"""Results with wrong values of the right form."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.judge.planting import Nothing, Run, change_first, plain, plants, tensors, with_data


def floating(
    run: Run,
    change: Callable[[torch.Tensor], torch.Tensor | None],
    *,
    size: float,
    which: str,
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64),
    least: int = 1,
) -> Any:
    """Return the result with one tensor changed, where rounding cannot change the elements by `size`.

    `change` gets a detached copy of a tensor of one of `dtypes` with at least `least` elements.
    """

    def changed(leaf: Any) -> Any:
        if not plain(leaf) or leaf.dtype not in dtypes or leaf.numel() < least:
            return None
        if not run.resolves(leaf.dtype, size, which):
            return None
        data = leaf.detach().clone()
        new = change(data.clone(memory_format=torch.contiguous_format))
        if new is None or bool(((new == data) | (new.isnan() & data.isnan())).all()):
            return None
        return with_data(leaf, new)

    return change_first(run.result(), changed)


def at_largest(data: torch.Tensor, value: Callable[[torch.Tensor], Any]) -> torch.Tensor | None:
    """Return the tensor with its largest finite element replaced; None if that is zero."""
    flat = data.view(-1)
    sizes = torch.where(flat.isfinite(), flat.abs(), torch.zeros_like(flat.abs()))
    place = int(sizes.argmax())
    if not float(sizes[place]):
        return None
    flat[place] = value(flat[place].clone())
    return data


@plants("value-8-ulp", "value")
def eight_ulp(run: Run) -> Any:
    """Every element of a result is moved by 8 units in the last place."""
    most = max((tensor.numel() for tensor in tensors(run.args)), default=0)
    for dtype in (torch.float32, torch.float64):
        size = 8 * torch.finfo(dtype).eps

        def change(data: torch.Tensor, size: float = size) -> torch.Tensor | None:
            return data * (1 + size) if data.numel() >= most else None  # a sum of many terms may round more

        with contextlib.suppress(Nothing):
            return floating(run, change, size=size, which="any", dtypes=(dtype,))
    raise Nothing


@plants("value-1e-4", "value")
def one_in_ten_thousand(run: Run) -> Any:
    """Every element of a result is too large by a factor of 1.0001."""
    return floating(run, lambda data: data * 1.0001, size=1e-4, which="median")


@plants("value-third-of-tiny", "value")
def a_third_of_tiny(run: Run) -> Any:
    """A result below 1e-5 is three times as large: 3e-6 where 1e-6 is right."""
    return floating(run, lambda x: x * 3 if 0 < float(x.abs().max()) < 1e-5 else None, size=1.0, which="largest")


@plants("value-tiny-29-percent", "value")
def small_29_percent(run: Run) -> Any:
    """A small result, such as a variance of 8e-6, is 29 % too small."""
    return floating(run, lambda x: x * 0.71 if 0 < float(x.abs().max()) < 1e-4 else None, size=0.2, which="largest")


@plants("value-tiny-5-percent", "value")
def small_five_percent(run: Run) -> Any:
    """A small result, such as expm1 of 5e-7, is 5 % too large."""
    return floating(run, lambda x: x * 1.05 if 0 < float(x.abs().max()) < 1e-4 else None, size=0.05, which="largest")


@plants("value-one-element", "value")
def one_element(run: Run) -> Any:
    """The largest element of at least eight is doubled."""
    return floating(run, lambda data: at_largest(data, lambda x: 2 * x), size=0.5, which="largest", least=8)


@plants("value-one-small-element", "value")
def one_small_element(run: Run) -> Any:
    """The smallest element is half as large again, beside elements a hundred times its size."""

    def change(data: torch.Tensor) -> torch.Tensor | None:
        flat = data.view(-1)
        sizes = torch.where(flat == 0, torch.full_like(flat, float("inf")), flat.abs())
        place = int(sizes.argmin())
        if not float(flat[place].abs()) * 100 < float(flat.abs().max()) < float("inf"):
            return None
        flat[place] *= 1.5
        return data

    return floating(run, change, size=0.5, which="any", least=8)


@plants("value-small-among-large", "value")
def small_among_large(run: Run) -> Any:
    """The smallest element becomes 20,000 times as large, beside ill-conditioned elements a million times its size."""

    def change(data: torch.Tensor) -> torch.Tensor | None:
        flat = data.view(-1)
        place = int(flat.abs().argmin())
        if not 0 < float(flat[place].abs()) * 1e6 < float(flat.abs().max()) < float("inf"):
            return None
        flat[place] *= 20_000
        return data

    return floating(run, change, size=20_000, which="any", least=3)


@plants("value-sign", "value")
def sign(run: Run) -> Any:
    """The largest element has the other sign."""
    return floating(run, lambda data: at_largest(data, lambda x: -x), size=1.0, which="largest")


@plants("value-nan-for-number", "value")
def nan_for_number(run: Run) -> Any:
    """The largest element is NaN."""
    return floating(run, lambda x: at_largest(x, lambda _: float("nan")), size=float("inf"), which="largest")


@plants("value-number-for-nan", "value")
def number_for_nan(run: Run) -> Any:
    """An element that is NaN in eager is a number."""
    return floating(run, lambda x: torch.nan_to_num(x, nan=0.5), size=float("inf"), which="median")


@plants("value-inf-for-number", "value")
def inf_for_number(run: Run) -> Any:
    """The largest element is infinite."""
    return floating(run, lambda x: at_largest(x, lambda _: float("inf")), size=float("inf"), which="largest")


@plants("value-number-for-inf", "value")
def number_for_inf(run: Run) -> Any:
    """An element that is infinite in eager is the largest number of its dtype."""

    def change(data: torch.Tensor) -> torch.Tensor:
        limit = torch.finfo(data.dtype).max
        return torch.where(data.isinf(), data.clamp(-limit, limit), data)

    return floating(run, change, size=float("inf"), which="median")


@plants("value-bfloat16-one-percent", "value")
def bfloat16_one_percent(run: Run) -> Any:
    """Every element of a bfloat16 result of at least 32 is 1 % too large, which no single element shows."""
    half = (torch.bfloat16,)
    return floating(run, lambda x: x.float() * 1.01, size=0.01, which="mean", dtypes=half, least=32)


@plants("value-float16-one-percent", "value")
def float16_one_percent(run: Run) -> Any:
    """Every element of a float16 result of at least 32 is 1 % too large."""
    half = (torch.float16,)
    return floating(run, lambda x: x.float() * 1.01, size=0.01, which="mean", dtypes=half, least=32)


@plants("value-float64-via-float32", "value")
def through_float32(run: Run) -> Any:
    """A float64 result was computed in float32."""

    def change(data: torch.Tensor) -> torch.Tensor | None:
        new = data.float().double()
        finite = data.isfinite() & (data != 0)
        error = ((new - data).abs() / data.abs())[finite]
        return new if error.numel() and float(error.max()) > 1e-9 else None

    return floating(run, change, size=1e-9, which="any", dtypes=(torch.float64,))


@plants("value-softmax-tail", "value")
def softmax_tail(run: Run) -> Any:
    """Probabilities below 1e-5 are zero: the tail of a softmax."""

    def change(data: torch.Tensor) -> torch.Tensor | None:
        tail = (data > 0) & (data < 1e-5)
        if data.dim() == 0 or bool((data < 0).any()) or not bool(tail.any()):
            return None
        if not torch.allclose(data.sum(-1), torch.ones_like(data.sum(-1)), atol=1e-3):
            return None
        return torch.where(tail, torch.zeros_like(data), data)

    return floating(run, change, size=0.1, which="any")


@plants("value-permuted", "value")
def permuted(run: Run) -> Any:
    """The elements of a row are moved by one place."""

    def change(data: torch.Tensor) -> torch.Tensor | None:
        if data.dim() == 0 or data.shape[-1] < 2:
            return None
        moved = data.roll(1, -1)
        changed = (moved - data).abs() > 0.1 * data.abs().max()
        return moved if bool(changed.any()) else None

    return floating(run, change, size=0.1, which="largest")


@plants("value-last-left-out", "value")
def last_left_out(run: Run) -> Any:
    """The last element is zero, as if a loop had stopped before it."""

    def change(data: torch.Tensor) -> torch.Tensor | None:
        last = data.view(-1)[-1:]
        if not float(last.abs()) > 1e-3 * float(data.abs().max()):
            return None
        last.zero_()
        return data

    return floating(run, change, size=0.5, which="any", least=2)


@plants("value-integral-off-by-one", "value")
def integral_off_by_one(run: Run) -> Any:
    """A float that counts something is off by one."""

    def change(data: torch.Tensor) -> torch.Tensor | None:
        if not bool((data == data.round()).all()) or not 1 <= float(data.abs().max()) <= 1e6:
            return None
        return at_largest(data, lambda x: x + 1)

    return floating(run, change, size=1e-6, which="any")


@plants("value-drift", "value")
def drift(run: Run) -> Any:
    """Results grow by a factor of 1.0001 with every call."""
    run.memory["calls"] = run.memory.get("calls", 0) + 1
    factor = 1.0001 ** run.memory["calls"]
    return floating(run, lambda data: data * factor, size=1e-4, which="median")


@plants("value-complex-conjugated", "value")
def conjugated(run: Run) -> Any:
    """The imaginary parts of a complex result have the other sign."""
    kinds = (torch.complex64, torch.complex128)

    def changed(leaf: Any) -> Any:
        if not plain(leaf) or leaf.dtype not in kinds or not run.resolves(leaf.dtype, 1.0, "largest"):
            return None
        data = leaf.detach().resolve_conj()
        if not bool((data.imag.abs() > 0.01 * data.abs().max()).any()):
            return None
        return with_data(leaf, torch.complex(data.real, -data.imag))

    return change_first(run.result(), changed)


def _apart(run: Run, leaf: Any) -> bool:
    """Whether a tensor of the result shares memory with nothing, so that a copy in its place changes no more."""
    others = [*tensors(run.args), *tensors(run.result())]
    if isinstance(run.target, torch.nn.Module):
        others += [*run.target.parameters(), *run.target.buffers()]
    place = leaf.untyped_storage().data_ptr()
    shared = [tensor for tensor in others if plain(tensor.detach()) and tensor.untyped_storage().data_ptr() == place]
    return all(tensor is leaf for tensor in shared) and len(shared) == 1


@plants("value-signed-zero", "value", level="signed_zero")
def signed_zero(run: Run) -> Any:
    """A zero has the other sign."""

    def changed(leaf: Any) -> Any:
        if not plain(leaf) or not leaf.is_floating_point() or not bool((leaf == 0).any()) or not _apart(run, leaf):
            return None
        return with_data(leaf, torch.where(leaf == 0, -leaf, leaf))

    return change_first(run.result(), changed)


@plants("value-nan-payload", "value", level="nan_payload")
def nan_payload(run: Run) -> Any:
    """A NaN has other bits."""

    def changed(leaf: Any) -> Any:
        if not plain(leaf) or leaf.dtype not in (torch.float32, torch.float64) or not bool(leaf.isnan().any()):
            return None
        if not _apart(run, leaf):
            return None
        whole = torch.int32 if leaf.dtype is torch.float32 else torch.int64
        bits = leaf.detach().contiguous().view(whole)
        return with_data(leaf, torch.where(leaf.isnan(), bits ^ 5, bits).view(leaf.dtype))

    return change_first(run.result(), changed)


EIGHTH = (torch.float8_e4m3fn, torch.float8_e5m2)
"""The types of eight bits that casts are planted in."""

HALF = (torch.float16, torch.bfloat16)


def _smallest(run: Run, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return the result with the three smallest elements of a half-precision tensor of many changed."""

    def changed(data: torch.Tensor) -> torch.Tensor | None:
        flat = data.view(-1)
        places = torch.where(flat == 0, torch.inf, flat.float().abs()).topk(3, largest=False).indices
        if not bool(flat[places].isfinite().all()):
            return None
        flat[places] = change(flat[places])
        return data

    return floating(run, changed, size=0.5, which="any", dtypes=HALF, least=32)


@plants("value-half-smallest-sign", "value")
def half_smallest_sign(run: Run) -> Any:
    """The smallest of many half-precision numbers have the other sign."""
    return _smallest(run, lambda small: -small)


@plants("value-half-smallest-zero", "value")
def half_smallest_zero(run: Run) -> Any:
    """The smallest of many half-precision numbers are zero."""
    return _smallest(run, torch.zeros_like)


@plants("value-half-smallest-doubled", "value")
def half_smallest_doubled(run: Run) -> Any:
    """The smallest of many half-precision numbers are twice as large."""
    return _smallest(run, lambda small: small * 2)


def _one_way(run: Run, step: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return the result with half of the elements moved by one unit in the last place, as rounding in one way does."""

    def changed(data: torch.Tensor) -> torch.Tensor | None:
        if len(data.unique()) < 512 or not bool(data.isfinite().all()):
            return None
        chosen = torch.rand(data.shape, generator=torch.Generator().manual_seed(0)) < 0.5
        whole = data.view(torch.int16)
        return (whole + step(data).to(torch.int16) * chosen * (data != 0)).view(data.dtype)

    return floating(run, changed, size=torch.finfo(torch.float16).eps / 4, which="mean", dtypes=HALF, least=1024)


@plants("value-half-truncated", "value")
def half_truncated(run: Run) -> Any:
    """Half-precision numbers were rounded toward zero."""
    return _one_way(run, lambda data: -torch.ones_like(data))


@plants("value-half-away", "value")
def half_away(run: Run) -> Any:
    """Half-precision numbers were rounded away from zero."""
    return _one_way(run, torch.ones_like)


@plants("value-half-upward", "value")
def half_upward(run: Run) -> Any:
    """Half-precision numbers were always rounded up."""
    return _one_way(run, torch.sign)


@plants("value-half-downward", "value")
def half_downward(run: Run) -> Any:
    """Half-precision numbers were always rounded down."""
    return _one_way(run, lambda data: -data.sign())


def _rounded_one_way(run: Run, way: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Any:
    """Return the result of a cast to a type of eight bits or to float32 with all numbers rounded in one way.

    `way` returns which numbers go one unit further from zero, and which one nearer to it, given those that were cast
    and those that eager makes of them.
    """
    source = run.tensor_args()[0].detach().double()

    def change(leaf: Any) -> Any:
        if not plain(leaf) or leaf.dtype not in (*EIGHTH, torch.float32) or leaf.shape != source.shape:
            return None
        number = leaf.detach().double()
        far = (number - source).abs() > number.abs() / 4
        if leaf.numel() < 1024 or float(far.double().mean()) > 0.1:  # no cast, but for the smallest
            return None
        whole = {1: torch.int8, 4: torch.int32}[leaf.element_size()]
        moved = (leaf.detach().view(whole) + way(source, number).to(whole)).view(leaf.dtype)
        return None if torch.equal(moved.double(), number) else moved

    return change_first(run.result(), change)


@plants("value-cast-truncated", "value")
def cast_truncated(run: Run) -> Any:
    """A cast rounds toward zero."""
    return _rounded_one_way(run, lambda source, number: -(number.abs() > source.abs()).long())


@plants("value-cast-away", "value")
def cast_away(run: Run) -> Any:
    """A cast rounds away from zero."""
    return _rounded_one_way(run, lambda source, number: (number.abs() < source.abs()).long())


@plants("value-cast-upward", "value")
def cast_upward(run: Run) -> Any:
    """A cast always rounds up."""
    return _rounded_one_way(run, lambda source, number: (number < source) * source.sign().long())


@plants("value-cast-downward", "value")
def cast_downward(run: Run) -> Any:
    """A cast always rounds down."""
    return _rounded_one_way(run, lambda source, number: (number > source) * -source.sign().long())


@plants("value-cast-a-unit-more", "value")
def cast_a_unit_more(run: Run) -> Any:
    """A cast gives numbers that are all one unit further from zero."""
    return _rounded_one_way(run, lambda _, number: torch.ones_like(number).long())
