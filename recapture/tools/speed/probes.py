"""Probes that explain a time: memory, kernels, operators. They run after the timing, which they would disturb."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recapture.tools.speed.subject import Subject, synchronize

ITERATIONS = 3
"""Iterations that a probe observes."""


def allocated(device: str) -> int:
    """Return the bytes of tensors on the device now; on the CPU, the resident memory of the process."""
    gc.collect()
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
        return int(torch.cuda.memory_allocated())
    _return_free_memory()
    # Free pages that the allocator kept until now would count as the next model's.
    return _status("VmRSS") or 0


def warm_libraries(device: str) -> None:
    """Make the GPU's libraries allocate their workspaces, so that they are not attributed to a model."""
    if device != "cuda":
        return
    import torch

    with torch.no_grad():
        square = torch.ones(64, 64, device=device)
        torch.nn.functional.conv2d(square.view(1, 1, 64, 64), square.view(1, 1, 64, 64)[..., :3, :3])
        (square @ square).sum().item()


def peak_memory(subject: Subject, device: str, before: int) -> int | None:
    """Return the peak memory of iterating in bytes, including the model and CUDA-graph pools.

    `before` is the value of `allocated` before the subject was built, which is subtracted. On a GPU, this is the memory
    reserved by the allocator; on the CPU, the growth of the resident memory, or None if the kernel does not report it.
    """
    gc.collect()
    if device == "cuda":
        import torch

        synchronize(device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        _iterate(subject)
        synchronize(device)
        return max(0, int(torch.cuda.max_memory_reserved()) - before)
    _return_free_memory()
    try:
        Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    except OSError:
        return None
    _iterate(subject)
    peak = _status("VmHWM")
    return None if peak is None else max(0, peak - before)


def _iterate(subject: Subject) -> None:
    with subject.context():
        for number in range(ITERATIONS):
            subject.iterate(number)


def _return_free_memory() -> None:
    with contextlib.suppress(OSError, AttributeError):  # other C libraries lack this call
        ctypes.CDLL(None).malloc_trim(0)


def _status(name: str) -> int | None:
    """Return a value of /proc/self/status in bytes."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


def kernel_seconds(subject: Subject, device: str) -> float | None:
    """Return the GPU seconds in kernels and copies per iteration; None without a GPU or a profiler for it."""
    if device != "cuda":
        return None
    try:
        averages = _profiled(subject, device)
    except Exception:  # CUPTI is missing or refused: this figure is optional
        return None
    # Kernels have separate rows; an operator's row repeats the time of its kernels.
    total = sum(_device_time(row) for row in averages if _is_kernel(row))
    return total / 1e6 / ITERATIONS if total else None


def operators(subject: Subject, device: str, trace: Path | None) -> list[tuple[str, float, float, float, int]]:
    """Return (operator, own CPU µs, CPU µs, own device µs, calls), by own CPU time; write a Chrome trace."""
    averages = _profiled(subject, device, lambda profiler: profiler.export_chrome_trace(str(trace)) if trace else None)
    rows = [
        (
            str(row.key),
            float(row.self_cpu_time_total),
            float(row.cpu_time_total),
            _device_time(row),
            int(row.count),
        )
        for row in averages
        if not _spans_kernels(row)
    ]
    return sorted(rows, key=lambda row: -row[1])


def _profiled(subject: Subject, device: str, then: Callable[[Any], object] | None = None) -> Any:
    from torch.profiler import ProfilerActivity, profile

    # The first iteration runs without the profiler, which starts up in it otherwise.
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    _iterate(subject)
    with profile(activities=activities) as profiler:
        _iterate(subject)
        synchronize(device)
    if then is not None:
        then(profiler)
    return profiler.key_averages()


def _is_kernel(row: Any) -> bool:
    return _is_on_device(row) and not _spans_kernels(row)


def _is_on_device(row: Any) -> bool:
    return str(getattr(row, "device_type", "")).endswith("CUDA")


def _spans_kernels(row: Any) -> bool:
    """Whether a row is a named range on the device, from its first to its last kernel, such as ``Optimizer.step#…``."""
    return _is_on_device(row) and bool(getattr(row, "is_user_annotation", False))


def _device_time(row: Any) -> float:
    """Return a profiler row's own microseconds on the device; the attribute was renamed in 2.4."""
    for name in ("self_device_time_total", "self_cuda_time_total"):
        if hasattr(row, name):
            return float(getattr(row, name))
    return 0.0
