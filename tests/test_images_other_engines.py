"""Engines that stop during a run, and those of other machines. Nothing is simulated."""

import os
import re
import shutil
import tempfile

import pytest
from planted_engines import IMAGE, Engine, as_root, give_stand_in, hanging_run, images, line_after_the_run

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]


@pytest.fixture
def own_engine():
    if not shutil.which("dockerd"):
        pytest.fail("needs dockerd: .ci/engine installs it")
    folder = tempfile.mkdtemp(prefix="engine", dir="/tmp")  # a short path, for a socket's name is limited
    engine = Engine(folder)
    engine.start()
    yield engine
    engine.stop()
    shutil.rmtree(folder, ignore_errors=True)


@as_root
def test_an_engine_that_stops_during_a_run_loses_nothing_recorded(own_engine, tmp_path):
    give_stand_in(own_engine)
    with hanging_run(own_engine.local, tmp_path / "results") as process:
        own_engine.stop()
        assert process.wait(60) == 3
        assert process.stderr.read() == (
            f"recapture: the container engine stopped during the run; what was recorded is in {tmp_path / 'results'}\n"
        )
    record = tmp_path / "results" / "records"
    assert record.read_text(encoding="utf-8") == "recorded\n"
    assert record.stat().st_uid == os.getuid()
    own_engine.start()
    assert images("run", IMAGE.name, "--host", own_engine.local, "--results", tmp_path / "results").returncode == 0
    assert own_engine.docker("ps", "--all", "--quiet").stdout == b""


@as_root
def test_another_machines_engine_sends_the_results_back(own_engine, tmp_path):
    give_stand_in(own_engine)
    done = images("run", IMAGE.name, "--host", own_engine.remote, "--results", tmp_path / "results")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("started\n")
    record = tmp_path / "results" / "records"
    assert record.read_text(encoding="utf-8") == "recorded\n"
    assert record.stat().st_uid == os.getuid()
    assert own_engine.docker("ps", "--all", "--quiet").stdout == b""
    assert own_engine.docker("volume", "ls", "--quiet").stdout == b""


@as_root
def test_an_engine_behind_ssh_sends_the_results_back(own_engine, tmp_path):
    """The last word of an ssh command is what runs over there: an `ssh` that runs it here is as good as a machine."""
    give_stand_in(own_engine)
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/bash\necho "$@" >> {tmp_path}/asked\nDOCKER_HOST={own_engine.local} exec ${{@: -1}}\n')
    ssh.chmod(0o755)
    environment = {**os.environ, "PATH": f"{ssh.parent}{os.pathsep}{os.environ['PATH']}"}
    arguments = ("--host", "ssh://ann@gpu-machine", "--results", tmp_path / "results")
    done = images("run", IMAGE.name, *arguments, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("started\n")
    assert re.match(
        r"-l ann .*gpu-machine docker system dial-stdio\n", (tmp_path / "asked").read_text(encoding="utf-8")
    )
    assert (tmp_path / "results" / "records").read_text(encoding="utf-8") == "recorded\n"
    assert own_engine.docker("ps", "--all", "--quiet").stdout == b""


@as_root
def test_another_machines_deadline_still_brings_what_was_recorded(own_engine, tmp_path):
    give_stand_in(own_engine)
    arguments = ("hang", "--deadline", "3", "--host", own_engine.remote, "--results", tmp_path / "results")
    done = images("run", IMAGE.name, *arguments)
    assert done.returncode == 3
    assert "deadline of 3 s" in line_after_the_run(done)
    assert (tmp_path / "results" / "records").is_file()
    assert own_engine.docker("volume", "ls", "--quiet").stdout == b""


@as_root
def test_results_on_another_machine_whose_engine_stopped_come_with_the_next_run(own_engine, tmp_path):
    give_stand_in(own_engine)
    with hanging_run(own_engine.remote, tmp_path / "first") as process:
        own_engine.stop()
        assert process.wait(60) == 3
        assert "the next run brings it" in process.stderr.read()
    assert not list((tmp_path / "first").iterdir())
    own_engine.start()
    assert images("run", IMAGE.name, "--host", own_engine.remote, "--results", tmp_path / "second").returncode == 0
    assert (tmp_path / "first" / "records").read_text(encoding="utf-8") == "recorded\n"
    assert own_engine.docker("ps", "--all", "--quiet").stdout == b""


@as_root
def test_cases_and_earlier_results_reach_another_machine(own_engine, tmp_path):
    give_stand_in(own_engine)
    give_stand_in(own_engine, 'read line < "$2"; read old < /results/old; echo "$line $old" > /results/records\n')
    cases = tmp_path / "mine.py"
    cases.write_text("given\n", encoding="utf-8")
    results = tmp_path / "results"
    results.mkdir()
    (results / "old").write_text("before\n", encoding="utf-8")
    done = images("run", IMAGE.name, cases, "--resume", "--host", own_engine.remote, "--results", results)
    assert done.returncode == 0, done.stderr
    assert (results / "records").read_text(encoding="utf-8") == "given before\n"
