"""What the report of a benchmark and the terminal say of its rows, and which one they call best."""

import io
from pathlib import Path

import msgspec
import pytest
from planted_bench import row
from rich.console import Console

from recapture.command.main import main
from recapture.tools.speed.figures import derive
from recapture.tools.speed.remarks import best, best_first, eager_elsewhere, remarks
from recapture.tools.speed.report import print_speedups, render_speedups
from recapture.tools.speed.speedups import Claimed, Configuration, Start, read_speedups, write_speedups

MEASURED = Path(__file__).parent / "resources" / "speedups" / "measured.json"


@pytest.fixture(scope="module")
def stored():
    """What a real benchmark found; ``record.py`` beside the file wrote it."""
    return read_speedups(MEASURED)


def test_the_report_ranks_the_right_and_lists_the_rest(stored):
    text = render_speedups(stored)
    table = text[text.index("## `tiny_eval`") :]
    assert table.index("`slower fp32`") < table.index("`dies fp32`")
    assert "**crash**" in table
    assert "| X2      | not reproduced |" in text
    assert "0 of 1 right and in a steady state" in text
    assert "nan" not in text.lower().replace("finance", "")


@pytest.mark.parametrize(("finding", "expected"), [("slower", "never"), ("faster", "1,234")])
def test_the_terminal_also_shows_after_how_many_iterations_a_row_pays_back(stored, finding, expected):
    fx_row = row(stored, "tiny_eval", "fx")
    figures = msgspec.structs.replace(fx_row.measured, finding=finding, break_even_cold=1234)
    alone = msgspec.structs.replace(stored, rows=(msgspec.structs.replace(fx_row, measured=figures),), planned=1)
    console = Console(file=io.StringIO(), width=200)
    print_speedups(console, alone)
    for text in (console.file.getvalue(), render_speedups(alone)):
        assert expected in text
        assert "iterations" in text.split(expected)[0]
    assert "1 configuration planned" in render_speedups(alone)


def test_reports_are_rendered_again_from_the_rows(stored, tmp_path, capfd):
    path = tmp_path / "image" / "cpu" / "speedups-cpu.json"
    path.parent.mkdir(parents=True)
    write_speedups(path, stored)
    with pytest.raises(SystemExit) as left:
        main(["report", str(tmp_path)])
    assert left.value.code == 0
    assert path.with_suffix(".md").read_text() == render_speedups(stored)
    assert "tiny_train" in capfd.readouterr().out


def test_iterations_that_grow_and_kernels_that_fill_the_time_are_reported(stored):
    from msgspec.structs import replace

    slower_row = row(stored, "tiny_eval", "slower")
    slower_row = replace(slower_row, processes=slower_row.processes[:2])

    def timed(*samples):
        processes = [
            replace(process, candidate=replace(process.candidate, seconds=seconds))
            for process, seconds in zip(slower_row.processes, samples, strict=True)
        ]
        return remarks(replace(slower_row, processes=tuple(processes)))

    growing, flat = tuple(0.001 * (5 + i) for i in range(12)), (0.005,) * 12
    assert "no steady state: an iteration took 6.50 ms at first and 14.50 ms at last" in timed(growing, growing)
    assert not any("steady" in remark for remark in timed(growing, flat))
    busy = replace(slower_row, measured=replace(slower_row.measured, kernel=1.2 * slower_row.measured.seconds))
    assert "(all)" in render_speedups(replace(stored, rows=(busy,)))


def on_the_gpu(original, compiler, kernel, **fields):
    """A row as a GPU would have given it, with its kernels' seconds."""
    return msgspec.structs.replace(
        original,
        configuration=Configuration(compiler, "fp32"),
        measured=msgspec.structs.replace(original.measured, kernel=kernel),
        **fields,
    )


def test_autotuned_kernels_that_are_slower_than_the_default_kernels_are_reported(stored):
    fx_row = row(stored, "tiny_eval", "fx")
    plain, equal = on_the_gpu(fx_row, "compile", 0.010), on_the_gpu(fx_row, "compile:max-autotune", 0.0105)
    slow = on_the_gpu(fx_row, "compile:max-autotune", 0.018)
    message = "its kernels take 1.80× as long as those of compile fp32"
    assert message in remarks(slow, [plain, slow])
    for row_, rows in ((equal, [plain, equal]), (slow, [slow]), (plain, [plain, slow])):
        assert not any("as long as" in remark for remark in remarks(row_, rows))
    assert message in render_speedups(msgspec.structs.replace(stored, rows=(plain, slow)))


