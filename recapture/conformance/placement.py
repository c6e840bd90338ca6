"""Replaces the tensors inside the arguments of a call, at any depth, and keeps everything else."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["map_tensors"]


def map_tensors(
    value: Any, change: Callable[[Any], Any], lists: dict[int, tuple[list[Any], list[Any]]] | None = None
) -> Any:
    """Return a value with `change` applied to every tensor in lists, tuples, dicts and dataclasses.

    A list that occurs more than once, or contains itself, is copied once; `lists` maps its id to the list and its copy.
    """
    import torch

    lists = {} if lists is None else lists

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, change, lists) for item in value))
    if type(value) is tuple:
        return tuple(map_tensors(item, change, lists) for item in value)
    if type(value) is list:
        if id(value) not in lists:
            mapped: list[Any] = []
            lists[id(value)] = (value, mapped)
            mapped.extend(map_tensors(item, change, lists) for item in value)
        return lists[id(value)][1]
    if isinstance(value, dict):
        for key in value:
            value[key] = map_tensors(value[key], change, lists)
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for one in dataclasses.fields(value):
            object.__setattr__(value, one.name, map_tensors(getattr(value, one.name), change, lists))
    return value


def arguments(make: Callable[[], tuple[Any, ...]], device: str, *, roomy: bool = False) -> tuple[Any, ...]:
    from recapture.conformance.padding import with_room

    rooms: dict[int, Any] = {}
    placed: dict[int, Any] = {}

    def place(tensor: Any) -> Any:
        if id(tensor) not in placed:
            placed[id(tensor)] = (tensor, with_room(tensor.to(device), rooms))
        return placed[id(tensor)][1]

    return map_tensors(make(), place) if roomy else make()
