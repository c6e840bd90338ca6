"""Operators that a user's code registers with `torch.library`: where it does so, how it calls them, torch's check.

`torch.library.opcheck` and the decorator `torch.library.custom_op` are in torch 2.4 and newer.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

_REGISTERED = re.compile(r"^debug: registered at (?P<file>.+):(?P<line>\d+)$", re.MULTILINE)


class OperatorCall(NamedTuple):
    """One call of an operator, with copies of its arguments: the operator itself may change those it was given."""

    name: str
    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def registered_operators() -> frozenset[str]:
    """Return the names of all operators that this process has, such as ``aten::add``, without their overloads."""
    import torch

    names = torch._C._dispatch_get_all_op_names()  # noqa: SLF001 - nothing public lists them
    return frozenset(name.partition(".")[0] for name in names)


def loaded_libraries() -> tuple[str, ...]:
    """Return the libraries that may register operators: those that torch loaded, and modules of C++ that use it."""
    import torch

    files = {str(getattr(module, "__file__", None) or "") for module in list(sys.modules.values())}
    modules = [file for file in sorted(files) if file.endswith((".so", ".pyd")) and _uses_torch(file)]
    return (*map(str, torch.ops.loaded_libraries), *modules)


@functools.cache
def _uses_torch(file: str) -> bool:
    """Whether a library names one of torch's among those that it needs."""
    try:
        return b"libc10" in Path(file).read_bytes()
    except OSError:
        return True


def place_of_operator(name: str) -> tuple[str, int]:
    """Return the file and the line that register an operator; an empty file and 0 if torch does not tell."""
    import torch

    try:
        from torch._library.custom_ops import OPDEFS
    except ImportError:  # before torch 2.4
        OPDEFS = {}  # noqa: N806 - torch's name
    definition = OPDEFS.get(name)
    code = getattr(getattr(definition, "_init_fn", None), "__code__", None)
    if code is not None:
        return code.co_filename, code.co_firstlineno
    names = torch._C._dispatch_get_all_op_names()  # noqa: SLF001 - nothing public tells the place
    for overload in (name, *(other for other in names if other.startswith(f"{name}."))):
        with contextlib.suppress(RuntimeError):  # an operator that has overloads alone
            match = _REGISTERED.search(torch._C._dispatch_dump(overload))  # noqa: SLF001
            if match:
                return match["file"], int(match["line"])
    return "", 0


def calls_of_operators(
    function: Callable[..., Any], arguments: tuple[Any, ...], names: Collection[str], most: int
) -> list[OperatorCall]:
    """Return the calls of operators in one call of a function; of each operator at most a number of unlike ones.

    What the function raises propagates.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_map

    calls: dict[tuple[str, str], OperatorCall] = {}

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().clone().requires_grad_(value.requires_grad)

    def form(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return f"{value.dtype}{tuple(value.shape)}{value.requires_grad}"

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func.name().partition(".")[0]
            if name in names:
                key = (func.name(), repr(tree_map(form, (args, kwargs or {}))))
                if key not in calls and sum(other == func.name() for other, _ in calls) < most:
                    with torch.no_grad():
                        copies = tree_map(copied, (tuple(args), dict(kwargs or {})))
                    calls[key] = OperatorCall(name, func, *copies)
            return func(*args, **(kwargs or {}))

    with Watch():
        function(*arguments)
    return list(calls.values())


def failed_tests(call: OperatorCall) -> dict[str, str]:
    """Return the tests of `torch.library.opcheck` that an operator fails on one call, each with torch's reason."""
    import torch

    results = torch.library.opcheck(call.operator, call.args, call.kwargs, raise_exception=False)
    return {test: str(result) for test, result in results.items() if result != "SUCCESS"}


def has_opcheck() -> bool:
    """Whether this torch has `torch.library.opcheck`."""
    import torch

    return hasattr(torch.library, "opcheck")
