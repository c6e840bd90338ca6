"""``recapture lint``: patterns find the behaviours whose records they point to, and nothing in code that is right."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from command_lines import recapture

from recapture.base.errors import UsageError
from recapture.data import encode
from recapture.known.behaviours import BEHAVIOURS
from recapture.tools.lint.formats import github_lines, sarif_document
from recapture.tools.lint.patterns import BEHAVIOURS_LOOKED_FOR
from recapture.tools.lint.ranges import affected, chosen_release, in_words
from recapture.tools.lint.warnings import Linter, python_files
from recapture.tools.site.collect import collect

ROOT = Path(__file__).parent.parent
SUITES = sorted((ROOT / "suites").glob("*.py"))
SILENT = ("silently wrong",)
HELPERS = {"generators_closures::with_result": "generators_closures::value_of_yield_from"}
"""Functions of the suites, beside cases, in which a pattern finds the behaviour of a case."""


@pytest.fixture(scope="module")
def data():
    return collect(ROOT / "results")


@pytest.fixture
def data_file(data, tmp_path):
    path = tmp_path / "data.json"
    path.write_bytes(encode(data))
    return path


@pytest.fixture
def lint(data, tmp_path):
    """Return a function that lints some source, and gives the ids of the behaviours by line."""

    def run(source, *, compilers=("compile", "export", "jit.trace"), release="2.11.0", outcomes=SILENT, **which):
        path = tmp_path / "model.py"
        path.write_text(textwrap.dedent(source))
        return [
            (warning.line, warning.behaviour)
            for warning in Linter(data, compilers, outcomes, release, **which).lint(path)
        ]

    return run


def test_every_pattern_finds_its_behaviour_in_the_source_of_a_case_that_was_run(data):
    linter = Linter(data, tuple(data.compilers), SILENT, None, every=True)
    places = {}
    for path in SUITES:
        for warning in linter.lint(path):
            name = f"{path.stem}::{warning.function.partition('.')[0]}"
            places.setdefault(warning.behaviour, set()).add(HELPERS.get(name, name))
    assert {
        name: places.get(name)
        for name in BEHAVIOURS_LOOKED_FOR
        if not places.get(name, set()) & set(data.behaviours[name].cases)
    } == {}


def test_the_file_says_in_words_what_each_pattern_looks_for():
    assert {name for name, entry in BEHAVIOURS.shipped.items() if entry.lint} == BEHAVIOURS_LOOKED_FOR


def test_what_every_compiler_takes_has_no_warning(data):
    right = {
        case for entry in data.behaviours.values() if entry.group.startswith("rewrites that") for case in entry.cases
    }
    linter = Linter(data, tuple(data.compilers), SILENT, None, every=True)
    warned = {f"{path.stem}::{warning.function}": warning for path in SUITES for warning in linter.lint(path)}
    assert {name: warning for name, warning in warned.items() if name in right} == {}


def test_the_message_has_the_place_the_compilers_with_their_releases_and_the_cure(data, tmp_path):
    path = tmp_path / "model.py"
    path.write_text(
        "import torch\n\ndef f(x):\n    if x.is_floating_point():\n        return x.sigmoid()\n    return x // 2\n"
    )
    (warning,) = Linter(data, ("export",), SILENT, "2.11.0").lint(path)
    assert (warning.line, warning.column, warning.function) == (4, 8, "f")
    assert warning.message == (
        "silently wrong under export in 2.1.2-2.15.0; export once for each dtype, or convert before the program is called"
    )


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("return x.sum(x.ndim - 1)", True),
        ("return torch.flip(x, [x.dim() - 2, x.dim() - 1])", True),
        ("dims = tuple(d if d >= 0 else d + x.ndim for d in (-1, 0)); return x.sum(dims)", True),
        ("return x.sum(-1)", False),
        ("if x.ndim - 1 < 1: raise ValueError(x.ndim - 1)\n    return x * 2", False),
        ("return x.reshape(x.shape[0] - 1 + x.ndim)", False),
    ],
)
def test_a_dimension_that_is_counted_from_their_number_is_found(lint, line, is_found):
    warnings = lint(f"import torch\ndef f(x: torch.Tensor):\n    {line}\n", compilers=("export",))
    assert ("reduce-all-but-the-batch" in {behaviour for _, behaviour in warnings}) is is_found


def test_a_release_that_is_right_has_no_warning(lint):
    source = """
        import torch
        def f(x):
            y = torch.sin(x)
            return y.t().argmin()
        """
    assert lint(source, release="2.11.0") == [(5, "argmin-of-transpose")]
    assert lint(source, release="2.15.0") == []
    assert lint(source, release=None) == [(5, "argmin-of-transpose")]


def test_what_breaks_or_fails_is_told_where_that_is_asked_for(lint):
    source = """
        import torch
        def f(x):
            if x.sum() > 0:
                return x
            return -x
        """
    assert lint(source, compilers=("compile",)) == []
    assert lint(source, compilers=("compile",), outcomes=(*SILENT, "broken")) == [(4, "branch-on-tensor-value")]
    assert lint(source, compilers=("export",), outcomes=(*SILENT, "failing")) == [(4, "branch-on-tensor-value")]


@pytest.mark.parametrize(
    ("source", "behaviour"),
    [
        ("def f(x, mask=None):\n    if mask is not None and x.is_floating_point():\n        x = x * mask", "branch-on-dtype"),
        ("def f(x, wide=False):\n    if wide:\n        x = x if x.dtype == torch.float32 else x + 1", "branch-on-dtype"),
        ("def f(x, how='sum'):\n    return x.sum() if how == 'sum' else x.view(-1, 1) if x.ndim > 2 else x", "branch-on-rank"),
        ("def f(x, mask: torch.Tensor | None):\n    if mask is None:\n        return x\n    return x if mask.is_floating_point() else -x", "branch-on-dtype"),
        ("def f(x):\n    return x.float() if torch.is_autocast_enabled() and x.dtype == torch.float64 else x", "branch-on-dtype"),
        ("def f(x):\n    return x.float() if x.dtype == torch.float16 else x", "branch-on-dtype"),
        ("def f(x, most):\n    return x[:most] if x.shape[0] > most else x * 2", "branch-on-size"),
        ("def _g(x):\n    return x if x.ndim > 2 else -x\ndef f(x, deep=False):\n    return _g(x) if deep else x * 2", "branch-on-rank"),
        ("def f(x):\n    return x.abs() + torch.tensor(3, dtype=x.dtype)", "cast-to-dtype-of-argument"),
        ("def f(x):\n    return x if x.dtype in (torch.float32, torch.float64) else x.float()", "branch-on-dtype"),
        ("def f(x):\n    if x.is_floating_point():\n        x = x * 2\n    elif x.ndim:\n        raise TypeError", "branch-on-dtype"),
        ("def f(x, most):\n    return [x[start] for start in range(0, x.shape[0], most)]", "loop-over-rows"),
    ],
    ids=lambda text: None if "\n" in text else text,
)  # fmt: skip
def test_what_is_often_right_after_all_is_told_only_when_asked_for(lint, source, behaviour):
    source = f"import torch\n{source}\n"
    assert lint(source) == []
    assert behaviour in {name for _, name in lint(source, every=True)}
    assert {name for _, name in lint(source, selected={behaviour})} == {behaviour}
    assert lint(source, selected={"no-grad-inside"}) == []


@pytest.mark.parametrize(
    "source",
    [
        "def f(x, mask=None):\n    mask = x > 0\n    if mask is not None and x.is_floating_point():\n        x = x * mask",
        "def f(x, wide=True):\n    if wide:\n        x = x if x.dtype == torch.float32 else x + 1",
        "def f(x, mask=None):\n    if mask is None:\n        x = x if x.is_floating_point() else x + 1\n    return x",
        "def f(x):\n    return x.float() if x.dtype in (torch.float16, torch.int64) else x",
    ],
)
def test_what_a_call_with_the_defaults_reaches_is_told(lint, source):
    assert [name for _, name in lint(f"import torch\n{source}\n")] == ["branch-on-dtype"]


def test_the_gradient_of_a_function_of_its_own_is_less_sure(lint):
    source = """
        import torch
        class Swish(torch.autograd.Function):
            def forward(ctx, x):
                return x * x.sigmoid()
        def f(x):
            return Swish.apply(x.clone())
        """
    assert lint(source) == []
    assert lint(source, every=True) == [(7, "custom-autograd-function")]


@pytest.mark.parametrize("cast", ["to(x.dtype)", "type_as(x)"])
def test_a_module_that_computes_in_float_is_told_to_cast_back(lint, cast):
    source = f"""
        import torch
        class Norm(torch.nn.Module):
            def forward(self, x):
                y = x.float()
                return (y - y.mean()).{cast}
        """
    assert lint(source) == [(6, "cast-to-dtype-of-argument")]
    assert lint(source.replace("x.float()", "self.linear(x)")) == []


@pytest.mark.parametrize(
    ("held", "is_found"),
    [
        ("nn.Buffer(torch.ones(8))", True),
        ("torch.ones(8)", True),
        ("nn.Parameter(torch.ones(8))", False),
        ("norm_layer(8)", False),
    ],
)
def test_a_module_without_parameters_takes_any_dtype(lint, held, is_found):
    source = f"""
        import torch
        from torch import nn
        class Shift(nn.Module):
            def __init__(self, norm_layer=None):
                super().__init__()
                self.size = int(8)
                self.held = {held}
            def forward(self, x: torch.Tensor):
                return x + self.held.to(x.dtype)
        """
    warnings = lint(source, compilers=("jit.trace",))
    assert ("cast-to-dtype-of-argument" in {behaviour for _, behaviour in warnings}) is is_found


def test_a_setting_of_torch_is_no_value_of_a_tensor(lint):
    assert lint("import torch\ndef f(x):\n    if torch.are_deterministic_algorithms_enabled():\n        x = x.abs()\n    return x", every=True) == []  # fmt: skip


def test_only_what_can_run_under_capture_is_looked_at(lint):
    assert lint("def f(x):\n    if x.shape[0] > 4:\n        return x.view(-1)\n    return x\n") == []
    source = """
        import torch
        from torch import nn

        def train(epochs, path):
            if epochs > 3:
                print(path)

        class Data:
            def __getitem__(self, index):
                self.calls += 1
                return index

        class Net(nn.Module):
            def fit(self, x):
                self.calls += 1

            def forward(self, x):
                return self.helped(x)

            def helped(self, x):
                self.calls += 1
                return x
        """
    assert lint(source, compilers=("export",)) == [(22, "counter-on-module")]


@pytest.mark.parametrize(
    "body",
    [
        "if x.shape[0] != 3:\n        raise ValueError(x.shape)",
        "if y is None:\n        y = x",
        "x = x + 1\n    n = len('abc')",
        "assert x.dim() == 3",
        "x = x * int('3')",
        "for i in range(3):\n        x = x * i",
        "x = torch.zeros(3).fill_(1)",
        "x = x.contiguous() + 1",
        "x = x[:, 0] + x[0]",
        "x = [y][..., 0]",
        "x = x.new_zeros(x.shape[:2])",
        "x = x.reshape(x.shape[:-1] + (2, 2))",
    ],
)
def test_checks_and_plain_code_have_no_warning(lint, body):
    assert lint(f"import torch\n\ndef f(x: torch.Tensor, y=None):\n    {body}\n    return x * 2\n") == []


def test_an_attribute_that_each_call_sets_before_it_reads_it_is_no_state(lint):
    source = """
        import torch
        class Net(torch.nn.Module):
            def forward(self, x):
                self.last = x * 2
                return self.last + 1
        """
    assert lint(source) == []
    assert lint(source.replace("self.last = x * 2", "self.last = x * 2 + self.last")) == [
        (5, "attribute-set-in-forward")
    ]


@pytest.mark.parametrize(
    ("comment", "count"),
    [
        ("", 1),
        ("  # noqa: recapture", 0),
        ("  # noqa: branch-on-dtype", 0),
        ("  # noqa: E501, branch-on-dtype", 0),
        ("  # noqa: E501", 1),
        ("  # noqa", 0),
    ],
)
def test_a_comment_turns_a_warning_off(lint, comment, count):
    source = (
        f"import torch\n\ndef f(x):\n    if x.is_floating_point():{comment}\n        return x.sigmoid()\n    return x\n"
    )
    assert len(lint(source, compilers=("export",))) == count


def test_the_command_writes_lines_annotations_json_and_sarif(data_file, tmp_path, capsys):
    path = tmp_path / "a,b.py"
    path.write_text("import torch\n\ndef f(x):\n    return x * 2, x.shape\n")
    words = ["lint", str(path), "--torch", "2.11.0", "--compiler", "export", "--data", str(data_file)]
    assert recapture(*words) == 1
    output = capsys.readouterr()
    assert output.out.startswith(f"{path}:4:19 torch-size-in-result: silently wrong under export in 2.3.1-2.15.0; ")
    assert output.err == "recapture: 1 file, torch 2.11.0: 1 warning\n"
    assert recapture(*words, "--exit-zero", "--output-format", "github") == 0
    assert capsys.readouterr().out.startswith("::warning file=" + str(path).replace(",", "%2C"))
    assert recapture(*words, "--output-format", "json") == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["line"], row["behaviour"], row["compilers"]) == (4, "torch-size-in-result", ["export"])
    assert recapture(*words, "--output-format", "sarif") == 1
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["results"][0]["ruleId"] == run["tool"]["driver"]["rules"][0]["id"] == "torch-size-in-result"


def test_a_line_break_in_a_message_does_not_end_an_annotation(data, tmp_path):
    path = tmp_path / "model.py"
    path.write_text("import torch\n\ndef f(x):\n    return x * 2, x.shape\n")
    (warning,) = Linter(data, ("export",), SILENT, None).lint(path)
    changed = type(warning)(
        **{**{name: getattr(warning, name) for name in warning.__struct_fields__}, "cure": "a\n::error::b"}
    )
    (line,) = github_lines([changed])
    assert "\n" not in line
    assert sarif_document([])["runs"][0]["results"] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent.py"], "no file or folder absent.py"),
        (["model.py", "--torch", "new"], "'new' is not a version of torch"),
        (
            ["model.py", "--select", "branch-on-dtyp"],
            "no pattern looks for 'branch-on-dtyp'; did you mean 'branch-on-dtype'",
        ),
        (["model.py", "--compiler", "fx,exprot"], "unknown compiler 'exprot'; did you mean 'export'"),
        (["broken.py"], "broken.py is not Python: SyntaxError"),
    ],
)
def test_bad_input_is_one_line_and_status_2(data_file, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text("import torch\n")
    Path("broken.py").write_text("def f(:\n")
    assert recapture("lint", *words, "--data", str(data_file)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_file_of_a_folder_that_is_no_python_does_not_stop_the_others(data_file, tmp_path, capsys):
    (tmp_path / "code" / ".venv").mkdir(parents=True)
    (tmp_path / "code" / "a.py").write_text("print 1\n")
    (tmp_path / "code" / "b.py").write_text("import torch\n\ndef f(x):\n    return x * 2, x.shape\n")
    (tmp_path / "code" / ".venv" / "c.py").write_text("import torch\n")
    assert [path.name for path in python_files([tmp_path / "code"])] == ["a.py", "b.py"]
    assert recapture("lint", str(tmp_path / "code"), "--torch", "any", "--data", str(data_file)) == 1
    output = capsys.readouterr()
    assert "torch-size-in-result" in output.out
    assert "left out: " in output.err


def test_ranges_follow_the_records(data):
    (row,) = affected(data, "named-tuple-replace", ("compile",), SILENT)
    assert (row.spans, row.words) == ((("2.11.0", "2.11.0"),), "compile in 2.11.0")
    assert row.holds("2.11.0")
    assert not row.holds("2.12.1")
    assert chosen_release(data, "2.11.1+cu130") == "2.11.0"
    assert chosen_release(data, "1.13") == data.releases[0]
    assert in_words("2.11.0", "2.11+cu130") == "torch 2.11.0"
    assert in_words("2.11.0", "2.11.1") == "torch 2.11.0 (2.11.1 is not recorded)"
    with pytest.raises(UsageError, match="not a version of torch"):
        chosen_release(data, "newest")


def test_a_file_takes_less_than_a_second_and_torch_is_not_imported(data_file):
    script = """
