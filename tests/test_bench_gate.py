"""The gate decides what may be timed: rounding passes, anything else does not."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from recapture.cases.workload import Workload
from recapture.tools.speed.correctness import Snapshot, deviations, wrong_update
from recapture.tools.speed.speedups import Configuration
from recapture.tools.speed.subject import Subject
from recapture.torch_api.compat import seed_everything


def perceptron(train=False, dtype="fp32"):
    return Workload(
        name="perceptron",
        build=lambda: nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4)),
        inputs=lambda: (torch.randn(8, 16),),
        targets=(lambda: (torch.randint(4, (8,)),)) if train else None,
        loss=nn.functional.cross_entropy if train else None,
        optimizer=torch.optim.Adam if train else None,
        dtype=dtype,
    )


def after_one(workload, change=None, *, exact=False, spoil=None):
    """A snapshot after one iteration, of a subject whose model `change` may have wrapped or `spoil` changed."""
    subject = Subject(workload, Configuration("eager", workload.dtype), "cpu", exact=exact)
    if spoil is not None:
        spoil(subject)
    if change is not None:
        subject.capture(lambda model, example: change(model), whole_step=False)
    with subject.context():
        subject.iterate(0)
    return [Snapshot(subject)]


def test_what_is_done_after_a_call_sees_its_result_and_the_last_one_is_dropped_with_the_loop():
    subject = Subject(perceptron(), Configuration("eager", "fp32"), "cpu")
    results = []
    assert (
        len(
            subject.timed_calls(
                3, {0: lambda: results.append(subject.result), 2: lambda: results.append(subject.result)}
            )
        )
        == 3
    )
    assert [tuple(result.shape) for result in results] == [(8, 4), (8, 4)]
    assert subject.result is None


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("dtype", ["fp32", "fp32-strict"])
def test_eager_passes_against_itself_and_against_other_rounding(train, dtype):
    workload = perceptron(train, dtype)
    exact = after_one(workload, exact=True)
    group_deviations, wrong = deviations(after_one(workload), after_one(workload), exact, dtype)
    assert wrong is None
    assert {deviation.group for deviation in group_deviations} >= (
        {"result", "gradients", "parameters", "buffers"} if train else {"result"}
    )
    rounded, wrong = deviations(
        after_one(workload), after_one(workload, lambda model: lambda x: model(x * (1 + 1e-7))), exact, dtype
    )
    assert wrong is None
    assert 0 < rounded[0].candidate < 1e-5


def test_one_per_cent_more_is_wrong():
    workload = perceptron()
    _, wrong = deviations(
        after_one(workload),
        after_one(workload, lambda model: lambda x: model(x) * 1.01),
        after_one(workload, exact=True),
        "fp32",
    )
    assert wrong is not None
    assert wrong.startswith("result [0]: 0.01 away from float64")


def test_a_dtype_or_shape_of_its_own_is_wrong():
    workload = perceptron()
    for change, message in (
        (lambda model: lambda x: model(x).double(), "result [0]: dtype: eager torch.float32, this torch.float64"),
        (lambda model: lambda x: model(x)[:1], "result [0]: shape"),
        (lambda model: lambda x: (model(x), 1), "result: eager has 1 values, this 2"),
        (lambda model: lambda x: model(x) / 0, "not finite in other places"),
    ):
        _, wrong = deviations(after_one(workload), after_one(workload, change), None, "fp32")
        assert message in wrong


def test_a_python_number_is_measured_like_a_tensor():
    workload = perceptron()
    exact = after_one(workload, lambda model: lambda x: float(model(x).sum()), exact=True)
    for change, allowed in (
        (lambda model: lambda x: float(model(x).sum()) * (1 + 1e-5), True),
        (lambda model: lambda x: float(model(x).sum()) * 1.01, False),
        (lambda model: lambda x: complex(model(x).sum()), False),
        (lambda model: lambda x: int(model(x).sum()), False),
    ):
        eager = after_one(workload, lambda model: lambda x: float(model(x).sum()))
        _, wrong = deviations(eager, after_one(workload, change), exact, "fp32")
        assert (wrong is None) == allowed


def test_wrong_gradients_and_wrong_updates_are_seen_though_the_loss_is_right():
    workload = perceptron(train=True)
    exact = after_one(workload, exact=True)

    def double_last_bias(subject):
        subject.model[-1].bias.register_hook(lambda grad: grad * 2)

    _, wrong = deviations(after_one(workload), after_one(workload, spoil=double_last_bias), exact, "fp32")
    assert wrong.startswith("gradients 3.bias: 1 away")

    def learn_ten_times_as_fast(subject):
        subject.optimizer.param_groups[0]["lr"] *= 10

    _, wrong = deviations(after_one(workload), after_one(workload, spoil=learn_ten_times_as_fast), exact, "fp32")
    assert wrong.startswith("parameters:")


def after_some(workload, *, exact=False, spoil=None):
    """Snapshots after the first and the fourth iteration."""
    subject = Subject(workload, Configuration("eager", workload.dtype), "cpu", exact=exact)
    if spoil is not None:
        spoil(subject)
    snapshots = []
    seed_everything()
    subject.timed_calls(4, dict.fromkeys((0, 3), lambda: snapshots.append(Snapshot(subject))))
    return snapshots


def never_steps(subject):
    subject.optimizer.step = lambda *_: None


def ascends(subject):
    for group in subject.optimizer.param_groups:
        group["maximize"] = True


def steps_ten_times_as_far(subject):
    for group in subject.optimizer.param_groups:
        group["lr"] *= 10


def never_moves_its_biases(subject):
    biases = [bias for bias in subject.model.parameters() if bias.dim() < 2]
    step = subject.optimizer.step

    def all_but_biases():
        before = [bias.detach().clone() for bias in biases]
        step()
        with torch.no_grad():
            for bias, value in zip(biases, before, strict=True):
                bias.copy_(value)

    subject.optimizer.step = all_but_biases


def ends(snapshots):
    return tuple(snapshot.groups["parameters"] for snapshot in snapshots)


def wrong_steps(workload, spoil, *, with_float64=True):
    """What is said of the steps of a subject that was spoilt."""
    eager, exact = after_some(workload), after_some(workload, exact=True)
    spoilt = after_some(workload, spoil=spoil)
    return wrong_update(ends(eager), ends(spoilt), ends(exact) if with_float64 else None)


@pytest.mark.parametrize("dtype", ["fp32", "amp", "bf16"])
@pytest.mark.parametrize("lr", [1e-1, 1e-2])
def test_steps_must_be_as_long_as_eagers_and_point_the_same_way(dtype, lr):
    workload = replace(perceptron(train=True, dtype=dtype), optimizer=lambda them: torch.optim.SGD(them, lr=lr))
    for with_float64 in (True, False):
        assert wrong_steps(workload, None, with_float64=with_float64) is None
        assert "never updated" in wrong_steps(workload, never_steps, with_float64=with_float64)
        assert "times as long" in wrong_steps(workload, steps_ten_times_as_far, with_float64=with_float64)
    assert "point away from float64's" in wrong_steps(workload, ascends)
    assert "point away from eager's" in wrong_steps(workload, ascends, with_float64=False)


@pytest.mark.parametrize("dtype", ["fp32", "amp"])
def test_single_parameters_that_are_never_updated_are_seen(dtype):
    workload = replace(perceptron(train=True, dtype=dtype), optimizer=torch.optim.AdamW)
    assert wrong_steps(workload, never_moves_its_biases) == "parameters 0.bias: never updated, eager's are"


@pytest.mark.parametrize(
    ("spoil", "message"), [(never_steps, "never updated"), (ascends, "away from float64's"), (None, None)]
)
def test_steps_that_are_tiny_beside_the_parameters_are_compared_all_the_same(spoil, message):
    def build():
        return nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10))

    workload = Workload(
        name="wide",
        build=build,
        inputs=lambda: (torch.randn(64, 256),),
        targets=lambda: (torch.randint(10, (64,)),),
        loss=nn.functional.cross_entropy,
        optimizer=lambda them: torch.optim.SGD(them, lr=1e-3),
        dtype="amp",
    )
    eager, exact = after_some(workload), after_some(workload, exact=True)
    group_deviations, wrong = deviations(eager, after_some(workload, spoil=spoil), exact, "amp")
    [parameters] = [deviation for deviation in group_deviations if deviation.group == "parameters"]
    assert parameters.candidate < parameters.allowed
    assert wrong is None if message is None else message in wrong


def test_steps_that_are_noise_in_eager_too_may_point_anywhere():
    generator = torch.Generator().manual_seed(0)

    def side(*moved):
        weights = torch.zeros(1000)
        return ([("w", weights)], [("w", weights + sum(moved))])

    signal, *noise = (torch.randn(1000, generator=generator) for _ in range(4))
    exact = side(signal)
    assert wrong_update(side(0.1 * signal, noise[0]), side(-0.1 * signal, noise[1]), exact) is None
    assert wrong_update(side(signal, noise[0]), side(signal, noise[1]), exact) is None
    assert "point away" in wrong_update(side(signal, noise[0]), side(-signal, noise[1]), exact)


def test_a_model_that_does_not_move_must_not_move_compiled():
    still, moved = ([("w", torch.zeros(3))], [("w", torch.zeros(3))]), ([("w", torch.zeros(3))], [("w", torch.ones(3))])
    assert wrong_update(still, still, still) is None
    assert "inf times as long" in wrong_update(still, moved, still)


class Odd:
    """Equal to nothing but itself."""


@pytest.mark.parametrize("result", [Odd(), {"logits": Odd()}, [1, Odd()]])
def test_a_result_that_cannot_be_compared_is_reported(result):
    workload = perceptron()
    with pytest.raises(TypeError, match="the result holds a Odd, which cannot be compared"):
        after_one(workload, lambda model: lambda x: result)


def test_nan_as_a_plain_number_equals_nan():
    workload = perceptron()
    snapshots = [after_one(workload, lambda model: lambda x: (model(x), float("nan"))) for _ in range(2)]
    assert deviations(snapshots[0], snapshots[1], None, "fp32")[1] is None


def test_statistics_that_a_norm_keeps_must_agree():
    workload = perceptron(train=True)

    def twice(model):
        return lambda x: (model(x), model(x))[1]

    _, wrong = deviations(after_one(workload), after_one(workload, twice), after_one(workload, exact=True), "fp32")
    assert wrong is not None
    assert wrong.startswith("buffers")


def test_what_capturing_did_to_the_state_is_put_back():
    """`torch.jit.trace` runs the model; its norm must not have seen more than eager's."""
    workload = perceptron(train=True)

    def run_and_return(model):
        model(torch.randn(8, 16))
        return model

    _, wrong = deviations(after_one(workload), after_one(workload, run_and_return), None, "fp32")
    assert wrong is None


