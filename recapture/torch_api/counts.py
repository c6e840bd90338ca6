"""What torch counts while it compiles: kernels, and the code that it generated; None where a release does not tell.

- kernels: ``torch._inductor.metrics.generated_kernel_count``, on every release; calls of libraries are not among them.
- code: the event ``inductor_output_code`` of the structured trace, from about 2.4 (see `recapture.torch_api.trace`).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from recapture.torch_api.trace import hear_trace


@dataclass
class CompileCounts:
    """What was counted: kernels, and the characters of generated code without comments; None if unknown."""

    kernels: int | None = None
    code: int | None = None


@contextmanager
def count_compilation() -> Iterator[CompileCounts]:
    """Count what Inductor generates inside the block; the counts are complete when the block ends."""
    counts = CompileCounts()
    code_sizes: list[int] = []

    def hear(name: str, _about: dict[str, Any], payload: str) -> None:
        if name == "inductor_output_code":
            code_sizes.append(code_size(payload))

    before = _kernels()
    try:
        with hear_trace(hear) as heard:
            yield counts
    finally:
        after = _kernels()
        if before is not None and after is not None:
            counts.kernels = after - before
        # Without an event, this release does not tell, or nothing was generated.
        if heard and (code_sizes or counts.kernels == 0):
            counts.code = sum(code_sizes)


def code_size(text: str) -> int:
    """Return the characters of generated code without comments: those name files of the machine, and sources."""
    lines = (line.strip() for line in text.splitlines())
    return sum(len(line) for line in lines if line and not line.startswith(("#", "//")))


def _kernels() -> int | None:
    try:
        metrics: Any = importlib.import_module("torch._inductor.metrics")
        return int(metrics.generated_kernel_count)
    except Exception:  # a package is missing, or another release keeps it elsewhere
        return None


def saved_for_backward(run: Any, known: list[Any]) -> int | None:
    """Return the bytes of the memory that `run` saves for a backward pass, each storage once.

    The memory of the `known` tensors, such as parameters and inputs, exists anyway, and is left out. None if this
    release has no hooks for it.
    """
    import torch

    hooks: Any = getattr(torch.autograd.graph, "saved_tensors_hooks", None)
    if hooks is None:
        return None
    own = {address for tensor in known if (address := _storage(tensor)) is not None}
    # The tensors are held until the end, so that no other storage gets the address of one that was freed.
    saved: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        address = _storage(tensor)
        if address is not None and address not in own:
            saved[address] = tensor
        return tensor

    with hooks(pack, lambda tensor: tensor):
        run()
    return sum(int(tensor.untyped_storage().nbytes()) for tensor in saved.values())


def _storage(tensor: Any) -> int | None:
    """Return the address of a tensor's memory; None for one that has none of its own, such as a sparse tensor."""
    try:
        return int(tensor.untyped_storage().data_ptr()) or None
    except (RuntimeError, NotImplementedError):
        return None
