"""A cell as a script: it runs without this project and shows both sides; what cannot be printed is named."""

import runpy
import subprocess
import sys

import pytest
from planted_scripts import in_process

from recapture.base.errors import UsageError
from recapture.cases.compilers import builtin_compilers
from recapture.tools.explain.script.printing import script
from recapture.tools.explain.script.replay import FAULT_SHOWS, NO_FAULT

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("restored")]


def test_the_script_runs_without_this_project(printed, tmp_path):
    path = tmp_path / "cell.py"
    path.write_text(printed("branch::jit.trace"))
    arguments = [sys.executable, "-I", "-W", "error::SyntaxWarning", path]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == NO_FAULT, done.stderr
    assert done.stdout.splitlines()[1:] == [
        "== example",
        "eager:    tensor([2., 2.])",
        "captured: tensor([2., 2.])",
        "same",
        "== held_out[0]",
        "eager:    tensor([-2., -2.])",
        "captured: tensor([-2., -2.])",
        "same",
        "note: warned: TracerWarning",
        "== verdict: pass",
    ]


def test_the_script_of_a_case_with_an_operator_of_its_own_runs(tmp_path):
    path = tmp_path / "cell.py"
    path.write_text(in_process("custom_operators::operator_with_a_default::make_fx"))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == FAULT_SHOWS, done.stderr
    assert done.stdout.splitlines()[-1].startswith("== verdict: specialized on held_out[0]")


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("counts::eager", ["tensor([2., 2.])\nagain:    tensor([2., 2.])", "tensor([3., 3.])\nagain:    tensor([3., 3.])", "== verdict: pass\n"]),
        ("chosen::fx:concrete_args", ["eager:    tensor([3., 3.])\ncaptured: tensor([3., 3.])", "captured: tensor([4., 4.])"]),
        ("in_place::make_fx", ["captured: tensor([4., 4.])"]),
        ("observe::fx", ["eager:    tensor([8., 8.])\ncaptured: tensor([8., 8.])"]),
        ("rewritten::eager", ["eager:    tensor([2., 2.])\ncaptured: tensor([3., 3.])", "== verdict: wrong on example\n"]),
        ("branch::mine", ["captured: tensor([4., 4.])"]),
        ("doubles::reads-on", ["captured: tensor([2., 2., 0., 0.])", "captured: tensor([ 8., 10.,  0.,  0.])"]),
    ],
)  # fmt: skip
def test_the_script_shows_both_sides(printed, run_script, cell, expected):
    text = printed(cell)
    output = run_script(text)
    for line in expected:
        assert line in output


@pytest.mark.parametrize("cell", ["Layer::export", "Layer::jit.script", "with_numpy::fx"])
def test_both_sides_have_the_same_weights_and_inputs(printed, run_script, cell):
    output = run_script(printed(cell))
    assert "DIFFERENT" not in output
    assert "== verdict: pass\n" in output


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("control_flow::branch_on_dtype::export", "DIFFERENT: result"),
        ("control_flow::branch_changes_dtype::jit.trace", "captured: tensor(0.)\nDIFFERENT: result (dtype)"),
        ("basic_use::BatchNormTraining::jit.trace", "note: capture: state['norm.num_batches_tracked'] (mutation): capturing changes it, as a call does"),
        ("graphs::prints_its_shape::jit.trace", "DIFFERENT: output (output): eager printed 'shape 2\\n', this printed ''"),
        ("graphs::counts_calls_globally::fx", "DIFFERENT: watched (mutation): eager 2, this 0"),
        ("graphs::returns_named_tuple::jit.script", "captured: torch._jit_internal.Extremes (.low: tensor("),
        ("graphs::appends_to_argument::make_fx", "DIFFERENT: args[1]"),
    ],
)  # fmt: skip
def test_what_is_recorded_as_silently_wrong_is_shown(run_script, cell, expected):
    assert expected in run_script(in_process(cell))


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("numpy_scalar::as-array", "eager:    numpy.float32 2.0\ncaptured: numpy.ndarray tensor(2.)\nDIFFERENT: result (type)"),
        ("nested::rounds", "captured: {['sum']: tensor(0.66666675), ['all']: [tensor([1., 1.]), 2.0]}\nsame"),
        ("nested::casts", "captured: {['sum']: tensor(0.66666669), ['all']: [tensor([1, 1]), 2.0]}\nDIFFERENT: result['all'][0] (dtype)"),
    ],
)  # fmt: skip
def test_types_count_and_rounding_does_not(printed, run_script, cell, expected):
    assert expected in run_script(printed(cell))


