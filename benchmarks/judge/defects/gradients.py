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
    results = [
        tensor
        for tensor in tensors(run.result())
        if tensor.requires_grad and tensor.grad_fn is not None and _counts(tensor)
    ]
    if not results:
        raise Nothing
    return results


def _counts(tensor: torch.Tensor) -> bool:
    return bool(tensor.numel()) and tensor.dtype.is_floating_point and tensor.layout == torch.strided


def _sources(run: Run) -> list[torch.Tensor]:
    """Return the leaves that may get a gradient: arguments and parameters."""
    sources = [tensor for tensor in tensors(run.args) if tensor.requires_grad and tensor.is_leaf]
    if isinstance(run.target, torch.nn.Module):
        sources += [tensor for tensor in run.target.parameters() if tensor.requires_grad]
    return sources


def _gradients(result: Any, sources: list[torch.Tensor]) -> list[torch.Tensor | None] | None:
    """Return the gradients of the sum of a result's tensors, weighted so that none cancels; None without a backward."""
    through = [
        tensor for tensor in tensors(result) if tensor.requires_grad and tensor.grad_fn is not None and _counts(tensor)
    ]
    if not through or not sources or not BACKWARD[0]:
        return None
    weights = [torch.linspace(-1.6, 2.7, tensor.numel()).to(tensor).view(tensor.shape) for tensor in through]
    try:
        gradients: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
            through, sources, weights, retain_graph=True, allow_unused=True
        )
    except Exception:  # a backward that raises has no gradients to compare
        return None
    return list(gradients)


def _flows(run: Run) -> list[torch.Tensor | None]:
    """Return the gradients of this call; raises Nothing if none of them is other than zero."""
    gradients = _gradients(run.result(), _sources(run))
    if gradients is None or not any(
        gradient is not None and bool(gradient.to_dense().abs().max() > 0) for gradient in gradients
    ):
        raise Nothing
    return gradients


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


def same_gradients(first: list[torch.Tensor | None], second: list[torch.Tensor | None] | None) -> bool:
    """Whether two lists of gradients hold the same values; NaN is equal to NaN."""
    return second is not None and all(
        a is b
        or (a is not None and b is not None and torch.allclose(a.to_dense(), b.to_dense(), 0.0, 0.0, equal_nan=True))
        for a, b in zip(first, second, strict=True)
    )


@plants("gradient-doubled", "gradient")
def doubled(run: Run) -> Any:
    """The gradient of a result is twice as large."""
    return _hooked(run, lambda gradient: gradient * 2)


@plants("gradient-1e-3", "gradient")
def slightly_wrong(run: Run) -> Any:
    """The gradient of a float32 result is too large by a factor of 1.001."""
    if not all(tensor.dtype in (torch.float32, torch.float64) for tensor in _with_gradient(run)):
        raise Nothing
    return _hooked(run, lambda gradient: gradient * 1.001)


@plants("gradient-zero", "gradient")
def zero(run: Run) -> Any:
    """The gradient of a result is zero."""
    return _hooked(run, torch.zeros_like)


@plants("gradient-rectified", "gradient")
def rectified(run: Run) -> Any:
    """A backward drops negative gradients."""
    return _hooked(run, torch.relu)


@plants("gradient-absolute", "gradient")
def absolute(run: Run) -> Any:
    """A backward takes the absolute value of a gradient."""
    return _hooked(run, torch.abs)


@plants("gradient-clamped", "gradient")
def clamped(run: Run) -> Any:
    """A backward clamps a gradient to 1."""
    return _hooked(run, lambda gradient: gradient.clamp(-1, 1))


@plants("gradient-its-sign", "gradient")
def its_sign(run: Run) -> Any:
    """A backward passes on the sign of a gradient."""
    return _hooked(run, torch.sign)


@plants("gradient-whole-numbers", "gradient")
def whole_numbers(run: Run) -> Any:
    """A backward cuts a gradient to a whole number."""
    return _hooked(run, torch.trunc)


