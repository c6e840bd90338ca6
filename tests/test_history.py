"""One cell through the releases: transitions, edited cases, missing releases, and the forms of the output."""

import dataclasses
import json
import shutil
from pathlib import Path

import msgspec
import pytest
from command_lines import recapture
from planted_records import evidence

from recapture.base.errors import UsageError
from recapture.machine.environment import ENVIRONMENT, read_environment, write_environment
from recapture.records import directories
from recapture.records.difference import Difference
from recapture.records.record import Record, write_jsonl
from recapture.records.releases import read_by_age, version_key
from recapture.records.verdicts import Verdict
from recapture.report.history import history
from recapture.tools.compare.history_report import to_markdown

RESOURCES = Path(__file__).parent / "resources" / "results"
IMAGES = RESOURCES / "images"


@pytest.fixture
def releases(tmp_path):
    """One cell on five releases, without environments: the image's name says which torch it was."""

    def put(image, verdict, case_hash="0"):
        directory = tmp_path / image / "cpu"
        directory.mkdir(parents=True)
        row = Record(
            case="s::c", compiler="compile", device="cpu", verdict=verdict, case_hash=case_hash, **evidence(verdict)
        )
        (directory / "conformance.jsonl").write_bytes(msgspec.json.encode(row) + b"\n")

    put("torch2.10.0-cu130", Verdict.PASS)
    put("torch2.9.1-cu128", Verdict.WRONG)
    put("torch2.2.2-cu121", Verdict.WRONG)
    put("torch2.0.1-cu118", Verdict.PASS)
    put("bare-torch2.10.0-cpu", Verdict.PASS, "edited")
    return tmp_path


def test_versions_are_in_the_order_of_releases():
    versions = ["2.10.0", "2.9.1+cu128", "2.9.1+cpu", "2.13.0.dev20260101", "2.13.0", "2.0.1", "unknown"]
    assert sorted(versions, key=version_key) == [
        "unknown",
        "2.0.1",
        "2.9.1+cpu",
        "2.9.1+cu128",
        "2.10.0",
        "2.13.0.dev20260101",
        "2.13.0",
    ]


def test_a_cell_is_followed_release_by_release_and_transitions_are_marked(releases):
    (cell_history,) = history("s::c::compile", releases)
    entries = [(entry.torch, str(entry.record.verdict), entry.changed, entry.edited) for entry in cell_history.entries]
    assert entries == [
        ("2.0.1+cu118", "pass", False, False),
        ("2.2.2+cu121", "wrong", True, False),
        ("2.9.1+cu128", "wrong", False, False),
        ("2.10.0+cpu", "pass", True, True),
        ("2.10.0+cu130", "pass", True, False),
    ]


@pytest.mark.parametrize(
    ("judges", "verdicts", "changed"),
    [
        ((2, 2), (Verdict.WRONG, Verdict.WRONG), True),
        ((1, 2), (Verdict.WRONG, Verdict.WRONG), False),
        ((1, 2), (Verdict.SPECIALIZED, Verdict.WRONG), False),
        ((1, 2), (Verdict.PASS, Verdict.WRONG), True),
        ((1, 2), (Verdict.WRONG, Verdict.ERROR), True),
    ],
)
def test_what_another_version_of_the_judge_sees_of_a_wrong_result_is_no_change(tmp_path, judges, verdicts, changed):
    environment = read_environment(IMAGES / "bare-torch2.11.0-cu130" / "cpu")
    for minor, (judge, verdict) in enumerate(zip(judges, verdicts, strict=True)):
        image = f"torch2.{minor}.0-cu118"
        directory = tmp_path / image / "cpu"
        directory.mkdir(parents=True)
        fields = evidence(verdict)
        if minor == 0 and "differences" in fields:
            fields["differences"] = (dataclasses.replace(fields["differences"][0], kind="alias"),)
        row = Record(case="s::c", compiler="compile", device="cpu", verdict=verdict, case_hash="0", **fields)
        write_jsonl(directory / "conformance.jsonl", [row])
        torch = msgspec.structs.replace(environment.torch, version=f"2.{minor}.0")
        known = msgspec.structs.replace(environment, image=image, torch=torch, planned=1, recorded=1, judge=judge)
        write_environment(directory / ENVIRONMENT, known)
    (cell_history,) = history("s::c::compile", tmp_path)
    assert [entry.changed for entry in cell_history.entries] == [False, changed]


