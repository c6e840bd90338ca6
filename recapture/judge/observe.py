"""Calls a function once and records the observable effects: result, exception, side effects, gradients, output.

What only a later call could show is read here, too: the gradients of a backward after the call, the memory that its
results share, and torch's own settings, which are put back, so that a leak does not affect the next call.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import os
import stat
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from recapture.base.exceptions import qualified, safe_text, traceback_text
from recapture.judge.aliases import blocks_of, bytes_outside, shared
from recapture.judge.earlier_calls import EarlierCalls
from recapture.judge.snapshot import (
    Described,
    Snapshot,
    describe,
    snapshot_of,
    snapshot_result_of,
    without_repetitions,
)
from recapture.judge.torch_state import environment, random_states, read_flags, restore_flags, told
from recapture.torch_api.compat import changes_of, is_out_of_memory, seed_everything

if TYPE_CHECKING:
    from recapture.judge.reachable import Reachable

NO_ARGUMENTS = Snapshot("tuple", children=())

ARGUMENTS_SEED = 0
"""Seed under which arguments are made, the same for every input."""


@dataclass(frozen=True)
class Raised:
    """An exception raised by the call; `types` are the names of its class and of that class's bases."""

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
        self.leaves = leaves_of([*(("args" + path, array) for path, array in before.arrays), *self._state_arrays()])
        self.storages = {path: _storage(array) for path, array in before.arrays}
        self.versions = {path: changes_of(array) for path, array in before.arrays}
        self.found: dict[str, Any] = {}

    def observe(self, call: Callable[..., Any]) -> Observation:
        printed = Recorded()
        value: Any = None
        result: Described | None = None
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
        sys.stdout.write(output)  # the output of a cell stays readable in its log
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
        return () if around.reachable is None else around.reachable.describe(around.module, copy=False).arrays

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
                self.found["flags"] = told(before if self.found["left"] else after, after)
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
            self._storages(args)
        if result is not None:
            if not around.values_only:
                self._aliases(result, args)
            if around.backward:
                self._backward(result, args)
        if not around.values_only:  # a backward may write into what is kept, too
            self.found["overwritten"] = around.earlier.overwritten()
            if result is not None:
                around.earlier.add(self.label, result, args, *self._to_be_kept(value, result, args))
        if around.reachable is not None:
            self.found["state"] = around.reachable.describe(around.module).snapshot
        if around.watch is not None:
            watch = around.watch
            self.found["watched"] = snapshot_result_of(lambda: call_with(watch, around.target, value))

    def _to_be_kept(self, value: Any, result: Described, args: Described) -> tuple[Any, ...]:
        """Return result and arguments as objects, but for those that would keep what a backward still needs."""
        arrays = [array for _, array in (*result.arrays, *args.arrays)]
        unused = "gradients" not in self.found and any(getattr(array, "grad_fn", None) is not None for array in arrays)
        return () if unused else (value, self.args)

    def _aliases(self, result: Described, args: Described) -> None:
        around = self.around
        results = blocks_of(("result" + path, array) for path, array in result.arrays)
        given = blocks_of(("args" + path, array) for path, array in args.arrays)
        state = blocks_of(self._state_arrays())
        by_label = around.earlier.results.items()
        earlier = [(f"{label}: result{path}", array) for label, arrays in by_label for path, array in arrays]
        among = {pair for part in (results, given) for pair in shared(part, part) if pair[0] < pair[1]}
        others = [*given, *state, *blocks_of(earlier)]
        self.found["aliases"] = frozenset(shared(results, others) | shared(given, state) | among)
        self.found["earlier"] = tuple(around.earlier.results)
        known = {left for left, _ in self.found["aliases"]}
        self.found["kept_alive"] = {
            f"result{path}": size
            for path, array in result.arrays
            if f"result{path}" not in known and (size := _size_of_storage(array))
        }

    def _storages(self, args: Described) -> None:
        """Note the arguments that were given another storage, and those whose version counter was raised."""
        moved, versions = set(), set()
        for path, array in args.arrays:
            before, after = self.storages.get(path), _storage(array)
            if before is not None and after is not None and before[0] == after[0] and before[1] != after[1]:
                moved.add(f"args{path}")
            if path in self.versions and self.versions[path] != changes_of(array):
                versions.add(f"args{path}")
        self.found["moved"], self.found["versions"] = frozenset(moved), frozenset(versions)

    def _weigh(self, root: Any, number: int) -> Any:
        if self.around.train_step is not None:  # a step along other weights would not make a loss smaller
            return training_weights(root)
        return weights(root, number, crc32((self.label if self.seed is None else self.seed).encode()))

    def _backward(self, result: Described, args: Described) -> None:
        try:
            # The call itself may be what makes a parameter require a gradient: without it here, the backward would
            # leave one in its `.grad`, which the next call would be blamed for.
            known = {id(leaf.tensor) for leaf in self.leaves}
            after = leaves_of(self._state_arrays())
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


