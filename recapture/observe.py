"""Run a callable once and keep everything seen, as plain data that later calls can no longer change."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import io
import re
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from recapture.torch_compat import seed_everything

__all__ = ["Observation", "Raised", "Seen", "TensorSeen", "map_tensors", "observe_call", "safe_text", "see"]

MAX_DEPTH = 12
"""Containers nested deeper than this are compared by type alone."""


@dataclass(frozen=True)
class TensorSeen:
    """A tensor (or numpy array) as it was: `data` is a detached copy on the CPU."""

    data: Any
    dtype: str
    shape: tuple[int, ...]
    device: str
    layout: str
    stride: tuple[int, ...] | None
    requires_grad: bool
    storage: int | None
    """The address of the storage while the call's values were alive: equal addresses mean aliases. Never reported."""


@dataclass(frozen=True)
class Seen:
    """A Python value as it was: its exact type, and its tensor, its children, or its scalar."""

    type: str
    tensor: TensorSeen | None = None
    children: tuple[tuple[str, Seen], ...] | None = None
    ordered: bool = True
    scalar: Any = None


@dataclass(frozen=True)
class Raised:
    """An exception that left the call."""

    type: str
    message: str
    traceback: str
    error: BaseException = field(compare=False)


@dataclass(frozen=True)
class Observation:
    """Everything seen of one call on one input."""

    input: str
    result: Seen | None
    raised: Raised | None
    args: Seen
    state: Seen | None
    watched: Seen | None
    output: str | None
    torch_state: Mapping[str, str]


def observe_call(
    call: Callable[..., Any],
    label: str,
    make_args: Callable[[], tuple[Any, ...]],
    *,
    module: Any = None,
    watch: Callable[[], Any] | None = None,
    capture_output: bool = False,
    device: str = "cpu",
) -> Observation:
    """Call `call` on fresh arguments made under the fixed seed and observe it.

    Whatever the call raises, SystemExit and KeyboardInterrupt included, is part of the observation. Global torch state
    (grad mode, default dtype) is put back afterwards, so that a leak shows once and spoils nothing else.
    """
    import torch

    seed_everything()
    args = make_args()
    before = _torch_state()
    printed = io.StringIO()
    result: Seen | None = None
    raised: Raised | None = None
    try:
        with contextlib.redirect_stdout(printed) if capture_output else contextlib.nullcontext():
            value = call(*args)
            if device == "cuda":
                torch.cuda.synchronize()  # an error of a kernel belongs to the call that launched it
        result = see(value)
    except BaseException as error:  # anything a case raises is its result
        raised = Raised(qualified(type(error)), safe_text(error), _traceback_text(error), error)
    after = _torch_state()
    _restore_torch_state(before)
    return Observation(
        input=label,
        result=result,
        raised=raised,
        args=see(args),
        state=None if module is None else see(dict(module.state_dict())),
        watched=None if watch is None else see(watch()),
        output=printed.getvalue() if capture_output else None,
        torch_state={name: str(after[name]) for name in after},
    )


def see(value: Any, depth: int = 0, parents: tuple[int, ...] = ()) -> Seen:
    """Describe a value as plain data; cycles and very deep values end in their type."""
    import torch

    name = qualified(type(value))
    if isinstance(value, torch.Tensor):
        return Seen(name, tensor=_see_tensor(value))
    if isinstance(value, enum.Enum):
        return Seen(name, scalar=value.name)
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return Seen(name, scalar=value)
    if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format, slice, range, type)):
        return Seen(name, scalar=repr(value))
    if name.startswith("numpy."):
        return _see_numpy(value, name, depth, parents)
    if id(value) in parents or depth >= MAX_DEPTH:
        return Seen(name)
    parents = (*parents, id(value))
    items, ordered = _items(value)
    if items is None:
        return Seen(name)  # a function, a lock, …: only its type can be compared
    return Seen(name, children=tuple((key, see(item, depth + 1, parents)) for key, item in items), ordered=ordered)


