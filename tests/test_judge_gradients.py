"""Gradients through a result, compared with eager's."""

import math

import pytest
import torch
from observed_calls import texts

from recapture.judge.compare import Rules, compare
from recapture.judge.observe import Surroundings, observe_call


def graded(function, **around):
    return observe_call(
        function, "example", lambda: (torch.arange(1.0, 4, requires_grad=True),), Surroundings(**around)
    )


def partly(x):
    with torch.no_grad():
        y = x * 2
    return x * y


GRADIENTS = {
    "a region without gradients": (partly, lambda x: x * (x * 2)),
    "a gradient by a factor": (lambda x: x * 2, lambda x: x.detach() + x),
    "a hook": (lambda x: doubled_gradient(x * 1), lambda x: x * 1),
}


def doubled_gradient(x):
    x.register_hook(lambda gradient: gradient * 2)
    return x


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_wrong_gradient_is_a_difference(name):
    eager, other = GRADIENTS[name]
    differences = compare(graded(eager), graded(other)).differences
    assert ("gradients.args[0]", "gradient") in [(difference.where, difference.kind) for difference in differences]
    assert compare(graded(eager), graded(eager)).differences == []


def test_an_argument_that_is_returned_as_it_is_has_a_gradient():
    eager = graded(lambda x: x)
    assert eager.gradients is not None
    assert eager.gradients == graded(lambda x: x * 1).gradients  # as for a copy, which requires grad, too
    other = compare(eager, graded(lambda x: x.detach() + 0)).differences
    assert ("gradients.args[0]", "gradient") in [(difference.where, difference.kind) for difference in other]


def test_a_leaf_that_the_call_itself_makes_has_no_part_in_the_backward():
    assert graded(lambda _x: torch.ones(2, requires_grad=True)).gradients is None


def test_a_gradient_of_none_is_no_gradient_of_zeros():
    eager, other = graded(lambda x: x.detach() * 0 + 1), graded(lambda x: x * 0 + 1)
    assert ("result", "metadata") in [
        (difference.where, difference.kind) for difference in compare(eager, other).differences
    ]
    parameter = torch.ones(1, requires_grad=True)
    eager, other = graded(lambda x: parameter * 1), graded(lambda x: parameter * 1 + 0 * x.sum())
    comparison = compare(eager, other)
    assert texts(comparison.notes) == ["gradients.args[0] gradient: zeros here, None on the other side"]


def test_gradients_leave_no_trace():
    x = torch.ones(2, requires_grad=True)
    x.grad = torch.full((2,), 5.0)
    observation = observe_call(lambda x: x * 2, "example", lambda: (x,))
    assert x.grad.tolist() == [5, 5]
    assert observation.gradients.children[0][1].tensor.data.tolist() == pytest.approx([-47.4, 2 + math.cos(1)])


def test_gradients_are_notes_for_compilers_without_them_and_are_left_out_where_a_case_says_so():
    eager, other = graded(lambda x: x * 2), graded(lambda x: x.detach() * 2)
    comparison = compare(eager, other, rules=Rules(inference_only=True))
    assert comparison.differences == []
    assert {note.kind for note in comparison.notes} == {"metadata", "gradient"}
    assert graded(lambda x: x * 2, backward=False).gradients is None


def test_a_backward_that_raises_on_one_side_only():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("no")

    eager, other = graded(Fails.apply), graded(lambda x: x * 2)
    assert eager.backward.type == "ValueError"
    assert texts(compare(eager, other).differences) == [
        "backward gradient: eager's backward raises ValueError, this returned"
    ]
    assert compare(eager, eager).differences == []
