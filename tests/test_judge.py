"""Two observations of real calls, and what the judge makes of them."""

import collections
import dataclasses
import enum
import functools
import itertools
import logging
import math
import os
import random
import sys
import warnings
from typing import NamedTuple

import numpy as np
import pytest
import torch

from recapture.conformance.judge import Rules, compare
from recapture.conformance.observe import Surroundings, folder_of_torch, observe_call
from recapture.conformance.reachable import Reachable


def seen(function, *args, label="example", **around):
    return observe_call(function, label, lambda: args, Surroundings(**around))


def strict(*names):
    return Rules(strict=frozenset(names))


def texts(differences):
    return [f"{one.where} {one.kind}: {one.detail}" for one in differences]


def verdict(eager, other, **more):
    """The comparison of two values, each returned by a call."""
    return compare(seen(lambda: eager), seen(lambda: other), **more)


def kinds(eager, other, **more):
    return [(one.where, one.kind) for one in verdict(eager, other, **more).differences]


class Point(NamedTuple):
    x: int
    y: int


class Other(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Box:
    content: object
    label: str = "a"


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


class Plain:
    def __init__(self, **attributes):
        vars(self).update(attributes)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


def cycle(value):
    out = [value]
    out.append(out)
    return out


def altered(module):
    module.running_mean.add_(1)
    return module


EQUAL = {
    "None": (None, None),
    "tensors": (torch.ones(3), torch.ones(3)),
    "NaN": (torch.tensor([math.nan, 1.0]), torch.tensor([math.nan, 1.0])),
    "infinities": (torch.tensor([math.inf, -math.inf]), torch.tensor([math.inf, -math.inf])),
    "minus zero": (torch.tensor([-0.0]), torch.tensor([0.0])),
    "rounding": (torch.tensor([1.0]), torch.tensor([1.0 + 1e-6])),
    "half rounding": (torch.tensor([1.0]).half(), torch.tensor([1.0 + 2**-10]).half()),
    "bfloat16 rounding": (torch.tensor([1.0]).bfloat16(), torch.tensor([1.0 + 2**-7]).bfloat16()),
    "empty tensors": (torch.empty(0, 3), torch.empty(0, 3)),
    "0-d tensors": (torch.tensor(2.0), torch.tensor(2.0)),
    "complex NaN": (torch.tensor([complex(math.nan, 1)]), torch.tensor([complex(math.nan, 1)])),
    "sparse tensors": (torch.eye(3).to_sparse(), torch.eye(3).to_sparse()),
    "floats": (0.1 + 0.2, 0.3),
    "NaN floats": (math.nan, math.nan),
    "infinite floats": (math.inf, math.inf),
    "complex numbers": (1j, 1j + 1e-9),
    "dicts in another order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "sets": ({3, 1, 2}, {2, 3, 1}),
    "dataclasses": (Box(torch.ones(2)), Box(torch.ones(2))),
    "namedtuples": (Point(1, 2), Point(1, 2)),
    "enum members": (Colour.RED, Colour.RED),
    "sizes": (torch.Size([1, 2]), torch.Size([1, 2])),
    "dtypes": (torch.float16, torch.float16),
    "cycles": (cycle(1), cycle(1)),
    "arrays of strings": (np.array([["a", "b"]]), np.array([["a", "b"]])),
    "arrays of another byte order": (np.arange(3, dtype=">i4"), np.arange(3, dtype=">i4")),
    "reversed arrays": (np.arange(3)[::-1], np.array([2, 1, 0])),
    "plain objects": (Plain(a=[torch.ones(1)]), Plain(a=[torch.ones(1)])),
    "functions": (lambda: 1, lambda: 2),  # nothing but their type can be told
    "meta tensors": (torch.ones(2, device="meta"), torch.ones(2, device="meta")),
    "float8": (torch.ones(2).to(torch.float8_e4m3fn), torch.ones(2).to(torch.float8_e4m3fn)),
    "modules": (torch.nn.BatchNorm1d(1), torch.nn.BatchNorm1d(1)),
    "a 0-d tensor of bits": (
        torch.tensor(1, dtype=torch.int16).view(torch.bits16),
        torch.tensor(1, dtype=torch.int16).view(torch.bits16),
    ),
    "types that no arithmetic has": (
        torch.tensor([1], dtype=torch.uint8).view(torch.bits8),
        torch.tensor([1], dtype=torch.uint8).view(torch.bits8),
    ),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal(name):
    assert kinds(*EQUAL[name]) == []


DIFFERENT = {
    "a shape that broadcasts": (torch.ones(3), torch.ones(1, 3), "result", "shape"),
    "one element and none": (torch.ones(1), torch.tensor(1.0), "result", "shape"),
    "empty tensors of two shapes": (torch.empty(0, 3), torch.empty(0, 4), "result", "shape"),
    "a dtype": (torch.ones(3), torch.ones(3).double(), "result", "dtype"),
    "a dtype of equal integers": (torch.ones(3).int(), torch.ones(3).long(), "result", "dtype"),
    "a Parameter": (torch.nn.Parameter(torch.ones(3)), torch.ones(3), "result", "type"),
    "list and tuple": ([1], (1,), "result", "type"),
    "namedtuple and tuple": (Point(1, 2), (1, 2), "result", "type"),
    "two namedtuples": (Point(1, 2), Other(1, 2), "result", "type"),
    "torch's own namedtuple": (torch.ones(2, 2).max(0), tuple(torch.ones(2, 2).max(0)), "result", "type"),
    "Size and tuple": (torch.Size([1]), (1,), "result", "type"),
    "bool and int": (True, 1, "result", "type"),
    "int and float": (1, 1.0, "result", "type"),
    "numpy's float and Python's": (np.float64(1), 1.0, "result", "type"),
    "a number and its tensor": (1.0, torch.tensor(1.0), "result", "type"),
    "array and tensor": (np.ones(2), torch.ones(2).double(), "result", "type"),
    "OrderedDict and dict": (collections.OrderedDict(a=1), {"a": 1}, "result", "type"),
    "None and a value": (None, 0, "result", "type"),
    "an int off by one": (2**60, 2**60 + 1, "result", "value"),
    "an integer tensor off by one": (torch.tensor([2**60]), torch.tensor([2**60 + 1]), "result", "value"),
    "uint64": (torch.tensor([1]).to(torch.uint64), torch.tensor([2]).to(torch.uint64), "result", "value"),
    "a float": (1.0, 1.001, "result", "value"),
    "a string": ("a", "b", "result", "value"),
    "float32 beyond rounding": (torch.tensor([1.0]), torch.tensor([1.0001]), "result", "value"),
    "float64 beyond rounding": (torch.ones(1).double(), torch.ones(1).double() + 1e-6, "result", "value"),
    "half beyond rounding": (torch.tensor([1.0]).half(), torch.tensor([1.01]).half(), "result", "value"),
    "bfloat16 beyond rounding": (torch.tensor([1.0]).bfloat16(), torch.tensor([1.05]).bfloat16(), "result", "value"),
    "NaN and a number": (torch.tensor([math.nan]), torch.tensor([0.0]), "result", "value"),
    "infinity and a number": (torch.tensor([math.inf]), torch.tensor([3.4e38]), "result", "value"),
    "two infinities": (torch.tensor([math.inf]), torch.tensor([-math.inf]), "result", "value"),
    "the imaginary part": (torch.tensor([1 + 1j]), torch.tensor([1 + 2j]), "result", "value"),
    "an infinite real part": (torch.tensor([complex(math.inf, 1)]), torch.tensor([complex(math.inf, 2)]), "result", "value"),
    "a layout": (torch.eye(2).to_sparse(), torch.eye(2), "result", "type"),
    "a sparse value": (torch.eye(2).to_sparse(), (2 * torch.eye(2)).to_sparse(), "result", "value"),
    "a device": (torch.ones(2), torch.ones(2, device="meta"), "result", "metadata"),
    "a length": ([1, 2], [1], "result", "type"),
    "keys": ({"a": 1}, {"b": 1}, "result", "type"),
    "the type of a key": ({1: 1}, {True: 1}, "result", "type"),
    "the order of an OrderedDict": (
        collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1), "result", "type"
    ),
    "a set": ({1, 2}, {1, 3}, "result[1]", "value"),
    "deep inside": ({"a": [1, (2, torch.ones(1))]}, {"a": [1, (2, torch.zeros(1))]}, "result['a'][1][1]", "value"),
    "a dataclass's field": (Box(1), Box(2), "result.content", "value"),
    "a namedtuple's field": (Point(1, 2), Point(1, 3), "result.y", "value"),
    "an object's attribute": (Plain(a=1), Plain(a=2), "result.a", "value"),
    "a slot": (Slotted(1), Slotted(2), "result.a", "value"),
    "an attribute that is missing": (Plain(a=1), Plain(), "result", "type"),
    "an enum member": (Colour.RED, Colour.BLUE, "result", "value"),
    "an enum member and its value": (Level.LOW, 1, "result", "type"),
    "behind a cycle": (cycle(1), cycle(2), "result[0]", "value"),
    "a dtype as a value": (torch.float16, torch.float32, "result", "value"),
    "an array of strings": (np.array(["a", "b"]), np.array(["a", "c"]), "result[1]", "value"),
    "the shape of an array of strings": (np.array([["a"]]), np.array(["a"]), "result", "type"),
    "numpy's dtype": (np.ones(1, "f4"), np.ones(1, "f8"), "result", "dtype"),
    "another byte order": (np.arange(3, dtype=">i4"), np.arange(1, 4, dtype=">i4"), "result[0]", "value"),
    "numpy's mask": (np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 2], mask=[0, 0]), "result.mask", "value"),
    "a date": (np.datetime64("2020-01-01"), np.datetime64("2020-01-02"), "result", "value"),
    "bytes that change": (bytearray(b"a"), bytearray(b"b"), "result", "value"),
    "a returned exception": (ValueError("a"), ValueError("b"), "result.args[0]", "value"),
    "bits of two bytes": (
        torch.tensor([1, 2], dtype=torch.int16).view(torch.bits16),
        torch.tensor([1, 3], dtype=torch.int16).view(torch.bits16),
        "result",
        "value",
    ),
    "a 0-d tensor of bits": (
        torch.tensor(1, dtype=torch.int16).view(torch.bits16),
        torch.tensor(2, dtype=torch.int16).view(torch.bits16),
        "result",
        "value",
    ),
    "a module's state": (torch.nn.BatchNorm1d(1), altered(torch.nn.BatchNorm1d(1)), "result['running_mean']", "value"),
    "bits": (
        torch.tensor([1], dtype=torch.uint8).view(torch.bits8),
        torch.tensor([2], dtype=torch.uint8).view(torch.bits8),
        "result",
        "value",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_both_ways(name):
    eager, other, where, kind = DIFFERENT[name]
    assert kinds(eager, other)[0] == (where, kind)
    assert kinds(other, eager)[0][1] == kind


class MyArray(np.ndarray):
    pass


def test_a_subclass_of_an_array_is_compared_by_its_values():
    eager, other = np.ones(2).view(MyArray), np.zeros(2).view(MyArray)
    assert kinds(eager, eager) == []
    assert kinds(eager, other) == [("result", "value")]


def test_objects_without_readable_keys_or_order_are_compared_without_addresses():
    eager, other = {Plain(): 1}, {Plain(): 2}
    assert kinds(eager, {Plain(): 1}) == []
    assert kinds(eager, other) == [("result[item 0]", "value")]
    assert kinds({Plain(), Plain(a=1)}, {Plain(a=2), Plain()}) == []  # only their number and types can be told
    assert kinds({Plain()}, {Slotted(1)})[0][1] == "value"


def test_keys_in_another_order_are_noted():
    eager, other = {"a": 1, "b": 2}, {"b": 2, "a": 1}
    assert texts(verdict(eager, other).notes) == ["result metadata: keys in another order than in eager"]
    assert texts(verdict(eager, other, rules=strict("order")).differences) == texts(verdict(eager, other).notes)


def test_a_default_factory_is_noted():
    notes = verdict(collections.defaultdict(int), collections.defaultdict(list)).notes
    assert texts(notes) == ["result metadata: default factory <class 'int'> in eager, <class 'list'> here"]


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_compressed_sparse_rows_are_compared_by_value():
    eager, other = torch.eye(3).to_sparse_csr(), (2 * torch.eye(3)).to_sparse_csr()
    assert kinds(eager, torch.eye(3).to_sparse_csr()) == []
    assert kinds(eager, other) == [("result", "value")]


def test_a_jagged_tensor_is_compared_by_its_parts():
    parts = [torch.ones(2), torch.ones(3)]
    eager = torch.nested.nested_tensor(parts, layout=torch.jagged)
    assert kinds(eager, torch.nested.nested_tensor(parts, layout=torch.jagged)) == []
    parts[1] = torch.zeros(3)
    other = torch.nested.nested_tensor(parts, layout=torch.jagged)
    assert kinds(eager, other) == [("result[1]", "value")]


# --- details --------------------------------------------------------------------------------------------------------


def test_the_place_shown_is_one_where_the_difference_matters():
    eager = torch.zeros(1000) + 1
    other = eager + 1e-7  # rounding everywhere
    other[7] = 3
    (difference,) = verdict(eager, other).differences
    assert difference.detail == "1 of 1000 elements differ: eager 1, this 3 at [7]"


def test_figures_have_the_digits_that_distinguish_them():
    (difference,) = verdict(torch.tensor(1.0), torch.tensor(1.00002)).differences
    assert difference.detail == "value differs: eager 1, this 1.00002"
    (difference,) = verdict("a" * 90 + "b", "a" * 90 + "c").differences
    assert difference.detail.endswith("c'")


def test_the_number_of_differing_elements_is_reported_for_types_without_arithmetic():
    eager, other = (torch.tensor([1, 2, last], dtype=torch.int16).view(torch.bits16) for last in (3, 4))
    assert [one.detail for one in verdict(eager, other).differences] == ["1 of 3 elements differ"]


def test_names_that_are_not_utf_8_are_reported_as_escapes():
    found = verdict(Plain(**{"a\udce9": 1}), Plain(**{"a\udce9": 2}))
    assert [one.where for one in found.differences] == ["result.a\\udce9"]
    found = verdict(Plain(**{"a\udce9": torch.ones(2, 2)}), Plain(**{"a\udce9": torch.ones(2, 2).t()}))
    assert texts(found.notes) == ["result.a\\udce9 metadata: stride (2, 1) in eager, (1, 2) here"]


def test_figures_can_be_left_out():
    for eager, other in [(torch.ones(2), torch.zeros(2)), (1.5, 2.5), ("a", "b")]:
        (difference,) = verdict(eager, other, rules=Rules(show_values=False)).differences
        assert difference.detail == "value differs"


# --- exceptions and side effects ------------------------------------------------------------------------------------


def fails(*_):
    raise ValueError("x")


def test_returning_where_eager_raises_is_a_difference():
    found = compare(seen(fails), seen(lambda: 1))
    assert [(one.where, one.kind, one.detail) for one in found.differences] == [
        ("result", "exception", "eager raises ValueError, this returned")
    ]


def test_exceptions_on_both_sides_are_for_the_caller_to_weigh():
    assert compare(seen(fails), seen(fails)).differences == []
    assert compare(seen(lambda: 1), seen(fails)).differences == []


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: [1], lambda x: x.append(2)),
        (lambda: {"a": [1]}, lambda x: x["a"].append(2)),
        (lambda: {"a": 1}, lambda x: x.update(b=1)),
        (lambda: torch.ones(2), lambda x: x.add_(1)),
        (lambda: [torch.ones(2)], lambda x: x[0].zero_()),
        (lambda: torch.ones(2), lambda x: x.resize_(3)),
        (lambda: Plain(a=1), lambda x: setattr(x, "a", 2)),
        (lambda: torch.nn.BatchNorm1d(1), altered),
        (lambda: np.ones(2), lambda x: x.fill(3)),
        (lambda: torch.ones(2, requires_grad=True), lambda x: x.sum().backward()),
    ],
)
def test_a_mutation_of_an_argument_is_a_difference(make, change):
    def mutates(x):
        change(x)

    def forgets(x):
        pass

    eager, other = (
        observe_call(mutates, "example", lambda: (make(),)),
        observe_call(forgets, "example", lambda: (make(),)),
    )
    for found in (compare(eager, other), compare(other, eager)):
        assert [one.kind for one in found.differences] == ["mutation"]
        assert found.differences[0].where.startswith("args[0]")
    assert compare(eager, eager).differences == []


