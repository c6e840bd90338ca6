"""How speed changed between two benchmarks: what is sure, what is noise, and what is not compared."""

import json
from pathlib import Path

import msgspec
import pytest
from command_lines import recapture
from msgspec.structs import replace

from recapture.base.errors import UsageError
from recapture.records.record import ErrorInfo
from recapture.records.verdicts import Verdict
from recapture.tools.compare.cell_changes import compare, locate
from recapture.tools.compare.changes import SPEED_CATEGORIES, Diff, diff_schema, matching_changes
from recapture.tools.compare.diff_report import to_json, to_markdown
from recapture.tools.speed import speed_changes
from recapture.tools.speed.figures import compare_runs, derive
from recapture.tools.speed.speedups import read_speedups, write_speedups
from recapture.tools.speed.yardstick import SAMPLES, yardstick

RESULTS = Path(__file__).parents[1] / "results"
H200 = RESULTS / "bare-torch2.11.0-cu130" / "sm_90"
ON_FILE = read_speedups(H200 / "speedups-nvidia-h200.json")
ON_FILE = replace(ON_FILE, rows=tuple(replace(row, again=False) for row in ON_FILE.rows))
CELLS = Path(__file__).parent / "resources" / "results" / "images" / "torch2.11.0-cu130" / "sm_90"


def row_of(workload, compiler, speedups=ON_FILE):
    [row] = [row for row in speedups.rows if (row.workload, row.configuration.compiler) == (workload, compiler)]
    return row


def slowed(row, *, eager=1.0, candidate=1.0, processes=None):
    """The row as it would be if every sample had taken so much longer."""

    def longer(series, factor):
        return replace(series, seconds=tuple(value * factor for value in series.seconds))

    timed = tuple(
        replace(process, eager=longer(process.eager, eager), candidate=longer(process.candidate, candidate))
        for process in row.processes[:processes]
    )
    measured = replace(row.measured, seconds=row.measured.seconds * candidate)
    return derive(replace(row, processes=timed, measured=measured))


@pytest.fixture
def changed(tmp_path):
    """Compares the benchmark on file with one of which some rows are others; returns the changes."""

    def compared(*rows, drop=(), environment=ON_FILE.environment, name="speedups-nvidia-h200.json"):
        others = {row.key: row for row in rows}
        unchanged = [others.pop(row.key, row) for row in ON_FILE.rows if row.key not in drop]
        for side, speedups in {
            "old": ON_FILE,
            "new": replace(ON_FILE, rows=(*unchanged, *others.values()), environment=environment),
        }.items():
            directory = tmp_path / side / "sm_90"
            directory.mkdir(parents=True, exist_ok=True)
            write_speedups(directory / (name if side == "new" else "speedups-nvidia-h200.json"), speedups)
        return compare(tmp_path / "old" / "sm_90", tmp_path / "new" / "sm_90")

    return compared


def change_of(changes, row):
    [change] = [
        change
        for change in changes.speeds
        if (change.workload, change.configuration) == (row.workload, str(row.configuration))
    ]
    return change


VIT = row_of("vit_b_16_eval", "compile")
DENSENET = row_of("densenet121_eval", "compile")  # launch-bound: its seconds differ by a tenth between processes


def test_the_same_benchmark_twice_has_no_difference(changed):
    changes = changed()
    assert len(changes.speeds) == len(ON_FILE.rows)
    assert {change.category for change in changes.speeds} <= {"no_difference_shown", "too_noisy", "not_timed"}
    assert matching_changes(changes, "slower") == matching_changes(changes, "any") == 0
    assert "0 configurations slower or no longer right" in to_markdown(changes)


def test_a_configuration_that_takes_longer_is_slower_by_its_seconds(changed):
    changes = changed(slowed(VIT, candidate=1.2))
    change = change_of(changes, VIT)
    assert (change.category, change.basis) == ("slower", "seconds")
    assert change.change[0] == pytest.approx(1 / 1.2)
    assert change.change[1] < change.change[0] < change.change[2] < 1
    assert change.eager[0] == pytest.approx(1)
    assert matching_changes(changes, "slower") == 1
    assert matching_changes(changes, "regression") == 0


