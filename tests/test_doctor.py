"""`recapture doctor`: the explanation of errors, and the command."""

from __future__ import annotations

import json
import sysconfig

import msgspec
import pytest
from click.testing import CliRunner
from planted_machine import NAMES, faults, needs_cxx, needs_mounts, without

from recapture.base.errors import UsageError
from recapture.command.doctor import checks_table, doctor
from recapture.machine.doctor import Check, examine, explain, register
from recapture.machine.doctor.facts import release

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
    ("ptxas", "PTXASError", "PTXAS error: Internal Triton PTX codegen error"),
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


def check_with(name: str, status: str) -> Check:
    return Check(name=name, status=status, found="", mend="", affects="all")


ALL_NAMES = list(register._REGISTER)


@pytest.mark.parametrize(("name", "kind", "text"), MESSAGES)
def test_a_message_is_due_to_its_check_only_while_that_check_fails(name, kind, text):
    checks = [check_with(check_name, "ok" if check_name != name else "fault") for check_name in ALL_NAMES]
    assert explain(kind, text, checks) == check_with(name, "fault")
    for status in ("ok", "warning", "unknown"):
        assert explain(kind, text, [check_with(check_name, status) for check_name in ALL_NAMES]) is None


def test_a_compilers_own_failure_is_not_excused_by_a_faulty_machine():
    checks = [check_with(name, "fault") for name in ALL_NAMES]
    assert explain("Unsupported", "generic_jump TensorVariable()", checks) is None
    assert explain("TorchRuntimeError", "The size of tensor a (3) must match the size of tensor b (4)", checks) is None


def test_scipys_failure_under_dynamo_stays_the_compilers_error():
    text = "'str' object has no attribute 'IF_NEEDED'"
    assert explain("InternalTorchDynamoError", text, [check_with("scipy-version", "warning")]) is None


def test_the_reason_of_a_cell_names_no_path_and_no_size():
    check = msgspec.structs.replace(
        check_with("disk-space", "fault"), found="1.2 GiB free in /home/ann/cache, C/C++ aside"
    )
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
    planted.become_unnamed_user()


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


def test_an_unknown_device_is_bad_usage():
    with pytest.raises(UsageError, match="unknown device 'tpu'"):
        examine("tpu")


def test_json_is_a_list_of_checks_and_the_status_is_3_with_a_fault(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    result = CliRunner().invoke(doctor, ["--json"])
    assert result.exit_code == 3
    checks = {check["name"]: check for check in json.loads(result.stdout)}
    assert checks["cxx-compiler"]["status"] == "fault"
    assert set(checks["cxx-compiler"]) == {"name", "status", "found", "mend", "affects"}


def test_the_table_names_every_check_and_counts_what_is_wrong(monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.delenv("CXX", raising=False)
    checks = [check_with("cxx-compiler", "fault"), check_with("memory", "warning"), check_with("libcuda", "unknown")]
    text = checks_table(checks)
    assert all(check.name in text for check in checks)
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
