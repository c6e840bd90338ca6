"""Changes that capturing alone makes: to the example, the module and globals, and calls that eager does not make."""

from __future__ import annotations

import contextlib
import copy
import itertools
from typing import Any

import torch

from benchmarks.judge.places import class_places, closure_places, global_places, module_places, more_of, set_back
from benchmarks.judge.planting import Nothing, Run, change_an_element, clearly_different, plain, plants, tensors


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
    for tensor, then in zip(tensors(run.args), tensors(after), strict=False):
        if (
            plain(tensor)
            and tensor.numel()
            and tensor.is_contiguous()
            and tensor.dtype is not torch.bool
            and torch.equal(tensor, then)
        ):
            change_an_element(tensor)
            return run.target
    raise Nothing


@plants("capture-changes-container", "mutation", at="capture")
def capture_changes_container(run: Run) -> Any:
    """Capturing puts an item into a list or dict of the example that a call leaves alone."""
    _, after = _left_alone_by_a_call(run)
    for argument, then in zip(run.args, after, strict=True):
        if type(argument) in (list, dict) and len(argument) == len(then):
            set_back(argument, more_of(argument))
            return run.target
    raise Nothing


@plants("capture-changes-module", "mutation", at="capture")
def capture_changes_module(run: Run) -> Any:
    """Capturing changes a parameter of the module, which a call leaves alone, by a thousandth."""
    after, _ = _left_alone_by_a_call(run)
    for parameter, then in zip(run.module.parameters(), after.parameters(), strict=True):
        if parameter.is_floating_point() and bool(parameter.detach().any()) and torch.equal(parameter, then):
            parameter.detach().mul_(1.001)
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
        held = {} if module is None else {name: value.detach().clone() for name, value in module.state_dict().items()}
        return [*(place.read() for place in places), held]

    states = [state()]
    try:
        args = [copy.deepcopy(run.args) for _ in range(times)]
        for copied in args:
            run.target(*copied)
            states.append(state())
    except Exception as error:
        raise Nothing from error
    if not all(clearly_different(state, two) for state, two in itertools.pairwise(states)):
        raise Nothing
    return run.target
