"""Behaviours: every case belongs to exactly one, ids stay, and what is wrong in the file is one line."""

from __future__ import annotations

import ast
import json
from fnmatch import filter as names_matching
from pathlib import Path

import pytest

from recapture.base.errors import UsageError
from recapture.known.behaviours import BEHAVIOURS
from recapture.records.directories import find_results

ROOT = Path(__file__).parent.parent
SUITES = [path for path in (ROOT / "suites").rglob("*.py") if path.parent.name != "speedups"]
IDS = Path(__file__).parent / "resources" / "behaviour-ids.txt"
"""Every id that a behaviour ever had. Add to it; take nothing out."""


@pytest.fixture(scope="module")
def cases():
    """Return the names of all cases: those of the suites, and those that a committed result has."""
    lines = (
        line
        for folder in find_results(ROOT / "results")
        for line in (folder / "conformance.jsonl").read_text("utf-8").splitlines()
    )
    recorded = {line.split('"', 4)[3] for line in lines}  # decoding all records takes half a minute
    return sorted(recorded | {f"{path.stem}::{name}" for path in SUITES for name in cases_in(path)})


def cases_in(path):
    """Return the names of the functions and classes of a file that `@case` decorates."""
    for node in ast.parse(path.read_text("utf-8")).body:
        decorators = [ast.unparse(decorator) for decorator in getattr(node, "decorator_list", ())]
        if any(text.startswith("case(") for text in decorators):
            yield node.name


FEWEST = 150
"""A behaviour is what somebody would search for: a few large ones would answer nobody."""


def test_every_case_belongs_to_exactly_one_behaviour(cases):
    belongs = {
        case: [behaviour.id for behaviour in BEHAVIOURS.shipped.values() if behaviour.holds(case)] for case in cases
    }
    assert {case: ids for case, ids in belongs.items() if len(ids) != 1} == {}
    assert len({ids[0] for ids in belongs.values()}) >= FEWEST


def test_every_pattern_matches_a_case(cases):
    assert [
        (behaviour.id, pattern)
        for behaviour in BEHAVIOURS.shipped.values()
        for pattern in (*behaviour.cases, *behaviour.rewrite)
        if not names_matching(cases, pattern)
    ] == []


def test_an_id_that_once_was_is_never_taken_away():
    ever = IDS.read_text().split()
    assert ever == sorted(set(ever))
    assert set(ever) - set(BEHAVIOURS.shipped) == set(), "an id is an address: bring it back"
    assert set(BEHAVIOURS.shipped) - set(ever) == set(), f"write new ids into {IDS.name}"
    assert len(ever) >= 150


def test_a_graph_break_has_the_address_of_torchs_page():
    assert BEHAVIOURS.shipped["branch-on-tensor-value"].graph_break_page.endswith("/gb/gb0170.html")
    assert BEHAVIOURS.shipped["dropout"].graph_break_page is None


WHOLE = {
    "title": "A title",
    "sentence": "It is so.",
    "group": "a group",
    "example": "x + 1",
    "cases": ["s::f"],
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sentence": "It is so"}, "the sentence has no full stop"),
        ({"title": "Two\nlines"}, "one line each"),
        ({"example": "x +"}, "the example is not Python"),
        ({"example": "x\n" * 9}, "more than 8"),
        ({"cases": []}, "no case is named"),
        ({"cases": ["f"]}, "'f' is not a case"),
        ({"rewrite": ["f"]}, "'f' is not a case"),
        ({"threads": ["#12"]}, "neither an address"),
        ({"graph_break": "124"}, "not an id of a graph break"),
        ({"sentense": "It is so."}, "sentense"),
    ],
)
def test_what_cannot_be_true_is_refused_in_one_line(tmp_path, changes, message):
    with pytest.raises(UsageError, match=message) as raised:
        BEHAVIOURS.load(write_behaviours(tmp_path, {"one": {**WHOLE, **changes}}))
    assert "\n" not in str(raised.value)


def test_a_pattern_of_two_behaviours_and_an_id_with_capitals_are_refused(tmp_path):
    with pytest.raises(UsageError, match="s::f is in one and in two"):
        BEHAVIOURS.load(write_behaviours(tmp_path, {"one": WHOLE, "two": WHOLE}))
    with pytest.raises(UsageError, match="'One' is not an id"):
        BEHAVIOURS.load(write_behaviours(tmp_path, {"One": WHOLE}))


def write_behaviours(folder, behaviours):
    """Write behaviours as a file; a JSON string, and a list of them, is TOML as well."""
    lines = []
    for name, fields in behaviours.items():
        lines.append(f"[behaviours.{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in fields.items()]
    path = folder / "behaviours.toml"
    path.write_text("\n".join(lines))
    return path
