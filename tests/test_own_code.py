"""Checks of a user's own code: verdicts by the name of an input, from Python and from the command line."""

import importlib.util
import json
import subprocess
import sys

import pytest
import torch
from conftest import share
from planted_own_code import USER, checked, result_of

import recapture
from recapture.base.errors import UsageError
from recapture.cases.target import parse_input
from recapture.command.main import _run
from recapture.pool.protocol import Ended
from recapture.tools.check import session
from recapture.tools.check.api import CheckFailedError
from recapture.tools.check.case_text import Prepared
from recapture.tools.check.derivation import Preparation
from recapture.tools.check.report import check_details, check_markdown
from recapture.tools.check.request import CheckOptions, CheckRequest
from recapture.tools.check.session import compilers_of_check, prepare


@pytest.fixture(scope="module")
def small_batches(pool):
    """A check of code that refuses small batches, by three compilers."""
    with pytest.MonkeyPatch.context() as patch:
        share(pool, patch)
        return checked("refuses_small", "4x3", compilers=("jit.trace", "jit.script", "compile:eager"))


@pytest.fixture(scope="module")
def product(pool):
    """A check of a product of matrices, by two compilers that record a program."""
    with pytest.MonkeyPatch.context() as patch:
        share(pool, patch)
        return checked("plain", "4x3", "3x2", compilers=("fx", "make_fx"))


@pytest.fixture(scope="module")
def user():
    spec = importlib.util.spec_from_file_location("own_code", USER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- verdicts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "inputs", "on"),
    [
        ("OneRowIsOther", ["8x4"], "batch=1"),
        ("wide", ["4x3"], "batch=7"),
        ("positive", ["4:float64"], "negated"),
    ],
)
def test_a_planted_branch_is_found_by_name(served, name, inputs, on):
    row = checked(name, *inputs)["jit.trace"]
    assert row.verdict == "specialized"
    assert on in row.wrong_on
    assert row.words.startswith("specialized: wrong on ")
    assert "held_out" not in row.reason + "".join(row.differences)
    assert row.advice


@pytest.mark.parametrize(
    ("name", "inputs", "on"),
    [("drops", ["4", "=False"], "args[1]=True"), ("reduced", ["4", "='mean'"], "args[1]='sum'")],
)
def test_a_flag_and_a_word_of_the_source_are_varied(served, name, inputs, on):
    row = checked(name, *inputs, compilers=("make_fx",))["make_fx"]
    assert row.verdict == "specialized"
    assert row.wrong_on[0] == on


def test_a_warning_about_the_machine_is_told_once(served, monkeypatch):
    """Compilers that generate no code and those that do are two runs, each of which examines the machine."""
    run_cells, warnings = session.run_cells, []

    def run_and_warn(options, progress, warn, **others):
        warn("warning: cxx-compiler: there is none")
        return run_cells(options, progress, warn, **others)

    monkeypatch.setattr(session, "run_cells", run_and_warn)
    inputs = (parse_input("4x3"), parse_input("3x2"))
    request = CheckRequest(place=str(USER), name="plain", inputs=inputs, most_inputs=2)
    result_of(request, compilers=("fx", "compile:eager"), warn=warnings.append)
    assert warnings == ["warning: cxx-compiler: there is none"]


def test_code_without_a_branch_is_right(served):
    result = checked("plain", "4x3", "3x2", compilers=("jit.trace", "fx", "jit.script"))
    assert {row.compiler: row.verdict for row in result.rows} == dict.fromkeys(
        ("jit.trace", "jit.script", "fx"), "pass"
    )
    assert result.raise_if("any") is result


def test_a_compiler_that_refuses_other_inputs_loudly_is_told_from_one_that_cannot_be_used(product):
    """The program that make_fx records multiplies matrices; with another dimension, eager multiplies batches."""
    assert product["make_fx"].words.startswith("right on the example, fails loudly on ")
    assert product.report.sentence.endswith(
        "right under fx; right on the example, but refuses other inputs loudly under make_fx"
    )
    assert [row.compiler for row in product.rows if row.is_narrow] == ["make_fx"]


