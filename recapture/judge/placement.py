"""Puts the arguments of a call on the device as they were made: the same views, gradients and attributes.

`map_tensors` finds the tensors in a value of any kind and replaces each of them.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Callable
from typing import Any

from recapture.torch_api.compat import base_of, has_names, hooks_of, ignoring_subclasses, leaf_of_type, with_bits_of

ROOM_BYTES = 1 << 20
"""Bytes of zeros behind each tensor of roomy arguments."""


def arguments(make: Callable[[], tuple[Any, ...]], device: str, *, roomy: bool = False) -> tuple[Any, ...]:
    """Return the arguments that a factory makes, with their tensors on the device.

    The factory runs on the CPU, so that random numbers and values are the same for every device. Then each storage is
    copied to the device once, and its tensors are rebuilt there: views of one storage remain views of one storage, with
    their offsets, strides and bases. Leaves, parameters, subclasses, inference tensors, conjugate and negative bits,
    names, gradients, hooks and Python attributes are kept. A tensor that was computed from others that require
    gradients keeps its gradient function: its backward runs on the CPU and continues with the copies on the device.

    Tensors that the factory made on another device, such as ``meta``, stay there; ``device="cpu"`` in a factory means
    the device of the run. With `roomy`, each storage continues with ROOM_BYTES of zeros. A callable that does not check
    its inputs reads and writes past the end of a tensor that is too small. With that room, this memory belongs to the
    tensor: the result is still wrong, but it is the same in every process.
    """
    args = make()
    if device == "cpu" and not roomy:
        return args
    return _Placement(device, ROOM_BYTES if roomy else 0).all_of(args)


class _Placement:
    """The storages and tensors of one call that were put on the device so far."""

    def __init__(self, device: str, room: int) -> None:
        self.device = device
        self.room = room
        # By id, and by address and size. The originals are kept alive, so that these are not reused.
        self._placed: dict[int, tuple[Any, Any]] = {}
        self._storages: dict[tuple[int, int], tuple[Any, Any]] = {}

    def all_of(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments on the device."""
        import torch

        with torch.no_grad(), ignoring_subclasses():
            placed: tuple[Any, ...] = map_tensors(args, self.place)
            return placed

    def place(self, tensor: Any) -> Any:
        """Return what stands for a tensor on the device; the same tensor gives the same result."""
        if tensor.device.type != "cpu":
            return tensor
        if id(tensor) not in self._placed:
            placed = self._rebuilt(tensor) if _has_plain_storage(tensor) else self._moved(tensor)
            self._placed[id(tensor)] = (tensor, placed)
            self._placed[id(placed)] = (placed, placed)  # for an object that is found twice
            if placed is not tensor:
                self._dress(tensor, placed)
        return self._placed[id(tensor)][1]

    def _moved(self, tensor: Any) -> Any:
        """Convert a sparse, quantized, nested or wrapping tensor with its own method."""
        if self.device == "cpu":
            return tensor
        if not tensor.is_leaf:
            return self._continued(tensor, lambda: tensor.detach().to(self.device))
        return tensor.detach().to(self.device).requires_grad_(tensor.requires_grad)

    def _rebuilt(self, tensor: Any) -> Any:
        import torch

        base = base_of(tensor)
        if base is not None and (base.dtype != tensor.dtype or not _has_plain_storage(base)):
            base = None
        if base is not None and (tensor.is_leaf or base.requires_grad):
            origin = self.place(base)
            with torch.set_grad_enabled(not tensor.is_leaf):
                view = origin.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
                placed = _of_type(with_bits_of(tensor, view), type(tensor))
        elif not tensor.is_leaf:
            with torch.enable_grad():
                placed = _of_type(self._continued(tensor, lambda: self._raw(tensor)), type(tensor))
        elif type(tensor) is torch.Tensor:
            placed = self._raw(tensor)
        else:
            return leaf_of_type(type(tensor), self._raw(tensor), requires_grad=tensor.requires_grad)
        return placed.requires_grad_() if tensor.is_leaf and tensor.requires_grad else placed

    def _raw(self, tensor: Any) -> Any:
        """Return a tensor on the copied storage, with nothing of the original's autograd."""
        import torch

        with torch.inference_mode(tensor.is_inference()):
            raw = torch.empty(0, dtype=tensor.dtype, device=self.device)
            raw.set_(self._storage(tensor), tensor.storage_offset(), tensor.size(), tensor.stride())
            return with_bits_of(tensor, raw)

    def _storage(self, tensor: Any) -> Any:
        import torch

        storage = tensor.untyped_storage()
        key = (storage.data_ptr(), storage.nbytes())
        if key not in self._storages:
            with torch.inference_mode(mode=False):  # a storage may also belong to ordinary tensors
                source = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)
                copy = torch.zeros(storage.nbytes() + self.room, dtype=torch.uint8, device=self.device)
                copy[: storage.nbytes()].copy_(source)
            self._storages[key] = (storage, copy.untyped_storage())
        return self._storages[key][1]

    def _continued(self, tensor: Any, copy: Callable[[], Any]) -> Any:
        """Return a copy whose backward goes through the tensor's graph on the CPU, to its leaves on the device."""
        import torch

        leaves = _leaves_of(tensor)
        with torch.enable_grad():
            return _continuation().apply((tensor, leaves, copy), *map(self.place, leaves))

    def _dress(self, tensor: Any, placed: Any) -> None:
        """Give the placed tensor what Python code attached to the original."""
        if has_names(tensor):
            placed.rename_(*tensor.names)
        for name, value in list(vars(tensor).items()):
            vars(placed).setdefault(name, map_tensors(value, self.place))
        if tensor.is_leaf:
            for hook in hooks_of(tensor):  # those of other tensors run in the original graph
                placed.register_hook(hook)
            if tensor.grad is not None:
                placed.grad = self.place(tensor.grad)
        elif tensor.retains_grad:
            placed.retain_grad()


