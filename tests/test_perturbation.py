"""Eager with noise: rounded results move by about a rounding, exact ones not at all, and nothing else changes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from recapture.judge import operators
from recapture.judge.perturbation import perturbed
from recapture.torch_api.compat import dispatch_mode

NOISE = Path(__file__).parent / "resources" / "noise.py"
OTHER_PYTHONS = [python for python in os.environ.get("RECAPTURE_OTHER_PYTHONS", "").split(os.pathsep) if python]


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def runs(call, count=8):
    results = []
    for number in range(count):
        with perturbed(number):
            results.append(call())
    return results


def spread(call):
    """The largest relative deviation of a float result in eight perturbed runs from eager, for each element."""
    eager = call().detach()
    apart = torch.stack([(result.detach().double() - eager.double()).abs() for result in runs(call)]).amax(0)
    return apart / eager.double().abs().clamp(min=1e-30)


def with_out(x):
    out = torch.empty_like(x)
    torch.mul(x, x, out=out)
    return out


def in_place(x):
    y = x.clone()
    y.mul_(x)
    y[1:].add_(0.1)
    return y


def of_a_view(x):
    y = x.clone().view(2, -1).T
    y.exp_()
    return y.contiguous()


def gradient(x):
    leaf = x.clone().requires_grad_()
    (leaf.sin() * leaf).sum().backward()
    return leaf.grad


def optimizer(x, **options):
    leaf = torch.nn.Parameter(x.clone())
    step = torch.optim.Adam([leaf], lr=0.1, **options)
    (leaf * x).sum().backward()
    step.step()
    return leaf.detach()


def without_gradients(x):
    with torch.inference_mode():
        return functional.linear(x, x.expand(3, -1)).reshape(-1) * 1.1


def running_variance(x):
    norm = torch.nn.BatchNorm1d(1)
    norm(x[:, None])
    return norm.running_var


X = randn(10)
ROUNDED = {
    "an operator": lambda: X * X,
    "several roundings": X.exp,
    "a sum": X.sum,
    "a product of matrices": lambda: X[None] @ X[:, None],
    "out": lambda: with_out(X),
    "in place": lambda: in_place(X),
    "a view": lambda: of_a_view(X),
    "a conversion": X.half,
    "float8": lambda: X.to(torch.float8_e4m3fn).float(),
    "float64": lambda: X.double() * X.double().flip(0),
    "a sum in float64": lambda: X.double().sin().sum(),
    "numbers out of nothing": lambda: torch.linspace(0.1, 1, 7),
    "a gradient": lambda: gradient(X),
    "an optimizer": lambda: optimizer(X, foreach=False),
    "an optimizer with lists": lambda: optimizer(X, foreach=True),
    "a fused optimizer": lambda: optimizer(X, fused=True),
    "vmap": lambda: torch.func.vmap(torch.func.grad(lambda one: one.sin() * one))(X),
    "inference mode": lambda: without_gradients(X),
    "a written argument": lambda: running_variance(X),
    "a convolution": lambda: functional.conv1d(X[None, None], X[None, None, :3]),
    "complex numbers": lambda: torch.view_as_real(torch.fft.fft(X)).abs(),
    "decomposed": lambda: torch.linalg.svdvals(X.view(2, 5)),
    "scattered": lambda: torch.zeros(2).index_add(0, torch.arange(10) % 2, X),
    "attention": lambda: functional.scaled_dot_product_attention(*[X.view(1, 1, 5, 2)] * 3),
    "numpy": lambda: torch.from_numpy(X.clone().numpy() * 3),
    "an array of numpy": lambda: torch.tensor(__import__("numpy").asarray(X.clone())),
    "an interpolation": lambda: functional.interpolate(X[None, None], scale_factor=1.7, mode="linear"),
    "gelu into a tensor": lambda: torch._C._nn.gelu(X, out=torch.empty(0)),
    "a norm": lambda: functional.layer_norm(X, (10,)),
    "a parameter": lambda: torch.nn.Parameter(X) * 1.1,
}


@pytest.mark.parametrize("name", ROUNDED)
def test_what_rounds_moves_by_about_a_rounding(name):
    moved = spread(ROUNDED[name])
    unit = {"a conversion": 2**-10, "float8": 2**-2, "float64": 2**-52, "a sum in float64": 2**-52}.get(name, 2**-23)
    assert moved.max() > 0
    assert moved.median() <= 16 * unit


def test_fused_attention_rounds_its_probabilities_to_the_half_type():
    inputs = [randn(1, 1, 64, 8, seed=seed) for seed in range(3)]

    def apart(dtype):
        """Median deviation of results that are near zero, relative to the terms that cancel there."""
        results = torch.stack(
            runs(lambda: functional.scaled_dot_product_attention(*(tensor.to(dtype) for tensor in inputs)))
        )
        small = results[0].abs() < 0.05
        assert small.sum() > 20
        return float((results - results[0]).abs().amax(0)[small].median())

    assert 2**-12 < apart(torch.bfloat16) < 2**-8
    assert 0 < apart(torch.float32) < 2**-18


EXACT = {
    "sums of integers": lambda: torch.arange(1000.0).sum(),
    "integers in float64": lambda: (torch.arange(10).double() * 3 + 1) ** 2,
    "products of integers": lambda: torch.arange(16.0).view(4, 4) @ torch.arange(16.0).view(4, 4),
    "halves": lambda: (torch.arange(9.0) / 2).floor() * 1,
    "exp of zero": lambda: torch.zeros(3).exp(),
    "selected": lambda: X.sort().values[X.argsort()],
    "moved": lambda: torch.cat([X.flip(0), X.roll(2)]).view(4, 5).T.contiguous().view(-1),
    "relu": lambda: X.relu().clamp(-1, 1).abs().neg().round(),
    "relu in float64": lambda: X.double().relu().clamp(-1, 1).abs().neg().round(),
    "pooled": lambda: functional.max_pool1d(X[None], 2),
    "written": lambda: X.clone().index_put_((torch.tensor([1]),), torch.tensor(5.0)),
    "wider": X.double,
    "random": lambda: torch.randn(5, generator=torch.Generator().manual_seed(1)),
    "dropped": lambda: torch.nn.Dropout(0.0)(X),
    "counted": lambda: torch.zeros(1) + 1 - 0.5,
    "integers": lambda: (X > 0).sum() + torch.arange(3),
    "integers of numpy": lambda: torch.from_numpy(torch.arange(5.0).numpy() / 2),
    "nan and infinity": lambda: torch.tensor([1.0, -1.0, 0.0]) / 0,
}


@pytest.mark.parametrize("name", EXACT)
def test_what_is_exact_does_not_move(name):
    eager = EXACT[name]()
    for result in runs(EXACT[name]):
        torch.testing.assert_close(result, eager, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["a sum", "a gradient", "an optimizer", "numpy"])
def test_the_noise_follows_from_the_seed(name):
    assert torch.equal(runs(ROUNDED[name], 1)[0], runs(ROUNDED[name], 1)[0])
    assert len({tuple(result.flatten().tolist()) for result in runs(ROUNDED[name])}) > 1


def test_random_numbers_of_the_case_stay_the_same():
    def draw():
        torch.manual_seed(3)
        x = torch.rand(4) * 1.1
        return torch.rand(4), functional.dropout(torch.ones(100)), x

    eager = draw()
    state = torch.get_rng_state()
    for drawn in runs(draw):
        assert torch.equal(drawn[0], eager[0])
        assert torch.equal(drawn[1], eager[1])
        assert torch.equal(torch.get_rng_state(), state)


def test_arguments_and_their_memory_stay_the_same():
    x = X.clone()
    with perturbed(0):
        y = x.view(2, 5)
        assert (y.exp() + x.sum()).is_contiguous()
        assert y.data_ptr() == x.data_ptr()
    assert torch.equal(x, X)
    assert (X * X * X).equal(X * X * X)


def test_results_keep_their_strides_and_their_identity():
    x = X.view(2, 5).T
    with perturbed(1):
        assert (x * 1.1).stride() == x.stride()
        y = x.clone()
        assert y.mul_(1.1) is y


def test_a_sum_varies_as_much_as_orders_of_summation_do():
    x = randn(100_000)
    orders = [x.flip(0).sum(), x.double().sum().float(), x.view(-1, 8).T.contiguous().sum(1).sum()]
    lanes = torch.zeros(16)
    for row in x.view(-1, 16):
        lanes += row
    apart = max(abs(float(total - x.sum())) for total in [*orders, lanes.sum()])
    assert max(abs(float(total - x.sum())) for total in runs(x.sum)) > apart / 3


def test_a_subclass_that_wraps_tensors_is_perturbed_inside():
    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            bare = [value.inner if isinstance(value, Wrapped) else value for value in args]
            return Wrapped(func(*bare, **(kwargs or {})))

    assert len({tuple(result.inner.tolist()) for result in runs(lambda: Wrapped(X) * 1.1)}) > 1


def test_an_operator_of_the_user_runs_once():
    calls = []
    library = torch.library.Library("recapture_test_perturbation", "DEF")
    library.define("twice(Tensor x) -> Tensor")

    def twice(x):
        calls.append(1)
        return x * 2.2

    library.impl("twice", twice, "CPU")
    results = runs(lambda: torch.ops.recapture_test_perturbation.twice(X))
    assert len(calls) == len(results)
    assert len({tuple(result.tolist()) for result in results}) > 1


def test_an_operator_that_calls_functions_is_perturbed_as_a_whole():
    cond = torch.ops.higher_order.cond

    def call():
        return cond(torch.tensor(True), lambda x: (x.sin(), x.round()), lambda x: (x.cos(), x), (X,))

    results = runs(call)
    assert len({tuple(result[0].tolist()) for result in results}) > 1
    assert all(torch.equal(result[1], X.round()) for result in results)


def test_tensors_without_numbers_stay_so():
    with perturbed(0), torch._subclasses.FakeTensorMode():
        assert (torch.empty(3) * 1.1).shape == (3,)
    with perturbed(0):
        assert (torch.empty(3, device="meta") * 1.1).shape == (3,)


def test_an_exception_is_that_of_eager():
    with perturbed(0), pytest.raises(RuntimeError, match="size of tensor"):
        X + X[:3]
    assert torch.equal(X + X, X + X)


def test_a_perturbed_run_does_not_import_dynamo():
    code = (
        "import sys, torch; from recapture.judge.perturbation import perturbed\n"
        "with perturbed(0): torch.ones(3).exp().sum()\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class DtypesOfProducts(dispatch_mode()):  # type: ignore[misc]
    """Remembers the dtypes that matrix products are computed in."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.mm.default:
            self.seen.add(args[0].dtype)
        return func(*args, **(kwargs or {}))


