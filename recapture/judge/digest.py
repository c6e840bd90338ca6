"""Digests what eager gave: a hash of all bits, and a few numbers that tell rounding from another result.

A digest must be the same in every process, on every machine where the bits are the same, and with every release of
torch. So the weights of its sums come from exact arithmetic, not from a random generator.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from recapture.base.scrub import encodable, scrub
from recapture.base.text import one_line, shorten
from recapture.judge.fresh_case import FreshCase
from recapture.judge.observe import ARGUMENTS_SEED
from recapture.judge.snapshot import NUMPY, Snapshot, TensorSnapshot, describe
from recapture.records.eager_calls import Digest, EagerCall
from recapture.torch_api.compat import seed_everything

if TYPE_CHECKING:
    from recapture.judge.observe import Observation

BITS = 8
"""Bytes of a hash of values: among a million cases, two of another value have the same hash once in a trillion."""

FORM = 4
"""Bytes of a hash of types and shapes."""

BLOCK = 1 << 18
"""Elements that are summed at a time, so that a large tensor needs no large copy in float64."""

IRRATIONAL = (0.6180339887498949, 0.4142135623730951)
"""The steps of the weights of the two sums: multiples of them modulo 1 are spread evenly and repeat nowhere."""

SMALLEST_SIZE = 1e-2
"""Size below which a tensor counts as small beside the largest one that is digested with it: of a gradient that
cancels to almost nothing, all digits are rounding."""

DECIMALS = 9
"""Decimal places of the numbers of a digest; those of float64 have `DECIMALS_OF_FLOAT64`."""

DECIMALS_OF_FLOAT64 = 12
MOST_BYTES = 1_600
"""Bytes of the digests of a case's inputs from which the last ones are joined."""

MOST_NAMED = 60
"""Characters of the dtypes and of the type of an exception."""

JOINED = "others"
"""The name of the inputs that are joined to one."""


def eager_calls(
    load: Callable[[], Any], device: str, first: Sequence[Observation], again: Sequence[Observation]
) -> tuple[EagerCall, ...]:
    """Return what eager gave on each input, from its first two runs; the case is made once more for its inputs.

    Nothing is returned where that is not possible: a case may be made only so often.
    """
    try:
        subject = FreshCase(load(), device)
        state = bits_of(subject.reachable.describe().snapshot)
        calls = []
        factories = dict(subject.case.inputs())
        for before, after in zip(first, again, strict=False):
            seed_everything(ARGUMENTS_SEED)
            arguments = bits_of(describe(subject.arguments(factories[before.input])()).snapshot)
            call = _call(before, (arguments, state))
            if replace(call, given="") != replace(_call(after, (arguments, state)), given=""):
                call = EagerCall(before.input, call.given, unstable=True)
            calls.append(call)
            state = "" if before.state is None else bits_of(before.state)
        subject.leave()
    except BaseException:  # of the user's own code; what eager did is recorded all the same
        return ()
    return _within_size(calls)


def _call(observation: Observation, before: tuple[str, str]) -> EagerCall:
    """Return the digests of one call; `before` are the bits of its arguments and of the state before it."""
    effects = [part for part in (observation.args, observation.state) if part is not None]
    changed = tuple(bits_of(part) for part in effects) != before[: len(effects)]
    raised = None
    if observation.raised is not None:
        raised = shorten(encodable(scrub(one_line(observation.raised.type))), MOST_NAMED)
    return EagerCall(
        input=observation.input,
        given=_hashed("|".join(before).encode(), BITS),
        result=None if observation.result is None else digest_of(observation.result),
        gradients=None if observation.gradients is None else digest_of(observation.gradients),
        effects=digest_of(*effects) if changed and observation.raised is None else None,
        raised=raised,
    )


def _within_size(calls: list[EagerCall]) -> tuple[EagerCall, ...]:
    """Join the last calls to one until all of them are small enough for a row."""
    for number in range(len(calls), 1, -1):
        listed = calls if number == len(calls) else [*calls[: number - 1], _joined(calls[number - 1 :])]
        if len(json.dumps([asdict(call) for call in listed])) <= MOST_BYTES:
            return tuple(listed)
    return (calls[0], _joined(calls[1:])) if calls[1:] else tuple(calls)


def _joined(calls: list[EagerCall]) -> EagerCall:
    inputs_hash = _hashed("|".join(call.given for call in calls).encode(), BITS)
    if any(call.unstable for call in calls):
        return EagerCall(JOINED, inputs_hash, unstable=True)
    raised = ", ".join(dict.fromkeys(call.raised for call in calls if call.raised is not None))
    return EagerCall(
        input=JOINED,
        given=inputs_hash,
        result=_joined_digests([call.result for call in calls]),
        gradients=_joined_digests([call.gradients for call in calls]),
        effects=_joined_digests([call.effects for call in calls]),
        raised=shorten(raised, MOST_NAMED) or None,
    )


def _joined_digests(parts: list[Digest | None]) -> Digest | None:
    digests = [part for part in parts if part is not None]
    if not digests:
        return None
    dtypes = dict.fromkeys(name for digest in digests for name in digest.dtypes.split(", ") if name)
    numbers = [digest.numbers for digest in digests if digest.numbers]
    return Digest(
        bits=_hashed("|".join(digest.bits for digest in digests).encode(), BITS),
        form=_hashed("|".join(digest.form for digest in digests).encode(), FORM),
        dtypes=shorten(", ".join(dtypes), MOST_NAMED),
        numbers=tuple(round(sum(column), DECIMALS) for column in zip(*numbers, strict=True)),
    )


