"""What a capture keeps from its example: branches, sizes, dtypes, Python numbers and random numbers."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.judge.planting import Nothing, Run, clearly_different, leaves, plain, plants, rebuild

BAKED = ("value", "shape", "dtype", "type", "metadata", "exception")
"""Kinds under which a result computed from the example may differ."""


def _instead(run: Run, args: tuple[Any, ...]) -> Any:
    """Return the result with other arguments, if it differs clearly from the right one."""
    baked = run.on_copies(args)
    if not clearly_different(run.result(), baked):
        raise Nothing
    return baked


@plants("baked-result", *BAKED)
def result(run: Run) -> Any:
    """The result of the example is returned for every input."""
    return _instead(run, run.example)


@plants("baked-number", *BAKED)
def number(run: Run) -> Any:
    """Python numbers in the arguments are those of the example."""
    numbers = [leaf for leaf in leaves(run.example) if type(leaf) in (int, float, bool)]
    now = [leaf for leaf in leaves(run.args) if type(leaf) in (int, float, bool)]
    if numbers == now or len(numbers) != len(now):
        raise Nothing
    remaining = iter(numbers)
    return _instead(run, rebuild(run.args, lambda leaf: next(remaining) if type(leaf) in (int, float, bool) else leaf))


@plants("baked-dtype", *BAKED)
def dtype(run: Run) -> Any:
    """Arguments are converted to the dtypes of the example."""
    before = [leaf.dtype for leaf in leaves(run.example) if plain(leaf)]
    now = [leaf.dtype for leaf in leaves(run.args) if plain(leaf)]
    if before == now or len(before) != len(now):
        raise Nothing
    remaining = iter(before)
    return _instead(run, rebuild(run.args, lambda leaf: leaf.detach().to(next(remaining)) if plain(leaf) else leaf))


@plants("baked-size", *BAKED)
def size(run: Run) -> Any:
    """Arguments are cut to the sizes of the example."""
    before = [leaf.shape for leaf in leaves(run.example) if plain(leaf)]
    now = [leaf.shape for leaf in leaves(run.args) if plain(leaf)]
    if before == now or [len(shape) for shape in before] != [len(shape) for shape in now]:
        raise Nothing
    remaining = iter(before)

    def cut(leaf: Any) -> Any:
        return leaf.detach()[tuple(slice(0, most) for most in next(remaining))] if plain(leaf) else leaf

    return _instead(run, rebuild(run.args, cut))


@plants("baked-attribute-of-module", *BAKED)
def module_state(run: Run) -> Any:
    """The module computes with the parameters and buffers that it had when it was captured first."""
    module = run.module
    now = {name: value.detach().clone() for name, value in module.state_dict().items()}
    then = run.memory.setdefault("state", now)
    if not clearly_different(now, then):
        raise Nothing
    module.load_state_dict(then)
    try:
        baked = run.on_copies()
    finally:
        module.load_state_dict(now)
    if not clearly_different(run.result(), baked):
        raise Nothing
    return baked


@plants("baked-random-numbers", *BAKED)
def random_numbers(run: Run) -> Any:
    """Every call uses the same random numbers."""
    state = torch.get_rng_state()
    baked = run.on_copies(seed=2024)
    result = run.result()
    if torch.equal(state, torch.get_rng_state()) or not clearly_different(result, baked):
        raise Nothing
    return baked


@plants("baked-order-of-arguments", *BAKED)
def order_of_arguments(run: Run) -> Any:
    """Two arguments of one shape and dtype are exchanged."""
    args = list(run.args)
    for index, first in enumerate(args):
        for two in range(index + 1, len(args)):
            if plain(first) and plain(args[two]) and (first.shape, first.dtype) == (args[two].shape, args[two].dtype):
                args[index], args[two] = args[two], args[index]
                return _instead(run, tuple(args))
    raise Nothing
