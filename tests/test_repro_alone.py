"""Scripts run where nothing but torch and its own requirements can be imported, and their exit status tells a fault from an error."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from planted_scripts import SUITE, in_process

from recapture.cases.compilers import builtin_compilers
from recapture.judge.packing import packed, sources
from recapture.records.difference import Difference
from recapture.records.verdicts import Verdict
from recapture.run.cell import CellResult
from recapture.tools.explain.reduce.program import case_program
from recapture.tools.explain.script.replay import FAULT_SHOWS, NO_FAULT, UNKNOWN
from recapture.tools.explain.script.short_script import Form, case_parts, inspection_of, short_script, without_compiler

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("restored")]

ALONE = """
import sys

ALLOWED = set({allowed!r})


class Refusing:
    '''Finds what another finder finds, except installed packages that torch does not require, and recapture itself.'''

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        spec = self.finder.find_spec(name, path, target)
        package = name.partition(".")[0]
        places = [] if spec is None else [str(spec.origin), *(spec.submodule_search_locations or ())]
        if package == "recapture":
            return spec if all(".zip" in place for place in places) else None
        return None if package not in ALLOWED and any("-packages" in place for place in places) else spec


sys.meta_path[:] = [Refusing(finder) for finder in sys.meta_path]
"""
"""A program's beginning, after which it finds no other packages."""

FORKED = """
import os, runpy

import torch
from torch.fx.experimental.proxy_tensor import make_fx

torch.set_num_threads(1)
make_fx(torch.relu)(torch.ones(2))
for path in sys.argv[1:]:
    sys.stdout.flush()
    child = os.fork()
    if child == 0:  # ends as a program of its own does
        os.dup2(os.open(path + ".out", os.O_WRONLY | os.O_CREAT), 1)
        os.dup2(os.open(path + ".err", os.O_WRONLY | os.O_CREAT), 2)
        runpy.run_path(path, run_name="__main__")
        sys.exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
"""Runs each script in a process of its own, all of which share one import of torch, and prints their statuses."""


def requirements_of_torch():
    """The top-level modules of torch, and of what it requires, directly and indirectly."""
    distributions, waiting = set(), ["torch"]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name not in distributions:
            distributions.add(name)
            for text in importlib.metadata.requires(name) or ():
                requirement = Requirement(text)
                if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                    try:
                        importlib.metadata.distribution(requirement.name)
                    except importlib.metadata.PackageNotFoundError:  # another platform's, or not installed
                        continue
                    waiting.append(requirement.name)
    owners = importlib.metadata.packages_distributions()
    return sorted(
        module
        for module, names in owners.items()
        if distributions & {re.sub(r"[-_.]+", "-", name).lower() for name in names}
    )


def run_with_torch_alone(program, *arguments, cwd):
    """Run a program in a Python that finds torch, what torch requires, and nothing else."""
    text = ALONE.format(allowed=requirements_of_torch()) + program
    command = [sys.executable, "-I", "-W", "ignore", "-c", text, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, timeout=500)


NEEDS_SCIPY = SUITE.with_name("needs_scipy.py")

CELLS = {
    "control_flow::branch_on_sum::jit.trace": (FAULT_SHOWS, "== verdict: specialized on held_out[0]"),
    "control_flow::branch_on_sum::fx": (FAULT_SHOWS, "== verdict: error in capture"),
    "control_flow::branch_on_sum::eager": (NO_FAULT, "== verdict: pass"),
    "classes::enum_argument::fx": (FAULT_SHOWS, "== verdict: wrong on example"),
    "classes::dataclass_changed::make_fx": (FAULT_SHOWS, "(mutation): "),
    "types::float_into_int_in_place::fx": (FAULT_SHOWS, "(alias): "),
    "autograd::calls_a_no_grad_function::jit.trace": (FAULT_SHOWS, "(gradient): "),
    "containers::returns_a_torch_size::export": (FAULT_SHOWS, "(type): "),
    "custom_operators::operator_with_a_default::make_fx": (FAULT_SHOWS, "== verdict: specialized on held_out[0]"),
    "basic_use::BatchNormTraining::jit.trace": (NO_FAULT, "== verdict: pass"),
    f"{SUITE}::branch::mine": (FAULT_SHOWS, "== verdict: wrong on example"),
    f"{SUITE}::Layer::jit.script": (NO_FAULT, "== verdict: pass"),
    f"{NEEDS_SCIPY}::gamma::fx": (UNKNOWN, "the case needs scipy: whether the fault shows is unknown"),
}  # fmt: skip
"""Cells of many kinds, with the exit status of their scripts and a part of what they print."""


def test_scripts_need_torch_alone_and_their_status_is_1_only_for_a_fault(tmp_path):
    paths = [tmp_path / f"cell{number}.py" for number in range(len(CELLS))]
    for path, cell in zip(paths, CELLS, strict=True):
        path.write_text(in_process(cell), encoding="utf-8")
    done = run_with_torch_alone(FORKED, *paths, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    statuses = list(map(int, done.stdout.split()))
    for path, status, (cell, (expected, excerpt)) in zip(paths, statuses, CELLS.items(), strict=True):
        output = Path(f"{path}.out").read_text(encoding="utf-8")
        assert excerpt in output, (cell, output[-2000:], Path(f"{path}.err").read_text(encoding="utf-8")[-2000:])
        assert status == expected, cell
    assert len(list(tmp_path.iterdir())) == 3 * len(CELLS)


ERRORS = {
    "the case's own import": ("import torch\n", "import torch\nimport absent\n", "ModuleNotFoundError: No module named 'absent'"),
    "the case's own code": ("CASES = {}\n", "CASES = {}\n1 / 0\n", "ZeroDivisionError: division by zero"),
    "an incomplete archive": ("in base64:\n# ", "in base64:\n# AAAA", "error: Error -3 while decompressing data"),
    "an absent module of the comparison": ("recapture.tools.explain.script.replay import", "recapture.absent import", "ModuleNotFoundError: No module named 'recapture.absent'"),
}  # fmt: skip


def test_an_error_of_a_script_is_status_2_and_one_line(tmp_path):
    text = in_process("control_flow::branch_on_sum::jit.trace")
    paths = [tmp_path / f"error{number}.py" for number in range(len(ERRORS))]
    for path, (part, broken, _) in zip(paths, ERRORS.values(), strict=True):
        assert part in text
        path.write_text(text.replace(part, broken, 1), encoding="utf-8")
    done = run_with_torch_alone(FORKED, *paths, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == [str(UNKNOWN)] * len(ERRORS)
    for path, (_, _, message) in zip(paths, ERRORS.values(), strict=True):
        (line,) = Path(f"{path}.err").read_text(encoding="utf-8").splitlines()
        assert line.startswith(f"{path}, line ")
        assert message in line


def test_a_script_that_cannot_import_torch_is_status_2(tmp_path):
    path = tmp_path / "cell.py"
    text = in_process("control_flow::branch_on_sum::jit.trace")
    path.write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, "-I", "-S", path], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == UNKNOWN
    line = text.splitlines().index("import torch") + 1
    assert done.stderr.splitlines() == [f"{path}, line {line}: ModuleNotFoundError: No module named 'torch'"]


def test_an_installed_recapture_does_not_stand_in_for_the_packed_one(tmp_path):
    path = tmp_path / "cell.py"
    path.write_text(in_process("control_flow::branch_on_sum::fx"), encoding="utf-8")
    (tmp_path / "recapture").mkdir()
    (tmp_path / "recapture" / "__init__.py").write_text("raise SystemExit('the installed one')\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert done.returncode == FAULT_SHOWS, done.stderr


def test_the_judge_can_be_imported_where_there_is_torch_alone(tmp_path):
    judge = [name for name in sources("recapture.judge.steps") if name.startswith("recapture.judge.")]
    assert len(judge) > 12
    archive = tmp_path / "judge.zip"
    archive.write_bytes(packed("recapture.judge.steps"))
    program = (
        "sys.path.insert(0, sys.argv[1])\nimport importlib, json\nbefore = set(sys.modules)\n"
        "for name in sys.argv[2:]:\n    importlib.import_module(name)\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in set(sys.modules) - before})))"
    )
    done = run_with_torch_alone(program, archive, *judge, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    outside = {"msgspec", "click", "rich", "psutil", "tabulate", "jinja2", "packaging", "numpy"}
    assert not outside & set(json.loads(done.stdout))


def test_a_packed_module_that_needs_another_package_cannot_be_imported_there(tmp_path):
    archive = tmp_path / "records.zip"
    archive.write_bytes(packed("recapture.records.record"))
    done = run_with_torch_alone(
        "sys.path.insert(0, sys.argv[1])\nimport recapture.records.record", archive, cwd=tmp_path
    )
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'msgspec'"


def test_the_same_sources_give_the_same_archive_and_the_same_script():
    packed.cache_clear()
    first = packed("recapture.judge.steps")
    packed.cache_clear()
    assert packed("recapture.judge.steps") == first
    cell = "control_flow::branch_on_sum::jit.trace"
    assert in_process(cell) == in_process(cell)


def test_a_module_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match=r"recapture has no module 'recapture\.absent'"):
        packed("recapture.absent")


BRANCHES = """
import torch
from recapture import case


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (-torch.ones(3),)])
def branches(x):
    return x if x.sum() > 0 else -x
