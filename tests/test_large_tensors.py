"""Large tensors that are the same in several observations are kept once."""

import dataclasses
import math

import pytest
import torch

from recapture.judge.compare import compare_places
from recapture.judge.large_tensors import LARGE, sharing, without_unused
from recapture.judge.observe import Observation
from recapture.judge.reachable import Reachable
from recapture.judge.rounding import same_bits
from recapture.judge.snapshot import Snapshot, snapshot_of


def observed(label="a", **parts):
    return Observation(label, **{name: snapshot_of(value) for name, value in parts.items()})


def data(observation, part, *path):
    part_snapshot = getattr(observation, part)
    for key in path:
        part_snapshot = dict(part_snapshot.children)[key]
    return part_snapshot.tensor.data


def weights():
    return torch.linspace(-1, 1, LARGE)


def test_the_same_bits_at_the_same_place_are_kept_once():
    first = observed(state={"w": weights(), "b": weights()}, gradients=weights(), result=[weights()])
    second = sharing(observed(state={"w": weights(), "b": weights()}, gradients=weights(), result=[weights()]), first)
    for path in (("state", "['w']"), ("state", "['b']"), ("gradients",), ("result", "[0]")):
        assert data(second, *path) is data(first, *path)


def test_sharing_changes_nothing_else():
    first = observed(state={"w": weights()}, result=(weights(), 1))
    plain = observed(state={"w": weights().requires_grad_()}, result=(weights(), 2))
    second = sharing(plain, first)
    assert dict(second.state.children)["['w']"].tensor.requires_grad
    assert second.result.children[1] == plain.result.children[1]
    assert dataclasses.replace(second, state=plain.state, result=plain.result) == plain


@pytest.mark.parametrize("change", ["value", "sign of zero", "payload", "shape", "dtype"])
def test_tensors_that_differ_are_kept_apart(change):
    mine, theirs = weights(), weights()
    mine[7] = theirs[7] = 0.0
    if change == "value":
        theirs[3] = torch.nextafter(theirs[3], torch.tensor(2.0))
    elif change == "sign of zero":
        theirs[7] = -0.0
    elif change == "payload":
        mine[7] = torch.nan
        theirs.view(torch.int32)[7] = 0x7FC00001
    elif change == "shape":
        theirs = theirs.reshape(2, -1)
    else:
        theirs = theirs.double()
    first = observed(result=mine)
    assert data(sharing(observed(result=theirs), first), "result") is not data(first, "result")


def test_small_tensors_are_left_alone():
    first, second = observed(result=torch.ones(3)), observed(result=torch.ones(3))
    assert sharing(second, first).result is second.result


def test_other_structures_and_missing_parts_are_left_alone():
    first = observed(result=[weights()], state={"w": weights()})
    second = sharing(observed(result={"a": weights()}, gradients=weights()), first, None)
    assert data(second, "result", "['a']") is not data(first, "result", "[0]")
    assert second.state is None
    assert second.gradients is not None


def test_runs_with_noise_keep_only_what_is_compared():
    eager = observed(state={"same": weights(), "other": weights()})
    other = sharing(observed(state={"same": weights(), "other": weights() * 2}), eager)
    noisy = observed(state={"same": weights() + 1e-6, "other": weights() + 1e-6})
    reduced = without_unused(noisy, eager, other)
    assert data(reduced, "state", "['same']") is data(eager, "state", "['same']")
    assert data(reduced, "state", "['other']") is data(noisy, "state", "['other']")


class State(torch.nn.Module):
    """A module with a buffer of each kind of content that a quick comparison could get wrong."""

    def __init__(self):
        super().__init__()
        self.register_buffer("numbers", torch.tensor([1.0, math.nan, 0.0]))
        self.register_buffer("repeated", torch.ones(1).expand(4))
        self.register_buffer("conjugate", torch.tensor([1 + 2j]).conj())
        self.register_buffer("wide", torch.ones(2, dtype=torch.complex128))
        self.values = [torch.zeros(2)]


def test_a_state_that_stays_the_same_is_copied_once():
    reachable = Reachable(State())
    first, second = (dict(reachable.describe().snapshot.children) for _ in range(2))
    assert second["state['numbers']"].tensor.data is first["state['numbers']"].tensor.data
    snapshots = (Snapshot("state", children=tuple(part.items())) for part in (first, second))
    assert compare_places("", *snapshots).differences == []


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("numbers", lambda numbers: numbers.data.__setitem__(0, 2.0)),  # which raises no version counter
        ("numbers", lambda numbers: numbers.__setitem__(2, -0.0)),
        ("numbers", lambda numbers: numbers.copy_(torch.tensor([1.0, 2.0, 0.0]))),
        ("repeated", lambda repeated: repeated[:1].fill_(3.0)),
        ("conjugate", lambda conjugate: conjugate.mul_(2)),
        ("wide", lambda wide: wide.mul_(2)),
    ],
)
def test_what_a_call_changes_is_copied_again(name, change):
    module = State()
    reachable = Reachable(module)
    before = dict(reachable.describe().snapshot.children)[f"state[{name!r}]"]
    old = before.tensor.data.clone()
    change(getattr(module, name))
    after = dict(reachable.describe().snapshot.children)[f"state[{name!r}]"]
    assert not same_bits(before, after)
    assert torch.equal(before.tensor.data.nan_to_num(), old.nan_to_num())
