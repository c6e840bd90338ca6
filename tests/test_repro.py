"""A cell as a script: it runs without this project, shows both sides, and decides as the record was decided."""

import runpy
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch

from recapture.base.errors import UsageError
from recapture.base.torch_compat import reset_dynamo
from recapture.conformance.cell import CellSpec, examine
from recapture.conformance.printing import script
from recapture.conformance.repro import CellToPrint, SuitePrinter, print_cell, recorded_line
from recapture.declare.collection import find_suites
from recapture.declare.compilers import builtin_compilers
from recapture.declare.source import closure
from recapture.machine.environment import read_environment, write_environment
from recapture.results.directories import find_results, read_results
from recapture.results.records import Difference, ErrorInfo, Record, write_jsonl
from recapture.results.verdicts import Verdict

REPOSITORY = Path(__file__).resolve().parents[1]
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
    return {"sum": (x / 3).sum(), "all": [x, 2.0]}


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
    return lambda x: {**fn(x), "sum": fn(x)["sum"] + 6e-8}


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


@case(example=lambda: (torch.ones(2),))
def raises_unprintable(x):
    raise ValueError("a" + chr(0) + chr(27) + "[31m" + chr(0x202E) + "b" + chr(10) + chr(9) + "c")


@compiler("raises-another")
def raises_another(fn, example):
    def captured(x):
        raise TypeError(chr(27) + "]0;title" + chr(7))

    return captured
