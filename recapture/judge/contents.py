"""What Python values hold: attributes, the place of an iterator, a cache, a stream, the defaults of a function.

`snapshot` describes these parts. Each has a path that is the same in every process.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import enum
import functools
import gc
import hashlib
import io
import operator
import random
import re
import sys
import types
import warnings
from collections import UserDict, UserList
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from recapture.base.exceptions import qualified
from recapture.torch_api.compat import is_out_of_memory

PLAIN = (bool, int, float, complex, str, bytes, type(None))
"""Types of values that hold no other values."""

MAX_OBJECTS = 10_000
"""Number of objects with attributes described in one value, and of items read from one iterator.

A note says where there are more.
"""

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}|\bid=\d{6,}")


class Cut:
    """Stands in for items of a container that are not described."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Unreadable:
    """Stands in for a value that raised an exception when it was read."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def value_or_error(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or an Unreadable with its exception; out-of-memory errors propagate."""
    try:
        return call()
    except BaseException as error:  # the case's own code
        if is_out_of_memory(error):
            raise
        return Unreadable(error)


def has_address(text: str) -> bool:
    """Whether a text contains what looks like an address, which differs between processes."""
    return bool(_ADDRESS.search(text))


def plain(value: Any) -> Any:
    """Return a scalar as the builtin type it derives from, so that comparing it later runs no code of the case."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes.__getitem__(value, slice(None))
    kind: Any = next(number for number in (int, float, complex) if isinstance(value, number))
    return kind.__pos__(value)


def entry(rank: int | None, key: Any, item: Any) -> list[tuple[str, Any]]:
    """Return a mapping's item under the repr of its key; one whose key has a rank comes with the key under that."""
    if rank is not None:
        return [(f"[key {rank}]", key), (f"[item {rank}]", item)]
    text = _readable(key)
    if isinstance(key, (type, enum.Enum)) or not getattr(key, "__dict__", None):
        return [(f"[{text}]", item)]
    return [(f"[key {text}]", key), (f"[{text}]", item)]  # its text may leave something out


def ranks_of(mapping: Mapping[Any, Any]) -> dict[int, int]:
    """Return a number for each key whose repr may be another one on the other side, by the key's id.

    Such keys hold numbers that are rounded, or have an address. They are numbered in the order of their values, else in
    that of the mapping: rounding changes a number and keeps its place.
    """
    keys = [key for key in mapping if _rounds(key) or _readable(key) is None]
    with contextlib.suppress(Exception):  # keys that have no order, such as tensors of several elements
        keys = sorted(keys)
    return {id(key): rank for rank, key in enumerate(keys)}


