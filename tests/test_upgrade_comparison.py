"""How `upgrade` compares the outcomes of tests on two releases."""

from __future__ import annotations

import json
import random
import time

import pytest

from recapture.tools.upgrade.comparison import TestHistory, compare, grouped
from recapture.tools.upgrade.compile_counts import FrameCounts, frame_changes
from recapture.tools.upgrade.outcomes import OutcomeFile, TestOutcome, failure


def history(*runs):
    built = TestHistory()
    for run in runs:
        built.add(
            TestOutcome(
                test=test,
                outcome=word.partition(" ")[0],
                failure=failure("ValueError", word.partition(" ")[2]) if word.startswith(("failed", "unc")) else None,
            )
            for test, word in run.items()
        )
    return built


@pytest.mark.parametrize(
    ("old", "new", "category"),
    [
        (["passed"], ["passed"], None),
        (["passed"], ["failed a"], "newly_failing"),
        (["failed a"], ["failed b"], "failing_differently"),
        (["failed a"], ["failed a"], "still_failing"),
        (["failed a", "failed c"], ["failed b"], "still_failing"),
        (["failed a"], ["passed"], "fixed"),
        (["passed", "failed a"], ["failed a"], "flaky"),
        (["passed"], ["failed a", "passed"], "flaky"),
        (["passed"], ["skipped"], "newly_skipped"),
        (["skipped"], ["skipped"], None),
    ],
)
def test_a_change_has_one_category(old, new, category):
    changes = compare(history(*({"t": word} for word in old)), history(*({"t": word} for word in new)))
    assert [change.category for change in changes] == ([category] if category else [])


def test_tests_of_a_file_that_cannot_be_collected_share_its_cause():
    old = history({"a.py::x": "passed", "a.py::y": "passed", "b.py::z": "passed"})
    new = history({"a.py": "uncollected no module", "b.py::z": "passed"})
    changes = compare(old, new)
    assert [(change.test, change.category) for change in changes] == [
        ("a.py::x", "not_collected"),
        ("a.py::y", "not_collected"),
    ]
    (group,) = grouped(changes, {}, {})
    assert group.failure.message == "no module"


def test_fifty_thousand_tests_are_read_in_seconds(tmp_path):
    """The file of a large suite, in which every tenth test fails."""
    path = tmp_path / "outcomes.jsonl"
    ids = [f"tests/test_{number % 100}.py::test[{number}]" for number in range(50_000)]
    with path.open("w") as file:
        for place in range(0, len(ids), 500):
            file.write(json.dumps({"collected": ids[place : place + 500]}) + "\n")
        for number, test in enumerate(ids):
            failed = {"type": "ValueError", "message": f"no {number % 7}", "frames": []} if number % 10 == 0 else None
            outcome = "failed" if failed else "passed"
            file.write(json.dumps({"start": test}) + "\n")
            file.write(json.dumps({"test": test, "outcome": outcome, "seconds": 0.1, "failure": failed}) + "\n")
    began = time.process_time()
    read = OutcomeFile(path, tmp_path)
    read.update()
    assert len(read.tests) == len(read.collected) == 50_000
    old, new = TestHistory(), TestHistory()
    old.add(TestOutcome(test=test, outcome="passed") for test in ids)
    new.add(read.tests.values())
    groups = grouped(compare(old, new), {}, {})
    assert sum(len(group.tests) for group in groups) == 5000
    assert len(groups) == 1  # their messages differ in a number alone
    assert time.process_time() - began < 10


def test_a_flake_that_the_baseline_did_not_show_is_found_by_running_it_again():
    """The rule that `confirm` relies on, over many chances; runs are drawn instead of started."""
    blamed = 0
    words = {word: history({"t": word}).outcome("t") for word in ("passed", "failed a")}
    for seed in range(4000):
        chance = random.Random(seed)
        share = chance.choice((0.05, 0.2, 0.4, 0.5, 0.6, 0.9))
        old, new = TestHistory(), TestHistory()
        for runs, number in ((old, 8), (new, 6)):
            for _ in range(number):
                runs.add([words["failed a" if chance.random() < share else "passed"]])
        categories = {change.category for change in compare(old, new)}
        blamed += bool(categories & {"newly_failing", "failing_differently"})
    assert blamed <= 1


def test_a_function_that_counts_otherwise_each_time_is_left_out():
    one_break, two_breaks = FrameCounts(breaks=1), FrameCounts(breaks=2)
    assert [
        change.frame
        for change in frame_changes(
            [{"f": one_break, "g": one_break}, {"f": one_break, "g": two_breaks}], {"f": two_breaks, "g": two_breaks}
        )
    ] == ["f"]
    assert frame_changes([{"f": one_break}, None], {"f": two_breaks}) == []
    assert frame_changes([{"f": one_break}], None) == []
    (fewer,) = frame_changes([{"f": two_breaks}], {})
    assert (fewer.worse, fewer.sentence) == (False, "f: 2 breaks, 0 recompiles → 0 breaks, 0 recompiles")