def _hooked_complex(run: Run, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return the result with `change` applied to the gradients that come into its first complex tensor."""
    if not BACKWARD[0]:
        raise Nothing
    sources = _sources(run)

    def changed(leaf: Any) -> Any:
        if not plain(leaf) or not leaf.is_complex() or leaf.grad_fn is None or not sources or not leaf.numel():
            return None
        weight = torch.full_like(leaf.detach(), 0.7 - 1.3j)
        gradients = [
            torch.autograd.grad(leaf, sources, direction, retain_graph=True, allow_unused=True)
            for direction in (weight, change(weight))
        ]
        if same_gradients(list(gradients[0]), list(gradients[1])):
            return None
        new = leaf.view_as(leaf)
        new.register_hook(change)
        return new

    return change_first(run.result(), changed)


@plants("gradient-conjugated", "gradient")
def conjugated(run: Run) -> Any:
    """A backward conjugates a complex gradient."""
    return _hooked_complex(run, lambda gradient: gradient.conj().resolve_conj())


@plants("gradient-real-part", "gradient")
def real_part(run: Run) -> Any:
    """A backward drops the imaginary part of a complex gradient."""
    return _hooked_complex(run, lambda gradient: torch.complex(gradient.real, torch.zeros_like(gradient.real)))


@plants("gradient-swapped-parts", "gradient")
def swapped_parts(run: Run) -> Any:
    """A backward swaps the real and the imaginary part of a complex gradient."""
    return _hooked_complex(run, lambda gradient: torch.complex(gradient.imag, gradient.real))


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
    sources = [tensor for tensor in run.args if plain(tensor) and tensor.requires_grad and tensor.is_leaf]
    if len(sources) < 2:
        raise Nothing
    lost = sources[-1]
    target, args = run.copies()
    try:
        gradients = _gradients(target(*args), _sources(Run(target, args, args, {})))
    except Exception as error:
        raise Nothing from error
    if gradients is None or sum(gradient is not None for gradient in gradients) < 2:
        raise Nothing
    result = run.target(*(argument.detach() if argument is lost else argument for argument in run.args))
    if not any(tensor.requires_grad for tensor in tensors(result)):
        raise Nothing
    return result


@plants("gradient-of-one-input", "gradient")
def of_one_input(run: Run) -> Any:
    """The gradient of one of several inputs is three times as large."""
    gradients = _flows(run)
    sources = [source for source, gradient in zip(_sources(run), gradients, strict=True) if gradient is not None]
    sources = [source for source in sources if any(source is arg for arg in tensors(run.args))]
    if len(sources) < 2:
        raise Nothing
    sources[0].register_hook(lambda gradient: gradient * 3)
    return run.result()


@plants("gradient-of-a-parameter", "gradient")
def of_a_parameter(run: Run) -> Any:
    """The gradient of one parameter is half as large again."""
    gradients = _flows(run)
    for source, gradient in zip(_sources(run), gradients, strict=True):
        if isinstance(source, torch.nn.Parameter) and gradient is not None and bool(gradient.abs().max() > 0):
            run.memory.setdefault("hook", []).append(source.register_hook(lambda gradient: gradient * 1.5))
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
    gradients: list[list[torch.Tensor | None] | None] = []
    for context in (patch(used), contextlib.nullcontext()):
        target, args = run.copies()
        try:
            with context:
                result = target(*args)
        except Exception as error:
            raise Nothing from error
        gradients.append(_gradients(result, _sources(Run(target, args, args, {}))))
    wrong, right = gradients
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
    for source in _sources(run):
        if source.grad is None and plain(source.detach()):
            result = run.result()
            if source.grad is None:
                source.grad = torch.ones_like(source)
                return result
    raise Nothing


@plants("gradient-accumulated-lost", "gradient", "mutation")
def accumulated_lost(run: Run) -> Any:
    """A gradient that the function itself leaves in an argument or parameter is lost."""
    before = [(source, source.grad) for source in _sources(run)]
    result = run.result()
    for source, gradient in before:
        if source.grad is not None and gradient is None:
            source.grad = None
            return result
    raise Nothing
