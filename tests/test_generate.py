"""Generated programs: they are what torch's samples say, faults are found by them, and equals are not blamed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from recapture.cases.case import CASES_ATTRIBUTE
from recapture.cases.collection import execute
from recapture.records.difference import Difference
from recapture.records.record import ErrorInfo, Record, read_jsonl
from recapture.records.verdicts import Verdict
from recapture.tools.generate.families import family_of, signature
from recapture.tools.generate.literals import UnwritableError, number_text, source_of, tensor_source
from recapture.tools.generate.python_programs import PythonRequest, make_python_suite

REPOSITORY = Path(__file__).resolve().parents[1]

COMPILERS = '''
"""Compilers with a planted fault each, and one that changes nothing."""

import torch

from recapture import compiler


def backend(change):
    """A backend of Dynamo that runs a graph after a change."""

    def compiled(graph, example):
        change(graph)
        graph.recompile()
        return graph.forward

    return compiled


def replaced(graph, old, new):
    for node in graph.graph.nodes:
        if node.target in old:
            node.target = new


@compiler("planted:another-operator", family="planted")
def another_operator(fn, example):
    """A subtraction becomes an addition."""
    return torch.compile(fn, backend=backend(lambda graph: replaced(graph, (torch.sub,), torch.add)))


@compiler("planted:not-in-place", family="planted")
def not_in_place(fn, example):
    """The argument is not changed by what is done in place."""

    def change(graph):
        for node in graph.graph.nodes:
            if node.op == "call_method" and node.target == "sub_":
                node.target = "sub"

    return torch.compile(fn, backend=backend(change))


@compiler("planted:out-ignored", family="planted")
def out_ignored(fn, example):
    """The result of a sort is not written into what `out=` is given."""

    def change(graph):
        for node in graph.graph.nodes:
            if node.target is torch.sort:
                node.kwargs = {name: value for name, value in node.kwargs.items() if name != "out"}

    return torch.compile(fn, backend=backend(change))


@compiler("planted:wrong-gradient", family="planted")
def wrong_gradient(fn, example):
    """Gradients are doubled."""

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(context, value):
            return value.view_as(value)

        @staticmethod
        def backward(context, gradient):
            return gradient * 2

    def call(*arguments):
        result = fn(*arguments)
        return Doubled.apply(result) if isinstance(result, torch.Tensor) and result.requires_grad else result

    return call


@compiler("planted:strides-ignored", family="planted")
def strides_ignored(fn, example):
    """What is a view with a step is read as if it were none."""

    def call(*arguments):
        return fn(*(argument.as_strided(argument.shape, torch.empty(argument.shape).stride()) for argument in arguments))

    return call


@compiler("planted:nothing", family="planted")
def nothing(fn, example):
    """Changes nothing."""
    return lambda *arguments: fn(*arguments)
'''


def command(folder, *words):
    # Findings are worked out by commands that have tests of their own, and take minutes.
    options = ("--results", str(folder), "--jobs", "2", "--findings", "0")
    return [sys.executable, "-m", "recapture", "generate", *options, *words]


def generate(folder, *words):
    """Run the command and return its facts."""
    done = subprocess.run(
        [*command(folder, *words), "--json"], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


OPERATORS = ("--operator", "sub", "--operator", "sort")


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """What the planted compilers show on the programs of two operators."""
    folder = tmp_path_factory.mktemp("generate")
    (folder / "planted_compilers.py").write_text(COMPILERS)
    words = ("--compilers-from", str(folder / "planted_compilers.py"), *OPERATORS)
    return generate(folder / "planted", *words)


def families_of(facts, compiler):
    return [family for family in facts["families"] if compiler in family["compilers"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compiler", "kind"),
    [
        ("another-operator", "value"),
        ("not-in-place", "mutation"),
        ("out-ignored", "mutation"),
        ("wrong-gradient", "gradient"),
        ("strides-ignored", "value"),
    ],
)
def test_a_planted_fault_is_found_by_generation_alone(planted, compiler, kind):
    families = families_of(planted, f"planted:{compiler}")
    assert kind in {family["kind"] for family in families if family["outcome"] == "silently wrong"}
    assert all(family["alone"] for family in families)  # each ran again in a process of its own


@pytest.mark.slow
def test_a_compiler_that_changes_nothing_is_not_blamed(planted):
    assert families_of(planted, "planted:nothing") == []
    assert set(planted["verdicts"]["planted:nothing"]) == {"pass"}


@pytest.mark.slow
def test_eager_against_itself_gives_no_finding(tmp_path):
    names = (
        "add",
        "linalg.svd",
        "nn.functional.conv2d",
        "bernoulli",
        "index_put",
        "masked_select",
        "fft.rfft",
        "expand",
    )
    words = [word for name in names for word in ("--operator", name)]
    facts = generate(tmp_path / "eager", "--compiler", "eager", *words)
    assert facts["families"] == []
    assert facts["cells"] == facts["planned"] > 60
    assert facts["operators"] == len(names)


@pytest.mark.slow
def test_a_killed_generation_goes_on_and_runs_no_finished_cell_again(tmp_path):
    folder = tmp_path / "killed"
    words = (*OPERATORS, "--compiler", "eager", "--compiler", "make_fx", "--compiler", "export")
    process = subprocess.Popen(
        command(folder, *words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=REPOSITORY
    )
    screened = folder / "screened.jsonl"
    until = time.monotonic() + 300
    while not (screened.exists() and screened.read_bytes().count(b"\n") >= 5):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < until
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = screened.read_bytes()
    before = before[: before.rfind(b"\n") + 1]
    with screened.open("ab") as out:
        out.write(b'{"case": "torn')
    facts = generate(folder, *words)
    after = screened.read_bytes()
    assert after.startswith(before)
    cells = [row.key for row in read_jsonl(screened, Record)]
    assert len(cells) == len(set(cells)) == facts["cells"] == facts["planned"]


NUMBER_KEPT = """
from recapture import compiler


