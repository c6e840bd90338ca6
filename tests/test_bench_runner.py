"""In which order the processes of a benchmark's rows run, and how rows end when their server dies."""

import dataclasses
import shutil
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from recapture.base.errors import EnvironmentUnfitError
from recapture.cases.workload_sources import ModelSpec, WorkloadInfo
from recapture.pool.client import ServerDiedError
from recapture.pool.driver import MOST_RESTARTS
from recapture.pool.protocol import Begun, Ended
from recapture.records.verdicts import Verdict
from recapture.tools.speed.benchmark import RowExecution
from recapture.tools.speed.earlier_benchmarks import hanging_last
from recapture.tools.speed.job import Compiled, Outcome
from recapture.tools.speed.report import render_speedups
from recapture.tools.speed.results_file import SpeedupsFile
from recapture.tools.speed.rows import PlannedRow
from recapture.tools.speed.selection import BenchOptions
from recapture.tools.speed.speedups import Conditions, Configuration, Costs, Reasons, Series, Start, read_speedups
from recapture.tools.speed.tasks import MEASURE

RESULTS = Path(__file__).resolve().parents[1] / "results"
ENVIRONMENT = read_speedups(RESULTS / "torch2.11.0-cu130" / "cpu" / "speedups-cpu.json").environment


@pytest.mark.parametrize(
    ("device", "order"), [("cuda", ["eager", "compile", "jit.trace"]), ("cpu", ["eager", "jit.trace", "compile"])]
)
def test_rows_that_hung_on_such_a_device_are_measured_last(tmp_path, device, order):
    info = WorkloadInfo(spec=ModelSpec(name="densenet121_eval", path="/x.py"), dtype="fp32", hash="h")
    rows = [
        PlannedRow(info, Configuration(name, "fp32", "contiguous", dynamic=False), "", compiles=False)
        for name in ("eager", "jit.trace", "compile")
    ]
    (tmp_path / "speedups-cpu.json").write_text("{}")  # cannot be read, which decides nothing
    ordered = hanging_last(rows, device, (tmp_path, RESULTS))
    assert [row.configuration.compiler for row in ordered] == order


class Client:
    """Ends every process well and at once, but for those that `fate` has something else for."""

    fork = True

    def __init__(self, fate=lambda _name, _timing: None):
        self.fate = fate
        self.running = {}
        self.submitted = []
        self.begun = []

    def submit(self, function, job, **limits):
        assert function == MEASURE
        assert limits["timed"]
        number = len(self.submitted)
        self.submitted.append((job.model.name, job.timing))
        self.running[number] = job
        self.begun.append(Begun(number))
        return number

    def last_words(self):
        return "no memory"

    def message(self, timeout):
        if self.begun:
            return self.begun.pop(0)
        number, job = next(iter(self.running.items()))
        fate = self.fate(job.model.name, job.timing)
        if fate is not None:
            self.running.clear()
            raise fate
        del self.running[number]
        start = Start(capture=0.0, calls=(1.0, 0.1, 0.1, 0.1))
        series = Series(iterations=1, seconds=(0.01, 0.011, 0.01, 0.012))
        outcome = Outcome(verdict=Verdict.PASS, start=start, eager_start=start)
        if job.timing:
            outcome = msgspec.structs.replace(outcome, series=(series, series), window=(0.0, 1.0), overhead=0.0)
        fields = {field.name: None for field in msgspec.structs.fields(Ended)}
        result = msgspec.json.encode(outcome)
        if not job.timing:
            Path(job.cache).mkdir(parents=True, exist_ok=True)
            Compiled(start=start, reasons=Reasons(), costs=Costs()).write(job.cache)
        known = {"id": number, "status": 0, "result": result, "stderr": "", "lost": False, "seconds": 2.0}
        return Ended(**{**fields, **known})


@pytest.fixture
def report_lines():
    """What an execution reports, as lines."""
    return []


