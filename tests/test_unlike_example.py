"""What is said of a callable that does not check its inputs and got arguments unlike the example's."""

import pytest
import torch

from recapture.judge.compare import MOST_NAMED
from recapture.judge.snapshot import snapshot_of
from recapture.judge.steps import stays_inside, unlike_example
from recapture.records.difference import Difference

ONES = torch.ones


@pytest.mark.parametrize(
    ("example", "arguments", "words", "inside"),
    [
        ((ONES(4, 3),), (torch.zeros(4, 3),), "", True),
        ((ONES(4, 3),), (ONES(2, 3),), "args[0] has shape (2, 3), the example's (4, 3)", False),
        ((ONES(2, 3),), (ONES(4, 3),), "args[0] has shape (4, 3), the example's (2, 3)", True),
        ((ONES(4),), (ONES(4, dtype=torch.float64),), "args[0] has dtype torch.float64, the example's torch.float32", True),
        ((ONES(4),), (ONES(4, dtype=torch.bfloat16),), "args[0] has dtype torch.bfloat16, the example's torch.float32", False),
        ((ONES(4, dtype=torch.cfloat),), (ONES(4),), "args[0] has dtype torch.float32, the example's torch.complex64", False),
        ((ONES(2, 3),), (ONES(3, 2).t(),), "args[0] has stride (1, 2), the example's (3, 1)", True),
        ((ONES(4), 2), (ONES(4), 3), "args[1] is 3, the example's 2", True),
        (({"a": [ONES(1)]},), ({"a": [ONES(2)]},), "args[0]['a'][0] has shape (2,), the example's (1,)", True),
        (({"a": ONES(1)},), ({},), "args[0] has 0 items, the example's 1", False),
        ((ONES(1),), (None,), "args[0] is NoneType, the example's torch.Tensor", False),
        ((ONES(0),), (ONES(0, 5),), "args[0] has shape (0, 5), the example's (0,)", True),
        (
            tuple(ONES(1) for _ in range(5)),
            tuple(ONES(2) for _ in range(5)),
            ", ".join(f"args[{i}] has shape (2,), the example's (1,)" for i in range(3)) + " and 2 more",
            True,
        ),
    ],
)  # fmt: skip
def test_arguments_unlike_the_example(example, arguments, words, inside):
    changes = unlike_example(snapshot_of(example), snapshot_of(arguments))
    more = len(changes[MOST_NAMED:]) or None
    difference = Difference("held_out[0]", "result", "value", changes=changes[:MOST_NAMED], more_changes=more)
    assert difference.changes_in_words() == words
    assert stays_inside(snapshot_of(example), snapshot_of(arguments)) == inside
