"""What is captured with dynamic sizes: derived from the held-out inputs, told apart from real limits."""

import dataclasses
import os
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils import _pytree

from recapture.cases.case import Case
from recapture.cases.compiler import compiler
from recapture.cases.compilers import builtin_compilers
from recapture.cases.compilers.export import dynamic_shapes
from recapture.judge.steps import carry_out, held_out_shapes
from recapture.judge.verdict import decide
from recapture.records.verdicts import Verdict
from recapture.torch_api.compat import release, reset_dynamo

COMPILERS = builtin_compilers()


class Pair(NamedTuple):
    a: Any
    b: Any


pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    reset_dynamo()
    yield
    reset_dynamo()


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    count: int


torch.export.register_dataclass(Batch)


def a_case(target, example, *held_out, **more):
    plain = {"claims": {}, "concrete_args": None, "rewrite_of": None, "backward": None, "strict": (), "watch": None}
    plain |= {"reset": None, "since": None, "requires": (), "codegen_on": None, "line": None, "name": "planted"}
    return Case(target=target, example=example, held_out=held_out, **(plain | more))


def ruling(how, target, example, *held_out, **more):
    trial = carry_out(lambda: a_case(target, example, *held_out, **more), COMPILERS[how], "cpu", lambda _: None)
    result = decide(trial)
    assert result is not None
    return result


def outcome(how, target, example, *held_out):
    """The verdict, its phase, and the input that shows it."""
    result = ruling(how, target, example, *held_out)
    return str(result.verdict), result.phase, result.input


def vectors(*sizes):
    return [lambda size=size: (torch.ones(size),) for size in sizes]


def doubled(x):
    return x * 2


def branches_on_size(x):
    return x + 1 if x.shape[0] > 4 else x - 1


def branches_on_data(x):
    return x + 1 if x.sum() > 0 else x - 1


def test_another_batch_size_is_refused_by_export_and_captured_with_dynamic_sizes():
    assert outcome("export", doubled, *vectors(4, 7)) == ("error", "call", "held_out[0]")
    assert outcome("export:dynamic", doubled, *vectors(4, 7, 9)) == ("pass", None, None)


def test_a_branch_on_the_size_is_a_limit_only_where_an_input_takes_the_other_branch():
    assert outcome("export:dynamic", branches_on_size, *vectors(6, 9)) == ("pass", None, None)
    assert outcome("export:dynamic", branches_on_size, *vectors(6, 9, 2)) == ("error", "call", "held_out[1]")


def test_a_branch_on_data_stays_a_limit():
    result = ruling("export:dynamic", branches_on_data, *vectors(4, 7))
    assert (str(result.verdict), result.phase) == ("error", "capture")
    assert result.raised is not None
    assert "data-dependent" in result.raised.message.lower()


def test_an_example_of_size_one_stays_specialized():
    assert outcome("export:dynamic", doubled, *vectors(1, 7)) == ("error", "call", "held_out[0]")


def nested(options, pair, batch, count):
    return options["x"] * options["scale"] + pair.a.sum(1) * pair.b[1] + batch.x * batch.count + count


def nested_inputs(size, scale=2.0, count=3):
    tensors = torch.ones(size, 2), torch.ones(size)
    return lambda: ({"x": torch.ones(size), "scale": scale}, Pair(tensors[0], [None, 3]), Batch(tensors[1], 3), count)


def test_sizes_inside_containers_and_dataclasses_are_dynamic():
    assert outcome("export:dynamic", nested, nested_inputs(4), nested_inputs(7)) == ("pass", None, None)


def test_an_integer_that_differs_is_dynamic_and_a_float_is_not():
    assert outcome("export:dynamic", nested, nested_inputs(4), nested_inputs(7, count=5)) == ("pass", None, None)
    assert outcome("export:dynamic", nested, nested_inputs(4), nested_inputs(7, scale=1.5))[0] == "error"


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(1))

    def forward(self, x, *more, flag=None):
        return x * self.scale + more[0]


def test_a_module_with_variable_arguments_keeps_its_parameters():
    def scaled_inputs(size):
        return lambda: (torch.ones(size), torch.ones(size))

    assert outcome("export:dynamic", Scaled, scaled_inputs(4), scaled_inputs(7)) == ("pass", None, None)


def test_a_wrong_result_is_still_found():
    def specializes(x):
        return x * len(x.tolist()) if torch.compiler.is_compiling() else x * x.shape[0] + 1

    assert str(ruling("export:dynamic", specializes, *vectors(4, 7)).verdict) != "pass"


# --- what is derived ------------------------------------------------------------------------------------------------


class Plain(torch.nn.Module):
    def forward(self, x, other=None):
        return x


def derived(example, *held_out):
    return dynamic_shapes(Plain(), example, held_out)


