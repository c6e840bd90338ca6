"""Effects that are easy to overlook: what calls make on first use, generators, earlier results, settings, depth."""

from __future__ import annotations

import collections
import functools
import io
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.judge.planting import Nothing, Run, plain, plants, tensors


def _own_function(run: Run) -> Any:
    """Return the function of the case, if it is of its own file and not of torch."""
    if run.function.__module__.partition(".")[0] == "torch":
        raise Nothing
    return run.function


def _lost(run: Run, owner: Any) -> Any:
    """Call, and remove the names that the call made in a namespace."""
    names = vars(owner) if not isinstance(owner, dict) else owner
    before = set(names)
    result = run.result()
    made = [name for name in set(names) - before if not name.startswith("__")]
    if not made:
        raise Nothing
    for name in made:
        if isinstance(owner, dict):
            del owner[name]
        else:
            delattr(owner, name)
    return result


@plants("created-global-lost", "mutation")
def global_lost(run: Run) -> Any:
    """A global variable that the call makes is lost."""
    return _lost(run, _own_function(run).__globals__)


@plants("created-function-attribute-lost", "mutation")
def function_attribute_lost(run: Run) -> Any:
    """An attribute of the function that the call makes is lost."""
    return _lost(run, _own_function(run))


@plants("created-class-attribute-lost", "mutation")
def class_attribute_lost(run: Run) -> Any:
    """An attribute that the call makes on a class of the file is lost."""
    function = _own_function(run)
    for name in function.__code__.co_names:
        kind = function.__globals__.get(name)
        if isinstance(kind, type) and kind.__module__ == function.__module__:
            return _lost(run, kind)
    raise Nothing


@plants("created-function-attribute", "mutation")
def function_attribute(run: Run) -> Any:
    """The call makes an attribute of the function."""
    function, result = _own_function(run), run.result()
    function.planted = 1
    return result


@plants("created-class-attribute", "mutation")
def class_attribute(run: Run) -> Any:
    """The call makes an attribute of the module's class."""
    kind, result = type(run.module), run.result()
    if kind.__module__.partition(".")[0] == "torch":
        raise Nothing
    kind.planted = 1
    return result


@plants("created-buffer", "mutation")
def buffer(run: Run) -> Any:
    """The call gives the module a buffer."""
    module, result = run.module, run.result()
    module.register_buffer("planted", torch.ones(1))
    return result


@plants("created-hook", "mutation")
def hook(run: Run) -> Any:
    """The call gives the module a hook that loses the result of later calls."""
    module, result = run.module, run.result()
    if result is None:
        raise Nothing
    module.register_forward_hook(lambda *_: "planted")
    return result


@plants("created-hook-without-effect", "mutation", level="note")
def idle_hook(run: Run) -> Any:
    """The call gives the module a hook that changes nothing, so that no later call shows it."""
    module, result = run.module, run.result()
    module.register_forward_pre_hook(lambda *_: None)
    return result


def _generators(values: Any) -> Iterator[tuple[Callable[[], Any], Callable[[Any], Any], Callable[[], Any]]]:
    """Yield, for each generator, what reads, writes and advances its state."""
    for value in values:
        if isinstance(value, torch.Generator):
            yield value.get_state, value.set_state, functools.partial(torch.rand, 1, generator=value)
        elif isinstance(value, random.Random):
            yield value.getstate, value.setstate, value.random
        elif type(value).__module__.startswith("numpy.random") and hasattr(value, "bit_generator"):
            bits = value.bit_generator
            yield functools.partial(getattr, bits, "state"), functools.partial(setattr, bits, "state"), value.random


def _plant_generator(run: Run, values: Any, index: int, *, lost: bool) -> Any:
    generators = list(_generators(values))
    if index >= len(generators):
        raise Nothing
    read, write, advance = generators[index]
    before = read()
    result = run.result()
    if not lost:
        advance()
    elif str(before) == str(read()) and not isinstance(before, torch.Tensor):
        raise Nothing
    else:
        write(before)
    return result


@plants("generator-of-torch-lost", "mutation")
def torch_lost(run: Run) -> Any:
    """A generator of torch that is an argument is not advanced."""
    return _plant_generator(run, run.args, 0, lost=True)


@plants("generator-of-python-lost", "mutation")
def python_lost(run: Run) -> Any:
    """A generator of Python that is an argument is not advanced."""
    return _plant_generator(run, run.args, 1, lost=True)


@plants("generator-of-numpy-lost", "mutation")
def numpy_lost(run: Run) -> Any:
    """A generator of numpy that is an argument is not advanced."""
    return _plant_generator(run, run.args, 2, lost=True)


