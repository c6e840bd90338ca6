"""The ``-k`` expression."""

from __future__ import annotations

import pytest

from recapture.base.errors import UsageError
from recapture.cases.name_filter import matcher

ADDRESS = "control_flow::branch_on_Sum"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("branch", True),
        ("BRANCH", True),
        ("sum", True),
        ("loop", False),
        ("not loop", True),
        ("branch and loop", False),
        ("branch or loop", True),
        ("not (branch or loop)", False),
        ("not branch or sum", True),
        ("flow::branch", True),
        ("control-flow", False),
        ("(branch)and(sum)", True),
    ],
)
def test_an_expression_matches_by_words_of_the_address(expression, expected):
    assert matcher(expression)(ADDRESS) is expected


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "and",
        "branch and",
        "branch loop",
        "(branch",
        "branch)",
        "branch (loop)",
        "()",
        "not",
        "zzz and b(c)",
        "a and ()",
        "a or b c",
        "not " * 3000 + "a",
        "(" * 5000,
    ],
)
def test_what_is_no_expression_is_refused_whole(expression):
    with pytest.raises(UsageError) as refused:
        matcher(expression)
    assert str(refused.value) == f"-k {expression!r} is not an expression of words, and, or, not and parentheses"


def test_words_are_never_run_as_code():
    assert matcher("__import__")("a::__import__b") is True
    assert matcher("1")("a::b1") is True
