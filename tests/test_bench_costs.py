"""What configurations cost in counts, and that a doubling is found: in a process, and between two benchmarks."""

import gc
import json
import random
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from planted_bench import TINY, bench, only_speedups, row

from recapture.cases.workload import Workload
from recapture.command.main import main
from recapture.tools.compare.cell_changes import compare
from recapture.tools.compare.changes import matching_changes
from recapture.tools.compare.diff_report import to_markdown
from recapture.tools.speed import costs as costs_module
from recapture.tools.speed.cost_changes import cost_changes
from recapture.tools.speed.costs import CompileWork, saved_bytes
from recapture.tools.speed.speedups import Configuration, Costs, read_speedups, write_speedups
from recapture.tools.speed.subject import Subject
from recapture.torch_api.counts import code_size, count_compilation

H200 = Path(__file__).parents[1] / "results" / "bare-torch2.11.0-cu130" / "sm_90" / "speedups-nvidia-h200.json"
ON_FILE = read_speedups(H200)
ROW = next(row for row in ON_FILE.rows if row.measured is not None and not row.again)
COSTS = Costs(graphs=1, breaks=0, recompiles=0, kernels=30, saved=1 << 30, eager_saved=1 << 30, code=50_000)


class SavesTwice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.clone(), x.clone())
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].cos()


class SavesOnce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.clone())
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].cos()


def subject(function, rows, columns):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(columns))

        def forward(self, x):
            return function.apply(x * self.weight)

    planted = Workload("planted", Model, lambda: (torch.randn(rows, columns),), no_grad=False)
    return Subject(planted, Configuration("eager", "fp32"), "cpu")


def test_a_planted_doubling_of_what_is_saved_for_backward_is_found_20_of_20_times():
    sizes = random.Random(0)
    for _ in range(20):
        rows, columns = sizes.randint(1, 50), sizes.randint(1, 50)
        once, twice = saved_bytes(subject(SavesOnce, rows, columns)), saved_bytes(subject(SavesTwice, rows, columns))
        assert once == 4 * rows * columns  # neither the input nor the parameter, which `x * weight` saves
        assert twice == 2 * once
        before, after = (replace(ROW, costs=replace(COSTS, saved=saved)) for saved in (once, twice))
        [change] = cost_changes(before, after, device="cuda", same_processor=True)
        assert (change["cost"], change["category"]) == ("saved", "hungrier")
        assert cost_changes(before, before, device="cuda", same_processor=True) == []


def worked(amount):
    """Count the work of a planted compilation: a text that is compiled again and again."""
    gc.collect()
    gc.disable()  # a search through all objects of the tests' process would be counted as well
    try:
        work = CompileWork()
        for number in range(amount):
            compile(f"x = {number}\n" + "y = [a + 1 for a in range(3)]\n" * 400, "planted", "exec")
        work.stop()
    finally:
        gc.enable()
    return work


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_planted_doubling_of_the_work_of_compiling_is_found_each_time(times):
    for _ in range(times):
        once, twice = worked(30), worked(60)
        before, after = (
            replace(ROW, costs=replace(COSTS, compile_cpu=work.cpu, instructions=work.instructions))
            for work in (once, twice)
        )
        [change] = cost_changes(before, after, device="cuda", same_processor=True)
        assert change["category"] == "longer_to_compile"
        assert change["cost"] == ("compile_cpu" if once.instructions is None else "instructions")


def test_without_counters_instructions_are_unknown_and_not_zero(monkeypatch):
    monkeypatch.setattr(costs_module, "PERF_EVENT_OPEN", {})
    assert worked(1).instructions is None


def test_instructions_decide_where_both_sides_have_them_and_cpu_time_only_on_one_processor():
    def compared(old, new, **how):
        rows = [replace(ROW, costs=replace(COSTS, **side)) for side in (old, new)]
        return [change["cost"] for change in cost_changes(*rows, device="cuda", **how)]

    counted, slower = {"instructions": 10**10, "compile_cpu": 10.0}, {"instructions": 10**10, "compile_cpu": 20.0}
    assert compared(counted, slower, same_processor=True) == []
    uncounted = {**slower, "instructions": None}
    assert compared(counted, uncounted, same_processor=True) == ["compile_cpu"]
    assert compared(counted, uncounted, same_processor=False) == []


def test_comments_are_no_code():
    assert code_size("# kernel path: /tmp/x\n\nx = 1\n  // more\n  y = 2\n") == len("x = 1") + len("y = 2")


def test_what_is_no_compilation_generates_no_kernels():
    with count_compilation() as counts:
        torch.ones(2).sin()
    assert (counts.kernels, counts.code) in ((0, 0), (None, None))


@pytest.fixture
def two_releases(tmp_path):
    """Results of two releases: in the second, one configuration saves twice as much and compiles twice as long."""
    costlier = replace(COSTS, saved=2 << 30, compile_cpu=80.0, kernels=31)
    for version, costs in (("2.10.0", replace(COSTS, compile_cpu=40.0)), ("2.11.0", costlier)):
        packages = {**ON_FILE.environment.packages, "torch": version}
        torch_info = replace(ON_FILE.environment.torch, version=version)
        image = f"torch{version}-cu130"
        environment = replace(ON_FILE.environment, image=image, packages=packages, torch=torch_info)
        folder = tmp_path / image / "sm_90"
        folder.mkdir(parents=True)
        rows = (replace(ROW, costs=costs),)
        write_speedups(folder / H200.name, replace(ON_FILE, environment=environment, rows=rows, planned=1))
    return tmp_path


