"""Wrong gradients behind right results."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

from benchmarks.judge.planting import (
    BACKWARD,
    Nothing,
    Run,
    change_first,
    clearly_different,
    plain,
    plants,
    rebuild,
    tensors,
)


def _with_gradient(run: Run) -> list[torch.Tensor]:
    """Return the tensors of the result through which a backward runs; raises Nothing without one."""
    found = [one for one in tensors(run.result()) if one.requires_grad and one.grad_fn is not None and _counts(one)]
    if not found:
        raise Nothing
    return found


def _counts(tensor: torch.Tensor) -> bool:
    return bool(tensor.numel()) and tensor.dtype.is_floating_point and tensor.layout == torch.strided


def _sources(run: Run) -> list[torch.Tensor]:
    """Return the leaves that may get a gradient: arguments and parameters."""
    found = [one for one in tensors(run.args) if one.requires_grad and one.is_leaf]
    if isinstance(run.target, torch.nn.Module):
        found += [one for one in run.target.parameters() if one.requires_grad]
    return found


def _gradients(result: Any, sources: list[torch.Tensor]) -> list[torch.Tensor | None] | None:
    """Return the gradients of the sum of a result's tensors, weighted so that none cancels; None without a backward."""
    through = [one for one in tensors(result) if one.requires_grad and one.grad_fn is not None and _counts(one)]
    if not through or not sources or not BACKWARD[0]:
        return None
    weights = [torch.linspace(0.5, 1.5, one.numel()).to(one).view(one.shape) for one in through]
    try:
        found: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
            through, sources, weights, retain_graph=True, allow_unused=True
        )
    except Exception:  # a backward that raises has no gradients to compare
        return None
    return list(found)


def _flows(run: Run) -> list[torch.Tensor | None]:
    """Return the gradients of this call; raises Nothing if none of them is other than zero."""
    found = _gradients(run.result(), _sources(run))
    if found is None or not any(one is not None and bool(one.to_dense().abs().max() > 0) for one in found):
        raise Nothing
    return found