"""


def script_of_branch(folder, difference):
    """The short script of that case under `jit.trace`, which is silently wrong."""
    path = folder / "branches.py"
    path.write_text(BRANCHES, encoding="utf-8")
    program = case_program(path, "branches")
    parts = case_parts(program.tree, "branches", program.decorators)
    verdict, form = Verdict.SPECIALIZED, Form(separate=False, fallback_random=False)
    inspection = inspection_of(CellResult(verdict=verdict, input=difference.input, differences=(difference,)))
    return short_script("branches", parts, builtin_compilers()["jit.trace"], inspection, verdict, form)


def test_a_short_script_ends_with_1_for_its_fault_and_with_2_for_any_other_error(tmp_path):
    text = script_of_branch(tmp_path, Difference("held_out[0]", "result", "value", bits="value"))
    assert len(text.splitlines()) < 100
    variants = {
        text: FAULT_SHOWS,
        without_compiler(text): NO_FAULT,
        text.replace("import torch\n", "import torch\nimport absent\n", 1): UNKNOWN,
        text.replace("torch.jit.trace(", "torch.jit.trace(1 / 0, "): UNKNOWN,
    }
    paths = [tmp_path / f"short{number}.py" for number in range(len(variants))]
    for path, variant in zip(paths, variants, strict=True):
        path.write_text(variant, encoding="utf-8")
    done = run_with_torch_alone(FORKED, *paths, cwd=tmp_path)
    assert done.stdout.split() == list(map(str, variants.values())), [Path(f"{path}.err").read_text() for path in paths]
    assert "No module named 'absent'" in Path(f"{paths[2]}.err").read_text(encoding="utf-8").splitlines()[-1]
