"""The claims about finding the component that fails (I2 to I5, K1, I0), each with its fault planted in Inductor."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from conftest import REPOSITORY, records_below
from planted_machine import needs_cxx, needs_mounts

pytestmark = [pytest.mark.slow, needs_cxx]

FAULTY = Path(__file__).parent / "resources" / "inductor" / "faulty_neg.py"
COMPILERS = ("compile:eager", "compile:aot_eager", "neg-right", "neg-without-cast", "neg-doubled")
RIGHT = ("compile:eager", "compile:aot_eager", "neg-right")

PLANT = """
from torch._inductor import config
from torch._inductor.codegen.cpp import CppOverrides
CppOverrides.neg = staticmethod(lambda x: f"decltype({x})(2 * {x})")
config.cpp.simdlen = 1
"""

DOUBLED = f"""
import torch
{PLANT}
def negate(x, y):
    return torch.cat([torch.maximum(y, torch.neg(x))], dim=0)

try:
    torch.compile(negate)(torch.randn(1, 8), torch.randn(8390, 8))
except Exception as error:
    print(type(error).__name__)
"""

MINIFY = f"""
import runpy, sys
{PLANT}
launcher = sys.argv[1]
sys.argv = [launcher, "minify", "--no-isolate"]  # in this process: another one would not have the planted fault
runpy.run_path(launcher, run_name="__main__")
"""

SOUND = """
import torch

def negate(x, y):
    return torch.cat([torch.maximum(y, torch.neg(x))], dim=0)

torch.compile(negate)(torch.zeros(1, 8, dtype=torch.uint8), torch.zeros(8390, 8, dtype=torch.uint8))
"""


def python(directory: Path, program: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process and a directory of its own, with nothing compiled before."""
    places = {"TORCHINDUCTOR_CACHE_DIR": directory / "cache", "TORCH_COMPILE_DEBUG_DIR": directory}
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=directory,
        env={**os.environ, **{name: str(path) for name, path in places.items()}, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )


@pytest.fixture(scope="module")
def faulty(module_command):
    """The records of a run in which the C++ code generator is at fault under two of the compilers."""
    chosen = [part for name in COMPILERS for part in ("--compiler", name)]
    done = module_command("run", FAULTY, *chosen, "--device", "cpu", "--results", module_command.directory / "results")
    assert done.returncode == 0, done.stderr
    return records_below(module_command.directory / "results")


def test_a_fault_in_the_code_generator_fails_under_inductor_alone(faulty):
    for name in RIGHT:
        assert faulty[f"faulty_neg::of_bytes::{name}"].verdict == "pass"
    failed = faulty["faulty_neg::of_bytes::neg-without-cast"]
    assert failed.verdict == "error"
    assert "CppCompileError" in f"{failed.error.type} {failed.error.message}"


def test_a_fault_in_the_code_generator_is_silently_wrong_under_inductor_alone(faulty):
    for name in RIGHT:
        assert faulty[f"faulty_neg::of_floats::{name}"].verdict == "pass"
    assert faulty["faulty_neg::of_floats::neg-doubled"].verdict == "wrong"


def test_the_minifier_reduces_the_graph_to_the_faulty_operator(tmp_path):
    level = {"TORCHDYNAMO_REPRO_AFTER": "aot", "TORCHDYNAMO_REPRO_LEVEL": "4"}
    assert "AccuracyError" in python(tmp_path, DOUBLED, **level).stdout
    (launcher,) = tmp_path.rglob("minifier_launcher.py")
    assert operators(launcher) == ["neg", "maximum"]
    python(tmp_path, MINIFY, launcher)
    assert operators(tmp_path / "repro.py") == ["neg"]


def operators(script: Path) -> list[str]:
    """The operators of the graph that a script of the minifier holds."""
    return [line.split("aten.")[1].split(".")[0] for line in script.read_text().splitlines() if "ops.aten." in line]


def test_a_debug_run_leaves_its_graphs_ir_and_code(tmp_path):
    python(tmp_path, SOUND, TORCH_COMPILE_DEBUG="1")
    (code,) = tmp_path.glob("torch_compile_debug/run_*/torchinductor/model__*/output_code.py")
    left = {path.name: path.read_text() for path in code.parent.iterdir()}
    assert "torch.ops.aten.neg.default" in left["fx_graph_runnable.py"]
    assert "torch.ops.aten.maximum.default" in left["fx_graph_transformed.py"]
    assert "ops.neg" in left["ir_pre_fusion.txt"]
    assert "ops.neg" in left["ir_post_fusion.txt"]
    assert "#pragma" in left["output_code.py"]


@needs_mounts
def test_without_python_h_the_first_inductor_call_is_an_environment_fault(tmp_path):
    """Hides the directory of Python.h in a mount namespace of the command's own."""
    hide = f'mount -t tmpfs tmpfs {sysconfig.get_path("include")}; exec "$@"'
    cell = "basic_use::sine_plus_cosine::compile"
    recapture = [sys.executable, "-m", "recapture", "run", cell, "--device", "cpu", "--results", str(tmp_path)]
    subprocess.run(
        ["unshare", "--mount", "sh", "-ec", hide, "sh", *recapture],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        timeout=300,
        check=False,
    )
    record = records_below(tmp_path)[f"{cell}"]
    assert record.verdict == "environment"
    assert record.reason.startswith("python-headers")
    assert "Python.h" in record.error.message
    assert {claim.id: claim.holds for claim in record.claims} == {"T1": None}  # no blame for the compiler
