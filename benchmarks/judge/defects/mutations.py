"""Changes of arguments, modules, closures, globals and classes that are lost, or made in excess."""

from __future__ import annotations

import copy
import enum
from typing import Any

import torch

from benchmarks.judge.places import (
    Places,
    class_places,
    closure_places,
    function_places,
    global_places,
    module_places,
    more_of,
    set_back,
    whole_storage,
    with_extra,
    with_lost,
)
from benchmarks.judge.planting import Nothing, Raising, Run, change_an_element, plain, plants


@plants("mutation-of-argument-lost", "mutation", "alias")
def argument_lost(run: Run) -> Any:
    """A write into an argument is lost."""
    before = [(tensor, tensor.detach().clone()) for tensor in run.tensor_args()]
    result = run.result()
    for tensor, then in before:
        if tensor.shape == then.shape and not torch.equal(tensor.detach().nan_to_num(), then.nan_to_num()):
            tensor.detach().copy_(then)
            return result
    raise Nothing


@plants("mutation-before-exception-lost", "mutation")
def before_exception_lost(run: Run) -> Any:
    """A write into an argument before the function raises is lost."""
    before = [(tensor, tensor.detach().clone()) for tensor in run.tensor_args()]
    try:
        run.result()
    except Exception as error:
        for tensor, then in before:
            if tensor.shape == then.shape and not torch.equal(tensor.detach(), then):
                tensor.detach().copy_(then)
                raise Raising(error) from None
    raise Nothing


@plants("mutation-of-argument-extra", "mutation")
def argument_extra(run: Run) -> Any:
    """An argument that eager leaves alone is changed in one element."""
    result = run.result()
    for tensor in run.tensor_args():
        if tensor.dtype is not torch.bool and 0 not in tensor.stride():
            change_an_element(tensor)
            return result
    raise Nothing


@plants("mutation-outside-a-view", "mutation")
def outside_a_view(run: Run) -> Any:
    """The memory of an argument is written outside the part that the argument shows."""
    result = run.result()
    for tensor in run.tensor_args():
        if tensor.dtype is torch.bool or tensor.untyped_storage().nbytes() <= tensor.numel() * tensor.element_size():
            continue
        inside = torch.zeros(whole_storage(tensor.detach()).shape, dtype=torch.bool)
        inside.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).fill_(True)
        free = (~inside).nonzero()
        if len(free):
            whole_storage(tensor.detach())[int(free[0])] += 1
            return result
    raise Nothing


def _containers(run: Run) -> list[Any]:
    return [argument for argument in run.args if type(argument) in (list, dict)]


@plants("mutation-of-container-lost", "mutation")
def container_lost(run: Run) -> Any:
    """An item that the function puts into a list or dict of the arguments is missing."""
    before = [(container, copy.copy(container)) for container in _containers(run)]
    result = run.result()
    for container, then in before:
        if len(container) != len(then):
            set_back(container, then)
            return result
    raise Nothing


@plants("mutation-of-container-extra", "mutation")
def container_extra(run: Run) -> Any:
    """A list or dict of the arguments has one more item."""
    result = run.result()
    for container in _containers(run):
        set_back(container, more_of(container))
        return result
    raise Nothing


def _object_places(run: Run) -> Places:
    """The attributes of the case's own objects in the arguments; members of an enum are constants, seen as names."""
    own = [argument for argument in run.args if type(argument).__module__ == run.function.__module__]
    objects = [argument for argument in own if hasattr(argument, "__dict__") and not isinstance(argument, enum.Enum)]
    return Places({f"{i}.{name}": (owner, name) for i, owner in enumerate(objects) for name in vars(owner)})


@plants("mutation-of-object-lost", "mutation")
def object_lost(run: Run) -> Any:
    """An attribute that the function sets on an object of the arguments keeps its earlier value."""
    return with_lost(run, _object_places(run))


@plants("mutation-of-object-extra", "mutation")
def object_extra(run: Run) -> Any:
    """An attribute of an object of the arguments is changed."""
    return with_extra(run, _object_places(run))


@plants("mutation-of-closure-lost", "mutation")
def closure_lost(run: Run) -> Any:
    """A change of a variable of an enclosing function is lost."""
    return with_lost(run, closure_places(run))


@plants("mutation-of-closure-extra", "mutation", "value")
def closure_extra(run: Run) -> Any:
    """A variable of an enclosing function is changed."""
    return with_extra(run, closure_places(run))


@plants("mutation-of-global-lost", "mutation")
def global_lost(run: Run) -> Any:
    """A change of a global variable is lost."""
    return with_lost(run, global_places(run))


