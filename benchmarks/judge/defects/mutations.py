"""Changes of arguments, modules, closures, globals and classes that are lost, or made in excess."""

from __future__ import annotations

import contextlib
import copy
import enum
import itertools
from typing import Any

import torch

from benchmarks.judge.planting import Nothing, Raising, Run, clearly_different, plain, plants, tensors

SIMPLE = (int, float, str, list, dict, set, torch.Tensor)
"""Types of values in globals, closures and attributes that defects change."""


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return everything in the storage of a tensor, in one dimension."""
    flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return flat.set_(tensor.untyped_storage())


def _more(value: Any) -> Any:
    """Return a simple value with something added; raises Nothing for other values."""
    if isinstance(value, bool) or type(value) not in SIMPLE:
        raise Nothing
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return value + "!"
    if isinstance(value, list):
        return [*value, 7]
    if isinstance(value, dict):
        return {**value, "planted": 7}
    if isinstance(value, set):
        return {*value, "planted"}
    if not plain(value) or not value.is_floating_point():
        raise Nothing
    return value.detach() + 1


def _set_back(now: Any, then: Any) -> None:
    """Give a changed container or tensor its earlier content, in place; raises Nothing for other values."""
    if isinstance(now, list):
        now[:] = then
    elif isinstance(now, (dict, set)):
        now.clear()
        now.update(then)
    elif plain(now):
        now.detach().copy_(then)
    else:
        raise Nothing


def _changed(now: Any, then: Any) -> bool:
    if isinstance(now, torch.Tensor):
        return plain(now) and plain(then) and now.shape == then.shape and not torch.equal(now, then)
    return type(now) in SIMPLE and bool(now != then)


class Places:
    """Named values that can be read and replaced: globals, cells of a closure, attributes."""

    def __init__(self, places: dict[str, tuple[Any, str]]) -> None:
        self.places = {name: where for name, where in places.items() if type(self._of(*where)) in SIMPLE}

    @staticmethod
    def _of(owner: Any, name: str) -> Any:
        try:
            return owner[name] if isinstance(owner, dict) else getattr(owner, name)
        except Exception:  # an empty cell
            return None

    def read(self) -> dict[str, Any]:
        """Return copies of the values."""
        found = {}
        for name, (owner, key) in self.places.items():
            value = self._of(owner, key)
            try:
                found[name] = value.detach().clone() if isinstance(value, torch.Tensor) else copy.deepcopy(value)
            except Exception:  # noqa: S112 - what cannot be copied is left alone
                continue
        return found

    def lose(self, before: dict[str, Any]) -> None:
        """Set the first value that changed back; raises Nothing if none has."""
        for name, then in before.items():
            owner, key = self.places[name]
            now = self._of(owner, key)
            if not _changed(now, then):
                continue
            if isinstance(now, (list, dict, set, torch.Tensor)):
                _set_back(now, then)
            else:
                self._put(owner, key, then)
            return
        raise Nothing

    def add(self) -> None:
        """Change the first simple value; raises Nothing if there is none."""
        for owner, key in self.places.values():
            now = self._of(owner, key)
            try:
                more = _more(now)
            except Nothing:
                continue
            if isinstance(now, (list, dict, set, torch.Tensor)):
                _set_back(now, more)
            else:
                self._put(owner, key, more)
            return
        raise Nothing

    @staticmethod
    def _put(owner: Any, name: str, value: Any) -> None:
        if isinstance(owner, dict):
            owner[name] = value
        else:
            setattr(owner, name, value)


def _lost(run: Run, places: Places) -> Any:
    before = places.read()
    result = run.result()
    places.lose(before)
    return result


def _extra(run: Run, places: Places) -> Any:
    result = run.result()
    places.add()
    return result


def global_places(run: Run) -> Places:
    """The global variables that the function's code names."""
    space = run.function.__globals__
    return Places({name: (space, name) for name in run.function.__code__.co_names if name in space})


def closure_places(run: Run) -> Places:
    """The cells of the function's closure."""
    cells = run.function.__closure__ or ()
    return Places({str(index): (cell, "cell_contents") for index, cell in enumerate(cells)})