def test_characters_that_control_a_terminal_are_replaced_in_the_output_of_a_script(printed, run_script):
    output = run_script(printed("raises_unprintable::raises-another"))
    assert "eager:    raised ValueError: a\ufffd\ufffd[31m\ufffdb\n\tc\n" in output
    assert "captured: raised TypeError: \ufffd]0;title\ufffd\n" in output
    assert "== verdict: error in call on example: TypeError: \ufffd]0;title\ufffd\n" in output
    assert not set("\0\x1b\x07\u202e") & set(output)


def test_a_failure_is_shown_as_a_result(printed, run_script):
    text = printed("branch::compile:fullgraph").replace("fullgraph=True", 'backend="eager", fullgraph=True')
    output = run_script(text)
    assert "captured: raised torch._dynamo.exc.Unsupported: " in output
    assert "== verdict: error in capture on example: torch._dynamo.exc.Unsupported: " in output


def test_the_script_is_readable(printed):
    text = printed("branch::jit.trace")
    for part in (
        '"""mine::branch::jit.trace on cpu: Takes a branch',
        "SCALE = 2\n\n\ndef helper(x):",
        "@case(\n    example=lambda: (torch.ones(2),),\n    held_out=[",
        "lambda: (-torch.ones(2),),  # the other branch",
        "def jit_trace(",
    ):
        assert part in text
    program = text.partition("# The modules of the comparison")[0]
    assert len(program.splitlines()) < 150
    assert "COUNTS" not in program
    assert "T1" not in program
    compile(text, "cell.py", "exec", dont_inherit=True)


def test_the_device_is_the_one_asked_for(printed):
    assert "device='cuda'" in printed("Layer::fx", "cuda")


@pytest.mark.parametrize("name", list(builtin_compilers()))
def test_every_compiler_can_be_printed(printed, name):
    compile(printed(f"branch::{name}"), "cell.py", "exec", dont_inherit=True)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("brunch::fx", "unknown case 'brunch'; did you mean 'branch'"),
        ("branch::compile:eagre", "unknown compiler 'compile:eagre'; did you mean 'compile:eager'"),
    ],
)
def test_an_address_that_leads_nowhere_is_named(printed, address, says):
    with pytest.raises(UsageError, match=says):
        printed(address)


def test_an_address_that_is_no_cell_is_named_before_anything_is_executed(tmp_path):
    with pytest.raises(UsageError, match="'control_flow::x' is not a cell: write suite::case::compiler"):
        script("control_flow::x", "cpu")
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("raise SystemExit")
    with pytest.raises(UsageError, match="is a folder of several suites"):
        script(f"{tmp_path}::f::fx", "cpu")


def test_a_suite_that_cannot_be_imported_is_named(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("1 / 0")
    with pytest.raises(UsageError, match="suite 'broken' cannot be imported: ZeroDivisionError"):
        in_process(f"{path}::f::fx")


@pytest.mark.parametrize(
    "lines", ["[lambda: (-torch.ones(2),)]\n    + MORE", "[\n        lambda: (torch.ones(2),),\n    ]\n+ MORE"]
)
def test_inputs_that_go_on_over_lines_can_be_printed(tmp_path, lines):
    path = tmp_path / "lines.py"
    path.write_text(
        "import torch\nfrom recapture import case\n\nMORE = [lambda: (torch.zeros(2),)]\n\n\n"
        f"@case(\n    example=lambda: (torch.ones(2),),\n    held_out={lines},\n)\ndef f(x):\n    return x\n"
    )
    (tmp_path / "cell.py").write_text(in_process(f"{path}::f::eager"))
    assert len(runpy.run_path(str(tmp_path / "cell.py"))["CASES"]["f"]["held_out"]) == 2


@pytest.mark.parametrize("compiler", ["made", "loop0"])
def test_a_compiler_that_its_name_does_not_lead_to_is_refused(printed, compiler):
    with pytest.raises(UsageError, match=f"compiler '{compiler}' cannot be printed"):
        printed(f"branch::{compiler}")
    assert "def loop" in printed("branch::loop7")


def test_names_that_the_case_and_the_compiler_both_define_are_refused(printed):
    with pytest.raises(UsageError, match="both define 'make_fx'"):
        printed("make_fx::make_fx")


def test_what_is_printed_counts_only_where_the_case_says_so(printed, run_script):
    assert "== verdict: pass\n" in run_script(printed("prints::silent"))
