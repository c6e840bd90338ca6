"""A case whose operators add in another order in each call is judged; one that is random is not."""

import sys

import pytest

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
    import torch

    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(torch, "zeros_like", torch.zeros_like)
    reset_dynamo()

    def run(case, compiler):
        own = {} if ":" in compiler else {"compiler_suite": "repetition", "compiler_file": str(path)}
        spec = CellSpec(suite="repetition", path=str(path), case=case, compiler=compiler, device="cpu", **own)
        return str(examine(spec, lambda _: None).verdict)

    return run


@pytest.mark.parametrize("case", ["Deep", "sums"])
@pytest.mark.parametrize("attempt", range(3))
def test_other_orders_of_a_sum_are_rounding(verdict, case, attempt):
    assert verdict(case, "same") == "pass"


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
    ["random_numbers", "small_random_numbers", "random_permutation", "a_time", "random_integer", "random_state"],
)
def test_what_is_random_is_not_judged(verdict, case):
    assert verdict(case, "same") == "unstable"


def test_what_does_not_shrink_in_float64_is_not_judged(verdict):
    assert verdict("sums_in_float64", "same") == "unstable"
