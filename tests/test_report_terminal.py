"""The summary that a run prints on a terminal: the matrix, lines of silently wrong cells, and progress."""

import io
import re
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from recapture.records.difference import Difference
from recapture.records.directories import read_results
from recapture.records.record import ErrorInfo, Record
from recapture.records.verdicts import SILENTLY_WRONG, Verdict
from recapture.report.run_progress import RunProgress
from recapture.report.terminal_summary import print_summary

BARE = Path(__file__).parent / "resources" / "results" / "images" / "bare-torch2.11.0-cu130" / "cpu"


@pytest.fixture
def results():
    return read_results(BARE)


def printed(results, *, width, environment=True):
    console = Console(file=io.StringIO(), width=width)
    print_summary(console, results.records, results.environment if environment else None, results.directory)
    return console.file.getvalue()


def record(case="s::c", verdict=Verdict.PASS, compiler="compile", **fields):
    return Record(case=case, compiler=compiler, device="cpu", verdict=verdict, case_hash="0", **fields)


def likely(*names, seconds=1.0):
    """What cells are likely to take, for `RunProgress.start`."""
    return {name if name.count("::") == 2 else f"{name}::compile": seconds for name in names}


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_the_matrix_fits_100_columns_and_has_a_mark_for_each_cell(results):
    lines = printed(results, width=100).splitlines()
    (row,) = (line for line in lines if line.startswith("  branch_on_sum"))
    assert len(row) <= 100
    assert row.split() == ["branch_on_sum", "P", "P", "e", "w", "E", "w"]
    assert any(line.startswith("1 eager · 2 compile · 3 compile:dynamic") for line in lines)


def test_a_narrow_console_gets_counts_by_compiler_instead(results):
    lines = printed(results, width=40).splitlines()
    assert not any(line.startswith("  branch_on_sum") for line in lines)
    (row,) = (line for line in lines if line.startswith("compile "))
    assert row.split() == ["compile", "5", "2", "0", "1"]


@pytest.mark.parametrize("width", [40, 100])
def test_every_silent_wrong_has_one_line(results, width):
    out = printed(results, width=width)
    wrong = [row for row in results.records if row.verdict in SILENTLY_WRONG]
    assert f"silently wrong: {len(wrong)}\n" in out
    for row in wrong:
        assert len([line for line in out.splitlines() if f" {row.cell}: on {row.input}, " in line]) == 1


def test_notes_are_counted_by_kind_and_a_suspect_reference_is_named():
    alias = Difference("example", "result", "alias", "")
    differences = (Difference("example", "result", "value", "eager 1, this 2"),)
    rows = [
        record("s::b", Verdict.WRONG, name, differences=differences, noted=(alias,))
        for name in ("fx", "jit.trace", "export")
    ]
    console = Console(file=io.StringIO(), width=200)
    print_summary(
        console, [*rows, record("s::b", Verdict.WRONG, "compile", differences=differences)], None, Path("results")
    )
    out = console.file.getvalue()
    assert "differences that do not decide a verdict: 3 cells (alias 3)\n" in out
    assert "reference suspect, 4 or more unrelated compilers show the same difference: s::b\n" in out
    console = Console(file=io.StringIO(), width=200)
    print_summary(console, [record()], None, Path("results"))
    assert "differences that do not decide" not in console.file.getvalue()


def wrongs(number, compilers=("compile", "compile:eager", "fx")):
    by_value = (Difference("held_out[0]", "result", "value", "eager 1, this 2"),)
    by_dtype = (Difference("example", "result", "dtype", ""),)
    return [
        record(f"s::c{i:02}", Verdict.WRONG, name, differences=by_dtype if name == "fx" else by_value)
        for i in range(number)
        for name in compilers
    ]


def summary_of(records, *, width, terminal=True):
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
    print_summary(console, records, None, Path("results/image/cpu"))
    return console.file.getvalue().split("\nsilently wrong")[1].splitlines()


@pytest.mark.parametrize("width", [80, 160])
def test_many_silent_wrongs_are_one_line_a_case_and_the_rest_is_counted(width):
    title, headers, *lines, last = summary_of([*wrongs(24), *wrongs(25, ("make_fx",))[24:]], width=width)
    assert title == ": 73 cells of 25 cases (value 49, dtype 24)"
    assert headers.split() == ["cells", "case", "what", "differs", "compilers"]
    assert len(lines) == 20
    assert " ".join(lines[0].split()) == "3 s::c00 value on held_out[0] (+1 more) compile, compile:eager, fx"
    assert last == "and 5 more cases (13 cells): see results/image/cpu/conformance.md"
    assert max(map(len, lines)) <= width