def _has_plain_storage(tensor: Any) -> bool:
    """Whether a tensor is described by its storage, offset, sizes and strides alone."""
    import torch

    wraps = type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    return tensor.layout == torch.strided and not (wraps or tensor.is_quantized or tensor.is_nested)


def _of_type(placed: Any, kind: type) -> Any:
    return placed if type(placed) is kind else placed.as_subclass(kind)


def _leaves_of(tensor: Any) -> list[Any]:
    """Return the leaves that receive gradients from a tensor's graph."""
    nodes, visited, leaves = [tensor.grad_fn], set(), []
    while nodes:
        node = nodes.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        nodes += [following for following, _ in node.next_functions]
    return leaves


@functools.cache
def _continuation() -> Any:
    import torch

    class Continuation(torch.autograd.Function):  # type: ignore[misc]
        """A copy of a tensor on another device; its backward is that of the original, whose graph stays on the CPU."""

        @staticmethod
        def forward(ctx: Any, parts: tuple[Any, list[Any], Callable[[], Any]], *_: Any) -> Any:
            ctx.original, ctx.leaves, copy = parts
            return copy()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            moved_gradient = gradient.to(ctx.original.device)
            gradients = torch.autograd.grad(
                ctx.original, ctx.leaves, moved_gradient, retain_graph=True, allow_unused=True
            )
            return None, *(None if grad is None else grad.to(gradient.device) for grad in gradients)

    return Continuation


OPAQUE = (type, types.ModuleType, types.BuiltinFunctionType, str, bytes, int, float, complex, type(None))
"""Types of values that hold no tensors of a call."""

LIBRARIES = ("torch", "functorch", "numpy", "scipy", "builtins")
"""Packages whose functions and slots are not searched: they hold no tensors of a call."""


