"""Checks for versions incompatible with this torch: Python, setuptools, torchvision, numpy and scipy."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import Specifier
from packaging.utils import canonicalize_name
from packaging.version import Version

from recapture.machine.doctor.facts import Facts, execute, release
from recapture.machine.doctor.register import Affects, Finding, check, fault, ok, warning

REFUSES_PYTHON: dict[tuple[int, int], tuple[int, int]] = {
    (2, 0): (3, 11),
    (2, 1): (3, 12),
    (2, 2): (3, 12),
    (2, 3): (3, 12),
    (2, 4): (3, 13),
    (2, 5): (3, 13),
    (2, 6): (3, 14),
    (2, 7): (3, 14),
    (2, 8): (3, 14),
    (2, 9): (3, 14),
    (2, 10): (3, 15),
    (2, 11): (3, 15),
    (2, 12): (3, 15),
    (2, 13): (3, 15),
    (2, 14): (3, 15),
    (2, 15): (3, 16),
}
"""The first Python that each torch release's torch.compile refuses, from its `torch._dynamo.eval_frame`."""

NUMPY_2_SINCE = (2, 3)
"""The first torch release built against numpy 2."""

SCIPY_BROKEN_FROM = (2, 2)
"""The first torch release whose Dynamo fails on scipy.fft of scipy 1.15 (measured: 2.0.1 and 2.1.2 trace it)."""

SCIPY_FIXED_IN = (2, 10)
"""The first later torch release whose Dynamo traces it again (pytorch pull request 167619)."""

PKG_RESOURCES_UNTIL = (2, 1)
"""The last torch release that imports `packaging` from pkg_resources."""


@check(
    "python-version",
    affects="dynamo",
    signature=r"not supported on Python 3\.\d+\+|Python 3\.\d+\+ not yet supported for torch\.compile",
)
def python_version(facts: Facts) -> Finding:
    """Compare this Python with the first one that torch.compile of this torch refuses."""
    torch, python = facts.torch, ".".join(map(str, sys.version_info[:3]))
    refused = next((python for series, python in REFUSES_PYTHON.items() if series == torch.release[:2]), None)
    if refused is None:
        return Finding("unknown", f"Python {python}: what torch.compile of torch {torch.version} refuses is not known")
    if sys.version_info[:2] < refused:
        return ok(
            f"Python {python}; torch.compile of torch {torch.version} refuses {refused[0]}.{refused[1]} and newer"
        )
    return fault(
        f"Python {python}, which torch.compile of torch {torch.version} refuses",
        f"use Python {refused[0]}.{refused[1] - 1} or older",
    )


@check(
    "setuptools",
    affects="codegen",
    signature=r"No module named '(?:setuptools|pkg_resources|distutils)"
    r"|cannot import name 'packaging' from 'pkg_resources'",
)
def setuptools(facts: Facts) -> Finding:
    """Look for setuptools, which torch.utils.cpp_extension and older Tritons import, and for its pkg_resources."""
    torch = facts.torch
    needs_pkg_resources = torch.release[:2] <= PKG_RESOURCES_UNTIL
    fix = 'install "setuptools<70"' if needs_pkg_resources else 'install "setuptools<81"'
    # In 2.1, importing Dynamo imports cpp_extension, not only compiling with Inductor.
    affects: Affects | None = "dynamo" if needs_pkg_resources else None
    if importlib.util.find_spec("setuptools") is None:
        return fault("setuptools is not installed", fix, affects=affects)
    version = facts.version("setuptools") or "of unknown version"
    if needs_pkg_resources:
        done = execute([sys.executable, "-W", "ignore", "-c", "from pkg_resources import packaging"])
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            message = f"setuptools {version} does not serve torch {torch.version}: {reason}"
            return fault(message, fix, affects=affects)
    return ok(f"setuptools {version}")


@check(
    "torchvision-build",
    affects="all",
    signature=r"operator torchvision::\w+ does not exist|Couldn't load custom C\+\+ ops|torchvision.*undefined symbol",
)
def torchvision_build(facts: Facts) -> Finding:
    """Compare torchvision's requirement and build with torch; where they differ, test whether it imports."""
    version = facts.version("torchvision")
    if version is None:
        return ok("torchvision is not installed")
    torch = facts.torch
    base = Version(torch.version).base_version  # without the suffix of a development build
    doubts = [
        f"declares torch{requirement}"
        for requirement in _torch_requirements()
        if not requirement.contains(base, prereleases=True)
    ]
    built_for = _local_version("torchvision")
    local = Version(torch.version).local
    if built_for and local and built_for != local:
        doubts.append(f"is built for {built_for}")
    pair = f"torchvision {version} with torch {torch.version}"
    if not doubts:
        return ok(pair)
    error = facts.import_error("torchvision")
    reason = " and ".join(doubts)
    if error is None:
        return ok(f"{pair}: it {reason}, yet imports")
    declared = next((specifier.version for specifier in _torch_requirements() if specifier.operator == "=="), None)
    fix = "install the torchvision released with this torch" + (f", or torch {declared}" if declared else "")
    return fault(f"{pair}: it {reason}, and its import ends with {error}", fix)


@check(
    "numpy-version",
    affects="numpy",
    signature=r"[Nn]um[Pp]y is not available|compiled using NumPy 1\.x|_ARRAY_API not found|Failed to initialize NumPy",
)
def numpy_version(facts: Facts) -> Finding:
    """Compare numpy's major version with what this torch was built against."""
    version, torch = facts.version("numpy"), facts.torch
    old = torch.release[:2] < NUMPY_2_SINCE
    fix = 'install "numpy<2"' if old else "install numpy"
    if version is None:
        return fault("numpy is not installed", fix)
    if old and release(version)[0] >= 2:
        return fault(f"numpy {version} with torch {torch.version}, which was built against numpy 1", fix)
    return ok(f"numpy {version} with torch {torch.version}")


@check("scipy-version", affects="dynamo", signature=r"IF_NEEDED|_CopyMode")
def scipy_version(facts: Facts) -> Finding:
    """Report pairs of torch and scipy whose scipy.fft Dynamo cannot trace: torch's defect, not the machine's."""
    version, torch = facts.version("scipy"), facts.torch
    if version is None:
        return ok("scipy is not installed")
    message = f"scipy {version} with torch {torch.version}"
    if release(version) >= (1, 15) and SCIPY_BROKEN_FROM <= torch.release[:2] < SCIPY_FIXED_IN:
        return warning(
            f"{message}: torch.compile of scipy.fft fails with this pair", 'install "scipy<1.15", or torch 2.10'
        )
    return ok(message)


def _torch_requirements() -> list[Specifier]:
    """Return the torch versions that torchvision's metadata requires."""
    requirements = map(Requirement, importlib.metadata.requires("torchvision") or [])
    return [
        specifier
        for requirement in requirements
        if canonicalize_name(requirement.name) == "torch"
        and (requirement.marker is None or requirement.marker.evaluate({"extra": ""}))
        for specifier in sorted(requirement.specifier, key=str)
    ]


def _local_version(package: str) -> str:
    """Return the part after the + in a package's version.py, such as cu130, which the metadata lacks."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return ""
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return ""
    match = re.search(r"__version__\s*=\s*['\"][^+'\"]+\+([^'\"]+)", text)
    return match.group(1) if match else ""
