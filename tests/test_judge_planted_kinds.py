"""Faults of kinds that one sample does not show: each is planted in several forms, and equals are not blamed."""

import textwrap
import time

import pytest
import torch
from planted_trials import places_and_kinds, ruling, same

from recapture.run.cell import CellSpec, examine


def doubled(x):
    return x * 2


def with_backward(change):
    """A compiler of `doubled` whose backward changes the gradient that it gets."""

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return change(gradient) * 2

    return lambda fn, example: Doubled.apply


BACKWARDS = {
    "rectified": torch.relu,
    "absolute": torch.abs,
    "clamped to 1": lambda gradient: gradient.clamp(-1, 1),
    "clamped to 10": lambda gradient: gradient.clamp(-10, 10),
    "its sign": torch.sign,
    "rounded": torch.round,
}


@pytest.mark.parametrize("name", BACKWARDS)
@pytest.mark.parametrize("shape", [(), (2,), (3, 4)])
def test_a_backward_that_is_wrong_for_some_weights_is_seen(name, shape):
    result = ruling(doubled, with_backward(BACKWARDS[name]), make=lambda: (torch.ones(shape, requires_grad=True),))
    assert places_and_kinds(result.differences)[0] == ("example", "gradients.args[0]", "gradient")


@pytest.mark.parametrize(
    "change",
    [
        lambda gradient: gradient.conj().resolve_conj(),
        lambda gradient: torch.complex(gradient.real, 0 * gradient.real),
        lambda gradient: torch.complex(gradient.real.abs(), gradient.imag),
        lambda gradient: torch.complex(gradient.imag, gradient.real),
        lambda gradient: gradient.abs() + 0j,
    ],
)
def test_a_backward_that_is_wrong_for_complex_weights_is_seen(change):
    result = ruling(
        doubled, with_backward(change), make=lambda: (torch.ones(1, dtype=torch.complex64, requires_grad=True),)
    )
    assert places_and_kinds(result.differences)[0] == ("example", "gradients.args[0]", "gradient")


@pytest.mark.filterwarnings("ignore:.*(in prototype stage|in beta state|invariant)")
@pytest.mark.parametrize(
    "stored",
    [
        lambda x: torch.sparse_coo_tensor(torch.tensor([[0, 1, 2]]), x, (3,)),
        lambda x: torch.diag(x).to_sparse_csr(),
        lambda x: torch.nested.as_nested_tensor([x, x[:2]]),
        lambda x: (x, x.clone()),
        lambda x: {"a": [x]},
    ],
)
def test_every_form_of_a_result_gets_a_backward(stored):
    leaf = {"make": lambda: (torch.ones(3, requires_grad=True),)}

    def in_a_form(x):
        return stored(x * 2)

    def captured(change):
        function = with_backward(change)(None, None)
        return lambda fn, example: lambda x: stored(function(x))

    assert places_and_kinds(ruling(in_a_form, captured(lambda gradient: gradient * 50), **leaf).differences)
    assert not places_and_kinds(ruling(in_a_form, captured(lambda gradient: gradient), **leaf).differences)


class TwoParameters(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))

    def forward(self, x):
        return x * self.used


def test_zeros_for_no_gradient_decide_for_a_parameter_because_an_optimizer_would_move_it():
    result = ruling(TwoParameters, lambda fn, example: lambda x: fn(x) + 0 * fn.unused)
    assert places_and_kinds(result.differences) == [
        (label, "gradients.state['unused']", "gradient") for label in ("example", "held_out[0]")
    ]
    assert not places_and_kinds(ruling(TwoParameters, same).differences)


# --- half precision -------------------------------------------------------------------------------------------------


def product(x, y):
    return x @ y


def matrices(dtype):
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(96, 96, generator=generator).to(dtype) for _ in range(2))