'''


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    path = tmp_path_factory.mktemp("suites") / "mine.py"
    path.write_text(SUITE)
    return path


@pytest.fixture(autouse=True)
def _restored(monkeypatch):
    """What executing suites and scripts in this process changes is put back."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = dict(sys.modules)
    yield
    for name in [name for name in sys.modules if name.startswith("recapture")]:
        if name in before:
            sys.modules[name] = before[name]
        else:
            del sys.modules[name]


def in_process(address, device="cpu", results=Path("nowhere")):
    """The script of a cell, made in this process; raises UsageError with the one line where there is none."""
    suite, case, compiler = address.rsplit("::", 2)
    (found,) = find_suites((suite,)).suites
    made = print_cell(CellToPrint(found.name, str(found.path), case, compiler, device, str(results)))
    if made.error is not None:
        raise UsageError(made.error)
    return made.text


@pytest.fixture
def printed(suite):
    return lambda cell, device="cpu": in_process(f"{suite}::{cell}", device)


@pytest.fixture
def run(tmp_path, capsys):
    """Run a script as the main program of this process, and return what it printed."""

    def execute(text):
        path = tmp_path / "cell.py"
        path.write_text(text, encoding="utf-8")
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
        "note: warned: TracerWarning",
        "== verdict: pass",
    ]


@pytest.mark.parametrize(
    ("cell", "shown"),
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
def test_the_script_shows_both_sides(printed, run, cell, shown):
    text = printed(cell)
    assert "import recapture" not in text
    output = run(text)
    for one in shown:
        assert one in output


@pytest.mark.parametrize("cell", ["Layer::export", "Layer::jit.script", "with_numpy::fx"])
def test_both_sides_have_the_same_weights_and_inputs(printed, run, cell):
    output = run(printed(cell))
    assert "DIFFERENT" not in output
    assert "== verdict: pass\n" in output


@pytest.mark.parametrize(
    ("cell", "shown"),
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
def test_what_is_recorded_as_silently_wrong_is_shown(run, cell, shown):
    assert shown in run(in_process(cell))


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("numpy_scalar::as-array", "eager:    numpy.float32 2.0\ncaptured: numpy.ndarray tensor(2.)\nDIFFERENT: result (type)"),
        ("nested::rounds", "captured: {['sum']: tensor(0.66666675), ['all']: [tensor([1., 1.]), 2.0]}\nsame"),
        ("nested::casts", "captured: {['sum']: tensor(0.66666669), ['all']: [tensor([1, 1]), 2.0]}\nDIFFERENT: result['all'][0] (dtype)"),
    ],
)  # fmt: skip
def test_types_count_and_rounding_does_not(printed, run, cell, shown):
    assert shown in run(printed(cell))


def test_characters_that_control_a_terminal_are_replaced_in_the_output_of_a_script(printed, run):
    output = run(printed("raises_unprintable::raises-another"))
    assert "eager:    raised ValueError: a\ufffd\ufffd[31m\ufffdb\n\tc\n" in output
    assert "captured: raised TypeError: \ufffd]0;title\ufffd\n" in output
    assert "== verdict: error in call on example: TypeError: \ufffd]0;title\ufffd\n" in output
    assert not set("\0\x1b\x07\u202e") & set(output)


def test_the_script_says_what_is_recorded_with_this_torch(suite, tmp_path):
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
    record("a", here, case_hash, verdict=Verdict.SPECIALIZED, input="held_out[0]", differences=(difference,))
    record("b", here, case_hash, verdict=Verdict.ERROR, phase="call", input="example", error=error)
    record("edited", here, "0", verdict=Verdict.PASS)
    record("other", msgspec.structs.replace(here, version="0"), case_hash, verdict=Verdict.PASS)
    lines = in_process(f"{suite}::branch::fx", results=tmp_path).split('"""\n')[0].splitlines()
    assert [line for line in lines if line.startswith("Recorded")] == [
        "Recorded with a on cpu: specialized; held_out[0], result (dtype): eager torch.int64, this torch.float32",
        "Recorded with b on cpu: error in call of example: TypeError: no",
    ]


def test_a_failure_is_shown_as_a_result(printed, run):
    text = printed("branch::compile:fullgraph").replace("fullgraph=True", 'backend="eager", fullgraph=True')
    output = run(text)
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
    assert "COUNTS" not in text
    assert "T1" not in text
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


def test_what_is_printed_counts_only_where_the_case_says_so(printed, run):
    assert "== verdict: pass\n" in run(printed("prints::silent"))


def printers():
    """What prints the cells of each shipped suite."""
    return {one.name: SuitePrinter(one) for one in find_suites(()).suites}


def test_every_committed_cell_can_be_printed_and_every_script_compiles():
    suites = printers()
    count = 0
    for directory in find_results(REPOSITORY / "results"):
        for row in read_results(directory).records:
            suite, case = row.case.split("::")
            suites[suite].check(case, row.compiler)
            # The script is compiled as it is made; one that does not compile raises UsageError.
            text = suites[suite].script(case, row.compiler, row.device, [f"Recorded: {recorded_line(row)}"])
            assert text.startswith('"""')
            count += 1
    assert count > 10_000


REPLAYED: tuple[str, ...] = (
    "eager",
    "jit.trace",
    "jit.script",
    "fx",
    "fx:concrete_args",
    "make_fx",
    "export:nonstrict",
    "export",
)
REPLAYED += ("compile:eager",)
DECIDED_IN_THE_CELL = ("pass", "pass_with_breaks", "specialized", "wrong", "error", "oom", "unstable")

DRIVER = """
import gc, os, runpy, sys
import torch, torch._dynamo, torch._inductor.compile_fx, torch.export
from torch.fx.experimental.proxy_tensor import make_fx
torch.set_num_threads(1)
for capture in (  # what the first capture of each kind imports and makes, the scripts have from here
    lambda fn, x: torch.compile(fn, backend="eager")(x),
    lambda fn, x: make_fx(fn)(x),
    lambda fn, x: torch.export.export(torch.nn.ReLU(), (x,)),
):
    capture(torch.relu, torch.ones(2))
torch._dynamo.reset()
gc.freeze()  # a collection in a child would copy every page
for path in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.dup2(os.open(path + ".out", os.O_WRONLY | os.O_CREAT), 1)
            runpy.run_path(path, run_name="__main__")
            status = 0
        finally:
            sys.stdout.flush()
            os._exit(status)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{path} failed")
"""


def chosen_cells():
    """Committed cells of this torch: one of each verdict and phase of each compiler that needs no C++."""
    found = {}
    for row in read_results(REPOSITORY / "results" / "torch2.11.0-cu130" / "cpu").records:
        if row.compiler in REPLAYED and row.verdict in DECIDED_IN_THE_CELL:
            found.setdefault((row.compiler, row.verdict, row.phase), row)
    return list(found.values())


def few(rows):
    """Some of these cells: each compiler is among them, and each verdict in each phase."""
    seen = set()
    for row in rows:
        kinds = {row.compiler, (row.verdict, row.phase)}
        if kinds - seen:
            yield row
        seen |= kinds


@pytest.mark.parametrize("wanted", [few, pytest.param(list, marks=pytest.mark.slow)], ids=["few", "all"])
def test_a_script_decides_as_the_record_was_decided(tmp_path, wanted):
    every = chosen_cells()
    assert len(every) >= 40
    rows = list(wanted(every))
    assert {row.compiler for row in rows} == set(REPLAYED)
    assert {(row.verdict, row.phase) for row in rows} == {(row.verdict, row.phase) for row in every}
    assert len({row.verdict for row in rows}) >= 5
    suites = printers()
    paths = []
    for number, row in enumerate(rows):
        suite, case = row.case.split("::")
        paths.append(tmp_path / f"cell{number}.py")
        paths[-1].write_text(suites[suite].script(case, row.compiler, row.device, []), encoding="utf-8")
    arguments = [sys.executable, "-I", "-W", "ignore", "-c", DRIVER, *map(str, paths)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    for row, path in zip(rows, paths, strict=True):
        lines = Path(f"{path}.out").read_text(encoding="utf-8").splitlines()
        expected = f"== verdict: {row.verdict}"
        expected += f" in {row.phase}" if row.phase else ""
        expected += f" on {row.input}" if row.input else ""
        decided = next(line for line in reversed(lines) if line.startswith("== verdict: "))
        if row.error is None and row.reason is None:
            assert decided == expected, row.cell
        else:
            assert decided.startswith(f"{expected}: {row.error.type if row.error else row.reason}"), row.cell
        shown = [line for line in lines if line.startswith("DIFFERENT: ")]
        if row.verdict in ("specialized", "wrong") and row.error is None:
            assert shown == [f"DIFFERENT: {one.where} ({one.kind}): {one.detail}" for one in row.differences], row.cell


HOSTILE_FILE = r'''
from __future__ import annotations, generators
import torch
import recapture
from recapture import case, compiler

