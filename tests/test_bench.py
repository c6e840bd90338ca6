"""`recapture bench` from end to end, with very short workloads and compilers that fail in every way."""

import dataclasses
import json
import os
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import msgspec
import pytest
import torch
from planted_bench import QUICK, TINY, bench, only_speedups, row

from recapture.base.errors import UsageError
from recapture.cases.workload_sources import ModelSpec, WorkloadInfo, collect_workloads
from recapture.command.main import main
from recapture.machine.describe import variables
from recapture.machine.hardware import visible_gpus
from recapture.pool.protocol import Ended
from recapture.records.verdicts import Verdict
from recapture.run import preparation
from recapture.run.outcomes import OutcomeReader
from recapture.tools.speed import benchmark, job, probes
from recapture.tools.speed.correctness import Snapshot
from recapture.tools.speed.remarks import remarks
from recapture.tools.speed.report import render_speedups
from recapture.tools.speed.results_file import SpeedupsFile, set_aside_others
from recapture.tools.speed.rows import COMPILER_VARIABLES, PlannedRow, make_row
from recapture.tools.speed.selection import BenchOptions, modules_of, plan_rows, select
from recapture.tools.speed.speedups import SCHEMA_PATH, Configuration, read_speedups, shipped_schema, write_speedups


def test_every_configuration_has_a_row_with_its_verdict(measured):
    verdicts = {
        (measured_row.workload, measured_row.configuration.compiler): str(measured_row.verdict)
        for measured_row in measured.rows
    }
    assert verdicts == {
        ("tiny_eval", "eager"): "pass",
        ("tiny_eval", "jit.trace"): "pass",
        ("tiny_eval", "jit.trace:frozen"): "pass",
        ("tiny_eval", "fx"): "pass",
        ("tiny_eval", "slower"): "pass",
        ("tiny_eval", "slightly-wrong"): "wrong",
        ("tiny_eval", "wrong-later"): "wrong",
        ("tiny_eval", "raises"): "error",
        ("tiny_eval", "dies"): "crash",
        ("tiny_eval", "hangs"): "timeout",
        ("tiny_eval", "runs-out-of-memory"): "oom",
        ("tiny_train", "jit.trace"): "pass",
        ("tiny_train", "wrong-gradients"): "wrong",
        ("drops_out", "fx"): "unstable",
    }
    assert measured.planned == len(measured.rows)


def test_what_is_not_right_has_no_number(measured):
    for measured_row in measured.rows:
        assert (measured_row.measured is not None) == measured_row.right
        assert bool(measured_row.processes) == measured_row.right
        assert measured_row.right or measured_row.reason or measured_row.error


def test_failures_say_why(measured):
    assert row(measured, "tiny_eval", "slightly-wrong").reason.startswith("result [0]: 0.01 away from float64")
    assert row(measured, "tiny_eval", "dies").reason == "died of SIGABRT"
    assert row(measured, "tiny_eval", "hangs").reason == "still running after 5 s, in hangs (tiny.py:100)"
    assert row(measured, "tiny_eval", "raises").error.type == "NotImplementedError"
    assert row(measured, "tiny_eval", "raises").phase == "capture"
    assert row(measured, "tiny_train", "wrong-gradients").reason.startswith("gradients 3.bias")
    assert "random numbers" in row(measured, "drops_out", "fx").reason


def test_figures_have_an_interval_raw_samples_and_their_conditions(measured):
    slower_row = row(measured, "tiny_eval", "slower")
    ratio, low, high = slower_row.measured.speedup
    assert low <= ratio <= high
    assert ratio < 0.9  # it does everything twice
    assert len(slower_row.processes) == 4
    for process in slower_row.processes:
        assert len(process.eager.seconds) == len(process.candidate.seconds) >= 10
        assert process.overhead < 0.5
        assert process.conditions.threads == 1
        assert process.conditions.affinity >= 1
        assert len(process.start.calls) == 4
    assert slower_row.measured.break_even_cold is None
    assert slower_row.flags["float32_matmul_precision"] == "highest"


def test_claims_are_reproduced_or_not(measured):
    claims = {claim.id: claim.holds for claim in row(measured, "tiny_eval", "fx").claims}
    assert claims["X2"] is False
    assert claims["X1"] in (True, None)