def class_places(run: Run) -> Places:
    """The attributes of the module's class and of the classes that the function's code names."""
    space = run.function.__globals__
    kinds = [space[name] for name in run.function.__code__.co_names if isinstance(space.get(name), type)]
    if isinstance(run.target, torch.nn.Module):
        kinds.insert(0, type(run.target))
    found = {}
    for kind in kinds:
        if kind.__module__ == run.function.__module__:
            found.update({f"{kind.__name__}.{name}": (kind, name) for name in vars(kind) if not name.startswith("_")})
    return Places(found)


def module_places(run: Run) -> Places:
    """The plain attributes of the module."""
    own = [name for name in vars(run.module) if not name.startswith("_") and name != "training"]
    return Places({name: (run.module, name) for name in own})


def function_places(run: Run) -> Places:
    """The attributes of the function object, and the values in its defaults."""
    return Places({name: (run.function, name) for name in vars(run.function)})


@plants("mutation-of-argument-lost", "mutation", "alias")
def argument_lost(run: Run) -> Any:
    """A write into an argument is lost."""
    before = [(one, one.detach().clone()) for one in run.tensor_args()]
    result = run.result()
    for one, then in before:
        if one.shape == then.shape and not torch.equal(one.detach().nan_to_num(), then.nan_to_num()):
            one.detach().copy_(then)
            return result
    raise Nothing


@plants("mutation-before-exception-lost", "mutation")
def before_exception_lost(run: Run) -> Any:
    """A write into an argument before the function raises is lost."""
    before = [(one, one.detach().clone()) for one in run.tensor_args()]
    try:
        run.result()
    except Exception as error:
        for one, then in before:
            if one.shape == then.shape and not torch.equal(one.detach(), then):
                one.detach().copy_(then)
                raise Raising(error) from None
    raise Nothing


@plants("mutation-of-argument-extra", "mutation")
def argument_extra(run: Run) -> Any:
    """An argument that eager leaves alone is changed in one element."""
    result = run.result()
    for one in run.tensor_args():
        if one.dtype is not torch.bool and 0 not in one.stride():
            one.detach().view(-1)[:1].add_(1) if one.is_contiguous() else one.detach()[(0,) * one.dim()].add_(1)
            return result
    raise Nothing


@plants("mutation-outside-a-view", "mutation")
def outside_a_view(run: Run) -> Any:
    """The memory of an argument is written outside the part that the argument shows."""
    result = run.result()
    for one in run.tensor_args():
        if one.dtype is torch.bool or one.untyped_storage().nbytes() <= one.numel() * one.element_size():
            continue
        inside = torch.zeros(_whole(one.detach()).shape, dtype=torch.bool)
        inside.as_strided(one.shape, one.stride(), one.storage_offset()).fill_(True)
        free = (~inside).nonzero()
        if len(free):
            _whole(one.detach())[int(free[0])] += 1
            return result
    raise Nothing


def _containers(run: Run) -> list[Any]:
    return [one for one in run.args if type(one) in (list, dict)]


@plants("mutation-of-container-lost", "mutation")
def container_lost(run: Run) -> Any:
    """An item that the function puts into a list or dict of the arguments is missing."""
    before = [(one, copy.copy(one)) for one in _containers(run)]
    result = run.result()
    for one, then in before:
        if len(one) != len(then):
            _set_back(one, then)
            return result
    raise Nothing


@plants("mutation-of-container-extra", "mutation")
def container_extra(run: Run) -> Any:
    """A list or dict of the arguments has one more item."""
    result = run.result()
    for one in _containers(run):
        _set_back(one, _more(one))
        return result
    raise Nothing


def _object_places(run: Run) -> Places:
    """The attributes of the case's own objects in the arguments; members of an enum are constants, seen as names."""
    own = [one for one in run.args if type(one).__module__ == run.function.__module__]
    objects = [one for one in own if hasattr(one, "__dict__") and not isinstance(one, enum.Enum)]
    return Places({f"{i}.{name}": (one, name) for i, one in enumerate(objects) for name in vars(one)})


