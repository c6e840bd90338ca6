"""A case whose operators add in another order in each call is judged; one that is random is not."""

import json
import sys

import pytest
import torch
from command_lines import recapture

from recapture.judge.float64 import widening_tensors
from recapture.judge.observe import Observation
from recapture.judge.repetition import differ_by_rounding_alone
from recapture.judge.snapshot import snapshot_of
from recapture.run.cell import CellSpec, examine
from recapture.torch_api.compat import reset_dynamo

pytestmark = pytest.mark.filterwarnings("ignore")

SUITE = '''
import random
import time

import torch

from recapture import case, compiler

ORDER = random.SystemRandom()


def added_in_any_order(terms):
    """The sum over the first dimension, as of a GPU kernel with atomic additions."""
    order = list(range(len(terms)))
    ORDER.shuffle(order)
    total = torch.zeros_like(terms[0])
    for index in order:
        total = total + terms[index]
    return total


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight.T, added_in_any_order(x[:, :, None] * gradient[:, None, :])


def normalised(x):
    return (x - x.mean(0)) / x.std(0)


@case(example=lambda: (torch.randn(64, 16),), held_out=[lambda: (torch.randn(48, 16),)])
class Deep(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(16, 16)) for _ in range(6)])
        self.bias = torch.nn.Parameter(torch.zeros(16))

    def forward(self, x):
        for weight in self.weights:
            x = torch.relu(normalised(Product.apply(x, weight) + self.bias))
        return x


@case(example=lambda: (torch.randn(500, 8),), held_out=[lambda: (torch.randn(400, 8),)])
def sums(x):
    return added_in_any_order(x)


@case(example=lambda: (torch.randn(500, 8, dtype=torch.float64),))
def sums_in_float64(x):
    return added_in_any_order(x.exp()) - added_in_any_order(x.exp())


@case(example=lambda: (torch.randn(100),))
def random_numbers(x):
    return x + ORDER.random()


@case(example=lambda: (torch.randn(100),))
def small_random_numbers(x):
    return x + 1e-3 * ORDER.random()


@case(example=lambda: (torch.randn(100),))
def random_permutation(x):
    order = list(range(100))
    ORDER.shuffle(order)
    return x[order]


@case(example=lambda: (torch.randn(100),))
def a_time(x):
    return x + time.perf_counter() % 10


@case(example=lambda: (torch.randn(100),))
def random_integer(x):
    return x, ORDER.randrange(10**9)


@case(example=lambda: (torch.randn(100), torch.zeros(3)))
def random_state(x, state):
    state.add_(ORDER.random())
    return x


WEIGHT = torch.randn(8, 8, dtype=torch.float32)


@case(example=lambda: (torch.randn(500, 8),))
def fails_in_float64(x):
    if x.dtype == torch.float64:
        raise RuntimeError("float32 alone")
    return x + ORDER.random()


class RandomBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        if gradient.dtype == torch.float64:
            raise RuntimeError("float32 alone")
        return gradient + ORDER.random()


@case(example=lambda: (torch.randn(500, 8, requires_grad=True),))
def backward_fails_in_float64(x):
    return RandomBackward.apply(x)


@case(example=lambda: (torch.randn(500, 8),))
def random_in_float32_alone(x):
    return x + ORDER.random() if x.dtype == torch.float32 else x


@case(example=lambda: (torch.randn(500, 8, dtype=torch.complex64),))
def complex_sums(x):
    return cancelling_sums(x)


@case(example=lambda: (torch.randn(500, 8),))
def sums_of_a_cast(x):
    return cancelling_sums((x.to(torch.float32) @ WEIGHT).float())


@case(example=lambda: (torch.randn(500, 8),))
def number_from_sums(x):
    return cancelling_sums(x.exp()).sum().item() / 3


def cancelling_sums(x):
    """Sums that differ in their third digit or so."""
    return added_in_any_order(torch.cat([x * 1000, x * -1000, x]))


@case(example=lambda: (torch.randn(500, 8),), held_out=[lambda: (torch.randn(400, 8),)])
def sums_that_seldom_differ_far(x):
    """In half of the runs they differ by less than any tolerance, but not in no bit."""
    torch.calls_of_test_repetition += 1  # the same runs each time: all of them could fall alike by chance
    large = 1000 * x[0]
    falls = random.Random(torch.calls_of_test_repetition).random() < 0.5
    rounded = (large + x[1]) - large if falls else (large - large) + x[1]
    return added_in_any_order(x), rounded


@case(example=lambda: (torch.randn(500, 8),))
class WithSharedModule(torch.nn.Module):
    """All executions of this file have the same module, and a list of tensors."""

    def __init__(self):
        super().__init__()
        self.shared = vars(torch).setdefault("shared_by_test_repetition", torch.nn.Linear(8, 8))

    def forward(self, x):
        return cancelling_sums(self.shared(x))


def shared_list():
    return vars(torch).setdefault("list_of_test_repetition", [torch.randn(500, 8)])


@case(example=lambda: (shared_list(),))
def shared_arguments(tensors):
    return cancelling_sums(tensors[0].exp())


@compiler("same")
def same(fn, example):
    return fn


@compiler("slightly-off")
def slightly_off(fn, example):
    """Its result is 0.1 % too large."""
    return lambda *args: fn(*args) * 1.001


@compiler("wrong-gradient")
def wrong_gradient(fn, example):
    """The gradient of one weight is 1 % too large."""
    fn.weights[2].register_hook(lambda gradient: gradient * 1.01)
    return fn


@compiler("patches-torch")
def patches_torch(fn, example):
    """Compiled code and eager are 0.1 % off from then on: what eager gives now says nothing about what it gave."""
    original = torch.zeros_like
    torch.zeros_like = lambda x: original(x) + 0.01
    return fn
'''


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "repetition.py"
    path.write_text(SUITE)
    return path


