"""Findings of generated programs: what is suspected, how two spellings compare, and how a finding becomes a case."""

import json
import subprocess
import sys

import pytest

from recapture.base.errors import UsageError
from recapture.cases.case import CASES_ATTRIBUTE
from recapture.cases.collection import execute
from recapture.records.record import Record
from recapture.records.verdicts import Verdict
from recapture.tools.generate.findings import keep
from recapture.tools.generate.resemblance import similar_cases
from recapture.tools.generate.settings_axis import settings_text
from recapture.tools.generate.spellings import PairCount, pair_counts
from recapture.tools.generate.suite_files import GeneratedSuite, MadeProgram
from recapture.tools.generate.suspects import suspects


def record(case, compiler="compile", verdict=Verdict.PASS):
    return Record(case=case, compiler=compiler, device="cpu", case_hash="", verdict=verdict)


def test_the_step_that_fails_most_often_is_suspected():
    steps = {"a": ("loop", "closure"), "b": ("loop",), "c": ("closure", "generator"), "d": ("generator",)}
    suite = GeneratedSuite(
        "python 0000",
        "python_0000",
        programs=tuple(MadeProgram(name, "program", steps=each) for name, each in steps.items()),
    )
    wrong = {"a", "c"}  # the two with a closure
    records = [
        record(f"python_0000::{name}", verdict=Verdict.WRONG if name in wrong else Verdict.PASS) for name in steps
    ]
    suspected = suspects([suite], records)
    assert {name: suspected[f"python_0000::{name}"] for name in wrong} == {"a": "closure", "c": "closure"}


def test_the_operator_of_a_file_is_suspected_where_programs_have_no_steps():
    suite = GeneratedSuite("sort", "op_sort", programs=(MadeProgram("out_0", "out"),))
    assert suspects([suite], [record("op_sort::out_0")]) == {"op_sort::out_0": "sort"}


def test_the_four_ways_of_two_spellings_are_counted():
    right, wrong = Verdict.PASS, Verdict.WRONG
    rows = [("a", right, right), ("b", wrong, right), ("c", right, wrong), ("d", wrong, wrong), ("e", right, wrong)]
    records = []
    for name, original, rewritten in rows:
        case = f"python_0000::{name}"
        records += [record(case, verdict=original), record(f"{case}_again", verdict=rewritten)]
        records.append(record(f"{case}_again", "eager", wrong if name == "e" else right))
    counts = pair_counts(records, ("compile", "eager"))
    assert counts == {"compile": PairCount(right=1, original=1, rewritten=1, both=1, changed=1)}


CASE = """import torch
from recapture import case


@case(example=lambda: (torch.ones(1),))
def program_3(x):
    return x + 1
"""


@pytest.fixture
def generated(tmp_path):
    folder = tmp_path / "generated" / "findings" / "loop_value"
    folder.mkdir(parents=True)
    (folder / "loop_value.py").write_text(CASE)
    finding = {
        "name": "loop_value",
        "family": "silently wrong: value: result value (loop)",
        "cell": "loop_value::program_3::compile",
        "verdict": "wrong",
    }
    (folder / "finding.json").write_text(json.dumps(finding))
    return tmp_path / "generated"


@pytest.mark.parametrize(
    "before", [None, '"""Mine."""\n\nimport torch\n\nfrom recapture import case\n\n\nNUMBER = 3\n']
)
def test_a_finding_becomes_a_case_of_a_new_or_an_existing_file(generated, tmp_path, before):
    suite = tmp_path / "kept_suite.py"
    if before is not None:
        suite.write_text(before)
    assert keep(generated, "loop_value", suite) == "loop_value"
    text = suite.read_text()
    assert text.count("import torch\n") == text.count("from recapture import case\n") == 1
    assert before is None or "NUMBER = 3" in text
    (stored_case,) = getattr(execute("kept_suite", suite), CASES_ATTRIBUTE)
    assert stored_case.name == "loop_value"
    assert "silently wrong: value" in stored_case.target.__doc__
    with pytest.raises(UsageError, match="has a case 'loop_value' already"):
        keep(generated, "loop_value", suite)


def test_an_unknown_finding_is_refused_with_those_that_there_are(generated, tmp_path):
    with pytest.raises(UsageError, match=r"no finding .lop.*there are: loop_value"):
        keep(generated, "lop", tmp_path / "suite.py")


def test_keeping_a_finding_needs_the_file_and_nothing_is_generated(generated, tmp_path):
    words = [sys.executable, "-m", "recapture", "generate", "--results", str(generated), "--keep", "loop_value"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--keep and --suite belong together" in done.stderr
    done = subprocess.run([*words, "--suite", str(tmp_path / "s.py")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "def loop_value(x)" in (tmp_path / "s.py").read_text()


def test_a_program_like_that_of_a_known_issue_names_the_issue():
    text = """
class Model(torch.nn.Module):
    items = []

    def forward(self, x):
        Model.items.append(x)
        return x + len(Model.items)
"""
    lines = similar_cases(text, "mutation", "compile:aot_eager", "2.11.0")
    assert any("issues/169253" in line for line in lines), lines


@pytest.mark.slow
def test_each_changed_setting_is_one_that_torch_takes():
    import torch

    namespace = {}
    text = settings_text(500, 0)
    assert text == settings_text(500, 0)
    exec(
        compile(
            text.replace("from recapture import compiler", "def compiler(*_, **__): return lambda f: f"), "s", "exec"
        ),
        namespace,
    )
    captures = [value for name, value in namespace.items() if name.startswith("changed_")]
    assert len(captures) > 30
    for capture in captures:
        capture(lambda x: x + 1, (torch.ones(1),))  # torch.compile refuses unknown options here


@pytest.mark.slow
def test_what_an_operator_does_not_write_is_not_judged():
    from recapture.tools.generate.operator_programs import FORMS, OperatorRequest, make_suite
    from recapture.torch_api.operator_samples import operator_entries

    entries = operator_entries()
    for name, unwritten in (("new_empty_strided", True), ("empty_like", True), ("zeros_like", False), ("log", False)):
        suite = make_suite(entries[name], OperatorRequest(name, "cpu", "float32", 0, 1, tuple(FORMS)))
        assert {program.unwritten for program in suite.programs} == {unwritten}, name
        assert (".zero_()" in suite.text) is unwritten