def test_the_speedup_over_eager_decides_where_seconds_do_not(changed):
    assert change_of(changed(), DENSENET).basis == "speedup"
    change = change_of(changed(slowed(DENSENET, candidate=1.4)), DENSENET)
    assert (change.category, change.basis) == ("slower", "speedup")
    assert change.change[0] == pytest.approx(1 / 1.4)
    assert change_of(changed(slowed(DENSENET, candidate=0.7)), DENSENET).category == "faster"


def test_what_is_within_the_difference_of_two_days_is_none(changed):
    assert change_of(changed(slowed(VIT, candidate=1.03)), VIT).category == "no_difference_shown"


def test_eager_that_became_faster_makes_nothing_slower(changed):
    change = change_of(changed(slowed(VIT, eager=0.8)), VIT)
    assert change.category == "no_difference_shown"
    assert change.eager[0] == pytest.approx(1.25)


def test_a_machine_that_became_slower_is_detected_by_eager(changed):
    change = change_of(changed(slowed(VIT, eager=1.3, candidate=1.3)), VIT)
    assert (change.category, change.basis) == ("slower", "seconds")
    assert change.eager[0] == pytest.approx(1 / 1.3)


def test_on_another_gpu_speedups_are_compared_with_a_note(changed):
    environment = replace(ON_FILE.environment, gpu=replace(ON_FILE.environment.gpu, name="NVIDIA A100"))
    changes = changed(slowed(VIT, eager=3, candidate=3), environment=environment, name="speedups-nvidia-a100.json")
    change = change_of(changes, VIT)
    assert (change.category, change.basis, change.eager) == ("no_difference_shown", "speedup", None)
    assert any("NVIDIA H200 became NVIDIA A100" in note for note in changes.warnings)


def test_one_process_shows_nothing(changed):
    change = change_of(changed(slowed(VIT, candidate=2, processes=1)), VIT)
    assert (change.category, change.change) == ("too_noisy", None)


def test_a_shared_machine_shows_nothing(changed):
    row = slowed(VIT, candidate=2)
    shared = tuple(replace(process, conditions=replace(process.conditions, others=1)) for process in row.processes)
    assert change_of(changed(replace(row, processes=shared)), VIT).category == "too_noisy"


def test_verdicts_that_changed_come_before_speed(changed):
    failing = replace(VIT, verdict=Verdict.TIMEOUT, reason="still running after 9 s", measured=None, processes=())
    assert change_of(changed(failing), VIT).category == "no_longer_right"
    assert matching_changes(changed(failing), "slower") == 1
    crash = row_of("densenet121_eval", "aoti")
    assert change_of(changed(replace(crash, verdict=Verdict.ERROR)), crash).category == "failing_differently"
    assert change_of(
        changed(replace(VIT, configuration=crash.configuration, workload="densenet121_eval")), crash
    ).category == ("newly_right")


def test_rows_of_one_side_and_of_edited_workloads_are_not_compared(changed):
    other_workload = replace(VIT, workload="another")
    changes = changed(other_workload, drop=[VIT.key])
    assert change_of(changes, VIT).category == "only_in_old"
    assert change_of(changes, other_workload).category == "only_in_new"
    row = row_of("densenet121_eval", "compile:max-autotune")
    assert row.hash is not None
    assert change_of(changed(replace(slowed(row, candidate=2), hash="edited")), row).category == "edited"


def test_rows_that_were_not_measured_again_are_not_compared_with_a_note(changed):
    changes = changed(replace(slowed(VIT, candidate=2), again=True))
    assert not [
        change
        for change in changes.speeds
        if (change.workload, change.configuration) == ("vit_b_16_eval", "compile fp32")
    ]
    assert "speed: NEW is incomplete: 37 configurations planned, 36 measured" in changes.warnings


def test_a_speedup_does_not_overrule_conclusive_seconds(changed):
    change = change_of(changed(slowed(VIT, eager=0.96, candidate=1.04)), VIT)
    assert (change.category, change.basis) == ("no_difference_shown", "seconds")