def test_another_rank_does_not_count_against_an_exported_program(served):
    """Eager takes any number of dimensions here; nobody expects that of a program that was exported for two."""
    result = checked("scored", "4x3", compilers=("export:dynamic", "export:nonstrict", "compile:eager"))
    dynamic = result["export:dynamic"]
    assert {"another dimension", "first row alone"} <= set(result.report.inputs)
    assert (dynamic.verdict, dynamic.words) == ("pass", "right")
    assert set(dynamic.other_ranks) == {"another dimension", "first row alone"}
    assert dynamic.note == "refuses other ranks loudly: another dimension, first row alone"
    static = result["export:nonstrict"]
    assert static.words == "right on the example, fails loudly on batch=1"
    assert static.note == ""
    assert result["compile:eager"].other_ranks == ()
    assert "right under compile:eager, export:dynamic" in result.report.sentence
    assert "refuses other ranks loudly" in check_markdown(result.report)


def test_graph_breaks_where_eager_raises_are_not_counted(small_batches):
    row = small_batches["compile:eager"]
    assert (row.verdict, row.break_reasons) == ("pass", ())


def test_what_eager_refuses_is_dropped_and_counted(small_batches):
    report = small_batches.report
    assert ("batch=1", "ValueError: too few rows") in report.refused
    assert "batch=1" not in report.inputs
    assert f"; eager refuses {len(report.refused)} others" in report.inputs_in_words


def test_a_value_where_eager_raises_is_told_apart_from_a_wrong_value(small_batches):
    """A tracer records the path on which nothing was refused."""
    assert "batch=1" in small_batches.report.must_raise
    assert len(small_batches.report.must_raise) <= 6
    assert "1 of which was tried as well and must raise" in small_batches.report.inputs_in_words
    traced = small_batches["jit.trace"]
    assert traced.verdict == "pass"
    assert "batch=1 (eager raises)" in traced.accepts_refused
    assert traced.words == "right; accepts what eager refuses"
    assert small_batches.report.sentence.endswith("; accepts what eager refuses under jit.trace")
    assert "returns a value where eager raises: batch=1 (eager raises)" in check_details(small_batches.report)
    assert small_batches.raise_if("silently_wrong", "failing") is small_batches
    with pytest.raises(CheckFailedError):
        small_batches.raise_if("accepts_refused")


def test_another_exception_than_eager_s_is_no_alarm(served):
    """Where eager says ValueError before it halves the batch, a tracer says that a view does not fit."""
    result = checked("refuses_odd", "4x3", compilers=("jit.trace",))
    assert {"batch=1", "batch=5"} & set(result.report.must_raise)
    assert result["jit.trace"].verdict == "pass"


def test_one_tensor_given_twice_is_another_input_than_two_equal_ones(served):
    row = checked("asks_for_identity", inputs_from=(str(USER), "equal_tensors"))["jit.trace"]
    assert row.wrong_on == ("args[1] is args[0]",)


def test_an_argument_of_a_wrong_type_is_not_tried(small_batches):
    """`None.shape` is an AttributeError that nobody raised on purpose, and no compiler needs to raise it, too."""
    report = small_batches.report
    refused = dict(report.refused)
    assert "AttributeError" in refused["args[0]=None"]
    assert "args[0]=None" not in report.must_raise


@pytest.mark.parametrize("options", [{"train": True}, {"device": "cuda"}])
def test_no_refused_input_is_tried_in_training_and_on_a_gpu(options):
    from types import SimpleNamespace

    from recapture.tools.check.derivation import _Examination

    examination = object.__new__(_Examination)
    examination.request, examination.built = CheckRequest(**options), lambda x: x
    raised = SimpleNamespace(raised=SimpleNamespace(error=ValueError("x")))
    assert not examination._may_be_refused(lambda: (1,), raised)
    examination.request = CheckRequest()
    assert examination._may_be_refused(lambda: (1,), raised)
    for error in (KeyboardInterrupt(), MemoryError(), TypeError("an operand")):
        assert not examination._may_be_refused(lambda: (1,), SimpleNamespace(raised=SimpleNamespace(error=error)))
    assert not examination._may_be_refused(lambda: (1, 2), raised)


def test_an_input_that_kills_eager_is_dropped(served):
    report = checked("dies", "4").report
    assert dict(report.unaffordable)["zeros"].startswith("died of SIG")
    assert report.rows[0].verdict == "pass"


