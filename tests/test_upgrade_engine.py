"""`upgrade --via docker` on a real engine: what it records, and that it leaves nothing behind but what tests write."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import wait_for
from planted_engines import BASE, CA, IMAGE, ROOT, containers, images, need_base

from recapture.base.errors import EnvironmentUnfitError
from recapture.images.engine import connect

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

PYPROJECT = """
[project]
name = "planted-project"
version = "1.0"
dependencies = ["torch", "more-itertools"]
[project.optional-dependencies]
test = ["pytest"]
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[tool.setuptools]
packages = ["planted_project"]
"""

TESTS = """
import os, pathlib, signal, socket, sys, time
import pytest
import torch
from planted_project import total

def test_uses_the_project_and_its_requirement(): assert total([torch.ones(3), torch.ones(2)]) == 5
def test_compiles(): assert torch.compile(lambda x: x * 2)(torch.ones(3)).sum() == 6
def test_fails(): assert total([torch.ones(3)]) == 4
@pytest.mark.skip
def test_skipped(): pass
def test_writes_a_file(): pathlib.Path("written").write_text("x")
"""

IN_A_CONTAINER = """
def test_is_fenced_in():
    assert [name for _, name in socket.if_nameindex()] == ["lo"]
    assert "CapEff:\\t0000000000000000" in pathlib.Path("/proc/self/status").read_text()
    assert os.getuid() == {uid} and "{home}" not in os.environ.values()
    with pytest.raises(OSError):
        pathlib.Path("/opt/recapture/written").write_text("")
def test_kills_its_parent():
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)
def test_kills_all_others():
    os.kill(-1, signal.SIGKILL)
    time.sleep(1000)
def test_hangs(): time.sleep(1000)
def test_forks_and_the_child_goes_on():
    if os.fork() == 0: return
def test_after_all(): pass
"""


@pytest.fixture(scope="module")
def client():
    try:
        with connect() as client:
            need_base(client)
            ca = ["--ca", CA] if Path(CA).is_file() else []
            done = images("build", IMAGE.name, "--base", BASE, "--network", "host", *ca)
            assert done.returncode == 0, done.stderr[-3000:]
            yield client
    except EnvironmentUnfitError as error:  # these tests were asked for by name: they must not be skipped
        pytest.fail(f"{error}; .ci/engine starts one")


@pytest.fixture
def project(tmp_path, client):
    folder = tmp_path / "a project, with a comma"
    (folder / "planted_project").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "planted_project" / "__init__.py").write_text(
        "import more_itertools\ndef total(tensors):\n    return sum(t.sum() for t in more_itertools.collapse([tensors]))\n"
    )
    (folder / "test_it.py").write_text(TESTS)
    return folder


def words(project, *more, via="docker", command=("pytest", "-q"), runs=1):
    state = project.parent / f"state-{via}"
    options = ["--across", "2.11.0", "--via", via, "--runs", str(runs), "--confirm", "0", "--state", str(state)]
    options += ["--json", "--write-baseline", str(project.parent / "baseline.json"), *more]
    return [sys.executable, "-m", "recapture", "upgrade", *options, "--", *command]


def upgrade(project, *more, **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        words(project, *more, **options), cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    report = json.loads(done.stdout) if done.stdout else None
    return done, report["places"][0] if report else None


def outcomes(project):
    """Return the outcome of each test that the baseline names, without the message of a failure."""
    text = (project.parent / "baseline.json").read_text()
    return json.loads(text)["releases"]["2.11.0"]["tests"]


def test_a_container_says_what_an_environment_says(client, project):
    done, place = upgrade(project)
    assert done.returncode == 0, done.stderr
    assert place["planned"] == place["recorded"] == 6
    assert place["counts"] == {"failed": 1, "passed": 4, "skipped": 1}
    in_container = outcomes(project)
    done, place = upgrade(project, via="venv")
    assert done.returncode == 0, done.stderr
    assert outcomes(project) == in_container


def test_a_test_that_kills_or_hangs_has_an_outcome_and_nothing_is_left_behind(client, project):
    home = str(Path.home())
    test = project / "test_it.py"
    test.write_text(test.read_text() + IN_A_CONTAINER.format(uid=os.getuid(), home=home))
    done, place = upgrade(project, "--timeout", "15")
    assert done.returncode == 0, done.stderr
    rows = {name.removeprefix("test_it.py::"): row.split()[0] for name, row in outcomes(project).items()}
    assert rows["test_is_fenced_in"] == rows["test_after_all"] == "passed", rows
    assert (rows["test_kills_its_parent"], rows["test_kills_all_others"], rows["test_hangs"]) == (
        "died",
        "died",
        "timeout",
    )
    assert place["planned"] == place["recorded"] == 12
    assert {path.lstat().st_uid for path in project.rglob("*")} == {os.getuid()}
    assert (project / "written").read_text() == "x"
    assert containers(client) == []


def test_a_kill_ends_the_container_and_the_next_call_continues(client, project):
    (project / "test_it.py").write_text(
        "import time\ndef test_a(): open('began_a', 'a').write('x')\n"
        "def test_b():\n    open('began_b', 'a').write('x')\n    time.sleep(60 if not __import__('os').path.exists('go') else 0)\n"
    )
    with subprocess.Popen(words(project), cwd=project, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        wait_for((project / "began_b").exists, seconds=300)
        process.send_signal(signal.SIGKILL)
    wait_for(lambda: not containers(client))
    (project / "go").touch()
    done, place = upgrade(project)
    assert done.returncode == 0, done.stderr
    assert place["counts"] == {"passed": 3}
    assert (project / "began_a").read_text() == "x"  # it did not run again


def test_a_finished_call_answers_at_once_and_without_the_engine(client, project, monkeypatch):
    (project / "test_it.py").write_text("def test_a(): open('ran', 'a').write('x')\n")
    first, place = upgrade(project)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{project}/nowhere")
    second, again = upgrade(project)
    assert first.returncode == second.returncode == 0, second.stderr
    assert place == again
    assert (project / "ran").read_text() == "x"
    (project / "test_it.py").write_text("def test_b(): pass\n")
    done, _ = upgrade(project)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith("recapture: no container engine answers")


def test_the_exit_status_of_the_engine_is_not_that_of_the_command(client, project):
    done, place = upgrade(project, command=("sh", "-c", "exit 125"))
    assert done.returncode == 2, done.stderr  # of such a command no baseline is written
    assert place["counts"] == {"failed": 1}
    engine = project.parent / "docker"
    engine.write_text("#!/bin/sh\necho 'docker: Error response from daemon: a planted reason.'\nexit 125\n")
    engine.chmod(0o755)
    path = os.pathsep.join([str(project.parent), os.environ["PATH"]])
    command = words(project, "--again", command=("true",))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    last = "recapture: the container did not start: docker: Error response from daemon: a planted reason."
    assert done.stderr.splitlines()[-1] == last


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--across", "here"), "--via docker is for releases that have an image, and here has none"),
        (("--keep", "1"), "--keep is for --via venv"),
    ],
)
def test_bad_input_is_one_line(project, more, message):
    done, _ = upgrade(project, *more)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"recapture: {message}"


def test_a_release_without_an_image_does_not_stop_the_others(client, project):
    assert shutil.which("docker")
    done, _ = upgrade(project, "--across", "2.11.0,2.0.1")
    assert done.returncode == 3
    assert "torch2.0.1-cu117 is not built: recapture images build torch2.0.1-cu117" in done.stdout
    assert len(outcomes(project)) == 6
