"""Which rows compile side by side, and which do so alone."""

from recapture.tools.speed.benchmark import Compilations
from recapture.tools.speed.speedups import Configuration


def started(rows, most, alone, ends_first=True):
    """The sets of rows that are under way, one after the other, until all have ended."""
    waiting, running, under_way = Compilations(rows, most=most, alone=alone.__contains__), [], []
    while waiting or running:
        while (row := waiting.next(running)) is not None:
            running.append(row)
        under_way.append("".join(running))
        running.pop(0 if ends_first else -1)
    return under_way


def test_as_many_as_are_allowed_run_at_a_time_in_their_order():
    assert started("abcd", 2, "") == ["ab", "bc", "cd", "d"]
    assert started("abc", 1, "") == ["a", "b", "c"]


def test_what_is_to_be_alone_comes_last_and_one_by_one():
    assert started("xaybc", 3, "xy") == ["abc", "bc", "c", "x", "y"]


def test_nothing_waits_for_ever():
    assert started("", 3, "x") == []
    assert started("x", 3, "x") == ["x"]


def test_the_modes_that_autotune_are_known():
    assert Configuration("compile:max-autotune", "fp32").autotunes
    assert Configuration("compile:max-autotune-no-cudagraphs", "bf16").autotunes
    assert not Configuration("compile:reduce-overhead", "fp32").autotunes
