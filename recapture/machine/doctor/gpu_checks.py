"""Checks of the GPU: its driver, its age for Triton, and whether torch was compiled for it."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

from recapture.machine.doctor.facts import Facts, execute, release
from recapture.machine.doctor.register import Finding, check, fault, ok, warning

DRIVER_FOR_CUDA = {11: 450, 12: 525, 13: 580}
"""The oldest driver that runs any minor release of a CUDA major release (NVIDIA's minor-version compatibility)."""

CUDA = ("cuda",)

# The folders of Triton's assembler: since 3.0, and before 3.0.
TRITONS_PTXAS = (("backends", "nvidia", "bin", "ptxas"), ("third_party", "cuda", "bin", "ptxas"))


@check(
    "cuda-build",
    affects="cuda",
    signature=r"not compiled with CUDA enabled|not linked with support for cuda",
    devices=CUDA,
)
def cuda_build(facts: Facts) -> Finding:
    """Check that the installed torch was built with CUDA."""
    torch = facts.torch
    if torch.cuda is None:
        return fault(
            f"torch {torch.version} is built without CUDA", "install a CUDA build of torch, or use --device cpu"
        )
    return ok(f"torch {torch.version} is built for CUDA {torch.cuda}")


@check(
    "nvidia-driver",
    affects="cuda",
    signature=r"Found no NVIDIA driver|driver on your system is too old|driver version is insufficient"
    r"|No CUDA GPUs are available|CUDA driver initialization failed|CUDA unknown error|\b0 active drivers",
    devices=CUDA,
)
def nvidia_driver(facts: Facts) -> Finding:
    """Compare the driver with the oldest that torch's CUDA supports, then initialise CUDA in a separate process."""
    torch, driver = facts.torch, facts.driver
    if torch.cuda is None:
        return Finding("unknown", "this torch has no CUDA to initialise")
    needed = DRIVER_FOR_CUDA.get(release(torch.cuda)[0])
    if driver is None:
        fix = f"install NVIDIA's driver{f' {needed} or newer' if needed else ''} (in a container: pass --gpus)"
        return fault("no NVIDIA driver answers", fix)
    if needed is not None and release(driver)[0] < needed:
        return fault(
            f"driver {driver} is too old for CUDA {torch.cuda}",
            f"install driver {needed} or newer, or an image that takes this driver",
        )
    # A driver that is new enough may still fail, as after an update without a restart.
    if facts.cuda.error:
        return fault(
            f"driver {driver}, but CUDA does not start: {facts.cuda.error}",
            "check nvidia-smi and CUDA_VISIBLE_DEVICES",
        )
    return ok(f"driver {driver} with CUDA {torch.cuda}")


@check(
    "libcuda",
    affects="codegen",
    signature=r"libcuda\.so cannot found|cannot find -l:?(?:lib)?cuda|libcuda\.so(?:\.1)?: cannot open"
    r"|'-l(?::lib)?cuda\b.*non-zero exit status",
    devices=CUDA,
)
def libcuda(facts: Facts) -> Finding:
    """Look for the library that Triton links with: libcuda.so, or libcuda.so.1 in newer versions."""
    version = facts.version("triton") or facts.version("pytorch-triton")
    if version is None:
        return warning("Triton is not installed", "install the triton released with this torch")
    library = "libcuda.so.1" if _links_versioned(version) else "libcuda.so"
    directories = _libcuda_directories()
    folder = next((directory for directory in directories if Path(directory, library).exists()), None)
    if folder is not None:
        return ok(f"{library} for Triton {version}, in {folder}")
    # Where the versioned file is, a link is all that is missing.
    location = f" (libcuda.so.1 is in {directories[0]})" if directories else ""
    fix = "refresh the linker's cache with ldconfig where the driver is installed"
    if library == "libcuda.so" and directories:
        fix = f"link libcuda.so to libcuda.so.1 in {directories[0]}"
    return fault(f"no {library}, which Triton {version} links with{location}", fix)


@check(
    "ptxas",
    affects="codegen",
    signature=r"Cannot find ptxas|Internal Triton PTX codegen error|\bptxas fatal",
    devices=CUDA,
)
def ptxas(facts: Facts) -> Finding:
    """Compare Triton's assembler with torch's own, which is used only by torch's compile workers.

    Triton's cache separates the kernels of different assemblers. If the two differ, kernels that the workers compiled
    for ``max-autotune`` are not found, and every candidate is compiled a second time, in sequence
    (``_set_triton_ptxas_path`` in ``torch/_inductor/runtime/compile_tasks.py``).
    """
    named = os.environ.get("TRITON_PTXAS_PATH")
    if named is not None:
        version = _release_of(Path(named))
        if version is not None:
            return ok(f"{version}, which TRITON_PTXAS_PATH names")
        return warning(
            f"TRITON_PTXAS_PATH is {named}, which does not answer --version: Triton takes its own",
            "unset TRITON_PTXAS_PATH, or set it to the path of a ptxas",
        )
    own = next((path for parts in TRITONS_PTXAS if (path := _packaged("triton", *parts)) is not None), None)
    if own is None:
        return Finding("unknown", "no ptxas where Triton keeps it")
    version = _release_of(own)
    if version is None:
        return fault(f"{own} does not answer --version", "install the triton released with this torch")
    workers = _packaged("torch", "bin", "ptxas")
    of_workers = None if workers is None else _release_of(workers)
    # Since Blackwell, Triton has a separate assembler, which torch does not replace.
    if of_workers in (None, version) or (facts.cuda.capability is not None and facts.cuda.capability >= (10, 0)):
        return ok(version)
    return warning(
        f"Triton's is {version}, that of torch's compile workers {of_workers}: what max-autotune compiles ahead is not"
        " found again, so that each candidate is compiled twice",
        f"export TRITON_PTXAS_PATH={workers}",
    )


@check(
    "gpu-capability",
    affects="codegen",
    signature=r"too old to be supported by the triton GPU compiler|GPUTooOldForTriton",
    devices=CUDA,
)
def gpu_capability(facts: Facts) -> Finding:
    """Compare the GPU's compute capability with the 7.0 that Triton needs."""
    capability = facts.cuda.capability
    if capability is None:
        return Finding("unknown", f"no GPU to ask: {facts.cuda.error}")
    message = f"{facts.cuda.name}, capability {capability[0]}.{capability[1]}"
    if capability[0] < 7:
        return fault(f"{message}: Triton needs 7.0", "use a GPU of capability 7.0 or newer")
    return ok(message)


@check(
    "gpu-architecture",
    affects="cuda",
    signature=r"no kernel image is available|not compatible with the current PyTorch installation",
    devices=CUDA,
)
def gpu_architecture(facts: Facts) -> Finding:
    """Compare the GPU with the architectures torch was compiled for: the same major and no newer minor, or PTX."""
    capability, archs = facts.cuda.capability, facts.cuda.archs
    if capability is None or not archs:
        return Finding("unknown", f"no GPU or no list of architectures: {facts.cuda.error}")
    message = f"{facts.cuda.name} is sm_{capability[0]}{capability[1]}, torch is compiled for {' '.join(archs)}"
    if runs_on(archs, capability):
        return ok(message)
    return fault(message, "use an image compiled for this GPU: recapture images list --gpu shows which")


def runs_on(archs: tuple[str, ...], capability: tuple[int, int]) -> bool:
    """Whether code for any of the architectures, such as ``sm_86`` or ``compute_90``, runs on a GPU's capability."""
    for arch in archs:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)[a-z]?", arch)
        if match is None:
            continue
        built = (int(match.group(2)), int(match.group(3)))
        if match.group(1) == "compute" and built <= capability:  # the driver compiles PTX for newer GPUs
            return True
        if match.group(1) == "sm" and built[0] == capability[0] and built[1] <= capability[1]:
            return True
    return False


