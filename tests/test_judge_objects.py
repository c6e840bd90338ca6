"""Values that the judge takes apart: containers without order, iterators, objects, special arrays and tensors."""

import collections
import functools
import itertools

import numpy as np
import pytest
import torch
from observed_calls import Plain, Slotted, compare_values, kinds, strict, texts


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
    assert texts(compare_values(eager, other).notes) == ["result metadata: keys in another order than in eager"]
    assert texts(compare_values(eager, other, rules=strict("order")).differences) == texts(
        compare_values(eager, other).notes
    )


def test_a_default_factory_is_noted():
    notes = compare_values(collections.defaultdict(int), collections.defaultdict(list)).notes
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
    "build",
    [
        lambda v: zip([v]),
        lambda v: (item for item in [v]),
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
def test_what_is_yielded_viewed_or_held_by_something_callable_is_compared(build):
    assert kinds(build(torch.ones(2)), build(torch.ones(2))) == []
    assert [kind for _, kind in kinds(build(torch.ones(2)), build(torch.zeros(2)))] == ["value"]


def test_the_elements_of_a_view_are_not_cut_as_text_is():
    many = torch.zeros(2000)
    changed = many.clone()
    changed[1000] = 1
    assert kinds({"a": many}.values(), {"a": changed}.values())


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
