"""Each fault is planted for real, in a process or mount namespace of its own, and the doctor must name it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from recapture.cli_doctor import doctor
from recapture.doctor import Check, examine, explain, gpu, packages, places, render
from recapture.doctor.machine import CudaProbe, Machine, Torch, release
from recapture.errors import UsageError

REPOSITORY = Path(__file__).resolve().parents[1]
EXAMINE = """
import json, sys
import msgspec
from recapture.doctor import checks
device, *names = sys.argv[1:]
for name in set(checks._REGISTER) - set(names or checks._REGISTER):
    del checks._REGISTER[name]
print("CHECKS" + msgspec.json.encode(checks.examine(device)).decode())
"""
COMPILE = """
import sys, traceback
try:
    import torch
    function = torch.compile(lambda x: x.sin() + 1)
    function(torch.ones(64))
except BaseException as error:
    print("ERROR" + type(error).__name__ + "|" + " ".join(str(error).split()))
else:
    print("COMPILED")
"""
NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")


def may_mount() -> bool:
    probe = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
    return (
        shutil.which("unshare") is not None and subprocess.run(probe, capture_output=True, check=False).returncode == 0
    )


needs_mounts = pytest.mark.skipif(
    not may_mount(), reason="plants its fault with a mount of its own, which needs `unshare --mount`"
)
needs_cxx = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, whose absence is planted too")


class Planted:
    """An environment with a fault in it: variables, a shell line run in a mount namespace, Python run first."""

    def __init__(self, cache: Path):
        self.env = {
            name: value for name, value in os.environ.items() if not name.startswith(("TORCHINDUCTOR", "TRITON"))
        }
        self.env |= {"PYTHONPATH": str(REPOSITORY), "TORCHINDUCTOR_CACHE_DIR": str(cache)}
        self.mount = ""
        self.first = ""
        self.python = sys.executable
        self.wrapper: list[str] = []

    def path(self, directory: Path) -> None:
        self.env["PYTHONPATH"] = f"{directory}{os.pathsep}{self.env['PYTHONPATH']}"

    def become_nobody_known(self) -> None:
        """Run as a user id without a name, as `docker run --user` does."""
        if os.getuid() != 0 or shutil.which("setpriv") is None:
            pytest.skip("plants its fault by becoming another user, which needs root and setpriv")
        # May read everything, so that an interpreter below /root still works; may write nothing it does not own.
        capability = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        self.wrapper = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", *capability]

    def run(self, program: str, *arguments: str) -> str:
        command = [self.python, "-c", self.first + program, *arguments]
        if self.mount:
            command = ["unshare", "--mount", "sh", "-ec", f'{self.mount}\nexec "$@"', "sh", *command]
        done = subprocess.run(
            [*self.wrapper, *command], capture_output=True, text=True, env=self.env, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert "Traceback" not in done.stderr or program is COMPILE, done.stderr[-2000:]
        return done.stdout

    def examine(self, device: str = "cpu", *names: str) -> dict[str, Check]:
        """Make all checks, or those named."""
        out = self.run(EXAMINE, device, *names)
        told = msgspec.json.decode(out.partition("CHECKS")[2], type=list[Check])
        return {one.name: one for one in told}

    def check(self, name: str, device: str = "cpu") -> Check:
        return self.examine(device, name)[name]

    def compile(self) -> tuple[str, str]:
        """The type and text of what torch.compile raises there; empty where it works."""
        out = self.run(COMPILE)
        if "COMPILED" in out:
            return "", ""
        kind, _, text = out.partition("ERROR")[2].strip().partition("|")
        return kind, text


@pytest.fixture
def planted(tmp_path):
    return Planted(tmp_path / "inductor")


def faults(checks: dict[str, Check]) -> set[str]:
    return {name for name, one in checks.items() if one.status == "fault"}


def without(planted: Planted, tmp_path: Path, *absent: str) -> None:
    """Use a virtual environment with this one's packages but for those that start with the given names."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, timeout=120)
    site = next((tmp_path / "venv").glob("lib/python3*/site-packages"))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(absent) and entry.suffix != ".pth":
            (site / entry.name).symlink_to(entry)
    planted.python = str(tmp_path / "venv" / "bin" / "python")