def test_the_state_of_a_module_is_compared():
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.zeros(1))
            self.register_buffer("cache", torch.zeros(1), persistent=False)
            self.weight = torch.nn.Parameter(torch.ones(1))
            self.calls = 0

    def run(change):
        module = Counts()
        return seen(lambda: change(module), reachable=Reachable(module))

    still = run(lambda module: None)
    assert compare(still, run(lambda module: None)).differences == []
    for change, where in (
        (lambda module: module.kept.add_(1) and None, "state['kept']"),
        (lambda module: module.cache.add_(1) and None, "state['cache']"),
        (lambda module: (module.weight * 2).backward(), "state['weight'].grad"),
        (lambda module: setattr(module, "calls", 1), "state.calls"),
        (lambda module: setattr(module, "last", 1), "state.last"),
        (lambda module: delattr(module, "calls"), "state.calls"),
        (lambda module: module.eval() and None, "state.training"),
    ):
        (difference,) = compare(run(change), still).differences
        assert (difference.where, difference.kind) == (where, "mutation")


def test_what_is_watched_is_compared():
    eager, other = seen(lambda: 0, watch=lambda: [1]), seen(lambda: 0, watch=lambda: [2])
    assert [(one.where, one.kind) for one in compare(eager, other).differences] == [("watched[0]", "mutation")]
    assert compare(eager, eager).differences == []