AUTO = torch.export.Dim.AUTO


@pytest.mark.parametrize(
    ("example", "held_out", "expected"),
    [
        ((torch.ones(2, 3),), [(torch.ones(2, 3),)], (None,)),
        ((torch.ones(2, 3),), [(torch.ones(2, 4),)], ({1: AUTO},)),
        ((torch.ones(2, 3),), [(torch.ones(2, 4),), (torch.ones(5, 3),)], ({0: AUTO, 1: AUTO},)),
        ((torch.ones(2, 3),), [(torch.ones(4),)], (None,)),  # another rank says nothing
        ((torch.ones(2), 3), [(torch.ones(2), 4)], (None, AUTO)),
        ((torch.ones(2), True), [(torch.ones(2), False)], (None, None)),
        ((torch.ones(2), 1.0), [(torch.ones(2), 2)], (None, None)),
        ((torch.ones(2), "a"), [(torch.ones(3), "b")], ({0: AUTO}, None)),
        ((torch.ones(2),), [(torch.ones(3), 1)], (None,)),  # other arguments
        (([torch.ones(2)],), [([torch.ones(3)],)], ([{0: AUTO}],)),
        (([torch.ones(2)],), [([torch.ones(3), 1],)], ([None],)),  # another structure
        (({"a": torch.ones(2)},), [({"b": torch.ones(3)},)], ({"a": None},)),
        ((Pair(torch.ones(2), ()),), [(Pair(torch.ones(3), ()),)], (Pair({0: AUTO}, ()),)),
        ((Batch(torch.ones(2), 1),), [(Batch(torch.ones(3), 1),)], ([{0: AUTO}, None],)),
        ((torch.ones(2),), [], (None,)),
    ],
)
def test_what_differs_is_dynamic(example, held_out, expected):
    assert derived(example, *held_out) == expected


@pytest.mark.parametrize(
    ("example", "held_out", "expected"),
    [
        (([torch.ones(2), 1],), ([torch.ones(3), 2],), ([{0: AUTO}, AUTO],)),
        (({"a": [torch.ones(2)], "b": None},), ({"a": [torch.ones(3)], "b": None},), ({"a": [{0: AUTO}], "b": None},)),
        ((Pair(torch.ones(2), ()),), (Pair(torch.ones(3), ()),), (Pair({0: AUTO}, ()),)),
        (("a",), ("b",), (None,)),
    ],
)
def test_containers_are_walked_where_pytree_knows_no_is_leaf(example, held_out, expected, monkeypatch):
    """As in torch 2.2."""
    flatten = _pytree.tree_flatten

    def tree_flatten(tree):
        return flatten(tree)

    monkeypatch.setattr(_pytree, "tree_flatten", tree_flatten)
    assert derived(example, held_out) == expected


def test_on_releases_without_auto_sizes_have_names_and_equal_ones_share_them(monkeypatch):
    class Named:
        def __init__(self, name, **limits):
            self.says = name, limits

    monkeypatch.setattr(torch.export, "Dim", Named)
    x, y = derived((torch.ones(4, 3), torch.ones(4, 5)), (torch.ones(7, 3), torch.ones(7, 1)))
    assert x[0] is y[0]
    assert (x[0].says, y[1].says) == (("size0", {"min": 4, "max": 7}), ("size1", {"max": 5}))
    (small,) = derived((torch.ones(2),), (torch.ones(1),))
    assert small[0].says == ("size0", {}), "a range from 2 to 2 is none"


# --- the interface --------------------------------------------------------------------------------------------------


def takes_two(x, y):
    return x


def test_a_compiler_sees_the_sizes_of_the_held_out_inputs_and_no_values():
    held_out = [lambda: (torch.full((3,), 5.0), [torch.ones(2, dtype=torch.int64), 7, "a"])]
    ((x, (y, number, text)),) = held_out_shapes(a_case(takes_two, *vectors(1), *held_out))
    assert (x.device.type, tuple(x.shape), x.dtype) == ("meta", (3,), torch.float32)
    assert (y.device.type, tuple(y.shape), y.dtype, number, text) == ("meta", (2,), torch.int64, 7, "a")


def test_tensors_without_plain_sizes_have_stand_ins():
    sparse, nested_tensor = torch.eye(3).to_sparse(), torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    ((first, second),) = held_out_shapes(a_case(takes_two, *vectors(1), lambda: (sparse, nested_tensor)))
    assert (tuple(first.shape), tuple(second.shape)) == ((3, 3), (0,))


def test_inputs_that_several_executions_share_keep_their_values():
    shared = {"x": torch.ones(7), "more": [torch.ones(2)]}
    ((shapes,),) = held_out_shapes(a_case(doubled, *vectors(4), lambda: (shared,)))
    assert (shapes["x"].device.type, shared["x"].device.type, shared["more"][0].device.type) == ("meta", "cpu", "cpu")


