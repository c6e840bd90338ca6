"""Effects that are easy to overlook: state made on first use, generators, earlier results, settings, depth, buffers."""

import collections
import functools
import importlib
import io
import os
import random
import sys
import types
import warnings

import numpy as np
import pytest
import torch
from observed_calls import kinds, observed, texts
from planted_trials import ruling
from torch.utils._python_dispatch import TorchDispatchMode

from recapture.judge.compare import compare
from recapture.judge.earlier_calls import EarlierCalls
from recapture.judge.observe import observe_call
from recapture.judge.reachable import Reachable
from recapture.judge.snapshot import snapshot_of


class Owner:
    pass


def sets_a_global():
    global made_by_the_call  # noqa: PLW0603 - it is what is planted
    made_by_the_call = 1  # type: ignore[name-defined]


def sets_an_attribute():
    sets_an_attribute.calls = 1  # type: ignore[attr-defined]


def sets_a_class_attribute():
    Owner.calls = 1  # type: ignore[attr-defined]


def sets_by_text():
    globals()["made_by_text"] = 1


@pytest.mark.parametrize(
    ("function", "where"),
    [
        (sets_a_global, "globals['made_by_the_call']"),
        (sets_an_attribute, "sets_an_attribute.calls"),
        (sets_a_class_attribute, "Owner.calls"),
        (sets_by_text, "globals['made_by_text']"),
    ],
)
def test_state_that_a_call_creates_is_compared_and_removed_again(function, where):
    reachable = Reachable(function)
    restore = reachable.save()
    eager = observed(function, reachable=reachable)
    restore()
    other = observed(lambda: None, reachable=reachable)
    assert texts(compare(eager, other).differences) == [f"{where} mutation: eager sets it, this does not"]
    again = observed(function, reachable=reachable)
    restore()
    assert compare(eager, again).differences == []