def test_a_watch_may_take_the_target_and_the_result():
    eager, other = (seen(lambda: 3, target=number, watch=lambda target, result: target + result) for number in (1, 2))
    assert texts(compare(eager, other).differences) == ["watched mutation: eager 4, this 5"]


def test_what_is_printed_is_noted_and_a_case_may_be_strict_about_it():
    eager, other = seen(lambda: print("a")), seen(lambda: print("b"))
    expected = ["output output: eager printed 'a\\n', this printed 'b\\n'"]
    assert texts(compare(eager, other).notes) == expected
    assert texts(compare(eager, other, rules=strict("output")).differences) == expected


def test_warnings_and_log_messages_are_output_where_a_case_is_strict_about_it():
    def speaks(order):
        for speak in order:
            speak()

    speeches = [
        lambda: warnings.warn("w", UserWarning, stacklevel=1),
        lambda: logging.getLogger("x").warning("l"),
        lambda: print("e", file=sys.stderr),
        lambda: warnings.warn_explicit("torch's own", UserWarning, str(folder_of_torch() / "module.py"), 1),
    ]
    warnings.simplefilter("always")
    eager, other = (seen(lambda order=order: speaks(order), all_output=True) for order in (speeches, speeches[::-1]))
    assert eager.output == "UserWarning: w\nWARNING x: l\ne\n"
    assert [one.kind for one in compare(eager, other, rules=strict("output")).differences] == ["output"]