def test_on_another_processor_beside_the_same_gpu_speedups_are_compared(changed):
    cpu = replace(ON_FILE.environment.cpu, model="another CPU")
    changes = changed(environment=replace(ON_FILE.environment, cpu=cpu))
    assert change_of(changes, VIT).basis == "speedup"
    assert any("became another CPU, so speedups over eager are compared" in note for note in changes.warnings)


def test_every_category_is_in_the_order_of_the_report():
    assert set(diff_schema()["$defs"]["SpeedChange"]["properties"]["category"]["enum"]) == set(SPEED_CATEGORIES)


def test_reports_hold_what_changed(changed, capsys):
    changes = changed(slowed(VIT, candidate=1.2))
    assert msgspec.json.decode(to_json(changes), type=Diff) == changes
    text = to_markdown(changes)
    [line] = [line for line in text.splitlines() if line.startswith("| `vit_b_16_eval`")]
    assert [part.strip() for part in line.split("|")][2:7] == [
        "`compile fp32`",
        "8.50 ms",
        "10.20 ms",
        "0.83× \\[0.83, 0.84\\]",
        "slower",
    ]
    assert "## Speed\n\n1 slower, " in text
    assert "1 configuration slower or no longer right" in text


def test_fail_on_slower_ends_with_1_and_benchmarks_need_no_cells(changed, tmp_path, capsys):
    changed(slowed(VIT, candidate=1.2))
    sides = tmp_path / "old", tmp_path / "new"
    assert locate(*sides) == tuple(side / "sm_90" for side in sides)
    assert recapture("diff", *sides, "--fail-on", "slower") == 1
    out = capsys.readouterr().out
    assert "vit_b_16_eval\n    compile fp32  8.50 ms → 10.20 ms  0.83×" in out
    assert "Note: OLD has no cells" in out
    assert recapture("diff", *sides, "--fail-on", "regression") == 0
    assert recapture("diff", *sides, "--fail-on", "any") == 1
    assert recapture("diff", sides[0], sides[0], "--fail-on", "any") == 0


def test_what_was_set_aside_is_not_compared(changed, tmp_path):
    changed()
    aside = tmp_path / "new" / "sm_90" / "speedups-nvidia-h200.before-1.json"
    write_speedups(aside, replace(ON_FILE, rows=()))
    assert len(compare(tmp_path / "old" / "sm_90", tmp_path / "new" / "sm_90").speeds) == len(ON_FILE.rows)


def test_cells_on_one_side_and_a_benchmark_on_the_other_is_bad_input(changed, tmp_path, capsys):
    changed()
    assert recapture("diff", CELLS, tmp_path / "new" / "sm_90") == 2
    error = capsys.readouterr().err
    assert "hold nothing of one kind" in error
    assert error.count("\n") == 1
    with pytest.raises(UsageError, match="hold nothing of one kind"):
        compare(CELLS, tmp_path / "new" / "sm_90")


def test_several_devices_with_none_in_common_are_a_note(changed, tmp_path):
    changed(name="speedups-nvidia-a100.json")
    for side in ("old", "new"):
        (tmp_path / side / "sm_90" / "conformance.jsonl").write_bytes((CELLS / "conformance.jsonl").read_bytes())
    new = tmp_path / "new" / "sm_90"
    (new / "speedups-nvidia-h100.json").write_bytes((new / "speedups-nvidia-a100.json").read_bytes())
    changes = compare(tmp_path / "old" / "sm_90", new)
    assert changes.speeds == ()
    assert any("none of them the same" in note for note in changes.warnings)
    assert json.loads(to_json(changes))["unchanged"] > 0


def test_the_interval_between_two_runs_is_welchs():
    ratio = compare_runs([0.0, 0.1, 0.2], [0.5, 0.6, 0.7])
    assert ratio.finding == "faster"
    assert ratio.ratio == pytest.approx(1.6487, rel=1e-3)
    assert ratio.low < ratio.ratio < ratio.high
    assert ratio.p_value == pytest.approx(0.0036, rel=0.05)
    assert compare_runs([0.0], [0.1, 0.2]) is None
    assert compare_runs([0.0, 0.0], [0.0, 0.0])[:3] == (1, 1, 1)
    assert compare_runs([-0.2, 0.2], [-0.3, 0.3]).finding == "too noisy"