def test_diff_says_hungrier_and_longer_to_compile_and_fails_on_either(two_releases):
    changes = compare(two_releases / "torch2.10.0-cu130" / "sm_90", two_releases / "torch2.11.0-cu130" / "sm_90")
    text = " ".join(to_markdown(changes).split())
    assert "hungrier: 2.00 GiB saved for backward, 1.00 GiB before (2.00×)" in text
    assert "longer to compile: 80.0 s of CPU time for compiling, 40.0 s before (2.00×)" in text
    assert "1 hungrier, 1 longer to compile" in text
    assert "1 configuration with other graphs, kernels or code" in text
    assert matching_changes(changes, "hungrier") == matching_changes(changes, "longer-to-compile") == 1
    same = compare(two_releases / "torch2.10.0-cu130" / "sm_90", two_releases / "torch2.10.0-cu130" / "sm_90")
    assert matching_changes(same, "hungrier") == matching_changes(same, "longer-to-compile") == 0


@pytest.fixture
def counted_releases(two_releases):
    """The same, with costs alone in the second."""
    path = two_releases / "torch2.11.0-cu130" / "sm_90" / H200.name
    timed = read_speedups(path)
    rows = tuple(replace(row, measured=None, processes=(), warm=None, claims=()) for row in timed.rows)
    write_speedups(path, replace(timed, rows=rows))
    return two_releases


def test_costs_are_compared_where_one_side_was_not_timed(counted_releases, capsys):
    sides = [counted_releases / f"torch{release}-cu130" / "sm_90" for release in ("2.10.0", "2.11.0")]
    changes = compare(*sides)
    assert [change.category for change in changes.speeds] == ["counted"]
    text = " ".join(to_markdown(changes).split())
    assert "hungrier: 2.00 GiB saved for backward, 1.00 GiB before (2.00×)" in text
    assert history(ROW.workload, "--results", str(counted_releases)) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "not timed" in text
    assert "since 2.11.0, after 2.10.0: hungrier" in text


def test_a_release_that_was_only_counted_does_not_hide_a_change_of_speed(counted_releases, capsys):
    source = counted_releases / "torch2.10.0-cu130" / "sm_90" / H200.name
    timed = read_speedups(source)
    environment = replace(
        timed.environment, torch=replace(timed.environment.torch, version="2.12.0"), image="torch2.12.0"
    )
    folder = counted_releases / "torch2.12.0" / "sm_90"
    folder.mkdir(parents=True)
    write_speedups(folder / H200.name, replace(timed, environment=environment))
    assert history(ROW.workload, "--results", str(counted_releases), "--format", "json") == 0
    [steps] = [speed["steps"] for speed in json.loads(capsys.readouterr().out)["speeds"]]
    assert [(step["old"], step["new"], step["category"] == "counted", bool(step["costs"])) for step in steps] == [
        ("torch2.10.0-cu130", "torch2.11.0-cu130", True, True),
        ("torch2.11.0-cu130", "torch2.12.0", True, True),
        ("torch2.10.0-cu130", "torch2.12.0", False, False),
    ]


def test_costs_are_counted_without_timing(tmp_path, capsys):
    words = (TINY, "tiny_train::jit.trace", "tiny_train::eager", "tiny_eval::wrong-later", "--threads", "1")
    assert bench(*words, "--results", str(tmp_path), "--costs") == 0
    found = only_speedups(tmp_path)
    assert [(str(row.configuration), str(row.verdict), row.counted) for row in found.rows] == [
        ("wrong-later fp32", "wrong", False),
        ("eager fp32", "pass", True),
        ("jit.trace fp32", "pass", True),
    ]
    assert all(row.processes == () and row.warm is None for row in found.rows)
    assert row(found, "tiny_train", "jit.trace").costs.saved > 0
    assert row(found, "tiny_train", "eager").costs.compile_cpu is None
    assert "saved for backward" in capsys.readouterr().out


@pytest.mark.parametrize("other", [("--quick",), ("--profile",), ("--processes", "3")])
def test_costs_and_what_times_exclude_each_other(other, capsys):
    assert bench(TINY, "--costs", *other) == 2
    assert f"--costs times nothing: it cannot be combined with {other[0]}" in capsys.readouterr().err


def history(*arguments):
    with pytest.raises(SystemExit) as left:
        main(["history", *arguments])
    return left.value.code


def test_history_says_since_which_release_a_workload_is_hungrier_and_longer_to_compile(two_releases, capsys):
    address = f"{ROW.workload}::{ROW.configuration.compiler}"
    assert history(address, "--results", str(two_releases)) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "since 2.11.0, after 2.10.0: hungrier: 2.00 GiB saved for backward, 1.00 GiB before (2.00×)" in text
    assert "since 2.11.0, after 2.10.0: longer to compile" in text
    assert history(address, "--results", str(two_releases), "--format", "json") == 0
    [steps] = [speed["steps"] for speed in json.loads(capsys.readouterr().out)["speeds"]]
    assert [cost["category"] for cost in steps[0]["costs"]] == ["hungrier", "longer_to_compile", "differs"]
    assert history(ROW.workload, "--results", str(two_releases), "--format", "markdown") == 0


def test_history_of_a_compiler_that_was_not_measured_is_bad_input(two_releases, capsys):
    assert history(f"{ROW.workload}::fx", "--results", str(two_releases)) == 2
    assert f"{ROW.workload} was not measured with fx" in capsys.readouterr().err