def test_a_grad_mode_or_default_dtype_left_behind_is_a_difference():
    def leaks():
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)

    found = compare(seen(lambda: None), seen(leaks))
    assert [(one.where, one.kind) for one in found.differences] == [
        ("torch.grad_enabled", "state"),
        ("torch.default_dtype", "state"),
    ]
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize(
    ("name", "leak", "undone"),
    [
        ("default_device", lambda: torch.set_default_device("meta"), lambda: torch.ones(1).device.type == "cpu"),
        (
            "deterministic_algorithms",
            lambda: torch.use_deterministic_algorithms(True),
            lambda: not torch.are_deterministic_algorithms_enabled(),
        ),
        (
            "float32_matmul_precision",
            lambda: torch.set_float32_matmul_precision("medium"),
            lambda: torch.get_float32_matmul_precision() == "highest",
        ),
        (
            "autocast_cpu",
            lambda: torch.set_autocast_enabled("cpu", True),
            lambda: not torch.is_autocast_enabled("cpu"),
        ),
    ],
)
def test_a_setting_left_behind_is_a_difference_and_is_set_back(name, leak, undone):
    found = compare(seen(lambda: None), seen(lambda: leak() and None))
    assert [(one.where, one.kind) for one in found.differences] == [(f"torch.{name}", "state")]
    assert undone()


