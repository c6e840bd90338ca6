"""The facts that the checks examine, each gathered once on first use; torch is not imported in this process."""

from __future__ import annotations

import contextlib
import functools
import getpass
import importlib.metadata
import importlib.util
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

PROGRAM = """#include <cmath>
#include <omp.h>
extern "C" double f(double x) { return std::sin(x) + omp_get_max_threads(); }
"""

CUDA_PROBE = """
import json, torch
found = {"archs": [], "capability": None, "name": "", "error": ""}
try:
    torch.cuda.init()
    found["capability"] = torch.cuda.get_device_capability(0)
    found["name"] = torch.cuda.get_device_name(0)
    found["archs"] = torch.cuda.get_arch_list()
except BaseException as error:
    found["error"] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Torch:
    """The installed torch: its full version, its release numbers, and the CUDA version it was built for."""

    version: str
    release: tuple[int, ...]
    cuda: str | None


@dataclass(frozen=True)
class CudaProbe:
    """What torch reports about the first visible GPU, from a separate process; `error` is empty when CUDA works."""

    archs: tuple[str, ...]
    capability: tuple[int, int] | None
    name: str
    error: str


class Facts:
    """The facts about this machine and installation, for one device."""

    def __init__(self, device: str) -> None:
        self.device = device

    @functools.cached_property
    def torch(self) -> Torch:
        """The installed torch; raises ModuleNotFoundError if it is not installed."""
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError("torch is not installed")
        # version.py imports nothing slow, and has the CUDA version, which the metadata lacks.
        names = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
        version = str(names["__version__"])
        return Torch(version, release(version), names.get("cuda"))

    @staticmethod
    def version(distribution: str) -> str | None:
        """Return the installed version of a distribution, or None."""
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            return None

    @functools.cached_property
    def cxx(self) -> str | None:
        """The C++ compiler that Inductor would use: CXX, else g++, if it runs with ``--version``."""
        # As Inductor chooses it: a CXX that does not run is not replaced by g++.
        candidate = os.environ.get("CXX", "g++")
        try:
            answered = execute([candidate, "--version"]).returncode == 0
        except OSError:
            return None
        return candidate if answered else None

    @functools.cached_property
    def cxx_error(self) -> str:
        """The error when that compiler builds a shared library with OpenMP, as Inductor does; empty on success."""
        with tempfile.TemporaryDirectory() as directory:
            library = str(Path(directory, "probe.so"))
            command = [self.cxx or "g++", "-x", "c++", "-shared", "-fPIC", "-fopenmp", "-o", library, "-"]
            # Nothing is known for certain before something was built: headers or libgomp may be missing.
            done = execute(command, stdin=PROGRAM)
        return first_error(done.stderr) if done.returncode else ""

    @functools.cached_property
    def cc(self) -> str | None:
        """The C compiler that Triton would use: CC unchanged, else gcc, else clang."""
        return os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")

    @functools.cached_property
    def inductor_cache(self) -> Path:
        """Inductor's cache directory; raises the errors of getpass for a user without a name."""
        named = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
        if named is not None:
            return Path(named).absolute()
        user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
        return Path(tempfile.gettempdir(), f"torchinductor_{user}")

    @functools.cached_property
    def triton_cache(self) -> Path:
        """Triton's cache directory."""
        named = os.environ.get("TRITON_CACHE_DIR")
        return Path(named).absolute() if named is not None else Path(self.home, ".triton", "cache")

    @functools.cached_property
    def home(self) -> Path:
        """The home directory; raises RuntimeError where neither HOME nor the user database names one."""
        return Path.home()

    @functools.cached_property
    def caches(self) -> dict[str, Path]:
        """The directories that compiled code is loaded from, by their names in messages."""
        caches: dict[str, Path] = {}
        try:
            caches["Inductor's cache"] = self.inductor_cache
        except (KeyError, OSError):  # no user name: another check reports it
            caches["the temporary directory"] = Path(tempfile.gettempdir())
        if self.device == "cuda":
            with contextlib.suppress(RuntimeError):  # no home directory: another check reports it
                caches["Triton's cache"] = self.triton_cache
        return caches

    @functools.cached_property
    def cuda(self) -> CudaProbe:
        """What torch reports about the GPU; takes as long as importing torch and initialising CUDA."""
        # In another process, because a process that initialised CUDA cannot fork children that use it.
        done = execute([sys.executable, "-c", CUDA_PROBE], timeout=120)
        if done.returncode:
            return CudaProbe((), None, "", _last_line(done.stderr) or f"exit status {done.returncode}")
        # Libraries may print before the answer.
        answer = json.loads(done.stdout.splitlines()[-1])
        capability = tuple(answer["capability"]) if answer["capability"] else None
        return CudaProbe(tuple(answer["archs"]), capability, answer["name"], answer["error"])

    @functools.cached_property
    def driver(self) -> str | None:
        """The NVIDIA driver's version, or None where no driver responds."""
        try:
            import pynvml

            pynvml.nvmlInit()
            try:
                version = pynvml.nvmlSystemGetDriverVersion()
            finally:
                pynvml.nvmlShutdown()
        except Exception:  # no NVML library, no driver, or no nvidia-ml-py
            return _driver_from_proc()
        return version.decode() if isinstance(version, bytes) else str(version)

    @staticmethod
    def import_error(module: str) -> str | None:
        """Import a module in a separate process; return the last line of its error, or None."""
        # A broken library can end the process that imports it.
        done = execute([sys.executable, "-c", f"import {module}"], timeout=120)
        return (_last_line(done.stderr) or f"exit status {done.returncode}") if done.returncode else None


def release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: ``2.11.0+cu130`` gives ``(2, 11, 0)``. Raises ValueError for other text."""
    return Version(version).release


def execute(command: list[str], *, stdin: str = "", timeout: float = 30) -> subprocess.CompletedProcess[str]:
    """Run a command in the C locale, so that its messages are in English, and return its output."""
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
        env=environment,
    )


def first_error(text: str) -> str:
    """Return the first line of a compiler's messages that reports an error."""
    lines = text.splitlines()
    return next((line for line in lines if "error" in line or "cannot" in line), lines[0] if lines else "no message")


def _driver_from_proc() -> str | None:
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(r"\s(\d{3}\.\d+(?:\.\d+)?)\s", text)
    return match.group(1) if match else None


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""
