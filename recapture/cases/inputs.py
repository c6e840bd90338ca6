"""The inputs of a case: factories with names, and the check that what they return fits the case's function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

Inputs = Callable[[], tuple[Any, ...]]
"""A function that returns one tuple of arguments; it is called under a fixed seed, once per run."""


class InputsError(Exception):
    """A factory of a case did not return arguments that the case's function takes; the message names the input."""


def named_inputs(target: Callable[..., Any], example: Inputs, held_out: Sequence[Inputs]) -> list[tuple[str, Inputs]]:
    """Return the factories of a function's or module class's inputs with their names: ``example``, ``held_out[0]``, …

    They raise InputsError if their result is no tuple of arguments that `target` takes.
    """
    named = [("example", example), *((f"held_out[{index}]", make) for index, make in enumerate(held_out))]
    return [(label, partial(_checked, target, label, make)) for label, make in named]


def labels_after(before: Sequence[Inputs], some: Sequence[Inputs]) -> frozenset[str]:
    """Return the names of held-out inputs that are numbered after others."""
    return frozenset(f"held_out[{len(before) + index}]" for index in range(len(some)))


def _checked(target: Callable[..., Any], label: str, make: Inputs) -> tuple[Any, ...]:
    args: object = make()
    if not isinstance(args, tuple):
        raise InputsError(f"{label} gives {type(args).__name__}, not a tuple of arguments")
    is_module = inspect.isclass(target)
    try:
        signature = inspect.signature(target.forward if is_module else target)  # type: ignore[attr-defined]
    except ValueError:  # a builtin that does not say what it takes
        return args
    try:
        signature.bind(*((None, *args) if is_module else args))
    except TypeError as error:
        shown = f"{target.__name__}{signature}"
        raise InputsError(f"{label} gives {len(args)} arguments, but {shown} says: {error}") from None
    return args