import sys, time
began = time.process_time()
from recapture.command.main import main
try:
    main(["lint", sys.argv[1], "--data", sys.argv[2], "--exit-zero"])
except SystemExit as end:
    assert not end.code
assert "torch" not in sys.modules, "torch was imported"
print(time.process_time() - began)
"""
    words = [sys.executable, "-c", script, str(ROOT / "suites" / "modules.py"), str(data_file)]
    result = subprocess.run(words, capture_output=True, text=True, check=True)
    assert float(result.stdout.splitlines()[-1]) < 1


def test_a_trace_is_not_warned_about_where_a_user_has_to_give_a_number(lint):
    source = """
        import torch
        def f(x, scale: float):
            if x.shape[0] > 4:
                return x * scale
            return x
        """
    assert lint(source, compilers=("jit.trace",)) == []
    assert lint(source.replace("scale: float", "scale: torch.Tensor"), compilers=("jit.trace",)) == [
        (4, "branch-on-size")
    ]


@pytest.mark.parametrize(
    ("source", "behaviour", "is_sure"),
    [
        ("def f(x):\n    print(x.shape)\n    return x * 2", "print-in-forward", True),
        ("def f(x):\n    if x.shape[0] > 9:\n        print(x.shape)\n    return x * 2", "print-in-forward", False),
        ("import logging\nlog = logging.getLogger()\ndef f(x):\n    log.info(x)\n    return x.abs()", "logging-in-forward", True),
        ("import os\ndef f(x):\n    return x.abs() * int(os.environ['N'])", "environment-variable", True),
        ("T = {'n': 2}\ndef set_n(n):\n    T['n'] = n\ndef f(x):\n    return x.abs() * T['n']", "global-setting", True),
        ("def f(x):\n    torch.manual_seed(3)\n    return x.abs()", "manual-seed-inside", True),
        ("def f(x):\n    s = torch.get_rng_state()\n    torch.manual_seed(3)\n    torch.set_rng_state(s)\n    return x.abs()", "manual-seed-inside", False),
        ("@torch.no_grad()\ndef g(x):\n    return x.abs()\ndef f(x):\n    return x.abs() - g(x)", "no-grad-inside", True),
    ],
)  # fmt: skip
def test_what_lies_outside_the_arguments_is_told_and_less_sure_in_a_branch(lint, source, behaviour, is_sure):
    source = f"import torch\n{source}\n"
    behaviours = {name for _, name in lint(source, compilers=("compile", "export", "export:nonstrict", "jit.trace"))}
    assert (behaviour in behaviours) is is_sure
    every = lint(source, compilers=("export", "export:nonstrict", "compile", "jit.trace"), every=True)
    assert behaviour in {name for _, name in every}


def test_a_setting_that_no_function_changes_has_no_warning(lint):
    assert lint("import torch\nT = {'n': 2}\ndef f(x):\n    return x.abs() * T['n']\n", every=True) == []


@pytest.mark.parametrize(
    ("forward", "backward", "is_sure"),
    [
        ("x.round()", "grad", True),
        ("x.clone()", "-grad", True),
        ("x.view_as(x)", "grad", False),
        ("x * x.sigmoid()", "grad * 2", False),
    ],
)
def test_a_backward_that_visibly_gives_another_gradient_is_sure(lint, forward, backward, is_sure):
    source = f"""
        import torch
        class Own(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return {forward}
            @staticmethod
            def backward(ctx, grad):
                return {backward}
        def f(x):
            return Own.apply(x.abs())
        """
    expected = [(11, "custom-autograd-function")]
    assert lint(source, compilers=("export",)) == (expected if is_sure else [])
    assert lint(source, compilers=("export",), every=True) == expected


@pytest.mark.parametrize(
    "source",
    [
        "def f(x, wide: bool):\n    if wide:\n        y = x.abs().to(x.dtype)\n    else:\n        y = x.clone()\n    return y",
        "def f(x):\n    dtype = x.dtype\n    return convert_dtype(x.abs(), dtype)",
        "def f(x: torch.Tensor, mean: list[float]):\n    return x.sub(torch.as_tensor(mean, dtype=x.dtype))",
    ],
)
def test_a_cast_in_one_branch_or_by_a_function_and_a_list_of_numbers_are_told(lint, source):
    assert "cast-to-dtype-of-argument" in {name for _, name in lint(f"import torch\n{source}\n", compilers=("export",))}
