"""Torch's own samples of its operators, which its wheel brings along for torch's tests ("OpInfo")."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import types
import unittest
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from recapture.torch_api.compat import pytree, seed_everything, tree_leaves

DATABASE = "torch.testing._internal.common_methods_invocations"
"""The module with the list of operators."""

TEST_BASE = "expecttest"
"""A package from whose one class torch derives its test cases, so that the samples cannot be imported without it."""

FIRST_SAMPLES = 24
"""Samples of an operator from which some are chosen; a few operators have thousands."""


class OperatorSample(NamedTuple):
    """The arguments of one call of an operator; the tensors that torch's tests differentiate require a gradient."""

    input: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def operator_entries() -> dict[str, Any]:
    """Return torch's entries for its operators by name, with the name of the variant where an operator has several.

    This imports a large part of torch, and some of its modules warn meanwhile.
    """
    if importlib.util.find_spec(TEST_BASE) is None:
        # Nothing of it is used but this base class of torch's test cases, of which none runs.
        stand_in = types.ModuleType(TEST_BASE)
        vars(stand_in)["TestCase"] = unittest.TestCase
        sys.modules[TEST_BASE] = stand_in
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = importlib.import_module(DATABASE)
    names = [(f"{entry.name}.{entry.variant_test_name}".rstrip("."), entry) for entry in module.op_db]
    return dict(names)


def sampled_dtype(entry: Any, device: str, wanted: str) -> Any:
    """Return the dtype in which an operator is sampled: the wanted one, else another; None if there is none here."""
    import torch

    supported = entry.supported_dtypes(device)
    preferred = (wanted, "float32", "int64", "bool", "complex64", "float64")
    dtypes = [getattr(torch, name) for name in preferred]
    return next((dtype for dtype in dtypes if dtype in supported), None)


def samples_of(entry: Any, device: str, dtype: Any) -> Iterator[OperatorSample]:
    """Yield the first samples of an operator; they depend on the seeds of torch's and Python's generators."""
    grad = bool(entry.supports_autograd) and (dtype.is_floating_point or dtype.is_complex)
    for sample in islice(entry.sample_inputs(device, dtype, requires_grad=grad), FIRST_SAMPLES):
        yield OperatorSample(sample.input, tuple(sample.args), dict(sample.kwargs))


def in_place_name(entry: Any) -> str | None:
    """Return the name of the method that does the operator's work in place; None if it has none."""
    name = getattr(getattr(entry, "inplace_variant", None), "__name__", None)
    return name if isinstance(name, str) and name.endswith("_") else None


def own_result(entry: Any, sample: OperatorSample) -> Any:
    """Return what torch's tests get by calling the operator with a sample."""
    return entry.op(sample.input, *sample.args, **sample.kwargs)


def returns_unwritten(entry: Any, sample: OperatorSample) -> bool:
    """Whether an operator returns a tensor with memory that nothing has written.

    On request, torch fills such memory with NaN, or the largest integer. If that shows in the result, and not without
    the request, the memory was not written. Releases before 2.2 cannot be asked, and the answer is no.
    """
    import torch

    switch = getattr(torch.utils, "deterministic", None)
    if switch is None:
        return False
    was_on = torch.are_deterministic_algorithms_enabled()
    warned_only = torch.is_deterministic_algorithms_warn_only_enabled()
    results = []
    for fill in (False, True):
        copies = pytree().tree_map(_copied, sample)
        seed_everything()
        torch.use_deterministic_algorithms(fill, warn_only=True)
        try:
            results.append(tree_leaves(own_result(entry, copies)))
        except Exception:
            return False
        finally:
            torch.use_deterministic_algorithms(was_on, warn_only=warned_only)
    plain, filled = results
    answer = any(map(_shows_fill, plain, filled))
    for leaf in filled:  # the memory is used again, and must not look as if it were filled then
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
            leaf.untyped_storage().fill_(0)
    return answer


def _copied(value: Any) -> Any:
    import torch

    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _shows_fill(plain: Any, filled: Any) -> bool:
    """Whether a tensor has the value that torch fills memory with, in a place where the same call had another one."""
    import torch

    if not isinstance(plain, torch.Tensor) or plain.layout is not torch.strided or plain.shape != filled.shape:
        return False
    if plain.dtype.is_floating_point or plain.dtype.is_complex:
        return bool((filled.isnan() & ~plain.isnan()).any())
    largest = 1 if plain.dtype is torch.bool else torch.iinfo(plain.dtype).max
    return bool(((filled == largest) & (plain != largest)).any())


def excused_tests(entry: Any, device: str, dtype: Any) -> list[str]:
    """Return torch's own tests that it skips, or expects to fail, for an operator: ``TestJit.test_name``.

    A test without a class or a name stands for all: ``TestJit.*``.
    """
    excused = []
    for mark in (*entry.decorators, *entry.skips):
        applies = getattr(mark, "device_type", None) in (None, device)
        dtypes = getattr(mark, "dtypes", None)
        applies = applies and (dtypes is None or dtype in dtypes) and getattr(mark, "active_if", True)
        if applies and any(map(_excuses, getattr(mark, "decorators", ()))):
            excused.append(f"{mark.cls_name or '*'}.{mark.test_name or '*'}")
    return list(dict.fromkeys(excused))


def _excuses(decorator: Any) -> bool:
    """Whether a decorator of a test skips it, or expects it to fail; others widen its tolerances."""
    name = getattr(decorator, "__qualname__", "")
    return decorator is unittest.expectedFailure or name.startswith(("skip", "_skip", "expectedFailure"))


@contextlib.contextmanager
def quiet_samples() -> Iterator[None]:
    """Leave out the warnings of operators that are called only to see whether they take a sample."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
