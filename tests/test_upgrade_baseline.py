"""`upgrade` with the file of a baseline: writing it, comparing with it, and the files that users copy to do so."""

from __future__ import annotations

import importlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version
from planted_upgrades import COMPILED, REPOSITORY, SUITE, run, write

from recapture.command.main import _run
from recapture.report.markdown_writer import to_markdown
from recapture.tools.upgrade import compile_counts
from recapture.tools.upgrade.comparison import Group
from recapture.tools.upgrade.outcomes import failure
from recapture.tools.upgrade.upgrade import BASELINE_FILE, Comparison, UpgradeReport
from recapture.tools.upgrade.upgrade_report import upgrade_document

PYTHON = (sys.executable, "-m", "pytest", "-q")


def test_a_file_that_the_baseline_cannot_import_is_told_with_its_reason(project, capsys):
    write(project, "import no_such_module\ndef test_a(): pass")
    words = ("upgrade", "--across", "here", "--runs", "1", "--write-baseline", "b.json")
    assert _run([*words, "--", sys.executable, "-m", "pytest", "-q"]) == 0
    out, err = capsys.readouterr()
    assert err.endswith("recapture: wrote b.json: the outcomes on here\n")
    assert out.startswith("1 file cannot be collected on here itself\n")
    assert "test_it.py: ModuleNotFoundError: No module named 'no_such_module'" in out


