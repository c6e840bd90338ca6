"""The GPU and the CPU as the driver and the kernel report them; values that they do not report are None."""

from __future__ import annotations

import functools
import os
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from recapture.base.decode import Count, NonNegative


class GpuInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The GPU as its driver reports it: memory in bytes, clocks in MHz, power in watts; None means unknown."""

    name: str | None = None
    capability: str | None = None
    driver: str | None = None
    memory: Count | None = None
    clocks: dict[str, int] | None = None
    max_clocks: dict[str, int] | None = None
    power_limit: NonNegative | None = None
    ecc: bool | None = None
    mig: bool | None = None
    persistence: bool | None = None
    other_processes: int | None = None


class CpuInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The CPU: `cores` are those this process may use, `threads` those torch uses, `memory` is in bytes.

    `instructions` are the vector instructions of torch's kernels, for example ``AVX2``; None if torch does not say.
    """

    model: str | None
    cores: Count
    threads: Count
    governor: str | None
    memory: Count | None
    instructions: str | None = None


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def cpu_info() -> CpuInfo:
    """Return the CPU resources that this process may use."""
    import psutil
    import torch

    text = _read(Path("/proc/cpuinfo")) or ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return CpuInfo(
        model=model.group(1).strip() if model else platform.processor() or None,
        cores=cores(),
        threads=torch.get_num_threads(),
        governor=_read(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        memory=psutil.virtual_memory().total,
        instructions=_instructions(torch),
    )


def _instructions(torch: Any) -> str | None:
    """Return the vector instructions that torch's kernels use; Inductor's C++ code depends on them, too."""
    backend: Any = getattr(torch.backends, "cpu", None)  # the oldest releases have none
    return str(backend.get_cpu_capability()) if hasattr(backend, "get_cpu_capability") else None


def gpu_info(capability: str) -> GpuInfo:
    """Return what is known about torch's device 0; `capability` is, for example, ``sm_90``."""
    import torch

    # The last digit is the minor number: sm_90 is 9.0, and sm_100 is 10.0.
    number = ".".join((capability[3:-1], capability[-1]))
    known = GpuInfo(name=torch.cuda.get_device_name(0), capability=number)
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return known
    try:
        return msgspec.structs.replace(known, **_reported_by_driver(pynvml, _handle(pynvml)))
    except Exception:  # a GPU that NVML does not list, as in some virtual machines
        return known
    finally:
        pynvml.nvmlShutdown()


def visible_gpus() -> int | None:
    """Return the number of GPUs that this process may use, from NVML and CUDA_VISIBLE_DEVICES; None if unknown."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return len([name for name in named.split(",") if name.strip()])
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            return int(pynvml.nvmlDeviceGetCount())
        finally:
            pynvml.nvmlShutdown()
    except Exception:  # no NVML: the number is not known
        return None


def _handle(nvml: Any) -> Any:
    """NVML's handle of torch's device 0. NVML counts every GPU, torch only those in CUDA_VISIBLE_DEVICES."""
    import torch

    uuid = getattr(torch.cuda.get_device_properties(0), "uuid", None)
    if uuid is not None:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode())
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    if first and not first.isdigit():
        return nvml.nvmlDeviceGetHandleByUUID(first.encode())
    return nvml.nvmlDeviceGetHandleByIndex(int(first or 0))


def _reported_by_driver(nvml: Any, handle: Any) -> dict[str, Any]:
    def ask(question: Callable[[], Any]) -> Any:
        try:
            answer = question()
        except Exception:  # not supported on this GPU, or not by this driver or nvidia-ml-py
            return None
        return answer.decode() if isinstance(answer, bytes) else answer

    kinds = {"graphics": nvml.NVML_CLOCK_GRAPHICS, "sm": nvml.NVML_CLOCK_SM, "memory": nvml.NVML_CLOCK_MEM}
    power = ask(lambda: nvml.nvmlDeviceGetPowerManagementLimit(handle))
    processes = ask(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))

    def switched_on(question: Callable[[], Any]) -> bool | None:
        answer = ask(question)
        return None if answer is None else bool(answer)

    def clocks(question: Callable[[Any, Any], Any]) -> dict[str, int] | None:
        clock_rates = {kind: ask(functools.partial(question, handle, number)) for kind, number in kinds.items()}
        return {kind: clock for kind, clock in clock_rates.items() if clock is not None} or None

    return {
        "driver": ask(nvml.nvmlSystemGetDriverVersion),
        "memory": ask(lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total)),
        "clocks": clocks(nvml.nvmlDeviceGetClockInfo),
        "max_clocks": clocks(nvml.nvmlDeviceGetMaxClockInfo),
        "power_limit": None if power is None else power / 1000,
        "ecc": switched_on(lambda: nvml.nvmlDeviceGetEccMode(handle)[0]),
        "mig": switched_on(lambda: nvml.nvmlDeviceGetMigMode(handle)[0]),
        "persistence": switched_on(lambda: nvml.nvmlDeviceGetPersistenceMode(handle)),
        # This process uses CUDA and is one of those listed, though its id differs inside a container.
        "other_processes": None if processes is None else max(0, len(processes) - 1),
    }


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
