"""What rounding explains, and what it does not: planted errors are all seen, other roundings are never blamed."""

import math

import pytest
import torch
from torch.nn import functional

from recapture.judge.perturbation import perturbed
from recapture.judge.rounding import Distance, distance, explained, same_bits, unequal
from recapture.judge.snapshot import snapshot_of


def is_rounding(eager, other, *args):
    """Whether perturbed runs of `eager` explain what `other` makes of the arguments."""

    def sample(number):
        with perturbed(number):
            return snapshot_of(eager(*args))

    return explained(snapshot_of(eager(*args)), snapshot_of(other(*args)), sample)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def ill_conditioned(x):
    """Returns numbers of 1e6 whose digits are mostly rounding errors, and a small exact one."""
    y = x * 1e6
    y = y + 1e13 - 1e13
    y[0] = x[0] * 0.005
    return y


def one_wrong(x):
    y = ill_conditioned(x)
    y[0] = 100.0
    return y


def bits_added(values, count):
    return (values.view(torch.int16) + count).view(values.dtype)


WRONG = {
    "a variance of 8e-6, 29 % too large": (torch.var, lambda x: x.var() * 1.29, randn(100) * 2.8e-3),
    "expm1 of 5e-7, 5 % too large": (torch.expm1, lambda x: x.expm1() * 1.05, torch.full((3,), 5e-7)),
    "expm1 that cancels": (torch.expm1, lambda x: x.exp() - 1, torch.full((3,), 5e-7)),
    "a learning rate baked in": (lambda p, g: p - 2e-6 * g, lambda p, g: p - 1e-6 * g, randn(8), randn(8, seed=1)),
    "another branch at 1e-5": (
        lambda x: x * 2 if x.sum() > 0 else x * 3,
        lambda x: x * 3,
        torch.tensor([1e-5]),
    ),
    "an element beside ill-conditioned ones": (ill_conditioned, one_wrong, randn(50).abs() + 1),
    "bfloat16, 1 % too large": (torch.exp, lambda x: (x.float().exp() * 1.01).bfloat16(), randn(32).bfloat16()),
    "bfloat16 product, 1 % too large": (
        lambda x: x * 1.3,
        lambda x: (x.float() * 1.3 * 1.01).bfloat16(),
        randn(64).bfloat16(),
    ),
    "bfloat16 results of both signs, 1 % too large": (
        lambda x: x / 3,
        lambda x: (x / 3).float().mul(1.01).bfloat16(),
        randn(256, seed=1).bfloat16(),
    ),
    "float64 computed in float32": (
        lambda x: x.sin() * 3,
        lambda x: (x.float().sin() * 3).double(),
        randn(10).double(),
    ),
    "a softmax without its tail": (
        lambda x: x.softmax(-1),
        lambda x: functional.threshold(x.softmax(-1), 2e-6, 0),
        torch.tensor([0.0, -13.2, 1.0, 2.0]),
    ),
    "a parameter that drifts": (
        lambda p, g: p - 0.1 * g,
        lambda p, g: (p - 0.1 * g) * (1 + 1e-6),
        randn(8),
        randn(8, seed=1),
    ),
    "1e-6 for 3e-6": (lambda x: x * 3e-6, lambda x: x * 1e-6, torch.ones(1)),
    "integers off by one": (lambda x: x * 2 + 1, lambda x: x * 2 + 2, torch.arange(10.0)),
    "large integers off by one": (lambda x: x + 1, lambda x: x + 2, torch.tensor([1e7])),
    "bfloat16 integers off by one": (lambda x: x + 1, lambda x: x + 2, torch.tensor([150.0]).bfloat16()),
    "float64 integers off by one": (lambda x: x * x, lambda x: x * x + 1, torch.tensor([3001.0]).double()),
    "floor off by one": (lambda x: (x / 2).floor(), lambda x: (x / 2).ceil(), torch.arange(7.0)),
    "halves rounded up": (torch.round, lambda x: (x + 0.5).floor(), torch.tensor([0.5, 1.5, 2.5])),
    "float16, 4 units": (torch.sin, lambda x: bits_added(x.sin(), 4), randn(5).half()),
    "a sum without one term of 1,000": (torch.sum, lambda x: x[1:].sum(), randn(1000)),
    "a sum of positive terms without one": (torch.sum, lambda x: x[1:].sum(), torch.rand(1000) + 0.1),
    "a mean divided by n - 1": (torch.mean, lambda x: x.sum() / (len(x) - 1), randn(1000)),
    "a convolution with wrong padding": (
        lambda x, w: functional.conv1d(x, w, padding=1),
        lambda x, w: functional.conv1d(functional.pad(x, (1, 1), value=1e-3), w),
        randn(1, 4, 20),
        randn(4, 4, 3),
    ),
    "a number for NaN": (torch.sqrt, lambda x: x.abs().sqrt(), torch.tensor([-1.0, 4.0])),
    "NaN for a number": (lambda x: x.abs().sqrt(), torch.sqrt, torch.tensor([-1.0, 4.0])),
    "a large number for infinity": (
        lambda x: x * 2,
        lambda x: (x * 2).clamp(max=3e38),
        torch.tensor([3e38, 1.0]),
    ),
    "infinity for a large number": (lambda x: x * 1, lambda x: x * 2, torch.tensor([3e38, 1.0])),
    "the other infinity": (lambda x: 1 / x, lambda x: -1 / x, torch.zeros(2)),
    "a number read from a tensor": (
        lambda x: (x * 0.1).sum().item(),
        lambda x: (x * 0.1).sum().item() + 1e-6,
        randn(3),
    ),
    "a Python number": (lambda x: float(x) * 0.1, lambda x: float(x) * 0.1 + 1e-9, torch.tensor(0.3)),
    "a complex number": (
        torch.fft.fft,
        lambda x: torch.fft.fft(x) + 1e-4j,
        randn(16),
    ),
    "an integer": (lambda x: x.argmax(), lambda x: x.argmax() + 1, randn(9)),
    "a boolean": (lambda x: x > 0, lambda x: x >= 0, torch.zeros(3)),
    "a number of numpy": (
        lambda x: torch.from_numpy(x.numpy() * 3.0),
        lambda x: x * 3.0001,
        randn(5),
    ),
    "a gradient": (
        torch.func.grad(lambda v: (v * v.sin()).sum()),
        lambda x: x.sin() + x * x.cos() * 1.001,
        randn(5),
    ),
}


