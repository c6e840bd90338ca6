"""Bad input of checks of a user's own code: one clear line."""

import pytest
import torch
from planted_own_code import USER, checked, result_of

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.cases.collection import find_suites
from recapture.cases.compilers import builtin_compilers
from recapture.cases.target import parse_input, parse_target, refuse_unknown_name
from recapture.command.main import _run
from recapture.run.plan import RunOptions, check_compilers
from recapture.tools.check.request import CheckRequest
from recapture.tools.check.session import compilers_of_check


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["nothing"], "a target is written as"),
        (["absent.py:f"], "no such file: absent.py"),
        ([f"{USER}:plain", "--input", "3y"], "an input is written as"),
        ([f"{USER}:plain", "--input", "3:float31"], "unknown dtype 'float31'; did you mean 'float32'?"),
        ([f"{USER}:plain", "--input", "=3+"], "comes a Python value"),
        ([f"{USER}:plain", "--input", "99999999999x9"], "are too many"),
        ([f"{USER}:plain", "--compiler", "jit.trac"], "did you mean 'jit.trace'?"),
        ([f"{USER}:plain", "--input", "3", "--inputs", f"{USER}:inputs"], "use one of them"),
        ([f"{USER}:plain", "--inputs", f"{USER}"], "it is written as FILE:FUNCTION"),
        ([f"{USER}:plain", "--dtype", "int64"], "only floating-point"),
        ([f"{USER}:plain", "--device", "tpu"], "unknown device"),
        (["model.ipynb:f"], "model.ipynb is a notebook: call recapture.check(f, example) in it"),
        ([f"{USER}:plane"], "own_code.py has no 'plane'; did you mean 'plain'?"),
    ],
)
def test_bad_usage_is_one_line(words, complaint, capsys):
    assert _run(["check", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


@pytest.mark.parametrize(
    ("target", "inputs", "complaint"),
    [
        ("plane", ["3"], "has no 'plane'; did you mean 'plain'?"),
        (
            "plain",
            ["3"],
            "takes (x, y), but it got 1 input: missing a required argument: 'y'; give each argument once with --input",
        ),
        ("plain", ["2x3", "4x5"], "raises RuntimeError on its input (line "),
        ("NeedsSize", ["3"], "NeedsSize needs arguments (size)"),
        ("number", ["3"], "number is an object of type int: a target is a function or a torch.nn.Module"),
    ],
)
def test_a_target_that_cannot_be_checked_is_one_line(served, target, inputs, complaint):
    with pytest.raises(UsageError) as caught:
        checked(target, *inputs, compilers=("fx",))
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_class_or_factory_that_raises_is_one_line(served, tmp_path):
    for text, kind, complaint in (
        (
            "def f():\n    import no_such_package_here\n",
            EnvironmentUnfitError,
            "'no_such_package_here' is not installed",
        ),
        ("def f():\n    1 / 0\n", UsageError, "theirs.py:f cannot be made: ZeroDivisionError: division by zero"),
    ):
        path = tmp_path / "theirs.py"
        path.write_text(text)
        with pytest.raises(kind) as caught:
            result_of(CheckRequest(place=str(path), name="f"), compilers=("fx",))
        assert complaint in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_result_of_an_own_class_is_told_with_what_to_return_instead(served, tmp_path):
    path = tmp_path / "theirs.py"
    path.write_text(
        "import collections\n\n\nclass Output(collections.OrderedDict):\n    pass\n\n\n"
        "def f(x):\n    return Output(y=x + 1)\n"
    )
    result = checked("f", "2", place=path, compilers=("jit.trace", "make_fx"))
    assert result["make_fx"].words.startswith("wrong: wrong on example")
    assert "return a tensor, tuple or dict" in result["make_fx"].advice
    assert "cannot record an argument or result of this type" in result["jit.trace"].advice


def test_the_packages_that_a_target_asks_for_are_imported_before_a_fork(served, tmp_path):
    path = tmp_path / "theirs.py"
    path.write_text("def f(x):\n    return x\n\n\ndef make():\n    import yaml\n\n    return f\n\n\nmake()\n")
    saved = []
    checked("f", "2", place=path, compilers=("fx",), case=saved.append)
    assert [line.strip() for line in saved[0].splitlines() if "yaml" in line] == ["import yaml  # noqa: F401"]


def test_what_is_no_function_of_its_inputs_is_one_line(served, tmp_path):
    path = tmp_path / "theirs.py"
    path.write_text(
        "import torch\n\n\ndef sized(size):\n    return torch.nn.Linear(2, 2)\n\n\nasync def later(x):\n    return x\n"
        "\n\ndef pair():\n    return torch.nn.Linear(2, 2), torch.ones(1, 2)\n"
    )
    for name, complaint in (
        ("sized", "theirs.py:sized needs arguments, and returns a torch.nn.Module"),
        ("later", "later is an async function"),
        ("pair", "pair returns a tuple with a module: it has to return the module alone"),
    ):
        with pytest.raises(UsageError, match=complaint):
            result_of(CheckRequest(place=str(path), name=name, inputs=(((2,), "float32"),)), compilers=("fx",))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_an_absent_gpu_is_the_machine_s_fault_in_one_line(served):
    with pytest.raises(EnvironmentUnfitError, match=r"^--device cuda: torch finds no GPU"):
        checked("plain", "2x3", "4x3", compilers=("fx",), device="cuda")


def test_a_file_that_cannot_be_imported_is_named(served, tmp_path):
    for text, kind, complaint in (
        ("1 / 0\n", UsageError, "ZeroDivisionError: division by zero"),
        ("def f(\n", UsageError, "SyntaxError"),
        ("import no_such_package_here\n", EnvironmentUnfitError, "'no_such_package_here' is not installed"),
    ):
        path = tmp_path / "theirs.py"
        path.write_text(text)
        with pytest.raises(kind, match="cannot be imported") as caught:
            result_of(CheckRequest(place=str(path), name="f"), compilers=("fx",))
        assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("name", "alias"),
    [
        ("inductor", "compile"),
        ("compile:inductor", "compile"),
        ("TorchScript", "jit.script"),
        ("dynamo", "compile:eager"),
    ],
)
def test_names_that_compilers_have_elsewhere_are_known(name, alias):
    with pytest.raises(UsageError, match=f"unknown compiler '{name}'; here it is '{alias}'"):
        compilers_of_check((name,), CheckRequest())
    with pytest.raises(UsageError, match=f"unknown compiler '{name}'; here it is '{alias}'"):
        check_compilers(RunOptions(selection=find_suites(()), compilers=(name,)), builtin_compilers())


def test_a_name_that_is_not_there_is_refused_before_torch_is_imported(tmp_path):
    path = tmp_path / "theirs.py"
    for text, refused in (
        ("def forward(x):\n    return x\n", True),
        ("from elsewhere import *\n", False),
        ("forwards = 1\nglobals()['forwards'] = 2\n", False),
        ("import x as forwards\n", False),
    ):
        path.write_text(text)
        if refused:
            with pytest.raises(UsageError, match=r"theirs.py has no 'forwards'; did you mean 'forward'\?"):
                refuse_unknown_name(str(path), "forwards")
        else:
            refuse_unknown_name(str(path), "forwards")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("import torch\nf = torch.compile(lambda x: x)\n", "f is a result of torch.compile: name the function or"),
        ("import torch\nf = torch.compile(torch.nn.ReLU())\n", "f is a result of torch.compile"),
        ("import torch\ndef f():\n    return torch.jit.script(torch.nn.ReLU())\n", "f is a result of TorchScript"),
        (
            "import torch\nf = torch.export.export(torch.nn.ReLU(), (torch.ones(2),)).module()\n",
            "f is a result of torch.export: name the function or",
        ),
        ("def f():\n    return 3\n", "a function without arguments is a target if it makes a function or a torch.nn"),
        (
            "import argparse\nargparse.ArgumentParser().parse_args(['--no'])\ndef f(x):\n    return x\n",
            "it ends the program when it is imported (exit status 2): put what a script does, such as reading its arguments",
        ),
        (
            "import os\nos.closerange(3, 4096)\ndef f(x):\n    return x\n",
            "closes or floods descriptors that its process",
        ),
        ("import os\ndef f(x):\n    os.closerange(3, 4096)\n    return x\n", "closes or floods descriptors that its"),
        ("def f(x):\n    return open('weights.txt').read()\n", "a call runs in an empty folder: read files when"),
    ],
)
def test_a_target_that_is_none_says_what_to_do(served, tmp_path, text, complaint):
    path = tmp_path / "theirs.py"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        checked("f", "3", place=path)
    assert complaint in str(caught.value)


