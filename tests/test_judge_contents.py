"""What globals and closures hold, settings of the process, functions, arrays, and the memory behind views."""

import ctypes
import enum
import functools
import itertools
import math
import threading

import numpy as np
import pytest
import torch
from observed_calls import compare_values, kinds, observed, strict, texts

from benchmarks.judge.defects.settings import CHANGES
from recapture.judge.compare import Rules, changing_entries, compare
from recapture.judge.observe import Observation, observe_call
from recapture.judge.reachable import Reachable
from recapture.judge.snapshot import snapshot_of


def plus_one(value):
    value.calls += 1


def added(value, mark=1):
    value.mark = mark
    return value


class Renamed:
    __slots__ = ("__calls",)

    def __init__(self):
        self.count(0)

    def count(self, calls):
        self.__calls = calls


class Level(enum.Enum):
    LOW = 1


Level.LOW.calls = 0  # type: ignore[attr-defined]


def keeps(size):
    return torch.zeros(size)


HELD = {
    "an iterator over a list": (lambda: iter([1, 2, 3]), next),
    "a generator": (lambda: (number for number in range(9)), next),
    "a counter": (itertools.count, next),
    "a cycle": (lambda: itertools.cycle("abc"), next),
    "iterators in a zip": (lambda: zip(itertools.count(), itertools.count(), strict=True), next),
    "a member of an enumeration": (lambda: Level.LOW, plus_one),
    "a slot that Python renames": (Renamed, lambda value: value.count(1)),
    "an array of C": (lambda: (ctypes.c_int * 2)(1, 2), lambda value: value.__setitem__(0, 9)),
    "an array of numpy": (lambda: np.ones(2), lambda value: value.setflags(write=False)),
    "a list of modules": (lambda: torch.nn.ModuleList([torch.nn.ReLU()]), lambda value: value.append(torch.nn.ReLU())),
    "the mode of a module": (torch.nn.ReLU, lambda value: value.eval()),
    "an attribute of a function": (lambda: added(lambda: 1), lambda value: setattr(value, "mark", 2)),
    "the keywords of a partial function": (
        lambda: functools.partial(print, end=""),
        lambda value: value.keywords.update(end="!"),
    ),
}


@pytest.mark.parametrize("name", HELD)
def test_what_a_closure_holds_is_compared_and_eager_agrees_with_itself(name):
    make, change = HELD[name]

    def calling(*, lost):
        held = make()
        reachable = Reachable(lambda: held)
        restore = reachable.save()
        observation = observed(lambda: None if lost else (change(held), None)[1], reachable=reachable)
        restore()
        return observation

    eager = calling(lost=False)
    differences = compare(eager, calling(lost=True)).differences
    assert {difference.kind for difference in differences} == {"mutation"}, texts(differences)
    assert compare(eager, calling(lost=False)).differences == []


def test_an_entry_of_a_cache_is_a_note_unless_its_content_changes_from_call_to_call():
    def calling(effect):
        cached = functools.lru_cache(maxsize=8)(keeps)
        reachable = Reachable(lambda: cached)
        labels = ("example", "held_out[0]")
        return [observed(lambda: (effect(cached), None)[1], reachable=reachable, label=label) for label in labels]

    lost = calling(lambda cached: None)
    filled = calling(lambda cached: cached(2))
    comparison = compare(filled[0], lost[0])
    assert comparison.differences == []
    assert texts(comparison.notes) == ["closure['cached'] mutation: eager has 1 items, this 0"]

    changed = calling(lambda cached: cached(2).add_(1))
    rules = Rules(changing=changing_entries(changed))
    assert changing_entries(filled) == frozenset()
    assert {difference.kind for difference in compare(changed[0], lost[0], rules=rules).differences} == {"mutation"}


def test_a_decorators_own_counter_is_compared_also_where_two_closures_have_one_name():
    def counted(function):
        calls = [0]

        @functools.wraps(function)
        def wrapper():
            calls[0] += 1
            function()

        return wrapper

    twice = counted(counted(lambda: None))
    reachable = Reachable(twice)
    eager = observed(twice, reachable=reachable)
    again = observed(twice, reachable=reachable)
    assert [difference.where for difference in compare(eager, again).differences] == [
        "closure['calls'][0]",
        "closure['calls'] #2[0]",
    ]


@pytest.mark.parametrize("name", [name for name in CHANGES if name != "thread-left"])
def test_a_setting_of_the_process_is_a_difference_and_put_back(name):
    changed = observed(lambda: (CHANGES[name](), None)[1])
    differences = compare(observed(lambda: None), changed).differences
    assert {difference.kind for difference in differences} == {"state"}, texts(differences)
    assert compare(observed(lambda: None), observed(lambda: None)).differences == []
    assert compare(changed, observed(lambda: (CHANGES[name](), None)[1])).differences == []


def test_replaced_functions_are_told_with_their_owners():
    def replaces():
        torch.nn.Linear.forward = torch.nn.Bilinear.forward
        torch.fft.fft = torch.fft.ifft
        setattr(math, "pi", 3.0)  # noqa: B010 - mypy takes it for a constant

    forward, spectrum, pi = torch.nn.Linear.forward, torch.fft.fft, math.pi
    differences = compare(observed(lambda: None), observed(replaces)).differences
    assert {difference.where: difference.other for difference in differences} == {
        "torch.namespaces_of_torch": "replaced: torch.fft.fft, torch.nn.modules.linear.Linear.forward",
        "process.math": "math: pi",
    }
    assert (torch.nn.Linear.forward, torch.fft.fft, math.pi) == (forward, spectrum, pi)


