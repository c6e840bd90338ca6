"""Watches every operator of a call: notes what went in and came out, keeps the tensors of one, or replaces its results.

Hashes and a few numbers are noted, not tensors, so that memory stays bounded. Operators that only view other memory are
left out: they compute nothing.
"""

from __future__ import annotations

import contextlib
import math
import sys
import weakref
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from recapture.base.paths import PACKAGE
from recapture.judge.digest import hash_bytes
from recapture.judge.noise import wide_dtype
from recapture.judge.perturbation import perturbed
from recapture.judge.rounding import explained
from recapture.judge.snapshot import Snapshot, snapshot_of
from recapture.tools.drift.facts import Operator, OperatorDifference
from recapture.tools.drift.stored import moved_tensor
from recapture.torch_api.compat import (
    changes_of,
    compiled_code_off,
    dispatch_mode,
    operator_schema,
    pytree,
    tree_leaves,
)

SAMPLE = 1 << 14
"""Elements of a tensor from which its numbers are made, evenly spread; a hash tells about the others."""

LARGE = 1 << 19
"""Bytes from which a checksum is taken of sums."""

WORD = 8
"""Bytes of a word of these sums."""

WORDS_OF_A_ROW = 509
"""Words that are added to one sum."""

NOISY_RUNS = 8
"""Runs of one operator with noise, besides the one that they are compared with."""

DECIMALS = 9


