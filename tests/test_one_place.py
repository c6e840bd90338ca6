"""A compiler, a verdict and a kind of difference are each declared in one place, which everything else reads."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from recapture.cases.compilers import builtin_compilers
from recapture.records.verdicts import Verdict

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "recapture"

COMPILER = '''"""A planted compiler."""

from recapture.cases.compiler import compiler


@compiler("planted", family="own", run_by=("check",))
def planted(fn, example):
    """Gives another value on the example, and raises on another size."""

    def call(x):
        if x.shape != example[0].shape:
            raise ValueError("planted")
        return fn(x) + 1

    return call
'''

VERDICT = '''    PLANTED = (
        "planted_verdict",
        VerdictFacts(group="failing", tone="failing", mark=Mark("X", "a planted meaning"), does="is planted"),
    )
    """Planted."""

    def __str__('''

KIND = """KINDS: dict[str, Kind] = {
    "planted_kind": Kind("A planted difference."),
"""

SUITE = '''import torch
from recapture import case


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (torch.ones(4),)])
def doubles(x):
    """Doubles."""
    return x * 2


@case(example=lambda: (torch.ones(3),))
def halves(x):
    """Halves."""
    return x / 2
'''


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the package in which three places are edited: one for the compiler, the verdict and the kind each."""
    root = tmp_path_factory.mktemp("checkout")
    shutil.copytree(PACKAGE, root / "recapture", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(REPOSITORY / "docker", root / "docker")
    (root / "suites").mkdir()
    (root / "suites" / "small.py").write_text(SUITE)
    for path in (REPOSITORY / "suites").glob("*.toml"):
        shutil.copy(path, root / "suites")
    (root / "recapture" / "cases" / "compilers" / "planted.py").write_text(COMPILER)
    for name, old, new in (
        ("verdicts", "    def __str__(", VERDICT),
        ("kinds", "KINDS: dict[str, Kind] = {\n", KIND),
    ):
        path = root / "recapture" / "records" / f"{name}.py"
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))
    return root