def _hooked(run: Run, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return the result with `change` applied to the gradients that come into its first tensor.

    Raises Nothing if the gradients of the call stay the same, for example because a hook of the case clips them.
    """
    before = _flows(run)
    first = _with_gradient(run)[0]

    def changed(leaf: Any) -> Any:
        if leaf is not first:
            return None
        new = leaf.view_as(leaf)
        new.register_hook(change)
        return new

    result = change_first(run.result(), changed)
    if same_gradients(before, _gradients(result, _sources(run))):
        raise Nothing
    return result


def same_gradients(one: list[torch.Tensor | None], two: list[torch.Tensor | None] | None) -> bool:
    """Whether two lists of gradients hold the same values; NaN is equal to NaN."""
    return two is not None and all(
        a is b
        or (a is not None and b is not None and torch.allclose(a.to_dense(), b.to_dense(), 0.0, 0.0, equal_nan=True))
        for a, b in zip(one, two, strict=True)
    )


@plants("gradient-doubled", "gradient")
def doubled(run: Run) -> Any:
    """The gradient of a result is twice as large."""
    return _hooked(run, lambda gradient: gradient * 2)


@plants("gradient-1e-3", "gradient")
def slightly_wrong(run: Run) -> Any:
    """The gradient of a float32 result is too large by a factor of 1.001."""
    if not all(one.dtype in (torch.float32, torch.float64) for one in _with_gradient(run)):
        raise Nothing
    return _hooked(run, lambda gradient: gradient * 1.001)


@plants("gradient-zero", "gradient")
def zero(run: Run) -> Any:
    """The gradient of a result is zero."""
    return _hooked(run, torch.zeros_like)


@plants("gradient-sign", "gradient")
def sign(run: Run) -> Any:
    """The gradient of a result has the other sign."""
    return _hooked(run, lambda gradient: -gradient)


@plants("gradient-nan", "gradient")
def nan(run: Run) -> Any:
    """The gradient of a result is NaN."""
    return _hooked(run, lambda gradient: gradient * float("nan"))


@plants("gradient-missing-for-one-input", "gradient")
def missing_for_one_input(run: Run) -> Any:
    """One of several inputs that need a gradient gets none."""
    sources = [one for one in run.args if plain(one) and one.requires_grad and one.is_leaf]
    if len(sources) < 2:
        raise Nothing
    lost = sources[-1]
    target, args = run.copies()
    try:
        gradients = _gradients(target(*args), _sources(Run(target, args, args, {})))
    except Exception as error:
        raise Nothing from error
    if gradients is None or sum(one is not None for one in gradients) < 2:
        raise Nothing
    result = run.target(*(one.detach() if one is lost else one for one in run.args))
    if not any(one.requires_grad for one in tensors(result)):
        raise Nothing
    return result


@plants("gradient-of-one-input", "gradient")
def of_one_input(run: Run) -> Any:
    """The gradient of one of several inputs is three times as large."""
    found = _flows(run)
    sources = [one for one, gradient in zip(_sources(run), found, strict=True) if gradient is not None]
    sources = [one for one in sources if any(one is arg for arg in tensors(run.args))]
    if len(sources) < 2:
        raise Nothing
    sources[0].register_hook(lambda gradient: gradient * 3)
    return run.result()


@plants("gradient-of-a-parameter", "gradient")
def of_a_parameter(run: Run) -> Any:
    """The gradient of one parameter is half as large again."""
    found = _flows(run)
    for one, gradient in zip(_sources(run), found, strict=True):
        if isinstance(one, torch.nn.Parameter) and gradient is not None and bool(gradient.abs().max() > 0):
            run.memory.setdefault("hook", []).append(one.register_hook(lambda gradient: gradient * 1.5))
            if len(run.memory["hook"]) > 1:
                run.memory["hook"].pop(0).remove()
            return run.result()
    raise Nothing


@plants("gradient-of-the-second-result", "gradient", "metadata")
def of_the_second_result(run: Run) -> Any:
    """The second of two results is detached."""
    _flows(run)
    second = _with_gradient(run)[1:2]
    if not second:
        raise Nothing
    return change_first(run.result(), lambda leaf: leaf.detach() if leaf is second[0] else None)


@plants("gradient-lost", "gradient", "metadata")
def lost(run: Run) -> Any:
    """No result needs a gradient: the call ran without autograd."""
    _with_gradient(run)
    return rebuild(run.result(), lambda leaf: leaf.detach() if plain(leaf) and leaf.requires_grad else leaf)


@plants("requires-grad-gained", "metadata", "gradient")
def gained(run: Run) -> Any:
    """A result that needs no gradient in eager needs one."""

    def changed(leaf: Any) -> Any:
        if not plain(leaf) or leaf.requires_grad or not leaf.is_floating_point():
            return None
        return leaf.detach().requires_grad_()

    return change_first(run.result(), changed)


def _under(run: Run, patch: Callable[[list[int]], Any]) -> Any:
    """Return the result of the original while a part of torch is replaced; raises Nothing if no gradient changes.

    `patch` makes the context in which the part is replaced; its argument is to grow with every use of the part.
    """
    used: list[int] = []
    found: list[list[torch.Tensor | None] | None] = []
    for context in (patch(used), contextlib.nullcontext()):
        target, args = run.copies()
        try:
            with context:
                result = target(*args)
        except Exception as error:
            raise Nothing from error
        found.append(_gradients(result, _sources(Run(target, args, args, {}))))
    wrong, right = found
    if not used or not clearly_different(wrong, right):
        raise Nothing
    with patch(used):
        return run.result()


@plants("gradient-custom-backward-lost", "gradient", "metadata")
def custom_backward_lost(run: Run) -> Any:
    """The backward of a custom Function is replaced by the derivative of its forward."""

    class Context:
        """Takes what a forward stores, and forgets it."""

        def __getattr__(self, name: str) -> Any:
            return lambda *_: None

    def patch(used: list[int]) -> Any:
        def apply(kind: Any, *args: Any) -> Any:
            used.append(1)
            return kind.forward(Context(), *args)

        return mock.patch.object(torch.autograd.Function, "apply", classmethod(apply))

    return _under(run, patch)


@plants("gradient-hook-dropped", "gradient", "mutation")
def hook_dropped(run: Run) -> Any:
    """A hook that the function registers on a tensor does not run."""

    def patch(used: list[int]) -> Any:
        def register(*_: Any) -> None:
            used.append(1)

        return mock.patch.object(torch.Tensor, "register_hook", register)

    return _under(run, patch)


@contextlib.contextmanager
def _without_effect(kind: type, used: list[int]) -> Iterator[None]:
    """Make a context manager of torch do nothing."""

    def enter(_: Any) -> None:
        used.append(1)

    def leave(*_: Any) -> None:
        pass

    with mock.patch.object(kind, "__enter__", enter), mock.patch.object(kind, "__exit__", leave):
        yield


@plants("gradient-no-grad-differentiated", "gradient", "metadata")
def no_grad_differentiated(run: Run) -> Any:
    """What runs under no_grad is differentiated."""
    return _under(run, lambda used: _without_effect(torch.no_grad, used))


@plants("gradient-enable-grad-lost", "gradient", "metadata")
def enable_grad_lost(run: Run) -> Any:
    """What runs under enable_grad inside no_grad is not differentiated."""
    return _under(run, lambda used: _without_effect(torch.enable_grad, used))


@plants("gradient-through-detach", "gradient", "metadata")
def through_detach(run: Run) -> Any:
    """What is detached is differentiated."""

    def patch(used: list[int]) -> Any:
        def detach(tensor: torch.Tensor) -> torch.Tensor:
            used.append(1)
            return tensor.view_as(tensor)

        return mock.patch.object(torch.Tensor, "detach", detach)

    return _under(run, patch)


@plants("gradient-accumulated-extra", "gradient", "mutation")
def accumulated_extra(run: Run) -> Any:
    """A call leaves a gradient in an argument or parameter that eager leaves without one."""
    for one in _sources(run):
        if one.grad is None and plain(one.detach()):
            result = run.result()
            if one.grad is None:
                one.grad = torch.ones_like(one)
                return result
    raise Nothing


@plants("gradient-accumulated-lost", "gradient", "mutation")
def accumulated_lost(run: Run) -> Any:
    """A gradient that the function itself leaves in an argument or parameter is lost."""
    before = [(one, one.grad) for one in _sources(run)]
    result = run.result()
    for one, gradient in before:
        if one.grad is not None and gradient is None:
            one.grad = None
            return result
    raise Nothing
