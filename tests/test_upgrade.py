"""`upgrade`: a user's tests on several releases, what is new on each, and what kills, hangs or fills the disk."""

from __future__ import annotations

import collections
import importlib
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from xml.etree import ElementTree as ET

import psutil
import pytest
from packaging.version import Version
from planted_releases import PlantedReleases

from recapture.base.errors import EnvironmentUnfitError
from recapture.base.locks import locked
from recapture.command.main import _run
from recapture.images.interpreter import Interpreter
from recapture.report.markdown_writer import to_markdown
from recapture.tools.upgrade import compile_counts, process_counts, pytest_outcomes, rounds
from recapture.tools.upgrade.command_options import CommandOptions
from recapture.tools.upgrade.comparison import Group, TestHistory, compare, grouped
from recapture.tools.upgrade.compile_counts import FrameCounts, frame_changes
from recapture.tools.upgrade.outcomes import OutcomeFile, TestOutcome, failure
from recapture.tools.upgrade.rounds import Round
from recapture.tools.upgrade.upgrade import BASELINE_FILE, Comparison, UpgradeReport
from recapture.tools.upgrade.upgrade_report import upgrade_document

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project without packages of its own; its tests run in this Python, without other plugins."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("RECAPTURE_CACHE", str(tmp_path / "cache"))
    return folder


def write(project, text, name="test_it.py"):
    (project / name).write_text(text)


def round_of(project, words=("pytest", "-q"), *, timeout=60.0, only=None, name="round"):
    words = [sys.executable, "-m", *words] if words[0] == "pytest" else list(words)
    return Round(folder=project.parent / name, words=words, root=project, timeout=timeout, key="k", only=only)


def outcomes(result):
    return {row.test.removeprefix("test_it.py::"): row.outcome for row in result.tests}


# one round


def test_the_names_that_both_sides_of_the_file_use_are_the_same():
    assert rounds.OUTCOMES_VARIABLE == pytest_outcomes.OUTCOMES
    assert rounds.SELECT_VARIABLE == pytest_outcomes.SELECT
    assert rounds.CANNOT_WRITE == pytest_outcomes.CANNOT_WRITE


ALL_KINDS = """
import os, signal, time, warnings, pytest
def test_passes(): pass
def test_fails(): assert 1 + 1 == 3
def test_raises(): raise ValueError("at 0x7f0011223344 in /home/me/x.py")
@pytest.mark.skip
def test_skipped(): pass
@pytest.mark.xfail
def test_xfails(): assert False
@pytest.fixture
def broken(): raise OSError("no such device")
def test_error(broken): pass
def test_dies(): os.kill(os.getpid(), signal.SIGKILL)
def test_kills_its_parent():
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(2)
def test_kills_its_group(): os.killpg(0, signal.SIGKILL)
def test_hangs(): time.sleep(1000)
def test_leaves(): os._exit(3)
def test_ends_pytest(): pytest.exit("enough", returncode=0)
def test_interrupts_pytest():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(10)
def test_forks_and_the_child_goes_on():
    if os.fork() == 0: return
def test_starts_a_process_that_stays():
    if os.fork() == 0:
        time.sleep(1000)
def test_warns(): warnings.warn("torch.old is deprecated", FutureWarning)
def test_last(): pass
"""


def test_every_test_has_an_outcome_whatever_the_others_do(project):
    write(project, ALL_KINDS)
    write(project, "import no_such_module", "test_broken.py")
    result = round_of(project, timeout=4.0).run(Interpreter.here())
    assert outcomes(result) == {
        "(the command)": "passed",
        "test_broken.py": "uncollected",
        "test_passes": "passed",
        "test_fails": "failed",
        "test_raises": "failed",
        "test_skipped": "skipped",
        "test_xfails": "xfailed",
        "test_error": "error",
        "test_dies": "died",
        "test_kills_its_parent": "died",
        "test_kills_its_group": "died",
        "test_hangs": "timeout",
        "test_leaves": "died",
        "test_ends_pytest": "died",
        "test_interrupts_pytest": "died",
        "test_forks_and_the_child_goes_on": "passed",
        "test_starts_a_process_that_stays": "passed",
        "test_warns": "passed",
        "test_last": "passed",
    }
    assert result.planned == len(result.tests)
    assert result.deaths == 7
    rows = {row.test: row.failure for row in result.tests}
    assert rows["test_it.py::test_raises"].message == "at 0x… in x.py"
    assert rows["test_it.py::test_raises"].place == "test_it.py:test_raises"
    assert rows["test_it.py::test_hangs"].message == "no answer within the time of --timeout"
    assert rows["test_broken.py"].type == "ModuleNotFoundError"
    assert [(row.category, row.message) for row in result.warnings] == [("FutureWarning", "torch.old is deprecated")]