def test_names_that_are_added_and_wrappers_of_torch_are_no_change_of_a_setting(monkeypatch):
    class Planted(torch.nn.Module):
        pass

    def adds():
        torch.nn.Planted = Planted
        setattr(math, "planted", len)  # noqa: B010 - mypy knows no such name
        # As torch does where an optimizer is first used: the wrapper is a new function of torch's own code.
        torch.optim.SGD.step = torch.no_grad()(torch.optim.SGD.step)

    monkeypatch.setattr(torch.optim.SGD, "step", torch.optim.SGD.step)
    monkeypatch.setattr(torch.nn, "Planted", None, raising=False)
    monkeypatch.setattr(math, "planted", None, raising=False)
    monkeypatch.delattr(torch.nn, "Planted")
    monkeypatch.delattr(math, "planted")
    assert compare(observed(lambda: None), observed(adds)).differences == []


def test_a_thread_that_is_left_is_a_difference():
    stop = threading.Event()
    left = threading.Thread(target=stop.wait, daemon=True)
    eager = observed(lambda: None)
    other = observed(left.start)
    stop.set()
    left.join()  # else its end would be a change of the settings in the next test
    assert [difference.where for difference in compare(eager, other).differences] == ["process.threads_left"]


def test_another_function_is_another_value():
    assert kinds([torch.sin], [torch.cos]) == [("result[0]", "value")]
    assert kinds([plus_one], [added]) != []
    assert kinds([torch.sin, plus_one, np.sum], [torch.sin, plus_one, np.sum]) == []


def test_what_a_generator_returns_is_compared():
    def numbers(result):
        yield 1
        return result

    assert kinds(numbers(1), numbers(2)) == [("result.returned", "value")]
    assert kinds(numbers(None), numbers(None)) == []


def test_an_array_is_compared_by_its_byte_order_and_by_whether_it_can_be_written_to():
    array = np.arange(6.0).reshape(2, 3)
    read_only = array.copy()
    read_only.setflags(write=False)
    assert kinds(array, array.astype(">f8")) == [("result", "dtype")]
    assert kinds(array, read_only) == [("result", "metadata")]
    fortran = np.asfortranarray(array)
    assert kinds(array, fortran) == []
    assert kinds(array, fortran, rules=strict("stride")) == [("result", "metadata")]


def test_a_result_that_keeps_much_more_memory_alive_is_a_note():
    large = torch.zeros(1000)
    comparison = compare(observed(lambda: large[:1] + 1), observed(lambda: torch.ones(1000)[:1]))
    assert comparison.differences == []
    assert texts(comparison.notes) == ["result metadata: eager keeps 4 bytes alive, this 4000"]
    assert compare(observed(lambda x: x[:1], large), observed(lambda x: x[:1], torch.zeros(1000))).notes == []


def test_zeros_without_memory_are_other_zeros():
    assert kinds(torch.zeros(3), torch._efficientzerotensor(3)) == [("result", "metadata")]


def test_a_module_that_is_returned_is_compared_by_its_attributes():
    first, second = torch.nn.LeakyReLU(0.1), torch.nn.LeakyReLU(0.2)
    assert kinds(first, second) == [("result.negative_slope", "value")]
    assert [difference.where for difference in compare_values(first, torch.nn.LeakyReLU(0.1)).differences] == []


def test_modules_of_the_users_that_a_function_imports_are_watched(tmp_path, monkeypatch):
    (tmp_path / "imported_inside.py").write_text("calls = []\ndef count():\n    calls.append(1)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    space: dict[str, object] = {"__name__": "a_case"}
    exec("def function():\n    from imported_inside import count\n    count()", space)
    function = space["function"]
    reachable = Reachable(function)
    restore = reachable.save()
    eager = observed(function, reachable=reachable)
    restore()
    candidate = observed(lambda: None, reachable=reachable)
    assert {difference.kind for difference in compare(eager, candidate).differences} == {"mutation"}
    assert observe_call(lambda: None, "example", tuple).raised is None


def test_functions_that_a_rewrite_defines_have_other_names_and_lines():
    def first():
        return lambda x: x + 1

    def second():
        return lambda x: x + 1

    calls = [Observation("example", state=snapshot_of({"scaled": define()})) for define in (first, second)]
    assert compare(*calls).differences
    assert not compare(*calls, rules=Rules(rewritten=True)).differences


class Count(int):
    """An integer of a case's own class."""


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: {"a": 1}, lambda held: held.update(a=True)),
        (lambda: {"a": 1}, lambda held: held.update(a=1.0)),
        (lambda: {"a": 1}, lambda held: held.update(a=Count(1))),
        (lambda: {"a": 1}, lambda held: held.update(b=1)),
        (lambda: {"a": 1, 1: "a"}, lambda held: held.update({"a": "a", 1: 1})),
        (lambda: {"a": 0.0}, lambda held: held.update(a=-0.0)),
        (lambda: {"a": ""}, lambda held: held.update(a=b"")),
        (lambda: [None, 0], lambda held: held.reverse()),
        (lambda: [0], lambda held: held.__setitem__(0, False)),
        (lambda: [0], lambda held: held.append([])),
        (lambda: [[0]], lambda held: held[0].append(0)),
    ],
)
def test_a_container_that_is_described_again_shows_what_changed_in_it(make, change):
    held = make()

    def function():
        return held

    reachable = Reachable(function)
    before = reachable.describe().snapshot
    assert reachable.describe().snapshot == before
    change(held)
    after = reachable.describe().snapshot
    assert repr(after) != repr(before)
    assert repr(after) == repr(Reachable(function).describe().snapshot)
