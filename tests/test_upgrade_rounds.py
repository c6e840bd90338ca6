"""One round of `upgrade`: an outcome for each test, whatever kills, hangs or fills the disk, and what is counted."""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from planted_upgrades import COMPILED, REPOSITORY, write

from recapture.base.errors import EnvironmentUnfitError
from recapture.images.interpreter import Interpreter
from recapture.tools.upgrade import process_counts, pytest_outcomes, rounds
from recapture.tools.upgrade.outcomes import OutcomeFile
from recapture.tools.upgrade.rounds import Round


def round_of(project, words=("pytest", "-q"), *, timeout=60.0, only=None, name="round"):
    words = [sys.executable, "-m", *words] if words[0] == "pytest" else list(words)
    return Round(folder=project.parent / name, words=words, root=project, timeout=timeout, key="k", only=only)


def outcomes(result):
    return {row.test.removeprefix("test_it.py::"): row.outcome for row in result.tests}


def test_the_names_that_both_sides_of_the_file_use_are_the_same():
    assert rounds.OUTCOMES_VARIABLE == pytest_outcomes.OUTCOMES
    assert rounds.SELECT_VARIABLE == pytest_outcomes.SELECT
    assert rounds.CANNOT_WRITE == pytest_outcomes.CANNOT_WRITE
    assert rounds.PYTEST_OPTIONS == pytest_outcomes.OPTIONS


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


@pytest.mark.parametrize("option", ["-x", "--maxfail=1"])
def test_a_limit_in_the_settings_of_the_project_hides_no_test(project, option):
    write(project, f"[pytest]\naddopts = {option}\n", "pytest.ini")
    write(project, "def test_a(): assert False\ndef test_b(): pass")
    result = round_of(project).run(Interpreter.here())
    assert outcomes(result) == {"(the command)": "passed", "test_a": "failed", "test_b": "passed"}


PYTEST_IN_TESTS = """
import os, signal, subprocess, sys
pytest_plugins = "pytester"
def test_another_process(tmp_path):
    (tmp_path / "test_inner.py").write_text("def test_a(): pass")
    (tmp_path / "test_broken.py").write_text("import no_such_module")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""}, capture_output=True, text=True)
    assert "1 error" in done.stdout and done.returncode == 2, done.stdout + done.stderr
def test_this_process(pytester):
    pytester.makepyfile(test_inner="def test_b(): pass\\ndef test_c(): assert False")
    pytester.runpytest_inprocess().assert_outcomes(passed=1, failed=1)
def test_environment(): assert os.environ.get("PYTEST_ADDOPTS") == os.environ.get("PYTEST_PLUGINS") == ADDOPTS
def test_dies(): os.kill(os.getpid(), signal.SIGKILL)
def test_last(): pass
"""
"""Tests that run pytest, which must run there as without recapture."""


@pytest.mark.parametrize("own", ["", "-p pytester"])
def test_a_test_that_runs_pytest_itself_is_not_disturbed_and_disturbs_nothing(project, monkeypatch, own):
    monkeypatch.setenv("PYTEST_ADDOPTS", own)
    monkeypatch.setenv("PYTEST_PLUGINS", "")
    known = "os.environ.get('PYTEST_PLUGINS')" if not own else repr(own)
    write(project, PYTEST_IN_TESTS.replace('== os.environ.get("PYTEST_PLUGINS") == ADDOPTS', f"== {known}"))
    result = round_of(project).run(Interpreter.here())
    assert outcomes(result) == {
        "(the command)": "passed",
        "test_another_process": "passed",
        "test_this_process": "passed",
        "test_environment": "passed",
        "test_dies": "died",
        "test_last": "passed",
    }


def test_a_program_may_call_pytest_more_than_once(project):
    write(project, "import pytest\nfor name in 'ab': pytest.main(['-q', f'test_{name}.py'])\n", "program.py")
    for name in "ab":
        write(project, "def test_it(): pass", f"test_{name}.py")
    result = round_of(project, (sys.executable, "program.py")).run(Interpreter.here())
    assert outcomes(result) == {
        "(the command)": "passed",
        "test_a.py::test_it": "passed",
        "test_b.py::test_it": "passed",
    }