def test_the_state_of_random_generators_and_the_environment_are_noted():
    def draws():
        torch.rand(1)
        random.random()
        np.random.rand()  # noqa: NPY002
        os.environ["RECAPTURE_PLANTED"] = "1"

    try:
        found = compare(seen(lambda: None), seen(draws))
    finally:
        os.environ.pop("RECAPTURE_PLANTED", None)
    assert found.differences == []
    assert [(one.where, one.kind) for one in found.notes] == [
        ("random_state.torch", "state"),
        ("random_state.random", "state"),
        ("random_state.numpy.random", "state"),
        ("environ['RECAPTURE_PLANTED']", "state"),
    ]
    assert len(compare(seen(lambda: None), seen(draws), rules=strict("random_state")).differences) == 3


def test_strides_are_noted_and_a_case_may_be_strict_about_them():
    eager, other = torch.ones(2, 3).t(), torch.ones(3, 2)
    expected = ["result metadata: stride (1, 3) in eager, (2, 1) here"]
    assert texts(verdict(eager, other).notes) == expected
    assert texts(verdict(eager, other, rules=strict("stride")).differences) == expected


def test_the_sign_of_zero_and_the_bits_of_nan_are_noted():
    nans = [torch.tensor([bits], dtype=torch.int32).view(torch.float32) for bits in (0x7FC00000, 0x7FC00001)]
    for eager, other, name in [(0.0, -0.0, "signed-zero"), (*nans, "nan-payload")]:
        (note,) = verdict(eager, other).notes
        assert (note.kind, note.bits) == ("value", name)
        assert verdict(eager, other).differences == []
        assert verdict(eager, other, rules=strict(name.replace("-", "_"))).differences == [note]