def test_files_in_the_user_s_folder_are_found(served, tmp_path):
    path = tmp_path / "theirs.py"
    torch.save(torch.full((3,), 2.0), tmp_path / "weights.pt")
    path.write_text(
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.weight = torch.load('weights.pt')\n\n    def forward(self, x):\n        return x * self.weight\n"
    )
    assert checked("Net", "3", place=path, folder=str(tmp_path))["jit.trace"].verdict == "pass"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with pytest.raises(UsageError, match=r"FileNotFoundError: .*weights\.pt.*; it runs in .*elsewhere$"):
        checked("Net", "3", place=path, folder=str(elsewhere))


@pytest.mark.parametrize("is_package", [True, False])
def test_a_file_with_relative_imports_is_loaded(served, tmp_path, is_package):
    folder = tmp_path / "unet"
    (folder / "blocks").mkdir(parents=True)
    (folder / "blocks" / "deep.py").write_text("from ..parts import double\n")
    (folder / "parts.py").write_text("def double(x):\n    return x * 2\n")
    (folder / "model.py").write_text(
        "from .blocks.deep import double\n\n\ndef f(x):\n    return double(x) if x.sum() > 0 else x\n"
    )
    if is_package:
        (folder / "__init__.py").write_text("from .model import f\n")
    row = checked("f", "3", place=folder / "model.py")["jit.trace"]
    assert row.verdict == "specialized"


def test_targets_and_inputs_are_parsed():
    assert parse_target("torchvision:resnet18") == ("torchvision", "resnet18")
    assert parse_target(f"{USER}:plain") == (str(USER), "plain")
    assert parse_input("8x128:int64") == ((8, 128), "int64")
    assert parse_input("=True") == "True"
    assert parse_input(":float64") == ((), "float64")