def test_a_message_that_is_no_text_does_not_hide_its_test(project):
    write(project, "def test_a(): raise ValueError('\\ud800 \\x00 \\u2028 end')")
    (row,) = [row for row in round_of(project).run(Interpreter.here()).tests if row.test.endswith("test_a")]
    assert (row.outcome, row.failure.message.startswith("?"), row.failure.message.endswith("end")) == (
        "failed",
        True,
        True,
    )


def test_a_daemon_in_a_session_of_its_own_is_not_left_behind(project):
    write(
        project,
        "import os, subprocess, sys\n"
        'PROGRAM = \'import os, time; open("pids", "a").write(f"{os.getpid()} "); time.sleep(1000)\'\n'
        "def test_a():\n"
        "    subprocess.Popen([sys.executable, '-c', PROGRAM], start_new_session=True)\n"
        "    while not os.path.exists('pids'): pass\n",
    )
    assert outcomes(round_of(project).run(Interpreter.here()))["test_a"] == "passed"
    (number,) = (project / "pids").read_text().split()
    assert not psutil.pid_exists(int(number))


def test_a_run_that_the_user_limits_ends_where_it_was_to_end(project):
    write(project, "def test_a(): pass\ndef test_b(): assert False\ndef test_c(): pass")
    result = round_of(project, ("pytest", "-q", "--exitfirst")).run(Interpreter.here())
    assert outcomes(result) == {
        "(the command)": "passed",
        "test_a": "passed",
        "test_b": "failed",
        "test_c": "not run",
    }
    assert result.deaths == 0


def test_a_finished_round_is_read_and_one_of_other_code_begins_anew(project):
    write(project, "def test_it(): open('ran', 'a').write('x')")
    first = round_of(project)
    assert first.run(Interpreter.here()) == first.run(Interpreter.here()) == first.result()
    assert (project / "ran").read_text() == "x"
    other = Round(folder=first.folder, words=first.words, root=project, timeout=60.0, key="other")
    assert other.result() is None
    other.run(Interpreter.here())
    assert (project / "ran").read_text() == "xx"


