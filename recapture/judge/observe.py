"""Calls a function once and records the observable effects: result, exception, side effects, gradients, output.

What only a later call could show is read here, too: the gradients of a backward after the call, the memory that its
results share, and torch's own settings, which are put back, so that a leak does not affect the next call.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from zlib import crc32

from recapture.base.exceptions import qualified, safe_text, traceback_text
from recapture.judge.aliases import blocks_of, bytes_outside, shared
from recapture.judge.backward import backward, descend, leaves_of, training_weights, weights
from recapture.judge.earlier_calls import EarlierCalls
from recapture.judge.recorded_output import Recorded, add_to_log, recorded
from recapture.judge.snapshot import (
    Described,
    Snapshot,
    describe,
    snapshot_of,
    snapshot_result_of,
)
from recapture.judge.torch_state import environment, random_states, read_flags, restore_flags, setting_texts
from recapture.torch_api.compat import changes_of, is_out_of_memory, seed_everything

if TYPE_CHECKING:
    from recapture.judge.reachable import Reachable

NO_ARGUMENTS = Snapshot("tuple", children=())

ARGUMENTS_SEED = 0
"""Seed under which arguments are made, the same for every input."""


@dataclass(frozen=True)
class Raised:
    """An exception raised by the call; `type` is the qualified name of its class."""

    type: str
    message: str
    traceback: str
    error: BaseException = field(compare=False)

    def is_a(self, other: Raised) -> bool:
        """Whether ``except`` for the other exception's type catches this one.

        Types are compared by name: each execution of a suite's file defines its own exceptions once more.
        """
        return other.type in [qualified(kind) for kind in type(self.error).__mro__]


@dataclass(frozen=True)
class Observation:
    """Everything observed in one call on one input.

    `aliases` are pairs of paths that share memory; `earlier` names the inputs whose results were still alive.
    `outside` are the bytes of the arguments' storages that no argument views, by path. `gradients` are those of a
    backward after the call, by path; `backward` is the exception that it raised. `overwritten` is what the call changed
    of earlier results and arguments, by place. `moved` are the paths of arguments that the call gave another storage,
    `versions` of those whose version counter it raised. `warned` are the warnings, and `written` is the number of bytes
    that went to standard output without Python's `sys.stdout`, None if unknown. `kept_alive` is the size in bytes of
    the memory behind each tensor of the result that shares none with an argument or the state.
    """

    input: str
    result: Snapshot | None = None
    raised: Raised | None = None
    args: Snapshot = NO_ARGUMENTS
    outside: Mapping[str, Any] = field(default_factory=dict)
    state: Snapshot | None = None
    watched: Snapshot | None = None
    output: str = ""
    stderr: str = ""
    warned: tuple[str, ...] = ()
    written: int | None = None
    overwritten: Snapshot | None = None
    moved: frozenset[str] = frozenset()
    versions: frozenset[str] = frozenset()
    flags: Mapping[str, str] = field(default_factory=dict)
    left: frozenset[str] = frozenset()
    random_states: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    aliases: frozenset[tuple[str, str]] = frozenset()
    kept_alive: Mapping[str, int] = field(default_factory=dict)
    earlier: tuple[str, ...] = ()
    gradients: Snapshot | None = None
    backward: Raised | None = None


@dataclass
class Surroundings:
    """What is observed besides the call itself.

    `reachable` is the state to describe, with the tensors of `module` in place of its own (see `Reachable.describe`).
    `watch` may take the target and the result. `backward` is False if no backward follows the call;
    after it, parameters move by minus `train_step` times their gradient. With
    `all_output`, warnings and log messages count as output. With `values_only`, memory, random states and the
    environment are not looked at. Without `settings`, none is read or put back. `watching` makes a context for the call
    and its backward. `earlier` collects the results and arguments of earlier calls.
    """

    reachable: Reachable | None = None
    module: Any = None
    watch: Callable[..., Any] | None = None
    target: Any = None
    backward: bool = True
    train_step: float | None = None
    all_output: bool = False
    values_only: bool = False
    settings: bool = True
    watching: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    device: str = "cpu"
    earlier: EarlierCalls = field(default_factory=EarlierCalls)


def observe_call(
    call: Callable[..., Any],
    label: str,
    make_args: Callable[[], tuple[Any, ...]],
    around: Surroundings | None = None,
    seed: str | None = None,
) -> Observation:
    """Call `call` on new arguments and observe it.

    The arguments are made under ARGUMENTS_SEED. The call has a seed derived from `seed`, by default from the label:
    random numbers that a compiler took from another call are then different ones. Any exception of the call, including
    SystemExit and KeyboardInterrupt, is part of the observation. Global settings of torch are restored afterwards, so
    that a leak is reported once and does not affect later calls. Exceptions from creating the arguments propagate.
    """
    around = Surroundings() if around is None else around
    seed_everything(ARGUMENTS_SEED)  # the same arguments on both sides, whatever ran before
    args = make_args()
    before = describe(args, consume=False, copy=False)
    seed_everything(crc32((label if seed is None else seed).encode()))
    return _Call(around, label, args, before, seed).observe(call)


def end_if_forked(process: int) -> None:
    """End this process if the code has forked it from `process`: what comes after the code is the parent's alone.

    Else the child, too, would go on with the cell, fork again in each later call, and reach the limit of processes.
    """
    if os.getpid() != process:
        os._exit(0)


def describe_raised(error: BaseException) -> Raised:
    """Describe an exception, even if its own methods raise."""
    return Raised(qualified(type(error)), safe_text(error), traceback_text(error), error)


def call_with(function: Callable[..., Any], *available: Any) -> Any:
    """Call a function with as many of the available arguments as it takes by position."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return function()
    takes = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return function(*available[: len(takes)])


