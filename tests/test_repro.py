"""A cell as a script: it runs without this project and shows both sides."""

import runpy
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from recapture.base.errors import UsageError
from recapture.base.torch_compat import reset_dynamo
from recapture.conformance.repro import script
from recapture.declare.compilers import builtin_compilers
from recapture.declare.source import closure
from recapture.machine.environment import read_environment, write_environment
from recapture.results.records import Difference, ErrorInfo, Record, write_jsonl
from recapture.results.verdicts import Verdict

ENVIRONMENT = Path(__file__).parent / "resources" / "results" / "images" / "torch2.6.0-cu124" / "cpu"

pytestmark = pytest.mark.filterwarnings("ignore")

SUITE = '''\
from __future__ import annotations

import numpy as np
import torch
from recapture import case, compiler

SCALE = 2
COUNTS = {"calls": 0}


def helper(x):
    return x * SCALE


@case(
    example=lambda: (torch.ones(2),),
    held_out=[
        lambda: (-torch.ones(2),),  # the other branch
    ],
    claims={"jit.trace": ("T1", "specialized")},
)
def branch(x: torch.Tensor):
    """Takes a branch \\\\d "quoted"."""
    if x.sum() > 0:
        return helper(x)
    return x - 1


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.ones(2),)])
def counts(x):
    COUNTS["calls"] += 1
    return x + COUNTS["calls"]


@case(example=lambda: (torch.rand(1, 3),), held_out=[lambda: (torch.zeros(1, 3),)])
class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.linear(x)


@case(example=lambda: (torch.ones(2), 3, True), held_out=[lambda: (torch.ones(2), 4, True)], concrete_args=["flag"])
def chosen(x, n, flag):
    return x * n if flag else x


def inputs():
    return (torch.from_numpy(np.random.rand(2)),)


@case(example=inputs)
def with_numpy(x):
    return x + np.pi


@case(example=lambda: (torch.ones(2),))
def in_place(x):
    y = x.add_(1)
    return y * 2


def seed(x):
    return x * 7


def place(x):
    return x + 1


@case(example=lambda: (torch.ones(2),))
def observe(x):
    return place(seed(x))


@case(example=lambda: (torch.ones(2),), rewrite_of=helper)
def rewritten(x):
    return x + x + 1


@case(example=lambda: (torch.ones(2),))
def numpy_scalar(x):
    return np.float32(2)


@case(example=lambda: (torch.ones(2),))
def nested(x):
    return {"sum": x.sum(), "all": [x, 2.0]}


SHARED = {"example": lambda: (1,)}


@case(example=lambda: (torch.ones(4),), held_out=[lambda: (torch.ones(2),), lambda: (torch.arange(6.0)[4:],)])
def doubles(x):
    return x * 2


@case(**SHARED)
def hidden(x):
    return x


@compiler("mine")
def own(fn, example):
    """Adds what it was captured with."""
    return lambda x: fn(x) + example[0].sum()


@compiler("reads-on", checks_inputs=False)
def reads_on(fn, example):
    """Reads as much as the example had, whatever it is given."""
    size = example[0].numel()
    return lambda x: fn(x.as_strided((size,), (1,)))


@compiler("as-array")
def as_array(fn, example):
    """Gives an array."""
    return lambda x: np.asarray(fn(x))


@compiler("rounds")
def rounds(fn, example):
    """Is not exact."""
    return lambda x: {**fn(x), "sum": fn(x)["sum"] + 2.4e-7}


def made(name):
    @compiler(name)
    def capture(fn, example):
        return fn


made("made")


for number in (0, 7):

    @compiler(f"loop{number}")
    def loop(fn, example, number=number):
        return lambda *args: fn(*args)


@compiler("helped")
def helped(fn, example):
    return helper(fn)


@case(example=lambda: (torch.ones(2),))
def prints(x):
    print("once")
    return x


@compiler("silent")
def silent(fn, example):
    return lambda x: x


@case(example=lambda: (torch.ones(2),))
def make_fx(x):
    return x


@compiler("casts")
def casts(fn, example):
    """Forgets a dtype."""
    return lambda x: {**fn(x), "all": [x.long(), 2.0]}
'''


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    path = tmp_path_factory.mktemp("suites") / "mine.py"
    path.write_text(SUITE)
    return path


