"""The GPUs of this machine as the driver lists them, without torch and without a CUDA context."""

from __future__ import annotations

from typing import NamedTuple


class Gpu(NamedTuple):
    """One GPU: its UUID, name, compute capability (``9.0``) and the first number of the driver's version."""

    uuid: str
    name: str
    capability: str
    driver: int


def local_gpus() -> list[Gpu]:
    """Return the NVIDIA GPUs of this machine; an empty list without a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        driver = int(pynvml.nvmlSystemGetDriverVersion().partition(".")[0])
        gpus = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
            uuid, name = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)
            gpus.append(Gpu(uuid, name, f"{major}.{minor}", driver))
    except pynvml.NVMLError:
        return []
    else:
        return gpus
    finally:
        pynvml.nvmlShutdown()
