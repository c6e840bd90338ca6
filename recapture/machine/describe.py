"""Gathers the facts about this machine and installation, in the calling process; `environment` defines the record."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from packaging.utils import canonicalize_name

from recapture.base import paths
from recapture.base.paths import CHECKOUT, PACKAGE
from recapture.base.scrub import without_paths
from recapture.machine.environment import Environment, Flag, TorchInfo
from recapture.machine.hardware import cpu_info, gpu_info
from recapture.machine.image_match import image_for, pinned_images
from recapture.torch_api.compat import GPU_VARIABLES, OTHER_CACHES

SWITCHES = frozenset({"", "0", "1", "true", "false", "True", "False", "on", "off", "ON", "OFF", "yes", "no"})
"""Values that cannot be a secret."""

PUBLIC_VARIABLES = frozenset(
    """
    AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL AOT_INDUCTOR_DEBUG_COMPILE AOT_INDUCTOR_OPT_LEVEL
    AOT_PARTITIONER_DEBUG ATEN_CPU_CAPABILITY CC CUBLASLT_WORKSPACE_SIZE CUBLAS_WORKSPACE_CONFIG
    CUDA_CACHE_DISABLE CUDA_CACHE_MAXSIZE CUDA_DEVICE_MAX_CONNECTIONS CUDA_DEVICE_ORDER CUDA_HOME
    CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING CUDA_PATH CUDA_VERSION CUDA_VISIBLE_DEVICES CUDNN_VERSION CXX
    GOMP_CPU_AFFINITY GOMP_SPINCOUNT INDUCTOR_WRITE_MISSING_OPS KMP_AFFINITY KMP_BLOCKTIME KMP_HW_SUBSET
    KMP_SETTINGS LD_PRELOAD MKL_CBWR MKL_DEBUG_CPU_TYPE MKL_DYNAMIC MKL_ENABLE_INSTRUCTIONS MKL_NUM_THREADS
    MKL_THREADING_LAYER NCCL_DEBUG NCCL_NVLS_ENABLE NCCL_P2P_DISABLE NCCL_VERSION NVIDIA_TF32_OVERRIDE
    OMP_DYNAMIC OMP_NUM_THREADS OMP_PLACES OMP_PROC_BIND OMP_SCHEDULE OMP_THREAD_LIMIT OMP_WAIT_POLICY
    PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_JIT PYTORCH_JIT_LOG_LEVEL PYTORCH_NO_CUDA_MEMORY_CACHING
    PYTORCH_NVFUSER_DISABLE PYTORCH_NVML_BASED_CUDA_CHECK PYTORCH_TENSOREXPR PYTORCH_VERSION
    TORCHDYNAMO_CACHE_SIZE_LIMIT TORCHDYNAMO_DISABLE TORCHDYNAMO_DYNAMIC_SHAPES TORCHDYNAMO_SUPPRESS_ERRORS
    TORCHDYNAMO_VERBOSE TORCHINDUCTOR_AUTOGRAD_CACHE TORCHINDUCTOR_CACHE_DIR TORCHINDUCTOR_COMPILE_THREADS
    TORCHINDUCTOR_CPP_WRAPPER TORCHINDUCTOR_FORCE_DISABLE_CACHES TORCHINDUCTOR_FREEZING
    TORCHINDUCTOR_FX_GRAPH_CACHE TORCHINDUCTOR_MAX_AUTOTUNE TORCHINDUCTOR_MAX_AUTOTUNE_GEMM
    TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS TORCHINDUCTOR_WORKER_START TORCH_ALLOW_TF32_CUBLAS_OVERRIDE
    TORCH_BLAS_PREFER_CUBLASLT TORCH_COMPILE_DEBUG TORCH_COMPILE_DISABLE TORCH_CUDA_ARCH_LIST
    TORCH_CUDNN_V8_API_DISABLED TORCH_LOGS TORCH_SYMM_MEM_DISABLE_MULTICAST TRITON_CACHE_DIR TRITON_INTERPRET
    TRITON_PTXAS_BLACKWELL_PATH TRITON_PTXAS_PATH
    """.split()  # noqa: SIM905 - a list would take seventy lines
)
"""Environment variables whose values are recorded: documented switches of torch and the libraries it uses."""


def installed_packages() -> dict[str, str]:
    """Return the version of every installed distribution by normalised name, sorted.

    Copies vendored inside a package do not count as installed, even if they are on the path: setuptools puts its own
    there when it is imported.
    """
    path = list(sys.path)
    if paths.callers_directory is not None:
        path.reverse()
        path.remove(paths.callers_directory)  # only the last entry: the user may have added the same directory
        path.reverse()
    versions: dict[str, str] = {}
    for distribution in importlib.metadata.distributions(path=[entry for entry in path if not _inside(entry, path)]):
        name = distribution.metadata["Name"]
        if name:  # a partly removed distribution has no name
            versions.setdefault(str(canonicalize_name(name)), distribution.version)  # the first on the path counts
    return dict(sorted(versions.items()))


def _inside(entry: str, path: list[str]) -> bool:
    """Whether an entry of ``sys.path`` is inside a package that is below another entry."""
    folder = Path(entry)
    return any(
        Path(other) in folder.parents and (Path(other) / folder.relative_to(other).parts[0] / "__init__.py").is_file()
        for other in path
        if other
    )


def capability_of(device: str) -> str:
    """Return ``cpu``, or the compute capability of the first visible GPU such as ``sm_90``.

    ``cpu`` also where torch sees no GPU. ``cuda`` initialises CUDA: call this in a separate process.
    """
    if device != "cuda":
        return "cpu"
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    major, minor = torch.cuda.get_device_capability(0)
    return f"sm_{major}{minor}"


def describe(device: str, *, suites: Path | None = None) -> Environment:
    """Return the environment of this process. ``cuda`` initialises CUDA: call it in a separate process.

    `suites` is the directory whose git revision is recorded; by default the `suites` folder beside the package.
    """
    import torch

    packages = installed_packages()
    python = platform.python_version()
    capability = capability_of(device)
    if "torch" in packages:
        match = image_for(packages, python, pinned_images(torch=packages["torch"]), cuda=torch.version.cuda)
    else:  # a torch built in place, without metadata
        match = image_for({"torch": str(torch.__version__)}, python, [], cuda=torch.version.cuda)
    return Environment(
        image=match.image,
        image_digest=os.environ.get("RECAPTURE_IMAGE_DIGEST") or "bare",
        lock_hash=match.lock_hash,
        lock_mismatches=match.mismatches,
        capability=capability,
        device=device,
        packages=packages,
        python=python,
        platform=f"{platform.system()} {_kernel()} {platform.machine()}",
        libc=" ".join(platform.libc_ver()).strip() or None,
        torch=TorchInfo(
            version=str(torch.__version__),
            cuda=torch.version.cuda,
            cudnn=_cudnn(torch.backends.cudnn.version()),
            git_version=getattr(torch.version, "git_version", None),
            # Without a GPU, torch returns an empty list.
            arch_list=list(torch.cuda.get_arch_list()) if capability != "cpu" else [],
        ),
        gpu=gpu_info(capability) if capability != "cpu" else None,
        cpu=cpu_info(),
        flags=_flags(),
        compilers={"c++": _first_line([os.environ.get("CXX", "g++"), "--version"])},
        suite_commit=suite_commit(suites),
    )


def _kernel() -> str:
    """The kernel's release number, without suffixes from a distributor or host."""
    return re.split(r"[^0-9.]", platform.release(), maxsplit=1)[0].rstrip(".")