def test_a_benchmark_on_only_one_side_is_reported_and_cannot_be_a_condition(capfd):
    sides = (str(RESULTS / "torch2.6.0-cu124" / "cpu"), str(RESULTS / "torch2.11.0-cu130" / "cpu"))
    for old, new, lacks in ((*sides, "OLD"), (*sides[::-1], "NEW")):
        assert recapture("diff", old, new) == 0
        assert f"speed is not compared: {lacks} has no benchmark" in capfd.readouterr().out
        assert recapture("diff", old, new, "--fail-on", "slower") == 2
        assert "--fail-on slower, but no speeds were compared" in capfd.readouterr().err


def test_another_error_is_another_failure(changed):
    failed = next(row for row in ON_FILE.rows if not row.right)
    other_failure = replace(failed, error=ErrorInfo(type="RuntimeError", message="another", fingerprint="f" * 12))
    [change] = [
        speed
        for speed in changed(other_failure).speeds
        if (speed.workload, speed.configuration) == (failed.workload, str(failed.configuration))
    ]
    assert change.category == "failing_differently"


# --- The yardstick ----------------------------------------------------------------------------------------------------


def on_a_machine(row, factor, seconds=0.004):
    """The row with a yardstick, on a machine on which everything takes so much longer."""
    slower = slowed(row, eager=factor, candidate=factor)
    spread = (0.999, 1.0, 1.001)
    return replace(
        slower,
        processes=tuple(
            replace(process, yardstick=tuple(seconds * factor * part for part in spread))
            for process in slower.processes
        ),
    )


ROW = VIT


def test_a_slower_machine_is_no_slower_release():
    change = speed_changes.compared(on_a_machine(ROW, 1), on_a_machine(ROW, 2.0), device="cuda", seconds=True)
    assert change["category"] == "no_difference_shown"
    assert change["change"][0] == pytest.approx(1)
    assert change["eager"][0] == pytest.approx(1)
    assert change["yardstick"][0] == pytest.approx(1 / 2.0)
    # Without it, the machine looks like torch.
    bare = speed_changes.compared(ROW, slowed(ROW, eager=2.0, candidate=2.0), device="cuda", seconds=True)
    assert bare["category"] == "slower"
    assert "yardstick" not in bare


def test_a_slower_release_is_found_on_a_faster_machine():
    slower = slowed(on_a_machine(ROW, 0.5), candidate=2.0)
    change = speed_changes.compared(on_a_machine(ROW, 1), slower, device="cuda", seconds=True)
    assert (change["category"], change["basis"]) == ("slower", "seconds")
    assert change["change"][0] == pytest.approx(1 / 2)
    eager = speed_changes.compared(
        on_a_machine(ROW, 1), slowed(on_a_machine(ROW, 0.5), eager=2.0), device="cuda", seconds=True
    )
    assert eager["eager"][0] == pytest.approx(1 / 2)


def test_a_side_without_a_yardstick_is_compared_as_before():
    change = speed_changes.compared(ROW, on_a_machine(ROW, 2.0), device="cuda", seconds=True)
    assert "yardstick" not in change
    assert change["category"] == "slower"


def test_diff_says_how_much_faster_the_machine_was(changed):
    changes = changed(ROW)
    assert "The machine itself" not in to_markdown(changes)
    moved = [msgspec.structs.replace(change, yardstick=(0.9, 0.89, 0.91)) for change in changes.speeds]
    text = to_markdown(replace(changes, speeds=tuple(moved)))
    assert "The machine itself was 0.90× \\[0.89, 0.91\\] as fast in NEW" in text


def test_the_yardstick_takes_about_as_long_each_time():
    samples = yardstick("cpu")
    first, second = (min(samples()) for _ in range(2))
    assert len(samples()) == SAMPLES
    assert 0.5 < first / second < 2  # the fastest of each: this machine may have other work
    assert first > 1e-4