def test_what_a_drifted_twin_changed_is_no_change_of_the_next_release(tmp_path):
    for image, verdict in (
        ("torch2.6.0-cu124", Verdict.PASS),
        ("torch2.6.0-cu124-drifted", Verdict.ERROR),
        ("torch2.9.1-cu128", Verdict.PASS),
    ):
        directory = tmp_path / image / "cpu"
        directory.mkdir(parents=True)
        row = Record(case="s::c", compiler="compile", device="cpu", verdict=verdict, case_hash="0", **evidence(verdict))
        (directory / "conformance.jsonl").write_bytes(msgspec.json.encode(row) + b"\n")
    histories = history("s::c", tmp_path)
    assert [entry.changed for entry in histories[0].entries] == [False, True, False]
    text = to_markdown(histories)
    assert "2.6.0 pass → 2.6.0 drifted error" in text
    assert text.count("→") == 3  # the cell in the table, the line below it, and the legend


def test_a_cell_missing_from_a_release_does_not_hide_a_transition(releases):
    (releases / "torch2.2.2-cu121" / "cpu" / "conformance.jsonl").write_bytes(b"")
    (cell_history,) = history("s::c::compile", releases)
    assert [entry.record is None for entry in cell_history.entries] == [False, True, False, False, False]
    assert [entry.changed for entry in cell_history.entries] == [False, False, True, True, True]


def test_capabilities_are_distinguished():
    histories = history("foreign::dct::compile", IMAGES)
    assert [
        (cell_history.capability, [str(entry.record.verdict) for entry in cell_history.entries])
        for cell_history in histories
    ] == [
        ("cpu", ["error", "pass"]),
        ("sm_90", ["error"]),
    ]


@pytest.mark.parametrize("address", ["control_flow::branch_on_sum", "branch_on_sum"])
def test_a_case_selects_all_its_cells_in_the_order_of_the_reports(address):
    compilers = [cell_history.compiler for cell_history in history(address, IMAGES) if cell_history.capability == "cpu"]
    assert compilers == ["eager", "compile", "compile:fullgraph", "jit.trace", "fx", "make_fx"]


def test_a_name_with_a_compiler_is_one_cell():
    assert {cell_history.case for cell_history in history("dct::compile", IMAGES)} == {"foreign::dct"}


def test_text_of_one_cell_is_a_line_a_release_and_each_reason_once(capsys, releases):
    assert recapture("history", "s::c::compile", "--results", releases) == 0
    assert capsys.readouterr().out.splitlines() == [
        "s::c::compile on cpu",
        "  2.0.1          torch2.0.1-cu118      pass",
        "→ 2.2.2          torch2.2.2-cu121      wrong",
        "  2.9.1          torch2.9.1-cu128      wrong",
        "→ 2.10.0 (bare)  bare-torch2.10.0-cpu  pass   (the case was edited)",
        "→ 2.10.0         torch2.10.0-cu130     pass",
        "  2.2.2 to 2.9.1 (2 releases): on example, result: value",
        "first bad in 2.2.2 (wrong (value)), after 2.0.1",
        "fixed in 2.10.0 (pass), after 2.9.1",
    ]


def test_text_of_one_cell_names_the_releases_without_it_once(capsys, releases):
    (releases / "torch2.2.2-cu121" / "cpu" / "conformance.jsonl").write_bytes(b"")
    assert recapture("history", "s::c::compile", "--results", releases) == 0
    out = capsys.readouterr().out
    assert "torch2.2.2-cu121" not in out
    assert "\nNot recorded with 2.2.2.\n" in out


def test_text_of_a_case_is_compilers_by_releases_with_the_transitions_below(capsys):
    assert recapture("history", "branch_on_sum", "--results", IMAGES) == 0
    out = capsys.readouterr().out
    on_cpu = out[: out.index("control_flow::branch_on_sum on sm_90")]
    (row,) = (line for line in on_cpu.splitlines() if line.startswith("compile "))
    assert row.split() == ["compile", "p", "→P"]
    assert "  compile: 2.6.0 pass_with_breaks → 2.11.0 (bare) pass\n" in out