def suite_commit(suites: Path | None = None) -> str | None:
    """Return the git revision of the suites' checkout, with ``-dirty`` if the suites or the program were changed.

    The variable RECAPTURE_REVISION, set inside images, takes precedence. None outside git.
    """
    revision_of_image = os.environ.get("RECAPTURE_REVISION")
    if revision_of_image:
        return revision_of_image
    directory = (suites or CHECKOUT / "suites").resolve()
    top = _git(directory, "rev-parse", "--show-toplevel")
    revision = _git(directory, "rev-parse", "HEAD")
    if not top or not revision:
        return None
    # Results are written into the same checkout, so only paths that affect an outcome are compared.
    watched = [str(directory)] + ([str(PACKAGE)] if PACKAGE.is_relative_to(top) else [])
    changed = _git(directory, "status", "--porcelain", "--", *watched)
    return f"{revision}-dirty" if changed else revision


def _git(directory: Path, *arguments: str) -> str | None:
    if not directory.is_dir():
        return None
    try:
        # The limit is for a network file system that does not answer.
        command = ["git", "-C", str(directory), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cudnn(version: int | None) -> str | None:
    """Return cuDNN's version as text: 8500 is 8.5.0, 91900 is 9.19.0."""
    if not version:
        return None
    # cuDNN 9 changed how it encodes its version.
    major = 10_000 if version >= 90_000 else 1_000
    return f"{version // major}.{version % major // 100}.{version % 100}"


def _first_line(command: list[str]) -> str | None:
    try:
        done = subprocess.run(
            # The line is recorded, so it has the same words in every locale.
            command,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return without_paths(done.stdout.partition("\n")[0]) if done.returncode == 0 else None


def _flags() -> dict[str, Flag]:
    """Return the flags that change values or speed, and the environment variables that set them."""
    import torch

    readers: dict[str, Callable[[], Flag]] = {
        "float32_matmul_precision": torch.get_float32_matmul_precision,
        "cuda.matmul.allow_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
        "cudnn.allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
        "cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
        "cudnn.deterministic": lambda: torch.backends.cudnn.deterministic,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
        "num_threads": torch.get_num_threads,
        "num_interop_threads": torch.get_num_interop_threads,
    }
    flags: dict[str, Flag] = {name: _flag(read) for name, read in readers.items()}
    return flags | variables(
        r"(?:TORCH|PYTORCH_|AOT|CUDA_|CUBLAS_|CUDNN_|NVIDIA_TF32|NCCL_|TRITON_|OMP_|GOMP_|KMP_|MKL_|ATEN_|LD_PRELOAD$)"
    )


def variables(pattern: str) -> dict[str, str]:
    """Return the environment variables whose names begin with a match of `pattern`, as flags of a record.

    Names get the prefix "env ". Values are kept for `PUBLIC_VARIABLES`, without paths and serial numbers. Any other
    value may be a secret and is recorded as ``<set>``, unless it is a switch (``0``, ``1``, ``true`` …). Variables
    whose names indicate a secret are left out.
    """
    return {
        f"env {name}": _public(name, value) if name in PUBLIC_VARIABLES or value in SWITCHES else "<set>"
        for name, value in sorted(os.environ.items())
        if re.match(pattern, name)
        and name not in OTHER_CACHES
        and (value or name not in GPU_VARIABLES)  # GPUs hidden from work on the CPU
        and not re.search(r"(?i)token|key|secret|passw|auth(?!o)|cred", name)
    }


def _flag(read: Callable[[], Flag]) -> Flag:
    try:
        return read()
    except Exception:  # torch may refuse to read a flag that was set through another interface
        return "unknown"


def _public(name: str, value: str) -> str:
    """Return a variable's value without paths and serial numbers; preloaded libraries keep their file names."""
    if name == "LD_PRELOAD":
        return " ".join(Path(library).name for library in re.split(r"[: ]+", value) if library)
    return "<path>" if "/" in value else re.sub(r"\b(GPU|MIG)-[0-9a-f-]{8,}", r"<\1>", value)