def before_batch_norm(weigh=lambda gradient: gradient, *, groups=1):
    """The gradient of a bias before a batch norm: its exact value is zero, and all that is computed is rounding.

    With `groups`, it is the gradient before a group norm, and is not zero.
    """

    def gradient(x):
        bias = torch.zeros(x.shape[1], requires_grad=True)
        y = x + bias[:, None]
        y = functional.group_norm(y, groups) if groups > 1 else functional.batch_norm(y, None, None, training=True)
        (y.tanh() * torch.linspace(0.5, 2, y.shape[2])).sum().backward()
        return weigh(bias.grad)

    return gradient


WRONG |= {
    "a zero gradient that becomes large": (before_batch_norm(), lambda x: torch.ones(x.shape[1]), randn(4, 96, 8)),
    "a zero gradient that becomes 1e-4": (
        before_batch_norm(),
        before_batch_norm(lambda gradient: gradient + 1e-4),
        randn(4, 96, 8),
    ),
    "one element of a zero gradient that becomes 1e-4": (
        before_batch_norm(),
        before_batch_norm(lambda gradient: gradient + torch.tensor([1e-4] + [0.0] * 95)),
        randn(4, 96, 8),
    ),
    "a bias gradient, 1.001 too large": (
        before_batch_norm(groups=2),
        before_batch_norm(lambda gradient: gradient * 1.001, groups=2),
        randn(4, 96, 8),
    ),
    "one element of a bias gradient, 1.001 too large": (
        before_batch_norm(groups=2),
        before_batch_norm(lambda gradient: gradient * torch.tensor([1.001] + [1.0] * 95), groups=2),
        randn(4, 96, 8),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_rounding_does_not_explain(name):
    assert not is_rounding(*WRONG[name])


def in_lanes(x, lanes=8):
    """Sums one term after the other in each lane."""
    total = torch.zeros(lanes, dtype=x.dtype)
    for row in x.reshape(-1, lanes):
        total += row
    return total.sum()


def step_of_adam(p, g):
    m, v = g * 0.1, g * g * 0.001
    return p - 1e-3 * (m / 0.1) / ((v / 0.001).sqrt() + 1e-8)


def fused_step_of_adam(p, g):
    return (p.double() - 1e-3 * g.double() / (g.double().abs() + 1e-8)).to(p.dtype)


def attention(q):
    return (q @ q.T / 8).softmax(-1) @ q


def float64(function):
    return lambda *args: function(*(argument.double() for argument in args)).to(args[0].dtype)


def float32(function):
    return lambda *args: function(*(argument.float() for argument in args)).to(args[0].dtype)


def chain(x):
    return (torch.sigmoid(x * 1.7 + x) * x - x / 3).tanh() * 2 + x.exp() * 0.1


RIGHT = {
    "a gradient that is zero": (
        before_batch_norm(),
        lambda x: before_batch_norm()(x.flip(2).flip(2).contiguous() + 0.25),
        lambda n: (randn(4, 96, 8, seed=n),),
    ),
    "a sum in lanes": (torch.sum, in_lanes, lambda n: (randn(20_000, seed=n),)),
    "a sum of positive terms in lanes": (torch.sum, in_lanes, lambda n: (randn(20_000, seed=n).abs(),)),
    "a sum of 1e6 in float64": (torch.sum, float64(torch.sum), lambda n: (randn(1_000_000, seed=n),)),
    "a bias gradient": (
        lambda g: g.sum(0),
        lambda g: g.flip(0).T.contiguous().sum(1),
        lambda n: (randn(4096, 16, seed=n),),
    ),
    "a variance": (torch.var, lambda x: (x - x.mean()).square().sum() / (len(x) - 1), lambda n: (randn(5000, seed=n),)),
    "a softmax": (
        lambda x: x.softmax(-1),
        lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
        lambda n: (randn(8, 200, seed=n),),
    ),
    "a layer norm": (
        lambda x: functional.layer_norm(x, (64,)),
        lambda x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt(),
        lambda n: (randn(16, 64, seed=n) + 5,),
    ),
    "a product": (torch.mm, lambda a, b: a.flip(-1) @ b.flip(0), lambda n: (randn(64, 64, seed=n), randn(64, 64))),
    "a convolution": (
        functional.conv2d,
        float64(functional.conv2d),
        lambda n: (randn(1, 8, 12, 12, seed=n), randn(4, 8, 3, 3)),
    ),
    "attention": (attention, float64(attention), lambda n: (randn(20, 16, seed=n),)),
    "a bfloat16 chain": (chain, float32(chain), lambda n: (randn(500, seed=n).bfloat16(),)),
    "a float16 chain": (chain, float32(chain), lambda n: (randn(500, seed=n).half(),)),
    "a float32 chain": (chain, float64(chain), lambda n: (randn(500, seed=n),)),
    "a float64 sum": (torch.sum, in_lanes, lambda n: (randn(1000, seed=n).double(),)),
    "what cancels": (
        lambda x: x.sin() ** 2 + x.cos() ** 2 - 1,
        float64(lambda x: x.sin() ** 2 + x.cos() ** 2 - 1),
        lambda n: (randn(300, seed=n) * 10,),
    ),
    "relu near zero": (
        lambda x: ((x * x + 1) - x * x - 1).relu(),
        float64(lambda x: ((x * x + 1) - x * x - 1).relu()),
        lambda n: (randn(300, seed=n),),
    ),
    "the tail of gelu": (
        functional.gelu,
        lambda x: x * 0.5 * (1 + torch.erf(x * 0.5**0.5)),
        lambda n: (randn(300, seed=n) - 4,),
    ),
    "a step of Adam": (step_of_adam, fused_step_of_adam, lambda n: (randn(100, seed=n), randn(100) * 1e-3)),
    "a number read from a sum": (
        lambda x: x.sum().item(),
        lambda x: x.double().sum().float().item(),
        lambda n: (randn(5000, seed=n),),
    ),
    "a mean of numpy": (
        lambda x: torch.tensor(x.clone().numpy().mean()),
        lambda x: x.flip(0).mean(),
        lambda n: (randn(5000, seed=n),),
    ),
    "a number of math": (
        lambda x: math.sin(x.item()) * math.exp(0.3),
        lambda x: (x.sin() * torch.tensor(0.3, dtype=torch.float64).exp()).item(),
        lambda n: (torch.tensor(1.5 + n, dtype=torch.float64),),
    ),
    "an interpolation": (
        lambda x: functional.interpolate(x, scale_factor=1.7, mode="linear"),
        float64(lambda x: functional.interpolate(x, scale_factor=1.7, mode="linear")),
        lambda n: (randn(1, 2, 20, seed=n),),
    ),
    "the nearest of equals": (
        lambda x: (x * 3 - x * 2 - x).argmax(),
        float64(lambda x: (x * 3 - x * 2 - x).argmax()),
        lambda n: (randn(2, seed=n),),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_rounding_explains_other_ways_to_compute_the_same(name):
    eager, other, make = RIGHT[name]
    for number in range(3):
        args = make(number)
        assert same_bits(snapshot_of(eager(*args)), snapshot_of(other(*args))) or is_rounding(eager, other, *args)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a softmax", "a layer norm", "a bfloat16 chain", "attention", "a bias gradient"])
def test_rounding_explains_what_inductor_makes_of_it(name):
    eager, _, make = RIGHT[name]
    compiled = torch.compile(eager, dynamic=False)
    for number in range(20):
        args = make(number)
        assert same_bits(snapshot_of(eager(*args)), snapshot_of(compiled(*args))) or is_rounding(eager, compiled, *args)


def decision_and_runs(eager, other, samples):
    """The numbers of the perturbed runs that a decision took."""
    numbers = []

    def sample(number):
        numbers.append(number)
        return snapshot_of(samples(number))

    return explained(snapshot_of(eager), snapshot_of(other), sample), len(numbers)


def test_as_few_runs_as_decide():
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(20, 100, generator=generator) * 1e-6
    ones = torch.ones(100)
    assert decision_and_runs(ones, ones + noise[-1] / 2, lambda number: ones + noise[number]) == (True, 3)
    assert decision_and_runs(ones, ones * 2, lambda number: ones + noise[number]) == (False, 8)
    assert decision_and_runs(ones, ones + 2e-5, lambda number: ones + noise[number]) == (False, 16)


def test_more_runs_are_made_for_few_elements_that_stay_as_they_are_by_chance():
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(40, 1000, generator=generator) * 1e-6
    noise[:20, 7], noise[20:, 7] = 0, 5e-6
    ones = torch.ones(1000)
    rounded = ones + noise[-1] / 2
    rounded[7] = 1 + 1e-5
    assert decision_and_runs(ones, rounded, lambda number: ones + noise[number]) == (True, 32)
    noise[:, 7] = 0
    assert decision_and_runs(ones, rounded, lambda number: ones + noise[number]) == (False, 32)


def test_elements_without_a_digit_are_judged_by_the_spread_of_all():
    """By chance, the noise of one element among many may be small in every run."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(40, 200, generator=generator) * 1e-8
    noise[:, 7] /= 40
    zero, other = noise[-1].clone(), noise[-2].clone()
    zero[9] = noise[:, 9] = 0
    other[9] = 0
    other[7] = 3e-8
    assert decision_and_runs(zero, other, lambda number: noise[number])[0]
    other[7] = 2e-7  # farther than any element of any run
    assert not decision_and_runs(zero, other, lambda number: noise[number])[0]
    other[7], other[9] = 3e-8, 1e-9  # an exact zero in every run
    assert not decision_and_runs(zero, other, lambda number: noise[number])[0]
    other[9] = 0
    whole = zero + torch.tensor([0.0] * 199 + [1.0])  # one element has digits: each is judged by its own spread
    assert not decision_and_runs(whole, other + whole - zero, lambda number: noise[number] + whole - zero)[0]


def test_an_error_in_all_elements_is_seen_though_each_is_as_small_as_rounding():
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(40, 1000, generator=generator) * 1e-6
    ones = torch.ones(1000)
    assert decision_and_runs(ones, ones + noise[-1] / 2, lambda number: ones + noise[number])[0]
    assert not decision_and_runs(ones, ones + 1.5e-6, lambda number: ones + noise[number])[0]
    assert not decision_and_runs(ones, ones + noise[-1].sign() * 2.5e-6, lambda number: ones + noise[number])[0]


def test_an_element_may_jump_as_far_as_elements_jump_in_the_runs():
    whole = torch.arange(100.0)

    def jumping(number):
        changed = whole.clone()
        changed[number] += 1
        return changed

    def with_jumps(*at, by=1.0):
        changed = whole.clone()
        changed[list(at)] += by
        return changed

    assert decision_and_runs(whole, with_jumps(50), jumping)[0]
    assert not decision_and_runs(whole, with_jumps(50, 60, 70), jumping)[0]
    assert not decision_and_runs(whole, with_jumps(50, by=5.0), jumping)[0]


@pytest.mark.parametrize(
    ("eager", "close", "far"),
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([1.000001, 2.0]), torch.tensor([1.00001, 2.0])),
        (torch.tensor([1e-9, 2e-9]), torch.tensor([1e-9, 2.000001e-9]), torch.tensor([1e-9, 2.1e-9])),
        (torch.ones(2).half(), torch.tensor([1, 1.0005]).half(), torch.tensor([1, 1.01]).half()),
        (torch.ones(1).double(), torch.ones(1).double() + 1e-8, torch.ones(1).double() + 1e-6),
        (1.0, 1.0000001192092896, 1.001),
        (0.1, 0.10000000001, 0.1001),
        (1j, 1.0000001192092896j, 1.1j),
    ],
    ids=str,
)
def test_without_perturbed_runs_a_relative_tolerance_decides(eager, close, far):
    assert explained(snapshot_of(eager), snapshot_of(close), lambda _: None)
    assert not explained(snapshot_of(eager), snapshot_of(far), lambda _: None)


def test_runs_of_another_form_do_not_count():
    eager = snapshot_of(torch.ones(2))
    assert not explained(eager, snapshot_of(torch.full((2,), 1.1)), lambda _: snapshot_of(torch.full((3,), 1.1)))
    assert not explained(eager, snapshot_of(torch.full((2,), 1.1)), lambda _: snapshot_of("text"))


def test_what_holds_no_numbers_is_never_explained():
    assert not explained(snapshot_of("a"), snapshot_of("b"), lambda _: snapshot_of("b"))
    assert not explained(
        snapshot_of(torch.ones(2, device="meta")), snapshot_of(torch.ones(2, device="meta")), lambda _: None
    )


def nan(payload):
    return torch.tensor([0x7FC00000 + payload], dtype=torch.int32).view(torch.float32)


@pytest.mark.parametrize(
    ("eager", "other", "expected"),
    [
        (torch.ones(2), torch.ones(2), None),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0 + 2**-22]), Distance("value", 1, (1, 2))),
        (torch.tensor([-1.0]), torch.tensor([-1.0 - 2**-22]), Distance("value", 2, (1, 1))),
        (torch.tensor([-(2.0**-149)]), torch.tensor([2.0**-149]), Distance("value", 2, (1, 1))),
        (torch.ones(3).bfloat16(), torch.full((3,), 1.0078125).bfloat16(), Distance("value", 1, (3, 3))),
        (torch.ones(1).double(), torch.ones(1).double() + 2**-52, Distance("value", 1, (1, 1))),
        (
            torch.tensor([-1e300], dtype=torch.float64),
            torch.tensor([1e300], dtype=torch.float64),
            Distance("value", 2**62, (1, 1)),
        ),
        (torch.tensor([0.0, 1.0]), torch.tensor([-0.0, 1.0]), Distance("signed-zero", 0, (1, 2))),
        (nan(0), nan(1), Distance("nan-payload", 0, (1, 1))),
        (torch.tensor([float("nan")]), torch.tensor([1.0]), Distance("value", 0, (1, 1))),
        (torch.tensor([1 + 1j]), torch.tensor([1 - 1j]), Distance("value", 2 * 0x3F800000, (1, 1))),
        (torch.arange(3), torch.tensor([0, 1, 3]), Distance("value", None, (1, 3))),
        (torch.tensor([True]), torch.tensor([False]), Distance("value", None, (1, 1))),
        (1.0, 1.0 + 2**-52, Distance("value", 1, None)),
        (0.0, -0.0, Distance("signed-zero", 0, None)),
        (float("nan"), float("nan"), None),
        (1, 2, Distance("value", None, None)),
        ("a", "b", Distance("value", None, None)),
        (2**80, 2**80, None),
        (torch.zeros(2).to(torch.float8_e4m3fn), torch.ones(2).to(torch.float8_e4m3fn), Distance("value", 56, (2, 2))),
        (torch.zeros(0), torch.zeros(0), None),
        (torch.tensor(1.0), torch.tensor(2.0), Distance("value", 2**23, (1, 1))),
    ],
)
def test_how_far_two_values_are_apart(eager, other, expected):
    assert distance(snapshot_of(eager), snapshot_of(other)) == expected
    assert same_bits(snapshot_of(eager), snapshot_of(other)) == (expected is None)


def test_where_two_tensors_differ():
    first = torch.tensor([0.0, float("nan"), 1.0, 2.0])
    second = torch.tensor([-0.0, float("nan"), 1.0, 3.0])
    assert unequal(first, second).tolist() == [False, False, False, True]
    assert unequal(torch.arange(4).view(2, 2), torch.tensor([[0, 1], [3, 3]])).tolist() == [
        [False, False],
        [True, False],
    ]


def test_a_view_of_one_element_with_another_stride_has_bits():
    strided = snapshot_of(torch.ones(3)[::3])
    assert same_bits(strided, snapshot_of(torch.ones(1)))
    assert not same_bits(strided, snapshot_of(torch.zeros(3)[::3]))
