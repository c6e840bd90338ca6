"""Packages at other versions than an environment has, in a folder that its Python finds first.

A layer only adds to the pinned packages of an image. An overlay replaces packages, so that the same environment can be
compared with and without one version. Torch, and what only torch needs, always stays that of the environment.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.images.interpreter import LIST_SECONDS, Interpreter, installed_of
from recapture.images.requirements import Requirements, entries_of, install, version_of
from recapture.images.uv import find_uv, run_uv

if TYPE_CHECKING:
    from collections.abc import Mapping

_WITHOUT_TORCH = "torch ; sys_platform == 'never'\n"
"""An override that takes torch out of what other packages depend on."""


def make_overlay(base: Interpreter, requirements: Requirements, folder: Path, *, dependencies: bool = True) -> None:
    """Install what the requirements name, and the environment lacks at that version, into a new folder.

    Versions that the environment has are preferred. Without `dependencies`, only what is named is installed. Raises
    UsageError for a requirement of torch itself, and EnvironmentUnfitError where uv fails.
    """
    if any(requirement.name.lower() == "torch" for _, requirement in requirements.named()):
        raise UsageError("a set of packages is compared on one torch: compare two of them with --across")
    uv = find_uv("install packages")
    folder.mkdir()
    wanted, without, resolved = folder / "wanted.txt", folder / "without.txt", folder / "resolved.txt"
    wanted.write_text("".join(f"{line}\n" for _, line in requirements.lines), encoding="utf-8")
    without.write_text(_WITHOUT_TORCH, encoding="utf-8")
    installed = _installed(base)
    # uv keeps the versions that its output file names, where they fit.
    resolved.write_text("".join(f"{name}=={version}\n" for name, version in installed.items()), encoding="utf-8")
    words = [uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--generate-hashes"]
    words += ["--python", str(base.python), "--override", str(without), "--output-file", str(resolved)]
    words += [] if dependencies else ["--no-deps"]
    run_uv((*words, str(wanted)), folder=Path.cwd(), environment=base.variables)
    entries = {
        name: entry
        for name, entry in entries_of(resolved.read_text(encoding="utf-8")).items()
        if not _has(installed, name, version_of(entry))
    }
    install(entries, requirements, folder, ("--python", str(base.python), "--target", str(folder)), base.variables)


def overlaid(base: Interpreter, folder: Path) -> Interpreter:
    """Return the Python of an environment with an overlay before its packages."""
    path = os.pathsep.join(filter(None, (str(folder), base.variables.get("PYTHONPATH"))))
    return base._replace(variables={**base.variables, "PYTHONPATH": path})


def _installed(base: Interpreter) -> Mapping[str, str]:
    done = subprocess.run(
        base.command("recapture.images.installed"),
        env=base.variables,
        pass_fds=base.keep_open,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIST_SECONDS,
    )
    if done.returncode != 0:
        raise EnvironmentUnfitError(f"{base.python} does not list its packages")
    try:
        return installed_of(done.stdout).packages
    except ValueError:
        raise EnvironmentUnfitError(f"{base.python} does not list its packages") from None


def _has(installed: Mapping[str, str], name: str, version: str | None) -> bool:
    return version is not None and name in installed and Version(installed[name]) == Version(version)