def test_how_far_values_are_apart_is_recorded():
    (difference,) = verdict(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 3.0 + 3 * 2**-15])).differences
    assert (difference.bits, difference.ulps, difference.elements) == ("value", 380, (1, 3))


def test_metadata_of_a_result_is_compared():
    quantized = [torch.quantize_per_tensor(torch.zeros(2), scale, 0, torch.qint8) for scale in (0.1, 0.2)]
    named = [torch.ones(1), torch.ones(1)]
    named[0].label = "a"
    complex_numbers = torch.ones(2, dtype=torch.complex64)
    with torch.inference_mode():
        made = torch.ones(1)
    for eager, other, where in [
        (torch.ones(1, requires_grad=True) * 1, torch.ones(1), "result"),
        (*quantized, "result.q_scale()"),
        (*named, "result.label"),
        (complex_numbers, complex_numbers.conj(), "result"),
        (torch.ones(1), made, "result"),
        (torch.ones(1, requires_grad=True) * 1, torch.ones(1, requires_grad=True), "result"),
    ]:
        assert [(one.where, one.kind) for one in verdict(eager, other).differences if one.kind != "gradient"] == [
            (where, "metadata")
        ]


def test_an_exception_of_a_subclass_and_another_message_are_noted():
    def raises(error):
        def fails():
            raise error

        return seen(fails)

    found = compare(raises(LookupError("a")), raises(KeyError("b")))
    assert found.differences == []
    assert texts(found.notes) == [
        "result exception: eager raises LookupError, this its subclass KeyError",
        "result exception: eager's message 'a', this \"'b'\"",
    ]
    found = compare(raises(ValueError("a")), raises(ValueError("b")), rules=strict("message"))
    assert [one.kind for one in found.differences] == ["exception"]


