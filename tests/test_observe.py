"""The observation of a call, for any values and exceptions of a case."""

import logging
import sys
import weakref
from types import SimpleNamespace

import pytest
import torch
from observed_calls import observed
from torch._subclasses.fake_tensor import FakeTensorMode

from recapture.base.exceptions import qualified, safe_text
from recapture.judge.compare import compare
from recapture.judge.earlier_calls import EarlierCalls
from recapture.judge.observe import Observation, observe_call
from recapture.judge.reachable import Reachable
from recapture.judge.snapshot import Snapshot, describe, snapshot_of
from recapture.torch_api.compat import is_out_of_memory


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no")

    __repr__ = __str__


class Base(BaseException):
    pass


def raiser(error):
    def fails():
        raise error

    return fails


@pytest.mark.parametrize("error", [Base("b"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration(1)])
def test_any_exception_is_the_result(error):
    observation = observed(raiser(error))
    assert observation.result is None
    assert observation.raised.type == qualified(type(error))
    assert observation.raised.error is error
    assert "fails" in observation.raised.traceback


def test_an_exception_that_cannot_be_printed_says_so():
    observation = observed(raiser(Unprintable()))
    assert observation.raised.type == "test_observe.Unprintable"
    assert observation.raised.message == "<the exception's own __str__ raised RuntimeError>"
    assert "Unprintable" in observation.raised.traceback
    assert safe_text(ValueError("x")) == "x"
    assert safe_text(ValueError("caf\udce9.txt")) == "caf\\udce9.txt"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with Python 3.11")
def test_exception_groups_of_both_kinds():
    for kind, inner in ((BaseExceptionGroup, Base("i")), (ExceptionGroup, Unprintable())):  # noqa: F821
        observation = observed(raiser(kind("several", [inner])))
        assert observation.raised.type == kind.__name__
        assert observation.raised.message == "several (1 sub-exception)"


def test_inputs_that_cannot_be_made_are_no_result_of_the_call():
    with pytest.raises(ZeroDivisionError):
        observe_call(lambda: 1, "example", lambda: (1 / 0,))


def test_a_call_that_fails_half_way_still_shows_what_it_changed():
    def half(x):
        x.add_(1)
        raise ValueError

    observation = observed(half, torch.zeros(1))
    assert observation.args.children[0][1].tensor.data.item() == 1


def test_what_was_seen_does_not_change_any_more():
    returned = [torch.ones(2)]
    observation = observed(lambda: returned)
    returned[0].zero_()
    returned.append(1)
    assert observation.result.children[0][1].tensor.data.tolist() == [1, 1]
    assert len(observation.result.children) == 1


def test_a_result_that_is_kept_does_not_keep_what_a_backward_needs():
    """Only the memory of an earlier result matters: its history would keep every activation of a model."""
    earlier = EarlierCalls()
    weight = torch.ones(3, requires_grad=True)
    alive = weakref.WeakSet()

    class Saved:
        def __init__(self, tensor):
            self.tensor = tensor
            alive.add(self)

    def function(x):
        with torch.autograd.graph.saved_tensors_hooks(Saved, lambda saved: saved.tensor):
            return (x * weight).sin()  # exp would save its own result, in a cycle

    result = function(torch.ones(3))
    assert len(alive) == 2
    del result
    observation = observed(function, torch.ones(3), earlier=earlier, backward=False)
    assert len(alive) == 0
    ((path, earlier_result),) = earlier.results["example"]
    assert (path, earlier_result.grad_fn, earlier_result.tolist()) == (
        "",
        None,
        observation.result.tensor.data.tolist(),
    )


def test_inputs_are_made_under_one_seed():
    def call(x):
        return x + torch.rand(1)

    runs = [observe_call(call, "example", lambda: (torch.rand(1),)) for _ in range(2)]
    assert torch.equal(runs[0].result.tensor.data, runs[1].result.tensor.data)


def hostile(**methods):
    def fails(*_, **__):
        raise ZeroDivisionError("hostile")

    return type(
        "Hostile", (), {name: (property(fails) if how == "property" else fails) for name, how in methods.items()}
    )


HOSTILE = {
    "__eq__": hostile(__eq__="method", __hash__="method"),
    "__repr__": hostile(__repr__="method", __str__="method"),
    "__len__ and __iter__": hostile(__len__="method", __iter__="method", __bool__="method"),
    "__class__": hostile(__class__="property"),
    "__dict__": hostile(__dict__="property"),
    "__getattribute__": hostile(__getattribute__="method"),
    "__getattr__": hostile(__getattr__="method"),
    "a property": hostile(value="property"),
    "_fields": hostile(_fields="property"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_object_ends_in_its_type(name):
    value = HOSTILE[name]()
    observation = observed(lambda x: [x, torch.ones(1)], value)
    assert observation.raised is None
    assert observation.result.children[0][1].type.endswith("Hostile")
    assert observation.result.children[1][1].tensor.data.tolist() == [1]  # its neighbours are still described
    assert observation.args.children[0][1].type.endswith("Hostile")


def test_hostile_containers_keys_and_metaclasses_end_in_their_type():
    class BadDict(dict):
        def __iter__(self):
            raise ZeroDivisionError

        keys = items = __getitem__ = __iter__  # type: ignore[assignment]

    class BadTuple(tuple):  # noqa: SLOT001
        _fields = ("a", "b", "c")

    class BadKey:
        def __repr__(self):
            raise ZeroDivisionError

    class Meta(type):
        @property
        def __module__(cls):
            raise ZeroDivisionError

    class BadType(metaclass=Meta):
        pass

    class BadString(str):
        __slots__ = ()

        def __eq__(self, other):
            raise ZeroDivisionError

        __hash__ = str.__hash__

        def __str__(self):
            raise ZeroDivisionError

    assert snapshot_of(BadDict(a=1)).children is None
    assert snapshot_of(BadTuple((1,))).children is None
    assert [key for key, _ in snapshot_of({BadKey(): 1}).children] == ["[key 0]", "[item 0]"]
    assert "BadType" in snapshot_of(BadType()).type
    text = snapshot_of(BadString("a")).scalar
    assert type(text) is str
    assert text == "a"
    assert snapshot_of({BadKey()}).children is not None


class Wrong(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise ZeroDivisionError


class Wrapper(torch.Tensor):
    """A subclass that holds its values in another tensor, as traceable subclasses do."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    def __tensor_flatten__(self):
        return ["inner"], None

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError


def test_tensor_subclasses():
    plain = snapshot_of(torch.ones(2).as_subclass(type("Mine", (torch.Tensor,), {})))
    assert plain.type.endswith("Mine")
    assert type(plain.tensor.data) is torch.Tensor
    assert snapshot_of(torch.ones(2).as_subclass(Wrong)) == Snapshot(
        "test_observe.Wrong", cut="a tensor that cannot be read: ZeroDivisionError"
    )
    wrapped = dict(snapshot_of(Wrapper(torch.ones(2))).children)
    assert wrapped[".inner"].tensor.data.tolist() == [1, 1]
    assert snapshot_of(torch.nn.Parameter(torch.ones(2))).type == "torch.nn.parameter.Parameter"


def test_a_release_without_named_tensors_reads_the_elements_of_all(monkeypatch):
    plain, compat = sys.modules["recapture.judge.snapshot"], sys.modules["recapture.torch_api.compat"]
    monkeypatch.setattr(plain, "has_names", lambda tensor: compat.has_names(SimpleNamespace()))
    tensor = snapshot_of(torch.ones(2)).tensor
    assert tensor is not None
    assert tensor.data.tolist() == [1, 1]


def test_a_tensor_that_cannot_be_read_is_left_out_aloud(monkeypatch):
    def gone(_):
        raise AttributeError("has_names")

    monkeypatch.setattr("recapture.judge.snapshot.has_names", gone)
    calls = [Observation("example", result=snapshot_of(torch.full((2,), number))) for number in (1.0, 2.0)]
    (note,) = compare(*calls).notes
    assert note.unlike == "cut"
    assert "a tensor that cannot be read: AttributeError" in str(note)


def test_a_tensor_where_an_exporter_left_a_fake_one_can_be_read():
    """It is compared with what was there, whose elements nobody can read."""
    fake = describe(FakeTensorMode().from_tensor(torch.ones(2))).snapshot
    real = describe(torch.ones(2), like=fake).snapshot
    assert real.cut is None
    assert torch.equal(real.tensor.data, torch.ones(2))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_without_one_shape_or_without_values():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)])
    assert [key for key, _ in snapshot_of(nested).children] == [".layout", "[0]", "[1]"]
    meta = snapshot_of(torch.ones(2, 3, device="meta")).tensor
    assert (meta.data, meta.shape, meta.device) == (None, (2, 3), "meta")
    lazy = torch.nn.LazyLinear(2)
    assert observed(lambda: None, reachable=Reachable(lazy)).state is not None


def test_a_gradient_is_part_of_a_leaf():
    x = torch.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    assert dict(snapshot_of(x).children)[".grad"].tensor.data.tolist() == [3, 3]
    assert snapshot_of(x * 2).children is None  # asking a tensor that is no leaf would warn


def test_cycles_and_depth_end_in_a_type():
    value = {}
    value["self"] = value
    assert dict(snapshot_of(value).children)["['self']"] == Snapshot("dict")
    deep = []
    for _ in range(100):
        deep = [deep]
    assert snapshot_of(deep).children is not None


def test_a_web_of_objects_is_not_followed_forever():
    class Node:
        pass

    nodes = [Node() for _ in range(40)]
    for node in nodes:
        for index, target in enumerate(nodes):
            setattr(node, f"to_{index}", target)
    assert snapshot_of(nodes[0]).children is not None


def test_memory_that_runs_out_while_looking_is_not_passed_over():
    class Huge:
        @property
        def __dict__(self):
            raise MemoryError

    observation = observed(Huge)
    assert is_out_of_memory(observation.raised.error)


def test_a_watch_that_raises_is_something_seen():
    observation = observed(lambda: 1, watch=raiser(ValueError("x")))
    assert observation.watched == Snapshot("unreadable", scalar="ValueError")


def test_a_module_whose_state_raises_does_not_end_the_cell():
    class Broken(torch.nn.Module):
        def named_parameters(self, *args, **kwargs):
            raise ValueError("no state")

    observation = observed(lambda: 1, reachable=Reachable(Broken()))
    assert observation.raised is None
    assert dict(observation.state.children).keys() == {
        "state.training",
        "Broken.named_parameters",
        "named_parameters.__code__",
    }


def test_a_module_is_described_by_its_state():
    def call(module):
        module.running_mean.add_(1)
        return module

    observation = observed(call, torch.nn.BatchNorm1d(1))
    for what in (observation.result, observation.args.children[0][1]):
        assert what.type == "torch.nn.modules.batchnorm.BatchNorm1d"
        assert dict(what.children)["['running_mean']"].tensor.data.tolist() == [1]
    assert [path for path, _ in snapshot_of(torch.nn.ReLU()).children] == [".inplace", ".training"]


def test_what_is_printed_is_kept_and_passed_on(capsys):
    assert observed(lambda: print("kept")).output == "kept\n"
    assert capsys.readouterr().out == "kept\n"


def test_names_of_types_are_the_same_in_every_execution_of_a_suite():
    kind = type("Mine", (), {"__module__": "recapture_suite_basic"})
    assert qualified(kind) == "basic.Mine"
    assert qualified(int) == "int"


def test_what_torch_notes_on_a_tensor_is_no_attribute_of_the_user():
    tensor = torch.ones(2)
    vars(tensor).update(fake_device=torch.device("cpu"), unit="m")
    assert [name for name, _ in snapshot_of(tensor).children] == [".unit"]


@pytest.mark.parametrize(("name", "value"), [("level", logging.DEBUG), ("disabled", True), ("propagate", False)])
def test_the_settings_of_a_logger_are_seen(name, value):
    logger = logging.getLogger(f"recapture-test.{name}")
    before = snapshot_of(logger)
    assert snapshot_of(logging.getLogger(f"recapture-test.{name}")) == before
    setattr(logger, name, value)
    assert snapshot_of(logger) != before


def test_what_other_loggers_do_is_no_change_of_a_logger():
    """A logger leads to its manager, which knows those of all libraries, and to caches of what it was asked."""
    logger = logging.getLogger("recapture-test.quiet")
    before = snapshot_of({"log": logger})
    logger.isEnabledFor(logging.INFO)
    logging.getLogger("recapture-test.quiet.child").setLevel(logging.DEBUG)
    logging.getLogger("recapture-test.another").addHandler(logging.NullHandler())
    assert snapshot_of({"log": logger}) == before
    assert snapshot_of(logging.getLogger("recapture-test.another")) != before