def test_a_round_continues_where_its_process_was_killed(project):
    """The first process is killed while the second test runs; nothing that ended runs again."""
    write(
        project,
        "import os, time\n"
        "def note(name): open('ran', 'a').write(name)\n"
        "def test_1(): note('1')\n"
        "def test_2():\n    note('2')\n    while os.path.exists('gate'): time.sleep(0.02)\n"
        "def test_3(): note('3')\n",
    )
    (project / "gate").touch()
    words = ["upgrade", "--across", "here", "--runs", "1", "--write-baseline", "b.json", "--state", "state"]
    command = [sys.executable, "-m", "recapture", *words, "--", sys.executable, "-m", "pytest", "-q"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, cwd=project, env=environment, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 60
        while not (project / "ran").exists() or (project / "ran").read_text() != "12":
            assert time.monotonic() < until
            time.sleep(0.05)
        process.kill()
    time.sleep(0.5)
    (project / "gate").unlink()
    subprocess.run(command, cwd=project, env=environment, check=True, capture_output=True)
    assert (project / "ran").read_text() == "1223"
    tests = json.loads((project / "b.json").read_text())["releases"]["here"]["tests"]
    assert set(tests.values()) == {"passed"}
    assert len(tests) == 4


def test_a_test_that_kills_the_tool_again_and_again_is_blamed_in_the_end(project):
    round_ = round_of(project)
    write(project, "def test_1(): pass\ndef test_2(): pass\n")
    round_.folder.mkdir()
    (round_.folder / "key").write_text("k")
    lines = [{"collected": ["test_it.py::test_1", "test_it.py::test_2"]}, *[{"start": "test_it.py::test_1"}] * 2]
    (round_.folder / "outcomes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"test": "te')
    result = round_.run(Interpreter.here())
    assert outcomes(result) == {"(the command)": "passed", "test_1": "died", "test_2": "passed"}


def test_a_full_disk_ends_with_one_line_and_keeps_what_ended(project, monkeypatch):
    """The file of outcomes may not grow beyond a limit, as on a full disk."""
    write(
        project,
        "import os, resource, signal, pytest\n"
        "def test_1(): pass\n"
        "def test_2():\n"
        "    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "    size = os.path.getsize(os.environ['RECAPTURE_OUTCOMES'])\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, size + 5))\n"
        "def test_3(): pass\n",
    )
    round_ = round_of(project)
    with pytest.raises(EnvironmentUnfitError, match=r"no space left in .*; finished tests are kept"):
        round_.run(Interpreter.here())
    kept = OutcomeFile(round_.folder / "outcomes.jsonl", project)
    kept.update()
    assert set(kept.tests) == {"test_it.py::test_1"}
    write(project, "def test_1(): assert False\ndef test_2(): pass\ndef test_3(): pass\n")
    assert outcomes(round_.run(Interpreter.here())) == {
        "(the command)": "passed",
        "test_1": "passed",  # it ended before
        "test_2": "passed",
        "test_3": "passed",
    }


def test_other_commands_are_judged_by_their_exit_status_and_keep_the_end_of_their_output(project):
    words = (sys.executable, "-c", "print('Traceback'); print('ValueError: at 0x7f0011223344'); raise SystemExit(4)")
    (row,) = round_of(project, words).run(Interpreter.here()).tests
    assert (row.test, row.outcome, row.failure.type) == ("(the command)", "failed", "exit status 4")
    assert row.failure.message == "Traceback ValueError: at 0x…"
    (row,) = round_of(project, ("sleep", "100"), timeout=0.5, name="slow").run(Interpreter.here()).tests
    assert (row.outcome, row.failure.message) == ("timeout", "no answer within the time of --timeout")


def test_workers_of_xdist_report_the_same(project, monkeypatch):
    pytest.importorskip("xdist")
    write(project, ALL_KINDS.partition("def test_dies")[0] + "def test_dies(): os._exit(1)\ndef test_last(): pass\n")
    alone = round_of(project, ("pytest", "-q"), name="alone").run(Interpreter.here())
    spread = round_of(project, ("pytest", "-q", "-p", "xdist", "-n", "2"), name="spread").run(Interpreter.here())
    assert outcomes(spread) == outcomes(alone)
    by_test = [{row.test: row.failure for row in result.tests if row.outcome != "died"} for result in (alone, spread)]
    assert by_test[0] == by_test[1]


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


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_fifty_thousand_tests_have_an_outcome_each_although_one_kills_pytest(project):
    write(
        project,
        "import os, pytest, signal\n"
        "@pytest.mark.parametrize('number', range(50_000))\n"
        "def test_it(number):\n"
        "    assert number % 100\n"
        "    if number == 30_001: os.kill(os.getpid(), signal.SIGKILL)\n",
    )
    result = round_of(project, ("pytest", "-q", "--tb=no"), timeout=600).run(Interpreter.here())
    assert (result.planned, len(result.tests), result.deaths) == (50_001, 50_001, 1)
    counts = collections.Counter(row.outcome for row in result.tests)
    assert counts == {"passed": 49_500, "failed": 500, "died": 1}


# a full disk, for real: a small file system of the test's own


FULL = """
mount -t tmpfs -o size=256k tmpfs "$1" || exit 99
shift
"$@" --state state -- python -m pytest -q; echo "first: $?" >&2
mount -o remount,size=64m "$PWD/state" || exit 98
"$@" --state state -- python -m pytest -q; echo "second: $?" >&2
"""