def distribution(directory: Path, name: str, version: str, *, requires: str = "", cuda: str | None = "12.1") -> None:
    """Plant the metadata of a distribution and, for torch, the version.py that names its CUDA."""
    info = directory / f"{name}-{version.partition('+')[0]}.dist-info"
    info.mkdir(parents=True)
    requirement = f"Requires-Dist: {requires}\n" if requires else ""
    info.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version.partition('+')[0]}\n{requirement}"
    )
    package = directory / name
    package.mkdir(exist_ok=True)
    package.joinpath("__init__.py").touch()
    package.joinpath("version.py").write_text(f"__version__ = {version!r}\ncuda = {cuda!r}\n")


# --- the toolchain


def test_a_sound_machine_has_no_fault_and_is_examined_quickly(planted):
    started = time.monotonic()
    checks = planted.examine()
    took = time.monotonic() - started
    assert not faults(checks), checks
    assert checks["cxx-compiler"].found
    assert took < 20, "the checks take about a second; only a check that hangs or imports torch many times reaches this"


@needs_mounts
@needs_cxx
def test_missing_headers_are_named_with_their_package(planted):
    planted.mount = f"mount -t tmpfs tmpfs {sysconfig.get_path('include')}"
    checks = planted.examine()
    assert faults(checks) == {"python-headers"}
    assert "python3-dev" in checks["python-headers"].mend


@needs_mounts
@needs_cxx
def test_headers_that_do_not_compile_are_a_fault_though_python_h_is_there(planted):
    include = sysconfig.get_path("include")
    planted.mount = f"mount -t tmpfs tmpfs {include} && echo '#include <missing_pyconfig.h>' > {include}/Python.h"
    checks = planted.examine()
    assert faults(checks) == {"python-headers"}
    assert "missing_pyconfig.h" in checks["python-headers"].found


@needs_mounts
def test_headers_do_not_matter_before_torch_2_3_on_the_cpu(planted, tmp_path):
    distribution(tmp_path / "old", "torch", "2.2.2+cu121")
    planted.path(tmp_path / "old")
    planted.mount = f"mount -t tmpfs tmpfs {sysconfig.get_path('include')}"
    assert planted.check("python-headers").status == "ok"
    assert planted.check("python-headers", "cuda").status == "fault"


def test_a_path_without_compilers_is_a_fault_of_the_compiler_alone(planted, tmp_path):
    planted.env["PATH"] = str(tmp_path)
    planted.env.pop("CXX", None)
    planted.env.pop("CC", None)
    checks = planted.examine()
    assert faults(checks) == {"cxx-compiler"}
    assert checks["c-compiler"].status == "warning"
    assert planted.check("c-compiler", "cuda").status == "fault"  # Triton builds its launchers with it


def test_cxx_naming_no_program_is_a_fault_even_with_gxx_on_the_path(planted):
    planted.env["CXX"] = "no-such-compiler"
    checks = planted.examine()
    assert faults(checks) == {"cxx-compiler"}
    assert "no-such-compiler" in checks["cxx-compiler"].found


def test_a_compiler_that_only_tells_its_version_is_a_fault(planted, tmp_path):
    fake = tmp_path / "fake-g++"
    fake.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exit 0\necho "fatal error: cmath: No such file or directory" >&2\nexit 1\n'
    )
    fake.chmod(0o755)
    planted.env["CXX"] = str(fake)
    checks = planted.examine()
    assert faults(checks) == {"cxx-compiler"}
    assert "cmath" in checks["cxx-compiler"].found


# --- packages


def test_absent_setuptools_is_a_fault(planted, tmp_path):
    without(planted, tmp_path, "setuptools", "pkg_resources", "_distutils_hack")
    checks = planted.examine()
    assert faults(checks) == {"setuptools"}
    assert checks["setuptools"].found == "setuptools is not installed"


def test_setuptools_without_pkg_resources_is_a_fault_for_torch_2_1_alone(planted, tmp_path):
    without(planted, tmp_path, "pkg_resources")
    assert planted.check("setuptools").status == "ok"
    distribution(tmp_path / "old", "torch", "2.1.2+cu121")
    planted.path(tmp_path / "old")
    found = planted.check("setuptools")
    assert (found.status, found.affects) == ("fault", "dynamo")
    assert "pkg_resources" in found.found
    assert "setuptools<70" in found.mend


@pytest.mark.parametrize(
    ("torch", "numpy", "status"), [("2.2.2", "2.0.0", "fault"), ("2.2.2", "1.26.4", "ok"), ("2.3.1", "2.0.0", "ok")]
)
def test_numpy_2_is_a_fault_up_to_torch_2_2(planted, tmp_path, torch, numpy, status):
    distribution(tmp_path / "pair", "torch", f"{torch}+cu121")
    distribution(tmp_path / "pair", "numpy", numpy)
    planted.path(tmp_path / "pair")
    found = planted.check("numpy-version")
    assert (found.status, found.affects) == (status, "numpy")
    assert f"numpy {numpy}" in found.found