@pytest.fixture
def verdict(path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(torch, "zeros_like", torch.zeros_like)
    monkeypatch.setattr(torch, "shared_by_test_repetition", torch.nn.Linear(8, 8), raising=False)
    monkeypatch.setattr(torch, "list_of_test_repetition", [torch.randn(500, 8)], raising=False)
    reset_dynamo()

    def run(case, compiler):
        own = {} if ":" in compiler else {"compiler_suite": "repetition", "compiler_file": str(path)}
        spec = CellSpec(suite="repetition", path=str(path), case=case, compiler=compiler, device="cpu", **own)
        return str(examine(spec, lambda _: None).verdict)

    return run


@pytest.mark.parametrize("case", ["Deep", "sums", "complex_sums", "sums_of_a_cast", "number_from_sums"])
@pytest.mark.parametrize("attempt", range(3))
def test_other_orders_of_a_sum_are_rounding(verdict, case, attempt):
    assert verdict(case, "same") == "pass"


@pytest.mark.parametrize("attempt", range(10))
def test_runs_that_agree_but_for_rounding_say_nothing_of_a_later_run(verdict, attempt, monkeypatch):
    monkeypatch.setattr(torch, "calls_of_test_repetition", 1000 * attempt, raising=False)
    assert verdict("sums_that_seldom_differ_far", "same") == "pass"


@pytest.mark.parametrize("case", ["WithSharedModule", "shared_arguments"])
def test_what_all_executions_share_stays_as_it_is(verdict, case):
    assert verdict(case, "same") == "pass"
    assert torch.shared_by_test_repetition.weight.dtype == torch.float32
    assert torch.list_of_test_repetition[0].dtype == torch.float32


def test_compiled_code_is_judged_too(verdict):
    assert verdict("Deep", "compile:eager").startswith("pass")


@pytest.mark.parametrize(
    ("case", "compiler"),
    [("Deep", "slightly-off"), ("sums", "slightly-off"), ("Deep", "wrong-gradient"), ("sums", "patches-torch")],
)
def test_what_is_more_than_rounding_is_wrong(verdict, case, compiler):
    assert verdict(case, compiler) == "wrong"


@pytest.mark.parametrize(
    "case",
    [
        "random_numbers",
        "small_random_numbers",
        "random_permutation",
        "a_time",
        "random_integer",
        "random_state",
        "fails_in_float64",
        "backward_fails_in_float64",
        "random_in_float32_alone",
    ],
)
def test_what_is_random_is_not_judged(verdict, case):
    assert verdict(case, "same") == "unstable"


def test_what_does_not_shrink_in_float64_is_not_judged(verdict):
    assert verdict("sums_in_float64", "same") == "unstable"


def gives(*values):
    """Return what is observed of one call."""
    return [Observation("example", result=snapshot_of(values))]


def sums_of(low, high):
    return gives(torch.tensor([low, high, 1.0]))


def test_runs_that_agree_in_float64_by_chance_are_not_enough():
    first, again = sums_of(0.5, 0.0), sums_of(0.5, 1.0)
    precise = gives(torch.tensor([0.5, 0.0, 1.0], dtype=torch.float64))
    assert not differ_by_rounding_alone(first, again, [precise] * 4)
    assert differ_by_rounding_alone(first, sums_of(0.5, 1e-4), [precise] * 4)


def test_addresses_in_memory_that_nobody_wrote_to_are_no_rounding():
    addresses = torch.tensor([[0x7F00_1000_0000, 0x7F00_5000_0000], [0x7F00_2000_0000, 0x7F00_4000_0000]])
    first, again = (gives(row.view(torch.float32)) for row in addresses)
    precise = [gives(row.view(torch.float64).repeat_interleave(2)) for row in addresses] * 2
    assert not differ_by_rounding_alone(first, again, precise)


def test_runs_in_float64_are_made_only_where_numbers_differ_and_as_long_as_they_may_be_rounding():
    made = []

    def runs():
        for number in range(4):
            made.append(number)
            yield gives(torch.tensor([0.5, number, 1.0], dtype=torch.float64))

    assert not differ_by_rounding_alone(sums_of(0.5, 0.0), sums_of(0.5, 0.0), runs())
    assert not differ_by_rounding_alone(gives(torch.ones(2), 1), gives(torch.zeros(2), 2), runs())
    assert made == []
    assert not differ_by_rounding_alone(sums_of(0.5, 0.0), sums_of(0.5, 1.0), runs())
    assert made == [0, 1]


def test_settings_and_tensors_are_put_back_after_an_exception():
    weight = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))

    def fail(widening):
        assert torch.ones(2, dtype=torch.float16).dtype == widening.widen(weight).dtype == torch.float64
        raise SystemExit

    with pytest.raises(SystemExit), widening_tensors() as widening, widening.in_calls():
        fail(widening)
    assert torch.ones(2).dtype == torch.float32
    assert weight.dtype == torch.bfloat16


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sums_of_a_cast", "number_from_sums"])
def test_drift_of_sums_in_any_order_is_rounding(tmp_path, capsys, name):
    path = tmp_path / "sums.py"
    path.write_text(
        SUITE.replace("from recapture import case, compiler", "case = compiler = lambda *_, **__: lambda f: f")
    )
    assert recapture("drift", f"{path}:{name}", "--input", "500x8", "--setting", "threads=1,2", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "rounding", document["sentence"]