def bits_of(snapshot: Snapshot) -> str:
    """Return a hash of all values of a described value."""
    return _hash_of_values([snapshot])


def digest_of(*snapshots: Snapshot) -> Digest:
    """Return the digest of described values."""
    form = hashlib.blake2b(digest_size=FORM)
    dtypes: dict[str, None] = {}
    tensors = []
    for path, node in _nodes(snapshots):
        form.update(f"{path}|{node.type}|{node.default}|{node.cut}|".encode(errors="replace"))
        array = node.tensor
        if array is not None:
            stride = None if array.layout == NUMPY else array.stride
            form.update(f"{array.dtype}|{array.shape}|{array.layout}|{stride}|".encode())
            dtypes[array.dtype.rpartition(".")[2]] = None
            tensors.append(array.data)
        elif isinstance(node.scalar, (float, complex)):
            tensors.append(node.scalar)
    return Digest(
        bits=_hash_of_values(snapshots),
        form=form.hexdigest(),
        dtypes=shorten(", ".join(dtypes), MOST_NAMED),
        numbers=numbers_of(tensors),
    )


def _nodes(snapshots: Sequence[Snapshot]) -> Iterator[tuple[str, Snapshot]]:
    """Yield the parts of described values with their names, parents first; values may be nested deeply."""
    waiting = [(str(number), snapshot) for number, snapshot in enumerate(snapshots)][::-1]
    while waiting:
        name, node = waiting.pop()
        yield name, node
        waiting += list(node.children or ())[::-1]


def _hashed(data: bytes, size: int) -> str:
    return hashlib.blake2b(data, digest_size=size).hexdigest()


def _hash_of_values(snapshots: Sequence[Snapshot]) -> str:
    bits = hashlib.blake2b(digest_size=BITS)
    for name, node in _nodes(snapshots):
        bits.update(f"{name}|{node.scalar!r}|".encode(errors="replace"))
        if node.tensor is not None:
            _hash_tensor(bits, node.tensor)
    return bits.hexdigest()


def _hash_tensor(bits: Any, array: TensorSnapshot) -> None:
    if array.data is not None:
        bits.update(f"{array.dtype}|{array.shape}|".encode())
        hash_bytes(bits, array.data)


def hash_bytes(bits: Any, tensor: Any) -> None:
    """Add the bytes of a dense tensor on the CPU to a hash, without numpy, which this torch may not convert to."""
    data = tensor.contiguous()
    size = data.numel() * data.element_size()
    if size:
        bits.update((ctypes.c_char * size).from_address(data.data_ptr()))


def numbers_of(values: Sequence[Any]) -> tuple[float, ...]:
    """Return the sizes of all tensors and two weighted sums of their elements, relative to these sizes.

    `values` are dense tensors on the CPU, floats and None. Tensors of integers have no digits and are left out. Nothing
    is returned if nothing is left.
    """
    import torch

    tensors = [_flat(value) for value in values if isinstance(value, (torch.Tensor, float, complex))]
    tensors = [tensor for tensor in tensors if tensor.is_floating_point() and tensor.numel()]
    if not tensors:
        return ()
    sizes = [_size(tensor) for tensor in tensors]
    smallest = SMALLEST_SIZE * max(sizes)
    share = 1 / math.sqrt(len(tensors))
    sums = [0.0, 0.0, 0.0]
    for number, (tensor, size) in enumerate(zip(tensors, sizes, strict=True)):
        scale = max(size, smallest) or 1.0
        sums[0] += share * math.cos(number) * math.log(scale)
        for column, step in enumerate(IRRATIONAL, 1):
            sums[column] += share * _weighted_sum(tensor, step, number * step, scale) / math.sqrt(tensor.numel())
    wide = all(tensor.dtype == torch.float64 for tensor in tensors)
    decimals = DECIMALS_OF_FLOAT64 if wide else DECIMALS
    return tuple(round(value, decimals) + 0.0 for value in sums)  # + 0.0: of minus zero, zero


def _flat(value: Any) -> Any:
    """Return a tensor in one dimension; of complex numbers, their real and imaginary parts."""
    import torch

    if not isinstance(value, torch.Tensor):
        return torch.tensor([value.real, value.imag], dtype=torch.float64)
    return (torch.view_as_real(value) if value.is_complex() else value).reshape(-1)


def _blocks(tensor: Any) -> Iterator[tuple[int, Any]]:
    """Yield the elements in float64, a block at a time, with the place of the first; NaN and infinity are numbers."""
    import torch

    for begin in range(0, tensor.numel(), BLOCK):
        block = tensor[begin : begin + BLOCK].to(torch.float64)
        yield begin, torch.nan_to_num(block, nan=3.0, posinf=5.0, neginf=-5.0)


def _size(tensor: Any) -> float:
    """Return the root of the mean of the squares; the largest element is taken out, since its square may overflow."""
    largest = max(float(block.abs().max()) for _, block in _blocks(tensor))
    if largest == 0.0:
        return 0.0
    total = sum(float((block / largest).square().sum()) for _, block in _blocks(tensor))
    return largest * math.sqrt(total / tensor.numel())


def _weighted_sum(tensor: Any, step: float, offset: float, scale: float) -> float:
    """Return the sum of elements relative to a scale, weighted with numbers between -1 and 1 that depend on places."""
    import torch

    total = 0.0
    for begin, block in _blocks(tensor):
        places = torch.arange(begin + 1, begin + 1 + block.numel(), dtype=torch.float64) * step + offset
        total += float(((places - places.floor()).mul_(2).sub_(1) * (block / scale)).sum())
    return total