def _packaged(package: str, *parts: str) -> Path | None:
    """Return the path of a file inside a package, or None if the package or file does not exist."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent.joinpath(*parts)
    return path if path.is_file() else None


def _release_of(tool: Path) -> str | None:
    """Return the release that a CUDA program reports, such as ``12.8``; None where it reports none."""
    try:
        done = execute([str(tool), "--version"])
    except OSError:
        return None
    match = re.search(r"release (\d+\.\d+)", done.stdout)
    return match.group(1) if match and done.returncode == 0 else None


def _links_versioned(version: str) -> bool:
    """Whether Triton links with libcuda.so.1. This reads Triton's source, because versions do not determine it."""
    spec = importlib.util.find_spec("triton")
    if spec is not None and spec.origin is not None:
        driver = Path(spec.origin).parent / "backends" / "nvidia" / "driver.py"
        try:
            return re.search(r"libraries\s*=\s*\[['\"]libcuda\.so\.1", driver.read_text(encoding="utf-8")) is not None
        except OSError:
            pass
    return release(version) >= (3, 3)


def _libcuda_directories() -> list[str]:
    """Return the directories Triton would search, in its order."""
    named = os.environ.get("TRITON_LIBCUDA_PATH")
    if named:
        return [named]
    try:
        cached = execute(["/sbin/ldconfig", "-p"]).stdout
    except OSError:
        cached = ""
    directories = [str(Path(line.split()[-1]).parent) for line in cached.splitlines() if "libcuda.so" in line]
    if not directories:
        searched = os.environ.get("LD_LIBRARY_PATH", "").split(":")
        directories = [directory for directory in searched if directory and Path(directory, "libcuda.so.1").exists()]
    return list(dict.fromkeys(directories))
