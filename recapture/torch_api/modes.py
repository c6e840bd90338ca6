"""The modes that are active in this process: those that see operators or functions of torch, and inference mode.

Hooks on all tensors that autograd saves are one more.

The functions that list and leave modes are private to torch, and the same from 2.0.1 on.
"""

from __future__ import annotations

from typing import Any

_ENTERED: list[Any] = []
"""Guards of inference modes that were entered to set it back: each must live as long as the process."""


def set_inference_mode(value: bool) -> None:
    """Turn inference mode on or off for the rest of the process."""
    import torch

    guard = torch._C._InferenceMode(value)  # noqa: SLF001 - the public context manager has to be left again
    guard.__enter__()
    _ENTERED.append(guard)


def dispatch_modes() -> list[str]:
    """Return the names of the active modes that see every operator, the innermost last."""
    import torch

    stack, count = torch._C._get_dispatch_stack_at, torch._C._len_torch_dispatch_stack()  # noqa: SLF001
    return [type(stack(index)).__name__ for index in range(count)]


def leave_dispatch_modes(before: list[str]) -> None:
    """Leave the modes that were entered since; those that were left cannot be entered again."""
    from torch.utils._python_dispatch import _pop_mode

    while len(dispatch_modes()) > len(before):
        _pop_mode()


def function_modes() -> list[str]:
    """Return the names of the active modes that see every function of torch, except that of the default device."""
    import torch

    stack, count = torch._C._get_function_stack_at, torch._C._len_torch_function_stack()  # noqa: SLF001
    names = [type(stack(index)).__name__ for index in range(count)]
    return [name for name in names if name != "DeviceContext"]


def leave_function_modes(before: list[str]) -> None:
    """Leave the modes that were entered since, except that of the default device."""
    from torch.overrides import _pop_mode, _push_mode

    devices = []
    while len(function_modes()) > len(before):
        mode = _pop_mode()
        if type(mode).__name__ == "DeviceContext":
            devices.append(mode)
    for mode in devices:
        _push_mode(mode)


def saved_tensors_hooks() -> bool:
    """Whether hooks on what autograd saves are active; False for a release of torch that does not tell."""
    import torch

    innermost = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)  # noqa: SLF001
    if innermost is None:
        return False
    try:
        return innermost(False) is not None
    except TypeError:  # releases that take no argument
        return innermost() is not None


def leave_saved_tensors_hooks(before: bool) -> None:
    """Remove hooks that were added since; those that were removed cannot be added again."""
    import torch

    while saved_tensors_hooks() and not before:
        torch._C._autograd._pop_saved_tensors_default_hooks()  # noqa: SLF001


def autograd_multithreading() -> bool | None:
    """Whether a backward may use several threads; None for a release of torch that does not tell."""
    import torch

    is_enabled = getattr(torch._C, "_is_multithreading_enabled", None)  # noqa: SLF001 - the public class only sets it
    return None if is_enabled is None else bool(is_enabled())


def set_autograd_multithreading(value: bool | None) -> None:
    """Let a backward use several threads or not."""
    import torch

    if value is not None:
        torch._C._set_multithreading_enabled(value)  # noqa: SLF001


def profiles() -> bool:
    """Whether torch's profiler runs."""
    import torch

    return bool(torch.autograd._profiler_enabled())  # noqa: SLF001


def stop_profiling(before: bool) -> None:
    """Stop a profiler that was started since."""
    import torch

    if not before:
        torch.autograd._disable_profiler()  # noqa: SLF001


def forward_mode_level() -> int:
    """Return the level of forward-mode differentiation: -1 outside it."""
    from torch.autograd import forward_ad

    return int(forward_ad._current_level)  # noqa: SLF001


def leave_forward_mode(before: int) -> None:
    """Leave the levels of forward-mode differentiation that were entered since."""
    from torch.autograd import forward_ad

    while forward_mode_level() > before:
        forward_ad.exit_dual_level(level=forward_mode_level())
