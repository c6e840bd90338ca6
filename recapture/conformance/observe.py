"""Calls a function once and records the observable effects: result, exception, side effects, printed text."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from recapture.base.exceptions import qualified, safe_text, traceback_text
from recapture.base.torch_compat import seed_everything
from recapture.conformance.seen import Seen, see, see_module, see_result_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Observation", "Raised", "observe_call", "restored_torch_state", "see_raised"]


@dataclass(frozen=True)
class Raised:
    """An exception raised by the call."""

    type: str
    message: str
    traceback: str
    error: BaseException = field(compare=False)


@dataclass(frozen=True)
class Observation:
    """Everything observed in one call on one input."""

    input: str
    result: Seen | None
    raised: Raised | None
    args: Seen
    state: Seen | None
    watched: Seen | None
    output: str | None
    torch_state: Mapping[str, str]


def observe_call(
    call: Callable[..., Any],
    label: str,
    make_args: Callable[[], tuple[Any, ...]],
    *,
    module: Any = None,
    watch: Callable[[], Any] | None = None,
    capture_output: bool = False,
    device: str = "cpu",
) -> Observation:
    """Call `call` on fresh arguments made under the fixed seed and observe it.

    Any exception of the call, including SystemExit and KeyboardInterrupt, is part of the observation. Global torch
    state (grad mode, default dtype) is restored afterwards, so that a leak is reported once and does not affect later
    calls. Exceptions from creating the arguments are not caught.
    """
    import torch

    seed_everything()
    args = make_args()
    before = _torch_state()
    printed = io.StringIO()
    result: Seen | None = None
    raised: Raised | None = None
    try:
        with contextlib.redirect_stdout(printed) if capture_output else contextlib.nullcontext():
            value = call(*args)
            if device == "cuda":
                torch.cuda.synchronize()  # attribute kernel errors to the call that launched the kernel
        result = see(value)
    except BaseException as error:  # any exception of a case is part of the observation
        raised = see_raised(error)
    after = _torch_state()
    _restore_torch_state(before)
    try:
        seen_args = see(args)
        seen_state = None if module is None else see_module(module)
        seen_watched = None if watch is None else see_result_of(watch)
    except BaseException as error:  # memory ran out
        raised = raised or see_raised(error)
        seen_args, seen_state, seen_watched = Seen("tuple"), None, None
    return Observation(
        input=label,
        result=None if raised else result,
        raised=raised,
        args=seen_args,
        state=seen_state,
        watched=seen_watched,
        output=printed.getvalue() if capture_output else None,
        torch_state={name: str(after[name]) for name in after},
    )


def see_raised(error: BaseException) -> Raised:
    """Describe an exception, even if its own methods raise."""
    return Raised(qualified(type(error)), safe_text(error), traceback_text(error), error)


def _torch_state() -> dict[str, Any]:
    import torch

    return {"grad_enabled": torch.is_grad_enabled(), "default_dtype": torch.get_default_dtype()}


@contextlib.contextmanager
def restored_torch_state() -> Iterator[None]:
    """Restore grad mode and default dtype afterwards."""
    before = _torch_state()
    try:
        yield
    finally:
        _restore_torch_state(before)


def _restore_torch_state(state: dict[str, Any]) -> None:
    import torch

    torch.set_grad_enabled(state["grad_enabled"])
    torch.set_default_dtype(state["default_dtype"])
