"""`upgrade`: a user's tests on several releases, in environments of planted ones, and what is new on each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from xml.etree import ElementTree as ET

import psutil
import pytest
from planted_upgrades import REPOSITORY, SUITE, run, write

from recapture.base.locks import locked
from recapture.command.main import _run
from recapture.tools.upgrade.command_options import CommandOptions


def test_the_advice_repeats_the_options_that_say_how_the_command_runs():
    options = CommandOptions(requirements=(Path("r.txt"),), install="no", extras=("x",), index="https://i", timeout=9.5)
    words = ("--with", "r.txt", "--install", "no", "--extra", "x", "--index", "https://i", "--timeout", "9.5")
    assert options.repeated == words
    assert CommandOptions().repeated == ()


def test_what_is_new_is_told_from_what_was_there_and_grouped_by_cause(planted_releases, project, capsys):
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
def test_an_environment_that_cannot_be_made_does_not_stop_the_others(planted_releases, project, capsys, monkeypatch):
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
def test_a_kill_while_an_environment_is_made_leaves_no_half_of_it(planted_releases, project):
    write(project, "def test_it(): pass")
    gate = project.parent / "gate"
    gate.touch()
    words = ["upgrade", "--across", "2.6.0,2.9.1", "--runs", "1", "--json", "--", "pytest", "-q"]
    command = [sys.executable, "-c", PLANTED_RUN.format(docker=str(planted_releases.docker)), *words]
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
    folders = [path.name for path in planted_releases.root.iterdir() if path.is_dir()]
    assert not [name for name in folders if "partial" in name or "tmp" in name]


@pytest.mark.slow
def test_a_release_that_no_image_has_is_installed_and_said_to_be_unpinned(planted_releases, project, capsys):
    write(project, "import torch\ndef test_it(): assert torch.__version__ != '2.16.0rc1'")
    status, out, _ = run(capsys, "--across", "2.9.1,2.16.0rc1", "--index", "file:///none", "--runs", "1", "--json")
    assert status == 0, out
    place = json.loads(out)["places"][1]
    assert (place["pinned"], [change["category"] for change in place["changes"]]) == (False, ["newly_failing"])


@pytest.mark.slow
def test_the_file_of_a_wheel_is_a_release_and_another_content_another_one(planted_releases, project, capsys):
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


def test_a_test_that_is_collected_at_random_is_not_blamed(planted_releases, project, capsys):
    write(
        project,
        "import os, torch\n"
        "def test_always(): pass\n"
        "if torch.__version__ != '2.9.1' or os.path.exists('ran'):\n    def test_sometimes(): pass\n"
        "if torch.__version__ != '2.9.1':\n    def test_lost(): pass\n"
        "else:\n    open('ran', 'w').close()\n",
    )
    status, out, _ = run(capsys, "--across", "2.9.0,2.9.1", "--runs", "2", "--confirm", "1", "--json")
    report = json.loads(out)
    assert status == 0
    changes = {change["test"]: change["category"] for change in report["places"][1]["changes"]}
    assert changes == {"test_it.py::test_sometimes": "flaky", "test_it.py::test_lost": "not_collected"}


def test_tests_that_did_not_run_are_told_in_the_first_line(planted_releases, project, capsys):
    write(
        project,
        "import torch\ndef pytest_collection_modifyitems(items):\n"
        "    if torch.__version__ == '2.9.1': items.reverse()\n",
        "conftest.py",
    )
    write(project, "def test_a(): pass\ndef test_b(): pass\ndef test_c(): assert False\n")
    words = ["upgrade", "--across", "2.9.0,2.9.1", "--runs", "1"]
    command = ["--", "pytest", "-q", "-x"]
    assert _run([*words, *command]) == 0
    assert capsys.readouterr().out.startswith("nothing is worse on 2.9.1; 2 tests did not run on 2.9.1\n")
    assert _run([*words, "--fail-on", "new", *command]) == 3  # a gate that knows nothing does not pass


def test_pytest_of_another_environment_is_refused(planted_releases, project, capsys):
    """As `uv run pytest` would be, whose torch is that of the project and not of the release."""
    write(project, "def test_a(): pass")
    words = ["upgrade", "--across", "2.9.0,2.9.1", "--", sys.executable, "-m", "pytest"]
    for _ in range(2):
        assert _run(words) == 2
        err = capsys.readouterr().err.splitlines()[-1]
        assert err.startswith(f"recapture: pytest ran in {sys.prefix} and not in the environment of the release: ")


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
def test_bad_input_is_one_line(planted_releases, project, capsys, words, message):
    document = {"schema": 1, "command": [], "releases": {"2.6.0": {"tests": {"t": "faild"}}}}
    (project / "bad.json").write_text(json.dumps(document))
    assert _run(["upgrade", *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def is_alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


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


KILLED_EARLY = """
import os, sys, time
from recapture.command.main import _run
from recapture.tools.upgrade import started
option = started.set_process_option
def slow(*words):
    open("forked", "w").close()
    while not os.path.exists("killed"): time.sleep(0.01)
    option(*words)
started.set_process_option = slow
_run(["upgrade", "--across", "here", "--runs", "1", "--write-baseline", "b.json", "--", "touch", "began"])
"""


def test_a_kill_while_the_command_starts_leaves_no_process(project):
    """The kernel ends a command with its parent only once the command has asked for it."""
    with subprocess.Popen(
        [sys.executable, "-c", KILLED_EARLY], cwd=project, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}
    ) as process:
        until = time.monotonic() + 60
        while not (project / "forked").exists():
            assert time.monotonic() < until
            time.sleep(0.02)
        (child,) = psutil.Process(process.pid).children()
        process.kill()
    (project / "killed").touch()
    until = time.monotonic() + 10
    while is_alive(child.pid):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert not (project / "began").exists()


def test_two_calls_for_one_command_do_not_write_to_one_folder(project, capsys):
    (project / "precious").mkdir()
    (project / "precious" / "run-1").mkdir()
    words = ["upgrade", "--across", "here", "--state", ".", "--again", "--write-baseline", "b.json", "--", "true"]
    with locked(project / ".lock", wait=False):
        assert _run(words) == 2
    assert f"another run is writing to {project}" in capsys.readouterr().err
    assert _run(words) == 0
    assert (project / "precious" / "run-1").is_dir()  # nothing that is not a finished run is removed
