"""A matrix on a real Slurm: what dies in it costs time and no record. `.ci/run slurm` installs Slurm and runs these."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from planted_checkout import CASES, PlantedCheckout
from slurm_cluster import Cluster, installed

pytestmark = [
    pytest.mark.timeout(2400),
    pytest.mark.slurm,
    pytest.mark.skipif(not installed(), reason="Slurm is not installed: .ci/slurm installs it"),
]

SELECTION = ("planted", "--compiler", "eager", "--compiler", "fx", "--jobs", "2")
FILES = ("conformance.jsonl", "conformance.md", "environment.json", "output.jsonl")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A checkout whose two images ran on this one machine, into the folder ``one``."""
    planted = PlantedCheckout(tmp_path_factory.mktemp("checkout") / "here")
    done = planted.run("matrix", "--image", "a,b", "--results", "one", *SELECTION)
    assert done.returncode == 0, done.stderr
    return planted


@pytest.fixture
def cluster():
    started = Cluster()
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture
def hurried(cluster):
    """The cluster, where requeued jobs do not wait."""
    ended = threading.Event()

    def hurry():
        while not ended.wait(1.0):
            cluster.hurry()

    thread = threading.Thread(target=hurry)
    thread.start()
    yield cluster
    ended.set()
    thread.join()


def submit(checkout, cluster, name, *options):
    """Start ``recapture matrix --via slurm``; its output goes to files, because it may be killed."""
    arguments = ("matrix", "--via", "slurm", "--folder", f"{name}.work", "--results", name, "--minutes", "10", *options)
    words = (*SELECTION, "--sbatch=--cpus-per-task=2")
    variables = {key: cluster.variables[key] for key in ("SLURM_CONF",)}
    variables["PATH"] = os.pathsep.join([checkout.variables["PATH"], "/usr/sbin:/sbin"])
    return checkout.start(*arguments, *words, **variables)


def attempts(checkout, name, index):
    """The folders that attempts at a task write to, or have left."""
    tasks = json.loads((checkout.root / f"{name}.work" / "plan.json").read_bytes())["tasks"]
    return sorted((checkout.root / f"{name}.work" / "cpu" / "attempts").glob(f"{tasks[index]['name']}.*"))


def running(cluster, checkout, name, number):
    """Whether so many tasks run a cell, which waits at the gate."""
    began = [
        index
        for index in cluster.jobs("running")
        for path in attempts(checkout, name, index)
        if list(path.glob("*/*/conformance.partial.jsonl"))
    ]
    return len(set(began)) >= number


def assert_same_results(checkout, name, image):
    expected_folder, folder_of_run = (checkout.root / folder / image / "cpu" for folder in ("one", name))
    for file in FILES:
        assert (folder_of_run / file).read_bytes() == (expected_folder / file).read_bytes(), (image, file)
    assert sorted(path.name for path in folder_of_run.iterdir()) == sorted(
        path.name for path in expected_folder.iterdir()
    )
    assert len((folder_of_run / FILES[0]).read_bytes().splitlines()) == 2 * CASES


def main_process(cluster, index):
    """The process of ``recapture run`` in a task: the child of the script that Slurm started."""
    for pid in cluster.processes(index):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
            script = Path(f"/proc/{parent}/cmdline").read_bytes()
        except OSError:
            continue
        if b"--publish" in words and b"slurm_script" in script:
            return pid
    raise AssertionError(cluster("squeue", "-r"))


