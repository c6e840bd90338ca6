"""Tensors and observations of a side in files that every release of torch reads, without running code in them.

A file holds dicts, lists, strings, numbers and tensors alone, so that ``weights_only`` can read one of another machine.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from recapture.cases.own_code import TargetError
from recapture.judge.noise import wide_dtype
from recapture.judge.observe import NO_ARGUMENTS, Observation
from recapture.judge.observe import Raised as ObservedRaised
from recapture.judge.snapshot import Snapshot, TensorSnapshot, describe

PLAIN = (bool, int, float, str, type(None))


def write(path: Path, value: Any) -> None:
    """Write plain values and tensors; a value that is None is no file."""
    import torch

    torch.save(value, path)


def read(path: Path) -> Any:
    """Read what `write` wrote. Raises TargetError, naming the file, for anything else."""
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged in any way, or with code in it
        raise TargetError(f"{path} cannot be read: {type(error).__name__}") from None


# --- weights and inputs ----------------------------------------------------------------------------------------------


def tensors_of_module(module: Any) -> dict[str, Any]:
    """Return the parameters and buffers of a module by name, each once."""
    import torch

    if not isinstance(module, torch.nn.Module):
        return {}
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def arrays_of(arguments: tuple[Any, ...]) -> dict[str, Any]:
    """Return the tensors and numpy arrays among arguments, by their path."""
    return {f"args{path}": array for path, array in describe(arguments, consume=False, copy=False).arrays}


def copies(tensors: dict[str, Any]) -> dict[str, Any]:
    """Return copies on the CPU, numpy arrays as tensors."""
    import torch

    return {
        name: (value.detach().cpu().clone() if isinstance(value, torch.Tensor) else torch.as_tensor(value).clone())
        for name, value in tensors.items()
    }


def take_over(tensors: dict[str, Any], given: dict[str, Any], what: str) -> None:
    """Write the other side's bytes into tensors. Raises TargetError if names, dtypes or shapes do not fit."""
    import torch

    for name in [*tensors, *given]:
        if name not in given or name not in tensors:
            side = "the other side" if name not in given else "this side"
            raise TargetError(f"the {what} do not fit: {name!r} is missing on {side}")
        own, other = tensors[name], given[name]
        forms = [f"{str(value.dtype).rpartition('.')[2]}{list(value.shape)}" for value in (other, own)]
        if forms[0] != forms[1]:
            raise TargetError(f"the {what} do not fit: {name!r} is {forms[0]} on one side and {forms[1]} on the other")
        if isinstance(own, torch.Tensor):
            with torch.no_grad():
                own.copy_(other)
        else:
            own[...] = other.numpy()


# --- observations ----------------------------------------------------------------------------------------------------


def plain_observation(observation: Observation) -> dict[str, Any]:
    """Return the parts of an observation that are compared between sides, as plain values."""
    raised = observation.raised
    return {
        "result": _plain(observation.result),
        "gradients": _plain(observation.gradients),
        "state": _plain(_tensors_alone(observation.state)),
        "raised": None if raised is None else [raised.type, raised.message],
        "backward": None if observation.backward is None else [observation.backward.type, observation.backward.message],
    }


def observation_from(plain: dict[str, Any]) -> Observation:
    """Return an observation with the parts that `plain_observation` kept."""
    return Observation(
        "example",
        result=_snapshot(plain["result"]),
        gradients=_snapshot(plain["gradients"]),
        state=_snapshot(plain["state"]),
        raised=_raised(plain["raised"]),
        backward=_raised(plain["backward"]),
        args=NO_ARGUMENTS,
    )


def comparable(observation: Observation) -> Observation:
    """Return an observation of this process with the same parts alone."""
    return Observation(
        "example",
        result=observation.result,
        gradients=observation.gradients,
        state=_tensors_alone(observation.state),
        raised=observation.raised,
        backward=observation.backward,
        args=NO_ARGUMENTS,
    )


def _raised(plain: list[str] | None) -> ObservedRaised | None:
    return None if plain is None else ObservedRaised(plain[0], plain[1], "", Exception(plain[1]))


def _tensors_alone(state: Snapshot | None) -> Snapshot | None:
    """Return a described state with its parameters and buffers alone: other attributes name versions and paths."""
    if state is None:
        return None
    return Snapshot("state", children=tuple((name, child) for name, child in state.children or () if child.tensor))