def test_the_file_keeps_its_schema(measured, tmp_path):
    assert shipped_schema() == (SCHEMA_PATH, SCHEMA_PATH.read_text(encoding="utf-8"))
    write_speedups(tmp_path / "s.json", measured)
    assert read_speedups(tmp_path / "s.json") == measured
    jsonschema.validate(
        json.loads((tmp_path / "s.json").read_text()), json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
    )


def test_a_file_that_is_not_understood_is_refused_by_name(tmp_path, measured):
    path = tmp_path / "s.json"
    write_speedups(path, measured)
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 7', 1))
    with pytest.raises(UsageError, match=r"s\.json.*schema"):
        read_speedups(path)


def test_a_file_with_a_byte_that_is_no_utf8_is_one_line_and_status_2(tmp_path, capfd):
    path = tmp_path / "image" / "cpu" / "speedups-cpu.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"schema": 1, "rows": [{"workload": "\xff"}]}')
    with pytest.raises(SystemExit) as left:
        main(["report", str(tmp_path)])
    assert left.value.code == 2
    [error_line] = capfd.readouterr().err.strip().splitlines()
    assert "speedups-cpu.json: " in error_line
    assert "0xff" in error_line


def test_an_unreadable_result_is_a_row_with_its_reason():
    result = '{"verdict":"pass","deviations":[{"group":"result","eager":null,"candidate":0,"allowed":0}]}'
    ended = Ended(0, "exit", 0, "call", result, seconds=1, peak_rss=0, stdout="", stderr="", rss_server=0)
    outcomes = OutcomeReader(job.Outcome, timeout=1.0, memory=1, checks=[], explainable=benchmark.explainable)
    outcome = outcomes.read(ended)
    assert (str(outcome.verdict), outcome.phase) == ("crash", "call")
    assert outcome.reason.startswith("left an unreadable result: Expected `float`, got `null`")


@pytest.mark.parametrize(("where", "phase"), [("repeatable", "reference"), ("gate", "call")])
def test_memory_that_runs_out_between_the_phases_is_reported_as_oom(where, phase, monkeypatch, tmp_path):
    def run_out(bench):
        raise MemoryError

    monkeypatch.setattr(job._Measurement, where, run_out)
    monkeypatch.setattr(job, "keep_caches", lambda *arguments: None)
    bench_job = job.Job(
        model=ModelSpec(name="tiny_eval", path=TINY),
        configuration=Configuration("fx", "fp32"),
        device="cpu",
        timing=False,
        seconds=0.1,
        seed=0,
        cache=str(tmp_path),
        compile_threads=1,
        cpu_threads=torch.get_num_threads(),
    )
    outcome = job.measure(bench_job, lambda phase: None)
    assert (str(outcome.verdict), outcome.phase, outcome.error.type) == ("oom", phase, "MemoryError")