def test_whatever_dies_the_merged_results_are_those_of_one_machine(checkout, hurried):
    checkout.gate.touch()
    name, options = "disturbed", ("--image", "a,b", "--shards", "2")
    submitter = submit(checkout, hurried, name, *options)
    try:
        hurried.until(lambda: running(hurried, checkout, name, 4), 900)
        where = hurried.nodes_of()
        assert sorted(where) == [0, 1, 2, 3]
        assert set(where.values()) == {"cpu", "gpu"}
        stays = [index for index, node in where.items() if node == "gpu"]
        os.kill(main_process(hurried, stays[0]), signal.SIGKILL)
        submitter.kill()
        hurried("scancel", hurried.jobs()[stays[1]])
        hurried("scontrol", "update", "nodename=cpu", "state=down", "reason=planted")
        hurried.until(lambda: all(len(attempts(checkout, name, index)) > 0 for index in where))
        hurried.until(lambda: stays[1] not in hurried.jobs())
    finally:
        checkout.gate.unlink()
        submitter.kill()
        submitter.communicate()
    with submit(checkout, hurried, name, *options) as again:
        _, err = again.communicate(timeout=1500)
    assert again.returncode == 0, err
    for image in ("a", "b"):
        assert_same_results(checkout, name, image)
    tasks = json.loads((checkout.root / f"{name}.work" / "plan.json").read_bytes())["tasks"]
    ends = {
        index: json.loads((checkout.root / f"{name}.work/cpu/shards/{tasks[index]['name']}/attempt.json").read_bytes())
        for index in where
    }
    assert {end["status"] for end in ends.values()} == {0}
    for index in where:  # what the first attempt at each did is still there
        assert attempts(checkout, name, index), err
    assert json.loads((attempts(checkout, name, stays[1])[0] / "attempt.json").read_bytes())["status"] == 143
    assert json.loads((attempts(checkout, name, stays[0])[0] / "attempt.json").read_bytes())["status"] is None


def test_a_cancelled_shard_is_missing_and_named_and_runs_when_the_matrix_is_run_again(checkout, hurried):
    checkout.gate.touch()
    name, options = "cancelled", ("--image", "a", "--shards", "2")
    with submit(checkout, hurried, name, *options) as submitter:
        try:
            hurried.until(lambda: running(hurried, checkout, name, 2), 900)
            hurried("scancel", hurried.jobs()[1])
            hurried.until(lambda: 1 not in hurried.jobs())
        finally:
            checkout.gate.unlink()
        _, err = submitter.communicate(timeout=900)
    assert submitter.returncode == 3, err
    assert "missing: shard a.cpu.2-of-2: " in err
    assert "ended with exit status 143 on " in err or "was told to end" in err
    assert "a/cpu: shard 2/2 lacks " in err
    assert not (checkout.root / name).exists()
    (left,) = attempts(checkout, name, 1)
    assert list(left.glob("*/*/conformance.partial.jsonl")), "SIGTERM closes a run as Ctrl-C does: it can be resumed"
    with submit(checkout, hurried, name, *options) as again:
        _, err = again.communicate(timeout=900)
    assert again.returncode == 0, err
    assert "1 shard submitted" in err
    assert_same_results(checkout, name, "a")


def test_a_type_of_gpu_goes_to_its_node_and_one_that_nobody_has_is_refused(checkout, cluster, tmp_path):
    for by in ("gres", "constraint"):
        folder = tmp_path / by
        done = checkout.run(
            *("plan", "--format", "slurm", "--folder", folder, "--image", "a", "--device", "cuda", "--gpu", "a100"),
            *("--gpu-by", by, "--minutes", "5", "planted"),
        )
        assert done.returncode == 0, done.stderr
        words = shlex.split(done.stdout)
        script = Path(next(word for word in words if word.endswith("/shard.sbatch")))
        assert script.read_bytes() == (checkout.root / "examples" / "fleet" / "shard.sbatch").read_bytes()
        where = folder / "where.sbatch"
        where.write_text('#!/bin/bash\necho "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"\n')
        words[words.index(str(script))] = str(where)
        job = cluster(*words).strip()
        log = folder / "logs" / f"{job}_0.log"
        cluster.until(lambda log=log: log.is_file() and log.read_text().strip())
        assert log.read_text().split() == ["gpu", "0"]
        refused = subprocess.run(
            [word.replace("a100", "h100") for word in words],
            env=cluster.variables,
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert refused.returncode == 1
