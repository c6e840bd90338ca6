"""Results of a CPU and a GPU compared: each difference of outcome is explained, and the committed records show it."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec
import pytest
from device_pairs import compare_devices, way
from devices_page import compared_releases

from recapture.base.errors import UsageError
from recapture.cases.compilers import builtin_compilers
from recapture.command.main import main
from recapture.known.devices import (
    DEVICE_DIFFERENCES,
    GROUPS,
    matching,
)
from recapture.records.difference import Difference
from recapture.records.directories import Results, read_results
from recapture.records.record import ErrorInfo, Record, write_jsonl
from recapture.records.verdicts import Verdict

RESULTS = Path(__file__).parents[1] / "results"
RELEASE = "2.11.0"
CPU = RESULTS / f"torch{RELEASE}-cu130" / "cpu"
GPU = RESULTS / f"torch{RELEASE}-cu130" / "sm_90"

ENTRY = """
[[differences]]
group = "fuser"
releases = ["2.11.0"]
cases = ["types::half_overflows_between"]
compilers = ["jit.trace"]
cpu = ["right"]
gpu = "wrong"
shows = { on = "gpu", kind = "value", eager = "inf" }
what = "A fused kernel rounds once."
source = "https://example.org/1"
"""


def record(verdict, case="types::half_overflows_between", compiler="jit.trace", device="cpu", case_hash="0", **fields):
    return Record(case=case, compiler=compiler, device=device, verdict=verdict, case_hash=case_hash, **fields)


@functools.cache
def committed():
    return {pair.release: pair for pair in compared_releases()}


@pytest.fixture(params=sorted(directory.parent.name for directory in RESULTS.glob("torch*/sm_*")))
def cpu_and_gpu(request):
    """The committed results of one image on a CPU and on a GPU, compared."""
    return committed()[request.param.removeprefix("torch").partition("-")[0]]


def unexplained(pairs):
    return [
        f"{pair.gpu.cell}: {way(pair.cpu)} on the CPU, {way(pair.gpu)} on the GPU, {len(pair.known)} entries"
        for pair in pairs
        if len(pair.known) != 1
    ]


# --- the committed results --------------------------------------------------------------------------------------------


def test_every_committed_difference_of_outcome_has_exactly_one_explanation(cpu_and_gpu):
    assert unexplained(cpu_and_gpu.devices.other_outcome) == []


def test_every_committed_failure_in_another_way_has_exactly_one_explanation(cpu_and_gpu):
    assert unexplained(cpu_and_gpu.devices.other_way) == []


def test_every_explanation_holds_on_exactly_the_releases_that_it_names():
    releases_shown = {entry: set() for entry in DEVICE_DIFFERENCES.shipped}
    for release, pair in committed().items():
        for cell in (*pair.devices.other_outcome, *pair.devices.other_way):
            for entry in DEVICE_DIFFERENCES.shipped:
                if entry.covers(cell.cpu, cell.gpu):
                    releases_shown[entry].add(release)
    assert [entry.line for entry, releases in releases_shown.items() if releases != set(entry.releases)] == []


def test_every_named_case_and_compiler_is_recorded_on_the_gpu(cpu_and_gpu):
    recorded = {(record.case, record.compiler) for record in cpu_and_gpu.gpu.records}
    cases, compilers = {case for case, _ in recorded}, {name for _, name in recorded}
    for entry in DEVICE_DIFFERENCES.shipped:
        if cpu_and_gpu.release in entry.releases:
            assert set(entry.compilers) <= compilers & builtin_compilers().keys(), entry.line
            assert {name for name in entry.cases if "*" not in name} <= cases, entry.line
            assert len(set(entry.compilers)) == len(entry.compilers)


def test_the_numbers_add_up(cpu_and_gpu):
    alone = {device: sum(numbers.values()) for device, numbers in cpu_and_gpu.devices.on_one.items()}
    assert cpu_and_gpu.devices.compared + alone["cpu"] == len(cpu_and_gpu.cpu.records)
    assert cpu_and_gpu.devices.compared + alone["gpu"] == len(cpu_and_gpu.gpu.records)
    assert cpu_and_gpu.devices.same > 0.9 * cpu_and_gpu.devices.compared


# --- what covers what -------------------------------------------------------------------------------------------------


@pytest.fixture
def entry(tmp_path):
    path = tmp_path / "devices.toml"
    path.write_text(ENTRY)
    (entry,) = DEVICE_DIFFERENCES.load(path)
    return entry


def wrong(eager, other, **more):
    difference = Difference("held_out[0]", "result", "value", unlike="value", eager=eager, other=other)
    return record(Verdict.SPECIALIZED, input="held_out[0]", differences=(difference,), **{"device": "cuda", **more})


def right(**more):
    return record(Verdict.PASS, **more)


def test_an_entry_covers_a_cell_with_its_outcomes_and_its_text(entry):
    assert entry.covers(right(), wrong("inf", "300"))


@pytest.mark.parametrize(
    ("cpu", "gpu"),
    [
        (right(), wrong("2", "3")),
        (wrong("inf", "300", device="cpu"), wrong("inf", "300")),
        (right(), right(device="cuda")),
        (right(compiler="jit.script"), wrong("inf", "300", compiler="jit.script")),
        (right(case="types::other"), wrong("inf", "300", case="types::other")),
    ],
    ids=["another text", "another outcome on the CPU", "another on the GPU", "another compiler", "another case"],
)
def test_an_entry_covers_nothing_else(entry, cpu, gpu):
    assert not entry.covers(cpu, gpu)


def test_a_message_is_looked_for_in_the_error_and_the_reason_of_its_device(tmp_path):
    path = tmp_path / "devices.toml"
    path.write_text(
        ENTRY.replace('kind = "value", eager = "inf"', 'message = "not allocated"').replace(
            'gpu = "wrong"', 'gpu = "failing"'
        )
    )
    (entry,) = DEVICE_DIFFERENCES.load(path)
    error = ErrorInfo(type="RuntimeError", message="storage is not allocated in pool", fingerprint="0")
    raises = record(Verdict.ERROR, phase="call", error=error, device="cuda")
    dies = record(Verdict.CRASH, reason="not allocated", device="cuda")
    assert entry.covers(right(), raises)
    assert entry.covers(right(), dies)
    assert not entry.covers(right(), msgspec.structs.replace(raises, error=msgspec.structs.replace(error, message="")))
    assert not entry.covers(right(reason="not allocated"), record(Verdict.CRASH, reason="killed", device="cuda"))


def test_another_release_has_no_explanation():
    fused = wrong("inf", "300")
    assert len(matching("2.11.0", right(), fused)) == 1
    assert matching("1.13.1", right(), fused) == []


def test_the_way_of_a_failure_tells_phase_and_type_but_no_figures():
    error = ErrorInfo(type="torch._dynamo.exc.Unsupported", message="12 things", fingerprint="0")
    assert way(record(Verdict.ERROR, phase="capture", error=error)) == "error, in phase capture, Unsupported"
    assert way(wrong("2", "3")) == way(wrong("2", "4"))


def test_cells_are_compared_in_four_ways_and_an_edited_case_not_at_all(tmp_path):
    def results(folder, *records):
        return Results(tmp_path / folder, tuple(records), None)

    oom = {"reason": "the limit"}
    on_cpu = [
        right(case="a::same"),
        right(case="a::other"),
        wrong("inf", "300", case="a::way", device="cpu"),
        record(Verdict.NOT_APPLICABLE, case="a::alone"),
        right(case="a::edited", case_hash="0" * 12),
        right(case="a::breaks"),
    ]
    on_gpu = [
        right(case="a::same", device="cuda"),
        record(Verdict.OOM, case="a::other", device="cuda", **oom),
        msgspec.structs.replace(wrong("inf", "300", case="a::way"), verdict=Verdict.WRONG),
        right(case="a::alone", device="cuda"),
        right(case="a::edited", case_hash="1" * 12, device="cuda"),
        record(Verdict.PASS_WITH_BREAKS, case="a::breaks", device="cuda"),
    ]
    comparison = compare_devices(results("cpu", *on_cpu), results("gpu", *on_gpu), RELEASE)
    assert comparison.same == 2
    assert [pair.gpu.case for pair in comparison.other_outcome] == ["a::other"]
    assert [pair.gpu.case for pair in comparison.other_way] == ["a::way"]
    assert [pair.gpu.case for pair in comparison.not_judged] == ["a::alone"]
    assert comparison.compared == 5
    assert {device: dict(counts) for device, counts in comparison.on_one.items()} == {
        "cpu": {"jit.trace": 1},
        "gpu": {"jit.trace": 1},
    }


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"fuser"', '"other"', "Invalid enum value 'other'"),
        ('["2.11.0"]', "[]", "at least one each"),
        ('["right"]', "[]", "at least one each"),
        ('"wrong"', '"great"', "Invalid enum value 'great'"),
        ("types::half", "half", "is not a case"),
        ('["jit.trace"]', "[]", "at least one each"),
        ('"A fused kernel rounds once."', '" "', "what says something"),
        (', kind = "value", eager = "inf"', "", "a message, or the kind of a difference"),
        ('kind = "value"', 'kind = "value", message = "inf"', "a message, or the kind of a difference"),
        ('"value"', '"colour"', "unknown kind of difference 'colour'"),
        ('on = "gpu", ', "", "missing required field `on`"),
        ("https://example.org/1", "a friend", "neither an address nor"),
        ("what =", "why =", "unknown field"),
        ("[[differences]]", "[[differences", "Expected"),
    ],
)
def test_what_cannot_be_true_is_refused_in_one_line(tmp_path, old, new, message):
    path = tmp_path / "devices.toml"
    path.write_text(ENTRY.replace(old, new, 1))
    with pytest.raises(UsageError, match=message) as refused:
        DEVICE_DIFFERENCES.load(path)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read the known differences of devices: .*No such file"):
        DEVICE_DIFFERENCES.load(tmp_path / "none.toml")


# --- diff -------------------------------------------------------------------------------------------------------------


def printed(capfd, *arguments):
    with pytest.raises(SystemExit):
        main(["diff", *map(str, arguments)])
    return capfd.readouterr().out


@pytest.mark.parametrize(("old", "new", "form"), [(CPU, GPU, "text"), (GPU, CPU, "markdown")])
def test_diff_of_two_devices_says_what_explains_the_changes(capfd, old, new, form):
    out = printed(capfd, old, new, "--format", form)
    assert "Known differences between a CPU and a GPU" in out
    assert GROUPS["thread"] in out
    versions = [read_results(side).environment.judge_version for side in (old, new)]
    assert len(set(versions)) == 2 or "not explained" not in out


def test_diff_counts_what_nothing_explains(capfd, tmp_path):
    sides = {"torch2.11.0-cu130/cpu": [], "bare-torch2.11.0-cu130/sm_90": []}
    sides["torch2.11.0-cu130/cpu"] = [right(), right(case="a::c"), right(case="a::d")]
    sides["bare-torch2.11.0-cu130/sm_90"] = [
        wrong("inf", "300"),
        wrong("1", "2", case="a::c"),
        right(case="a::d", device="cuda"),
    ]
    for name, rows in sides.items():
        (tmp_path / name).mkdir(parents=True)
        write_jsonl(tmp_path / name / "conformance.jsonl", rows)
    out = printed(capfd, *(tmp_path / name for name in sides))
    assert f"  1 cell: {GROUPS['fuser']}" in out
    assert "  1 cell with another outcome: not explained" in out
    (tmp_path / "torch2.6.0-cu124").mkdir()
    older_release = (tmp_path / "torch2.11.0-cu130" / "cpu").rename(tmp_path / "torch2.6.0-cu124" / "cpu")
    assert "Known differences" not in printed(capfd, older_release, tmp_path / "bare-torch2.11.0-cu130" / "sm_90")


def test_diff_tells_a_change_of_notes_that_many_cells_share_once(capfd, tmp_path):
    noted = Difference("example", "environ['A']", "state", unlike="environment")
    other_note = Difference("example", "environ['B']", "state", unlike="environment")
    cases = [f"a::case{number}" for number in range(30)]
    old: list[Record] = [right(case=case) for case in cases]
    new = [right(case=case, noted=(noted,)) for case in cases[1:]] + [right(case=cases[0], noted=(noted, other_note))]
    for name, rows in (("old", old), ("new", new)):
        (tmp_path / name).mkdir()
        write_jsonl(tmp_path / name / "conformance.jsonl", rows)
    out = printed(capfd, tmp_path / "old", tmp_path / "new")
    assert "29 cells whose notes changed alike:" in out
    assert "environ['A']: state: another value than eager leaves (a::case1::jit.trace and 28 more)" in out
    assert out.count("a::case") == 2