def test_what_fails_in_the_baseline_itself_is_told_by_cause(project, capsys):
    write(
        project,
        """import pytest
@pytest.mark.parametrize("number", range(3))
def test_a(number): import no_such_module
def test_b(): assert False, "planted"
def test_c(): pass
""",
    )
    words = ("upgrade", "--across", "here", "--runs", "1", "--write-baseline", "b.json")
    assert _run([*words, "--", sys.executable, "-m", "pytest", "-q"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Failing on here itself: 4 tests test_it.py::test_a[0] and 2 more: ModuleNotFoundError: No module" in out
    assert "test_it.py::test_b: AssertionError: planted" in out


@pytest.mark.parametrize(
    ("baseline", "cause", "fact"),
    [
        ("2.6.0", "torch 2.6.0 → 2.9.1", "raised in torch 2.6.0 → 2.9.1"),
        (BASELINE_FILE, "torch 2.6.0 → 2.9.1", "2.9.1, unless your code changed"),
        ("2.6.0", "", "the cause is not decided"),
        (BASELINE_FILE, "", "the cause is not decided; your code may have changed, too"),
    ],
)
def test_a_baseline_file_may_be_older_than_the_code(baseline, cause, fact):
    group = Group(category="newly_failing", failure=failure("E", "x"), tests=("a",), cause=cause)
    place = Comparison(
        name="2.9.1", image="", pinned=True, against="2.6.0", planned=1, recorded=1, counts={}, groups=(group,)
    )
    report = UpgradeReport(
        command=("true",), baseline=baseline, fails_itself="", uncollected=(), places=(place,), flaky=()
    )
    lines = to_markdown(upgrade_document(report)).splitlines()
    assert [line for line in lines if line.endswith(fact)]


@pytest.mark.slow
def test_a_baseline_has_the_same_bytes_each_time_and_fails_on_what_is_new(planted_releases, project, capsys):
    write(project, SUITE)
    assert run(capsys, "--across", "2.6.0", "--runs", "1", "--write-baseline", "one.json")[0] == 0
    assert run(capsys, "--across", "2.6.0", "--runs", "1", "--again", "--write-baseline", "two.json")[0] == 0
    _, _, output = run(capsys, "--across", "2.6.0,2.9.1", "--runs", "1", "--write-baseline", "both.json")
    assert (
        "wrote both.json: the outcomes on 2.6.0, 2.9.1; a comparison with it accepts what is worse: 3 on 2.9.1"
        in output
    )
    assert (project / "one.json").read_bytes() == (project / "two.json").read_bytes()
    words = ("--baseline", "one.json", "--confirm", "1")
    assert run(capsys, "--across", "2.6.0", *words)[0] == 0
    status, out, _ = run(capsys, "--across", "2.9.1", *words)
    assert status == 1
    assert out.startswith("3 tests worse on 2.9.1, 2 causes")
    assert "torch 2.6.0 → 2.9.1" in " ".join(out.split())
    assert "of CUDA" not in out  # a package that the file does not have may be the same on both sides


FLAKES = "import random\n" + "".join(
    f"def test_{number}(): assert random.random() > {share}\n"
    for number, share in enumerate((0.05, 0.2, 0.4, 0.5, 0.6) * 2)
)


@pytest.mark.slow
def test_flakes_are_never_blamed(project, capsys, tmp_path):
    """Ten flakes in twenty comparisons of one environment with itself."""
    write(project, FLAKES)
    blamed = 0
    for number in range(20):
        words = ("--across", "here", "--runs", "3", "--state", f"s{number}", "--write-baseline", "b.json")
        assert run(capsys, *words)[0] == 0
        status, _, _ = run(capsys, "--across", "here", "--baseline", "b.json", "--state", f"t{number}")
        blamed += status
    assert blamed == 0


FLAKY_ONCE = """
from pathlib import Path
def test_sometimes():
    runs = Path("runs")
    runs.write_text((runs.read_text() if runs.exists() else "") + "x")
    assert runs.read_text() != "xx"
def test_always(): pass
"""


def test_a_flaky_test_stays_flaky_until_it_has_ended_alike_in_many_runs(project, capsys):
    write(project, FLAKY_ONCE)
    python = ("--", sys.executable, "-m", "pytest", "-q")
    words = ("upgrade", "--across", "here", "--write-baseline", "b.json", "--runs", "2", "--again")

    def updated(*more):
        assert _run([*words, *more, *python]) == 0
        return json.loads((project / "b.json").read_text())["releases"]["here"], capsys.readouterr().err

    test = "test_it.py::test_sometimes"
    release, output = updated()
    assert release["flaky"] == [test]
    assert "steady" not in release
    assert "flaky" not in output
    release, output = updated()
    assert (release["flaky"], release["steady"]) == ([test], {test: "passed in 2 runs"})
    assert output.endswith(f"; still called flaky, until they end alike in 15 runs: {test}\n")
    # What was not run again says nothing more, and writes the same bytes.
    text = (project / "b.json").read_bytes()
    assert _run([*words[:-1], *python]) == 0
    assert (project / "b.json").read_bytes() == text
    capsys.readouterr()
    # Meanwhile a failure is not called new.
    write(project, FLAKY_ONCE.replace('!= "xx"', '== ""'))
    assert _run(["upgrade", "--across", "here", "--baseline", "b.json", *python]) == 0
    out = capsys.readouterr().out
    assert out.startswith("nothing is worse on here; 1 flaky test, blamed on no release\n")
    # In a row: runs that end in another way count from the beginning.
    release, _ = updated()
    assert release["steady"] == {test: "failed in 2 runs"}
    write(project, FLAKY_ONCE)
    (project / "b.json").write_bytes(text.replace(b"in 2 runs", b"in 13 runs"))
    release, output = updated()
    assert (release["flaky"], release["tests"][test]) == ([], "passed")
    assert output.endswith(f"; flaky no more, after 15 runs that ended alike: {test}\n")


def test_a_skipped_or_missing_test_says_nothing_about_how_flaky_it_is(project, capsys):
    python = ("--", sys.executable, "-m", "pytest", "-q")
    words = ("upgrade", "--across", "here", "--runs", "1", "--write-baseline", "b.json")
    steady = {"test_it.py::test_a": "passed in 14 runs"}
    old = {"flaky": ["test_it.py::test_a", "test_it.py::test_b", "test_gone.py::test_c"], "steady": steady}
    (project / "b.json").write_text(json.dumps({"schema": 1, "command": [], "releases": {"2.6.0": old}}))
    for text in (
        "import pytest\npytestmark = pytest.mark.skip\ndef test_a(): pass\ndef test_b(): pass\n",
        "import no_x",
    ):
        write(project, text)
        assert _run([*words, *python]) == 0
        release = json.loads((project / "b.json").read_text())["releases"]["here"]
        assert (release["flaky"], release["steady"]) == (["test_it.py::test_a", "test_it.py::test_b"], steady)
    capsys.readouterr()


@pytest.mark.parametrize(
    ("name", "text"), [("conftest.py", "import no_such_module"), ("test_it.py", "")], ids=["conftest", "no tests"]
)
def test_a_command_that_fails_without_any_test_makes_no_baseline(project, capsys, name, text):
    write(project, text, name)
    words = ("upgrade", "--across", "here", "--runs", "1", "--write-baseline", "b.json")
    assert _run([*words, "--", sys.executable, "-m", "pytest", "-q"]) == 2
    err = capsys.readouterr().err
    assert err.endswith("recapture: did not write b.json: the command fails on here itself, without any test\n")
    assert not (project / "b.json").exists()


def test_the_files_are_written_although_nobody_reads_the_report(project):
    write(project, "def test_a(): pass")
    words = ["upgrade", "--across", "here", "--runs", "1", "--write-baseline", "b.json", "--junit", "j.xml", "--"]
    with subprocess.Popen(
        [sys.executable, "-m", "recapture", *words, *PYTHON],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        assert process.wait() == 0
        assert "Traceback" not in process.stderr.read().decode()
    assert sorted(path.name for path in project.glob("?.*")) == ["b.json", "j.xml"]


def test_a_command_that_runs_none_of_its_tests_makes_no_baseline(project, capsys):
    write(project, "[pytest]\naddopts = --collect-only\n", "pytest.ini")
    write(project, "def test_a(): pass\ndef test_b(): pass\n")
    words = ("upgrade", "--across", "here", "--runs", "1", "--write-baseline", "b.json", "--", *PYTHON)
    assert _run([*words]) == 2
    out, err = capsys.readouterr()
    assert "pytest collects 2 tests and runs none" in out
    assert "did not write b.json: the command fails on here itself, without any test" in err
    assert not (project / "b.json").exists()


def test_ids_that_differ_in_each_run_are_flaky_and_never_lost(project, capsys):
    write(
        project,
        "import pytest\nfrom pathlib import Path\n"
        "number = len(list(Path().glob('ran-*')))\nPath(f'ran-{number}').touch()\n"
        "@pytest.mark.parametrize('n', ['always', f'only-{number}'])\ndef test_it(n): pass\n",
    )
    words = ("upgrade", "--across", "here", "--runs", "3")
    assert _run([*words, "--write-baseline", "b.json", "--", *PYTHON]) == 0
    release = json.loads((project / "b.json").read_text())["releases"]["here"]
    assert release["flaky"] == [f"test_it.py::test_it[only-{number}]" for number in range(3)]
    assert list(release["tests"]) == ["(the command)", "test_it.py::test_it[always]"]
    write(project, "", "another.py")
    assert _run([*words, "--baseline", "b.json", "--", *PYTHON]) == 0
    assert "nothing is worse on here; 3 flaky tests" in capsys.readouterr().out


@pytest.mark.parametrize("row", ["passed", "passed in 0 runs", "passd in 3 runs"])
def test_what_is_no_baseline_is_not_replaced_by_one(project, capsys, row):
    words = ("upgrade", "--across", "here", "--write-baseline", "b.json", "--", "true")
    document = {"schema": 1, "command": [], "releases": {"here": {"steady": {"t": row}}}}
    (project / "b.json").write_text(json.dumps(document))
    assert _run(words) == 2
    reason = f"b.json: `releases.here.steady`: 't' has {row!r}, which is no number of runs\n"
    assert capsys.readouterr().err == f"recapture: --write-baseline would replace what is no baseline: {reason}"
    assert json.loads((project / "b.json").read_text()) == document


def test_a_function_with_more_breaks_than_the_baseline_fails_the_gate(project, capsys):
    write(project, COMPILED.replace("SIZES", "(2,)").replace("    torch._dynamo.graph_break()\n", ""))
    words = ("upgrade", "--across", "here", "--confirm", "0", "--runs", "1", "--frames")
    python = ("--", sys.executable, "-m", "pytest", "-q")
    assert _run([*words, "--write-baseline", "b.json", *python]) == 0
    assert json.loads((project / "b.json").read_text())["releases"]["here"]["frames"] == {}
    capsys.readouterr()
    gate = ("upgrade", "--across", "here", "--baseline", "b.json", *python)
    assert _run(gate) == 0
    capsys.readouterr()
    write(project, COMPILED.replace("SIZES", "(2,)"))
    assert _run(gate) == 1
    out = capsys.readouterr().out
    assert out.startswith("1 function with more graph breaks or recompiles on here")
    assert "test_it.py:helper: 0 breaks, 0 recompiles → 1 break, 0 recompiles" in out
    assert _run([*words, "--write-baseline", "b.json", *python]) == 0
    assert json.loads((project / "b.json").read_text())["releases"]["here"]["frames"] == {
        "test_it.py:helper": {"breaks": 1}
    }


def test_what_an_old_torch_does_not_tell_is_unknown_and_not_zero(project, capsys, monkeypatch):
    write(project, COMPILED.replace("SIZES", "(2,)"))
    words = ("upgrade", "--across", "here", "--confirm", "0", "--runs", "1", "--frames")
    python = ("--", sys.executable, "-m", "pytest", "-q")
    with monkeypatch.context() as patch:
        patch.setattr(compile_counts, "FIRST_TRACED", Version("99"))
        assert _run([*words, "--write-baseline", "b.json", *python]) == 0
        assert "graph breaks and recompiles are unknown: torch is older than 99 on here" in capsys.readouterr().out
    assert json.loads((project / "b.json").read_text())["releases"]["here"]["frames"] is None
    assert _run(["upgrade", "--across", "here", "--baseline", "b.json", "--again", *python]) == 0
    out = capsys.readouterr().out
    assert "graph breaks and recompiles are unknown: torch is older than" in out
    assert "0 breaks" not in out
    (project / "b.json").write_text((project / "b.json").read_text().replace(',\n   "frames": null', ""))
    assert _run(["upgrade", "--across", "here", "--baseline", "b.json", "--frames", *python]) == 0
    assert "are unknown: they were not counted in here of the baseline file" in capsys.readouterr().out


# the files that users copy


EXAMPLE = REPOSITORY / "examples" / "gate_your_tests"


def test_the_workflow_is_one_that_github_accepts_and_its_command_is_one_that_recapture_has(capsys):
    program = shutil.which("actionlint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert program, "actionlint comes with the development dependencies"
    path = EXAMPLE / "torch-tests.yml"
    done = subprocess.run([program, path], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    workflow = importlib.import_module("yaml").safe_load(path.read_text(encoding="utf-8"))
    (line,) = (
        step["run"] for step in workflow["jobs"]["upgrade"]["steps"] if "recapture upgrade" in step.get("run", "")
    )
    for name, value in workflow["env"].items():
        line = line.replace(f"${name}", value)
    words = shlex.split(line.replace("\\\n", " ").partition("recapture ")[2].partition(" > ")[0])
    assert _run(words) == 2  # there is no baseline here; every option is known
    assert "recapture-baseline.json" in capsys.readouterr().err


def test_the_hook_of_pre_commit_runs_here(project, capsys):
    hooks = importlib.import_module("yaml").safe_load((EXAMPLE / "pre-commit-config.yaml").read_text(encoding="utf-8"))
    ((hook,),) = (repository["hooks"] for repository in hooks["repos"])
    words = shlex.split(hook["entry"])
    assert (words[0], hook["language"]) == ("recapture", "system")
    (project / "tests").mkdir()
    write(project, "def test_it(): pass", "tests/test_it.py")
    python = [sys.executable if word == "python" else word for word in words[1:]]
    baseline = [word.replace("--baseline", "--write-baseline") for word in python]
    assert _run([baseline[0], "--runs", "1", *baseline[1:]]) == 0
    assert _run([python[0], "--confirm", "0", *python[1:]]) == 0
    write(project, "def test_it(): assert False", "tests/test_it.py")
    assert _run([python[0], "--confirm", "0", *python[1:]]) == 1
