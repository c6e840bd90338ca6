"""A fixed piece of work that is timed in every process of a benchmark: how fast the machine itself was.

Seconds of two benchmarks differ because torch differs, or because the machine does: another clock, a busy neighbour,
other memory. The work here is the same with every release of torch, Python and the libraries of a GPU. So eager's
seconds are compared after they were divided by these: see `recapture.tools.speed.speed_changes`.

On the CPU it is a SHA-256 of 1 MiB and a copy of 16 MiB by the C library, on one thread. On a GPU it is a kernel that
waits for a number of cycles of the GPU's clock, and a copy of 64 MiB in its memory.
"""

from __future__ import annotations

import ctypes
import hashlib
import time
from collections.abc import Callable

from recapture.tools.speed.device_time import Cuda
from recapture.tools.speed.speedups import FASTEST

SAMPLES = 15
"""Samples before the timing of the variants, and as many after it: about 0.1 s each time on the CPU."""

HASHED_BYTES = 1 << 20
COPIED_BYTES = 16 << 20

GPU_CYCLES = 2_000_000
"""Cycles that the kernel waits: about 1 ms."""

GPU_COPIED_BYTES = 64 << 20


def yardstick(device: str) -> Callable[[], tuple[float, ...]]:
    """Return a function that takes the samples, in seconds; the memory that it needs is there from now on."""
    sample = _on_gpu() if device == "cuda" else _on_cpu()
    sample()  # the first one touches the memory

    def samples() -> tuple[float, ...]:
        return tuple(float(f"{max(sample(), FASTEST):.6g}") for _ in range(SAMPLES))

    return samples


def _on_cpu() -> Callable[[], float]:
    hashed = bytes(HASHED_BYTES)
    source, target = (ctypes.create_string_buffer(COPIED_BYTES) for _ in range(2))

    def sample() -> float:
        begin = time.perf_counter()
        hashlib.sha256(hashed).digest()
        ctypes.memmove(target, source, COPIED_BYTES)
        return time.perf_counter() - begin

    return sample


def _on_gpu() -> Callable[[], float]:
    import torch

    device = Cuda()
    source, target = (torch.zeros(GPU_COPIED_BYTES, dtype=torch.uint8, device="cuda") for _ in range(2))

    def sample() -> float:
        device.synchronize()
        begin = device.mark()
        device.wait(GPU_CYCLES)
        target.copy_(source)
        end = device.mark()
        device.synchronize()
        return end() - begin()

    return sample