@pytest.fixture
def execution(tmp_path, report_lines):
    """Make an execution of some workloads under `compile`, on a stand-in for the server."""

    def make_execution(names, client, **changed):
        options = BenchOptions(
            names=(), models=(), shapes=(), train=False, compilers=(), dtypes=(), layouts=(), dynamic=False, device="cpu",
            processes=2, seconds=1, timeout=60, memory=1 << 30, threads=1, compile_jobs=1, gpus=1, profile=False,
            worker="auto", resume=False, results=tmp_path,
        )  # fmt: skip
        options = dataclasses.replace(options, **changed)
        rows = [
            PlannedRow(
                WorkloadInfo(
                    spec=ModelSpec(name=name, path="/x.py"),
                    dtype="fp32",
                    hash="h",
                    claims={"compile": [("L1", ">=1.5", "2x")]},
                ),
                Configuration("compile", "fp32"),
                str(tmp_path / "cache" / name),
                identity="same",
                compiles=True,
            )
            for name in names
        ]
        pool: SimpleNamespace = SimpleNamespace(client=client, restart=lambda: pool.restarts.append(1), restarts=[])
        pool.end_left_over = lambda: None
        sampler = SimpleNamespace(conditions=lambda *_: Conditions())
        progress = SimpleNamespace(
            start=lambda _: None,
            doing=lambda _: None,
            finished=lambda row: report_lines.append(row.workload),
            begun=report_lines.append,
            phase=lambda text, _seconds, left: report_lines.append(f"{text}; {left}"),
        )
        path = tmp_path / "speedups-cpu.json"
        file = SpeedupsFile(path, ENVIRONMENT, {}, rows, resume=options.resume, keep_timed=options.costs)
        return RowExecution(pool, options, [], sampler, file, progress)

    return make_execution


def on_file(execution):
    return {row.workload: row for row in read_speedups(execution.file.path).rows}


def test_a_row_is_timed_right_after_it_has_compiled_so_that_an_interruption_loses_one(execution):
    def interrupted_at_the_second_row(name, timing):
        return KeyboardInterrupt() if (name, timing) == ("b", True) else None

    client = Client(interrupted_at_the_second_row)
    mine = execution(["a", "b", "c"], client)
    with pytest.raises(KeyboardInterrupt):
        mine.run()
    assert client.submitted == [("a", False), ("a", True), ("a", True), ("b", False), ("b", True)]
    assert on_file(mine)["a"].measured is not None
    report = mine.file.path.with_suffix(".md").read_text()
    assert report == render_speedups(read_speedups(mine.file.path))
    assert "**2 not finished**" in report


def test_costs_are_counted_in_one_process_for_each_row_and_nothing_is_timed(execution, report_lines):
    client = Client()
    counting = {"costs": True, "processes": 0}
    mine = execution(["a", "b"], client, **counting)
    mine.run()
    assert client.submitted == [("a", False), ("b", False)]
    assert report_lines[-2].endswith("nothing left")
    assert all(row.counted and row.cold is not None and row.claims == () for row in on_file(mine).values())
    report = mine.file.path.with_suffix(".md").read_text()
    assert "0 right and timed, 2 right and not timed, 0 wrong" in report


def test_counting_goes_on_after_an_interruption_and_leaves_rows_that_were_timed(execution):
    counting = {"costs": True, "processes": 0}
    execution(["a"], Client()).run()

    def interrupted(name, _timing):
        return KeyboardInterrupt() if name == "c" else None

    with pytest.raises(KeyboardInterrupt):
        execution(["a", "b", "c"], Client(interrupted), **counting).run()
    client = Client()
    mine = execution(["a", "b", "c"], client, resume=True, **counting)
    mine.run()
    assert client.submitted == [("c", False)]
    assert {name: row.counted for name, row in on_file(mine).items()} == {"a": False, "b": True, "c": True}


def test_as_many_rows_as_may_compile_at_a_time_go_together_so_that_the_first_figures_come_early(execution):
    client = Client()
    mine = execution(["a", "b", "c"], client, compile_jobs=2, processes=1)
    mine.run()
    assert client.submitted == [(name, timing) for names in ("ab", "c") for timing in (False, True) for name in names]
    assert all(row.measured is not None for row in on_file(mine).values())


@pytest.mark.parametrize("compile_jobs", [1, 4])
def test_what_ran_when_the_server_died_runs_again_alone_and_only_the_culprit_has_crashed(execution, compile_jobs):
    client = Client(lambda name, _timing: ServerDiedError() if name == "b" else None)
    mine = execution(["a", "b", "c", "d"], client, compile_jobs=compile_jobs)
    mine.run()
    rows = on_file(mine)
    assert {name: str(row.verdict) for name, row in rows.items()} == {
        "a": "pass",
        "b": "crash",
        "c": "pass",
        "d": "pass",
    }
    assert rows["b"].reason == "killed the worker server, twice"
    assert client.submitted.count(("b", False)) == 2


def test_a_server_that_died_once_leaves_no_trace(execution):
    deaths = [ServerDiedError()]
    mine = execution(["a", "b"], Client(lambda *_: deaths.pop() if deaths else None), compile_jobs=2)
    mine.run()
    assert [str(row.verdict) for row in on_file(mine).values()] == ["pass", "pass"]
    assert all(len(row.processes) == 2 for row in on_file(mine).values())


def test_a_server_found_dead_is_replaced_before_a_row_begins(execution):
    class Dead(Client):
        alive = False

        def submit(self, kind, job, **limits):
            if not self.submitted and self.alive is False:
                self.alive = True
                raise ServerDiedError
            return super().submit(kind, job, **limits)

    mine = execution(["a"], Dead())
    mine.run()
    assert on_file(mine)["a"].verdict is Verdict.PASS


