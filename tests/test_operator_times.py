"""The sentences and the table that say where the time of eager and of a compiled run goes."""

from __future__ import annotations

import io
import math

from recapture.report.markdown_writer import table_markdown
from recapture.report.terminal_writer import SafeConsole
from recapture.tools.speed.job import Operator
from recapture.tools.speed.operators import OperatorTimes, Profile, operator_table, print_profile, write_profile

GENERATED = "## Call CompiledFxGraph fy5irlrhce43awcf3wiwia7fnzttnphgsvv ##"


def operator(name, cpu, calls, *, total=None, device=0.0):
    return Operator(name=name, cpu=cpu * 1000, total=(total or cpu) * 1000, device=device * 1000, calls=calls)


EAGER = [
    operator("aten::addmm", 46, 60),
    operator("aten::add", 20, 90),
    operator("aten::copy_", 15, 30),
    operator("aten::mul", 9, 90),
]
FASTER = [operator("aten::addmm", 45, 60), operator(GENERATED, 15, 3, total=60)]


def test_what_got_faster_and_what_took_its_place_is_named():
    text = OperatorTimes(EAGER, FASTER, 1).sentences()
    assert text.startswith("Under the profiler, an iteration takes 90 ms of CPU time in eager and 60 ms compiled")
    assert (
        "Less time goes to aten::add (20 ms to 0 ms), aten::copy_ (15 ms to 0 ms) and aten::mul (9 ms to 0 ms)." in text
    )
    assert "More goes to the code that Inductor generated (0 ms to 15 ms)." in text
    assert text.endswith("270 calls of operators became 63.")


def test_times_and_calls_are_those_of_an_iteration():
    text = OperatorTimes(EAGER, FASTER, 3).sentences()
    assert "an iteration takes 30 ms of CPU time in eager" in text
    assert text.endswith("90 calls of operators became 21.")


def test_two_runs_that_take_the_same_time_say_where_it_goes():
    text = OperatorTimes(EAGER, EAGER, 1).sentences()
    assert "No operator takes noticeably more or less time; most goes to aten::addmm (51%)" in text


def test_on_a_gpu_its_time_counts():
    eager = [operator("aten::add", 90, 1, device=1), operator("gemm", 0, 1, device=9)]
    compiled = [operator("aten::add", 10, 1, device=1), operator("gemm", 0, 1, device=4)]
    text = OperatorTimes(eager, compiled, 1).sentences()
    assert "10 ms of GPU time in eager and 5 ms compiled (2.00 times as fast)" in text
    assert "Less time goes to gemm (9 ms to 4 ms)." in text
    assert "eager: device ms" in operator_table(OperatorTimes(eager, compiled, 1)).headers


def test_without_operators_nothing_is_said():
    assert "saw no operators" in OperatorTimes([], FASTER, 1).sentences()


def test_the_table_has_shares_totals_and_calls_of_both_runs():
    lines = table_markdown(operator_table(OperatorTimes(EAGER, FASTER, 1))).splitlines()
    cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert cells == ["`aten::addmm`", "51.1%", "51.1%", "46.000", "60", "75.0%", "75.0%", "45.000", "60"]
    [generated] = [line for line in lines if "Inductor" in line]
    assert "25.0%" in generated
    assert "100.0%" in generated


def test_the_printed_table_is_short_and_the_file_has_the_rest(tmp_path):
    many = [operator(f"aten::op{number}", math.ceil(100 / (number + 1)), 1) for number in range(20)]
    times = OperatorTimes(many, many, 1)
    out = io.StringIO()
    print_profile(SafeConsole(file=out, width=200), Profile("a model", tmp_path, times))
    assert out.getvalue().count("aten::op") < 15
    assert times.sentences() in out.getvalue()
    write_profile(Profile("a|model", tmp_path, times))
    assert sum(line.startswith("| `aten::op") for line in (tmp_path / "operators.md").read_text().splitlines()) == 20