@compiler("planted:number-kept", family="planted")
def number_kept(fn, example):
    \"\"\"A Python number is that of the example in every call: no guard asks for it.\"\"\"
    return lambda x, y, n: fn(x, y, example[2])
"""


@pytest.mark.slow
def test_programs_of_python_find_a_guard_that_is_missing(tmp_path):
    (tmp_path / "planted_number.py").write_text(NUMBER_KEPT)
    words = ("--source", "python", "--programs", "20", "--compilers-from", str(tmp_path / "planted_number.py"))
    facts = generate(tmp_path / "python", *words)
    assert facts["verdicts"]["planted:number-kept"]["specialized"] >= 10
    assert {row["step"] for row in facts["steps"]} > {"branch_on_number", "closure", "write_through_view"}
    assert {"dead code", "a no-op view", "variables renamed"} < facts["rewrites"].keys()


@pytest.mark.slow
def test_the_same_seed_makes_the_same_programs_and_another_one_others(tmp_path):
    words = ("--operator", "add", "--compiler", "eager")
    texts = []
    for name, seed in (("first", "3"), ("again", "3"), ("other", "4")):
        generate(tmp_path / name, "--seed", seed, *words)
        texts.append((tmp_path / name / "suites" / "op_add.py").read_text())
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--form", "strided_inplace"), "unknown form 'strided_inplace'; did you mean 'strided_in_place'?"),
        (("--compiler", "exprt"), "unknown compiler 'exprt'; did you mean 'export'?"),
        (("--dtype", "float31"), "unknown dtype 'float31'; did you mean 'float32'?"),
        (("--device", "tpu"), "unknown device 'tpu'"),
        (("--samples", "0"), "0 is not in the range"),
        (("--minutes", "nan"), "is not a number"),
        (("--compilers-from", "absent.py"), "no such suite file: absent.py"),
    ],
)
def test_bad_usage_is_one_line_and_exit_status_2(tmp_path, words, message):
    done = subprocess.run(
        command(tmp_path / "new", *words), capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_folder_with_something_else_or_of_other_programs_is_refused(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    (tmp_path / "seeded").mkdir()
    settings = {
        "seed": 7,
        "source": "operators",
        "device": "cpu",
        "dtype": "float32",
        "samples": 2,
        "forms": ["function"],
        "torch": "2.0.1",
    }
    (tmp_path / "seeded" / "generation.json").write_text(json.dumps(settings))
    for name, message in (("other", "holds something else"), ("seeded", "was made with seed 7, not 0")):
        done = subprocess.run(
            command(tmp_path / name, "--operator", "add"), capture_output=True, text=True, check=False, cwd=REPOSITORY
        )
        assert done.returncode == 2
        assert message in done.stderr
    assert (tmp_path / "other" / "notes.txt").read_text() == "mine"


def outcomes(text, name, path):
    """The results and the arguments of a program's calls, in order, from a new execution of its file."""
    path.write_text(text)
    module = execute(path.stem, path)
    program = next(case for case in getattr(module, CASES_ATTRIBUTE) if case.name == name)
    calls = [(make(), make) for _, make in program.inputs()]
    return [(program.target(*arguments), arguments) for arguments, _ in calls]