class Leaf(NamedTuple):
    """A tensor that requires grad before a call, with its path; `grad_fn` is that of a tensor that is no leaf."""

    path: str
    tensor: Any
    grad_fn: Any


def leaves_of(arrays: Iterable[tuple[str, Any]]) -> list[Leaf]:
    """Return the tensors that require grad, each once, under its first path."""
    leaves: dict[int, Leaf] = {}
    for path, array in arrays:
        if getattr(array, "requires_grad", False):
            leaves.setdefault(id(array), Leaf(path, array, array.grad_fn))
    return list(leaves.values())


def backward(
    results: Iterable[Any], arguments: Iterable[Any], leaves: Sequence[Leaf], weigh: Callable[[Any, int], Any]
) -> dict[str, Any] | None:
    """Call backward on every result that requires grad; return the gradient of each leaf, or None without such results.

    `weigh` returns the weights of a result's elements, given the result and its number. A sparse result counts as the
    dense one, as in most losses. `arguments` are the tensors passed to the call: those with another history than before
    count as results. The ``.grad`` of the leaves is empty before and restored afterwards. Errors of the backward
    propagate.
    """
    import torch

    before = {id(leaf.tensor): leaf.grad_fn for leaf in leaves}
    changed = [argument for argument in arguments if getattr(argument, "grad_fn", None) is not before.get(id(argument))]
    roots: dict[int, Any] = {}
    for value in [*results, *changed]:
        differentiable = isinstance(value, torch.Tensor) and value.requires_grad and value.grad_fn is not None
        if differentiable and not value.is_nested and id(value) not in roots:
            roots.update((id(value), root) for root in _dense(value))
    if not roots:
        return None
    gradients_before = [(leaf.tensor, leaf.tensor.grad) for leaf in leaves if leaf.tensor.is_leaf]
    for tensor, _ in gradients_before:
        tensor.grad = None
    for leaf in leaves:
        if not leaf.tensor.is_leaf and leaf.tensor.requires_grad:
            leaf.tensor.retain_grad()
    try:
        torch.autograd.backward(
            list(roots.values()), [weigh(root, number) for number, root in enumerate(roots.values())]
        )
        return {leaf.path: None if leaf.tensor.grad is None else leaf.tensor.grad.detach() for leaf in leaves}
    finally:
        for tensor, grad in gradients_before:
            tensor.grad = grad
        for leaf in leaves:
            if not leaf.tensor.is_leaf and leaf.tensor.retains_grad:
                leaf.tensor.grad = None  # it is described where the call itself leaves one


def _storage(array: Any) -> tuple[int, int] | None:
    """Return the id of a tensor and the address of its memory; None for what has no memory of its own."""
    try:
        address = array.untyped_storage().data_ptr()
    except (AttributeError, NotImplementedError, RuntimeError):
        return None
    return (id(array), address) if address else None


def _size_of_storage(array: Any) -> int | None:
    """Return the size in bytes of the memory behind a tensor; None for what has no memory of its own."""
    try:
        return None if array.is_meta else int(array.untyped_storage().nbytes())
    except (AttributeError, NotImplementedError, RuntimeError):
        return None


def _dense(value: Any) -> list[Any]:
    """Return a tensor, or the dense one of a sparse tensor, in a list; an empty list if it cannot be made dense."""
    import torch

    if value.layout == torch.strided:
        return [value]
    try:
        with torch.enable_grad():
            return [value.to_dense()]
    except (NotImplementedError, RuntimeError):  # a layout that this release of torch cannot differentiate
        return []