@pytest.fixture
def printed(suite, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    return lambda cell, device="cpu": script(f"{suite}::{cell}", device)


@pytest.fixture
def run(tmp_path, capsys):
    """Run a script as the main program of this process, and return what it printed."""

    def execute(text):
        path = tmp_path / "cell.py"
        path.write_text(text)
        reset_dynamo()
        runpy.run_path(str(path), run_name="__main__")
        torch.set_printoptions(profile="default")
        return capsys.readouterr().out

    return execute


def test_the_script_runs_without_this_project(printed, tmp_path):
    path = tmp_path / "cell.py"
    path.write_text(printed("branch::jit.trace"))
    arguments = [sys.executable, "-I", "-W", "error::SyntaxWarning", path]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == [
        "== example",
        "eager:    tensor([2., 2.])",
        "captured: tensor([2., 2.])",
        "same",
        "== held_out[0]",
        "eager:    tensor([-2., -2.])",
        "captured: tensor([-2., -2.])",
        "same",
        "== eager and captured differ on 0 of 2 inputs",
    ]


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("counts::eager", ["tensor([2., 2.])\ncaptured: tensor([2., 2.])", "tensor([3., 3.])\ncaptured: tensor([3., 3.])"]),
        ("chosen::fx:concrete_args", ["eager:    tensor([3., 3.])\ncaptured: tensor([3., 3.])", "captured: tensor([4., 4.])"]),
        ("in_place::make_fx", ["captured: tensor([4., 4.])"]),
        ("observe::fx", ["eager:    tensor([8., 8.])\ncaptured: tensor([8., 8.])"]),
        ("rewritten::eager", ["eager:    tensor([2., 2.])\ncaptured: tensor([3., 3.])"]),
        ("branch::mine", ["captured: tensor([4., 4.])"]),
        ("doubles::reads-on", ["captured: tensor([2., 2., 0., 0.])", "captured: tensor([ 8., 10.,  0.,  0.])"]),
    ],
)  # fmt: skip
def test_the_script_shows_both_sides(printed, run, cell, shown):
    text = printed(cell)
    assert "recapture" not in text.split('"""', 2)[2]
    output = run(text)
    for one in shown:
        assert one in output


@pytest.mark.parametrize("cell", ["Layer::export", "Layer::jit.script", "with_numpy::fx"])
def test_both_sides_have_the_same_weights_and_inputs(printed, run, cell):
    output = run(printed(cell))
    assert "DIFFERENT" not in output
    assert "== eager and captured differ on 0 of " in output


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("control_flow::branch_on_dtype::export", "DIFFERENT: result\n== eager and captured differ on 1 of 3 inputs"),
        ("control_flow::branch_changes_dtype::jit.trace", "captured: tensor(0.)\nDIFFERENT: result"),
        ("basic_use::BatchNormTraining::jit.trace", "state['norm.num_batches_tracked'], captured: tensor(6)\nDIFFERENT"),
        ("graphs::prints_its_shape::jit.trace", "printed, eager:    'shape 2\\n'\nprinted, captured: ''\nDIFFERENT: printed"),
        ("graphs::counts_calls_globally::fx", "watched, eager:    2\nwatched, captured: 1\nDIFFERENT: watched"),
        ("graphs::returns_named_tuple::jit.script", "captured: torch._jit_internal.Extremes (tensor("),
        ("graphs::appends_to_argument::make_fx", "arguments[1], captured: []\nDIFFERENT: arguments[1]"),
    ],
)  # fmt: skip
def test_what_is_recorded_as_silently_wrong_is_shown(run, cell, shown):
    assert shown in run(script(cell, "cpu"))


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("numpy_scalar::as-array", "eager:    numpy.float32 SCALAR\ncaptured: numpy.ndarray array(2., dtype=float32)\nDIFFERENT: result"),
        ("nested::rounds", "captured: {'sum': tensor(2.00000024), 'all': [tensor([1., 1.]), 2.0]}\nsame"),
        ("nested::casts", "captured: {'sum': tensor(2.), 'all': [tensor([1, 1]), 2.0]}\nDIFFERENT: result"),
    ],
)  # fmt: skip
def test_types_count_and_rounding_does_not(printed, run, cell, shown):
    assert shown.replace("SCALAR", repr(np.float32(2))) in run(printed(cell))


