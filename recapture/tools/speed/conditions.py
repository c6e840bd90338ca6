"""The state of the machine during timing: the GPU's, sampled from another process, and the CPU's, from the same."""

from __future__ import annotations

import os
import statistics
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from recapture.tools.speed.cpu_settings import allocator_name
from recapture.tools.speed.speedups import Conditions

if TYPE_CHECKING:
    from typing_extensions import Self

PERIOD_SECONDS = 0.1

THROTTLE = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""NVML's clock event reasons, by bit, that mean a lower clock than requested; idle and set clocks are excluded."""


class _Sample(msgspec.Struct):
    at: float
    uuid: str
    sm: float | None
    memory: float | None
    temperature: float | None
    power: float | None
    reasons: int | None
    processes: int | None


class GpuSampler:
    """Samples every GPU's state in a thread of this process, which times nothing itself; use as a context manager."""

    def __init__(self, *, enabled: bool) -> None:
        self._samples: list[_Sample] = []
        self._stop = threading.Event()
        self._nvml: Any = None
        self._thread: threading.Thread | None = None
        if enabled:
            try:
                import pynvml

                pynvml.nvmlInit()
            except Exception:  # no driver: the conditions have no GPU data
                return
            self._nvml = pynvml
            self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            with suppress(Exception):
                self._nvml.nvmlShutdown()

    def _run(self) -> None:
        nvml = self._nvml
        handles = []
        for index in range(_ask(nvml.nvmlDeviceGetCount) or 0):
            handle = _ask(nvml.nvmlDeviceGetHandleByIndex, index)
            uuid = _ask(nvml.nvmlDeviceGetUUID, handle)
            handles.append((handle, uuid.decode() if isinstance(uuid, bytes) else str(uuid)))
        # The second name is the older one, which newer drivers still know.
        reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or getattr(
            nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None
        )
        while not self._stop.wait(PERIOD_SECONDS):
            for handle, uuid in handles:
                power = _ask(nvml.nvmlDeviceGetPowerUsage, handle)
                processes = _ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle)
                self._samples.append(
                    _Sample(
                        time.monotonic(),
                        uuid,
                        _ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
                        _ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
                        _ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
                        None if power is None else power / 1000,
                        None if reasons is None else _ask(reasons, handle),
                        None if processes is None else len(processes),
                    )
                )

    def conditions(self, uuid: str | None, window: tuple[float, float], cpu: Conditions) -> Conditions:
        """Return the CPU's conditions with those of the GPU added, for a window in monotonic seconds."""
        if uuid is None:
            return cpu
        # NVML's UUID has the prefix GPU-, which torch's lacks.
        in_window = [sample for sample in self._samples if window[0] <= sample.at <= window[1] and uuid in sample.uuid]
        if not in_window:
            return cpu
        known_reasons = [sample.reasons for sample in in_window if sample.reasons is not None]
        shares = {
            # As a share, so that a reason that held for a moment weighs little.
            name: sum(bool(reasons & bit) for reasons in known_reasons) / len(known_reasons)
            for bit, name in THROTTLE.items()
            if known_reasons
        }
        processes = [sample.processes for sample in in_window if sample.processes is not None]
        return msgspec.structs.replace(
            cpu,
            sm_clock=_spread([sample.sm for sample in in_window]),
            memory_clock=_spread([sample.memory for sample in in_window]),
            temperature=_spread([sample.temperature for sample in in_window]),
            power=_spread([sample.power for sample in in_window]),
            throttled={name: round(share, 3) for name, share in shares.items() if share},
            samples=len(in_window),
            # One of the processes is the timed one.
            others=max(0, max(processes) - 1) if processes else None,
        )


def _ask(question: Any, *arguments: Any) -> Any:
    try:
        return question(*arguments)
    except Exception:  # not supported on this GPU, or by this driver
        return None


def _spread(values: list[float | None]) -> tuple[float, float, float] | None:
    known = [value for value in values if value is not None]
    return (min(known), statistics.median(known), max(known)) if known else None


class CpuWatch:
    """Observes the CPU from creation to `stop`, in the process that is timed."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._own = time.process_time()
        self._times = _cpu_times()

    def stop(self) -> Conditions:
        """Return the CPU's conditions since creation; `GpuSampler` adds the GPU's."""
        seconds = max(time.monotonic() - self._began, 1e-9)
        own = time.process_time() - self._own
        return cpu_conditions(seconds, own, self._times, _cpu_times())


def cpu_conditions(
    seconds: float, own: float, before: tuple[float, float] | None, after: tuple[float, float] | None
) -> Conditions:
    """Compute conditions from `own` CPU seconds and the machine's (busy, stolen) CPU seconds before and after."""
    import torch

    others = steal = None
    if before is not None and after is not None:
        # The process's clock and the machine's tick at other times: a difference may be below zero.
        others = round(max(0.0, after[0] - before[0] - own) / seconds, 3)
        steal = round(max(0.0, after[1] - before[1]) / seconds / (os.cpu_count() or 1), 4)
    return Conditions(
        threads=torch.get_num_threads(),
        affinity=len(os.sched_getaffinity(0)),
        governor=_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        allocator=allocator_name(),
        load=round(os.getloadavg()[0], 2),
        cpu_others=others,
        steal=steal,
    )


def _cpu_times() -> tuple[float, float] | None:
    """Return the (busy, stolen) seconds of all CPUs since boot; None if /proc does not report them."""
    text = _read("/proc/stat")
    if text is None:
        return None
    # The first line sums all CPUs. Guest time, the last fields, is a part of user time already.
    fields = [float(field) / os.sysconf("SC_CLK_TCK") for field in text.splitlines()[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    return user + nice + system + irq + softirq, steal


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None