def test_the_stages_of_a_long_compile_are_reported(stored):
    fx_row = row(stored, "tiny_eval", "fx")
    cold = Start(capture=0.5, calls=(19.5, 0.1), stages={"Dynamo": 4.0, "autotuning": 15.0, "Inductor": 0.9})
    remark_lines = remarks(msgspec.structs.replace(fx_row, cold=cold))
    assert remark_lines[-1] == "compiling, cold: autotuning 15.0 s, Dynamo 4.0 s"
    short = msgspec.structs.replace(cold, capture=0.1, calls=(0.3,))
    for start in (short, msgspec.structs.replace(cold, stages=None), None):
        assert not any("compiling" in remark for remark in remarks(msgspec.structs.replace(fx_row, cold=start)))


def test_a_failure_says_its_reason_before_the_variables(stored):
    flags = {"env TRITON_PTXAS_PATH": "<path>"}
    remark_lines = remarks(msgspec.structs.replace(row(stored, "tiny_eval", "raises"), flags=flags))
    assert remark_lines[0].startswith("NotImplementedError")
    assert remark_lines[1] == "with TRITON_PTXAS_PATH=<path>"


def timed(original, compiler, speedup, **figures):
    """The same row of another compiler with other figures."""
    finding = "faster" if speedup[1] > 1.01 else "slower" if speedup[2] < 0.99 else "no difference shown"
    changed = {"speedup": speedup, "finding": finding, "break_even_cold": None, **figures}
    return msgspec.structs.replace(
        original,
        configuration=Configuration(compiler, "fp32"),
        measured=msgspec.structs.replace(original.measured, **changed),
    )


def test_of_rows_that_cannot_be_distinguished_the_best_pays_back_soonest(stored):
    fx_row = row(stored, "tiny_eval", "fx")
    leader = timed(fx_row, "compile:max-autotune", (4.5, 4.0, 5.1), break_even_cold=17_000.0)
    alike = timed(fx_row, "compile:reduce-overhead", (4.2, 4.1, 4.4), break_even_cold=6_700.0)
    apart = timed(fx_row, "compile", (3.0, 2.0, 3.9), break_even_cold=10.0)
    never = timed(fx_row, "aoti", (4.1, 4.0, 4.3))
    winner = best([apart, never, leader, alike])
    assert winner.row is alike
    assert {str(tie.configuration) for tie in winner.ties} == {"compile:max-autotune fp32", "aoti fp32"}
    assert best([leader, apart]).row is leader
    assert best([leader, apart]).ties == []
    assert [str(ranked.configuration.compiler) for ranked in best_first([apart, never, leader, alike])] == [
        "compile:reduce-overhead",
        "compile:max-autotune",
        "aoti",
        "compile",
    ]

    text = render_speedups(msgspec.structs.replace(stored, rows=(apart, leader, alike)))
    [line] = [line for line in text.splitlines() if line.startswith("| `tiny_eval` ")]
    assert [cell.strip() for cell in line.strip("|").split("|")] == [
        "`tiny_eval`",
        "`compile:reduce-overhead fp32`",
        "4.20× [4.10, 4.40]",
        "6,700",
        "`compile:max-autotune fp32`",
    ]


def test_what_is_not_faster_than_eager_is_not_the_best(stored):
    fx_row = row(stored, "tiny_eval", "fx")
    noisy = timed(fx_row, "compile", (1.4, 0.8, 2.1))
    slower = timed(fx_row, "aoti", (0.5, 0.4, 0.6))
    failed = row(stored, "tiny_eval", "dies")
    assert best([noisy, slower, failed]) is None
    for rows, message in (((noisy, failed), "none is faster than eager"), ((failed,), "none could be timed")):
        assert message in render_speedups(msgspec.structs.replace(stored, rows=rows))