def test_variables_that_the_compilers_read_are_reported_with_the_row(warm, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/usr/local/bin/ptxas")
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE_GEMM", "1")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # the run has its own
    quick = ("--processes", "1", "--seconds", "0.1", "--threads", "1")
    assert bench(TINY, "tiny_eval::raises", *quick, "--results", str(tmp_path)) == 0
    [only_row] = only_speedups(tmp_path).rows
    assert "with TORCHINDUCTOR_MAX_AUTOTUNE_GEMM=1 TRITON_PTXAS_PATH=<path>" in remarks(only_row)


def test_what_the_run_sets_itself_is_not_reported(monkeypatch):
    for name in (
        "TORCHINDUCTOR_FX_GRAPH_CACHE",
        "TORCHINDUCTOR_COMPILE_THREADS",
        "TRITON_CACHE_DIR",
        "PYTORCH_VERSION",
    ):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert variables(COMPILER_VARIABLES) == {"env PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def test_another_arithmetic_than_eagers_is_not_called_the_same(measured):
    fx_row = row(measured, "tiny_eval", "fx")
    half = msgspec.structs.replace(fx_row, configuration=Configuration("fx", "bf16"))
    assert fx_row.own_dtype == "fp32"
    means = render_speedups(msgspec.structs.replace(measured, rows=(half,))).partition("## Geometric means")[2]
    assert "as in eager" not in means
    assert "`fx bf16`" in means


def test_a_failure_of_eager_itself_does_not_decide_a_claim(measured):
    [info] = [
        workload
        for workload in collect_workloads(ModelSpec(name="tiny", path=TINY))
        if workload.spec.name == "tiny_eval"
    ]
    info = msgspec.structs.replace(info, claims={"fx": [("T0", ">=2", "3x")]})
    for phase, holds in (("reference", None), ("call", False)):
        planned_row = PlannedRow(info, Configuration("fx", "fp32"), "")
        outcome = job.Outcome(verdict=Verdict.OOM, phase=phase, reason="used more than 1 GiB")
        [claim] = make_row(planned_row, outcome, compile_jobs=1).claims
        assert claim.holds is holds
    planned_row = PlannedRow(info, Configuration("fx", "fp32", dynamic=True), "")
    assert make_row(planned_row, outcome, compile_jobs=1).claims == ()


def test_an_edited_compiler_of_the_workloads_own_file_is_another_row(tmp_path):
    def hashes(text):
        path = tmp_path / "own.py"
        path.write_text(text)
        os.utime(path, ns=(len(text), len(text)))
        [info] = collect_workloads(ModelSpec(name="own", path=str(path)))
        return {name: PlannedRow(info, Configuration(name, "fp32"), "").hash for name in ("fx", "mine")}

    text = (
        "import torch\nfrom recapture import compiler, workload\n\n\n"
        "@workload(inputs=lambda: (torch.ones(2),))\ndef own():\n    return torch.nn.Identity()\n\n\n"
        "@compiler('mine')\ndef mine(fn, example):\n    return fn\n"
    )
    before, after = hashes(text), hashes(text.replace("return fn", "return torch.fx.symbolic_trace(fn)"))
    assert before["fx"] == after["fx"]
    assert before["mine"] != after["mine"]


def test_ranges_that_span_kernels_are_no_kernels(monkeypatch):
    rows = [
        SimpleNamespace(key="gemm", device_type="DeviceType.CUDA", self_device_time_total=30.0, is_user_annotation=False),
        SimpleNamespace(key="Optimizer.step#Adam", device_type="DeviceType.CUDA", self_device_time_total=90.0,
                        is_user_annotation=True),
        SimpleNamespace(key="aten::mm", device_type="DeviceType.CPU", self_device_time_total=30.0,
                        is_user_annotation=False),
    ]  # fmt: skip
    monkeypatch.setattr(probes, "_profiled", lambda *_: rows)
    assert probes.kernel_seconds(None, "cuda") == pytest.approx(30e-6 / probes.ITERATIONS)
    assert probes.kernel_seconds(None, "cpu") is None


def test_snapshots_are_weighed():
    model = torch.nn.Linear(3, 5)
    model(torch.ones(2, 3)).sum().backward()
    subject = SimpleNamespace(result=torch.ones(7), model=model, workload=SimpleNamespace(trains=True))
    assert Snapshot(subject).nbytes == 4 * (7 + 2 * (15 + 5))


def test_a_row_whose_deadline_came_says_where_the_main_thread_was():
    stacks = (
        "Timeout (0:12:00)!\nThread 0x1 (most recent call first):\n"
        '  File "/lib/timer.py", line 43 in check\n  File "/lib/threading.py", line 9 in run\n\n'
        'Thread 0x2 (most recent call first):\n  File "/lib/graph.py", line 869 in backward\n  File "x.py", line 1 in f\n'
    )
    assert benchmark.last_seen(stacks) == ", in backward (graph.py:869)"
    assert benchmark.last_seen("nothing of the kind") == ""


def test_rows_on_file_stay_when_others_are_measured_and_resume_measures_what_is_missing(warm, tmp_path, capfd):
    results = ("--results", str(tmp_path))
    quick = ("--processes", "1", "--seconds", "0.1", "--threads", "1")
    assert bench(TINY, "tiny_eval::fx", *quick, *results) == 0
    first = only_speedups(tmp_path)
    assert bench(TINY, "tiny_eval::eager", *quick, *results) == 0
    merged = only_speedups(tmp_path)
    assert row(merged, "tiny_eval", "fx") == row(first, "tiny_eval", "fx")
    assert merged.method["processes"] == 1
    capfd.readouterr()
    other_options = ("--processes", "2", *quick[2:])
    assert (
        bench(TINY, "tiny_eval::eager", "tiny_eval::fx", "tiny_eval::raises", *other_options, *results, "--resume") == 0
    )
    assert "1 configuration\n" in capfd.readouterr().err
    assert only_speedups(tmp_path).method["processes"] == "1 and 2"
    assert only_speedups(tmp_path).method["CPU threads"] == 1
    assert row(only_speedups(tmp_path), "tiny_eval", "fx") == row(first, "tiny_eval", "fx")


def test_resume_measures_the_rows_of_an_edited_workload_again(tmp_path, measured):
    path = tmp_path / "s.json"
    [info] = [
        workload
        for workload in collect_workloads(ModelSpec(name="tiny", path=TINY))
        if workload.spec.name == "tiny_eval"
    ]
    on_file = row(measured, "tiny_eval", "fx")
    assert on_file.hash == info.hash

    def resumed(hash_on_file):
        rows = (msgspec.structs.replace(on_file, hash=hash_on_file),)
        write_speedups(path, msgspec.structs.replace(measured, rows=rows))
        planned_row = PlannedRow(info, on_file.configuration, "")
        SpeedupsFile(path, measured.environment, {}, [planned_row], resume=True)
        return planned_row.row == rows[0]

    assert resumed(info.hash)
    assert resumed(None)  # of an older version
    assert not resumed("0123456789ab")


def test_a_row_that_is_measured_again_stays_until_it_has_been(warm, tmp_path, capfd, monkeypatch):
    quick = ("--processes", "1", "--seconds", "0.1", "--threads", "1", "--results", str(tmp_path))
    assert bench(TINY, "tiny_eval::fx", "tiny_eval::raises", *quick) == 0
    before = only_speedups(tmp_path)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(benchmark.RowExecution, "ended", interrupt)
        assert bench(TINY, "tiny_eval::fx", *quick) == 130
    between = only_speedups(tmp_path)
    assert [(str(stored_row.configuration), stored_row.again) for stored_row in between.rows] == [
        ("fx fp32", True),
        ("raises fp32", False),
    ]
    assert msgspec.structs.replace(row(between, "tiny_eval", "fx"), again=False) == row(before, "tiny_eval", "fx")
    assert between.planned == 2
    report = render_speedups(between)
    assert "**1 of these from before: measuring it again has not ended**" in report
    capfd.readouterr()
    assert bench(TINY, "tiny_eval::fx", "tiny_eval::raises", *quick, "--resume") == 0
    assert "1 configuration\n" in capfd.readouterr().err
    after = only_speedups(tmp_path)
    assert not any(stored_row.again for stored_row in after.rows)
    assert row(after, "tiny_eval", "fx") != row(before, "tiny_eval", "fx")
    assert row(after, "tiny_eval", "raises") == row(before, "tiny_eval", "raises")


def test_figures_of_another_installation_are_set_aside_not_mixed_in_and_not_lost(warm, tmp_path, measured, capfd):
    quick = ("--processes", "1", "--seconds", "0.1", "--threads", "1")
    assert bench(TINY, "tiny_eval::raises", *quick, "--results", str(tmp_path)) == 0
    [path] = tmp_path.rglob("speedups-cpu.json")
    elsewhere = msgspec.structs.replace(measured.environment, packages={"torch": "2.0.1"})
    write_speedups(path, msgspec.structs.replace(measured, environment=elsewhere))
    capfd.readouterr()
    assert bench(TINY, "tiny_eval::raises", *quick, "--results", str(tmp_path)) == 0
    error_text = " ".join(capfd.readouterr().err.split())
    assert "speedups-cpu.json is of another machine or installation (" in error_text
    assert "torch 2.0.1, now" in error_text or " more); it was moved to before-1" in error_text
    assert [str(stored_row.configuration) for stored_row in read_speedups(path).rows] == ["raises fp32"]
    assert read_speedups(path.parent / "before-1" / path.name).rows == measured.rows


@pytest.mark.parametrize("change", [{"model": "another CPU"}, {"cores": 77}])
def test_figures_of_another_machine_are_set_aside_too(tmp_path, measured, change):
    path = tmp_path / "speedups-cpu.json"
    write_speedups(path, measured)
    assert set_aside_others(path, measured.environment) is None
    other_machine = msgspec.structs.replace(
        measured.environment, cpu=msgspec.structs.replace(measured.environment.cpu, **change)
    )
    moved, difference = set_aside_others(path, other_machine)
    assert (moved / path.name).is_file()
    assert not path.exists()
    assert f"became {next(iter(change.values()))}" in difference


def test_more_gpus_than_there_are_is_bad_input(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,3")
    assert visible_gpus() == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_gpus() == 0
    monkeypatch.setattr(benchmark, "visible_gpus", lambda: 1)
    with pytest.raises(UsageError, match="--gpus 2, but 1 GPU can be used here"):
        benchmark.check_gpus(bench_options(device="cuda", gpus=2))
    benchmark.check_gpus(bench_options(device="cuda"))


def test_the_workload_of_the_documents_works_as_pasted(warm, tmp_path):
    page = (Path(__file__).parents[1] / "docs" / "speed.md").read_text(encoding="utf-8")
    _, block = page.split("<!-- file: my_workload.py -->\n```python\n")
    path = tmp_path / "my_workload.py"
    path.write_text(block.split("```")[0])
    assert bench(str(path), "--compiler", "fx", *QUICK, "--results", str(tmp_path / "results")) == 0
    [perceptron_row] = only_speedups(tmp_path / "results").rows
    assert (perceptron_row.workload, str(perceptron_row.verdict)) == ("perceptron", "pass")


def bench_options(*names, resume=False, device="cpu", gpus=1):
    return BenchOptions(
        **dict.fromkeys(("models", "shapes", "dtypes", "layouts"), ()),
        **dict.fromkeys(("train", "dynamic", "profile"), False),
        **dict.fromkeys(("processes", "seconds", "timeout", "memory", "threads", "compile_jobs"), 1),
        names=names,
        resume=resume,
        compilers=("eager",),
        device=device,
        gpus=gpus,
        worker="auto",
        results=Path(),
    )


@pytest.mark.parametrize(
    ("timeout", "quick", "limit"), [(None, False, 1800), (None, True, 300), (1800, True, 1800), (7, False, 7)]
)
def test_a_quick_benchmark_waits_less_for_a_process_that_hangs(timeout, quick, limit):
    options = dataclasses.replace(bench_options(), processes=1, timeout=timeout, quick=quick)
    assert (options.quickly() if quick else options).process_limit == limit


def planned(*names):
    """The workloads that a command line selects from two in one file."""
    options = bench_options(*names)
    specs = [ModelSpec(name=name, path=TINY) for name in ("tiny_eval", "tiny_train")]
    infos = [WorkloadInfo(spec=spec, devices=("cpu",), compilers={"slower": ""}) for spec in specs]
    return {(info.spec.name, how.compiler) for info, how in plan_rows(select(infos, options), options)}


def test_a_file_is_addressed_with_its_workload_and_a_compiler():
    assert planned(f"{TINY}::tiny_eval::fx") == {("tiny_eval", "fx")}
    assert planned(f"{TINY}::tiny_eval::slower", f"{TINY}::tiny_train") == {
        ("tiny_eval", "slower"),
        ("tiny_train", "eager"),
    }
    assert planned(f"{TINY}::tiny_train::fx", TINY) == planned(TINY) == planned()
    assert planned(TINY, "tiny_eval::fx") == {("tiny_eval", "fx")}
    with pytest.raises(UsageError, match=r"unknown workload 'nope' in tiny\.py; known: tiny_eval, tiny_train"):
        planned(f"{TINY}::nope::fx")


def test_torchvision_is_imported_only_where_a_workload_may_use_it(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text("from torchvision.models import resnet18\n")
    assert modules_of(bench_options(f"{TINY}::tiny_eval::fx")) == []
    for options in (
        bench_options(),
        bench_options("resnet18_eval"),
        bench_options(TINY, "resnet18_eval"),
        bench_options(TINY, str(mine)),
    ):
        assert modules_of(options) == ["torchvision"]
    assert modules_of(dataclasses.replace(bench_options(TINY), models=("torchvision:resnet18",))) == ["torchvision"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("resnet18_evil",), "unknown workload 'resnet18_evil'; did you mean 'resnet18_eval'?"),
        (("resnet18_eval", "--compiler", "compil"), "unknown compiler 'compil'; did you mean 'compile'?"),
        (("resnet18_eval::fxx",), "unknown compiler 'fxx'; did you mean 'fx'?"),
        ((f"{TINY}::tiny_evil::fx",), "unknown workload 'tiny_evil' in tiny.py; did you mean 'tiny_eval'?"),
        ((f"{TINY}::tiny_eval::fxx",), "unknown compiler 'fxx'; did you mean 'fx'?"),
        (("resnet18_eval", "--dtype", "fp16"), "unknown dtype 'fp16'"),
        (("resnet18_eval", "--layout", "nhwc"), "unknown layout 'nhwc'"),
        (("--device", "gpu"), "unknown device 'gpu'"),
        (("missing.py",), "no such workload file: missing.py"),
        (("--model", "torchvision:resnet81"), "torchvision has no model 'resnet81'; did you mean"),
        (("--model", "no.such.module:f"), "the module of model 'no.such.module:f' cannot be imported"),
        (("--model", "resnet18"), "a model is named torchvision:NAME or package.module:factory, not 'resnet18'"),
        (("--model", "torchvision:resnet18", "--input", "8by3"), "a shape is written as 8x3x224x224, not '8by3'"),
        (("resnet18_eval", "--gpus", "2"), "--gpus is for --device cuda"),
        (("--list", "resnet18_evil"), "unknown workload 'resnet18_evil'; did you mean 'resnet18_eval'?"),
        (("resnet18_eval", "--train"), "--train is for a model named with --model"),
    ],
)
def test_bad_input_is_one_line_and_status_2(warm, arguments, message, capfd, tmp_path):
    assert bench(*arguments, "--results", str(tmp_path)) == 2
    error_line = capfd.readouterr().err.strip().splitlines()[-1]
    assert error_line.startswith("recapture: ")
    assert message in error_line


def test_a_results_directory_that_cannot_be_written_is_refused_before_anything_is_measured(warm, tmp_path, capfd):
    (tmp_path / "file").write_text("")
    assert bench(TINY, "tiny_eval::fx", *QUICK, "--results", str(tmp_path / "file")) == 2
    assert "cannot write results" in capfd.readouterr().err


def test_without_a_gpu_status_3(warm, tmp_path, monkeypatch, capfd):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    monkeypatch.setattr(warm, "device", "cuda")
    monkeypatch.setattr(benchmark, "survey", preparation.survey)
    assert bench(TINY, "tiny_eval::fx", "--device", "cuda", "--results", str(tmp_path)) == 3
    assert "no CUDA device" in capfd.readouterr().err


def test_a_model_named_on_the_command_line_with_another_dtype_and_layout(warm, tmp_path):
    arguments = ("--model", "torchvision:squeezenet1_1", "--input", "1x3x64x64", "--compiler", "eager")
    assert bench(*arguments, "--dtype", "bf16", "--channels-last", *QUICK, "--results", str(tmp_path)) == 0
    [squeezenet_row] = only_speedups(tmp_path).rows
    assert squeezenet_row.workload == "torchvision:squeezenet1_1 1x3x64x64"
    assert str(squeezenet_row.configuration) == "eager bf16 channels-last"
    assert squeezenet_row.measured.over_twin is not None  # against eager with the same arithmetic, beside plain eager


@pytest.mark.slow
def test_torch_compile_is_cold_once_and_warm_after_and_a_profile_is_written(tmp_path):
    addresses = ("tiny_eval::compile", "tiny_train::compile", "tiny_with_grad::compile", "tiny_eval::aoti")
    assert bench(TINY, *addresses, *QUICK, "--profile", "--results", str(tmp_path)) == 0
    speedups = only_speedups(tmp_path)
    compiled = row(speedups, "tiny_eval", "compile")
    assert compiled.cold.calls[0] > compiled.warm.calls[0]
    assert compiled.reasons.graphs == 1
    step = row(speedups, "tiny_train", "compile")
    assert step.what == "step"
    assert str(step.verdict) == "pass_with_breaks"  # at backward, as torch says
    assert row(speedups, "tiny_eval", "aoti").right
    [table] = tmp_path.rglob("tiny_eval-compile-fp32/operators.md")
    assert "aten::addmm" in table.read_text()
    assert (table.parent / "candidate.trace.json").is_file()
