"""Leaving TorchScript: lines in the way, rewrites that really pass, and what becomes of the cells of results."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import records_below, run_in_process

from recapture.base.errors import UsageError
from recapture.command.main import _run
from recapture.records.difference import Difference
from recapture.records.record import ErrorInfo, Record, read_conformance, write_jsonl
from recapture.records.verdicts import RIGHT, Verdict
from recapture.tools.check import session
from recapture.tools.check.answers import ASK_MIGRATE, CheckReport, CheckRow
from recapture.tools.check.migration import (
    MOVES,
    REWRITES,
    MigrationReport,
    hints,
    lines_in_the_way,
    migration_text,
    moves,
    moves_text,
    rewrites_for,
)
from recapture.tools.check.obstacles import Obstacle
from recapture.tools.check.report import check_details

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "results" / "torch2.11.0-cu130" / "cpu"

MODEL = """
import torch


class Old(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            x = x * 2
        return x


def limit(x):
    for _ in range(6):
        x = x * 2
        if x.sum() > 30:
            break
    return x


def looked_up(x):
    return x * len(__import__("os").environ)


def plain(x):
    return x + 1
"""


def record(case, compiler, verdict, message=""):
    fields = {}
    if verdict is Verdict.ERROR:
        fields = {"phase": "capture", "error": ErrorInfo("torch.Unsupported", message, "f")}
    if verdict is Verdict.WRONG:
        fields = {"input": "example", "differences": (Difference("example", "result", "value", "other"),)}
    return Record(case=case, compiler=compiler, device="cpu", verdict=verdict, case_hash="h", **fields)


def planted():
    kinds = {
        "s::right": (Verdict.PASS, Verdict.PASS_WITH_BREAKS),
        "s::refused": (Verdict.PASS, Verdict.ERROR),
        "s::wrong": (Verdict.PASS, Verdict.WRONG),
        "t::fixed": (Verdict.ERROR, Verdict.PASS),
        "t::never": (Verdict.ERROR, Verdict.ERROR),
        "t::unknown": (Verdict.PASS, Verdict.NOT_APPLICABLE),
    }
    return [
        record(case, compiler, verdict, "Guard failed: x.size()[0] == 4")
        for case, verdicts in kinds.items()
        for compiler, verdict in zip(("jit.script", "export"), verdicts, strict=True)
    ]


# --- over results ---------------------------------------------------------------------------------------------------------


def test_every_case_has_one_kind_and_what_says_nothing_is_counted():
    migration = moves(planted(), "jit.script", "export", "here")
    assert {move.case: move.kind for move in migration.moves} == {
        "s::right": "still_right",
        "s::refused": "now_refused",
        "s::wrong": "now_wrong",
        "t::fixed": "newly_right",
        "t::never": "still_not_right",
    }
    assert migration.left_out == 1
    assert [migration.count(kind, "s") for kind in MOVES] == [1, 1, 1, 0, 0]
    lines = moves_text(migration).splitlines()
    assert " ".join(map(str.strip, lines[: lines.index("")])) == (
        "here: jit.script → export: 1 still right, 1 now refused, 1 now wrong, 1 newly right, 1 still not right; "
        "1 case not compared"
    )
    assert "  s::wrong: pass → wrong (value on example)" in lines
    assert max(map(len, lines)) <= 80


def test_refusals_of_one_reason_are_one_group_with_the_rewrite():
    rows = [
        row
        for number, name in enumerate("abc")
        for row in (
            record(f"s::{name}", "jit.script", Verdict.PASS),
            record(f"s::{name}", "export", Verdict.ERROR, f"Guard failed: {name}.size()[{number}] == 4"),
        )
    ]
    (group,) = moves(rows, "jit.script", "export").refused
    assert group.cases == ("s::a", "s::b", "s::c")
    assert group.rewrites == ("a size of the example: export with dynamic shapes, as the compiler export:dynamic does",)


def test_an_unknown_compiler_is_named():
    with pytest.raises(UsageError, match=r"no record of compiler 'jit.skript' in x; did you mean 'jit.script'"):
        moves(planted(), "jit.skript", "export", "x")


def test_the_committed_results_are_compared(capsys):
    assert _run(["report", str(RESULTS), "--from", "jit.script", "--to", "export", "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    rows = {(row.case, row.compiler): row.verdict for row in read_conformance(RESULTS)}
    for move in document["moves"]:
        after = rows[move["case"], "export"]
        assert (move["kind"] in ("still_right", "newly_right")) == (after in RIGHT)
    assert sum(len(group["cases"]) for group in document["refused"]) == sum(
        move["kind"] == "now_refused" for move in document["moves"]
    )


def test_migrate_does_not_advise_itself():
    row = CheckRow(compiler="export", verdict="error", phase="capture", reason="capture: no", advice=ASK_MIGRATE)
    report = CheckReport(target="f", torch="2.11.0", device="cpu", rows=(row,))
    assert "recapture migrate" in check_details(report)
    text = migration_text(MigrationReport(report=report, lines=()))
    assert "capture: no" in text
    assert "to do" not in text


def test_results_without_a_compiler_are_one_line_and_a_misspelt_one_is_named(tmp_path, capsys):
    for image, compiler in (("torch2.5.1-cu124", "fx"), ("torch2.6.0-cu124", "fx"), ("torch2.7.1-cu126", "export")):
        folder = tmp_path / image / "cpu"
        folder.mkdir(parents=True)
        rows = [record("s::a", name, Verdict.PASS) for name in ("eager", "jit.script", compiler)]
        write_jsonl(folder / "conformance.jsonl", rows)
    assert _run(["report", str(tmp_path), "--from", "jit.script", "--to", "export"]) == 0
    out, err = capsys.readouterr()
    assert "1 still right" in out
    without = ", ".join(str(tmp_path / image / "cpu") for image in ("torch2.5.1-cu124", "torch2.6.0-cu124"))
    assert " ".join(err.split()) == f"recapture: left out, without a record of jit.script or export: {without}"
    assert _run(["report", str(tmp_path), "--from", "jit.script", "--to", "exprot"]) == 2
    assert "no record of compiler 'exprot'; did you mean 'export'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--from", "jit.script"], "belong together"),
        (["--from", "jit.script", "--to", "expert"], "did you mean 'export'?"),
    ],
)
def test_bad_usage_of_the_report_is_one_line(capsys, words, complaint):
    assert _run(["report", str(RESULTS), *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


# --- rewrites -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.case)
def test_a_rewrite_is_a_case_beside_its_original(rewrite):
    for address in (rewrite.case, rewrite.original):
        suite, _, name = address.partition("::")
        text = (REPOSITORY / "suites" / f"{suite}.py").read_text(encoding="utf-8")
        assert re.search(rf"^def {name}\(", text, re.MULTILINE), address
        if f"rewrite_of={name}" in text:
            assert address == rewrite.original


NEWEST = [
    path for path in (REPOSITORY / "results").glob("torch2.1[1-9]*/cpu") if (path / "conformance.jsonl").is_file()
]


@pytest.mark.parametrize("results", sorted(NEWEST), ids=lambda folder: folder.parent.name)
def test_rewrites_pass_in_the_committed_records(results):
    """Those that are recorded there; `test_every_rewrite_passes_under_export` runs all of them."""
    cases = {rewrite.case for rewrite in REWRITES}
    verdicts = {
        row.cell: str(row.verdict)
        for row in read_conformance(results)
        if row.case in cases and row.compiler in ("export", "export:dynamic", "compile")
    }
    assert set(verdicts.values()) <= {"pass"}


@pytest.mark.slow
def test_every_rewrite_passes_under_export(warm, tmp_path):
    assert run_in_process(*(rewrite.case for rewrite in REWRITES), "--compiler", "export", "--results", tmp_path) == 0
    records = records_below(tmp_path)
    assert {row.case: str(row.verdict) for row in records.values()} == {rewrite.case: "pass" for rewrite in REWRITES}


@pytest.mark.parametrize(
    ("reason", "line", "following", "case"),
    [
        ("Data-dependent branching", "if x.sum() > 0:", "x = x * 2", "both_paths_and_a_choice"),
        ("Data-dependent branching", "if x.sum() > 30:", "break", "masks_instead_of_breaking"),
        ("Data-dependent branching", "while x.sum() < 100:", "x = x * 2", "while_loop_as_a_rewrite"),
        ("Could not guard on data-dependent expression u0 > 0", "return y if x.max() > 0 else z", "", "both_paths"),
        ("Converting a tensor to a Python boolean might …", "elif bool(x.any()):", "", "both_paths_and_a_choice"),
        (
            "Dynamic shape operator: aten.nonzero.default",
            "return x[x > 0].mean()",
            "",
            "mean_of_the_positive_by_weights",
        ),
        ("sort with non-constant keys", "for one in sorted(items, key=first):", "", "sorts_rows_by_value"),
        ("anything", "h[h < 0] = 0.0", "", "selects_by_a_mask"),
        ("anything", "x.diagonal().fill_(7)", "", "scatters_the_diagonal"),
        ("anything", "y.detach_()", "", "detached_copy"),
        (
            "python value of type 'dict' cannot be used as a value. Perhaps it is a closed over global variable?",
            "C['n'] += 1",
            "",
            "state_in_and_out",
        ),
    ],
)
def test_the_rewrite_is_found_by_reason_and_line(reason, line, following, case):
    assert case in rewrites_for(reason, line, following)[0].case
    assert case in hints(reason, line, following)[0]


@pytest.mark.parametrize("line", ["x = x * 2", "y = x[0] == 1", "return x.diagonal()", "if True:", "names.sort()"])
def test_other_code_has_no_rewrite(line):
    assert rewrites_for("some other reason", line) == []


def test_obstacles_on_one_line_are_shown_together_and_those_without_a_line_last():
    at = {"file": "m.py", "line": 3, "text": "if x.sum() > 0:"}
    lines = lines_in_the_way(
        (
            Obstacle(compiler="aoti", kind="refused", reason="died of signal 11"),
            Obstacle(compiler="export", kind="refused", reason="Data-dependent branching", **at),
            Obstacle(compiler="export:dynamic", kind="refused", reason="Data-dependent branching", **at),
            Obstacle(compiler="compile", kind="break", reason="generic_jump", **at),
        )
    )
    assert [line.line for line in lines] == [3, 0]
    assert lines[0].reasons == (
        ("export refuses it, export:dynamic refuses it", "Data-dependent branching"),
        ("compile breaks the graph", "generic_jump"),
    )
    assert len(lines[0].rewrites) == 2


# --- the command ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def model(warm, monkeypatch, tmp_path):
    monkeypatch.setattr(session, "WorkerPool", lambda **_: warm)
    path = tmp_path / "old.py"
    path.write_text(MODEL)
    return path


def migrated(capsys, target, *compilers):
    words = [word for name in compilers for word in ("--compiler", name)]
    assert _run(["migrate", target, "--input", "3", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_line_that_each_compiler_stumbles_over_is_named(model, capsys):
    migration = migrated(capsys, f"{model}:Old", "jit.script", "jit.trace", "export", "compile:eager")
    assert "today jit.script right, jit.trace silently wrong on " in migration["sentence"]
    assert "it can move to compile:eager" in migration["sentence"]
    (line,) = migration["lines"]
    assert (line["file"], line["line"], line["text"]) == ("old.py", 7, "if x.sum() > 0:")
    assert [who for who, _ in line["reasons"]] == [
        "jit.trace records a constant",
        "compile:eager breaks the graph",
        "export refuses it",
    ]
    assert "both_paths_and_a_choice" in line["rewrites"][0]


def test_a_break_in_a_loop_has_its_own_rewrite(model, capsys):
    migration = migrated(capsys, f"{model}:limit", "export")
    assert "masks_instead_of_breaking" in migration["lines"][0]["rewrites"][0]


def test_torchscript_names_the_line_too(model, capsys):
    migration = migrated(capsys, f"{model}:looked_up", "jit.script")
    assert (migration["lines"][0]["line"], migration["lines"][0]["text"][:6]) == (21, "return")


def test_nothing_stands_in_the_way_of_plain_code(model, capsys):
    words = ["--compiler", "jit.script", "--compiler", "fx"]
    assert _run(["migrate", f"{model}:plain", "--input", "3", *words]) == 0
    out = capsys.readouterr().out
    assert "in the way" not in out
    assert "today jit.script right; it can move to fx" in " ".join(out.split())


def test_no_answer_is_given_for_compilers_that_were_not_asked_for(model, capsys):
    assert _run(["migrate", f"{model}:plain", "--input", "3", "--compiler", "jit.script"]) == 0
    assert "today jit.script right; no other compiler was asked for" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "complaint"),
    [(["absent.py:f"], "no such file"), (["x"], "a target is written as"), (["math:nothing"], "has no 'nothing'")],
)
def test_a_target_that_cannot_be_used_is_one_line(model, capsys, words, complaint):
    assert _run(["migrate", *words, "--compiler", "fx"]) == 2
    assert complaint in capsys.readouterr().err.splitlines()[-1]