@plants("generator-advanced", "mutation")
def advanced(run: Run) -> Any:
    """A generator that is an argument is advanced once more."""
    return _plant_generator(run, run.args, 0, lost=False)


@plants("generator-of-the-file-advanced", "mutation")
def global_advanced(run: Run) -> Any:
    """A generator that is a global variable is advanced once more."""
    function = _own_function(run)
    named = [function.__globals__.get(name) for name in function.__code__.co_names]
    return _plant_generator(run, named, 0, lost=False)


@plants("environment-variable-lost", "state", level="environment")
def variable_lost(run: Run) -> Any:
    """An environment variable that the call sets is lost."""
    before = dict(os.environ)
    result = run.result()
    changed = [name for name in os.environ if before.get(name) != os.environ[name]]
    if not changed:
        raise Nothing
    for name in changed:
        del os.environ[name]
    return result


def _writable(value: Any) -> list[torch.Tensor]:
    leaves = [leaf for leaf in tensors(value) if plain(leaf) and leaf.numel() and leaf.is_floating_point()]
    return [leaf for leaf in leaves if 0 not in leaf.stride() and bool(leaf.detach().isfinite().all())]


def _overwrite(run: Run, part: str, write: Callable[[torch.Tensor], Any]) -> Any:
    """Call, and write into a tensor of the call before."""
    result = run.result()
    earlier = run.memory.get(part)
    current = _writable(result if part == "result" else run.args)
    arguments = _writable(run.args)
    state = list(run.target.parameters()) if isinstance(run.target, torch.nn.Module) else []
    if current and not state:
        run.memory[part] = current[0]
    if earlier is None:
        raise Nothing
    in_use = {tensor.untyped_storage().data_ptr() for tensor in [*current, *arguments]}
    if earlier.untyped_storage().data_ptr() in in_use:
        raise Nothing
    write(earlier.detach())
    return result


@plants("earlier-result-zeroed", "mutation")
def result_zeroed(run: Run) -> Any:
    """A later call writes into an earlier result."""
    return _overwrite(run, "result", lambda tensor: tensor.add_(tensor.abs() + 1))


@plants("earlier-result-element", "mutation")
def result_element(run: Run) -> Any:
    """A later call writes into one element of an earlier result."""
    return _overwrite(run, "result", lambda tensor: tensor[(-1,) * tensor.dim()].sub_(tensor.abs().max() + 1))


@plants("earlier-result-nan", "mutation")
def result_nan(run: Run) -> Any:
    """A later call fills an earlier result with NaN."""
    return _overwrite(run, "result", lambda tensor: tensor.fill_(float("nan")))


@plants("earlier-argument-zeroed", "mutation")
def argument_zeroed(run: Run) -> Any:
    """A later call writes into an argument of an earlier call."""
    return _overwrite(run, "args", lambda tensor: tensor.add_(tensor.abs() + 1))


@plants("earlier-argument-nan", "mutation")
def argument_nan(run: Run) -> Any:
    """A later call fills an argument of an earlier call with NaN."""
    return _overwrite(run, "args", lambda tensor: tensor.fill_(float("nan")))


@plants("state-threads", "state")
def threads(run: Run) -> Any:
    """The call leaves another number of threads."""
    result = run.result()
    torch.set_num_threads(torch.get_num_threads() + 1)
    return result


class _Sees(TorchDispatchMode):  # type: ignore[misc]
    def __torch_dispatch__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class _SeesFunctions(TorchFunctionMode):  # type: ignore[misc]
    def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


@plants("state-dispatch-mode", "state")
def dispatch_mode(run: Run) -> Any:
    """The call leaves a mode that sees every operator."""
    result = run.result()
    _Sees().__enter__()
    return result


@plants("state-function-mode", "state")
def function_mode(run: Run) -> Any:
    """The call leaves a mode that sees every function of torch."""
    result = run.result()
    _SeesFunctions().__enter__()
    return result


@plants("state-denormals", "state")
def denormals(run: Run) -> Any:
    """The call leaves the smallest numbers flushed to zero."""
    result = run.result()
    torch.set_flush_denormal(True)
    return result


@plants("state-print-options", "state")
def print_options(run: Run) -> Any:
    """The call leaves other options of printing."""
    result = run.result()
    torch.set_printoptions(precision=7)
    return result


@plants("value-deep", "value")
def value_deep(run: Run) -> Any:
    """A tensor more than 12 containers deep has other elements."""
    result = value = run.result()
    depth = 0
    while isinstance(value, list) and value:
        depth, inner = depth + 1, value
        value = value[0]
    if depth <= 12 or not isinstance(value, torch.Tensor):
        raise Nothing
    inner[0] = value + 1
    return result