def test_programs_of_python_are_taken_by_eager_and_their_two_spellings_agree(tmp_path):
    for number in range(4):
        suite = make_python_suite(PythonRequest(number, 5, 10))
        assert suite == make_python_suite(PythonRequest(number, 5, 10))
        assert [program.refused for program in suite.programs] == [None] * 20
        for index in range(10):
            plain = outcomes(suite.text, f"program_{index}", tmp_path / "plain.py")
            rewritten = outcomes(suite.text, f"program_{index}_again", tmp_path / "rewritten.py")
            torch.testing.assert_close(rewritten, plain, check_stride=False)  # whole numbers exactly


TENSORS = [
    torch.tensor([[1.5, float("nan")], [float("inf"), -0.0]]),
    torch.arange(6, dtype=torch.int16).reshape(2, 3).t(),
    torch.tensor([True, False])[None].expand(3, 2),
    torch.randn(3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.complex64)[:, ::2],
    torch.tensor(0.1, dtype=torch.bfloat16),
    torch.empty(0, 3, dtype=torch.float64),
]


@pytest.mark.parametrize("tensor", TENSORS, ids=lambda tensor: f"{tensor.dtype}-{tuple(tensor.stride())}")
def test_the_source_of_a_tensor_makes_it_again_with_its_strides(tensor):
    again = eval(tensor_source(tensor, 0), {"torch": torch, "nan": float("nan"), "inf": float("inf")})
    assert (again.dtype, again.shape) == (tensor.dtype, tensor.shape)
    assert again.numel() == 0 or again.stride() == tensor.stride()
    torch.testing.assert_close(again, tensor, rtol=0, atol=0, equal_nan=True)


def test_a_large_tensor_is_drawn_from_the_range_of_the_sample():
    tensor = torch.rand(50, 20, generator=torch.Generator().manual_seed(1)) * 3 + 2
    source = tensor_source(tensor, 5)
    assert len(source) < 200
    again = eval(source, {"torch": torch})
    assert again.shape == tensor.shape
    assert bool((again >= 1.99).all() and (again <= 5.01).all())


def test_a_number_has_the_shortest_text_that_keeps_its_bits():
    value = torch.tensor(0.1).item()
    assert number_text(value, torch.float32) == "0.1"
    assert number_text(value, torch.float64) == repr(value)


def test_what_has_no_text_is_refused():
    for value in (object(), print, torch.eye(2).to_sparse()):
        with pytest.raises(UnwritableError):
            source_of(value, lambda tensor: tensor_source(tensor, 0))


def record(case, verdict, **fields):
    return Record(case=case, compiler="export", device="cpu", case_hash="", verdict=verdict, **fields)


def refusal(case, message):
    return record(case, Verdict.ERROR, phase="capture", error=ErrorInfo("RuntimeError", message, "0" * 12))


def test_refusals_that_differ_in_operators_and_sizes_are_one_family():
    records = [
        refusal("op_a::function_0", "aten.sort.default: size 3 at [1, 2] of u0, u1"),
        refusal("op_b::function_0", "aten.add.Tensor: size 15 at [0, 7, 4] of u3"),
        refusal("op_b::function_1", "cannot be traced"),
    ]
    first, second, third = (family_of(row, row.case[3]) for row in records)
    assert first == second != third


def test_wrong_values_of_two_operators_are_two_families():
    difference = Difference("example", "result", "value", unlike="value", eager="1.0", other="2.0", bits="value")
    wrong = record("op_a::function_0", Verdict.WRONG, input="example", differences=(difference,))
    assert family_of(wrong, "a") != family_of(wrong, "b")
    assert family_of(wrong, "a").suspect == "a"


def test_a_signature_has_no_names_of_operators_and_no_numbers():
    assert signature("aten.sort.values_stable got 12 at (3, 4)") == signature("aten.topk.default got 7 at (1,)")