def test_absent_numpy_is_a_fault(planted, tmp_path):
    without(planted, tmp_path, "numpy", "scipy", "torchvision")
    assert faults(planted.examine()) == {"numpy-version"}


@pytest.mark.parametrize(
    ("torch", "scipy", "status"),
    [
        ("2.9.1", "1.15.0", "warning"),
        ("2.2.2", "1.17.1", "warning"),
        ("2.9.1", "1.14.1", "ok"),
        ("2.10.0", "1.17.1", "ok"),
        ("2.1.2", "1.15.3", "ok"),
    ],
)
def test_scipy_1_15_is_a_warning_from_torch_2_2_to_2_9(planted, tmp_path, torch, scipy, status):
    distribution(tmp_path / "pair", "torch", f"{torch}+cu121")
    distribution(tmp_path / "pair", "scipy", scipy)
    planted.path(tmp_path / "pair")
    assert planted.check("scipy-version").status == status


@pytest.mark.parametrize(("library", "status"), [(False, "fault"), (True, "ok")])
def test_torchvision_for_another_torch_is_imported_to_see(planted, tmp_path, library, status):
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        pytest.skip("needs torchvision")
    distribution(tmp_path / "other", "torchvision", "0.1.0", requires="torch (==2.0.0)")
    package = tmp_path / "other" / "torchvision"
    shutil.rmtree(package)
    package.mkdir()
    for entry in Path(spec.origin).parent.iterdir():
        if library or not entry.name.startswith("_C"):  # without its library no operator is registered
            (package / entry.name).symlink_to(entry)
    planted.path(tmp_path / "other")
    found = planted.check("torchvision-build")
    assert found.status == status, found
    if status == "fault":
        assert "declares torch==2.0.0" in found.found
        assert explain("RuntimeError", "operator torchvision::nms does not exist", [found]) == found
        assert found.mend.endswith("torch 2.0.0")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no torch 2 refuses this Python")
def test_a_python_that_torch_compile_refuses_is_a_fault(planted, tmp_path):
    distribution(tmp_path / "old", "torch", "2.0.1+cu117")
    planted.path(tmp_path / "old")
    found = planted.check("python-version")
    assert (found.status, found.affects) == ("fault", "dynamo")
    assert "Python 3.10" in found.mend


def test_the_table_of_refused_pythons_agrees_with_the_installed_torch():
    """torch._dynamo itself says from which Python on it refuses."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).parent.joinpath("_dynamo", "eval_frame.py").read_text()
    refused = packages.REFUSES_PYTHON[Machine("cpu").torch.release[:2]]
    assert f"Python {refused[0]}.{refused[1]}+ not yet supported for torch.compile" in source


def test_a_torch_newer_than_the_tables_is_unknown_not_a_fault(planted, tmp_path):
    distribution(tmp_path / "new", "torch", "3.1.0+cu140", cuda="14.0")
    planted.path(tmp_path / "new")
    assert planted.check("python-version").status == "unknown"


def test_without_torch_the_checks_that_need_it_are_unknown_and_nothing_raises(planted, tmp_path):
    without(planted, tmp_path, "torch")
    checks = planted.examine()
    assert checks["python-version"].status == "unknown"
    assert "torch is not installed" in checks["python-version"].found
    assert checks["cxx-compiler"].status == "ok"


# --- places


def test_a_user_id_without_a_name_is_a_fault_unless_the_cache_is_named(planted, tmp_path):
    for name in NAMES:
        planted.env.pop(name, None)
    planted.become_nobody_known()
    assert planted.check("user-name").status == "ok"
    del planted.env["TORCHINDUCTOR_CACHE_DIR"]
    checks = planted.examine()
    assert faults(checks) == {"user-name"}
    assert "12345" in checks["user-name"].found
    planted.env["USER"] = "somebody"
    assert planted.check("user-name").status == "ok"


@needs_mounts
def test_a_cache_mounted_noexec_is_a_fault(planted, tmp_path):
    planted.mount = f"mount -t tmpfs -o noexec tmpfs {tmp_path}"
    checks = planted.examine()
    assert faults(checks) == {"executable-caches"}
    assert "Inductor's cache" in checks["executable-caches"].found


@needs_mounts
def test_a_temporary_directory_mounted_noexec_is_a_fault(planted, tmp_path):
    planted.env["TMPDIR"] = str(tmp_path / "noexec")
    (tmp_path / "noexec").mkdir()
    planted.mount = f"mount -t tmpfs -o noexec tmpfs {tmp_path}/noexec"
    found = planted.check("executable-caches")
    assert found.status == "fault"
    assert "the temporary directory" in found.found


def test_loading_a_library_really_loads_one(tmp_path):
    sample = places._a_shared_library()
    assert sample is not None
    assert not places._refuses_to_load(sample, tmp_path)
    assert not list(tmp_path.iterdir()), "what was planted to be loaded is removed"


@needs_mounts
def test_loading_a_library_fails_where_it_must(planted, tmp_path):
    planted.mount = f"mount -t tmpfs -o noexec tmpfs {tmp_path}"
    program = f"""
