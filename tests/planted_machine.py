"""A machine with a planted fault, for the tests of the doctor."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import msgspec
import pytest

from recapture.machine.doctor import Check

REPOSITORY = Path(__file__).resolve().parents[1]
EXAMINE = """
import json, sys
import msgspec
from recapture.machine.doctor import register as checks
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

    def become_unnamed_user(self) -> None:
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
        """Run all checks, or the named ones."""
        out = self.run(EXAMINE, device, *names)
        checks = msgspec.json.decode(out.partition("CHECKS")[2], type=list[Check])
        return {check.name: check for check in checks}

    def check(self, name: str, device: str = "cpu") -> Check:
        return self.examine(device, name)[name]

    def compile(self) -> tuple[str, str]:
        """Return the type and text of torch.compile's exception there; empty if it works."""
        out = self.run(COMPILE)
        if "COMPILED" in out:
            return "", ""
        kind, _, text = out.partition("ERROR")[2].strip().partition("|")
        return kind, text


def faults(checks: dict[str, Check]) -> set[str]:
    return {name for name, finding in checks.items() if finding.status == "fault"}


def without(planted: Planted, tmp_path: Path, *absent: str) -> None:
    """Use a virtual environment with this one's packages except those whose names start as given."""
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