# --- memory ---------------------------------------------------------------------------------------------------------


ALIASES = {
    "an argument returned as a copy": (lambda x, y: x, lambda x, y: x.clone(), "args[0] in eager, not here"),
    "a copy returned as a view": (lambda x, y: x + 0, lambda x, y: x[:], "args[0] here, not in eager"),
    "a transposed view": (lambda x, y: x.t(), lambda x, y: x.t().clone(), "args[0] in eager, not here"),
    "two results that were one": (
        lambda x, y: (x + 1,) * 2,
        lambda x, y: (x + 1, x + 1),
        "result[1] in eager, not here",
    ),
    "two results that became one": (
        lambda x, y: (x + 1, x + 1),
        lambda x, y: (x + 1,) * 2,
        "result[1] here, not in eager",
    ),
    "an array of a tensor": (lambda x, y: x.numpy(), lambda x, y: x.numpy().copy(), "args[0] in eager, not here"),
}


@pytest.mark.parametrize("name", ALIASES)
def test_memory_shared_on_one_side_only_is_a_difference(name):
    eager, other, expected = ALIASES[name]
    found = compare(*(seen(one, torch.ones(2, 2), torch.ones(2, 2)) for one in (eager, other)))
    assert [(one.kind, one.detail) for one in found.differences] == [("alias", f"shares memory with {expected}")]
    for one in (eager, other):
        both = [seen(one, torch.ones(2, 2), torch.ones(2, 2)) for _ in range(2)]
        assert compare(*both).differences == []


def test_views_of_one_storage_without_a_common_element_are_no_aliases():
    def halves(x):
        return x[::2], x[1::2]

    assert seen(halves, torch.ones(4)).aliases == {("result[0]", "args[0]"), ("result[1]", "args[0]")}


def test_a_buffer_that_the_next_call_returns_again_is_a_difference():
    static = torch.ones(2)
    keeps, renews = {}, {}
    for label in ("example", "held_out[0]"):
        eager = seen(lambda: torch.ones(2), label=label, earlier=renews)
        other = seen(lambda: static, label=label, earlier=keeps)
        found = compare(eager, other)
    assert texts(found.differences) == ["result alias: shares memory with example: result here, not in eager"]


def test_a_write_outside_a_view_is_a_mutation():
    def writes(x):
        x._base[0] = 7

    def run(call):
        return observe_call(call, "example", lambda: (torch.zeros(4)[1:3],))

    found = compare(run(lambda x: None), run(writes))
    assert [(one.where, one.kind) for one in found.differences] == [("args[0]", "mutation")]
    assert compare(run(writes), run(writes)).differences == []


# --- gradients ------------------------------------------------------------------------------------------------------


def graded(function, **around):
    return observe_call(
        function, "example", lambda: (torch.arange(1.0, 4, requires_grad=True),), Surroundings(**around)
    )


def partly(x):
    with torch.no_grad():
        y = x * 2
    return x * y


GRADIENTS = {
    "a region without gradients": (partly, lambda x: x * (x * 2)),
    "a gradient by a factor": (lambda x: x * 2, lambda x: x.detach() + x),
    "a hook": (lambda x: doubled_gradient(x * 1), lambda x: x * 1),
}


def doubled_gradient(x):
    x.register_hook(lambda gradient: gradient * 2)
    return x


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_wrong_gradient_is_a_difference(name):
    eager, other = GRADIENTS[name]
    found = compare(graded(eager), graded(other)).differences
    assert ("gradients.args[0]", "gradient") in [(one.where, one.kind) for one in found]
    assert compare(graded(eager), graded(eager)).differences == []