class TakesAnotherPath(nn.Module):
    """Computes something else in float64."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 4)

    def forward(self, x):
        y = self.linear(x)
        return y * 9 if x.dtype == torch.float64 else y


@pytest.mark.parametrize("dtype", ["fp32-strict", "fp32", "tf32", "bf16", "amp"])
def test_where_float64_takes_another_path_eager_is_the_truth(dtype):
    workload = replace(perceptron(dtype=dtype), build=TakesAnotherPath)
    eager, exact = after_one(workload), after_one(workload, exact=True)
    assert deviations(eager, after_one(workload), exact, dtype)[1] is None
    zeros = after_one(workload, lambda model: lambda x: torch.zeros_like(model(x)))
    _, wrong = deviations(eager, zeros, exact, dtype)
    assert wrong is not None
    assert wrong.startswith("result [0]: 1 away from eager where 0.")


def test_where_the_loss_takes_another_path_the_gradients_are_compared_with_eager_too():
    workload = replace(perceptron(train=True), build=TakesAnotherPath)
    eager, exact = after_one(workload), after_one(workload, exact=True)

    def without_gradient(subject):
        subject.model.linear.weight.register_hook(torch.zeros_like)

    assert deviations(eager, after_one(workload), exact, "fp32")[1] is None
    _, wrong = deviations(eager, after_one(workload, spoil=without_gradient), exact, "fp32")
    assert wrong.startswith("gradients linear.weight: 1 away from eager")


class Taken:
    """A snapshot of what is given."""

    def __init__(self, **groups):
        self.groups = {group: [("[0]", value)] for group, value in groups.items()}


def test_gradients_that_are_noise_in_eager_too_are_no_other_path():
    loss, gradients, noise = torch.rand(1), torch.randn(100), torch.randn(2, 100)
    eager, candidate = (Taken(result=loss, gradients=gradients + gradient_noise) for gradient_noise in noise)
    exact = Taken(result=loss.double(), gradients=gradients.double())
    assert deviations([eager], [candidate], [exact], "fp32")[1] is None


@pytest.mark.parametrize("numbers", [torch.float32, torch.bfloat16, torch.complex64])
def test_nan_and_the_infinities_are_distinguished(numbers):
    def snapshots_with(value):
        return [Taken(result=torch.tensor([1.0, value], dtype=numbers))]

    values = [float("nan"), float("inf"), float("-inf")]
    for first in values:
        for second in values:
            _, wrong = deviations(snapshots_with(first), snapshots_with(second), None, "fp32")
            assert wrong == (None if first is second else "result [0]: another infinity or NaN than eager's")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_a_reference_that_is_not_finite_where_eager_is_does_not_count(value):
    values = torch.rand(10) + 1
    exact = [Taken(result=torch.cat([values[1:].double(), torch.tensor([value]).double()]))]
    group_deviations, wrong = deviations([Taken(result=values)], [Taken(result=values)], exact, "fp32")
    assert wrong is None
    assert [(deviation.eager, deviation.candidate) for deviation in group_deviations] == [(0.0, 0.0)]
    _, wrong = deviations([Taken(result=values)], [Taken(result=values * 1.01)], exact, "fp32")
    assert wrong == "result [0]: 0.01 away from eager where 0.002 is allowed"


@pytest.mark.parametrize(
    ("eager", "candidate", "message"),
    [
        (1.0, 1.0 + 1e-7, None),  # may have been read from a float32 tensor, as in a cell
        (1.0, 1.1, "0.1 away from eager where 0.002 is allowed"),
        (1, 2, "value: eager 1, this 2"),
        (1, 1.0, "type: eager gives int, this float"),
        (torch.ones(2), None, "type: eager gives torch.Tensor, this NoneType"),
        (torch.ones(2), torch.ones(2).double(), "dtype: eager torch.float32, this torch.float64"),
        (torch.ones(2), torch.ones(3), "shape: eager (2,), this (3,)"),
    ],
)
def test_types_and_plain_values_are_compared_as_in_a_cell(eager, candidate, message):
    def snapshot(value):
        return Snapshot(SimpleNamespace(result=[value], workload=SimpleNamespace(trains=False)))

    _, wrong = deviations([snapshot(eager)], [snapshot(candidate)], None, "fp32")
    assert wrong == (message and f"result [0]: {message}")
