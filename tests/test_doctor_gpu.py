"""The doctor on drivers, GPUs and what the wheel has machine code for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from planted_machine import distribution, faults

from recapture.machine.doctor import gpu_checks as gpu
from recapture.machine.doctor.facts import CudaProbe, Facts, Torch

has_gpu = Facts("cuda").driver is not None


@pytest.mark.skipif(has_gpu, reason="plants the absence of a GPU's driver by running where there is none")
def test_a_machine_without_a_driver_reports_that_and_nothing_about_the_gpu(planted):
    checks = planted.examine("cuda")
    assert {"nvidia-driver", "libcuda"} <= faults(checks)
    assert "--gpus" in checks["nvidia-driver"].mend
    assert {checks["gpu-capability"].status, checks["gpu-architecture"].status} == {"unknown"}


@pytest.mark.skipif(not has_gpu, reason="hides a GPU that is there")
def test_a_hidden_gpu_is_a_fault(planted):
    planted.env["CUDA_VISIBLE_DEVICES"] = ""
    assert "nvidia-driver" in faults(planted.examine("cuda"))


@pytest.mark.skipif(not has_gpu, reason="needs a GPU")
def test_a_sound_gpu_has_no_fault(planted):
    checks = planted.examine("cuda")
    assert not faults(checks), checks
    assert checks["gpu-architecture"].status == "ok"


@pytest.mark.skipif(has_gpu, reason="the linker's cache knows the driver's own library first")
@pytest.mark.parametrize(
    ("source", "libraries", "status"),
    [
        ("libraries = ['cuda']", ["libcuda.so.1"], "fault"),
        ("libraries = ['cuda']", ["libcuda.so.1", "libcuda.so"], "ok"),
        ("libraries = ['libcuda.so.1']", ["libcuda.so.1"], "ok"),
        (None, ["libcuda.so.1"], "fault"),
    ],
)
def test_the_library_is_looked_for_under_the_name_that_triton_links_with(planted, tmp_path, source, libraries, status):
    version = "3.2.0" if source else "2.1.0"
    distribution(tmp_path / "path", "triton", version)
    if source:
        driver = tmp_path / "path" / "triton" / "backends" / "nvidia" / "driver.py"
        driver.parent.mkdir(parents=True)
        driver.write_text(source)
    planted.path(tmp_path / "path")
    planted.env["LD_LIBRARY_PATH"] = str(tmp_path / "lib")
    (tmp_path / "lib").mkdir()
    for name in libraries:
        (tmp_path / "lib" / name).touch()
    check = planted.check("libcuda", "cuda")
    assert check.status == status, check
    if status == "fault":
        assert check.mend.startswith("link libcuda.so to libcuda.so.1")


@pytest.mark.parametrize(
    ("archs", "capability", "runs"),
    [
        ("sm_75 sm_80 sm_86 sm_90 sm_100 sm_120", (9, 0), True),
        ("sm_75 sm_80 sm_86 sm_90 sm_100 sm_120", (7, 0), False),  # V100 on CUDA 13
        ("sm_75 sm_80 sm_86 sm_90 sm_100 sm_120", (8, 9), True),
        ("sm_37 sm_50 sm_60 sm_70 sm_75 sm_80 sm_86", (9, 0), False),  # H100 on torch 2.0
        ("sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90", (12, 0), False),
        ("sm_90a", (9, 0), True),
        ("sm_70 compute_70", (12, 0), True),  # PTX
        ("sm_100", (10, 3), True),
    ],
)
def test_a_cubin_runs_on_its_own_major_capability_from_its_minor_on(archs, capability, runs):
    assert gpu.runs_on(tuple(archs.split()), capability) is runs


def machine_with(**facts):
    machine = Facts("cuda")
    vars(machine).update(facts)
    return machine


OLD_GPU = CudaProbe(("sm_75", "sm_80"), (6, 1), "NVIDIA GeForce GTX 1080", "")


def test_a_gpu_older_than_volta_is_a_fault_for_triton_and_for_a_wheel_without_it():
    assert gpu.gpu_capability(machine_with(cuda=OLD_GPU)).status == "fault"
    assert "sm_61" in gpu.gpu_architecture(machine_with(cuda=OLD_GPU)).found
    assert gpu.gpu_architecture(machine_with(cuda=OLD_GPU)).status == "fault"


@pytest.mark.parametrize(
    ("driver", "cuda", "status"),
    [("535.104.05", "13.0", "fault"), ("535.104.05", "12.8", "ok"), ("580.65.06", "13.2", "ok")],
)
def test_a_driver_older_than_the_wheels_cuda_is_a_fault(driver, cuda, status):
    working = CudaProbe(("sm_90",), (9, 0), "NVIDIA H100", "")
    machine = machine_with(driver=driver, cuda=working, torch=Torch("2.11.0", (2, 11, 0), cuda))
    assert gpu.nvidia_driver(machine).status == status


def test_a_cpu_build_of_torch_is_a_fault_for_cuda():
    assert gpu.cuda_build(machine_with(torch=Torch("2.11.0+cpu", (2, 11, 0), None))).status == "fault"


TRITONS = "triton/backends/nvidia/bin/ptxas"
WORKERS = "torch/bin/ptxas"


def assemblers(planted, directory, releases):
    """Plant packages whose ptxas says a release; None: one that fails."""
    for name, release in releases.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        answer = "exit 1" if release is None else f"echo 'Cuda compilation tools, release {release}, V{release}.88'"
        path.write_text(f"#!/bin/sh\n{answer}\n")
        path.chmod(0o755)
    for package in {name.partition("/")[0] for name in releases}:
        (directory / package / "__init__.py").touch()
    if WORKERS in releases:
        (directory / "torch" / "version.py").write_text("__version__ = '2.11.0'\ncuda = '13.0'\n")
    planted.path(directory)


@pytest.mark.parametrize(
    ("releases", "status"),
    [
        ({TRITONS: "12.8", WORKERS: "13.0"}, "warning"),
        ({TRITONS: "13.0", WORKERS: "13.0"}, "ok"),
        ({TRITONS: "12.8", "torch/nothing": "0"}, "ok"),
        ({"triton/third_party/cuda/bin/ptxas": "12.1", WORKERS: "13.0"}, "warning"),
        ({TRITONS: None, WORKERS: "13.0"}, "fault"),
        ({"triton/nothing": "0", WORKERS: "13.0"}, "unknown"),
    ],
)
def test_workers_that_assemble_with_another_ptxas_are_warned_of(planted, tmp_path, releases, status):
    assemblers(planted, tmp_path / "path", releases)
    check = planted.check("ptxas", "cuda")
    assert check.status == status, check
    if status == "warning":
        assert releases[WORKERS] in check.found
        assert check.mend == f"export TRITON_PTXAS_PATH={tmp_path / 'path' / WORKERS}"


def test_one_ptxas_named_for_all_is_fine_if_it_works(planted, tmp_path):
    assemblers(planted, tmp_path / "path", {TRITONS: "12.8", WORKERS: "13.0"})
    planted.env["TRITON_PTXAS_PATH"] = str(tmp_path / "path" / WORKERS)
    assert planted.check("ptxas", "cuda").status == "ok"
    planted.env["TRITON_PTXAS_PATH"] = str(tmp_path / "absent")
    assert planted.check("ptxas", "cuda").status == "warning"


KEY = """
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def copy(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 1.0)