def test_compilers_that_do_not_fit_are_named_by_family_or_counted():
    names = ("compile", "compile:aot_eager", "compile:dynamic", "compile:fullgraph", "fx", "export", "export:nonstrict")

    def compilers_named(width, **how):
        return re.split("held_out.0.(?: ..1 more.)?", summary_of(wrongs(2, names), width=width, **how)[-2])[1].strip()

    assert compilers_named(140) == ", ".join(names)
    assert compilers_named(80) == "compile ×4, fx, export ×2"
    assert compilers_named(50) == "compile ×4, +3"
    assert compilers_named(60, terminal=False) == ", ".join(names)  # a pipe has no width: 160 characters are allowed


@pytest.mark.parametrize("width", [80, 400])
def test_without_a_terminal_no_line_about_silent_wrongs_has_more_than_160_characters(width):
    names = [f"compile:{mode}" for mode in "abcdefghijklmnopqrst"]
    cases = wrongs(2, ("compile", *names, "jit.trace", "fx", "export"))
    long_name = record("s::" + "c" * 200, Verdict.WRONG, "fx", differences=cases[0].differences)
    assert summary_of(cases, width=width, terminal=False)[2].endswith("  compile ×21, jit.trace, fx, export")
    assert max(map(len, summary_of([*cases, long_name], width=width, terminal=False))) <= 160


def test_a_run_of_very_many_cases_gets_counts_instead_of_a_matrix():
    out = io.StringIO()
    print_summary(Console(file=out, width=200), [record(f"s::c{i}") for i in range(101)], None, Path())
    assert len(out.getvalue().splitlines()) < 10
    assert ["compile", "101", "0", "0", "0"] in [line.split() for line in out.getvalue().splitlines()]


def test_the_summary_shows_counts_claims_faults_and_missing_suites(results):
    out = printed(results, width=100)
    assert "23 planned = 23 recorded: 6 pass, 2 pass_with_breaks, " in out
    assert "suite broken could not be collected: SyntaxError: '(' was never closed" in out
    assert "the machine is at fault: python-headers: no Python.h" in out
    assert "  5 reproduced: T1, T10, T12, T13, T16\n" in out
    assert "  1 not reproduced: S5\n" in out
    assert "failing: 7, in 6 different ways\n" in out


def test_an_incomplete_run_is_called_that(results):
    cut_off = msgspec.structs.replace(results.environment, planned=30)
    console = Console(file=io.StringIO(), width=100)
    print_summary(console, results.records, cut_off, results.directory)
    assert "30 planned, but only 23 recorded" in console.file.getvalue()


def test_a_summary_needs_neither_environment_nor_records(results):
    assert "an unknown environment on cpu\n23 recorded: " in printed(results, width=100, environment=False)
    console = Console(file=io.StringIO(), width=100)
    print_summary(console, [], None, Path())
    assert "0 recorded: none" in console.file.getvalue()


def test_square_brackets_in_records_are_not_taken_for_markup():
    odd = record(verdict=Verdict.WRONG, differences=(Difference("held_out[0]", "[bold]x[/bold]", "value", "[/red]"),))
    console = Console(file=io.StringIO(), width=100)
    print_summary(console, [odd], None, Path())
    assert "on held_out[0], [bold]x[/bold]: value: [/red]" in console.file.getvalue()


def failing(case, error, verdict=Verdict.ERROR):
    return record(case, verdict, phase="capture", error=ErrorInfo(error, f"cannot {error}\nand so on", error))


def test_failures_are_grouped_by_message_the_most_common_first():
    console = Console(file=io.StringIO(), width=100)
    killed = record("s::killed", Verdict.CRASH, phase="call", reason="died of SIGSEGV")
    print_summary(
        console, [failing("s::a", "m.KeyError"), *(failing(f"s::{i}", "E") for i in "bc"), killed], None, Path()
    )
    assert console.file.getvalue().endswith(
        "failing: 4, in 3 different ways\n"
        "   2 error(capture):E, s::b::compile: cannot E\n"
        "   1 crash, s::killed::compile: died of SIGSEGV\n"
        "   1 error(capture):KeyError, s::a::compile: cannot m.KeyError\n"
    )


def test_of_many_failures_ten_are_listed_with_the_place_of_the_others():
    console = Console(file=io.StringIO(), width=60, force_terminal=True)
    rows = [failing(f"s::c{i:02}", f"Error{i:02}" + "x" * 60) for i in range(13)]
    print_summary(console, rows, None, Path("results/image/cpu"))
    *_, first, last = (line for line in console.file.getvalue().splitlines() if line.startswith(("   1 ", "and ")))
    assert first.startswith("   1 error(capture):Error09x")
    assert len(first) <= 60
    assert last == "and 3 more: see results/image/cpu/conformance.md"