@plants("mutation-of-object-lost", "mutation")
def object_lost(run: Run) -> Any:
    """An attribute that the function sets on an object of the arguments keeps its earlier value."""
    return _lost(run, _object_places(run))


@plants("mutation-of-object-extra", "mutation")
def object_extra(run: Run) -> Any:
    """An attribute of an object of the arguments is changed."""
    return _extra(run, _object_places(run))


@plants("mutation-of-closure-lost", "mutation")
def closure_lost(run: Run) -> Any:
    """A change of a variable of an enclosing function is lost."""
    return _lost(run, closure_places(run))


@plants("mutation-of-closure-extra", "mutation", "value")
def closure_extra(run: Run) -> Any:
    """A variable of an enclosing function is changed."""
    return _extra(run, closure_places(run))


@plants("mutation-of-global-lost", "mutation")
def global_lost(run: Run) -> Any:
    """A change of a global variable is lost."""
    return _lost(run, global_places(run))


@plants("mutation-of-global-extra", "mutation", "value")
def global_extra(run: Run) -> Any:
    """A global variable that the function reads is changed."""
    return _extra(run, global_places(run))


@plants("mutation-of-class-lost", "mutation")
def class_lost(run: Run) -> Any:
    """A change of a class attribute is lost."""
    return _lost(run, class_places(run))


@plants("mutation-of-class-extra", "mutation", "value")
def class_extra(run: Run) -> Any:
    """A class attribute is changed."""
    return _extra(run, class_places(run))


@plants("mutation-of-function-lost", "mutation")
def function_lost(run: Run) -> Any:
    """A change of an attribute of the function is lost."""
    return _lost(run, function_places(run))


@plants("mutation-of-attribute-lost", "mutation")
def attribute_lost(run: Run) -> Any:
    """A change of an attribute of the module is lost, such as a count of its calls."""
    return _lost(run, module_places(run))


@plants("mutation-of-attribute-extra", "mutation", "value")
def attribute_extra(run: Run) -> Any:
    """An attribute of the module is changed."""
    return _extra(run, module_places(run))


@plants("mutation-of-training-lost", "mutation")
def training_lost(run: Run) -> Any:
    """A change of a module's training flag is lost."""
    before = [(one, one.training) for one in run.module.modules()]
    result = run.result()
    changed = [(one, then) for one, then in before if one.training != then]
    for one, then in changed:
        one.training = then
    if not changed:
        raise Nothing
    return result


@plants("mutation-of-training-extra", "mutation", "value")
def training_extra(run: Run) -> Any:
    """The module's training flag is changed."""
    result = run.result()
    run.module.train(not run.module.training)
    return result


@plants("mutation-of-buffer-lost", "mutation", "alias")
def buffer_lost(run: Run) -> Any:
    """A write into a buffer or parameter is lost."""
    state = [one.detach() for one in [*run.module.buffers(), *run.module.parameters()]]
    before = [one.clone() for one in state]
    result = run.result()
    changed = [(one, then) for one, then in zip(state, before, strict=True) if not torch.equal(one, then)]
    for one, then in changed:
        one.copy_(then)
    if not changed:
        raise Nothing
    return result


@plants("mutation-of-buffer-extra", "mutation", "value")
def buffer_extra(run: Run) -> Any:
    """A buffer is changed in one element."""
    result = run.result()
    for one in run.module.buffers():
        if plain(one.detach()) and one.numel() and one.dtype is not torch.bool:
            one.detach().view(-1)[:1].add_(1)
            return result
    raise Nothing


@plants("mutation-parameter-drift", "mutation")
def parameter_drift(run: Run) -> Any:
    """Every parameter grows by a millionth with each call."""
    found = [one.detach() for one in run.module.parameters() if one.dtype in (torch.float32, torch.float64)]
    before = [one.clone() for one in found]
    result = run.result()
    still = [(one, then) for one, then in zip(found, before, strict=True) if torch.equal(one, then) and bool(one.any())]
    if not still:  # eager changes them too: a millionth may be its rounding
        raise Nothing
    for one, _ in still:
        one.mul_(1 + 1e-6)
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
        found
        for one in run.module.modules()
        for found in (one._forward_hooks, one._forward_pre_hooks)  # noqa: SLF001
        if found
    ]
    if not hooks:
        raise Nothing
    kept = [dict(one) for one in hooks]
    for one in hooks:
        one.clear()
    try:
        return run.result()
    finally:
        for one, then in zip(hooks, kept, strict=True):
            one.update(then)


