"""Results that share memory with something else than in eager."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.judge.planting import Nothing, Run, change_first, plain, plants, rebuild, tensors


def storage(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's storage."""
    return int(tensor.untyped_storage().data_ptr())


def _visible(tensor: Any) -> bool:
    """Whether a tensor has memory that a probe can write to, and is no lazy view, which a copy computes."""
    return plain(tensor) and tensor.numel() > 0 and storage(tensor) != 0 and not (tensor.is_conj() or tensor.is_neg())


def _state(run: Run) -> list[torch.Tensor]:
    return [tensor.detach() for tensor in [*run.module.parameters(), *run.module.buffers()]]


def _copied(run: Run, owners: list[torch.Tensor]) -> Any:
    """Return the result with the first tensor copied that lies in the memory of one of `owners`."""
    places = {storage(tensor) for tensor in owners if _visible(tensor)}

    def changed(leaf: Any) -> Any:
        if not _visible(leaf) or storage(leaf) not in places:
            return None
        return leaf.clone()

    return change_first(run.result(), changed)


def _same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    form = (first.shape, first.dtype, first.requires_grad, first.stride()) == (
        second.shape,
        second.dtype,
        second.requires_grad,
        second.stride(),
    )
    return form and torch.equal(first, second) and storage(first) != storage(second)


def _shared(run: Run, owners: list[torch.Tensor]) -> Any:
    """Return the result with the first tensor replaced by one of `owners` that has the same elements."""

    def changed(leaf: Any) -> Any:
        if not _visible(leaf):
            return None
        return next((tensor for tensor in owners if _visible(tensor) and _same_bits(tensor, leaf)), None)

    return change_first(run.result(), changed)


@plants("alias-input-copied", "alias", "gradient")
def input_copied(run: Run) -> Any:
    """A result that lies in the memory of an argument is a copy."""
    owners = run.tensor_args()
    return _copied(run, owners)


@plants("alias-copy-is-input", "alias", "gradient")
def copy_is_input(run: Run) -> Any:
    """A result that is a copy of an argument is the argument itself."""
    owners = run.tensor_args()
    run.result()
    return _shared(run, owners)


@plants("alias-argument-overwritten", "alias", "mutation")
def argument_overwritten(run: Run) -> Any:
    """A result was computed into the memory of an argument."""
    owners = [tensor for tensor in run.tensor_args() if not tensor.requires_grad]

    def changed(leaf: Any) -> Any:
        if not _visible(leaf) or leaf.requires_grad:
            return None
        for tensor in owners:
            form = (tensor.shape, tensor.dtype, tensor.stride()) == (leaf.shape, leaf.dtype, leaf.stride())
            if form and storage(tensor) != storage(leaf) and tensor.is_contiguous() and not torch.equal(tensor, leaf):
                return tensor.copy_(leaf)
        return None

    return change_first(run.result(), changed)


@plants("alias-results-split", "alias")
def results_split(run: Run) -> Any:
    """Two results that lie in one memory lie in two."""
    results = [tensor for tensor in tensors(run.result()) if _visible(tensor)]
    places = [storage(tensor) for tensor in results]
    shared = next((index for index, place in enumerate(places) if place in places[:index]), None)
    if shared is None:
        raise Nothing
    count = iter(range(len(results)))  # by position: both places may hold the same object
    return rebuild(run.result(), lambda leaf: leaf.clone() if _visible(leaf) and next(count) == shared else leaf)


@plants("alias-results-joined", "alias")
def results_joined(run: Run) -> Any:
    """Two equal results that lie in two memories are one tensor."""
    results = [tensor for tensor in tensors(run.result()) if _visible(tensor)]
    for index, result in enumerate(results):
        for other in results[:index]:
            if _same_bits(result, other):
                return change_first(run.result(), lambda leaf: other if leaf is result else None)  # noqa: B023
    raise Nothing


def _own_results(run: Run) -> Any:
    """Return the result, if none of its tensors lies in an argument, parameter or buffer."""
    owners = [*tensors(run.args), *(_state(run) if isinstance(run.target, torch.nn.Module) else ())]
    places = {storage(tensor) for tensor in owners if _visible(tensor)}
    result = run.result()
    if any(_visible(tensor) and storage(tensor) in places for tensor in tensors(result)):
        raise Nothing
    return result


@plants("alias-static-buffer", "alias")
def static_buffer(run: Run) -> Any:
    """A result lies in the memory of the result of the call before, and overwrites it."""

    def changed(leaf: Any) -> Any:
        if not _visible(leaf) or leaf.requires_grad:
            return None
        before = run.memory.get("buffer")
        if before is None or (before.shape, before.dtype) != (leaf.shape, leaf.dtype):
            run.memory["buffer"] = leaf
            raise Nothing
        return before.copy_(leaf)

    return change_first(_own_results(run), changed)


@plants("alias-same-object-again", "alias", "value")
def same_object_again(run: Run) -> Any:
    """A call with an equal result returns the tensor of the call before."""

    def changed(leaf: Any) -> Any:
        if not _visible(leaf):
            return None
        before = run.memory.setdefault("result", leaf)
        return before if before is not leaf and _same_bits(before, leaf) else None

    return change_first(_own_results(run), changed)


@plants("alias-buffer-copied", "alias", "gradient", "metadata")
def buffer_copied(run: Run) -> Any:
    """A result that lies in a module's buffer or parameter is a copy."""
    return _copied(run, _state(run))


@plants("alias-copy-is-buffer", "alias")
def copy_is_buffer(run: Run) -> Any:
    """A result that is a copy of a module's buffer is the buffer itself."""
    run.result()
    return _shared(run, _state(run))


@plants("alias-view-of-copy", "alias")
def view_of_copy(run: Run) -> Any:
    """Two results that are views of one argument are views of one copy of it."""
    owners = {storage(tensor) for tensor in run.tensor_args() if _visible(tensor)}
    views = [tensor for tensor in tensors(run.result()) if _visible(tensor) and storage(tensor) in owners]
    if len({id(tensor) for tensor in views}) < 2 or len({storage(tensor) for tensor in views}) > 1:
        raise Nothing
    whole = torch.empty(0, dtype=views[0].dtype, device=views[0].device).set_(views[0].untyped_storage()).clone()

    def moved(leaf: Any) -> Any:
        if not any(leaf is tensor for tensor in views) or leaf.requires_grad or leaf.dtype != whole.dtype:
            return leaf
        return whole.as_strided(leaf.shape, leaf.stride(), leaf.storage_offset())

    if any(tensor.requires_grad or tensor.dtype != whole.dtype for tensor in views):
        raise Nothing
    return rebuild(run.result(), moved)