def _rounds(value: Any) -> bool:
    """Whether a key of a mapping is or holds a number that rounding may change."""
    if type(value) is str:  # most keys
        return False

    import torch

    if isinstance(value, (tuple, frozenset)):
        return any(map(_rounds, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return any(_rounds(getattr(value, field.name, None)) for field in dataclasses.fields(value))
    if isinstance(value, torch.Tensor):
        return True
    return isinstance(value, (float, complex)) or (
        type(value).__module__ == "numpy" and "float" in type(value).__name__
    )


def yielded(value: Iterator[Any]) -> list[tuple[str, Any]]:
    """Return what an iterator yields, up to MAX_OBJECTS items, and what it raises. This consumes the iterator."""
    items: list[tuple[str, Any]] = []
    try:
        while len(items) < MAX_OBJECTS:
            items.append((f"[{len(items)}]", next(value)))
    except StopIteration as end:
        if end.value is not None:
            items.append((".returned", end.value))
    except BaseException as error:  # the case's own code
        if is_out_of_memory(error):
            raise
        items.append((".raised", Unreadable(error)))
    if len(items) == MAX_OBJECTS:
        items.append(("", Cut(f"more than {MAX_OBJECTS} items of an iterator")))
    return items


def position(value: Iterator[Any]) -> list[tuple[str, Any]] | None:
    """Return where an iterator stands, as far as it tells without being read; None if it tells nothing."""
    if isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        if frame is None:
            return [(".finished", True)]
        return [(".line", frame.f_lineno), *((f".{name}", item) for name, item in frame.f_locals.items())]
    remaining = operator.length_hint(value, -1)
    if remaining >= 0:
        return [(".remaining", remaining)]
    if type(value).__module__ in ("builtins", "itertools"):  # zip, map, chain, cycle and the like
        return _inside_of(value)
    text = _readable(value)
    return None if text is None else [(".text", text)]


def _inside_of(iterator: Iterator[Any]) -> list[tuple[str, Any]]:
    """Return what an iterator of Python's own is made of: other iterators, which have a place, and numbers."""
    with warnings.catch_warnings(), contextlib.suppress(TypeError, AttributeError):  # gone from Python 3.14 on
        warnings.simplefilter("ignore", DeprecationWarning)
        reduced: Any = iterator.__reduce__()
        return [(f".reduced[{index}]", part) for index, part in enumerate(reduced[1:])]
    text = _readable(iterator)  # such as count(5)
    inside = [(f".inside[{index}]", part) for index, part in enumerate(gc.get_referents(iterator))]
    return inside if text is None else [(".text", text)]


def contents_of(value: Any) -> list[tuple[str, Any]] | None:
    """Return what a buffer, stream or context variable holds, which is no attribute of it; None for other values."""
    if isinstance(value, memoryview):
        form = [(f".{name}", getattr(value, name)) for name in ("format", "shape", "readonly")]
        return [*form, (".tobytes()", value.tobytes())]
    if isinstance(value, (io.StringIO, io.BytesIO)):
        if value.closed:
            return [(".closed", True)]
        return [(".getvalue()", value.getvalue()), (".tell()", value.tell())]
    if isinstance(value, contextvars.ContextVar):
        return [(".get()", value.get(None))]
    if isinstance(value, io.IOBase):
        return [
            (".closed", value.closed),
            *([] if value.closed or not value.seekable() else [(".tell()", value.tell())]),
        ]
    if isinstance(value, UserList):
        return [(f"[{index}]", item) for index, item in enumerate(value.data)]
    if type(value).__name__ == "UntypedStorage" and type(value).__module__.startswith("torch"):
        return [(".bytes", _bytes_of(value))]
    return _contents_of_c(value)


def _bytes_of(storage: Any) -> Any:
    """Return the bytes of a storage as a tensor."""
    import torch

    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _contents_of_c(value: Any) -> list[tuple[str, Any]] | None:
    """Return what a value of `ctypes` holds, without pointers; None for other values."""
    ctypes = sys.modules.get("ctypes")
    if ctypes is None:
        return None
    if isinstance(value, ctypes.Array):
        return [(f"[{index}]", item) for index, item in enumerate(value)]
    if isinstance(value, ctypes.Structure):
        return [(f".{field[0]}", getattr(value, field[0])) for field in type(value)._fields_]
    if isinstance(value, ctypes._SimpleCData) and not isinstance(value, ctypes.c_void_p):  # noqa: SLF001 - no other name
        return [(".value", value.value)]
    return None


def state_of_generator(value: Any) -> str | None:
    """Return a digest of the state of a generator of random numbers; None for other values.

    The generators that torch, Python and numpy use by default have none here: `torch_state.random_states` reads them.
    """
    import torch

    numpy_random = sys.modules.get("numpy.random")  # numpy imports it at first use
    if isinstance(value, torch.Generator):
        shared = value is torch.default_generator or (value.device.type != "cpu" and _is_default_of_device(value))
        state = None if shared else bytes(value.get_state().tolist())
    elif isinstance(value, random.Random):
        shared = value is getattr(random, "_inst", None) or isinstance(value, random.SystemRandom)
        state = None if shared else repr(value.getstate()).encode()
    elif numpy_random is not None and isinstance(value, numpy_random.RandomState):
        _, keys, *others = value.get_state()
        shared = value is getattr(numpy_random.mtrand, "_rand", None)
        state = None if shared else repr(others).encode() + keys.tobytes()
    elif numpy_random is not None and isinstance(value, numpy_random.Generator):
        state = repr(value.bit_generator.state).encode()
    elif numpy_random is not None and isinstance(value, numpy_random.BitGenerator):
        state = repr(value.state).encode()
    else:
        return None
    return "" if state is None else hashlib.sha256(state).hexdigest()[:16]


def _is_default_of_device(generator: Any) -> bool:
    import torch

    return any(generator is default for default in getattr(torch.cuda, "default_generators", ()))


def of_library(module: str | None) -> bool:
    """Whether a module's name is that of Python's or torch's machinery, or of numpy."""
    return (module or "builtins").partition(".")[0] in (
        "torch",
        "functorch",
        "functools",
        "builtins",
        "numpy",
        "scipy",
    )


def has_attributes_of_its_own(value: Any) -> bool:
    """Whether a callable is an object of a case's own class, not a function or a part of torch."""
    kind = type(value)
    return (
        not isinstance(value, (type, types.FunctionType, types.MethodType, types.BuiltinFunctionType))
        and isinstance(kind.__dict__.get("__module__"), str)
        and not of_library(kind.__module__)
    )


def members(value: Any) -> list[tuple[str, Any]]:
    """Return the members of a set in an order that is the same in every process."""
    if value and all(isinstance(item, (int, float)) for item in value):  # rounding changes a number and keeps its place
        return [(f"[{index}]", item) for index, item in enumerate(sorted(value))]
    texts = [(_readable(item), item) for item in value]
    if any(text is None for text, _ in texts):  # the order differs between processes: compare only the types
        kinds = [(f"[{i}]", kind) for i, kind in enumerate(sorted(qualified(type(item)) for item in value))]
        return [*kinds, ("", Cut("members of a set that have no text"))]
    return [(f"[{i}]", item) for i, (_, item) in enumerate(sorted(texts, key=lambda pair: str(pair[0])))]


def attribute(value: Any, name: str) -> list[Any]:
    """Return a list with the attribute; an empty list if there is none."""
    try:
        return [getattr(value, name)]
    except AttributeError:
        return []
    except BaseException as error:  # a property defined by the case
        if is_out_of_memory(error):
            raise
        return [Unreadable(error)]


def _readable(value: Any) -> str | None:
    try:
        text = repr(value)
    except Exception:  # the case's own code
        return None
    return text if len(text) <= 200 and not has_address(text) else None


CACHE = qualified(type(functools.lru_cache(int)))
"""The name of the type of a function with a cache."""

_OF_MEMBERS = ("_value_", "_name_", "_sort_order_", "__objclass__")
"""Attributes that Python gives to each member of an enumeration."""


def own_attributes(value: Any) -> list[tuple[str, Any]]:
    """Return the attributes of a value of a case's own class, by path, from its dict and its slots.

    For values that are described by something else: numbers, texts, containers, members of enumerations, functions.
    """
    kind = type(value)
    if kind.__module__ == "builtins" and not hasattr(value, "__dict__"):
        return []
    own = getattr(value, "__dict__", None)
    names = sorted(own) if type(own) is dict else []
    names = [name for name in names if not name.startswith("__") and name not in _OF_MEMBERS]
    if isinstance(value, (UserDict, UserList)):
        names = [name for name in names if name != "data"]  # its items
    return [(f".{name}", item) for name in dict.fromkeys([*names, *slots(kind)]) for item in attribute(value, name)]


def slots(kind: type) -> list[str]:
    """Return the names of the attributes that a class has slots for; Python renames those with two underscores."""
    names: list[str] = []
    for part in kind.__mro__:
        declared = vars(part).get("__slots__", ())
        for name in [declared] if isinstance(declared, str) else declared:
            if name.startswith("__") and not name.endswith("__"):
                names.append(f"_{part.__name__.lstrip('_')}{name}")
            elif name not in ("__dict__", "__weakref__"):
                names.append(name)
    return names


def function_text(value: Any) -> str:
    """Return the name of a function, class or module, and for a function of Python also where its code begins."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    value = getattr(value, "__func__", value)
    if type(value).__name__ in ("OpOverload", "OpOverloadPacket"):
        return str(value)
    name = f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    code = getattr(value, "__code__", None)
    # Not the code itself: a compiler may put other code of the same meaning there.
    return name if code is None or of_library(value.__module__) else f"{name} ({code.co_name}:{code.co_firstlineno})"


def bound_in(function: Any) -> list[tuple[str, Any]] | None:
    """Return what a function of a case's own takes along, by path; None for a function of a library.

    That is a method's object, the values in a closure, defaults and attributes. Modules are left out: they are state.
    """
    import torch

    if isinstance(function, types.MethodType):
        bound = [(".__self__", function.__self__), (".__func__", function_text(function))]
    elif of_library(function.__module__):
        return None
    else:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        bound = [(".__code__", function_text(function))]
        bound += [(f".closure[{name!r}]", item) for name, cell in cells for item in attribute(cell, "cell_contents")]
        bound += [(f".__defaults__[{index}]", item) for index, item in enumerate(function.__defaults__ or ())]
        bound += [(f".__kwdefaults__[{name!r}]", item) for name, item in (function.__kwdefaults__ or {}).items()]
        bound += [(key, item) for key, item in own_attributes(function) if not key.startswith("._")]
    return [(key, item) for key, item in bound if not isinstance(item, torch.nn.Module)]


def cached(function: Any) -> dict[str, Any]:
    """Return what a function with a cache keeps, by the text of its arguments; nothing of keys that have no text."""
    held = gc.get_referents(function)
    cache = next((item for item in held if type(item) is dict and item is not vars(function)), {})
    results = {}
    bounded = function.cache_parameters()["maxsize"] is not None
    for key, item in list(cache.items()):
        text = _readable(key)
        if text is not None:  # the dict of a bounded cache holds links of a list, which refers to keys and results
            results[text] = held[next(i for i, other in enumerate(held) if other is key) + 1] if bounded else item
    return results


def is_named(value: Any) -> bool:
    """Whether a callable is known by its name: a function of Python, C, numpy or torch."""
    return isinstance(value, _FUNCTIONS) or type(value).__name__ in ("ufunc", "OpOverload", "OpOverloadPacket")


_FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)

HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
"""The attributes in which a module keeps hooks. Their number is compared, because two functions cannot be."""

MARKS = ("_is_torch_compile",)
"""Attributes that torch.compile leaves on a user's module for its own use (from torch 2.13 on)."""

OF_TORCH = ("__", "_dynamo", "_torch", "_jit", "_is_torch", "_abc_")
"""Beginnings of the names of attributes that Python and torch put on a user's functions, classes and modules."""


@functools.cache
def _internal_names() -> frozenset[str]:
    import torch

    return frozenset({*vars(torch.nn.Module()), *MARKS}) - {"training"}


def own_names(part: Any) -> list[str]:
    """Return the names of a module's attributes that are not torch's own."""
    return [key for key in vars(part) if key not in _internal_names() and not key.startswith(OF_TORCH)]


def make_up(part: Any) -> dict[str, Any]:
    """Return what a module is besides its tensors and attributes, by name, where it is more than a bare one.

    That is the number of its hooks, and the buffers that `state_dict` leaves out.
    """
    present: dict[str, Any] = {group: len(vars(part).get(group) or ()) for group in HOOKS}
    present["non_persistent_buffers"] = sorted(vars(part).get("_non_persistent_buffers_set") or ())
    return {name: value for name, value in present.items() if value}


def module_items(module: Any) -> list[tuple[str, Any]]:
    """Return the tensors of a module by path, and the class, the attributes and the hooks of each of its parts."""
    items = [(f"[{name!r}]", tensor) for name, tensor in (*module.named_parameters(), *module.named_buffers())]
    for name, part in module.named_modules():
        prefix = f".{name}" if name else ""
        if name:
            items.append((f"{prefix}.__class__", function_text(type(part))))
        private = of_library(type(part).__module__)
        names = [key for key in sorted(own_names(part)) if not (private and key.startswith("_"))]
        items += [(f"{prefix}.{key}", vars(part)[key]) for key in names]
        items += [(f"{prefix}.{key}", value) for key, value in make_up(part).items()]
    return items
