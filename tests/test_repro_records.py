"""Scripts and records: each committed cell has a script, which decides as the record was decided."""

import collections
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch
from planted_scripts import in_process, printers

from recapture.cases.collection import find_suites
from recapture.cases.source import closure
from recapture.machine.environment import read_environment, write_environment
from recapture.records.difference import Difference
from recapture.records.directories import find_results, read_results
from recapture.records.record import ErrorInfo, Record, write_jsonl
from recapture.records.verdicts import Verdict
from recapture.tools.explain.script.repro import Recorded, SuitePrinter, fault_in, recorded_line

REPOSITORY = Path(__file__).resolve().parents[1]
ENVIRONMENT = Path(__file__).parent / "resources" / "results" / "images" / "torch2.6.0-cu124" / "cpu"

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("restored")]


def test_the_script_says_what_is_recorded_with_this_torch(mine, tmp_path):
    environment = read_environment(ENVIRONMENT)
    this_torch = msgspec.structs.replace(environment.torch, version=str(torch.__version__))

    def record(image, torch_info, case_hash, **fields):
        directory = tmp_path / image / "cpu"
        directory.mkdir(parents=True)
        row = Record(case="mine::branch", compiler="fx", device="cpu", case_hash=case_hash, **fields)
        write_jsonl(directory / "conformance.jsonl", [row])
        of_one = msgspec.structs.replace(environment, torch=torch_info, planned=1, recorded=1)
        write_environment(directory / "environment.json", of_one)

    case_hash = closure(mine, "branch").hash
    difference = Difference("held_out[0]", "result", "dtype", "eager torch.int64, this torch.float32")
    error = ErrorInfo("TypeError", "no\nmore", "0")
    record("a", this_torch, case_hash, verdict=Verdict.SPECIALIZED, input="held_out[0]", differences=(difference,))
    record("b", this_torch, case_hash, verdict=Verdict.ERROR, phase="call", input="example", error=error)
    record("edited", this_torch, "0", verdict=Verdict.PASS)
    record("other", msgspec.structs.replace(this_torch, version="0"), case_hash, verdict=Verdict.PASS)
    lines = in_process(f"{mine}::branch::fx", results=tmp_path).split('"""\n')[0].splitlines()
    assert [line for line in lines if line.startswith("Recorded")] == [
        "Recorded with a on cpu: specialized; held_out[0], result (dtype): eager torch.int64, this torch.float32",
        "Recorded with b on cpu: error in call of example: TypeError: no",
    ]


def test_every_committed_cell_can_be_printed_and_every_script_compiles():
    suites = printers()
    recorded = collections.defaultdict(list)  # releases and devices differ only in the lines above the program
    for directory in find_results(REPOSITORY / "results"):
        for row in read_results(directory).records:
            recorded[row.case, row.compiler].append(Recorded(f"Recorded: {recorded_line(row)}", fault_in(row)))
    assert sum(map(len, recorded.values())) > 10_000
    for (name, compiler), lines in recorded.items():
        suite, case = name.split("::")
        if suite not in suites:
            assert suite in {"zoo_timm", "zoo_transformers"}, "only their libraries may be missing"
            continue
        suites[suite].check(case, compiler)
        # The script is compiled as it is made; one that does not compile raises UsageError.
        assert suites[suite].script(case, compiler, "cpu", lines).startswith('"""')


REPLAYED: tuple[str, ...] = (
    "eager",
    "jit.trace",
    "jit.script",
    "fx",
    "fx:concrete_args",
    "make_fx",
    "export:nonstrict",
    "export:strict",
    "export",
)
REPLAYED += ("compile:eager",)
WITHOUT_DYNAMO = ("eager", "jit.trace", "jit.script", "fx", "fx:concrete_args", "make_fx")
"""Compilers whose scripts run soon after `import torch`."""

DECIDED_IN_THE_CELL = ("pass", "pass_with_breaks", "specialized", "wrong", "error", "oom", "unstable")