from pathlib import Path
from recapture.doctor import places
print(places._refuses_to_load(places._a_shared_library(), Path({str(tmp_path)!r})))
"""
    assert planted.run(program).strip() == "True"


@needs_mounts
def test_a_read_only_cache_is_a_fault(planted, tmp_path):
    planted.mount = f"mount -t tmpfs -o ro tmpfs {tmp_path}"
    checks = planted.examine()
    assert faults(checks) == {"writable-caches"}
    assert "Read-only file system" in checks["writable-caches"].found


def test_a_cache_that_is_a_file_is_a_fault(planted, tmp_path):
    (tmp_path / "inductor").touch()
    assert "is not a directory" in planted.check("writable-caches").found


@needs_mounts
def test_a_read_only_home_is_a_warning_on_the_cpu_and_a_fault_where_triton_keeps_its_cache_there(planted, tmp_path):
    (tmp_path / "home").mkdir()
    planted.env["HOME"] = str(tmp_path / "home")
    planted.mount = f"mount -t tmpfs -o ro tmpfs {tmp_path}/home"
    assert planted.check("writable-home").status == "warning"
    assert {"writable-home", "writable-caches"} <= faults(planted.examine("cuda", "writable-home", "writable-caches"))
    planted.env["TRITON_CACHE_DIR"] = str(tmp_path / "triton")
    checks = planted.examine("cuda", "writable-home", "writable-caches")
    assert checks["writable-home"].status == "warning"
    assert checks["writable-caches"].status == "ok"


@needs_mounts
def test_no_writable_temporary_directory_is_a_fault(planted, tmp_path):
    planted.env.pop("TMPDIR", None)
    planted.mount = "for d in /var/tmp /tmp; do mount -t tmpfs -o ro tmpfs $d; done; cd /tmp"
    found = planted.check("temporary-directory")
    assert found.status == "fault"


@needs_mounts
def test_a_small_dev_shm_is_a_warning(planted):
    planted.mount = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
    found = planted.check("shared-memory")
    assert (found.status, found.found) == ("warning", "0.1 GiB in /dev/shm")


@needs_mounts
@pytest.mark.parametrize(("size", "status"), [("1g", "fault"), ("3g", "warning"), ("6g", "ok")])
def test_little_free_space_is_a_warning_and_too_little_a_fault(planted, tmp_path, size, status):
    planted.mount = f"mount -t tmpfs -o size={size} tmpfs {tmp_path}"
    if status != "fault" and shutil.disk_usage("/tmp").free < 5 * places.GIB:
        pytest.skip("this machine itself has little disk left")
    assert planted.check("disk-space").status == status


@needs_mounts
@pytest.mark.parametrize(
    ("limit", "used", "cache", "status"), [(2, 1.9, 0.2, "fault"), (3, 1, 0.5, "warning"), (2, 1.9, 1.8, "warning")]
)
def test_a_containers_memory_limit_counts(planted, limit, used, cache, status):
    gib = places.GIB
    group = "/sys/fs/cgroup"
    planted.mount = f"""mount -t tmpfs tmpfs {group}