def map_tensors(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value with `change` applied to every tensor in it.

    Searched are lists, tuples, dicts, sets, deques, attributes and slots of objects, bound methods, partial functions
    and the variables that a nested function captured. They are changed in place; only tuples, frozen sets, bound
    methods and partial functions, which cannot be changed, are made again if something in them was replaced. Numpy
    arrays are left alone.
    """
    return _Mapping(change).map(value)


class _Mapping:
    """One pass over a value; an object that occurs twice, or contains itself, is visited once."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        self.change = change
        # By id: the object and what replaces it. The object is kept alive, so that its id is not reused.
        self.visited: dict[int, tuple[Any, Any]] = {}

    def map(self, value: Any) -> Any:
        import torch

        if isinstance(value, OPAQUE):
            return value
        if id(value) not in self.visited:
            self.visited[id(value)] = (value, value)  # what contains itself
            mapped = self.change(value) if isinstance(value, torch.Tensor) else self._inside(value)
            self.visited[id(value)] = (value, mapped)
        return self.visited[id(value)][1]

    def _inside(self, value: Any) -> Any:
        """Map what a value holds; return the value, or what replaces a value that cannot be changed."""
        if isinstance(value, types.MethodType):
            owner = self.map(value.__self__)
            return value if owner is value.__self__ else types.MethodType(value.__func__, owner)
        if isinstance(value, types.FunctionType):
            self._captured(value)
            return value
        if isinstance(value, functools.partial):
            return self._partial(value)
        if isinstance(value, tuple):
            return self._tuple(value)
        if isinstance(value, (set, frozenset)):
            return self._set(value)
        if isinstance(value, dict):
            for key, item in list(dict.items(value)):
                dict.__setitem__(value, key, self.map(item))
        elif isinstance(value, (list, deque)):
            for index, item in enumerate(value):
                value[index] = self.map(item)
        self._attributes(value)
        return value

    def _attributes(self, value: Any) -> None:
        """Map the attributes of an object, past its own ``__setattr__``, which may refuse or check."""
        own = getattr(value, "__dict__", None)
        if type(own) is dict:
            for name, item in list(own.items()):
                own[name] = self.map(item)
        for kind in type(value).__mro__:
            for slot in vars(kind).values():
                if isinstance(slot, types.MemberDescriptorType) and not _of_a_library(kind):
                    try:
                        slot.__set__(value, self.map(slot.__get__(value)))
                    except (AttributeError, TypeError):  # an empty slot, or one that is only read
                        continue

    def _captured(self, function: types.FunctionType) -> None:
        if _of_a_library(function):
            return
        for cell in function.__closure__ or ():
            try:
                cell.cell_contents = self.map(cell.cell_contents)
            except ValueError:  # a variable that has no value yet
                continue
        for name, item in list(vars(function).items()):
            vars(function)[name] = self.map(item)

    def _partial(self, value: functools.partial[Any]) -> Any:
        parts = (value.func, value.args, value.keywords)
        mapped = tuple(self.map(part) for part in parts)
        if all(old is new for old, new in zip(parts, mapped, strict=True)):
            return value
        return type(value)(mapped[0], *mapped[1], **mapped[2])

    def _tuple(self, value: tuple[Any, ...]) -> Any:
        import torch

        # Torch requires these sizes on the CPU, on every device.
        packed = value[1] if isinstance(value, torch.nn.utils.rnn.PackedSequence) else None
        mapped = [item if item is packed else self.map(item) for item in value]
        if all(old is new for old, new in zip(value, mapped, strict=True)):
            return value
        return getattr(type(value), "_make", type(value))(mapped)

    def _set(self, value: Any) -> Any:
        mapped = [self.map(item) for item in value]
        if all(old is new for old, new in zip(value, mapped, strict=True)):
            return value
        if isinstance(value, frozenset):
            return type(value)(mapped)
        value.clear()
        value.update(mapped)
        return value


def _of_a_library(value: Any) -> bool:
    return str(getattr(value, "__module__", None)).partition(".")[0] in LIBRARIES