def test_one_failure_is_not_said_to_be_different():
    console = Console(file=io.StringIO(), width=100)
    print_summary(console, [failing("s::a", "E")], None, Path())
    assert "\nfailing: 1\n   1 error(capture):E, " in console.file.getvalue()


# Progress


def test_without_a_terminal_progress_speaks_at_most_every_ten_seconds_and_without_control_codes():
    clock = Clock()
    console = Console(file=io.StringIO(), width=100)
    with RunProgress(console, clock=clock) as progress:
        progress.start({f"s::c{i}::compile": 0.5 for i in range(100)}, 1, guessed=False)
        for i in range(100):
            progress.cell_started(f"s::c{i}::compile")
            clock.now += 0.5
            progress.cell_finished(record(f"s::c{i}"), 0.5)
    lines = console.file.getvalue().splitlines()
    assert "\x1b" not in console.file.getvalue()
    assert "\r" not in console.file.getvalue()
    assert lines[0] == "100 cells, about 50 s"
    assert lines[1].startswith("20/100: 40 s left, 0 silently wrong, 0 failing")
    assert lines[-1] == "100/100 cells in 50 s: 0 silently wrong, 0 failing"
    assert len(lines) == 2 + 5


def test_a_silent_wrong_is_reported_at_once_and_failures_are_counted():
    console = Console(file=io.StringIO(), width=100)
    wrong = record("s::bad", Verdict.SPECIALIZED, differences=(Difference("held_out[0]", "result", "value", "by 3.2"),))
    with RunProgress(console, clock=Clock()) as progress:
        progress.start(likely("s::bad", "s::slow", "s::right"), 1, guessed=True)
        progress.cell_finished(wrong, 0.1)
        assert "silently wrong: w s::bad::compile: on held_out[0], result: value: by 3.2\n" in console.file.getvalue()
        progress.cell_finished(record("s::slow", Verdict.TIMEOUT), 60.0)
        assert "gave up after 1 min 00 s: s::slow::compile\n" in console.file.getvalue()
    assert console.file.getvalue().endswith("2/3 cells in 0 s (stopped): 1 silently wrong, 1 failing\n")


def test_progress_names_a_silently_wrong_case_once_and_ten_of_them():
    console = Console(file=io.StringIO(), width=100)
    with RunProgress(console, clock=Clock()) as progress:
        cells = wrongs(15)
        progress.start(likely(*(cell.cell for cell in cells)), 1, guessed=True)
        for cell in cells:
            progress.cell_finished(cell, 0.1)
    lines = [line for line in console.file.getvalue().splitlines() if line.startswith("silently wrong")]
    assert [line.split()[3] for line in lines[:10]] == [f"s::c{i:02}::compile:" for i in range(10)]
    assert lines[10:] == ["silently wrong: more cases; the summary at the end lists them"]
    assert console.file.getvalue().endswith("45/45 cells in 0 s: 45 silently wrong, 0 failing\n")


def test_one_cell_is_not_said_to_be_several():
    console = Console(file=io.StringIO(), width=100)
    with RunProgress(console, clock=Clock()) as progress:
        progress.start(likely("s::c"), 1, guessed=True)
        progress.cell_finished(record(), 0.1)
    assert console.file.getvalue() == "1 cell\n1/1 cell in 0 s: 0 silently wrong, 0 failing\n"


def test_on_a_terminal_a_bar_shows_what_is_running():
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with RunProgress(console, clock=Clock()) as progress:
        progress.start(likely("s::c", "s::d", "s::e", "s::f", seconds=25.0), 1, guessed=False)
        progress.cell_started("s::c::compile")
        progress._progress.refresh()
        assert "0/4" in console.file.getvalue()
        assert "1 min 40 s left, 0 silently wrong, 0 failing; s::c::compile" in console.file.getvalue()
        progress.cell_finished(record(), 1.0)
        progress._progress.refresh()
        assert "1/4" in console.file.getvalue()


def test_a_long_list_of_running_cells_stays_on_one_line():
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    with RunProgress(console, clock=Clock()) as progress:
        progress.start(likely("s::c", "s::d", "s::e", "s::f"), 1, guessed=True)
        for i in range(8):
            progress.cell_started(f"a_long_suite_name::a_long_case_name_{i}::compile")
        assert len(progress._state()) <= 80 - 16


def test_without_an_estimate_nothing_is_promised_before_the_first_cell():
    with RunProgress(Console(file=io.StringIO()), clock=Clock()) as progress:
        progress.start(likely("s::c", "s::d"), 1, guessed=True)
        assert progress.seconds_left() is None
