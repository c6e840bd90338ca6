"""Zero padding behind tensors, for callables that read past the end of their inputs."""

from __future__ import annotations

from typing import Any

__all__ = ["ROOM_BYTES", "with_room"]

ROOM_BYTES = 1 << 20
"""Bytes of zeros behind each tensor."""


def with_room(tensor: Any, rooms: dict[int, Any]) -> Any:
    """Return a tensor with the same contents whose storage continues with ROOM_BYTES of zeros.

    `rooms` maps the addresses of storages to the padded storages created so far. A callable that does not check its
    inputs reads and writes past the end of a tensor that is too small. With padding, this memory belongs to the tensor:
    the result is still wrong, but it is the same in every process.
    """
    import torch

    plain = type(tensor) is torch.Tensor and tensor.layout == torch.strided and tensor.is_leaf
    if not plain or tensor.is_conj() or tensor.is_neg() or tensor.numel() == 0:
        return tensor
    storage = tensor.untyped_storage()
    if storage.data_ptr() not in rooms:  # views of one storage keep sharing it
        room = torch.zeros(storage.nbytes() + ROOM_BYTES, dtype=torch.uint8, device=tensor.device).untyped_storage()
        room[: storage.nbytes()].copy_(storage)
        rooms[storage.data_ptr()] = (storage, room)
    _, room = rooms[storage.data_ptr()]
    roomy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    roomy.set_(room, tensor.storage_offset(), tensor.size(), tensor.stride())
    return roomy.requires_grad_(tensor.requires_grad)
