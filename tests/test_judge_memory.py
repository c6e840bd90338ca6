"""Memory that results and arguments share, and writes outside a view."""

import pytest
import torch
from observed_calls import observed, texts

from recapture.judge.compare import compare
from recapture.judge.earlier_calls import EarlierCalls
from recapture.judge.observe import observe_call

ALIASES = {
    "an argument returned as a copy": (lambda x, y: x, lambda x, y: x.clone(), "args[0] in eager, not here"),
    "a copy returned as a view": (lambda x, y: x + 0, lambda x, y: x[:], "args[0] here, not in eager"),
    "a transposed view": (lambda x, y: x.t(), lambda x, y: x.t().clone(), "args[0] in eager, not here"),
    "two results that were one": (
        lambda x, y: (x + 1,) * 2,
        lambda x, y: (x + 1, x + 1),
        "result[1] in eager, not here",
    ),
    "two results that became one": (
        lambda x, y: (x + 1, x + 1),
        lambda x, y: (x + 1,) * 2,
        "result[1] here, not in eager",
    ),
    "an array of a tensor": (lambda x, y: x.numpy(), lambda x, y: x.numpy().copy(), "args[0] in eager, not here"),
}


@pytest.mark.parametrize("name", ALIASES)
def test_memory_shared_on_one_side_only_is_a_difference(name):
    eager, other, expected = ALIASES[name]
    comparison = compare(*(observed(function, torch.ones(2, 2), torch.ones(2, 2)) for function in (eager, other)))
    assert [(difference.kind, difference.detail) for difference in comparison.differences] == [
        ("alias", f"shares memory with {expected}")
    ]
    for function in (eager, other):
        observations = [observed(function, torch.ones(2, 2), torch.ones(2, 2)) for _ in range(2)]
        assert compare(*observations).differences == []


def test_views_of_one_storage_without_a_common_element_are_no_aliases():
    def halves(x):
        return x[::2], x[1::2]

    assert observed(halves, torch.ones(4)).aliases == {("result[0]", "args[0]"), ("result[1]", "args[0]")}


def test_a_buffer_that_the_next_call_returns_again_is_a_difference():
    static = torch.ones(2)
    keeps, renews = EarlierCalls(), EarlierCalls()
    for label in ("example", "held_out[0]"):
        eager = observed(lambda: torch.ones(2), label=label, earlier=renews)
        other = observed(lambda: static, label=label, earlier=keeps)
        comparison = compare(eager, other)
    assert texts(comparison.differences) == ["result alias: shares memory with example: result here, not in eager"]


def test_a_write_outside_a_view_is_a_mutation():
    def writes(x):
        x._base[0] = 7

    def run(call):
        return observe_call(call, "example", lambda: (torch.zeros(4)[1:3],))

    comparison = compare(run(lambda x: None), run(writes))
    assert [(difference.where, difference.kind) for difference in comparison.differences] == [("args[0]", "mutation")]
    assert compare(run(writes), run(writes)).differences == []
