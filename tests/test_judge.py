"""Two observations of real calls, and what the judge makes of them."""

import collections
import dataclasses
import enum
import functools
import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest
import torch

from recapture.conformance.judge import compare
from recapture.conformance.observe import observe_call


def seen(function, *args, label="example", **more):
    return observe_call(function, label, lambda: args, **more)


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
    "a layout": (torch.eye(2).to_sparse(), torch.eye(2), "result", "structure"),
    "a sparse value": (torch.eye(2).to_sparse(), (2 * torch.eye(2)).to_sparse(), "result", "value"),
    "a device": (torch.ones(2), torch.ones(2, device="meta"), "result", "device"),
    "a length": ([1, 2], [1], "result", "structure"),
    "keys": ({"a": 1}, {"b": 1}, "result", "structure"),
    "the type of a key": ({1: 1}, {True: 1}, "result", "structure"),
    "the order of an OrderedDict": (
        collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1), "result", "structure"
    ),
    "a set": ({1, 2}, {1, 3}, "result[1]", "value"),
    "deep inside": ({"a": [1, (2, torch.ones(1))]}, {"a": [1, (2, torch.zeros(1))]}, "result['a'][1][1]", "value"),
    "a dataclass's field": (Box(1), Box(2), "result.content", "value"),
    "a namedtuple's field": (Point(1, 2), Point(1, 3), "result.y", "value"),
    "an object's attribute": (Plain(a=1), Plain(a=2), "result.a", "value"),
    "a slot": (Slotted(1), Slotted(2), "result.a", "value"),
    "an attribute that is missing": (Plain(a=1), Plain(), "result", "structure"),
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
    assert verdict({"a": 1, "b": 2}, {"b": 2, "a": 1}).notes == ["result: keys in another order than in eager"]


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
    assert found.notes == ["result.a\\udce9: stride (2, 1) in eager, (1, 2) here"]


def test_figures_can_be_left_out():
    for eager, other in [(torch.ones(2), torch.zeros(2)), (1.5, 2.5), ("a", "b")]:
        (difference,) = verdict(eager, other, show_values=False).differences
        assert difference.detail == "value differs"


# --- the float64 reference ------------------------------------------------------------------------------------------


def rescued(eager, other, exact):
    reference = seen(lambda: exact)
    return not verdict(eager, other, exact=lambda: reference).differences


def half_sum(dtype):
    """A sum of rounded products: eager rounds each, a fused kernel only the result."""
    torch.manual_seed(0)
    columns = 40 if dtype is torch.float16 else 150
    a, b = torch.rand(64, columns).to(dtype), torch.rand(64, columns).to(dtype)
    eager = torch.zeros(64, dtype=dtype)
    for column in range(columns):
        eager = eager + a[:, column] * b[:, column]
    exact = (a.double() * b.double()).sum(1)
    return eager, exact.to(dtype), exact


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_more_exact_result_is_right(dtype):
    eager, fused, exact = half_sum(dtype)
    assert kinds(eager, fused) == [("result", "value")]  # without the reference
    assert rescued(eager, fused, exact)
    assert rescued([{"a": eager}], [{"a": fused}], [{"a": exact}])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_wrong_result_stays_wrong(dtype):
    eager, fused, exact = half_sum(dtype)
    assert not rescued(eager, fused * 1.5, exact)
    wrong = fused.clone()
    wrong[3] *= 1.5
    assert not rescued(eager, wrong, exact)


def test_one_wrong_element_does_not_hide_in_a_large_tensor():
    torch.manual_seed(0)
    exact = torch.rand(1_000_000).double() * 100
    eager = exact.float() * (1 + 2e-7)
    wrong = eager.clone()
    wrong[5] += 0.05
    assert not rescued(eager, wrong, exact)


def test_a_wrong_result_stays_wrong_where_eager_is_exact():
    exact = torch.tensor([1e6, 1.0]).double()
    assert not rescued(exact.float(), torch.tensor([1e6, 1.1]), exact)
    assert not rescued(exact.half(), torch.tensor([math.inf, 1.1]).half(), exact)


@pytest.mark.parametrize(
    ("dtype", "large", "small", "wrong"),
    [
        (torch.float32, 1e6, 0.85, 0.9),
        (torch.float32, 1e6, 0.0, 0.05),
        (torch.float16, 2e4, 0.85, 5.0),
        (torch.bfloat16, 1e3, 0.85, 3.0),
    ],
)
def test_a_wrong_small_number_does_not_hide_beside_large_ones(dtype, large, small, wrong):
    x = torch.linspace(-large, -0.9 * large, 4).to(dtype)
    exact = torch.cat([x.double() * 1.1, torch.tensor([small]).double()])
    eager, other = (torch.cat([x * 1.1, torch.tensor([last]).to(dtype)]) for last in (small, wrong))
    assert not rescued(eager, other, exact)


@pytest.mark.parametrize("ends", [lambda x: x, torch.relu, lambda x: x.clamp(min=1e-6)])
@pytest.mark.parametrize(("dtype", "scale"), [(torch.float32, 1000), (torch.float16, 1), (torch.bfloat16, 1)])
def test_sums_that_cancel_are_right_in_another_order(dtype, scale, ends):
    torch.manual_seed(0)
    a, b = (scale * torch.randn(256, 64)).to(dtype), torch.randn(64, 256).to(dtype)
    exact = a.double() @ b.double()
    pieces = torch.stack([a[:, part] @ b[part] for part in (slice(16 * i, 16 * i + 16) for i in range(4))])
    eager, other = torch.zeros_like(pieces[0]), torch.zeros_like(pieces[0])
    for piece in range(4):
        eager, other = eager + pieces[piece], other + pieces[3 - piece]
    assert kinds(ends(eager), ends(other)) == [("result", "value")]
    assert rescued(ends(eager), ends(other), ends(exact))
    if dtype != torch.float32:  # eager sums in float32 and rounds once
        assert rescued(ends(exact.to(dtype)), ends(other), ends(exact))


