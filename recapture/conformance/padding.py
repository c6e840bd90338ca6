"""Room behind tensors, for callables that read past the end of their inputs."""

from __future__ import annotations

from typing import Any

__all__ = ["ROOM_BYTES", "with_room"]

ROOM_BYTES = 1 << 20


def with_room(tensor: Any, rooms: dict[int, Any]) -> Any:
    """Return a tensor with the same contents whose storage goes on with zeros; `rooms` has the storages made so far.

    A callable that checks nothing about its inputs reads and writes past the end of one that is too small. Here it does
    so in memory of the tensor's own: it is as wrong as ever, and what comes of it is the same in every process.
    """
    import torch

    plain = type(tensor) is torch.Tensor and tensor.layout == torch.strided and tensor.is_leaf
    if not plain or tensor.is_conj() or tensor.is_neg() or tensor.numel() == 0:
        return tensor
    storage = tensor.untyped_storage()
    if storage.data_ptr() not in rooms:  # two views of one storage stay so
        room = torch.zeros(storage.nbytes() + ROOM_BYTES, dtype=torch.uint8, device=tensor.device).untyped_storage()
        room[: storage.nbytes()].copy_(storage)
        rooms[storage.data_ptr()] = (storage, room)
    _, room = rooms[storage.data_ptr()]
    roomy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    roomy.set_(room, tensor.storage_offset(), tensor.size(), tensor.stride())
    return roomy.requires_grad_(tensor.requires_grad)
