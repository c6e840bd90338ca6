"""A cell as a script: it runs without this project and shows both sides."""

import runpy
import subprocess
import sys

import pytest
import torch

from recapture.compilers import builtin_compilers
from recapture.errors import UsageError
from recapture.repro import script
from recapture.torch_compat import reset_dynamo

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
        "== held_out[0]",
        "eager:    tensor([-2., -2.])",
        "captured: tensor([-2., -2.])",
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
    lines = run(printed(cell)).splitlines()
    for eager, captured in zip(lines[2::3], lines[3::3], strict=True):
        assert eager.startswith("eager:    tensor(")
        assert captured.split("tensor(")[1].split(", grad_fn")[0] == eager.split("tensor(")[1].split(", grad_fn")[0]


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
