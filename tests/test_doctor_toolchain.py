"""The doctor on compilers, headers and packages: each fault is planted, and found by the check that is for it."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import sysconfig
import time
from pathlib import Path

import pytest
from planted_machine import distribution, faults, needs_cxx, needs_mounts, without

from recapture.machine.doctor import explain
from recapture.machine.doctor import package_checks as packages
from recapture.machine.doctor.facts import Facts


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


def test_a_compiler_that_only_prints_its_version_is_a_fault(planted, tmp_path):
    fake = tmp_path / "fake-g++"
    fake.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exit 0\necho "fatal error: cmath: No such file or directory" >&2\nexit 1\n'
    )
    fake.chmod(0o755)
    planted.env["CXX"] = str(fake)
    checks = planted.examine()
    assert faults(checks) == {"cxx-compiler"}
    assert "cmath" in checks["cxx-compiler"].found


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
    check = planted.check("setuptools")
    assert (check.status, check.affects) == ("fault", "dynamo")
    assert "pkg_resources" in check.found
    assert "setuptools<70" in check.mend


@pytest.mark.parametrize(
    ("torch", "numpy", "status"), [("2.2.2", "2.0.0", "fault"), ("2.2.2", "1.26.4", "ok"), ("2.3.1", "2.0.0", "ok")]
)
def test_numpy_2_is_a_fault_up_to_torch_2_2(planted, tmp_path, torch, numpy, status):
    distribution(tmp_path / "pair", "torch", f"{torch}+cu121")
    distribution(tmp_path / "pair", "numpy", numpy)
    planted.path(tmp_path / "pair")
    check = planted.check("numpy-version")
    assert (check.status, check.affects) == (status, "numpy")
    assert f"numpy {numpy}" in check.found


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


@pytest.mark.parametrize(("library", "status"), [(False, "fault"), pytest.param(True, "ok", marks=pytest.mark.slow)])
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
    check = planted.check("torchvision-build")
    assert check.status == status, check
    if status == "fault":
        assert "declares torch==2.0.0" in check.found
        assert explain("RuntimeError", "operator torchvision::nms does not exist", [check]) == check
        assert check.mend.endswith("torch 2.0.0")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no torch 2 refuses this Python")
def test_a_python_that_torch_compile_refuses_is_a_fault(planted, tmp_path):
    distribution(tmp_path / "old", "torch", "2.0.1+cu117")
    planted.path(tmp_path / "old")
    check = planted.check("python-version")
    assert (check.status, check.affects) == ("fault", "dynamo")
    assert "Python 3.10" in check.mend


def test_the_table_of_refused_pythons_agrees_with_the_installed_torch():
    """torch._dynamo itself says from which Python on it refuses."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).parent.joinpath("_dynamo", "eval_frame.py").read_text()
    major, minor = Facts("cpu").torch.release[:2]
    refused = packages.REFUSES_PYTHON[major, minor]
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