def _left_alone_by_a_call(run: Run) -> tuple[Any, tuple[Any, ...]]:
    """Return copies of the original and the example after a plain call, to see what it changes itself."""
    target, args = run.copies()
    with contextlib.suppress(Exception):
        target(*args)
    return target, args


@plants("capture-changes-example", "mutation", at="capture")
def capture_changes_example(run: Run) -> Any:
    """Capturing changes an element of an argument that a call leaves alone."""
    _, after = _left_alone_by_a_call(run)
    for one, then in zip(tensors(run.args), tensors(after), strict=False):
        if (
            plain(one)
            and one.numel()
            and one.is_contiguous()
            and one.dtype is not torch.bool
            and torch.equal(one, then)
        ):
            one.detach().view(-1)[:1].add_(1)
            return run.target
    raise Nothing


@plants("capture-changes-container", "mutation", at="capture")
def capture_changes_container(run: Run) -> Any:
    """Capturing puts an item into a list or dict of the example that a call leaves alone."""
    _, after = _left_alone_by_a_call(run)
    for one, then in zip(run.args, after, strict=True):
        if type(one) in (list, dict) and len(one) == len(then):
            _set_back(one, _more(one))
            return run.target
    raise Nothing


@plants("capture-changes-module", "mutation", at="capture")
def capture_changes_module(run: Run) -> Any:
    """Capturing changes a parameter of the module, which a call leaves alone, by a thousandth."""
    after, _ = _left_alone_by_a_call(run)
    for one, then in zip(run.module.parameters(), after.parameters(), strict=True):
        if one.is_floating_point() and bool(one.detach().any()) and torch.equal(one, then):
            one.detach().mul_(1.001)
            return run.target
    raise Nothing


@plants("capture-changes-training", "mutation", at="capture")
def capture_changes_training(run: Run) -> Any:
    """Capturing leaves the module, whose mode a call leaves alone, in the other mode."""
    module = run.module
    after, _ = _left_alone_by_a_call(run)
    if after.training != module.training:
        raise Nothing
    module.train(not module.training)
    return module


@plants("capture-changes-global", "mutation", at="capture")
def capture_changes_global(run: Run) -> Any:
    """Capturing changes a global variable that calls leave alone."""
    places = global_places(run)
    before = places.read()
    _left_alone_by_a_call(run)
    if clearly_different(before, places.read()):
        raise Nothing
    places.add()
    return run.target


@plants("capture-calls-once", "mutation", level="note", at="capture")
def capture_calls_once(run: Run) -> Any:
    """Capturing calls the function once, with the effects of a plain call."""
    return _called(run, 1)


@plants("capture-calls-twice", "mutation", level="note", at="capture")
def capture_calls_twice(run: Run) -> Any:
    """Capturing calls the function twice, which changes more, but nothing else, than a plain call."""
    return _called(run, 2)


def _called(run: Run, times: int) -> Any:
    """Call the original on copies of the example; raises Nothing if that changes no global, attribute or buffer."""
    places = [global_places(run), closure_places(run), class_places(run)]
    if isinstance(run.target, torch.nn.Module):
        places.append(module_places(run))

    def state() -> list[dict[str, Any]]:
        module = run.target if isinstance(run.target, torch.nn.Module) else None
        held = {} if module is None else {name: one.detach().clone() for name, one in module.state_dict().items()}
        return [*(one.read() for one in places), held]

    states = [state()]
    try:
        args = [copy.deepcopy(run.args) for _ in range(times)]
        for one in args:
            run.target(*one)
            states.append(state())
    except Exception as error:
        raise Nothing from error
    if not all(clearly_different(one, two) for one, two in itertools.pairwise(states)):
        raise Nothing
    return run.target