print("printed on import")


def helper(x):
    return x + 1


case(example=lambda: (torch.ones(1),))(helper)


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.zeros(2),)])
def neighbour(x):
    "Says \"\"\" and \0 and \r and \x1b[31m and \u2028 and {braces} and \udc80 and \\."
    return helper(x)


@recapture.case(example=lambda: (torch.ones(2),))
def SOURCES(x):
    return x


@case(example=lambda: (torch.ones(2),))
def CASES(x):
    return x


@case(example=lambda: (torch.ones(2),))
def declare(x):
    return x


@case(example=lambda: (torch.ones(2),))
def größe(x):
    return x


@case(example=lambda: (torch.ones(2),))
def match(x):
    return x


@case(example=lambda: (torch.ones(2),))
def replay(x):
    return x


@case(example=(lambda: (
    torch.ones(2),)), held_out=[])
def brackets(x):
    return f"{x.shape}{{}}" and x


second = recapture.case(example=lambda: (torch.ones(2),))(lambda x: x)
made = recapture.case(example=lambda: (torch.ones(2),))(type("a b", (torch.nn.Module,), {}))


@case(example=lambda: (torch.ones(2),))
def uses_second(x):
    return second(x)


@compiler("it's \"\"\" {odd}\n\x00")
def odd(fn, example):
    """Odd \x0b {describe} \0."""
    return fn