def test_the_script_says_what_is_recorded_with_this_torch(suite, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    environment = read_environment(ENVIRONMENT)
    here = msgspec.structs.replace(environment.torch, version=str(torch.__version__))

    def record(image, seen, case_hash, **fields):
        directory = tmp_path / image / "cpu"
        directory.mkdir(parents=True)
        row = Record(case="mine::branch", compiler="fx", device="cpu", case_hash=case_hash, **fields)
        write_jsonl(directory / "conformance.jsonl", [row])
        of_one = msgspec.structs.replace(environment, torch=seen, planned=1, recorded=1)
        write_environment(directory / "environment.json", of_one)

    case_hash = closure(suite, "branch").hash
    difference = Difference("held_out[0]", "result", "dtype", "eager torch.int64, this torch.float32")
    error = ErrorInfo("TypeError", "no\nmore", "0")
    record("a", here, case_hash, verdict=Verdict.SPECIALIZED, differences=(difference,))
    record("b", here, case_hash, verdict=Verdict.ERROR, phase="call", input="example", error=error)
    record("edited", here, "0", verdict=Verdict.PASS)
    record("other", msgspec.structs.replace(here, version="0"), case_hash, verdict=Verdict.PASS)
    lines = script(f"{suite}::branch::fx", "cpu", tmp_path).split('"""\n')[0].splitlines()
    assert [line for line in lines if line.startswith("Recorded")] == [
        "Recorded with a on cpu: specialized; held_out[0], result (dtype): eager torch.int64, this torch.float32",
        "Recorded with b on cpu: error in call of example: TypeError: no",
    ]


def test_a_failure_is_shown_as_a_result(printed, run):
    text = printed("branch::compile:fullgraph").replace("fullgraph=True", 'backend="eager", fullgraph=True')
    assert "captured: raised Unsupported: " in run(text)


def test_the_script_is_readable(printed):
    text = printed("branch::jit.trace")
    for part in (
        '"""mine::branch::jit.trace on cpu: Takes a branch',
        "SCALE = 2\n\n\ndef helper(x):",
        "example = lambda: (torch.ones(2),)",
        "lambda: (-torch.ones(2),),  # the other branch",
        "def jit_trace(",
    ):
        assert part in text
    assert "COUNTS" not in text
    assert "claims" not in text
    compile(text, "cell.py", "exec", dont_inherit=True)


def test_the_device_is_the_one_asked_for(printed):
    assert '.to("cuda")' in printed("Layer::fx", "cuda")


@pytest.mark.parametrize("name", list(builtin_compilers()))
def test_every_compiler_can_be_printed(printed, name):
    compile(printed(f"branch::{name}"), "cell.py", "exec", dont_inherit=True)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("branch", "is not a cell: write suite::case::compiler"),
        ("brunch::fx", "unknown case 'brunch'; did you mean 'branch'"),
        ("branch::compile:eagre", "unknown compiler 'compile:eagre'; did you mean 'compile:eager'"),
        ("hidden::fx", "cannot be printed: the example is not written in the decorator"),
    ],
)
def test_an_address_that_leads_nowhere_is_named(printed, address, says):
    with pytest.raises(UsageError, match=says):
        printed(address)


def test_a_suite_that_cannot_be_imported_is_named(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("1 / 0")
    with pytest.raises(UsageError, match="suite 'broken' cannot be imported: ZeroDivisionError"):
        script(f"{path}::f::fx", "cpu")


@pytest.mark.parametrize(
    "lines", ["[lambda: (-torch.ones(2),)]\n    + MORE", "[\n        lambda: (torch.ones(2),),\n    ]\n+ MORE"]
)
def test_inputs_that_go_on_over_lines_can_be_printed(tmp_path, lines):
    path = tmp_path / "lines.py"
    path.write_text(
        "import torch\nfrom recapture import case\n\nMORE = [lambda: (torch.zeros(2),)]\n\n\n"
        f"@case(\n    example=lambda: (torch.ones(2),),\n    held_out={lines},\n)\ndef f(x):\n    return x\n"
    )
    (tmp_path / "cell.py").write_text(script(f"{path}::f::eager", "cpu"))
    assert len(runpy.run_path(str(tmp_path / "cell.py"))["held_out"]) == 2


@pytest.mark.parametrize("compiler", ["made", "loop0"])
def test_a_compiler_that_its_name_does_not_lead_to_is_refused(printed, compiler):
    with pytest.raises(UsageError, match=f"compiler '{compiler}' cannot be printed"):
        printed(f"branch::{compiler}")
    assert "def loop" in printed("branch::loop7")


def test_names_that_the_case_and_the_compiler_both_define_are_refused(printed):
    with pytest.raises(UsageError, match="both define 'make_fx'"):
        printed("make_fx::make_fx")


def test_what_is_printed_counts_only_where_the_case_says_so(printed, run):
    assert "differ on 0 of 1 inputs" in run(printed("prints::silent"))
