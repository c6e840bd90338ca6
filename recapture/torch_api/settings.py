"""Settings of torch that are read or written in one way on every supported release."""

from __future__ import annotations


def default_device() -> str | None:
    """Return the default device that was set, else None; `torch.get_default_device` does not tell "cpu" from unset."""
    import torch

    context = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    context = getattr(context, "device_context", context)  # torch 2.0 has one context, not one for each thread
    device = getattr(context, "device", None)
    return None if device is None else str(device)


def float32_flags() -> tuple[str, bool, bool]:
    """Return the precision of float32 matrix products, whether cuDNN may use TF32, and whether it autotunes."""
    import torch

    cudnn = torch.backends.cudnn
    return str(torch.get_float32_matmul_precision()), bool(cudnn.allow_tf32), bool(cudnn.benchmark)


def set_float32_flags(dtype: str | tuple[str, bool, bool]) -> None:
    """Set those flags for one of `recapture.cases.workload.DTYPES`, or to the values that `float32_flags` returned.

    The others get torch's defaults on every release: TF32 off in matrix products and on in cuDNN, no autotuning.
    """
    import torch

    if isinstance(dtype, str):
        dtype = {"tf32": ("high", True, False), "fp32-strict": ("highest", False, False)}.get(
            dtype, ("highest", True, False)
        )
    if dtype != float32_flags():  # setting a flag clears torch's caches
        torch.set_float32_matmul_precision(dtype[0])
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = dtype[1:]