def test_what_the_compiler_sees_is_made_from_another_execution_of_the_case():
    tensors = []

    def load():
        own_tensor = torch.zeros(3)

        def held_out():
            tensors.append(own_tensor)
            own_tensor.add_(1)  # a factory that changes what it is made from
            return (own_tensor,)

        return a_case(doubled, lambda: (own_tensor,), held_out)

    @compiler("planted", sees_held_out=True)
    def planted(fn, example, held_out=()):
        """Planted."""
        assert [tuple(tensor.shape) for (tensor,) in held_out] == [(3,)]
        return fn

    how = vars(__import__(__name__))["__recapture_compilers__"].pop()
    result = decide(carry_out(load, how, "cpu", lambda _: None))
    assert result is not None
    assert (str(result.verdict), result.differences) == ("pass", ())
    assert len({id(tensor) for tensor in tensors}) == 4  # eager twice, the sizes, the compiler
    assert [float(tensor[0]) for tensor in {id(tensor): tensor for tensor in tensors}.values()] == [1.0] * 4


def test_a_compiler_that_would_see_them_must_take_them():
    with pytest.raises(TypeError, match="compiler 'mine': sees_held_out needs an argument held_out with a default"):
        compiler("mine", sees_held_out=True)(lambda fn, example: fn)
    with pytest.raises(TypeError, match="needs an argument held_out with a default"):
        compiler("mine", sees_held_out=True)(lambda fn, example, held_out: fn)


# --- AOTInductor ----------------------------------------------------------------------------------------------------


def with_sum(x):
    return x * 2 + x.sum()


@pytest.mark.slow
def test_aoti_reads_other_memory_for_another_size_its_checks_refuse_and_dynamic_sizes_are_right():
    inputs = vectors(4, 7)
    assert outcome("aoti", with_sum, *inputs)[0] == "specialized"
    assert outcome("aoti:checked", with_sum, *inputs) == ("error", "call", "held_out[0]")
    assert "AOTI_RUNTIME_CHECK_INPUTS" not in os.environ
    assert outcome("aoti:dynamic", with_sum, *inputs) == ("pass", None, None)


@pytest.mark.slow
def test_the_checks_leave_a_variable_of_the_case_as_it_was(monkeypatch):
    monkeypatch.setenv("AOTI_RUNTIME_CHECK_INPUTS", "0")
    captured = COMPILERS["aoti:checked"].capture(with_sum, (torch.ones(4),))
    torch.testing.assert_close(captured(torch.ones(4)), torch.full((4,), 6.0))
    with pytest.raises(Exception, match=r"."):
        captured(torch.ones(7))
    assert os.environ["AOTI_RUNTIME_CHECK_INPUTS"] == "0"


class TransformNet(torch.nn.Module):
    """The transform of a public PointNet: a bias of the identity from numpy, in a `Variable`, and a fixed `view`."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(3, 1024, 1)
        self.norm = torch.nn.BatchNorm1d(1024)
        self.linear = torch.nn.Linear(1024, 9)

    def forward(self, points):
        batch = points.size()[0]
        features = torch.relu(self.norm(self.conv(points)))
        features = torch.max(features, 2, keepdim=True)[0].view(-1, 1024)
        identity = torch.autograd.Variable(torch.from_numpy(np.eye(3).flatten().astype(np.float32)))
        identity = identity.view(1, 9).repeat(batch, 1)
        if features.is_cuda:
            identity = identity.cuda()
        return (self.linear(features) + identity).view(-1, 3, 3)


class PointNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.transform = TransformNet()
        self.conv = torch.nn.Conv1d(3, 1024, 1)
        self.linear = torch.nn.Linear(1024, 4)
        self.eval()

    def forward(self, points):
        turned = torch.bmm(points.transpose(2, 1), self.transform(points)).transpose(2, 1)
        features = torch.max(torch.relu(self.conv(turned)), 2, keepdim=True)[0].view(-1, 1024)
        return torch.log_softmax(self.linear(features), dim=1)


@pytest.mark.skipif(release() < (2, 8), reason="export is strict by default before 2.8")
def test_a_pointnet_is_right_with_dynamic_sizes():
    """Dynamo does not trace `Variable`, so that the strict call refuses the model."""
    sizes = ((4, 3, 64), (1, 3, 64), (5, 3, 64), (4, 3, 40))
    inputs = [lambda size=size: (torch.rand(size),) for size in sizes]
    assert ruling("export:dynamic", PointNet, *inputs).verdict is Verdict.PASS
    assert ruling("export:strict", PointNet, *inputs).phase == "capture"