def descend(leaves: Sequence[Leaf], gradients: dict[str, Any], rate: float) -> None:
    """Move every parameter by minus `rate` times its gradient, as plain SGD does; arguments stay as they are."""
    import torch

    with torch.no_grad():
        for leaf in leaves:
            gradient = gradients.get(leaf.path)
            if gradient is not None and leaf.tensor.is_leaf and not leaf.path.startswith("args"):
                leaf.tensor.add_(gradient, alpha=-rate)


BLOCK = 65_537
"""Number of elements after which weights repeat; a prime number, so that the rows of a tensor have different ones."""

LARGE = 15.8
"""Factor of the weight of every eighth element, the first among them: a gradient that is clamped shows there.

No weight is a whole number, so that a gradient that is rounded shows as well.
"""


def weights(root: Any, number: int, first: int) -> Any:
    """Return the weights of the `number`-th result for its backward; `first` chooses the sign of the first by parity.

    They have many sizes, so that errors do not cancel in a sum, and both signs, without a period: a backward that
    clamps or rectifies what it gets, or takes its absolute value, gives other gradients. Those of a complex result are
    complex, so that a backward that conjugates them, or takes their real part, does so too. Twice as many weights would
    need a second backward, for which a graph would have to be kept; torch.compile refuses that where it reuses memory.
    Instead, inputs and results alternate in the sign of the first element, which may be the only one.
    """
    import torch

    if root.is_meta:  # it has no numbers, and may have any size
        return torch.empty_like(root)

    index = torch.arange(min(root.numel(), BLOCK))
    parity = index + 0
    for bits in (16, 8, 4, 2, 1):
        parity = parity ^ (parity >> bits)
    sign = (
        1.0 - 2.0 * ((parity + number + first) % 2).double()
    )  # the Thue–Morse sequence: no block of it comes three times
    size = _sizes(index + number) * torch.where(index % 8 == 0, LARGE, 1.0)
    block = sign * size
    if root.is_complex():
        block = torch.polar(size, index.double() + 0.7) * sign
    return _repeated(block, root)


def training_weights(root: Any) -> Any:
    """Return positive weights for the elements of a loss, which a step along the gradient is to make smaller."""
    import torch

    return torch.empty_like(root) if root.is_meta else _repeated(_sizes(torch.arange(min(root.numel(), BLOCK))), root)


def _sizes(index: Any) -> Any:
    return index.double().cos().mul(0.5).add(1)


def _repeated(block: Any, root: Any) -> Any:
    """Return a block of weights, repeated to the size of a result, with its shape, dtype and device."""
    single = without_repetitions(root.detach())  # all elements of an expanded view may not fit into memory
    copies = -(-single.numel() // BLOCK)
    values = block.repeat(max(copies, 1))[: single.numel()].reshape(single.shape)
    return values.to(device=root.device, dtype=root.dtype).expand(root.shape)


@dataclass
class Recorded:
    """What was printed to `sys.stdout` and to `sys.stderr`, the warnings, and the bytes written past `sys.stdout`."""

    text: io.StringIO = field(default_factory=io.StringIO)
    stderr: io.StringIO = field(default_factory=io.StringIO)
    warnings: list[str] = field(default_factory=list)
    written: int | None = None


@contextlib.contextmanager
def recorded(record: Recorded, *, everything: bool) -> Iterator[None]:
    """Record what is printed, and warnings; with `everything`, all of it and log messages in `text`, in their order.

    Warnings and log messages of torch itself are left out.
    """
    text, stderr = record.text, sys.stderr
    before = _size_of_output()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(text))
        # What is no part of the output stays readable in the log, also of a process that dies in this call.
        stack.enter_context(contextlib.redirect_stderr(text if everything else _Both(record.stderr, stderr)))
        stack.enter_context(_torch_logs_to(stderr))
        # Leaving this context makes Python forget which warnings it has shown: each call shows them again.
        shown_again = warnings.catch_warnings()
        if everything:
            stack.enter_context(shown_again)
        else:
            with shown_again:
                pass
        show = warnings.showwarning

        def note(message: Warning | str, category: type[Warning], filename: str, *where: Any, **more: Any) -> None:
            of_torch = _of_torch(category.__module__) or issuer().is_relative_to(folder_of_torch())
            of_torch = of_torch or FROM_CPP in str(message)
            if everything and not of_torch:
                text.write(f"{category.__name__}: {message}\n")
                return
            if not of_torch:
                record.warnings.append(f"{category.__name__}: {message}")
            with contextlib.redirect_stderr(stderr):
                show(message, category, filename, *where, **more)

        warnings.showwarning = note
        stack.callback(_set_back, warnings, "showwarning", note, show)
        if everything:
            handler = _LogHandler(text)
            logging.getLogger().addHandler(handler)
            stack.callback(logging.getLogger().removeHandler, handler)
        if logging.lastResort is not None:
            last = _LastResort(sys.stderr, stderr)
            stack.callback(_set_back, logging, "lastResort", last, logging.lastResort)
            logging.lastResort = last
        yield
    after = _size_of_output()
    record.written = None if before is None or after is None or after < before else after - before