class NeedsMemory:
    """Stands for a pool in which eager needs some GiB for the example and for the input `zeros`."""

    def __init__(self, example: int, zeros: int) -> None:
        self.needs = {"call": example, "zeros": zeros}
        self.limits: list[int] = []
        self.client = self

    def run(self, _task: str, preparation: Preparation, *_: object, timeout: float, memory: int) -> Prepared | Ended:
        self.limits.append(memory >> 30)
        for phase, needed in self.needs.items():
            if phase not in preparation.without and needed << 30 > memory:
                return Ended(1, "memory", -9, phase, None, timeout, memory, "", "", 0)
        return Prepared(inputs=tuple(label for label in ("zeros", "ones") if label not in preparation.without))


@pytest.mark.parametrize(
    ("example", "zeros", "inputs", "limits"),
    [(2, 2, ("zeros", "ones"), [8]), (2, 9, ("ones",), [8, 8]), (9, 12, ("zeros", "ones"), [8, 16])],
)
def test_derived_inputs_leave_memory_for_the_judge(example, zeros, inputs, limits):
    """A cell keeps what eager gives, and repeats it with noise: eager alone may need half of its memory."""
    pool = NeedsMemory(example, zeros)
    assert prepare(pool, CheckRequest(), CheckOptions(memory=16 << 30)).inputs == inputs
    assert pool.limits == limits


def test_an_example_that_needs_more_memory_than_a_compiler_has_is_an_error():
    with pytest.raises(UsageError, match=r"needs more than --memory 16 GiB in the call with the example"):
        prepare(NeedsMemory(17, 1), CheckRequest(), CheckOptions(memory=16 << 30))


def test_inputs_come_from_a_function_by_name(served):
    assert checked("plain", inputs_from=(str(USER), "inputs"), compilers=("fx",)).rows[0].verdict == "pass"


def test_a_factory_makes_the_module(served):
    assert checked("make_linear", "3x4", compilers=("fx",)).rows[0].verdict == "pass"


def test_random_numbers_are_told(served):
    assert checked("drawn", "4", compilers=("fx",)).report.random


def test_training_compares_three_steps(served):
    wrong = checked("Regression", "4", train=True)["jit.trace"]
    assert wrong.verdict in ("specialized", "wrong")
    assert {"step 2", "step 3"} <= set(wrong.wrong_on)
    right = checked("Linear", "3x4", train=True)
    assert right.report.inputs[:2] == ("step 2", "step 3")
    assert right.rows[0].verdict == "pass"


def test_no_compiler_without_gradients_takes_part_in_training():
    assert "aoti" not in compilers_of_check((), CheckRequest(train=True))
    assert "aoti" in compilers_of_check((), CheckRequest())


# --- Python ---------------------------------------------------------------------------------------------------------


