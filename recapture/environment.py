"""``environment.json``: everything about the machine and installation that a verdict or a figure may depend on.

No host names, user names or absolute paths are recorded: results are published. History of the file format, newest
first (``SCHEMA_VERSION``):

1. first version.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping  # noqa: TC003 - msgspec resolves annotations at run time
from pathlib import Path
from typing import NamedTuple

import msgspec

import recapture
from recapture.doctor.checks import Check, without_paths
from recapture.errors import UsageError
from recapture.hardware import CpuInfo, GpuInfo, cpu_info, gpu_info
from recapture.records import ENVIRONMENT, write_atomically

__all__ = [
    "SCHEMA_VERSION",
    "CpuInfo",
    "Environment",
    "GpuInfo",
    "ImageMatch",
    "PinnedImage",
    "SuiteEntry",
    "TorchInfo",
    "capability_of",
    "describe",
    "differences",
    "image_for",
    "installed_packages",
    "pinned_images",
    "read_environment",
    "suite_commit",
    "variables",
    "without_private_paths",
    "write_environment",
]

SCHEMA_VERSION = 1
SHOWN_MISMATCHES = 8
Flag = str | int | bool


class TorchInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The torch build: two wheels of one version can differ in bytes, the git revision and architectures tell more."""

    version: str
    cuda: str | None
    cudnn: str | None
    git_version: str | None
    arch_list: list[str]


class SuiteEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One suite of a run and how many cases it has; `error` says why it could not be collected."""

    name: str
    cases: int
    error: str | None = None


class Environment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole of ``environment.json``; the last group of fields is filled in by the run.

    `image` is the name that results are filed under. `image_digest` is ``bare`` outside a container image. `lock_hash`
    is that of the lock the packages match; where they match none, `lock_mismatches` says in what they differ from the
    nearest. `capability` is ``cpu`` or such as ``sm_90``. `worker` is ``fork`` or ``fresh``, with the reason. `planned`
    and `recorded` count cells. `selection` is what the command was asked for, `doctor` the checks that are not ok.
    """

    schema: int = SCHEMA_VERSION
    image: str
    image_digest: str
    lock_hash: str | None
    lock_mismatches: list[str]
    capability: str
    device: str
    packages: dict[str, str]
    python: str
    platform: str
    libc: str | None
    torch: TorchInfo
    gpu: GpuInfo | None
    cpu: CpuInfo
    flags: dict[str, Flag]
    compilers: dict[str, str | None]
    suite_commit: str | None
    worker: str | None = None
    planned: int | None = None
    recorded: int | None = None
    suites: list[SuiteEntry] = []
    selection: list[str] = []
    doctor: list[Check] = []


class PinnedImage(NamedTuple):
    """What decides whether an installation is an image: its Python, its torch, and every package of its lock."""

    name: str
    python: str
    torch: str
    lock_hash: str
    packages: Mapping[str, str]


class ImageMatch(NamedTuple):
    """The name to file results under; `lock_hash` is None, and `mismatches` are not empty, where no image matches."""

    image: str
    lock_hash: str | None
    mismatches: list[str]


def image_for(
    packages: Mapping[str, str], python_version: str, images: Iterable[PinnedImage], *, cuda: str | None
) -> ImageMatch:
    """Return the image that an installation is, or a name beginning with ``bare-``.

    It is the image only when Python's minor version agrees and every package of that image's lock is installed at
    exactly that version; packages beside those are allowed. `packages` are versions by normalised name, `cuda` is the
    CUDA version torch was built for, None for a CPU build.
    """
    torch = packages.get("torch", "unknown").partition("+")[0]
    nearest: tuple[str, list[str]] | None = None
    for image in images:
        if image.torch.partition("+")[0] != torch:
            continue
        mismatches = _mismatches(packages, python_version, image)
        if not mismatches:
            return ImageMatch(image.name, image.lock_hash, [])
        if nearest is None or len(mismatches) < len(nearest[1]):
            nearest = (image.name, mismatches)
    bare = f"bare-torch{torch}-{'cu' + cuda.replace('.', '') if cuda else 'cpu'}"
    if nearest is None:
        return ImageMatch(bare, None, [f"no image pins torch {torch}"])
    name, mismatches = nearest
    shown = mismatches[:SHOWN_MISMATCHES]
    if len(mismatches) > len(shown):
        shown.append(f"and {len(mismatches) - len(shown)} more")
    return ImageMatch(bare, None, [f"nearest image: {name}", *shown])