@pytest.mark.slow
def test_a_full_file_system_is_one_line_and_the_next_call_continues(project):
    write(
        project,
        "import pytest\n@pytest.mark.parametrize('n', range(3000))\n"
        "def test_it(n):\n    with open('ran', 'a') as file: file.write('x')\n",
    )
    (project / "state").mkdir()
    words = [sys.executable, "-m", "recapture", "upgrade", "--across", "here", "--runs", "1"]
    words += ["--write-baseline", "b.json"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", FULL, "sh", str(project / "state"), *words],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode in (98, 99) or "unshare" in done.stderr:
        pytest.skip("no file system can be mounted here")
    first, _, second = done.stderr.partition("first: ")
    assert "Traceback" not in done.stderr
    assert "no space left in " in first.splitlines()[-1]
    assert "finished tests are kept" in first.splitlines()[-1]
    assert second.splitlines()[0] == "3"
    assert "second: 0" in second
    assert len(json.loads((project / "b.json").read_text())["releases"]["here"]["tests"]) == 3001
    ran = len((project / "ran").read_text())
    assert 3000 <= ran <= 3010  # what had ended did not run again


# comparing


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


def test_a_file_that_the_baseline_cannot_import_is_told_with_its_reason(project, capsys):
    write(project, "import no_such_module\ndef test_a(): pass")
    words = ("upgrade", "--across", "here", "--runs", "1", "--write-baseline", "b.json")
    assert _run([*words, "--", sys.executable, "-m", "pytest", "-q"]) == 0
    out, err = capsys.readouterr()
    assert err.endswith("recapture: wrote b.json: the outcomes on here\n")
    assert out.startswith("1 file cannot be collected on here itself\n")
    assert "test_it.py: ModuleNotFoundError: No module named 'no_such_module'" in out


@pytest.mark.parametrize(
    ("baseline", "fact"),
    [("2.6.0", "raised in torch 2.6.0 → 2.9.1"), (BASELINE_FILE, "2.9.1, unless your code changed")],
)
def test_a_baseline_file_may_be_older_than_the_code(baseline, fact):
    group = Group(category="newly_failing", failure=failure("E", "x"), tests=("a",), cause="torch 2.6.0 → 2.9.1")
    place = Comparison(
        name="2.9.1", image="", pinned=True, against="2.6.0", planned=1, recorded=1, counts={}, groups=(group,)
    )
    report = UpgradeReport(
        command=("true",), baseline=baseline, fails_itself="", uncollected=(), places=(place,), flaky=()
    )
    lines = to_markdown(upgrade_document(report)).splitlines()
    assert [line for line in lines if line.endswith(fact)]


# the whole command, in environments of planted releases


@pytest.fixture
def planted(project, monkeypatch):
    releases = PlantedReleases(project.parent, ("2.6.0", "2.9.0", "2.9.1"))
    releases.use(monkeypatch)
    return releases


SUITE = """
import random, torch
def v(): return tuple(map(int, torch.__version__.split(".")))
def test_passes(): pass
def test_new_1(): assert v() < (2, 9, 1), "too new"
def test_new_2(): assert v() < (2, 9, 1), "too new"
def test_another_reason(): raise ValueError("old" if v() < (2, 9, 1) else "new")
def test_fixed(): assert v() > (2, 6, 0)
def test_always(): raise ValueError("x")
"""


def run(capsys, *words):
    status = _run(["upgrade", *words, "--", "pytest", "-q"])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_advice_repeats_the_options_that_say_how_the_command_runs():
    options = CommandOptions(requirements=(Path("r.txt"),), install="no", extras=("x",), index="https://i", timeout=9.5)
    words = ("--with", "r.txt", "--install", "no", "--extra", "x", "--index", "https://i", "--timeout", "9.5")
    assert options.repeated == words
    assert CommandOptions().repeated == ()


def test_what_is_new_is_told_from_what_was_there_and_grouped_by_cause(planted, project, capsys):
    write(project, SUITE)
    words = ("--across", "2.6.0,2.9.1", "--runs", "1", "--confirm", "1")
    status, out, _ = run(capsys, *words, "--json", "--junit", "junit.xml")
    assert status == 0
    old, new = json.loads(out)["places"]
    assert old["planned"] == old["recorded"] == new["planned"] == new["recorded"] == 7
    groups = [(group["category"], len(group["tests"])) for group in new["groups"]]
    assert groups == [("newly_failing", 2), ("failing_differently", 1), ("fixed", 1), ("still_failing", 1)]
    suite = ET.parse(project / "junit.xml").find("testsuite")
    assert (suite.get("tests"), suite.get("errors")) == ("14", "3")
    before = (project.parent / "uv.log").read_text()
    again = run(capsys, *words, "--json")
    assert again[1] == out
    assert (project.parent / "uv.log").read_text() == before  # nothing was made or run again
    _, text, _ = run(capsys, *words)
    assert text.startswith("3 tests worse on 2.9.1, 2 causes\n")
    assert "2 tests newly failing, one cause: AssertionError: too new" in text
    # What it says to type next searches between these two releases.
    advice = "to find it: recapture bisect --good 2.6.0 --bad 2.9.1 --test test_it.py::test_new_1 -- pytest -q"
    assert advice in text
    assert run(capsys, *words, "--fail-on", "new")[0] == 1
    markdown = run(capsys, *words, "--format", "markdown")[1]
    assert markdown.startswith("# 3 tests worse on 2.9.1")


@pytest.mark.slow
def test_an_environment_that_cannot_be_made_does_not_stop_the_others(planted, project, capsys, monkeypatch):
    write(project, "def test_it(): pass")
    monkeypatch.setenv("PLANTED_UV", "torch==2.9.0")
    status, out, _ = run(capsys, "--across", "2.6.0,2.9.0,2.9.1", "--runs", "1", "--json")
    assert status == 3
    places = {place["name"]: place for place in json.loads(out)["places"]}
    assert places["2.9.0"]["counts"] == {"environment": 2}
    assert places["2.9.0"]["planned"] == places["2.9.0"]["recorded"] == 2
    assert "torch==2.9.0 cannot be installed" in places["2.9.0"]["problem"]
    assert places["2.9.1"]["counts"] == {"passed": 2}
    monkeypatch.delenv("PLANTED_UV")
    status, out, _ = run(capsys, "--across", "2.6.0,2.9.0,2.9.1", "--runs", "1", "--json")
    assert (status, json.loads(out)["places"][1]["counts"]) == (0, {"passed": 2})


PLANTED_RUN = """
import sys
from pathlib import Path
from recapture.images import environments
from recapture.machine import pins
pins.docker_directory = lambda: Path({docker!r})
environments.EXPECTED_BYTES = environments.LAYER_BYTES = 1 << 20
from recapture.command.main import _run
sys.exit(_run(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_kill_while_an_environment_is_made_leaves_no_half_of_it(planted, project):
    write(project, "def test_it(): pass")
    gate = project.parent / "gate"
    gate.touch()
    words = ["upgrade", "--across", "2.6.0,2.9.1", "--runs", "1", "--json", "--", "pytest", "-q"]
    command = [sys.executable, "-c", PLANTED_RUN.format(docker=str(planted.docker)), *words]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PLANTED_GATE": str(gate)}
    with subprocess.Popen(command, cwd=project, env=environment, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 60
        while not Path(f"{gate}.reached").exists():
            assert time.monotonic() < until
            time.sleep(0.02)
        process.kill()
    gate.unlink()
    done = subprocess.run(command, cwd=project, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    places = {place["name"]: place["counts"] for place in json.loads(done.stdout)["places"]}
    assert places == {"2.6.0": {"passed": 2}, "2.9.1": {"passed": 2}}
    kept = [path.name for path in planted.root.iterdir() if path.is_dir()]
    assert not [name for name in kept if "partial" in name or "tmp" in name]


@pytest.mark.slow
def test_a_release_that_no_image_has_is_installed_and_said_to_be_unpinned(planted, project, capsys):
    write(project, "import torch\ndef test_it(): assert torch.__version__ != '2.16.0rc1'")
    status, out, _ = run(capsys, "--across", "2.9.1,2.16.0rc1", "--index", "file:///none", "--runs", "1", "--json")
    assert status == 0, out
    place = json.loads(out)["places"][1]
    assert (place["pinned"], [change["category"] for change in place["changes"]]) == (False, ["newly_failing"])


@pytest.mark.slow
def test_the_file_of_a_wheel_is_a_release_and_another_content_another_one(planted, project, capsys):
    """The second call finds another wheel under the same name, as a build folder has it."""
    write(project, "import torch\ndef test_it(): assert torch.__version__ != '2.16.0', 'planted'")
    wheel = project.parent / "torch-2.16.0-py3-none-any.whl"
    for version, status in (("2.16.0", 1), ("2.16.1", 0)):
        with zipfile.ZipFile(wheel, "w") as file:
            file.writestr("torch/__init__.py", f"__version__ = {version!r}\n")
        words = ("--across", f"2.9.1,{wheel}", "--runs", "1", "--confirm", "0", "--fail-on", "new")
        assert run(capsys, *words)[0] == status
    _, out, _ = run(capsys, *words)
    assert "torch-2.16.0-py3-none-any.whl (not pinned)" in " ".join(out.split())


@pytest.mark.slow
def test_a_baseline_has_the_same_bytes_each_time_and_fails_on_what_is_new(planted, project, capsys):
    write(project, SUITE)
    assert run(capsys, "--across", "2.6.0", "--runs", "1", "--write-baseline", "one.json")[0] == 0
    assert run(capsys, "--across", "2.6.0", "--runs", "1", "--again", "--write-baseline", "two.json")[0] == 0
    _, _, told = run(capsys, "--across", "2.6.0,2.9.1", "--runs", "1", "--write-baseline", "both.json")
    assert (
        "wrote both.json: the outcomes on 2.6.0, 2.9.1; a comparison with it accepts what is worse: 3 on 2.9.1" in told
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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--across", "2.6.0,2.9.1"), "name the command after two dashes"),
        (("--across", "2.6.0,2.9.1", "pytest", "tests/"), "a command stands after two dashes: -- COMMAND"),
        (("--across", "2.6.0", "--", "true"), "--across needs two releases to compare"),
        (("--across", "2.66,2.6.0", "--", "true"), "no image has torch '2.66'"),
        (("--across", "2.16.0rc1,2.6.0", "--", "true"), "for another torch, name an index that has it with --index"),
        (("--across", "no.whl,2.6.0", "--", "true"), "no file no.whl"),
        (("--across", "2.6.0,2.9.1", "--with", "none.txt", "--", "true"), "--with: cannot read "),
        (("--across", "2.6.0", "--write-baseline", "no/x.json", "--", "true"), "cannot write no/x.json: "),
        (("--across", "2.6.0,2.9.1", "--junit", "/proc/x.xml", "--", "true"), "cannot write /proc/x.xml: "),
        (("--across", "2.6.0,2.9.1", "--install", "wheel", "--", "true"), "no pyproject.toml with a project"),
        (("--across", "2.6.0", "--baseline", "none.json", "--", "true"), "cannot read none.json"),
        (("--across", "2.6.0", "--baseline", "bad.json", "--", "true"), "the outcome 'faild', which does not exist"),
    ],
)
def test_bad_input_is_one_line(planted, project, capsys, words, message):
    document = {"schema": 1, "command": [], "releases": {"2.6.0": {"tests": {"t": "faild"}}}}
    (project / "bad.json").write_text(json.dumps(document))
    assert _run(["upgrade", *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_a_terminated_command_leaves_no_process(project):
    write(
        project, "import os, time\ndef test_it():\n    open('pid', 'w').write(str(os.getpid()))\n    time.sleep(1000)\n"
    )
    words = ["upgrade", "--across", "here", "--runs", "1", "--write-baseline", "b.json"]
    command = [sys.executable, "-m", "recapture", *words, "--", sys.executable, "-m", "pytest", "-q"]
    with subprocess.Popen(
        command, cwd=project, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, stderr=subprocess.PIPE
    ) as process:
        until = time.monotonic() + 60
        while not (project / "pid").exists() or not (project / "pid").read_text():
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 143
    assert b"Traceback" not in err
    until = time.monotonic() + 10
    while is_alive(int((project / "pid").read_text())):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_two_calls_for_one_command_do_not_write_to_one_folder(project, capsys):
    (project / "precious").mkdir()
    (project / "precious" / "run-1").mkdir()
    words = ["upgrade", "--across", "here", "--state", ".", "--again", "--write-baseline", "b.json", "--", "true"]
    with locked(project / ".lock", wait=False):
        assert _run(words) == 2
    assert f"another run is writing to {project}" in capsys.readouterr().err
    assert _run(words) == 0
    assert (project / "precious" / "run-1").is_dir()  # nothing that is not a finished run is removed


def is_alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# what torch compiles in the command's processes


COMPILED = """
import torch
def helper(x):
    torch._dynamo.graph_break()
    return x + 1
@torch.compile(backend="eager", dynamic=False)
def call(x):
    return helper(x * 2)
def test_it():
    for size in SIZES:
        call(torch.ones(size))
"""


def counted(project, program, *count):
    """The counts of a program that runs in this Python."""
    write(project, program, "program.py")
    words = [sys.executable, "program.py"]
    round_ = Round(folder=project.parent / "counted", words=words, root=project, timeout=60.0, key="k", count=count)
    return round_.run(Interpreter.here()).counts


def test_graphs_breaks_and_recompiles_are_counted_by_function(project):
    program = COMPILED.replace("SIZES", "(2, 3, 4)") + "\ntest_it()\n"
    counts = counted(project, program, "compiled")
    assert (counts.graphs >= 3, counts.breaks, counts.recompiles) == (True, 1, 4)
    assert {name: (row.breaks, row.recompiles) for name, row in counts.frames.items()} == {
        "program.py:call": (0, 2),
        "program.py:helper": (1, 2),
    }


def test_what_is_saved_for_backward_is_counted_once_and_without_parameters(project):
    program = (
        "import torch\n"
        "weight = torch.ones(1000, requires_grad=True)\n"
        "for _ in range(3):\n"
        "    middle = weight * 2\n"
        "    (middle.exp() + middle.sin()).sum().backward()\n"
    )
    counts = counted(project, program, "saved")
    assert counts.saved == 8000  # the argument of the sine, and the result of exp
    assert counts.graphs == 0


def test_a_command_without_torch_has_no_counts_and_keeps_another_sitecustomize(project, monkeypatch):
    other = project.parent / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import builtins\nbuiltins.planted = 43\n")
    monkeypatch.setenv("PYTHONPATH", str(other))
    counts = counted(project, "open('seen', 'w').write(str(planted))", "compiled", "saved", "instructions")
    assert (project / "seen").read_text() == "43"
    assert (counts.graphs, counts.breaks, counts.saved, counts.instructions) == (None, None, None, None)


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


def test_a_function_that_counts_otherwise_each_time_is_left_out():
    one, two = FrameCounts(breaks=1), FrameCounts(breaks=2)
    assert [
        change.frame for change in frame_changes([{"f": one, "g": one}, {"f": one, "g": two}], {"f": two, "g": two})
    ] == ["f"]
    assert frame_changes([{"f": one}, None], {"f": two}) == []
    assert frame_changes([{"f": one}], None) == []
    (fewer,) = frame_changes([{"f": two}], {})
    assert (fewer.worse, fewer.sentence) == (False, "f: 2 breaks, 0 recompiles → 0 breaks, 0 recompiles")


def test_the_names_that_the_counting_module_uses_are_the_same():
    assert (rounds.COUNTS_VARIABLE, rounds.COUNT_VARIABLE) == (process_counts.COUNTS, process_counts.COUNT)


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