echo {int(limit * gib)} > {group}/memory.max
echo {int(used * gib)} > {group}/memory.current
echo inactive_file {int(cache * gib)} > {group}/memory.stat"""
    assert planted.check("memory").status == status


@needs_mounts
def test_the_file_system_of_a_cache_is_told(planted, tmp_path):
    planted.mount = f"mount -t tmpfs tmpfs {tmp_path}"
    assert planted.check("cache-on-network").found == "Inductor's cache is on tmpfs"
    planted.first = "from recapture.doctor import places; places.NETWORK_FILESYSTEMS |= {'tmpfs'}\n"
    assert planted.check("cache-on-network").status == "warning"


def test_network_file_systems_are_known_by_the_kernels_names():
    assert {"nfs", "nfs4", "cifs", "lustre", "fuse.sshfs"} <= places.NETWORK_FILESYSTEMS


# --- the GPU

has_gpu = Machine("cuda").driver is not None


@pytest.mark.skipif(has_gpu, reason="plants the absence of a GPU's driver by running where there is none")
def test_a_machine_without_a_driver_says_so_and_says_nothing_of_the_gpu(planted):
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
    found = planted.check("libcuda", "cuda")
    assert found.status == status, found
    if status == "fault":
        assert found.mend.startswith("link libcuda.so to libcuda.so.1")


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
    machine = Machine("cuda")
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


# --- what errors are due to

MESSAGES = [
    (
        "python-headers",
        "CppCompileError",
        "C++ compile error\n\nOutput:\n/tmp/x.cpp:2:10: fatal error: Python.h: No such file or directory\n    2 | #include <Python.h>",
    ),
    (
        "cxx-compiler",
        "BackendCompilerFailed",
        "backend='inductor' raised:\nInvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')",
    ),
    ("c-compiler", "RuntimeError", "Failed to find C compiler. Please specify via CC environment variable."),
    (
        "libcuda",
        "AssertionError",
        "libcuda.so cannot found!\nPossible files are located at ['/lib/x86_64-linux-gnu/libcuda.so.1'].",
    ),
    (
        "libcuda",
        "stderr",
        "/usr/bin/ld: cannot find -lcuda: No such file or directory\ncollect2: error: ld returned 1 exit status",
    ),
    (
        "libcuda",
        "CalledProcessError",
        "Command '['/usr/bin/gcc', '/tmp/t/main.c', '-O3', '-shared', '-o', 'cuda_utils.so', '-lcuda', '-L/lib']' returned non-zero exit status 1.",
    ),
    (
        "gpu-capability",
        "RuntimeError",
        "Found Tesla P100 which is too old to be supported by the triton GPU compiler, which is used as the backend.",
    ),
    ("gpu-architecture", "RuntimeError", "CUDA error: no kernel image is available for execution on the device"),
    (
        "nvidia-driver",
        "RuntimeError",
        "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
    ),
    ("nvidia-driver", "RuntimeError", "The NVIDIA driver on your system is too old (found version 11040)."),
    ("cuda-build", "AssertionError", "Torch not compiled with CUDA enabled"),
    ("python-version", "RuntimeError", "Python 3.11+ not yet supported for torch.compile"),
    ("python-version", "RuntimeError", "Dynamo is not supported on Python 3.12+"),
    ("setuptools", "ModuleNotFoundError", "No module named 'setuptools'"),
    ("setuptools", "ModuleNotFoundError", "No module named 'pkg_resources'"),
    ("torchvision-build", "RuntimeError", "operator torchvision::nms does not exist"),
    ("numpy-version", "RuntimeError", "Numpy is not available"),
    ("user-name", "KeyError", "'getpwuid(): uid not found: 12345'"),
    ("executable-caches", "ImportError", "/tmp/torchinductor_u/x.so: failed to map segment from shared object"),
    ("writable-caches", "OSError", "[Errno 30] Read-only file system: '/cache/torchinductor'"),
    ("disk-space", "OSError", "[Errno 28] No space left on device"),
    (
        "temporary-directory",
        "FileNotFoundError",
        "[Errno 2] No usable temporary directory found in ['/tmp', '/var/tmp']",
    ),
]


def made(name: str, status: str) -> Check:
    return Check(name=name, status=status, found="", mend="", affects="all")


ALL_NAMES = [one.name for one in examine("cpu")] + [
    "cuda-build",
    "nvidia-driver",
    "libcuda",
    "gpu-capability",
    "gpu-architecture",
]


@pytest.mark.parametrize(("name", "kind", "text"), MESSAGES)
def test_a_message_is_due_to_its_check_only_while_that_check_fails(name, kind, text):
    checks = [made(other, "ok" if other != name else "fault") for other in ALL_NAMES]
    assert explain(kind, text, checks) == made(name, "fault")
    for status in ("ok", "warning", "unknown"):
        assert explain(kind, text, [made(other, status) for other in ALL_NAMES]) is None


def test_a_compilers_own_failure_is_not_excused_by_a_faulty_machine():
    checks = [made(name, "fault") for name in ALL_NAMES]
    assert explain("Unsupported", "generic_jump TensorVariable()", checks) is None
    assert explain("TorchRuntimeError", "The size of tensor a (3) must match the size of tensor b (4)", checks) is None


def test_scipys_failure_under_dynamo_stays_the_compilers_error():
    text = "'str' object has no attribute 'IF_NEEDED'"
    assert explain("InternalTorchDynamoError", text, [made("scipy-version", "warning")]) is None


def test_the_reason_of_a_cell_names_no_path_and_no_size():
    check = msgspec.structs.replace(made("disk-space", "fault"), found="1.2 GiB free in /home/ann/cache, C/C++ aside")
    assert check.reason == "disk-space: … GiB free in <path>, C/C++ aside"


def hide_headers(planted, tmp_path):
    planted.mount = f"mount -t tmpfs tmpfs {sysconfig.get_path('include')}"


def hide_compiler(planted, tmp_path):
    planted.env["PATH"] = str(tmp_path)
    planted.env.pop("CXX", None)


def hide_setuptools(planted, tmp_path):
    without(planted, tmp_path, "setuptools", "pkg_resources", "_distutils_hack")


def forget_user(planted, tmp_path):
    for name in (*NAMES, "TORCHINDUCTOR_CACHE_DIR"):
        planted.env.pop(name, None)
    planted.become_nobody_known()


def forbid_execution(planted, tmp_path):
    planted.mount = f"mount -t tmpfs -o noexec tmpfs {tmp_path}"


def forbid_writing(planted, tmp_path):
    planted.mount = f"mount -t tmpfs -o ro tmpfs {tmp_path}"


@pytest.mark.slow
@needs_mounts
@needs_cxx
@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (hide_headers, "python-headers"),
        (hide_compiler, "cxx-compiler"),
        (hide_setuptools, "setuptools"),
        (forget_user, "user-name"),
        (forbid_execution, "executable-caches"),
        (forbid_writing, "writable-caches"),
    ],
)
def test_what_torch_compile_raises_there_is_explained_by_the_check(planted, tmp_path, plant, name):
    plant(planted, tmp_path)
    checks = planted.examine()
    assert faults(checks) == {name}
    kind, text = planted.compile()
    assert kind, "torch.compile works in spite of the fault"
    explained = explain(kind, text, checks.values())
    assert explained is not None, f"{kind}: {text}"
    assert explained.name == name


@pytest.mark.slow
@needs_cxx
def test_torch_compile_works_where_the_doctor_finds_nothing(planted):
    assert not faults(planted.examine())
    assert planted.compile() == ("", "")


# --- the command


def test_an_unknown_device_is_bad_usage():
    with pytest.raises(UsageError, match="unknown device 'tpu'"):
        examine("tpu")


def test_json_is_a_list_of_checks_and_the_status_is_3_with_a_fault(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    result = CliRunner().invoke(doctor, ["--json"])
    assert result.exit_code == 3
    told = {one["name"]: one for one in json.loads(result.stdout)}
    assert told["cxx-compiler"]["status"] == "fault"
    assert set(told["cxx-compiler"]) == {"name", "status", "found", "mend", "affects"}


def test_the_table_names_every_check_and_counts_what_is_wrong(monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.delenv("CXX", raising=False)
    checks = [made("cxx-compiler", "fault"), made("memory", "warning"), made("libcuda", "unknown")]
    text = render(checks)
    assert all(one.name in text for one in checks)
    assert text.splitlines()[-1] == "1 fault, 1 warning, 1 unknown"


def test_exit_status_is_0_without_a_fault():
    result = CliRunner().invoke(doctor, [])
    assert result.exit_code == 0, result.stdout
    assert "python-headers" in result.stdout


def test_every_check_has_a_message_that_it_explains():
    unmatched = {"shared-memory", "cache-on-network", "memory", "writable-home", "scipy-version"}
    assert {name for name, _, _ in MESSAGES} | unmatched == set(ALL_NAMES)


@pytest.mark.parametrize(
    ("version", "numbers"), [("2.11.0+cu130", (2, 11, 0)), ("2.10.0a0", (2, 10, 0)), ("13", (13,))]
)
def test_the_numbers_of_a_version(version, numbers):
    assert release(version) == numbers