def _mismatches(packages: Mapping[str, str], python_version: str, image: PinnedImage) -> list[str]:
    found = []
    if python_version.split(".")[:2] != image.python.split(".")[:2]:
        found.append(f"Python {python_version}, locked {'.'.join(image.python.split('.')[:2])}")
    # The packages under test first: they are what a reader looks for.
    order = ("torch", "torchvision", "triton", "numpy", "scipy", "setuptools")
    ranked = sorted(image.packages, key=lambda name: (order.index(name) if name in order else len(order), name))
    for name in ranked:
        have, wanted = packages.get(name), image.packages[name]
        if have is None:
            found.append(f"{name} not installed, locked {wanted}")
        elif have != wanted:
            found.append(f"{name} {have}, locked {wanted}")
    return found


def pinned_images(*, torch: str) -> list[PinnedImage]:
    """Return the images that pin a torch version and have a lock, drifted twins included."""
    from recapture.images.pins import load_images, lock_hash, lock_path, read_lock

    found = []
    for image in load_images().values():
        if image.torch.partition("+")[0] != torch.partition("+")[0]:
            continue
        path = lock_path(image.name)
        if path.is_file():
            found.append(PinnedImage(image.name, image.python, image.torch, lock_hash(path), read_lock(path)))
    return found


def installed_packages() -> dict[str, str]:
    """Return the version of every installed distribution by normalised name, sorted.

    What a package carries inside itself is not installed, though it may be on the path: setuptools puts its own
    vendored copies there as soon as it is imported.
    """
    path = list(sys.path)
    if recapture.callers_directory is not None:
        path.reverse()
        path.remove(recapture.callers_directory)  # the last one: it may be on the path by itself as well
        path.reverse()
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions(path=[one for one in path if not _inside(one, path)]):
        name = distribution.metadata["Name"]
        if name:  # a half-removed distribution has none
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), distribution.version)  # the first on the path counts
    return dict(sorted(found.items()))


def _inside(entry: str, path: list[str]) -> bool:
    """Whether an entry of the path lies in a package, below another entry of the path."""
    here = Path(entry)
    return any(
        Path(other) in here.parents and (Path(other) / here.relative_to(other).parts[0] / "__init__.py").is_file()
        for other in path
        if other
    )


def capability_of(device: str) -> str:
    """Return ``cpu``, or the compute capability of the first visible GPU such as ``sm_90``.

    ``cpu`` also where torch sees no GPU. For ``cuda`` this initialises CUDA: call it in a process of its own.
    """
    if device != "cuda":
        return "cpu"
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    major, minor = torch.cuda.get_device_capability(0)
    return f"sm_{major}{minor}"


def describe(device: str, *, suites: Path | None = None) -> Environment:
    """Return the environment of this process; for ``cuda`` it initialises CUDA: call it in a process of its own.

    `suites` is the directory whose git revision is recorded; by default the one beside the package.
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
            # Asked on a GPU alone: torch answers with an empty list elsewhere.
            arch_list=list(torch.cuda.get_arch_list()) if capability != "cpu" else [],
        ),
        gpu=gpu_info(capability) if capability != "cpu" else None,
        cpu=cpu_info(),
        flags=_flags(),
        compilers={"c++": _first_line([os.environ.get("CXX", "g++"), "--version"])},
        suite_commit=suite_commit(suites),
    )


def _kernel() -> str:
    """The kernel's release number, without what a distributor or a host appends."""
    return re.split(r"[^0-9.]", platform.release(), maxsplit=1)[0].rstrip(".")


def differences(before: Environment, now: Environment) -> str:
    """Say in what two installations differ, whose results may then not stand in one table; empty where in nothing.

    Whether this project itself is installed, or run from its checkout, is no difference.
    """
    found = [name for name in ("python", "torch") if getattr(before, name) != getattr(now, name)]
    for name in sorted((before.packages.keys() | now.packages.keys()) - {"recapture"}):
        was, has = (one.packages.get(name, "absent") for one in (before, now))
        if was != has:
            found.append(f"{name} {was}, now {has}")
    return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")


