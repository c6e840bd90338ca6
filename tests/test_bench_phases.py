"""What an interrupted benchmark keeps: processes that have ended, and a compilation whose check had not ended."""

import os
import signal
from pathlib import Path

import pytest
from conftest import wait_for
from planted_bench import TINY

from recapture.cases.workload import DTYPES
from recapture.cases.workload_sources import collect_workloads
from recapture.tools.speed import job as jobs
from recapture.tools.speed.job import Compiled, Job, measure
from recapture.tools.speed.speedups import Configuration, read_speedups
from recapture.tools.speed.spent import COLD, WARM

SLOW = str(Path(TINY).with_name("slow.py"))


@pytest.fixture
def compiling(tmp_path, monkeypatch):
    """A process that compiles and checks, without timing, run in this one."""
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS"):
        monkeypatch.setenv(name, str(tmp_path / "unused") if name.endswith("DIR") else "1")
    [spec] = [
        info.spec for info in collect_workloads(jobs.ModelSpec(name="tiny", path=TINY)) if info.spec.name == "tiny_eval"
    ]
    job = Job(
        model=spec, configuration=Configuration("fx", DTYPES[0]), device="cpu", timing=False, seconds=0.1, seed=0,
        cache=str(tmp_path / "cache"), compile_threads=1, cpu_threads=1,
    )  # fmt: skip
    return lambda: measure(job, lambda _phase: None)


def test_a_check_that_was_interrupted_goes_on_with_what_was_compiled(compiling, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(jobs._Measurement, "gate", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        compiling()
    first = Compiled.read(str(tmp_path / "cache"))
    assert first is not None
    outcome = compiling()
    assert outcome.start == first.start
    assert WARM in outcome.spent
    assert COLD not in outcome.spent


def test_what_a_compilation_that_was_interrupted_left_is_removed(compiling, tmp_path):
    left = tmp_path / "cache" / "kernel.so"
    left.parent.mkdir()
    left.write_text("half of it")
    outcome = compiling()
    assert not left.exists()
    assert COLD in outcome.spent


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_benchmark_that_is_killed_in_each_process_in_turn_repeats_only_that_one(command, tmp_path, number):
    log, results = tmp_path / "log", tmp_path / "results"
    held = log.with_suffix(".wait")
    variables = {"RECAPTURE_TEST_LOG": str(log), "RECAPTURE_CACHE": str(tmp_path / "kept")}
    options = ("--compiler", "sleeps", "--processes", "2", "--seconds", "0.1", "--threads", "1", "--resume")
    arguments = ("bench", SLOW, *options, "--results", results)

    def started():
        return log.read_text().count("compiles") if log.exists() else 0

    held.touch()
    for killed in range(3):  # the one that compiles, and two that time
        before = started()
        with command.start(*arguments, **variables) as process:
            wait_for(lambda before=before: started() == before + 1, seconds=200)
            if killed:  # the process that was killed before runs to its end now; the next one is held
                held.touch()
                wait_for(lambda before=before: started() == before + 2, seconds=200)
            os.kill(process.pid, number)
            process.communicate(timeout=60)
        held.unlink()
    assert started() == 5
    ended = command(*arguments, **variables)
    assert ended.returncode == 0, ended.stderr
    assert started() == 6
    [path] = results.rglob("speedups-cpu.json")
    [row] = read_speedups(path).rows
    assert len(row.processes) == 2
    assert not list((tmp_path / "kept" / "bench").iterdir())