def _items(value: Any) -> tuple[list[tuple[str, Any]] | None, bool]:
    if isinstance(value, Mapping):
        ordered = type(value).__name__ == "OrderedDict"  # only there does equality look at the order
        return [(f"[{key!r}]", value[key]) for key in value], ordered
    if isinstance(value, (set, frozenset)):
        return [(f"[{index}]", item) for index, item in enumerate(sorted(value, key=repr))], True
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{key}", getattr(value, key)) for key in value._fields], True
    if isinstance(value, (list, tuple, deque)):
        return [(f"[{index}]", item) for index, item in enumerate(value)], True
    if dataclasses.is_dataclass(value):
        return [(f".{one.name}", getattr(value, one.name, None)) for one in dataclasses.fields(value)], True
    if hasattr(value, "__dict__") and not callable(value):
        return [(f".{key}", item) for key, item in sorted(vars(value).items()) if not key.startswith("__")], True
    slots = [slot for kind in type(value).__mro__ for slot in getattr(kind, "__slots__", ())]
    if slots and not callable(value):
        return [(f".{key}", getattr(value, key)) for key in slots if hasattr(value, key)], True
    return None, True


def _see_tensor(value: Any) -> TensorSeen:
    import torch

    plain = value.detach()
    if type(plain) is not torch.Tensor:
        plain = plain.as_subclass(torch.Tensor)
    strided = plain.layout == torch.strided
    data = plain.clone()
    return TensorSeen(
        data=(data if strided else data.to_dense()).cpu(),
        dtype=str(value.dtype),
        shape=tuple(int(size) for size in value.shape),
        device=value.device.type,
        layout=str(value.layout),
        stride=tuple(int(step) for step in plain.stride()) if strided else None,
        requires_grad=bool(value.requires_grad),
        storage=_storage_address(plain) if strided and value.numel() else None,
    )


def _storage_address(tensor: Any) -> int | None:
    try:
        storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
        return int(storage.data_ptr())
    except RuntimeError:  # a tensor without storage
        return None


def _see_numpy(value: Any, name: str, depth: int, parents: tuple[int, ...]) -> Seen:
    import numpy as np
    import torch

    if not isinstance(value, np.ndarray):
        return Seen(name, scalar=value.item() if hasattr(value, "item") else repr(value))
    try:
        data = torch.from_numpy(np.array(value, copy=True, order="C"))
    except TypeError:  # strings, objects, unsigned types torch lacks
        children = tuple((f"[{i}]", see(item, depth + 1, parents)) for i, item in enumerate(value.ravel().tolist()))
        return Seen(f"{name}[{value.dtype}]{tuple(value.shape)}", children=children)
    seen = TensorSeen(data, str(value.dtype), tuple(value.shape), "cpu", "numpy", None, False, None)
    return Seen(name, tensor=seen)


def map_tensors(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value with `change` applied to every tensor in lists, tuples, dicts and dataclasses."""
    import torch

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, change) for item in value))
    if type(value) in (list, tuple):
        return type(value)(map_tensors(item, change) for item in value)
    if isinstance(value, dict):
        for key in value:
            value[key] = map_tensors(value[key], change)
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for one in dataclasses.fields(value):
            object.__setattr__(value, one.name, map_tensors(getattr(value, one.name), change))
    return value


def qualified(kind: type) -> str:
    """Return a type's name with its module; builtins bare, and suite files by the suite's name."""
    module = re.sub(r"^recapture_suite_", "", kind.__module__)
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def safe_text(error: BaseException) -> str:
    """Return ``str(error)``, or what can be said of an exception whose ``__str__`` raises."""
    try:
        return str(error)
    except BaseException as second:  # the case's own code runs here
        return f"<the exception's own __str__ raised {type(second).__name__}>"


def _traceback_text(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except BaseException:  # formatting calls __str__ too
        return f"{qualified(type(error))}: {safe_text(error)}"


def _torch_state() -> dict[str, Any]:
    import torch

    return {"grad_enabled": torch.is_grad_enabled(), "default_dtype": torch.get_default_dtype()}


def _restore_torch_state(state: dict[str, Any]) -> None:
    import torch

    torch.set_grad_enabled(state["grad_enabled"])
    torch.set_default_dtype(state["default_dtype"])