def test_with_gpus_to_compile_on_suspects_run_again_when_nothing_else_does(execution):
    client = Client(lambda name, _timing: ServerDiedError() if name == "b" else None)
    mine = execution(["a", "b", "c"], client, gpus=2, compile_jobs=2)
    mine.run()
    assert {name: str(row.verdict) for name, row in on_file(mine).items()} == {"a": "pass", "b": "crash", "c": "pass"}


def test_a_server_that_keeps_dying_before_a_row_begins_ends_the_benchmark_and_blames_no_compiler(execution):
    class Dead(Client):
        def submit(self, kind, job, **limits):
            raise ServerDiedError

    mine = execution(["a", "b"], Dead())
    with pytest.raises(EnvironmentUnfitError, match="keeps dying before a task begins: no memory") as error:
        mine.run()
    assert error.value.exit_status == 3
    assert len(mine.driver.pool.restarts) == MOST_RESTARTS
    assert on_file(mine) == {}


PHASES = [(name, timing) for name in "ab" for timing in (False, True, True)]
"""The processes of two rows, each timed twice."""


@pytest.mark.parametrize("ended", range(len(PHASES)))
def test_a_benchmark_that_is_interrupted_in_any_process_repeats_none_that_had_ended(execution, ended):
    calls = []

    def interrupted(name, timing):
        calls.append((name, timing))
        return KeyboardInterrupt() if len(calls) > ended else None

    with pytest.raises(KeyboardInterrupt):
        execution(["a", "b"], Client(interrupted)).run()
    assert calls == PHASES[: ended + 1]
    resumed = execution(["a", "b"], client := Client(), resume=True)
    resumed.run()
    assert client.submitted == PHASES[ended:]
    assert all(len(row.processes) == 2 and row.measured for row in on_file(resumed).values())
    assert not list(resumed.file.path.parent.glob(".*phases*"))


def test_without_resume_every_process_runs_again_and_nothing_old_counts(execution, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        execution(["a"], Client(lambda _, timing: KeyboardInterrupt() if timing else None)).run()
    assert Compiled.read(tmp_path / "cache" / "a") is not None
    compiled = []
    client = Client(lambda _, timing: compiled.append(Compiled.read(tmp_path / "cache" / "a")) if not timing else None)
    execution(["a"], client).run()
    assert client.submitted == PHASES[:3]
    assert compiled == [None]


@pytest.mark.parametrize(
    "change",
    [lambda row: setattr(row, "identity", "edited"), lambda row: shutil.rmtree(row.cache)],
    ids=["the workload was edited", "its caches were removed"],
)
def test_a_process_of_something_else_or_without_its_caches_runs_again(execution, change):
    with pytest.raises(KeyboardInterrupt):
        execution(["a"], Client(lambda _, timing: KeyboardInterrupt() if timing else None)).run()
    resumed = execution(["a"], client := Client(), resume=True)
    change(resumed.file.rows[0])
    resumed.run()
    assert client.submitted == PHASES[:3]


def test_an_interruption_keeps_the_processes_of_rows_that_another_selection_resumes(execution):
    with pytest.raises(KeyboardInterrupt):
        execution(["a"], Client(lambda _, timing: KeyboardInterrupt() if timing else None)).run()
    execution(["b"], Client(), resume=True).run()
    execution(["a"], client := Client(), resume=True).run()
    assert client.submitted == PHASES[1:3]


def test_a_line_that_a_kill_left_incomplete_is_no_process(execution):
    with pytest.raises(KeyboardInterrupt):
        execution(["a"], Client(lambda _, timing: KeyboardInterrupt() if timing else None)).run()
    resumed = execution(["a"], client := Client(), resume=True)
    [path] = resumed.file.path.parent.glob(".*phases*")
    path.write_bytes(path.read_bytes()[:-40])
    resumed.run()
    assert client.submitted == PHASES[:3]


def test_every_process_has_a_line_when_it_starts_and_one_with_the_time_left_when_it_ends(execution, report_lines):
    execution(["a", "b"], Client()).run()
    compiling = "compiling a compile fp32 with empty caches, checking its values"
    assert report_lines[:7] == [
        compiling,
        f"{compiling}: pass; more than 2 s left: nothing like the other processes has run yet",
        "timing a compile fp32 (1/2)",
        "timing a compile fp32 (1/2): pass; about 8 s left",
        "timing a compile fp32 (2/2)",
        "timing a compile fp32 (2/2): pass; about 6 s left",
        "a",
    ]
    assert report_lines[-2:] == ["timing b compile fp32 (2/2): pass; nothing left", "b"]