'''

ODD = 'it\'s """ {odd}\n\x00'


@pytest.fixture
def hostile(tmp_path):
    folder = tmp_path / "a 'quoted' {folder}"
    folder.mkdir()
    path = folder / "it's {odd}.py"
    path.write_text(HOSTILE_FILE, encoding="utf-8")
    return path


@pytest.mark.parametrize("compiler", ["fx", ODD], ids=["fx", "odd"])
@pytest.mark.parametrize(
    "case",
    ["helper", "neighbour", "SOURCES", "CASES", "declare", "größe", "match", "replay", "brackets", "uses_second"],
)
@pytest.mark.hostile
def test_hostile_names_are_printed_in_scripts_that_run(hostile, run, case, compiler):
    text = in_process(f"{hostile}::{case}::{compiler}")
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "== verdict: pass\n" in run(text)


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("a b", "is not defined at the top level"),
        ("<lambda>", "is not defined at"),
    ],
)
@pytest.mark.hostile
def test_hostile_names_that_cannot_be_printed_are_refused_in_one_line(hostile, case, says):
    with pytest.raises(UsageError, match=says) as refused:
        in_process(f"{hostile}::{case}::fx")
    assert "\n" not in str(refused.value)


ASKS = """\
import torch
from recapture import case, compiler

LOG = []


def forget():
    LOG.clear()


@case(example=lambda: (torch.ones(3, requires_grad=True),), held_out=[lambda: (torch.ones(3, requires_grad=True),)])
def trains(x):
    return x * 2


@case(example=lambda: (torch.ones(3, requires_grad=True),), backward=False)
def does_not_train(x):
    return x * 2


@compiler("another-gradient")
def another_gradient(fn, example):
    return lambda x: fn(x) + 3 * (x - x.detach())


@case(example=lambda: (torch.ones(2, 3),))
def any_stride(x):
    return x + 1


@case(example=lambda: (torch.ones(2, 3),), strict=("stride",))
def one_stride(x):
    return x + 1


@compiler("transposes")
def transposes(fn, example):
    return lambda x: fn(x).t().contiguous().t()


def last(target, result):
    return target.scale, result.sum()


@case(example=lambda: (torch.ones(2),), watch=last)
class Watched(torch.nn.Module):
    scale = 2

    def forward(self, x):
        return x * self.scale


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.ones(2),)], reset=forget, watch=lambda: len(LOG))
def logs(x):
    LOG.append(1)
    return x


@compiler("once-more")
def once_more(fn, example):
    fn(*example)
    return fn


@case(example=lambda: (torch.ones(4),), held_out=[lambda: (torch.ones(2),), lambda: (torch.ones(6),)])
def sums(x):
    return (x + 1).sum()


@compiler("reads-on", checks_inputs=False)
def reads_on(fn, example):
    size = example[0].numel()
    return lambda x: fn(x.as_strided((size,), (1,)))
"""


@pytest.fixture(scope="module")
def asks(tmp_path_factory):
    path = tmp_path_factory.mktemp("asks") / "asks.py"
    path.write_text(ASKS)
    return path


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("trains::another-gradient", ["(gradient): ", "== verdict: wrong on example"]),
        ("does_not_train::another-gradient", ["== verdict: pass"]),
        ("any_stride::transposes", ["note: example: result (metadata): stride", "== verdict: pass"]),
        ("one_stride::transposes", ["DIFFERENT: result (metadata): stride", "== verdict: wrong on example"]),
        ("Watched::fx", ["== verdict: pass"]),
        ("logs::once-more", ["== verdict: pass"]),
        (
            "sums::reads-on",
            [
                "DIFFERENT: result (value): value differs; args[0] has shape (2,), the example's (4,)",
                "DIFFERENT: result (value): value differs: eager 12, this 8; args[0] has shape (6,), the example's (4,)",
                "== verdict: specialized on held_out[0]",
            ],
        ),
    ],
)
def test_what_a_case_asks_is_in_its_script_and_in_its_cell(asks, run, cell, shown):
    case, compiler = cell.split("::")
    output = run(in_process(f"{asks}::{cell}"))
    for text in shown:
        assert text in output
    own = compiler != "fx"
    suite, file = ("asks", str(asks)) if own else (None, None)
    found = examine(CellSpec("asks", str(asks), case, compiler, "cpu", suite, file), lambda _: None)
    assert f"== verdict: {found.verdict}" in shown[-1]
    listed = [line for line in output.splitlines() if line.startswith("DIFFERENT: ")]
    assert listed == [f"DIFFERENT: {one.where} ({one.kind}): {one.detail}" for one in found.differences]


FORMS = """\
import functools
from functools import partial

import torch
import recapture
import recapture as rc
import recapture.declare.case
from recapture import case
from recapture import case as c


def ones():
    return (torch.ones(2),)


@case(example=ones)
def neighbour(x):
    return x + 1


def called(x):
    return x * 2


case(example=ones)(called)


def assigned(x):
    return x - 1


kept = case(example=ones)(assigned)


def in_a_loop(x):
    return x * 3


def second_in_a_loop(x):
    return x * 4


for one in (in_a_loop, second_in_a_loop):
    case(example=ones)(one)


def in_a_list(x):
    return x * 5


declared = [case(example=ones)(one) for one in (in_a_list,)]

tiny = partial(case, example=ones)


@tiny(held_out=[lambda: (torch.zeros(3),)])
def by_partial(x):
    return x + 5


def small(function):
    return case(example=ones)(function)


@small
def by_own_decorator(x):
    return x + 6


def sized(n):
    return case(example=lambda: (torch.ones(n),), held_out=[lambda: (torch.ones(n + 1),)])


@sized(3)
def by_own_factory(x):
    return x + 7


def plus_one(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args) + 1

    return wrapper


@case(example=ones)
@plus_one
def above_another_decorator(x):
    return x


@plus_one
@case(example=ones)
def below_another_decorator(x):
    return x


def wrapped(x):
    return x


case(example=ones)(plus_one(wrapped))


@recapture.case(example=ones)
def by_package(x):
    return x


@rc.case(example=ones)
def by_alias_of_the_package(x):
    return x


@recapture.declare.case.case(example=ones)
def by_module(x):
    return x


@c(example=ones)
def by_alias(x):
    return x


other_name = recapture.case


@other_name(example=ones)
def by_another_name(x):
    return x


if hasattr(torch, "ones"):

    @case(example=ones)
    def inside_if(x):
        return x + 8


OPTIONS = {"example": ones}


@case(**OPTIONS)
def by_dict(x):
    return x + 9


@case(example=ones, **{"held_out": [lambda: (torch.zeros(3),)]})
def partly_by_dict(x):
    return x + 10


@case(example=ones)
class Layer(torch.nn.Module):
    def forward(self, x):
        return x
"""


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    path = tmp_path_factory.mktemp("forms") / "forms.py"
    path.write_text(FORMS)
    return path


FORMS_OF_CASES = [
    ("neighbour", 2.0),
    ("called", 2.0),
    ("assigned", 0.0),
    ("in_a_loop", 3.0),
    ("second_in_a_loop", 4.0),
    ("in_a_list", 5.0),
    ("by_partial", 6.0),
    ("by_own_decorator", 7.0),
    ("by_own_factory", 8.0),
    ("above_another_decorator", 2.0),
    ("below_another_decorator", 1.0),  # the case is what its decorator was given
    ("wrapped", 2.0),
    ("by_package", 1.0),
    ("by_alias_of_the_package", 1.0),
    ("by_module", 1.0),
    ("by_alias", 1.0),
    ("by_another_name", 1.0),
    ("inside_if", 9.0),
    ("by_dict", 10.0),
    ("partly_by_dict", 11.0),
    ("Layer", 1.0),
]


def test_every_form_of_declaration_is_tried(forms):
    (found,) = find_suites((str(forms),)).suites
    assert {one.name for one in SuitePrinter(found).cases} == {name for name, _ in FORMS_OF_CASES}


@pytest.mark.parametrize(("case", "first"), FORMS_OF_CASES)
def test_a_case_is_printed_however_it_is_declared(forms, run, case, first):
    output = run(in_process(f"{forms}::{case}::eager"))
    assert f"again:    tensor([{first:g}.," in output.split("== held_out")[0]
    assert ("held_out[0]" in output) == (case in ("by_partial", "by_own_factory", "partly_by_dict"))
    assert "== verdict: pass\n" in output


@pytest.mark.parametrize(
    "message",
    ["", "\n", "\0", "\udc80", 'three """ quotes', "a \\ backslash", "\x1b]0;title\x07", "{brace}", "'''", 'ends in "'],
)
@pytest.mark.hostile
def test_any_message_of_a_record_fits_a_script(suite, message):
    error = ErrorInfo("T", message, "0")
    row = Record(
        case="mine::branch",
        compiler="fx",
        device="cpu",
        case_hash="0",
        verdict=Verdict.ERROR,
        phase="call",
        error=error,
    )
    (found,) = find_suites((str(suite),)).suites
    text = SuitePrinter(found).script("branch", "fx", "cpu", [recorded_line(row)])
    assert all(char.isprintable() or char == "\n" for char in text)


@pytest.mark.hostile
def test_the_command_executes_the_suite_in_a_separate_process(command, hostile):
    done = command("repro", f"{hostile}::neighbour::fx")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith('"""')
    compile(done.stdout, "cell.py", "exec", dont_inherit=True)
    hostile.write_text("import os\n\nos._exit(0)\n")
    done = command("repro", f"{hostile}::neighbour::fx")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "died on import: exited with status 0 and without a result" in done.stderr
    assert command.leftovers(seconds=10) == []