class Watch:
    """What is done with operators: each is noted; that of number `keep` is kept; its results may be replaced.

    `replace` are the results of the other side for this operator.
    """

    def __init__(self, *, keep: int | None = None, replace: list[Any] | None = None) -> None:
        self.operators: list[Operator] = []
        self.keep = keep
        self.replace = replace
        self.kept: dict[str, Any] | None = None
        self.replaced = False
        self.number = 0
        self._names: dict[int, str] = {}
        self._stack: list[str] = []
        self._hashes: dict[int, tuple[Any, int | None, str]] = {}
        self._places: dict[Any, str] = {}
        self._weights: dict[int, Any] = {}

    def name_modules(self, module: Any) -> None:
        """Note the paths of the submodules, by which operators are named."""
        import torch

        if isinstance(module, torch.nn.Module):
            self._names = {id(part): name for name, part in module.named_modules()}

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch what runs inside, backward passes included."""
        from torch.nn.modules import module as hooks

        before = hooks.register_module_forward_pre_hook(self._entered)
        after = hooks.register_module_forward_hook(self._left)
        self.number = 0
        try:
            with compiled_code_off(), _mode()(self):
                yield
        finally:
            before.remove()
            after.remove()

    def _entered(self, module: Any, _args: Any) -> None:
        self._stack.append(self._names.get(id(module), type(module).__name__))

    def _left(self, _module: Any, _args: Any, _result: Any) -> None:
        if self._stack:
            self._stack.pop()

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Carry out one operator."""
        import torch

        caller = self._caller()
        if caller is None:  # of the judge itself, as a copy of a result
            return func(*args, **kwargs)
        number, self.number = self.number, self.number + 1
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if number == self.keep:
            return self._keep(func, args, kwargs)
        if self.keep is not None:
            return func(*args, **kwargs)
        takes = tuple(map(self.hash_of, inputs))
        result = func(*args, **kwargs)
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.operators.append(
            Operator(
                name=str(func).removeprefix("aten."),
                module=self._stack[-1] if self._stack else "",
                line=caller.line,
                takes=takes,
                gives=tuple(self.hash_of(leaf, anew=True) for leaf in outputs),
                forms=tuple(f"{str(leaf.dtype).rpartition('.')[2]}{list(leaf.shape)}" for leaf in outputs),
                numbers=tuple(map(self._numbers, outputs)),
                backward=caller.backward,
            )
        )
        return result

    def _keep(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Keep what the operator gives, also in float64 and with noise, and replace it if that is asked."""
        import torch

        def copied() -> tuple[Any, Any]:
            copied_values: tuple[Any, Any] = pytree().tree_map(_copied, (args, kwargs))
            return copied_values

        noisy = []
        for seed in range(1, NOISY_RUNS + 2):
            again, more = copied()
            # Random numbers are drawn once, by the call that counts.
            with contextlib.suppress(Exception), torch.random.fork_rng(), perturbed(seed):
                noisy.append(_tensors(func(*again, **more)))
        exact = None
        again, more = pytree().tree_map(_widened, copied())
        with contextlib.suppress(Exception), torch.random.fork_rng():  # or there is no float64 here
            exact = _tensors(func(*again, **more))
        result = func(*args, **kwargs)
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.kept = {"outputs": _tensors(outputs), "noisy": noisy, "exact": exact}
        for own, other in zip(outputs, self.replace or [], strict=False):
            if own.shape == other.shape and own.dtype == other.dtype:
                own.copy_(other)
                self.replaced = True
        return result

    def hash_of(self, tensor: Any, *, anew: bool = False) -> str:
        """Return a hash of a tensor's dtype, shape and elements; that of one that was not changed since is known.

        An operator that writes into a tensor raises its version only afterwards, so that its result is hashed `anew`.
        """
        known = self._hashes.get(id(tensor))
        version = changes_of(tensor)
        if not anew and known is not None and known[0]() is tensor and known[1] == version:
            return known[2]
        checksum = Checksum(f"{tensor.dtype}{tuple(tensor.shape)}")
        with contextlib.suppress(RuntimeError, NotImplementedError):  # no dense elements
            if tensor.numel() * tensor.element_size() < LARGE:
                hash_bytes(checksum, tensor.detach().cpu())
            else:
                for sums in sums_of_words(tensor.detach()):
                    hash_bytes(checksum, sums)
        if version is not None:  # counted, which they are not under inference mode
            self._hashes[id(tensor)] = (weakref.ref(tensor), version, checksum.text)
        return checksum.text

    def unwritten(self, tensor: Any) -> Any:
        """Note that nothing was written to a tensor yet, so that its elements are those of old memory; return it."""
        form = f"unwritten {tensor.dtype} {tuple(tensor.shape)}"
        if changes_of(tensor) is not None:
            self._hashes[id(tensor)] = (weakref.ref(tensor), changes_of(tensor), form)
        return tensor

    def _numbers(self, tensor: Any) -> tuple[float, ...]:
        """Return the size of a tensor and two weighted sums of a sample of its elements, relative to the size."""
        import torch

        if not tensor.is_floating_point() or not tensor.numel() or tensor.layout != torch.strided:
            return ()
        flat = tensor.detach().reshape(-1)
        flat = flat[:: math.ceil(flat.numel() / SAMPLE)].to("cpu", torch.float64)
        if flat.numel() not in self._weights:
            places = torch.arange(1, flat.numel() + 1, dtype=torch.float64)
            steps = torch.stack([places * 0.6180339887498949, places * 0.4142135623730951])
            self._weights[flat.numel()] = (steps - steps.floor()) * 2 - 1
        size = float(flat.norm()) / math.sqrt(flat.numel())
        if size == 0 or not math.isfinite(size):
            return (0.0 if size == 0 else 1.0, 0.0, 0.0)
        first, second = (self._weights[flat.numel()] @ flat / (size * math.sqrt(flat.numel()))).tolist()
        return (round(math.log(size), DECIMALS), round(first, DECIMALS), round(second, DECIMALS))

    def _caller(self) -> Caller | None:
        """Return who calls an operator; None if it is the judge, and not what is observed."""
        frame = sys._getframe(2)  # noqa: SLF001 - the documented way to the frames below
        while frame is not None:
            code = frame.f_code
            if code not in self._places:
                self._places[code] = _place_of(code)
            place = self._places[code]
            if place == "user":
                return Caller(f"{code.co_filename}:{frame.f_lineno}", backward=False)
            if place == "backward":
                return Caller("", backward=True)
            if place == "observe":  # a module or function of torch itself
                return Caller("", backward=False)
            if place == "judge":
                return None
            frame = frame.f_back  # type: ignore[assignment]
        return Caller("", backward=True)  # a thread of autograd's


class Checksum:
    """Adds bytes to two checksums of 32 bits, one of each half; `form` is a text that counts, too.

    A change within 32 bits is never missed, any other that is not made on purpose once in 2 ** 32 times.
    """

    def __init__(self, form: str) -> None:
        self._halves = (zlib.crc32(form.encode()),) * 2

    def update(self, data: Any) -> None:
        """Add bytes: the first half of them to one checksum, the second to the other."""
        view = memoryview(data).cast("B")
        middle = len(view) // 2
        self._halves = (zlib.crc32(view[:middle], self._halves[0]), zlib.crc32(view[middle:], self._halves[1]))

    @property
    def text(self) -> str:
        """The two checksums as 16 hexadecimal digits."""
        return "".join(f"{half:08x}" for half in self._halves)


def sums_of_words(tensor: Any) -> list[Any]:
    """Return sums of a dense tensor's words of 64 bits, by rows and by columns, and the bytes that fill no row.

    The sums are exact, so that all devices give the same ones. They take a fraction of the time of a checksum. Where
    only one, two or three words differ, sums differ, too: more are missed if they are the corners of rectangles and
    cancel out in all their rows and columns. Rows have a prime length, so that those of the tensor are no rows here.
    """
    import torch

    octets = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    if octets.storage_offset() % WORD:
        octets = octets.clone()  # words begin at multiples of their size
    rows = octets.numel() // (WORD * WORDS_OF_A_ROW)
    end = rows * WORD * WORDS_OF_A_ROW
    words = octets[:end].view(torch.int64).view(rows, WORDS_OF_A_ROW)
    return [words.sum(1, dtype=torch.int64).cpu(), words.sum(0, dtype=torch.int64).cpu(), octets[end:].cpu()]


class Caller(NamedTuple):
    """Who calls an operator: a source line outside of torch, empty if there is none, or a backward."""

    line: str
    backward: bool


def _place_of(code: Any) -> str:
    """Return what a function is to an operator that it calls."""
    import torch

    file = code.co_filename
    if file.startswith(str(Path(torch.__file__).parent)):
        return "backward" if code.co_name == "backward" and file.endswith(_AUTOGRAD) else "torch"
    if not file.startswith(str(PACKAGE)):
        return "torch" if file.startswith("<") else "user"
    if file.endswith("recording.py"):
        return "torch"
    # A training calls the optimizer from its loop, and a digest from a function of its own.
    is_loop = file.endswith("drift/training.py") and code.co_name in ("_run", "_step")
    return "observe" if code.co_name == "observe" or is_loop else "judge"


_AUTOGRAD = "torch/autograd/__init__.py"


def _copied(value: Any) -> Any:
    import torch

    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _widened(value: Any) -> Any:
    import torch

    wide = isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
    return value.to(wide_dtype(value.dtype)) if wide else value


def _tensors(result: Any) -> list[Any]:
    import torch

    return [leaf.detach().cpu().clone() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]


_MODES: list[Any] = []


def _mode() -> Any:
    """Return the class of the mode; it is made once, when torch is there."""
    import torch

    if _MODES:
        return _MODES[0]

    class Watching(dispatch_mode()):  # type: ignore[misc]
        supports_higher_order_operators = True

        def __init__(self, watch: Watch) -> None:
            super().__init__()
            self.watch = watch
            self.not_composite: set[Any] = set()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if any(kind.__module__.startswith("torch._subclasses") for kind in types):
                return func(*args, **kwargs)  # a fake tensor has no numbers
            if any(kind not in (torch.Tensor, torch.nn.Parameter) for kind in types):
                return NotImplemented  # the subclass calls operators on the tensors that it wraps
            what = _what_it_does(func)
            if what == "nothing to note":
                return func(*args, **kwargs)
            if what == "allocates":
                return self.watch.unwritten(func(*args, **kwargs))
            if func not in self.not_composite:
                with self:  # under inference mode, operators that consist of others arrive whole
                    result = func.decompose(*args, **kwargs)
                if result is not NotImplemented:
                    return result
                self.not_composite.add(func)
            return self.watch.call(func, args, kwargs)

    _MODES.append(Watching)
    return Watching


_UNWRITTEN = ("aten::empty", "aten::new_empty")
"""Beginnings of the names of operators whose results nothing was written to: their elements mean nothing."""


@cache
def _what_it_does(func: Any) -> Literal["nothing to note", "allocates", "computes"]:
    schema = operator_schema(func)
    if schema is None or _only_views(schema):
        return "nothing to note"
    return "allocates" if schema.name.startswith(_UNWRITTEN) else "computes"


def _only_views(schema: Any) -> bool:
    """Whether all that an operator returns are views of what it takes."""
    returns = [result.alias_info for result in schema.returns]
    return bool(returns) and all(alias is not None and not alias.is_write for alias in returns)


# --- one operator on two sides ---------------------------------------------------------------------------------------


def compare_operators(old: dict[str, Any], new: dict[str, Any]) -> OperatorDifference | None:
    """Compare what one operator gave on two sides for the same inputs; None where the results have other forms."""
    import torch

    pairs = list(zip(old["outputs"], new["outputs"], strict=False))
    unequal = [number for number, pair in enumerate(pairs) if not torch.equal(*pair) or pair[0].dtype != pair[1].dtype]
    if not unequal or len(old["outputs"]) != len(new["outputs"]):
        return None
    number = unequal[0]
    first, second = pairs[number]
    if first.shape != second.shape or first.dtype != second.dtype:
        return None
    wide = wide_dtype(first.dtype) if first.is_floating_point() or first.is_complex() else torch.float64
    before, after = first.to(wide), second.to(wide)
    apart = torch.nan_to_num((before - after).abs(), nan=math.inf)
    apart = torch.where(first == second, torch.zeros_like(apart), apart)
    place = int(apart.reshape(-1).argmax())
    at = tuple(int(index) for index in _unravelled(place, first.shape))

    def sample(run: int) -> Snapshot | None:
        *runs, reference = old["noisy"] or [None]
        if not runs or reference is None:
            return None
        return snapshot_of(moved_tensor(first, runs[run % len(runs)][number], reference[number]))

    exact = None if old["exact"] is None else old["exact"][number].to(wide)
    errors = None
    if exact is not None and exact.shape == first.shape and exact.numel():
        largest = float(exact.abs().max()) or 1.0
        errors = (float((before - exact).abs().max()) / largest, float((after - exact).abs().max()) / largest)
    return OperatorDifference(
        rounding=explained(snapshot_of(first), snapshot_of(second), sample),
        digits=digits_between(first, second),
        elements=(int((first != second).sum()), first.numel()),
        old=f"{first.reshape(-1)[place].item():.9g}"
        if not first.is_complex()
        else str(first.reshape(-1)[place].item()),
        new=f"{second.reshape(-1)[place].item():.9g}"
        if not first.is_complex()
        else str(second.reshape(-1)[place].item()),
        at=at,
        errors=errors if errors is None or all(map(math.isfinite, errors)) else None,
    )


def _unravelled(place: int, shape: Any) -> list[int]:
    index: list[int] = []
    for size in reversed(tuple(shape)):
        index.insert(0, place % size)
        place //= size
    return index


def digits_between(first: Any, second: Any) -> float | None:
    """Return the decimal digits to which two tensors of one shape agree, relative to the size of the whole tensor."""
    import torch

    if first.shape != second.shape or not first.numel() or first.dtype == torch.bool:
        return None
    wide = torch.complex128 if first.is_complex() or second.is_complex() else torch.float64
    before, after = first.to(wide).reshape(-1), second.to(wide).reshape(-1)
    finite = torch.isfinite(before.abs()) & torch.isfinite(after.abs())
    size, apart = float(before[finite].norm()), float((before - after)[finite].norm())
    same_elsewhere = bool(((before == after) | (before.isnan() & after.isnan()))[~finite].all())
    if apart == 0 and same_elsewhere:
        return 16.0
    if size == 0 or not same_elsewhere:
        return 0.0
    return round(min(16.0, max(0.0, -math.log10(apart / size))), 2) if apart else 0.0


Watching = Callable[[], contextlib.AbstractContextManager[None]]
"""What `FreshCase` takes to observe a call inside."""
