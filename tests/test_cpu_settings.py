"""Fixed cores and an allocator that keeps freed memory: which cores are chosen, and that timings get steadier."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from recapture.tools.speed import cpu_settings
from recapture.tools.speed.cpu_settings import fix_cores, physical_cores

REPOSITORY = Path(__file__).parents[1]


def machine(folder, siblings, nodes):
    """A folder of the kernel's: for each CPU, the list of the CPUs that share its core, and its NUMA node."""
    for cpu, text in siblings.items():
        topology = folder / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{text}\n")
        if cpu in nodes:
            (folder / f"cpu{cpu}" / f"node{nodes[cpu]}").mkdir()
    return folder


def test_hardware_threads_of_one_core_count_once(tmp_path):
    cpus = machine(tmp_path, {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5"}, {})
    assert physical_cores({0, 1, 4, 5}, cpus) == [0, 1]
    assert physical_cores({4, 5, 1}, cpus) == [1, 4]


def test_cores_of_the_node_that_has_most_of_them_come_first(tmp_path):
    cpus = machine(tmp_path, {cpu: str(cpu) for cpu in range(5)}, {0: 0, 1: 0, 2: 1, 3: 1, 4: 1})
    assert physical_cores({0, 1, 2, 3, 4}, cpus) == [2, 3, 4, 0, 1]


@pytest.mark.parametrize("text", ["", "x", "0-", "0-1-2"])
def test_a_machine_that_does_not_report_its_cores_has_one_for_each_cpu(tmp_path, text):
    cpus = machine(tmp_path, {0: text, 1: text}, {})
    assert physical_cores({0, 1, 7}, cpus) == [0, 1, 7]


def test_more_threads_than_cores_are_left_to_the_kernel(monkeypatch):
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: pytest.fail("the cores were fixed"))
    assert not fix_cores(len(os.sched_getaffinity(0)) + 1)


def test_a_kernel_that_refuses_is_no_fault(monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    assert not fix_cores(1)


@pytest.mark.parametrize("name", cpu_settings.PRELOADED)
def test_a_preloaded_allocator_is_left_as_it_is(monkeypatch, name):
    monkeypatch.setenv("LD_PRELOAD", f"/lib/lib{name}.so")
    assert not cpu_settings.keep_freed_memory()
    assert cpu_settings.allocator_name() == name


TIMED = """
import json, os, resource, sys, time
from recapture.tools.speed.cpu_settings import allocator_name, fix_cores, keep_freed_memory
done = (fix_cores(1), keep_freed_memory()) if sys.argv[1] == "set" else (False, False)
import torch
torch.set_num_threads(1)
x = torch.randn(1 << 21)
def iterate():
    return ((x + 1) * 2).relu().sum()
for _ in range(20):
    iterate()
seconds = []
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(60):
    began = time.process_time_ns()
    iterate()
    seconds.append((time.process_time_ns() - began) / 1e9)
faults = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / len(seconds)
print(json.dumps([*done, allocator_name(), len(os.sched_getaffinity(0)), faults, sorted(seconds)[len(seconds) // 2]]))
"""


@pytest.mark.slow
def test_fixed_cores_and_kept_memory_make_processes_agree():
    """Six processes each way: without the settings, some return their memory in each iteration and some keep it."""
    measurements = {"set": [], "leave": []}
    for _ in range(6):
        for way, runs in measurements.items():
            done = subprocess.run(
                [sys.executable, "-c", textwrap.dedent(TIMED), way],
                env={**os.environ, "PYTHONPATH": str(REPOSITORY), "LD_PRELOAD": ""},
                capture_output=True,
                text=True,
                check=True,
            )
            runs.append(json.loads(done.stdout))
    assert all(row[:4] == [True, True, "libc, keeps freed memory", 1] for row in measurements["set"])
    assert all(row[:3] == [False, False, "libc"] for row in measurements["leave"])
    faults = {way: [row[4] for row in rows] for way, rows in measurements.items()}
    # Pages that an iteration gets from the kernel: 8 MiB are 2,048 pages. The heap may still grow once or twice.
    assert max(faults["set"]) < 100
    assert max(faults["leave"]) > 1000
    medians = {way: [row[5] for row in rows] for way, rows in measurements.items()}
    spreads = {way: statistics.stdev(map(float, values)) / statistics.mean(values) for way, values in medians.items()}
    assert spreads["set"] < spreads["leave"], medians