def without_private_paths(environment: Environment) -> Environment:
    """Return an environment without absolute paths in what a run filled in: they name users and differ."""
    return msgspec.structs.replace(
        environment,
        suites=[
            msgspec.structs.replace(one, error=one.error and without_paths(one.error)) for one in environment.suites
        ],
        selection=[without_paths(word) for word in environment.selection],
        doctor=[
            msgspec.structs.replace(one, found=without_paths(one.found), mend=without_paths(one.mend))
            for one in environment.doctor
        ],
    )


def write_environment(path: Path, environment: Environment) -> None:
    """Write an environment as indented JSON, atomically, without private paths."""
    public = without_private_paths(environment)
    write_atomically(path, msgspec.json.format(msgspec.json.encode(public), indent=2) + b"\n")


def read_environment(path: Path) -> Environment:
    """Read ``environment.json``, named itself or by its directory.

    Raises UsageError, naming the file and the field, for what this version does not understand.
    """
    if path.is_dir():
        path /= ENVIRONMENT
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    try:
        environment = msgspec.json.decode(data, type=Environment)
    except ValueError as error:  # msgspec's, and what Python says of bytes that are no UTF-8
        raise UsageError(f"{path}: {_why(data, error)}") from None
    if environment.schema != SCHEMA_VERSION:  # a later version may keep the fields and change what they mean
        raise UsageError(f"{path}: {_other_schema(environment.schema)}")
    return environment


def suite_commit(suites: Path | None = None) -> str | None:
    """Return the git revision of the suites' checkout, with ``-dirty`` where suites or machinery are changed.

    What RECAPTURE_REVISION says where it is set, as inside an image; None outside git.
    """
    told = os.environ.get("RECAPTURE_REVISION")
    if told:
        return told
    package = Path(__file__).resolve().parent
    directory = (suites or package.parent / "suites").resolve()
    top = _git(directory, "rev-parse", "--show-toplevel")
    revision = _git(directory, "rev-parse", "HEAD")
    if not top or not revision:
        return None
    # Results are written into the same checkout: only what decides an outcome counts.
    watched = [str(directory)] + ([str(package)] if package.is_relative_to(top) else [])
    changed = _git(directory, "status", "--porcelain", "--", *watched)
    return f"{revision}-dirty" if changed else revision


def _why(data: bytes, error: ValueError) -> str:
    try:
        version = msgspec.json.decode(data).get("schema")
    except (ValueError, AttributeError):
        return f"not a JSON object: {error}"
    if version != SCHEMA_VERSION:
        return _other_schema(version)
    return str(error)


def _other_schema(version: object) -> str:
    return f"environment schema {version!r} is not understood by this version, which reads {SCHEMA_VERSION}"


def _git(directory: Path, *arguments: str) -> str | None:
    if not directory.is_dir():
        return None
    try:
        command = ["git", "-C", str(directory), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cudnn(version: int | None) -> str | None:
    """Spell cuDNN's number out: 8500 is 8.5.0, 91900 is 9.19.0."""
    if not version:
        return None
    major = 10_000 if version >= 90_000 else 1_000
    return f"{version // major}.{version % major // 100}.{version % 100}"


def _first_line(command: list[str]) -> str | None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=False, env={**os.environ, "LC_ALL": "C"}
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return without_paths(done.stdout.partition("\n")[0]) if done.returncode == 0 else None


def _flags() -> dict[str, Flag]:
    """Return the switches that change values or speed, and the variables of the environment that set them."""
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
    """Return the environment's variables whose names begin with a match of `pattern`, as flags of a record.

    A name has "env " before it; values come without paths and serial numbers, and secrets not at all.
    """
    return {
        f"env {name}": _public(name, value)
        for name, value in sorted(os.environ.items())
        if re.match(pattern, name) and not re.search(r"TOKEN|KEY|SECRET|PASSWORD", name)
    }


def _flag(read: Callable[[], Flag]) -> Flag:
    try:
        return read()
    except Exception:  # torch refuses to read a flag that was set through another of its interfaces
        return "unknown"


def _public(name: str, value: str) -> str:
    """Return a variable's value without paths and serial numbers; of preloaded libraries, allocators say, the names."""
    if name == "LD_PRELOAD":
        return " ".join(Path(library).name for library in re.split(r"[: ]+", value) if library)
    return "<path>" if "/" in value else re.sub(r"\b(GPU|MIG)-[0-9a-f-]{8,}", r"<\1>", value)