def test_state_in_another_module_of_the_users_is_compared_and_put_back(tmp_path, monkeypatch):
    (tmp_path / "counts_elsewhere.py").write_text("total = 0\ndef count():\n    global total\n    total += 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    counts_elsewhere = importlib.import_module("counts_elsewhere")

    space = {"counts_elsewhere": counts_elsewhere, "__name__": "a_case"}
    exec("def function():\n    counts_elsewhere.count()", space)
    reachable = Reachable(space["function"])
    restore = reachable.save()
    eager = observed(space["function"], reachable=reachable)
    assert counts_elsewhere.total == 1
    for step in reachable.shared:  # what all executions of a case's file share
        step()
    assert counts_elsewhere.total == 0
    other = observed(lambda: None, reachable=reachable)
    assert {difference.kind for difference in compare(eager, other).differences} == {"mutation"}
    restore()


class Counts:
    def __init__(self):
        self.calls = 0

    def count(self):
        self.calls += 1


counted = Counts().count
collects = functools.partial(list.append, [])


def calls_a_method():
    counted()


def calls_a_partial():
    collects(1)


@pytest.mark.parametrize("function", [calls_a_method, calls_a_partial])
def test_state_of_what_a_method_or_partial_takes_along_is_compared_and_put_back(function):
    reachable = Reachable(function)
    restore = reachable.save()
    eager = observed(function, reachable=reachable)
    restore()
    assert {
        difference.kind for difference in compare(eager, observed(lambda: None, reachable=reachable)).differences
    } == {"mutation"}
    assert compare(eager, observed(function, reachable=reachable)).differences == []
    restore()


GENERATORS = {
    "torch": lambda: torch.Generator().manual_seed(1),
    "random": lambda: random.Random(1),
    "numpy": lambda: np.random.default_rng(1),
    "numpy, old": lambda: np.random.RandomState(1),
}


@pytest.mark.parametrize("name", GENERATORS)
def test_a_generator_that_is_not_advanced_is_a_difference(name):
    def uses(generator):
        torch.rand(1, generator=generator) if name == "torch" else generator.random()

    eager, other = (observe_call(call, "example", lambda: (GENERATORS[name](),)) for call in (uses, lambda _: None))
    assert [(difference.where, difference.kind) for difference in compare(eager, other).differences] == [
        ("args[0]", "mutation")
    ]
    assert compare(eager, observe_call(uses, "example", lambda: (GENERATORS[name](),))).differences == []


def test_a_variable_of_the_environment_is_put_back(monkeypatch):
    monkeypatch.delenv("RECAPTURE_SET", raising=False)

    def sets():
        os.environ["RECAPTURE_SET"] = "1"

    reachable = Reachable(sets)
    reachable.save()
    sets()
    for step in reachable.shared:
        step()
    assert "RECAPTURE_SET" not in os.environ


@pytest.mark.parametrize("part", ["result", "args"])
def test_what_a_later_call_overwrites_is_a_difference(part):
    def run(*, erases):
        retained, earlier = [], EarlierCalls()

        def call(x):
            y = x * 2
            if erases and retained:
                retained[0].fill_(7)
            retained[:] = [y if part == "result" else x]
            return y

        return [observed(call, torch.ones(2), label=label, earlier=earlier) for label in ("example", "held_out[0]")]

    comparisons = [compare(*pair) for pair in zip(run(erases=False), run(erases=True), strict=True)]
    assert comparisons[0].differences == []
    place = f"earlier['example'].{part}{'[0]' if part == 'args' else ''}"
    sentence = "this overwrites what an earlier call left, eager does not"
    assert texts(comparisons[1].differences) == [f"{place} mutation: {sentence}"]


class Result:
    def __init__(self, tensor):
        self.tensor = tensor
        self.calls = 1


LATER = {
    "a list": (lambda x: [x * 2], lambda before: before.append(1)),
    "a dict": (lambda x: {"a": x * 2}, lambda before: before.update(b=1)),
    "another tensor in a list": (lambda x: [x * 2], lambda before: before.__setitem__(0, torch.zeros(2))),
    "an object": (lambda x: Result(x * 2), lambda before: setattr(before, "calls", 2)),
    "an array": (lambda x: (x * 2).numpy(), lambda before: before.fill(0)),
    "requires_grad": (lambda x: x * 2, lambda before: before.requires_grad_()),
    "a shape": (lambda x: x.view(1, 2) * 2, lambda before: before.t_()),
}


@pytest.mark.parametrize("name", LATER)
def test_an_earlier_result_that_a_later_call_changes_in_whatever_way_is_a_difference(name):
    function, change = LATER[name]

    def run(*, changes):
        retained, earlier = [], EarlierCalls()

        def call(x):
            value = function(x)
            if changes and retained:
                change(retained[0])
            retained[:] = [value]
            return value

        return [observed(call, torch.ones(2), label=label, earlier=earlier) for label in ("example", "held_out[0]")]

    first, second = (compare(*pair) for pair in zip(run(changes=False), run(changes=True), strict=True))
    assert first.differences == []
    assert {difference.kind for difference in second.differences} == {"mutation"}
    again = zip(run(changes=True), run(changes=True), strict=True)
    assert [compare(*pair).differences for pair in again] == [[], []]


class Numbered(int):
    pass


class Listed(list):
    pass


class Keyed(dict):
    pass


class Arrayed(np.ndarray):
    pass


class Named:
    """Its text leaves out what it holds."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1

    def __repr__(self):
        return "Named"

    def method(self):
        return self.value


def marked(value, mark):
    value.mark = mark
    return value


def closed_over(value):
    return lambda: value


@pytest.mark.parametrize(
    "make",
    [
        lambda mark: marked(Numbered(1), mark),
        lambda mark: marked(Listed([1]), mark),
        lambda mark: marked(Keyed(a=1), mark),
        lambda mark: marked(np.ones(2).view(Arrayed), mark),
        lambda mark: {Named(mark): 1},
        lambda mark: Named(mark).method,
        closed_over,
        lambda mark: lambda value=mark: value,
    ],
)
def test_what_objects_of_own_classes_and_functions_hold_is_compared(make):
    assert kinds(make(1), make(2))
    assert kinds(make(1), make(1)) == []


@pytest.mark.filterwarnings("ignore:Named tensors:UserWarning")
def test_names_of_dimensions_are_compared():
    eager, other = torch.ones(2, names=("rows",)), torch.ones(2, names=("columns",))
    assert kinds(eager, other) == [("result.names[0]", "metadata")]
    assert kinds(eager, eager.clone()) == []


def test_a_comparison_that_fails_is_no_result(monkeypatch):
    def fails(self, result, value):
        raise AssertionError("the judge is wrong")

    monkeypatch.setattr("recapture.judge.observe._Call._effects", fails)
    with pytest.raises(AssertionError, match="the judge is wrong"):
        observed(lambda: 1)


class Sees(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


SETTINGS = {
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "dispatch_modes": lambda: Sees().__enter__(),
    "flush_denormal": lambda: torch.set_flush_denormal(True),
    "saved_tensors_hooks": lambda: torch.autograd.graph.saved_tensors_hooks(str, str).__enter__(),
    "fill_uninitialized_memory": lambda: setattr(torch.utils.deterministic, "fill_uninitialized_memory", False),
    "print_options": lambda: torch.set_printoptions(precision=9),
    "warn_always": lambda: torch.set_warn_always(not torch.is_warn_always_enabled()),
}


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_is_left_changed_is_a_difference_and_put_back(name, raises):
    def call(change):
        change()
        if raises:
            raise ValueError

    eager, other = observed(lambda: call(list)), observed(lambda: call(SETTINGS[name]))
    assert [(difference.where, difference.kind) for difference in compare(eager, other).differences] == [
        (f"torch.{name}", "state")
    ]
    assert compare(eager, observed(lambda: call(list))).differences == []


def test_what_inductor_itself_sets_is_no_difference_and_what_code_sets_is_one(monkeypatch):
    """Inductor raises the limit of recursion to 2000 and imports setuptools, which extends the import path."""

    def left_by(limit, folder):
        monkeypatch.setattr(sys, "path", [*original])
        sys.setrecursionlimit(1000)

        def call():
            sys.setrecursionlimit(limit)
            sys.path.append(folder)

        return observed(call)

    original, limit = [*sys.path], sys.getrecursionlimit()
    try:
        untouched = left_by(1000, "/site-packages/setuptools/_vendor")
        assert compare(untouched, left_by(2000, "/site-packages/setuptools/_vendor")).differences == []
        for changed in (500, 1500, 3000):
            observation = left_by(changed, "/site-packages/setuptools/_vendor")
            assert [each.where for each in compare(untouched, observation).differences] == ["process.recursion_limit"]
        generator = types.SimpleNamespace(INSTANTIATED_TEMPLATE_DIR_PATH="/tmp/generated")
        monkeypatch.setitem(sys.modules, "torch.distributed.nn.jit.instantiator", generator)
        assert compare(untouched, left_by(1000, "/tmp/generated")).differences == []
        observation = left_by(1000, "/of/the/user")
        assert [each.where for each in compare(untouched, observation).differences] == ["process.import_path"]
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize(("folder", "where"), [("cache/triton/0", []), ("of the user", ["process.modules"])])
def test_a_launcher_that_triton_loads_again_is_no_difference(monkeypatch, tmp_path, folder, where):
    """All launchers of Triton 3.2 and earlier are modules of one name, and each replaces the one before it."""

    def launcher(number):
        module = types.ModuleType("__triton_launcher")
        module.__file__ = str(tmp_path / folder / str(number) / "__triton_launcher.so")
        return module

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "__triton_launcher", launcher(1))
    untouched = observed(lambda: None)
    replacing = observed(lambda: sys.modules.update(__triton_launcher=launcher(2)))
    assert [each.where for each in compare(untouched, replacing).differences] == where


@pytest.mark.parametrize(("limit", "verdict"), [(2000, "pass"), (3000, "wrong")])
def test_what_inductor_sets_while_it_captures_is_no_difference(limit, verdict):
    """A package of AOTInductor is compiled in the capture, with the same limit of recursion."""

    def capture(fn, example):
        sys.setrecursionlimit(max(sys.getrecursionlimit(), limit))
        return fn

    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    try:
        assert ruling(lambda x: x * 2, capture).verdict == verdict
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.parametrize(("limit", "verdict"), [(2000, "pass"), (3000, "wrong")])
def test_what_inductor_sets_in_a_backward_is_no_difference(limit, verdict):
    """Inductor compiles the backward when it runs, and on a GPU that is in a thread of autograd's."""

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            sys.setrecursionlimit(max(sys.getrecursionlimit(), limit))
            return gradient * 2

    def leaf():
        return (torch.ones(2, requires_grad=True),)

    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    try:
        result = ruling(lambda x: x * 2, lambda fn, example: Doubled.apply, make=leaf)
        assert result.verdict == verdict
    finally:
        sys.setrecursionlimit(before)


def test_hooks_that_a_call_adds_are_a_difference():
    def run(change):
        module = torch.nn.Linear(1, 1)
        return observed(lambda: change(module) and None, reachable=Reachable(module))

    plain = run(lambda module: None)
    for change in (
        lambda module: module.register_forward_hook(print),
        lambda module: module.weight.register_hook(print),
    ):
        assert {difference.kind for difference in compare(plain, run(change)).differences} == {"mutation"}


def nested(value, depth):
    for _ in range(depth):
        value = [value]
    return value


def test_values_of_any_usual_depth_and_number_are_compared_and_what_is_not_has_a_note():
    assert len(kinds(nested(1, 300), nested(2, 300))) == 1
    assert len(kinds([types.SimpleNamespace(a=i) for i in range(3000)], [types.SimpleNamespace(a=0)] * 3000)) == 2999
    beyond = compare(observed(lambda: nested(1, 1200)), observed(lambda: nested(2, 1200)))
    assert beyond.differences == []
    assert [note.unlike for note in beyond.notes] == ["cut"]


def test_a_view_that_repeats_an_element_is_kept_as_one():
    eager, other = (torch.full((3,), number)[:1].expand(10**12) for number in (1.0, 2.0))
    assert snapshot_of(eager).tensor.data.numel() == 1
    assert kinds(eager, other) == [("result", "value")]
    assert kinds(eager, eager) == []
    small, copied = torch.ones(1).expand(2**20), torch.ones(2**20)
    assert kinds(small, copied) == []
    assert kinds(small, copied * 2) == [("result", "value")]


def test_contents_that_are_no_attributes_are_compared():
    for eager, other in (
        (memoryview(b"ab"), memoryview(b"ac")),
        (io.StringIO("a"), io.StringIO("b")),
        (io.BytesIO(b"a"), io.BytesIO(b"b")),
        (collections.deque([1], maxlen=2), collections.deque([1], maxlen=3)),
    ):
        assert len(kinds(eager, other)) == 1
        assert kinds(eager, eager) == []


@pytest.mark.filterwarnings("ignore")
def test_properties_of_sparse_and_quantized_tensors_are_compared():
    rows = torch.eye(2).to_sparse_csr()
    narrow = torch.sparse_csr_tensor(rows.crow_indices().int(), rows.col_indices().int(), rows.values(), (2, 2))
    assert [kind for _, kind in kinds(rows, narrow)] == ["metadata"]
    by_axis = [
        torch.quantize_per_channel(torch.ones(2, 2), torch.ones(2), torch.zeros(2), axis, torch.qint8)
        for axis in (0, 1)
    ]
    assert [where for where, _ in kinds(*by_axis)] == ["result.q_per_channel_axis()"]


def test_the_gradient_of_a_tensor_that_is_no_leaf_is_compared():
    def run(*, keeps):
        x = torch.ones(2, requires_grad=True)
        y = x * 2
        if keeps:
            y.retain_grad()
        (y * 3).sum().backward(retain_graph=True)
        return y

    eager, other = (observed(lambda keeps=keeps: run(keeps=keeps)) for keeps in (True, False))
    assert [difference.where for difference in compare(eager, other).differences] == ["result.grad"]


def test_arguments_that_share_or_change_their_memory_are_a_difference():
    def run(change):
        return observe_call(change, "example", lambda: (torch.ones(2), torch.ones(2)))

    def shares(x, y):
        y.data = x.data

    def moves(x, y):
        x.data = x.data.clone()

    plain = run(lambda x, y: None)
    assert {difference.kind for difference in compare(plain, run(shares)).differences} == {"alias"}
    assert [difference.unlike for difference in compare(plain, run(moves)).differences] == ["moved"]


def test_an_argument_with_other_memory_is_found_wherever_the_call_put_it():
    def run(*, moves, keeps=True):
        def change(items):
            first = items[0]
            items.reverse()
            if not keeps:
                del items[-1]
            if moves:
                first.data = first.data.clone()

        return observe_call(change, "example", lambda: ([torch.zeros(2), torch.ones(3)],))

    for keeps in (True, False):
        differences = compare(run(moves=False, keeps=keeps), run(moves=True, keeps=keeps)).differences
        assert [(difference.where, difference.unlike) for difference in differences] == [("args[0][0]", "moved")]


def test_lost_warnings_other_streams_and_version_counters_are_notes():
    def warns():
        warnings.warn("careful", UserWarning, stacklevel=1)

    plain = observed(lambda: None)
    for call, where in ((warns, "warnings"), (lambda: print("a", file=sys.stderr), "stderr")):
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            comparison = compare(observed(call), plain)
        assert (comparison.differences, [note.where for note in comparison.notes]) == ([], [where])
    counted = observed(lambda x: x.add_(0) and None if x.numel() < 0 else (x.add_(0), None)[1], torch.ones(1))
    assert [note.unlike for note in compare(observed(lambda x: None, torch.ones(1)), counted).notes] == ["version"]


def test_text_past_sys_stdout_is_noted(tmp_path):
    target = os.open(tmp_path / "output", os.O_WRONLY | os.O_CREAT)
    saved_stdout = os.dup(1)
    os.dup2(target, 1)
    try:
        eager, other = observed(lambda: None), observed(lambda: os.write(1, b"abc") and None)
    finally:
        os.dup2(saved_stdout, 1)
        os.close(saved_stdout)
        os.close(target)
    assert [note.detail for note in compare(eager, other).notes] == ["eager wrote 0 bytes past sys.stdout, this 3"]