SMALLEST = {
    "sign": lambda small: -small,
    "zero": torch.zeros_like,
    "doubled": lambda small: 2 * small,
    "of the next": lambda small: small.roll(1),
    "a hundredth": lambda small: small / 100,
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", SMALLEST)
def test_small_elements_beside_large_ones_are_judged_by_their_own_spread(dtype, name):
    def small_ones_wrong(fn, example):
        def call(x, y):
            result = (x @ y).clone()
            flat = result.view(-1)
            places = flat.abs().topk(20, largest=False).indices
            flat[places] = SMALLEST[name](flat[places])
            return result

        return call

    assert places_and_kinds(ruling(product, small_ones_wrong, make=lambda: matrices(dtype)).differences)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_product_with_another_order_of_its_sums_is_not_blamed(dtype):
    def reversed_sums(fn, example):
        return lambda x, y: (x.float().flip(1) @ y.float().flip(0)).to(x.dtype)

    assert not places_and_kinds(ruling(product, reversed_sums, make=lambda: matrices(dtype)).differences)


def numbers():
    return (torch.randn(2000, generator=torch.Generator().manual_seed(0)),)


def to_bfloat16(x):
    return x.to(torch.bfloat16)


def nearest(x, towards):
    """The bfloat16 number of the two beside x that lies in one direction."""
    cut = (x.view(torch.int32) & -65536).view(torch.float32)
    away = ((x.view(torch.int32) & -65536) + 65536).view(torch.float32)
    away = torch.where(cut == x, x, away)
    return {
        "zero": cut,
        "infinity": away,
        "above": torch.maximum(cut, away),
        "below": torch.minimum(cut, away),
    }[towards].to(torch.bfloat16)


@pytest.mark.parametrize("towards", ["zero", "infinity", "above", "below"])
def test_rounding_always_in_one_direction_is_no_rounding(towards):
    result = ruling(to_bfloat16, lambda fn, example: lambda x: nearest(x, towards), make=numbers)
    assert places_and_kinds(result.differences)


def test_equal_numbers_that_are_all_rounded_alike_are_not_biased():
    def product_of_constants(x):
        return x * 3.14159 * 2.71828

    def folded(fn, example):
        return lambda x: (x.float() * 3.14159 * 2.71828).to(x.dtype)

    equal = {"make": lambda: (torch.full((4000,), 1.37, dtype=torch.bfloat16),)}
    assert not places_and_kinds(ruling(product_of_constants, folded, **equal).differences)


# Its smallest singular value is 28 times smaller than the largest. Where operators are watched, torch also computes
# vectors, and rounds the values otherwise.
ILL_CONDITIONED = (
    (-8.478374, -1.7658259, -4.3228045, -2.400456, -7.950587),
    (3.6116052, -8.067647, -0.57349384, 3.1285105, -3.0336847),
    (5.106745, 1.1351377, 4.9473085, 5.7744465, -3.973022),
    (3.2707994, -3.8938508, 2.8211474, -4.7023954, 4.163121),
    (1.8220074, -3.522088, -4.414461, 2.3285136, 8.3972),
)


def test_small_singular_values_have_the_error_of_the_largest_and_no_more():
    def with_all_vectors(fn, example):
        def call(matrix):
            values = torch.linalg.svd(matrix)[1]
            return values[0] / values[-1]

        return call

    def off(fn, example):
        return lambda matrix: fn(matrix) * (1 + 1e-4)

    verdicts = [
        str(ruling(torch.linalg.cond, compiler, make=lambda: (torch.tensor(ILL_CONDITIONED),)).verdict)
        for compiler in (with_all_vectors, off)
    ]
    assert verdicts == ["pass", "wrong"]


def test_a_sparse_sum_in_another_order_is_not_blamed_and_another_sum_is():
    def make():
        numbers = torch.randn(40, 60, generator=torch.Generator().manual_seed(3))
        return (torch.where(numbers > 0.5, numbers, 0.0).to_sparse(),)

    def sums(x):
        return torch.sparse.sum(x, 1).to_dense()

    assert str(ruling(sums, lambda fn, example: lambda x: x.to_dense().flip(1).sum(1), make=make).verdict) == "pass"
    assert str(ruling(sums, lambda fn, example: lambda x: x.to_dense()[:, :-1].sum(1), make=make).verdict) == "wrong"


@pytest.mark.parametrize("divisor", [3.0, 7.0, 10.0])
def test_an_exact_quotient_by_a_reciprocal_is_not_blamed_and_one_by_a_power_of_two_is_exact(divisor):
    whole = {"make": lambda: (torch.arange(1.0, 50) * divisor,)}
    inverse = torch.tensor(1 / divisor)
    assert not places_and_kinds(
        ruling(lambda x: x / divisor, lambda fn, example: lambda x: x * inverse, **whole).differences
    )
    assert places_and_kinds(ruling(lambda x: x / 4, lambda fn, example: lambda x: x * 0.25000003, **whole).differences)


# --- what is the same thing in another execution ----------------------------------------------------------------------


def otherwise(function):
    return lambda fn, example: function


def long_sum():
    return (torch.randn(8, 50_000, generator=torch.Generator().manual_seed(0)),)


@pytest.mark.parametrize(
    "keyed",
    [
        lambda number: {number: 1},
        lambda number: {(number, "a"): 1},
        lambda number: {number + 1j: 1},
        lambda number: {number},
        lambda number: {torch.tensor(number): 1},
    ],
)
def test_rounding_in_a_key_is_rounding_and_another_number_is_not(keyed):
    def total(x):
        return keyed(x.sum().item())

    assert not places_and_kinds(
        ruling(total, otherwise(lambda x: keyed(x.flip(0).sum(1).sum().item())), make=long_sum).differences
    )
    assert places_and_kinds(ruling(total, otherwise(lambda x: keyed(x.sum().item() * 1.01)), make=long_sum).differences)


class KeepsAHandle(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Identity()
        self.handle = self.inner.register_forward_hook(lambda module, args, result: result * 2)

    def forward(self, x):
        return self.inner(x)


def test_the_handle_of_a_hook_is_the_same_in_two_runs_until_it_is_removed():
    assert str(ruling(KeepsAHandle, same).verdict) == "pass"

    def removes(fn, example):
        def call(x):
            result = fn(x)
            fn.handle.remove()
            return result

        return call

    assert ("example", "state.handle.registered", "mutation") in places_and_kinds(
        ruling(KeepsAHandle, removes).differences
    )


@pytest.mark.parametrize(
    "clock",
    [
        lambda x: time.time(),
        lambda x: time.perf_counter(),
        lambda x: (x, [time.monotonic()]),
        lambda x: torch.tensor(time.time(), dtype=torch.float64),
        lambda x: time.time_ns(),
    ],
)
def test_a_time_in_a_result_is_unstable(clock):
    assert str(ruling(clock, same).verdict) == "unstable"


OWN = """
import torch
from recapture import case, compiler

class Box:
    def __init__(self, value):
        self.value = value

CALLS = []

@case(example=lambda: (torch.ones(3),))
def boxed(x):
    CALLS.append(1)
    return Box(x * 2)

@compiler("same")
def same(fn, example):
    def run(x):
        CALLS.append(1)
        return Box(x * 2)
    return run

@compiler("forgets")
def forgets(fn, example):
    return lambda x: Box(x * 2)
"""


def test_a_compiler_of_the_cases_own_file_has_its_classes_and_globals(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(textwrap.dedent(OWN))
    verdicts = [
        str(examine(CellSpec("own", str(file), "boxed", name, "cpu", "own", str(file)), lambda _: None).verdict)
        for name in ("same", "forgets")
    ]
    assert verdicts == ["pass", "wrong"]


# --- attributes that nobody reads ------------------------------------------------------------------------------------


class Keeps(torch.nn.Module):
    """Keeps a number of calls under a private name."""

    def __init__(self):
        super().__init__()
        self._calls = 0

    def forward(self, x):
        self._calls += 1
        return x + 1


class ReadsItLater(Keeps):
    def forward(self, x):
        self._calls += 1
        return x + 1 if self._calls < 4 else x * 3


class HasAProperty(Keeps):
    @property
    def calls(self):
        return self._calls


class SavesIt(Keeps):
    def state_dict(self, *args, **more):
        return {**super().state_dict(*args, **more), "calls": self._calls}


class InABuffer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("_calls", torch.zeros(()))

    def forward(self, x):
        self._calls += 1
        return x + 1


class Public(torch.nn.Module):
    calls = 0

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x + 1


def forgets(fn, example):
    return lambda x: x + 1


def test_a_private_attribute_that_nobody_reads_is_noted():
    result = ruling(Keeps, forgets)
    assert (str(result.verdict), result.differences) == ("pass", ())
    assert ("example", "state._calls", "mutation") in places_and_kinds(result.noted)


@pytest.mark.parametrize("module", [ReadsItLater, HasAProperty, SavesIt, InABuffer, Public])
def test_one_that_a_later_call_or_a_reader_of_public_state_sees_decides(module):
    assert "mutation" in {kind for _, _, kind in places_and_kinds(ruling(module, forgets).differences)}


class Normed(torch.nn.Sequential):
    """Computes `weight` anew at each call, from a parameter, before it reads it; what stood there was another value."""

    train_step: float | None = None

    def __init__(self):
        super().__init__(torch.nn.utils.weight_norm(torch.nn.Linear(3, 3)))
        self[0].weight.data.mul_(2)


class SpectralNormed(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.utils.spectral_norm(torch.nn.Linear(3, 3)))
        self.eval()


class KeepsALoss(torch.nn.Module):
    """Writes a public attribute for others to read: the call itself does not."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.loss = torch.zeros(())

    def forward(self, x):
        self.loss = self.linear.weight.square().sum()
        return self.linear(x)


class KeepsWhatItReads(KeepsALoss):
    """Reads what it writes, but it is another value for another input."""

    def forward(self, x):
        self.loss = self.linear(x)
        return self.loss * 2


class ReadsBeforeItWrites(KeepsALoss):
    def forward(self, x):
        before, self.loss = self.loss, self.linear.weight.square().sum()
        return self.linear(x) + self.loss * 0 + before * 0


class LeavesAnotherType(KeepsALoss):
    """There was no tensor before, so that a reader of the stale attribute finds another type."""

    def __init__(self):
        super().__init__()
        self.loss = None

    def forward(self, x):
        self.loss = self.linear.weight.square().sum()
        return self.linear(x) + self.loss


def traced(fn, example):
    return torch.jit.trace(fn, example, check_trace=False)


def stays(module, **more):
    """The ruling of a module that was traced, with another input than the example."""
    return ruling(module, traced, held_out=[lambda: (torch.full((3,), 2.0),)], **more)


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning", "ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("module", [Normed, SpectralNormed])
@pytest.mark.parametrize("train_step", [None, 0.1])
def test_a_stale_attribute_that_each_call_computes_anew_before_it_reads_it_is_noted(module, train_step):
    result = stays(module, train_step=train_step)
    assert (str(result.verdict), result.differences) == ("pass", ())
    assert "mutation" in {kind for _, _, kind in places_and_kinds(result.noted)}


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_a_stale_attribute_is_no_headline_where_another_input_is_wrong_for_another_reason():
    def halved(fn, example):
        def call(x):
            result = torch.nn.functional.linear(x, torch._weight_norm(fn[0].weight_v, fn[0].weight_g), fn[0].bias)
            return result * 2 if bool(x[0] > 1) else result

        return call

    result = ruling(Normed, halved, held_out=[lambda: (torch.full((3,), 2.0),), lambda: (torch.full((3,), 0.5),)])
    assert str(result.verdict) == "specialized"
    assert {where for _, where, _ in places_and_kinds(result.differences)} == {"result"} | {
        where for _, where, kind in places_and_kinds(result.differences) if kind == "gradient"
    }


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("module", [KeepsALoss, KeepsWhatItReads, ReadsBeforeItWrites, LeavesAnotherType])
def test_a_stale_attribute_that_others_may_read_decides(module):
    assert "mutation" in {kind for _, _, kind in places_and_kinds(stays(module).differences)}


def test_the_first_difference_is_the_one_that_matters_most():
    def wrong_everywhere(fn, example):
        return lambda x: (x * 3, x.detach() * 2, (x * 2).double())

    leaf = {"make": lambda: (torch.ones(3, requires_grad=True),)}
    kinds = [
        kind
        for _, _, kind in places_and_kinds(
            ruling(lambda x: (x * 2, x * 2, x * 2), wrong_everywhere, **leaf).differences
        )
    ]
    assert kinds[0] == "value"
    assert list(dict.fromkeys(kinds)) == ["value", "gradient", "dtype", "metadata"]