def test_a_function_without_a_file_is_checked(served, tmp_path):
    namespace = {"__name__": "__main__"}
    exec("def sign(x):\n    return x if x.sum() > 0 else -x\n", namespace)
    before = torch.random.get_rng_state()
    result = recapture.check(namespace["sign"], torch.ones(3), compilers=["jit.trace"])
    assert torch.random.get_rng_state().equal(before)
    assert result["jit.trace"].verdict == "specialized"
    with pytest.raises(CheckFailedError, match=r"jit\.trace +specialized: wrong on negated"):
        result.raise_if("silently_wrong")
    with pytest.raises(UsageError, match="did you mean 'failing'"):
        result.raise_if("fialing")
    with pytest.raises(KeyError, match="was not checked"):
        result["fx"]
    assert "specialized" in result._repr_html_()
    assert json.dumps(result.to_dict())
    script = tmp_path / "script.py"
    script.write_text(result.repro("jit.trace"))
    assert "site-packages" not in script.read_text()
    assert "Needs Python {}.{} and torch.".format(*sys.version_info) in script.read_text()
    done = subprocess.run([sys.executable, "-I", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1, done.stderr
    assert "== verdict: specialized" in done.stdout


def test_own_held_out_inputs_keep_their_names(served, user):
    result = recapture.check(
        user.positive,
        lambda: (torch.ones(2),),
        held_out={"all below": -torch.ones(2)},
        derive=False,
        compilers=["jit.trace"],
    )
    assert result["jit.trace"].wrong_on == ("all below",)


def test_a_module_with_weights_is_checked_as_it_is(served):
    model = torch.nn.Sequential(torch.nn.Linear(4, 300), torch.nn.ReLU(), torch.nn.Linear(300, 1000))
    before = [parameter.clone() for parameter in model.parameters()]
    assert recapture.check(model, torch.ones(2, 4), compilers=["fx"])["fx"].verdict == "pass"
    assert model.training
    assert all(map(torch.equal, before, model.parameters()))


def test_the_page_escapes_what_it_shows(product):
    from msgspec.structs import replace

    from recapture.tools.check.report import check_html

    hostile = replace(product.report, target="<script>x</script>", inputs=("<b>",))
    assert "<script>" not in check_html(hostile)
    assert "<b>" not in check_html(hostile).replace("<td><b>", "")  # what is silently wrong is in bold
    assert "<script>" not in check_markdown(hostile)


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_command_streams_lines_and_keeps_the_case(served, tmp_path, capsys):
    saved, page = tmp_path / "kept.py", tmp_path / "page.html"
    words = [f"{USER}:positive", "--input", "3", "--compiler", "jit.trace", "--compiler", "fx"]
    assert _run(["check", *words, "--fail-on", "silently_wrong", "--save", str(saved), "--html", str(page)]) == 1
    out = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[0] for line in out[:2]) == ["fx", "jit.trace"]
    assert out[3].startswith("own_code.py:positive on torch ")
    assert out[4].startswith("  ")  # the rest of the sentence
    assert "silently wrong under jit.trace; not usable under fx" in " ".join(map(str.strip, out[3:5]))
    assert max(map(len, out)) <= 80
    assert page.read_text().startswith("<!doctype html>")
    again = _run(["run", str(saved), "--compiler", "jit.trace", "--results", str(tmp_path / "results")])
    assert again == 0
    assert "1 specialized" in capsys.readouterr().out


def test_json_has_the_same_facts(served, capsys):
    assert _run(["check", f"{USER}:plain", "--input", "4x3", "--input", "3x2", "--compiler", "fx", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["rows"][0]["verdict"] == "pass"
    assert document["version"] == 1
    assert document["sentence"].endswith("right under fx")


def test_the_speed_is_said_with_its_interval_and_may_be_inconclusive(served, monkeypatch, capsys):
    from recapture.tools.speed import case_speeds

    def measured(path, compilers, device, show):
        assert path.read_text().count("@workload") == 1
        show("recapture: fx was not timed: it is late")
        figures = {"eager": case_speeds.Timed((1.0, 0.9, 1.1), "no difference shown")}
        return figures | {"jit.trace": case_speeds.Timed((1.5, 1.4, 1.6), "faster")}

    monkeypatch.setattr(case_speeds, "speedups_of", measured)
    words = [f"{USER}:plain", "--input", "4x3", "--input", "3x2", "--compiler", "jit.trace", "--compiler", "eager"]
    assert _run(["check", *words, "--compiler", "fx", "--time"]) == 0
    captured = capsys.readouterr()
    assert "jit.trace          1.50× as fast as eager [1.40, 1.60]\n" in captured.out
    assert "eager              inconclusive: 1.00× as fast as eager [0.90, 1.10], no difference shown\n" in captured.out
    assert "fx was not timed: it is late" in captured.err


@pytest.mark.serial
@pytest.mark.slow
def test_a_check_measures_what_is_right(tmp_path, capsys):
    words = [
        f"{USER}:plain",
        "--input",
        "40x30",
        "--input",
        "30x20",
        "--compiler",
        "jit.trace",
        "--compiler",
        "eager",
    ]
    assert _run(["check", *words, "--time", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    for row in rows:
        ratio, low, high = row["speedup"]
        assert 0 < low <= ratio <= high
        assert row["finding"]


@pytest.mark.slow
def test_a_program_from_standard_input_can_check_its_function(tmp_path):
    """As in a prompt: the function is in no file."""
    program = (
        "import torch, recapture\n"
        "def f(x):\n    return x if x.sum() > 0 else -x\n"
        "print(recapture.check(f, torch.ones(3), compilers=['jit.trace'])['jit.trace'].words)\n"
    )
    done = subprocess.run(
        [sys.executable, "-"], input=program, capture_output=True, text=True, timeout=500, cwd=tmp_path, check=False
    )
    assert done.stdout.startswith("specialized: wrong on "), done.stderr