def _plain(snapshot: Snapshot | None) -> Any:
    if snapshot is None:
        return None
    tensor, children = snapshot.tensor, snapshot.children
    fields = {
        "type": snapshot.type,
        "ordered": snapshot.ordered,
        # A complex number or an enumeration is compared by its text.
        "scalar": snapshot.scalar if isinstance(snapshot.scalar, PLAIN) else repr(snapshot.scalar),
        "default": snapshot.default,
        "children": None if children is None else [[name, _plain(child)] for name, child in children],
    }
    if tensor is not None:
        fields["tensor"] = {
            "data": tensor.data,
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "layout": tensor.layout,
            "stride": None if tensor.stride is None else list(tensor.stride),
            "requires_grad": tensor.requires_grad,
            "flags": list(tensor.flags),
        }
    return fields


def _snapshot(plain: dict[str, Any] | None) -> Snapshot | None:
    if plain is None:
        return None
    tensor = plain.get("tensor")
    children = plain["children"]
    return Snapshot(
        plain["type"],
        tensor=None
        if tensor is None
        else TensorSnapshot(
            data=tensor["data"],
            dtype=tensor["dtype"],
            shape=tuple(tensor["shape"]),
            device="cpu",
            layout=tensor["layout"],
            stride=None if tensor["stride"] is None else tuple(tensor["stride"]),
            requires_grad=tensor["requires_grad"],
            flags=tuple(tensor["flags"]),
        ),
        children=None if children is None else tuple((name, _known(child)) for name, child in children),
        ordered=plain["ordered"],
        scalar=plain["scalar"],
        default=plain["default"],
    )


def _known(plain: dict[str, Any]) -> Snapshot:
    snapshot = _snapshot(plain)
    return Snapshot("None") if snapshot is None else snapshot


def as_stored(observation: Observation) -> Observation:
    """Return an observation as it is after it was stored and read, so that both sides have the same forms."""
    return observation_from(plain_observation(observation))


def leaves_of(observation: Observation) -> dict[str, Snapshot]:
    """Return the tensors and values of an observation by the names that a comparison uses."""
    leaves: dict[str, Snapshot] = {}
    waiting: list[tuple[str, Snapshot]] = []
    if observation.result is not None:
        waiting.append(("result", observation.result))
    for prefix, part in (("gradients.", observation.gradients), ("", observation.state)):
        if part is not None:
            waiting += [(f"{prefix}{name}", child) for name, child in part.children or ()]
    while waiting:
        name, snapshot = waiting.pop(0)
        if snapshot.tensor is not None or not snapshot.children:
            leaves[name] = snapshot
        else:
            waiting = [(f"{name}{key}", child) for key, child in snapshot.children] + waiting
    return leaves


# --- noise -----------------------------------------------------------------------------------------------------------


def moved_by_noise(own: Observation, noisy: Observation, reference: Observation) -> Observation:
    """Return what this side gave, moved by the difference between two runs with noise.

    Runs with noise compute each operator anew, so that they need not lie around what this side gives: a kernel may be
    less accurate than its operator in float64. How far noise moves a result is what two such runs differ by.
    """
    return Observation(
        "example",
        result=_moved(own.result, noisy.result, reference.result),
        gradients=_moved(own.gradients, noisy.gradients, reference.gradients),
        state=_moved(own.state, _tensors_alone(noisy.state), _tensors_alone(reference.state)),
        args=NO_ARGUMENTS,
    )


def _moved(own: Snapshot | None, noisy: Snapshot | None, reference: Snapshot | None) -> Snapshot | None:
    if own is None or noisy is None or reference is None:
        return own
    children = own.children
    if children is not None:
        others = [dict(side.children or ()) for side in (noisy, reference)]
        children = tuple(
            (name, _moved(child, *(side.get(name) for side in others)) or child) for name, child in children
        )
    numbers = [side.scalar for side in (own, noisy, reference)]
    if all(isinstance(number, float) for number in numbers):
        return replace(own, scalar=numbers[0] + numbers[1] - numbers[2])
    tensors = [side.tensor for side in (own, noisy, reference)]
    if own.tensor is None or any(tensor is None or tensor.data is None for tensor in tensors):
        return replace(own, children=children)
    data = moved_tensor(*(tensor.data for tensor in tensors if tensor is not None))
    return replace(own, children=children, tensor=replace(own.tensor, data=data))


def moved_tensor(own: Any, noisy: Any, reference: Any) -> Any:
    """Return a tensor moved by the difference of two others; as it is where they have no such numbers."""
    if not (own.is_floating_point() or own.is_complex()) or own.shape != noisy.shape or own.shape != reference.shape:
        return own
    wide = wide_dtype(own.dtype)
    return (own.to(wide) + noisy.to(wide) - reference.to(wide)).to(own.dtype)