def test_the_labels_of_a_table_are_whole_and_each_as_short_as_it_can_be(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    images = [f"torch{version}" for version in ("2.0.1-cu117", "2.3.1-cu121", "2.6.0-cu124", "2.6.0-cu124-drifted")]
    images += ["torch2.9.1-cu128", "bare-torch2.9.1-cu128", "torch2.11.0-cu128", "torch2.11.0-cu130"]
    for image in [*images, "torch2.15.0-cu132"]:
        case = "s::other" if image == "torch2.15.0-cu132" else "s::c"
        rows = [
            Record(case=case, compiler=name, device="cpu", verdict=Verdict.PASS, case_hash="0")
            for name in ("eager", "compile:reduce-overhead")
        ]
        (tmp_path / image / "cpu").mkdir(parents=True)
        write_jsonl(tmp_path / image / "cpu" / "conformance.jsonl", rows)
    assert recapture("history", "s::c", "--results", tmp_path) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[1:6] == [
        "compiler                 2.0.1  2.3.1  2.6.0   2.6.0   2.9.1  2.9.1   2.11.0+cu128  2.11.0+cu130",
        "                                              drifted         (bare)",
        "eager                      P      P      P       P       P      P          P             P",
        "compile:reduce-overhead    P      P      P       P       P      P          P             P",
        "Not recorded with 2.15.0.",
    ]
    assert "Not recorded with 2.15.0." in to_markdown(history("s::c", tmp_path))


def test_markdown_has_a_table_for_each_capability():
    markdown = to_markdown(history("branch_on_sum", IMAGES))
    assert "## `control_flow::branch_on_sum` on `cpu`" in markdown
    (row,) = (line for line in markdown.splitlines() if line.startswith("| `compile` ") and "→" in line)
    assert [cell.strip() for cell in row.strip("|").split("|")] == ["`compile`", "p", "→P"]


def test_json_holds_the_records_whole(capsys):
    assert recapture("history", "foreign::dct::compile", "--results", IMAGES, "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 3
    assert document["histories"][0]["entries"][0]["record"]["error"]["fingerprint"]


@pytest.mark.parametrize(
    ("address", "nearest"),
    [
        ("branch_on_sun", "branch_on_sum"),
        ("control_flow::branch_on_sun", "control_flow::branch_on_sum"),
        ("foreign::dct::compil", "foreign::dct::compile"),
    ],
)
def test_an_unknown_cell_is_one_line_with_the_nearest_name_and_exit_status_2(address, nearest, capsys):
    assert recapture("history", address, "--results", IMAGES) == 2
    assert capsys.readouterr().err == (f"recapture: no results have a cell {address!r}; did you mean {nearest!r}?\n")


@pytest.mark.parametrize("is_checkout", [True, False])
def test_without_results_the_place_of_the_committed_ones_is_said(is_checkout, tmp_path, monkeypatch, capsys):
    checkout = tmp_path / "checkout"
    (checkout / "results").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.setattr(directories, "CHECKOUT", checkout if is_checkout else tmp_path / "site-packages")
    assert recapture("history") == 2
    where = (
        f"the committed results are in {checkout}/results"
        if is_checkout
        else "the installed package has no results; they are in that folder of a checkout of its repository"
    )
    assert capsys.readouterr().err == f"recapture: results does not exist: {where}\n"


def test_a_missing_results_directory_and_records_of_the_future_are_usage_errors(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        history("a::b", tmp_path / "nowhere")
    shutil.copytree(RESOURCES / "future", tmp_path / "results")
    with pytest.raises(UsageError, match="record schema 99 is not understood"):
        history("a::b", tmp_path / "results")


def test_another_kind_of_difference_is_a_change_and_notes_are_named(tmp_path, capsys):
    for image, kinds, noted in (
        ("torch2.9.1-cu128", ["value"], []),
        ("torch2.10.0-cu128", ["value", "dtype"], ["alias"]),
        ("torch2.11.0-cu130", ["value", "dtype"], []),
    ):
        silent, notes = (tuple(Difference("example", "result", kind, "") for kind in some) for some in (kinds, noted))
        row = Record(
            case="s::c",
            compiler="fx",
            device="cpu",
            verdict=Verdict.WRONG,
            input="example",
            differences=silent,
            noted=notes,
            case_hash="0",
        )
        (tmp_path / image / "cpu").mkdir(parents=True)
        write_jsonl(tmp_path / image / "cpu" / "conformance.jsonl", [row])
    (cell_history,) = history("s::c::fx", tmp_path)
    assert [entry.changed for entry in cell_history.entries] == [False, True, False]
    assert "2.9.1 wrong (value) → 2.10.0 wrong (value, dtype): " in to_markdown([cell_history])
    recapture("history", "s::c::fx", "--results", tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert "  2.10.0: on example, result: value (and 1 more, also dtype); noted: alias" in lines
    assert "  2.11.0: on example, result: value (and 1 more, also dtype)" in lines


def test_results_of_one_image_in_two_folders_are_one_unless_they_have_a_cell_in_common(tmp_path):
    def put(folder, *cases):
        (tmp_path / folder).mkdir(parents=True)
        rows = [
            Record(
                case=case, compiler="fx", device="cpu", verdict=Verdict.PASS, case_hash="0", **evidence(Verdict.PASS)
            )
            for case in cases
        ]
        write_jsonl(tmp_path / folder / "conformance.jsonl", rows)

    put("torch2.6.0-cu124/cpu", "a::one", "a::two")
    put("exportdb/torch2.6.0-cu124/cpu", "exportdb::one")
    put("torch2.7.1-cu126/cpu", "a::one")
    put("again/torch2.7.1-cu126/cpu", "a::one")
    by_age = [(results.image, [row.case for row in results.records]) for results in read_by_age(tmp_path)]
    assert by_age == [
        ("torch2.6.0-cu124", ["a::one", "a::two", "exportdb::one"]),
        ("torch2.7.1-cu126", ["a::one"]),
        ("torch2.7.1-cu126", ["a::one"]),
    ]
