"""The successor: a second server that gets ready beside the first, takes over, and is not missed where it fails."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from recapture.workbench import Workbench

COMPILERS = {"eager"}
"""They need nothing beyond torch, so that the successor is ready in seconds."""


@pytest.fixture
def bench():
    with Workbench(device="cpu", jobs=1) as bench:
        yield bench


def works(bench: Workbench) -> bool:
    return bench.client.run("canary", "cpu", float, timeout=60) == 4.0


def servers(home: str) -> set[int]:
    """Processes that belong to servers below a home: their environment names it."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"RECAPTURE_TASKS={home}/".encode() in (process / "environ").read_bytes():
                found.add(int(process.name))
        except OSError:
            continue
    return found


def test_the_successor_takes_over_and_the_first_server_goes(bench):
    first = bench.client.process.pid
    bench.raise_successor(["json"], COMPILERS)
    assert bench.client.process.pid == first
    assert works(bench)  # while the other gets ready
    bench.hand_over(["json"], COMPILERS)
    assert bench.client.process.pid != first
    assert works(bench)
    assert servers(bench.home.name) == {bench.client.process.pid}
    assert bench.modules == ["json"]


def test_a_successor_that_dies_is_not_missed(bench):
    first = bench.client.process.pid
    bench.raise_successor([], COMPILERS)
    os.kill(bench.successor.process.pid, signal.SIGKILL)
    bench.hand_over([], COMPILERS)
    assert bench.client.process.pid == first
    assert works(bench)
    assert servers(bench.home.name) == {first}


def test_without_a_successor_the_first_server_gets_ready_itself(bench):
    first = bench.client.process.pid
    bench.hand_over([], COMPILERS)
    assert bench.client.process.pid == first
    assert works(bench)


def test_a_server_that_dies_does_not_take_the_successor_with_it(bench):
    bench.raise_successor([], COMPILERS)
    successor = bench.successor.process.pid
    os.kill(bench.client.process.pid, signal.SIGKILL)
    bench.restart()
    assert works(bench)
    bench.hand_over([], COMPILERS)
    assert bench.client.process.pid == successor
    assert works(bench)


def test_a_module_that_kills_the_server_on_import_is_not_preloaded(tmp_path, monkeypatch):
    (tmp_path / "killer.py").write_text("import os\n\nos._exit(7)\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    with Workbench(device="cpu", jobs=1) as bench:
        bench.raise_successor(["killer"], COMPILERS)
        bench.make_fit(["killer"], COMPILERS)
        assert works(bench)
        bench.hand_over(["killer"], COMPILERS)
        assert bench.modules == []
        assert works(bench)


def test_leaving_does_not_wait_for_a_successor_that_is_not_ready():
    with Workbench(device="cpu", jobs=1) as bench:
        bench.raise_successor([], {"compile"})  # which takes ten seconds and more
        home, begin = bench.home.name, time.monotonic()
    assert time.monotonic() - begin < 5
    assert servers(home) == set()
    assert not Path(home).exists()


def test_servers_that_start_a_process_for_each_task_and_those_for_cuda_raise_none(bench):
    with Workbench(device="cpu", jobs=1, worker="fresh") as fresh:
        fresh.raise_successor([], COMPILERS)
        assert fresh.successor is None
    bench.device = "cuda"
    bench.raise_successor([], COMPILERS)
    assert bench.successor is None