@pytest.fixture(scope="module")
def run(checkout):
    """Run ``recapture`` with some arguments in the copy."""

    def run(*arguments, status=0):
        done = subprocess.run(
            [sys.executable, "-m", "recapture", *map(str, arguments)],
            cwd=checkout,
            env=os.environ | {"PYTHONPATH": str(checkout), "COLUMNS": "10000"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def results(run, checkout):
    """The results of a run with the planted compiler."""
    run("run", "small", "--compiler", "planted", "--compiler", "eager", "--results", "results")
    (path,) = (checkout / "results").rglob("conformance.jsonl")
    return path.parent


@pytest.fixture(scope="module")
def planted(results, checkout):
    """The same results with a cell that has the planted verdict, and one with the planted kind of difference."""
    folder = checkout / "planted" / results.relative_to(checkout / "results")
    shutil.copytree(results, folder)
    path = folder / "conformance.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    with_kind, with_verdict = (row for row in rows if row["compiler"] == "planted")
    with_kind["differences"][0]["kind"] = "planted_kind"
    plain = {name: with_verdict[name] for name in ("case", "compiler", "device", "case_hash", "schema")}
    rows[rows.index(with_verdict)] = plain | {"verdict": "planted_verdict", "reason": "it was planted"}
    path.write_text("".join(f"{json.dumps(row, separators=(',', ':'), ensure_ascii=False)}\n" for row in rows))
    return folder


@pytest.mark.slow
def test_a_compiler_is_one_function_in_one_file(run, results):
    assert "planted" in run("list", "--compilers")
    rows = {row["compiler"]: row for row in map(json.loads, (results / "conformance.jsonl").read_text().splitlines())}
    assert rows["planted"]["verdict"] == "wrong"
    assert "planted" in (results / "conformance.md").read_text()


@pytest.mark.slow
def test_reports_in_every_form_know_what_was_added(run, planted):
    run("report", planted)
    markdown = (planted / "conformance.md").read_text()
    assert "X a planted meaning" in markdown
    assert "A planted difference." in markdown
    assert "it was planted" in markdown
    terminal = run("report", planted)
    assert "X a planted meaning" in terminal
    assert "planted_kind" in terminal
    run("report", planted, "--html")
    page = (planted / "conformance.html").read_text()
    assert "X</i>a planted meaning" in page
    assert 'title="A planted difference."' in page
    assert "planted_verdict" in page
    assert "planted_verdict" in run("report", planted, "--json")


@pytest.mark.slow
def test_a_diff_and_an_explanation_know_what_was_added(run, results, planted):
    for form in ("text", "markdown"):
        text = run("diff", results, planted, "--format", form)
        assert "planted_kind" in text
        assert "halves" in text
    assert "planted_kind" in run("diff", results, planted, "--kind", "planted_kind")
    assert "planted_verdict" in run("diff", results, planted, "--kind", "planted_verdict")
    assert "wrong" in run("explain", "small::doubles::planted", "--results", results)


@pytest.mark.slow
def test_a_check_runs_the_compiler_that_was_added(run, checkout):
    (checkout / "model.py").write_text("def doubles(x):\n    return x * 2\n")
    report = json.loads(run("check", "model.py:doubles", "--input", "3", "--compiler", "planted", "--json"))
    assert [(row["compiler"], row["verdict"]) for row in report["rows"]] == [("planted", "wrong")]


# Where a text that equals a compiler's name means something else.
OTHER_MEANINGS = {
    ("cases/collection.py", "compile"): "an attribute of torch",
    ("cases/collection.py", "export"): "an attribute of torch",
    ("cases/compiler.py", "export"): "a stage",
    ("images/lock_files.py", "compile"): "a command of uv",
    ("images/overlay.py", "compile"): "a command of uv",
    ("images/requirements.py", "compile"): "a command of uv",
    ("known/devices.py", "eager"): "a side of a difference",
    ("known/findings.py", "eager"): "who is at fault",
    ("pool/client.py", "aoti"): "a level of preloading",
    ("records/guilty_stage.py", "export"): "a stage",
    ("records/older_versions.py", "eager"): "a side of a difference",
    ("run/outcomes.py", "eager"): "a field of a result",
    ("run/preparation.py", "aoti"): "a level of preloading",
    ("tools/compare/changes.py", "eager"): "a condition of --fail-on",
    ("tools/compare/diff_command.py", "eager"): "a condition of --fail-on",
    ("tools/compare/diff_report.py", "eager"): "the heading of a column",
    ("tools/explain/compiler_stages.py", "eager"): "a backend of torch",
    ("tools/explain/compiler_stages.py", "export"): "a stage",
    ("tools/explain/script/upstream.py", "eager"): "a backend of torch",
    ("tools/lint/lint_command.py", "compile"): "the default of an option",
    ("tools/lint/lint_command.py", "export"): "the default of an option",
    ("tools/speed/job.py", "eager"): "the subject of a measurement",
    ("tools/speed/operators.py", "eager"): "the heading of a column",
    ("tools/speed/report.py", "eager"): "the heading of a column",
    ("tools/speed/speed_changes.py", "eager"): "the subject of a measurement",
    ("tools/upgrade/package_versions.py", "compile"): "a command of uv",
    ("torch_api/graphs.py", "export"): "an attribute of torch",
    ("torch_api/preload.py", "aoti"): "a level of preloading",
    ("torch_api/preload.py", "eager"): "a backend of torch",
    ("torch_api/stages.py", "compile"): "an attribute of torch",
    ("torch_api/stages.py", "export"): "an attribute of torch",
}

WORDS_OF_VERDICTS = {"wrong", "error", "timeout", "environment", "unstable"}
"""Verdicts whose values are words that mean something else, too: a section, an end of a process, a kind of reason."""


def literals(path):
    """The texts of a file that are no docstrings, with their lines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    plain = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        (node.value, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in plain
    ]


def files(*without):
    return [path for path in sorted(PACKAGE.rglob("*.py")) if not path.is_relative_to(PACKAGE.joinpath(*without))]


@pytest.mark.quick
def test_no_file_names_a_compiler_but_those_that_declare_them():
    names, met, strange = set(builtin_compilers()), set(), []
    for path in files("cases", "compilers"):
        place = path.relative_to(PACKAGE).as_posix()
        for text, line in literals(path):
            if text in names:
                met.add((place, text))
                strange += [f"{place}:{line} {text}"] if (place, text) not in OTHER_MEANINGS else []
    assert not strange, "compare a field of `compiler_facts` instead"
    assert met == set(OTHER_MEANINGS)


@pytest.mark.quick
def test_no_file_names_a_verdict_but_the_one_that_declares_them():
    names = {verdict.value for verdict in Verdict} - WORDS_OF_VERDICTS
    assert names >= {"pass", "pass_with_breaks", "specialized", "crash", "oom", "not_applicable"}
    strange = [
        f"{path.relative_to(PACKAGE)}:{line} {text}"
        for path in files("records", "verdicts.py")
        for text, line in literals(path)
        if text in names
    ]
    assert not strange, "use the member of `Verdict`, or a field of its row"


@pytest.mark.quick
def test_no_verdict_is_compared_with_a_text():
    strange = []
    for path in files("records", "verdicts.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                texts = [leaf.value for side in sides for leaf in ast.walk(side) if isinstance(leaf, ast.Constant)]
                verdict = any(isinstance(side, ast.Attribute) and side.attr == "verdict" for side in sides)
                if verdict and any(isinstance(text, str) for text in texts):
                    strange.append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert not strange
