"""What a call or a capture leaves behind in torch and in the process, and originals that no longer work."""

from __future__ import annotations

import os
import random
import types
from typing import Any

import torch

from benchmarks.judge.planting import Nothing, Run, plants, rebuild, tensors


@plants("state-grad-mode", "state")
def grad_mode(run: Run) -> Any:
    """The call leaves autograd switched the other way."""
    result = run.result()
    torch.set_grad_enabled(not torch.is_grad_enabled())
    return result


@plants("state-grad-mode-lost", "state")
def grad_mode_lost(run: Run) -> Any:
    """The call does not leave autograd switched off, as eager does."""
    before = torch.is_grad_enabled()
    result = run.result()
    if torch.is_grad_enabled() == before:
        raise Nothing
    torch.set_grad_enabled(before)
    return result


@plants("state-default-dtype", "state")
def default_dtype(run: Run) -> Any:
    """The call leaves another default dtype."""
    result = run.result()
    torch.set_default_dtype(torch.float16 if torch.get_default_dtype() is torch.float64 else torch.float64)
    return result


@plants("state-default-device", "state")
def default_device(run: Run) -> Any:
    """The call leaves another default device."""
    result = run.result()
    torch.set_default_device("meta")
    return result


@plants("state-deterministic", "state")
def deterministic(run: Run) -> Any:
    """The call leaves deterministic algorithms switched the other way."""
    result = run.result()
    torch.use_deterministic_algorithms(not torch.are_deterministic_algorithms_enabled())
    return result


@plants("state-matmul-precision", "state")
def matmul_precision(run: Run) -> Any:
    """The call leaves another precision of float32 products."""
    result = run.result()
    torch.set_float32_matmul_precision("high" if torch.get_float32_matmul_precision() == "highest" else "highest")
    return result


@plants("state-autocast", "state")
def autocast(run: Run) -> Any:
    """The call leaves autocast switched on."""
    result = run.result()
    torch.autocast("cpu", dtype=torch.bfloat16).__enter__()
    return result


@plants("state-anomaly-detection", "state")
def anomaly(run: Run) -> Any:
    """The call leaves anomaly detection switched on."""
    result = run.result()
    torch.autograd.set_detect_anomaly(True, check_nan=False)
    return result


@plants("state-cudnn-benchmark", "state")
def cudnn_benchmark(run: Run) -> Any:
    """The call leaves cuDNN's search for the fastest algorithm switched the other way."""
    result = run.result()
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
    return result


@plants("capture-leaves-grad-mode", "state", at="capture")
def capture_grad_mode(run: Run) -> Any:
    """Capturing leaves autograd switched off, which no call does."""
    with torch.enable_grad():
        run.on_copies()
        if not torch.is_grad_enabled():
            raise Nothing
    torch.set_grad_enabled(False)
    return run.target


@plants("capture-leaves-default-dtype", "state", at="capture")
def capture_default_dtype(run: Run) -> Any:
    """Capturing leaves another default dtype."""
    torch.set_default_dtype(torch.float64)
    return run.target


@plants("capture-leaves-default-device", "state", at="capture")
def capture_default_device(run: Run) -> Any:
    """Capturing leaves another default device."""
    torch.set_default_device("meta")
    return run.target


@plants("random-state", "state", level="random_state")
def random_state(run: Run) -> Any:
    """The call uses one more random number of torch."""
    result = run.result()
    torch.empty(1, device="cpu").uniform_()
    return result


@plants("random-state-of-python", "state", level="random_state")
def random_state_of_python(run: Run) -> Any:
    """The call uses one more random number of Python."""
    result = run.result()
    random.random()  # noqa: S311
    return result


@plants("random-state-lost", "state", level="random_state")
def random_state_lost(run: Run) -> Any:
    """The random numbers that the call used are used again by what follows."""
    before = torch.get_rng_state()
    result = run.result()
    if torch.equal(before, torch.get_rng_state()):
        raise Nothing
    torch.set_rng_state(before)
    return result


@plants("environment-variable", "state", level="environment")
def environment_variable(run: Run) -> Any:
    """The call leaves another environment variable."""
    result = run.result()
    os.environ["PLANTED"] = "1"
    return result


def _broken(run: Run, instead: Any) -> Any:
    """Return a copy of the original, and make the original itself do what `instead` does."""
    if isinstance(run.target, torch.nn.Module):
        module, forward = run.target, run.target.forward

        def call(*args: Any) -> Any:
            module.forward = forward
            try:
                return module(*args)
            finally:
                module.forward = instead(forward)

        module.forward = instead(forward)
        return call
    function = run.function
    if function is not run.target or function.__code__.co_freevars:
        raise Nothing
    same = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    if function.__name__ in function.__code__.co_names:  # it calls itself
        raise Nothing
    other = instead(same)
    function.__globals__["planted_instead"] = other

    def code(*args: Any) -> Any:
        return planted_instead(*args)  # type: ignore[name-defined]  # noqa: F821

    function.__code__ = code.__code__
    return same


@plants("original-raises", "state", "mutation", "exception", at="capture")
def original_raises(run: Run) -> Any:
    """After the capture, the original raises."""

    def instead(_: Any) -> Any:
        def broken(*_: Any) -> Any:
            raise RuntimeError("planted")

        return broken

    return _broken(run, instead)


@plants("original-wrong", "state", "mutation", "value", at="capture")
def original_wrong(run: Run) -> Any:
    """After the capture, the original returns twice the right result."""
    probe = run.on_copies()
    floats = [tensor.to_dense() for tensor in tensors(probe) if tensor.is_floating_point() and tensor.numel()]
    if not any(bool((tensor.isfinite() & (tensor != 0)).any()) for tensor in floats):
        raise Nothing  # twice zero is zero, and twice infinity infinity

    def instead(function: Any) -> Any:
        def broken(*args: Any) -> Any:
            return rebuild(function(*args), lambda leaf: leaf * 2 if isinstance(leaf, torch.Tensor) else leaf)

        return broken

    return _broken(run, instead)


@plants("original-detached", "state", "mutation", "metadata", "gradient", at="capture")
def original_detached(run: Run) -> Any:
    """After the capture, the parameters of the original module need no gradients."""
    parameters = [parameter for parameter in run.module.parameters() if parameter.requires_grad]
    if not parameters:
        raise Nothing
    for parameter in parameters:
        parameter.requires_grad_(False)
    return run.target