source = ASTSource(copy, {"x": "*fp32", "BLOCK": "constexpr"}, constexprs={"BLOCK": 64})
print(triton.compile(source, target=GPUTarget("cuda", 90, 32)).hash)
"""


@pytest.mark.skipif(
    None in (gpu._packaged("triton", *gpu.TRITONS_PTXAS[0]), gpu._packaged("torch", "bin", "ptxas")),
    reason="this torch comes without Triton, or without an assembler of its own",
)
def test_triton_does_not_find_again_what_another_assembler_made(tmp_path):
    """What the warning rests on, shown without a GPU: Triton compiles for one that is not there."""
    script = tmp_path / "key.py"  # Triton reads the source of what it compiles
    script.write_text(KEY)
    own, workers = gpu._packaged("triton", *gpu.TRITONS_PTXAS[0]), gpu._packaged("torch", "bin", "ptxas")
    keys = {}
    for tool in (None, own, workers):
        variables = {"TRITON_CACHE_DIR": str(tmp_path)} | ({} if tool is None else {"TRITON_PTXAS_PATH": str(tool)})
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_PTXAS_PATH"} | variables
        keys[tool] = subprocess.run(
            [sys.executable, script], env=environment, capture_output=True, text=True, check=True, timeout=120
        ).stdout
    assert keys[None] == keys[own]
    assert (keys[own] == keys[workers]) == (gpu._release_of(own) == gpu._release_of(workers))


def test_blackwell_has_an_assembler_of_its_own(tmp_path, monkeypatch):
    monkeypatch.delenv("TRITON_PTXAS_PATH", raising=False)
    paths = iter([tmp_path / "triton", tmp_path / "torch"])
    monkeypatch.setattr(gpu, "_packaged", lambda *_: next(paths))
    monkeypatch.setattr(gpu, "_release_of", lambda path: {"triton": "12.8", "torch": "13.0"}[path.name])
    blackwell = CudaProbe(("sm_100",), (10, 0), "NVIDIA B200", "")
    assert gpu.ptxas(machine_with(cuda=blackwell)).status == "ok"