WARMING = """
import torch._dynamo, torch._inductor.compile_fx, torch.export
for capture in (  # what the first capture of each kind imports and makes, the scripts have from here
    lambda fn, x: torch.compile(fn, backend="eager")(x),
    lambda fn, x: torch.export.export(torch.nn.ReLU(), (x,)),
):
    capture(torch.relu, torch.ones(2))
torch._dynamo.reset()
"""

DRIVER = """
import gc, os, runpy, sys
import torch
from torch.fx.experimental.proxy_tensor import make_fx
torch.set_num_threads(1)
make_fx(torch.relu)(torch.ones(2))
{warming}
gc.freeze()  # a collection in a child would copy every page
for path in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.dup2(os.open(path + ".out", os.O_WRONLY | os.O_CREAT), 1)
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            status = 0 if end.code in (0, 1, 2) else 3
        finally:
            sys.stdout.flush()
            os._exit(status)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{{path}} failed")
"""


def chosen_cells():
    """Committed cells of this torch: one of each verdict and phase of each compiler that needs no C++."""
    chosen = {}
    for row in read_results(REPOSITORY / "results" / "torch2.11.0-cu130" / "cpu").records:
        if row.compiler in REPLAYED and row.verdict in DECIDED_IN_THE_CELL:
            chosen.setdefault((row.compiler, row.verdict, row.phase), row)
    return list(chosen.values())


def sample_of_each(rows):
    """Some of these cells: each compiler without Dynamo is among them, and each of their verdicts in each phase."""
    covered = set()
    for row in rows:
        if row.compiler not in WITHOUT_DYNAMO:
            continue
        kinds = {row.compiler, (row.verdict, row.phase)}
        if kinds - covered:
            yield row
        covered |= kinds


@pytest.mark.parametrize("wanted", [sample_of_each, pytest.param(list, marks=pytest.mark.slow)], ids=["few", "all"])
def test_a_script_decides_as_the_record_was_decided(tmp_path, wanted):
    every = chosen_cells()
    assert len(every) >= 40
    rows = list(wanted(every))
    warming = "" if wanted is sample_of_each else WARMING
    compilers = set(WITHOUT_DYNAMO if wanted is sample_of_each else REPLAYED)
    assert {row.compiler for row in rows} == compilers
    kinds = {(row.verdict, row.phase) for row in every if row.compiler in compilers}
    assert {(row.verdict, row.phase) for row in rows} == kinds
    assert len({row.verdict for row in rows}) >= (4 if wanted is sample_of_each else 5)
    suites = printers()
    paths = []
    for number, row in enumerate(rows):
        suite, case = row.case.split("::")
        paths.append(tmp_path / f"cell{number}.py")
        paths[-1].write_text(
            suites[suite].script(case, row.compiler, row.device, [Recorded("", fault_in(row))]), encoding="utf-8"
        )
    arguments = [sys.executable, "-I", "-W", "ignore", "-c", DRIVER.format(warming=warming), *map(str, paths)]
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
        printed = [line for line in lines if line.startswith("DIFFERENT: ")]
        if row.verdict in ("specialized", "wrong") and row.error is None:
            expected_lines = [
                f"DIFFERENT: {difference.where} ({difference.kind}): {difference.detail}"
                for difference in row.differences
            ]
            assert sorted(printed) == sorted(expected_lines), (
                row.cell
            )  # a script shows call after call, a record what matters most
            of_call = lines[lines.index(f"== {row.input}") :]
            assert next(line for line in of_call if line.startswith("DIFFERENT: ")) == expected_lines[0], row.cell


@pytest.mark.parametrize(
    "message",
    ["", "\n", "\0", "\udc80", 'three """ quotes', "a \\ backslash", "\x1b]0;title\x07", "{brace}", "'''", 'ends in "'],
)
@pytest.mark.hostile
def test_any_message_of_a_record_fits_a_script(mine, message):
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
    (own_suite,) = find_suites((str(mine),)).suites
    text = SuitePrinter(own_suite).script("branch", "fx", "cpu", [Recorded(recorded_line(row))])
    assert all(char.isprintable() or char == "\n" for char in text)