FROM_CPP = "(Triggered internally at "
"""What torch adds to a warning of its own C++, which names the line of the user and comes once in a process."""


def _set_back(owner: Any, name: str, now: Any, before: Any) -> None:
    """Set an attribute back, unless the call itself has set it."""
    if getattr(owner, name) is now:
        setattr(owner, name, before)


def _size_of_output() -> int | None:
    """Return the size of the file to which the process writes its standard output; None if it is no file."""
    try:
        for stream in (sys.stdout, sys.__stdout__):
            if stream is not None:
                stream.flush()
        status = os.fstat(1)
    except (OSError, ValueError):  # closed
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


class _Both(io.TextIOBase):
    """A stream that writes to a text and to another stream."""

    def __init__(self, text: io.StringIO, stream: Any) -> None:
        self.text = text
        self.stream = stream

    def write(self, text: str) -> int:
        self.text.write(text)
        self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def fileno(self) -> int:
        return int(self.stream.fileno())


def _of_torch(name: str) -> bool:
    """Whether a module or logger belongs to torch itself; ``torchmetrics`` does not."""
    return name.partition(".")[0] == "torch"


@contextlib.contextmanager
def _torch_logs_to(stderr: Any) -> Iterator[None]:
    """Print what torch logs to `stderr`, while `sys.stderr` is another stream: handlers of torch 2.15 follow it."""
    replaced = []
    for name, logger in [*logging.root.manager.loggerDict.items()]:
        # Of hundreds of loggers few have handlers, and this runs twice in every call.
        if getattr(logger, "handlers", None) and isinstance(logger, logging.Logger) and _of_torch(name):
            for handler in [handler for handler in logger.handlers if getattr(handler, "stream", None) is sys.stderr]:
                apart = logging.StreamHandler(stderr)
                apart.setLevel(handler.level)
                apart.setFormatter(handler.formatter)
                apart.filters = handler.filters
                logger.handlers = [apart if other is handler else other for other in logger.handlers]
                replaced.append((logger, apart, handler))
    try:
        yield
    finally:
        for logger, apart, handler in replaced:
            logger.handlers = [handler if other is apart else other for other in logger.handlers]


class _LogHandler(logging.Handler):
    def __init__(self, text: io.StringIO) -> None:
        super().__init__()
        self.text = text

    def emit(self, record: logging.LogRecord) -> None:
        if not _of_torch(record.name):
            self.text.write(f"{record.levelname} {record.name}: {record.getMessage()}\n")


class _LastResort(logging.StreamHandler):  # type: ignore[type-arg]
    """Prints warnings of loggers that have no handler, as `logging.lastResort` does, but those of torch elsewhere.

    torch 2.3.1 says in this way that it skips CUDA graphs.
    """

    def __init__(self, stream: Any, elsewhere: Any) -> None:
        super().__init__(stream)
        self.elsewhere = elsewhere
        self.setLevel(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        if _of_torch(record.name):
            self.elsewhere.write(self.format(record) + self.terminator)
        else:
            super().emit(record)


def folder_of_torch() -> Path:
    """Return the folder of torch's files."""
    import torch

    return Path(torch.__file__).parent


def issuer() -> Path:
    """Return the file of the code that issues the warning which is being shown.

    The file that a warning names is another with ``stacklevel``: under `torch.compile` the caller is a file of torch.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to the frames below
    while frame.f_back is not None and frame.f_globals.get("__name__") in (__name__, "warnings"):
        frame = frame.f_back
    return Path(frame.f_code.co_filename)