def test_a_gradient_of_none_is_no_gradient_of_zeros():
    eager, other = graded(lambda x: x.detach() * 0 + 1), graded(lambda x: x * 0 + 1)
    assert ("result", "metadata") in [(one.where, one.kind) for one in compare(eager, other).differences]
    parameter = torch.ones(1, requires_grad=True)
    eager, other = graded(lambda x: parameter * 1), graded(lambda x: parameter * 1 + 0 * x.sum())
    found = compare(eager, other)
    assert texts(found.notes) == ["gradients.args[0] gradient: zeros here, None on the other side"]


def test_gradients_leave_no_trace():
    x = torch.ones(2, requires_grad=True)
    x.grad = torch.full((2,), 5.0)
    one = observe_call(lambda x: x * 2, "example", lambda: (x,))
    assert x.grad.tolist() == [5, 5]
    assert one.gradients.children[0][1].tensor.data.tolist() == pytest.approx([3, 2 + math.cos(1)])


def test_gradients_are_notes_for_compilers_without_them_and_are_left_out_where_a_case_says_so():
    eager, other = graded(lambda x: x * 2), graded(lambda x: x.detach() * 2)
    found = compare(eager, other, rules=Rules(inference_only=True))
    assert found.differences == []
    assert {one.kind for one in found.notes} == {"metadata", "gradient"}
    assert graded(lambda x: x * 2, backward=False).gradients is None


def test_a_backward_that_raises_on_one_side_only():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("no")

    eager, other = graded(Fails.apply), graded(lambda x: x * 2)
    assert eager.backward.type == "ValueError"
    assert texts(compare(eager, other).differences) == [
        "backward gradient: eager's backward raises ValueError, this returned"
    ]
    assert compare(eager, eager).differences == []


def test_a_value_that_only_one_side_could_describe_is_a_difference():
    class Sometimes:
        def __init__(self, fails):
            self.fails = fails

        @property
        def __dict__(self):
            if object.__getattribute__(self, "fails"):
                raise RuntimeError
            return {"a": 1}

    assert kinds(Sometimes(False), Sometimes(True)) != []


class Holder:
    """Can be called, and holds something."""

    def __init__(self, value):
        self.value = value

    def __call__(self):
        return self.value


@pytest.mark.parametrize(
    "made",
    [
        lambda v: zip([v]),
        lambda v: (one for one in [v]),
        lambda v: reversed([v]),
        lambda v: iter([v]),
        lambda v: {"a": v}.values(),
        lambda v: {"a": v}.items(),
        lambda v: functools.partial(print, v),
        lambda v: functools.partial(print, key=v),
        Holder,
    ],
    ids=["zip", "generator", "reversed", "iterator", "values", "items", "partial", "partial keyword", "callable"],
)
def test_what_is_yielded_viewed_or_held_by_something_callable_is_compared(made):
    assert kinds(made(torch.ones(2)), made(torch.ones(2))) == []
    assert [kind for _, kind in kinds(made(torch.ones(2)), made(torch.zeros(2)))] == ["value"]


def test_the_elements_of_a_view_are_not_cut_as_text_is():
    many = torch.zeros(2000)
    other = many.clone()
    other[1000] = 1
    assert kinds({"a": many}.values(), {"a": other}.values())


def test_what_an_iterator_raises_is_compared_and_one_without_end_ends():
    def yields(error):
        yield 1
        raise error

    assert kinds(yields(ValueError("a")), yields(ValueError("b"))) == []
    assert kinds(yields(ValueError()), yields(KeyError())) == [("result.raised", "value")]
    assert kinds(itertools.count(), itertools.count()) == []
    assert kinds(itertools.count(), itertools.count(1))


def test_numpys_wide_nan_equals_itself():
    assert kinds(np.longdouble("nan"), np.longdouble("nan")) == []