def test_a_test_that_closes_all_files_loses_no_outcome_and_gets_none_in_its_own(project):
    write(
        project,
        "import os\n"
        "def test_closes():\n"
        "    for name in os.listdir('/proc/self/fd'):\n"
        "        path = f'/proc/self/fd/{name}'\n"
        "        if os.path.exists(path) and os.readlink(path).endswith('outcomes.jsonl'):\n"
        "            os.close(int(name))\n"
        "            assert os.open('own', os.O_CREAT | os.O_WRONLY) == int(name)\n"
        "def test_last(): pass\n",
    )
    result = round_of(project).run(Interpreter.here())
    assert outcomes(result) == {"(the command)": "passed", "test_closes": "passed", "test_last": "passed"}
    assert (project / "own").read_bytes() == b""
    assert result.deaths == 0


ODD_IDS = r"""
import pytest
NAMES = ["a::b", "a\nb", "\x1b[31mred", "äß日本", "a b/c.py::d[e]", "\ud800", "", "x" * 5000, "\u2028", "\x00"]
@pytest.mark.parametrize("name", NAMES, ids=lambda name: name)
def test_id(name): print("\x1b]0;title\x07\x1b[2J\r\x00", name.encode(errors="replace"))
@pytest.mark.parametrize("name", NAMES)
def test_name(name): raise ValueError("\x1b[2J" + name)
"""
"""Tests with ids that have separators, line ends, controls and half a surrogate pair."""


@pytest.mark.parametrize("escaped", [True, False])
def test_odd_ids_are_kept_apart_and_run_alone(project, escaped):
    write(project, ODD_IDS)
    if not escaped:
        option = "disable_test_id_escaping_and_forfeit_all_rights_to_community_support"
        write(project, f"[pytest]\n{option} = true\n", "pytest.ini")
    result = round_of(project).run(Interpreter.here())
    assert result.planned == len(result.tests) == 21
    # Half a surrogate pair, which no environment variable can hold, is an error of pytest itself.
    usual = [row.outcome for row in result.tests if row.test != "(the command)" and "?" not in row.test]
    assert collections.Counter(usual) == ({"passed": 10, "failed": 10} if escaped else {"passed": 9, "failed": 9})
    assert rounds.NOT_RUN not in {row.outcome for row in result.tests}
    failing = [row.test for row in result.tests if row.fails]
    alone = round_of(project, only=failing, name="alone").run(Interpreter.here())
    assert [row.test for row in alone.tests if row.fails] == failing


def test_a_finished_round_is_read_and_one_of_other_code_begins_anew(project):
    write(project, "def test_it(): open('ran', 'a').write('x')")
    first = round_of(project)
    assert first.run(Interpreter.here()) == first.run(Interpreter.here()) == first.result()
    assert (project / "ran").read_text() == "x"
    other_round = Round(folder=first.folder, words=first.words, root=project, timeout=60.0, key="other")
    assert other_round.result() is None
    other_round.run(Interpreter.here())
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
        "    size = os.path.getsize('../round/outcomes.jsonl')\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, size + 5))\n"
        "def test_3(): pass\n",
    )
    round_ = round_of(project)
    with pytest.raises(EnvironmentUnfitError, match=r"no space left in .*; finished tests are kept"):
        round_.run(Interpreter.here())
    outcome_file = OutcomeFile(round_.folder / "outcomes.jsonl", project)
    outcome_file.update()
    assert set(outcome_file.tests) == {"test_it.py::test_1"}
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
    assert spread.prefix == alone.prefix == sys.prefix
    by_test = [{row.test: row.failure for row in result.tests if row.outcome != "died"} for result in (alone, spread)]
    assert by_test[0] == by_test[1]


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
    tests_run = len((project / "ran").read_text())
    assert 3000 <= tests_run <= 3010  # what had ended did not run again


# what torch compiles in the command's processes


def test_the_names_that_the_counting_module_uses_are_the_same():
    assert (rounds.COUNTS_VARIABLE, rounds.COUNT_VARIABLE) == (process_counts.COUNTS, process_counts.COUNT)


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
    other_folder = project.parent / "other"
    other_folder.mkdir()
    (other_folder / "sitecustomize.py").write_text("import builtins\nbuiltins.planted = 43\n")
    monkeypatch.setenv("PYTHONPATH", str(other_folder))
    counts = counted(project, "open('seen', 'w').write(str(planted))", "compiled", "saved", "instructions")
    assert (project / "seen").read_text() == "43"
    assert (counts.graphs, counts.breaks, counts.saved, counts.instructions) == (None, None, None, None)