def test_a_computation_that_takes_another_path_in_float64_is_no_reference():
    # "x * 2 where the dtype is half, else x * 3", captured with float32: the float64 run agrees with the wrong result.
    x = torch.rand(100)
    assert not rescued((x * 2).half(), (x * 3).half(), (x * 3).double())
    torch.manual_seed(0)
    eager, other, reference = torch.rand(100), torch.rand(100), torch.rand(100)
    assert not rescued(eager, other, reference.double())  # three streams of random numbers


def test_nothing_rescues_integers_or_what_is_not_finite():
    exact = torch.tensor([1.0, 2.0]).double()
    assert not rescued(torch.tensor([1, 2]), torch.tensor([1, 3]), torch.tensor([1, 3]))
    assert not rescued(torch.tensor([math.inf, 2.0]).half(), exact.half(), exact)
    assert not rescued(torch.tensor([1.0, 2.0]).half(), torch.tensor([math.nan, 2.0]).half(), exact)


def test_what_is_not_finite_on_both_sides_does_not_stand_in_the_way():
    eager, fused, exact = half_sum(torch.float16)
    tail = torch.tensor([math.inf, math.nan])
    with_tail = [torch.cat([one, tail.to(one.dtype)]) for one in (eager, fused, exact)]
    assert rescued(*with_tail)


def test_the_reference_is_asked_for_only_where_rounding_is_in_question():
    def never():
        raise AssertionError("asked")

    verdict(torch.ones(2), torch.ones(2), exact=never)
    verdict(torch.ones(2).long(), torch.zeros(2).long(), exact=never)
    verdict(torch.ones(2).double(), torch.zeros(2).double(), exact=never)


def test_a_reference_that_could_not_be_had_rescues_nothing():
    eager, fused, exact = half_sum(torch.float16)
    assert verdict(eager, fused, exact=lambda: None).differences
    assert not rescued([eager], [fused], [])
    assert not rescued(eager, fused, exact[:5])


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

    def run(module, name):
        if name == "grad":
            (module.weight * 2).backward()
        elif name:
            getattr(module, name).add_(1)
        return observe_call(lambda: None, "example", tuple, module=module)

    still = run(Counts(), None)
    assert compare(still, run(Counts(), None)).differences == []
    for name, where in (("kept", "state['kept']"), ("cache", "state['cache']"), ("grad", "state")):
        (difference,) = compare(run(Counts(), name), still).differences
        assert (difference.where, difference.kind) == (where, "state")


def test_what_is_watched_and_printed_is_compared():
    eager = observe_call(lambda: print("a"), "example", tuple, watch=lambda: [1], capture_output=True)
    other = observe_call(lambda: print("b"), "example", tuple, watch=lambda: [2], capture_output=True)
    assert [(one.where, one.kind) for one in compare(eager, other).differences] == [
        ("watched[0]", "watched"),
        ("output", "output"),
    ]
    assert compare(eager, eager).differences == []


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


def test_strides_requires_grad_and_aliases_are_notes():
    def one(x):
        return x.t(), x.sum(0), x * 1

    def other(x):
        return x.t().contiguous(), x.detach().sum(0), x[:]

    def make():
        return (torch.ones(2, 3, requires_grad=True),)

    found = compare(observe_call(one, "example", make), observe_call(other, "example", make))
    assert found.differences == []
    assert found.notes == [
        "result[0]: stride (1, 3) in eager, (2, 1) here",
        "result[1]: requires_grad True in eager, False here",
        "result[0]: aliases args[0] in eager, not here",
        "result[2]: aliases args[0] here, not in eager",
    ]


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


@pytest.mark.parametrize(
    "result",
    [
        lambda x: np.cumsum(x.numpy()),
        lambda x: np.cumsum(x.numpy())[-1].item(),
        lambda x: complex(np.cumsum(x.numpy())[-1], 0.0),
    ],
    ids=["array", "float", "complex"],
)
def test_numpy_arrays_and_numbers_may_be_as_far_from_float64_as_eager(result):
    x = torch.rand(100_000, generator=torch.Generator().manual_seed(0))

    def nearer(x):
        exact = np.cumsum(x.numpy().astype(np.float64)).astype(np.float32)
        found = {np.ndarray: exact, float: float(exact[-1]), complex: complex(exact[-1], 0.0)}
        return found[type(result(x))]

    def doubled():
        return seen(result, x.double())

    eager, other = seen(result, x), seen(nearer, x)
    assert compare(eager, other).differences
    assert not compare(eager, other, exact=doubled).differences

    def off(x):
        return nearer(x) * 1.01

    assert compare(eager, seen(off, x), exact=doubled).differences


def test_a_number_without_a_reference_keeps_its_tolerance():
    eager, other = seen(lambda x: x.item(), torch.ones(())), seen(lambda x: x.item() * 1.001, torch.ones(()))
    for exact in (None, lambda: None, lambda: seen(lambda: "no number"), lambda: seen(lambda: math.nan)):
        assert compare(eager, other, exact=exact).differences


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