def dtypes_of_a_perturbed_product():
    x = torch.randn(8, 8)
    plain = x @ x
    with DtypesOfProducts() as products, perturbed(0):
        noisy = x @ x
    assert 0 < (noisy - plain).abs().max() < 1e-4
    return products.seen


def test_an_operator_that_misreads_float64_is_called_in_its_own_dtype_alone(monkeypatch):
    assert dtypes_of_a_perturbed_product() == {torch.float32, torch.float64}
    monkeypatch.setattr(operators, "UNCHECKED", {"mm"})
    assert dtypes_of_a_perturbed_product() == {torch.float32}


@pytest.mark.skipif(
    not hasattr(torch.ops.aten, "_scaled_dot_product_cudnn_attention"), reason="this torch has no attention by cuDNN"
)
def test_attention_by_cudnn_is_never_called_in_a_wider_dtype():
    assert not operators.widens(torch.ops.aten._scaled_dot_product_cudnn_attention.default)
    assert operators.widens(torch.ops.aten.mm.default)


def test_a_sum_that_is_exact_by_luck_in_one_order_gets_noise():
    torch.manual_seed(0)
    x = torch.randn(4, 3)
    assert x.sum().double() == x.double().sum()
    sums = set()
    for run in range(8):
        with perturbed(run):
            sums.add(x.sum().item())
    assert len(sums) > 1


@pytest.mark.parametrize("python", [sys.executable, *OTHER_PYTHONS])
def test_values_gradients_and_compiled_code_get_noise_on_every_release(python):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([python, NOISE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == dict.fromkeys(
        ["value", "value again", "gradient", "gradient again", "compiled", "compiled again"], True
    )