class _Call:
    """One call: its arguments, and what is found after it."""

    def __init__(
        self, around: Surroundings, label: str, args: tuple[Any, ...], before: Described, seed: str | None
    ) -> None:
        self.around = around
        self.label = label
        self.seed = seed
        self.args = args
        self.before = before
        # The state has gradients alone in a backward: without one, its tensors are not asked for.
        state = self._state_arrays() if around.backward else ()
        self.leaves = leaves_of([*(("args" + path, array) for path, array in before.arrays), *state])
        self.arguments = [(path, array, _storage(array), changes_of(array)) for path, array in before.arrays]
        self.found: dict[str, Any] = {}

    def observe(self, call: Callable[..., Any]) -> Observation:
        printed = Recorded()
        value: Any = None
        result: Described | None = None
        process = os.getpid()
        with recorded(printed, everything=self.around.all_output), self.around.watching():
            flags = (
                read_flags() if self.around.settings else {}
            )  # here, because what watches may be a mode, which is a setting
            try:
                value = call(*self.args)
                self._synchronize()
                result = describe(value)  # now: what follows, such as a backward, may change it
            except BaseException as error:  # any exception of a case is part of the observation
                self.found["raised"] = describe_raised(error)
            end_if_forked(process)
            try:
                self._settings(flags)
                if result is not None:
                    self.found["result"] = result.snapshot
                self._effects(result, value)
            except BaseException as error:
                # Memory ran out, or the call left a GPU that refuses everything. Else the comparison itself failed: two
                # sides on which it fails alike are not equal. A call that raised is compared by what it raised.
                if "raised" not in self.found and not is_out_of_memory(error) and self.around.device == "cpu":
                    raise
                self.found.setdefault("raised", describe_raised(error))
                self.found.pop("result", None)
        output = printed.text.getvalue()
        add_to_log(sys.stdout, output)  # the output of a cell stays readable in its log
        return Observation(
            self.label,
            output=output,
            stderr=printed.stderr.getvalue(),
            warned=tuple(printed.warnings),
            written=printed.written,
            **self.found,
        )

    def _state_arrays(self) -> tuple[tuple[str, Any], ...]:
        around = self.around
        return () if around.reachable is None else around.reachable.arrays(around.module)

    def _synchronize(self) -> None:
        if self.around.device == "cuda":
            import torch

            torch.cuda.synchronize()  # attribute kernel errors to the call that launched the kernel

    def _settings(self, before: dict[str, Any]) -> None:
        if self.around.settings:
            after = read_flags()
            self.found["left"] = restore_flags(before, after)  # first, because reading random states makes tensors
            if not self.around.values_only:
                # What is equal is told alike, and the same objects are compared at once.
                self.found["flags"] = setting_texts(before if self.found["left"] else after, after)
        if self.around.values_only:
            return
        self.found["random_states"] = random_states()
        self.found["environment"] = environment()

    def _effects(self, result: Described | None, value: Any) -> None:
        """Describe the arguments, aliases, gradients and state, in this order: a backward may change the state."""
        around = self.around
        args = describe(self.args)
        self.found["args"] = args.snapshot
        if not around.values_only:
            self.found["outside"] = dict(bytes_outside(args.arrays))
            self._storages()
        state: Described | None = None
        if around.reachable is not None and (result is None or not around.backward):
            state = around.reachable.describe(around.module)  # no backward changes it: one look is enough
        if result is not None:
            arrays = self._state_arrays() if state is None else state.arrays
            if not around.values_only:
                self._aliases(result, args, arrays)
            if around.backward:
                self._backward(result, args, arrays)
        if not around.values_only:  # a backward may write into what is kept, too
            self.found["overwritten"] = around.earlier.overwritten()
            if result is not None:
                around.earlier.add(self.label, result, args, *self._to_be_kept(value, result, args))
        if around.reachable is not None:
            self.found["state"] = (state or around.reachable.describe(around.module)).snapshot
        if around.watch is not None:
            watch = around.watch
            self.found["watched"] = snapshot_result_of(lambda: call_with(watch, around.target, value))

    def _to_be_kept(self, value: Any, result: Described, args: Described) -> tuple[Any, ...]:
        """Return result and arguments as objects, but for those that would keep what a backward still needs."""
        arrays = [array for _, array in (*result.arrays, *args.arrays)]
        unused = "gradients" not in self.found and any(getattr(array, "grad_fn", None) is not None for array in arrays)
        return () if unused else (value, self.args)

    def _aliases(self, result: Described, args: Described, of_state: Iterable[tuple[str, Any]]) -> None:
        around = self.around
        results = blocks_of(("result" + path, array) for path, array in result.arrays)
        argument_blocks = blocks_of(("args" + path, array) for path, array in args.arrays)
        state = blocks_of(of_state)
        by_label = around.earlier.results.items()
        earlier = [(f"{label}: result{path}", array) for label, arrays in by_label for path, array in arrays]
        among = {pair for part in (results, argument_blocks) for pair in shared(part, part) if pair[0] < pair[1]}
        others = [*argument_blocks, *state, *blocks_of(earlier)]
        self.found["aliases"] = frozenset(shared(results, others) | shared(argument_blocks, state) | among)
        self.found["earlier"] = tuple(around.earlier.results)
        known = {left for left, _ in self.found["aliases"]}
        self.found["kept_alive"] = {
            f"result{path}": size
            for path, array in result.arrays
            if f"result{path}" not in known and (size := _size_of_storage(array))
        }

    def _storages(self) -> None:
        """Note the arguments that were given another storage, and those whose version counter was raised.

        A tensor that the call moved to another place of a list, or took out of it, is still the caller's.
        """
        moved, versions = set(), set()
        for path, array, storage, changes in self.arguments:
            now = _storage(array)
            if storage is not None and now is not None and storage != now:
                moved.add(f"args{path}")
            if changes != changes_of(array):
                versions.add(f"args{path}")
        self.found["moved"], self.found["versions"] = frozenset(moved), frozenset(versions)

    def _weigh(self, root: Any, number: int) -> Any:
        if self.around.train_step is not None:  # a step along other weights would not make a loss smaller
            return training_weights(root)
        return weights(root, number, crc32((self.label if self.seed is None else self.seed).encode()))

    def _backward(self, result: Described, args: Described, of_state: Iterable[tuple[str, Any]]) -> None:
        try:
            # The call itself may be what makes a parameter require a gradient: without it here, the backward would
            # leave one in its `.grad`, which the next call would be blamed for.
            known = {id(leaf.tensor) for leaf in self.leaves}
            after = leaves_of(of_state)
            # Of what the call itself computes for an attribute, nobody reads a gradient: `.grad` stays empty there.
            began = [leaf._replace(grad_fn=None) for leaf in after if id(leaf.tensor) not in known]
            began = [leaf for leaf in began if leaf.tensor.is_leaf]
            leaves = [*self.leaves, *began]
            gradients = backward(
                [array for _, array in result.arrays],
                [array for _, array in args.arrays],
                leaves,
                self._weigh,
            )
            if gradients is not None and self.around.train_step is not None:
                descend(leaves, gradients, self.around.train_step)
            self._synchronize()
        except BaseException as error:  # a hook of the case, or a backward that torch refuses
            self.found["backward"] = describe_raised(error)
            return
        if gradients is not None:
            children = tuple((path, snapshot_of(gradient)) for path, gradient in gradients.items())
            self.found["gradients"] = Snapshot("gradients", children=children)


def _storage(array: Any) -> int | None:
    """Return the address of a tensor's memory; None for what has no memory of its own."""
    try:
        return array.untyped_storage().data_ptr() or None
    except (AttributeError, NotImplementedError, RuntimeError):
        return None


def _size_of_storage(array: Any) -> int | None:
    """Return the size in bytes of the memory behind a tensor; None for what has no memory of its own."""
    try:
        return None if array.is_meta else int(array.untyped_storage().nbytes())
    except (AttributeError, NotImplementedError, RuntimeError):
        return None