@plants("mutation-of-global-extra", "mutation", "value")
def global_extra(run: Run) -> Any:
    """A global variable that the function reads is changed."""
    return with_extra(run, global_places(run))


@plants("mutation-of-class-lost", "mutation")
def class_lost(run: Run) -> Any:
    """A change of a class attribute is lost."""
    return with_lost(run, class_places(run))


@plants("mutation-of-class-extra", "mutation", "value")
def class_extra(run: Run) -> Any:
    """A class attribute is changed."""
    return with_extra(run, class_places(run))


@plants("mutation-of-function-lost", "mutation")
def function_lost(run: Run) -> Any:
    """A change of an attribute of the function is lost."""
    return with_lost(run, function_places(run))


@plants("mutation-of-attribute-lost", "mutation")
def attribute_lost(run: Run) -> Any:
    """A change of an attribute of the module is lost, such as a count of its calls."""
    return with_lost(run, module_places(run))


@plants("mutation-of-attribute-extra", "mutation", "value")
def attribute_extra(run: Run) -> Any:
    """An attribute of the module is changed."""
    return with_extra(run, module_places(run))


@plants("mutation-of-training-lost", "mutation")
def training_lost(run: Run) -> Any:
    """A change of a module's training flag is lost."""
    before = [(module, module.training) for module in run.module.modules()]
    result = run.result()
    changed = [(module, then) for module, then in before if module.training != then]
    for module, then in changed:
        module.training = then
    if not changed:
        raise Nothing
    return result


@plants("mutation-of-training-extra", "mutation", "value")
def training_extra(run: Run) -> Any:
    """The module's training flag is changed."""
    result = run.result()
    run.module.train(not run.module.training)
    return result


def _written(tensor: torch.Tensor, before: torch.Tensor) -> bool:
    """Whether a tensor has other elements than before, by more than rounding."""
    if not tensor.is_floating_point() or tensor.is_quantized or tensor.layout != torch.strided:
        return not torch.equal(tensor, before)
    small = 1000 * torch.finfo(tensor.dtype).eps
    return not torch.allclose(tensor, before, rtol=small, atol=0, equal_nan=True)


@plants("mutation-of-buffer-lost", "mutation", "alias")
def buffer_lost(run: Run) -> Any:
    """A write into a buffer or parameter, of more than rounding, is lost."""
    state = [tensor.detach() for tensor in [*run.module.buffers(), *run.module.parameters()]]
    before = [tensor.clone() for tensor in state]
    result = run.result()
    changed = [(tensor, then) for tensor, then in zip(state, before, strict=True) if _written(tensor, then)]
    for tensor, then in changed:
        tensor.copy_(then)
    if not changed:
        raise Nothing
    return result


@plants("mutation-of-buffer-extra", "mutation", "value")
def buffer_extra(run: Run) -> Any:
    """A buffer is changed in one element."""
    result = run.result()
    for buffer in run.module.buffers():
        if plain(buffer.detach()) and buffer.numel() and buffer.dtype is not torch.bool:
            change_an_element(buffer)
            return result
    raise Nothing


@plants("mutation-parameter-drift", "mutation")
def parameter_drift(run: Run) -> Any:
    """Every parameter grows by a millionth with each call."""
    parameters = [
        tensor.detach() for tensor in run.module.parameters() if tensor.dtype in (torch.float32, torch.float64)
    ]
    before = [tensor.clone() for tensor in parameters]
    result = run.result()
    still = [
        (tensor, then)
        for tensor, then in zip(parameters, before, strict=True)
        if torch.equal(tensor, then) and bool(tensor.any())
    ]
    if not still:  # eager changes them too: a millionth may be its rounding
        raise Nothing
    for tensor, _ in still:
        tensor.mul_(1 + 1e-6)
    return result


@plants("mutation-buffer-added", "mutation")
def buffer_added(run: Run) -> Any:
    """The module has one more buffer."""
    result = run.result()
    run.module.register_buffer("planted", torch.zeros(1))
    return result


@plants("mutation-by-hook-lost", "mutation", "value", "type", "output")
def hook_lost(run: Run) -> Any:
    """The module's forward hooks do not run."""
    hooks = [
        hooks_of_kind
        for module in run.module.modules()
        for hooks_of_kind in (module._forward_hooks, module._forward_pre_hooks)  # noqa: SLF001
        if hooks_of_kind
    ]
    if not hooks:
        raise Nothing
    saved = [dict(registered) for registered in hooks]
    for registered in hooks:
        registered.clear()
    try:
        return run.result()
    finally:
        for registered, then in zip(hooks, saved, strict=True):
            registered.update(then)