def test_a_row_beside_which_eager_took_another_time_says_so(stored):
    fx_row = row(stored, "tiny_eval", "fx")
    usual = [timed(fx_row, name, (2.0, 1.9, 2.1), eager_seconds=0.030) for name in ("fx", "jit.trace", "jit.script")]
    for seconds in (0.075, 0.020):
        differing = timed(fx_row, "compile", (4.5, 4.0, 5.1), eager_seconds=seconds)
        assert eager_elsewhere(differing, [*usual, differing]) == 0.030
        message = f"eager took {1000 * seconds:.2f} ms beside it, 30.00 ms beside the other rows"
        assert message in remarks(differing, [*usual, differing])
        assert not any("beside the other rows" in remark for remark in remarks(usual[0], [*usual, differing]))
    near = timed(fx_row, "compile", (4.5, 4.0, 5.1), eager_seconds=0.036)
    assert eager_elsewhere(near, [*usual, near]) is None
    assert eager_elsewhere(near, [near]) is None


def on_a_shared_machine(original, cpu_others, gpu=False):
    """The same row, with other work beside it while it was timed: on the CPU, or on the host of a GPU."""
    processes = [
        msgspec.structs.replace(
            process,
            conditions=msgspec.structs.replace(
                process.conditions, cpu_others=cpu_others, samples=10 if gpu else 0, others=0
            ),
        )
        for process in original.processes
    ]
    return msgspec.structs.replace(original, processes=tuple(processes))


def test_of_a_shared_machine_no_claim_is_reproduced(stored):
    claims = (Claimed(id="X9", expected=">=0.001", published="1x", holds=True),)
    slower_row = msgspec.structs.replace(row(stored, "tiny_eval", "slower"), claims=claims)
    quiet, shared = (derive(on_a_shared_machine(slower_row, cores)) for cores in (0.0, 0.9))
    assert (quiet.claims[0].holds, shared.claims[0].holds) == (True, None)
    assert shared.measured.finding == "too noisy"
    text = render_speedups(msgspec.structs.replace(stored, rows=(shared,)))
    assert "| X9      | inconclusive |" in text
    assert "none is faster than eager beyond doubt" in text


def test_a_busy_host_of_a_gpu_is_marked_and_what_was_measured_stands(stored):
    slower_row = row(stored, "tiny_eval", "slower")
    busy = derive(on_a_shared_machine(slower_row, 3.3, gpu=True))
    assert busy.measured.finding == derive(on_a_shared_machine(slower_row, 0.1, gpu=True)).measured.finding
    assert "other work used 3.3 cores" in remarks(busy)
    first, *later_processes = busy.processes
    busier = msgspec.structs.replace(first, conditions=msgspec.structs.replace(first.conditions, cpu_others=18.0))
    assert "other work used 3.3 to 18.0 cores" in remarks(
        msgspec.structs.replace(busy, processes=(busier, *later_processes))
    )
    text = render_speedups(msgspec.structs.replace(stored, rows=(busy,)))
    assert "configurations timed on a throttled or shared machine: 1." in text
    assert "other work on the CPU: 3.3 to 3.3 cores" in text
    assert not any("other work" in remark for remark in remarks(on_a_shared_machine(slower_row, 1.1, gpu=True)))


def test_rows_from_before_are_counted_once(stored):
    rows = [msgspec.structs.replace(stored_row, again=True) for stored_row in stored.rows[:2]]
    text = render_speedups(msgspec.structs.replace(stored, rows=(*rows, *stored.rows[2:])))
    assert "2 of these from before: measuring them again has not ended" in text
    assert "not finished" not in text


def test_figures_without_their_samples_are_kept_as_they_are(stored):
    bare = msgspec.structs.replace(row(stored, "tiny_eval", "fx"), processes=())
    assert derive(bare) == bare


@pytest.mark.parametrize("name", ["mine[fast]", "mine[/b]"])
def test_no_name_is_read_as_markup(stored, name):
    fx_row = row(stored, "tiny_eval", "fx")
    changed = msgspec.structs.replace(fx_row, workload=name, configuration=Configuration(name, "fp32"))
    console = Console(file=io.StringIO(), width=200)
    print_speedups(console, msgspec.structs.replace(stored, rows=(changed,)))
    assert console.file.getvalue().count(name) >= 2


@pytest.mark.parametrize("width", [90, 130])
def test_the_terminal_keeps_every_figure_whole(stored, width):
    console = Console(file=io.StringIO(), width=width)
    print_speedups(console, stored)
    text = console.file.getvalue()
    for stored_row in stored.rows:
        assert str(stored_row.configuration) in text
        if stored_row.measured is not None:
            assert stored_row.measured.finding in text
    tables = [line for line in text.splitlines() if not line.startswith(("  ", "claim "))]
    assert not any("…" in line for line in tables)
    assert "  dies fp32: died of SIGABRT" in text.splitlines()