@plants("value-of-a-late-object", "value")
def value_late(run: Run) -> Any:
    """The last of more than a thousand objects has another attribute."""
    result = run.result()
    if not (isinstance(result, tuple) and len(result) > 1 and isinstance(result[1], list) and len(result[1]) > 1000):
        raise Nothing
    result[1][-1].number += 1
    return result


@plants("value-of-a-large-view", "value")
def value_view(run: Run) -> Any:
    """The one element of a large view is another."""
    result = run.result()
    if not isinstance(result, torch.Tensor) or result.numel() < 10**9 or result.stride() != (0,):
        raise Nothing
    return (result[:1] + 1).expand(result.shape)


@plants("alias-arguments-share", "alias")
def arguments_share(run: Run) -> Any:
    """Two arguments share memory afterwards."""
    leaves = [leaf for leaf in run.tensor_args() if not leaf.requires_grad and leaf.is_contiguous()]
    if len(leaves) < 2 or leaves[0].shape != leaves[1].shape or leaves[0].dtype != leaves[1].dtype:
        raise Nothing
    if leaves[0].data_ptr() == leaves[1].data_ptr():
        raise Nothing
    result = run.result()
    leaves[1].data.copy_(leaves[1])
    both = torch.stack([leaves[0].detach(), leaves[1].detach()])
    if not torch.equal(both[0], both[1]):
        raise Nothing
    leaves[1].data = leaves[0].data
    return result


@plants("alias-argument-moved", "alias")
def argument_moved(run: Run) -> Any:
    """An argument has other memory afterwards."""
    tensor = run.tensor_args()[0]
    before, result = tensor.untyped_storage().data_ptr(), run.result()
    if tensor.layout != torch.strided or not tensor.is_contiguous() or tensor.is_inference():
        raise Nothing
    if tensor.untyped_storage().data_ptr() != before:  # the call itself moves it
        raise Nothing
    tensor.data = tensor.data.clone()
    return result


@plants("metadata-index-dtype", "metadata")
def index_dtype(run: Run) -> Any:
    """The indices of a CSR matrix have another dtype."""
    result = run.result()
    if not isinstance(result, torch.Tensor) or result.layout != torch.sparse_csr:
        raise Nothing
    rows, columns = result.crow_indices().int(), result.col_indices().int()
    return torch.sparse_csr_tensor(rows, columns, result.values(), result.shape)


def _replaced(run: Run, kind: type, other: Callable[[Any], Any]) -> Any:
    result = run.result()
    if not isinstance(result, tuple) or not any(isinstance(value, kind) for value in result):
        raise Nothing
    return tuple(other(value) if isinstance(value, kind) else value for value in result)


@plants("value-of-a-memoryview", "value")
def memory(run: Run) -> Any:
    """A memoryview has other bytes."""
    return _replaced(run, memoryview, lambda value: memoryview(value.tobytes()[:-1] + b"!"))


@plants("value-of-a-stream", "value")
def stream(run: Run) -> Any:
    """A stream holds another text."""
    return _replaced(run, io.StringIO, lambda value: io.StringIO(value.getvalue() + "!"))


@plants("value-of-a-longest-deque", "value", "type")
def longest(run: Run) -> Any:
    """A deque may hold another number of items."""
    return _replaced(run, collections.deque, lambda value: collections.deque(value, maxlen=9))


@plants("output-warning", "output", level="output")
def warning(run: Run) -> Any:
    """The call warns of something."""
    result = run.result()
    warnings.warn("planted", UserWarning, stacklevel=1)
    return result


@plants("output-descriptor", "output", level="note")
def descriptor(run: Run) -> Any:
    """The call writes to the descriptor of standard output."""
    result = run.result()
    os.write(1, b"planted\n")
    return result


@plants("output-stderr", "output", level="output")
def standard_error(run: Run) -> Any:
    """The call prints to standard error."""
    result = run.result()
    print("planted", file=sys.stderr)
    return result


@plants("metadata-version", "metadata", level="note")
def version(run: Run) -> Any:
    """Autograd counts a change of an argument that did not change."""
    tensor = run.tensor_args()[0]
    if tensor.requires_grad or tensor.is_inference():
        raise Nothing
    counted = tensor._version + 1  # noqa: SLF001
    # Before the call: the backward refuses a tensor that changed after the call kept it, which is more than a note.
    torch._C._autograd._unsafe_set_version_counter((tensor,), (counted,))  # noqa: SLF001
    result = run.result()
    if tensor._version != counted:  # noqa: SLF001
        torch._C._autograd._unsafe_set_version_counter((tensor,), (tensor._version - 1,))  # noqa: SLF001
        raise Nothing
    return result
