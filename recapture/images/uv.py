"""Finds uv and Python interpreters, and runs uv; failures of a package index are distinguished from others."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.text import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_QUOTED = 400
"""Characters of uv's error message that are quoted."""

_FAILED_BUILD = re.compile(
    r"(?:error:|×)\s+(?:Failed\s+to\s+(?:download\s+and\s+)?build\s+`(?P<what>[^`]+)`"
    r"|The\s+build\s+backend\s+returned\s+an\s+error)"
)
"""The beginning of uv's message about a package that cannot be built; the user's own has the address of a folder.

uv wraps its messages, so that any space can be the end of a line.
"""

_PROBE = (
    "import os, sys, sysconfig; "
    "print('%d.%d' % sys.version_info[:2], os.path.isfile(os.path.join(sysconfig.get_path('include'), 'Python.h')))"
)
"""Program that prints an interpreter's minor version, and whether it has the header that Inductor compiles against."""


def find_uv(purpose: str) -> str:
    """Return the path of uv, on PATH or in this Python's packages; raises EnvironmentUnfitError naming the purpose."""
    uv = shutil.which("uv")
    if uv is not None:
        return uv
    # The environment of this Python need not be activated.
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        raise EnvironmentUnfitError(f"uv is not installed: `pip install uv`, to {purpose}") from None


def unreachable_index(message: str) -> bool:
    """Whether uv's error output says that the package index could not be reached."""
    return bool(re.search(r"error sending request|failed to fetch|dns error|timed out", message, re.IGNORECASE))


def run_uv(
    words: Sequence[str], *, folder: Path, environment: Mapping[str, str], keep_open: Sequence[int] = ()
) -> None:
    """Run uv in a folder; its child processes inherit the descriptors `keep_open`.

    Raises EnvironmentUnfitError if uv fails, in one line, and UsageError where the user's own project cannot be built.
    """
    done = subprocess.run(
        [*words],
        cwd=folder,
        env=environment,
        pass_fds=keep_open,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode == 0:
        return
    message = shorten(done.stderr, _QUOTED)
    if re.search(r"no space left on device|os error 28\b", done.stderr, re.IGNORECASE):
        raise EnvironmentUnfitError(f"no space left for environments in {folder}")
    if unreachable_index(done.stderr):
        raise EnvironmentUnfitError(f"uv cannot reach the package index: {message}")
    if build := _FAILED_BUILD.search(done.stderr):
        what = build["what"] or ""
        why = f"cannot be built: {shorten(_reason(done.stderr, build.start()), _QUOTED)}"
        if what.startswith("/") or " @ file://" in what or not what:  # uv names no project whose name it does not know
            raise UsageError(f"{what.partition(' @ file://')[2] or what or 'the project'} {why}")
        raise EnvironmentUnfitError(f"{what} {why}")
    raise EnvironmentUnfitError(f"uv failed: {message or f'exit status {done.returncode}'}")


def _reason(text: str, start: int) -> str:
    """Return why a build failed: the last line that its backend wrote, which stands below a long traceback.

    uv's own message begins at `start`. The backend's output is part of it, or stands before it.
    """
    message = re.split(r"\n\s*hint: ", text[start:])[0]
    output = message if "[stderr]" in message else text[:start].strip()
    return output.strip().splitlines()[-1].strip() if output else re.split(r"cause: |─▶ ", message)[-1]


def find_python(version: str) -> Path:
    """Return an interpreter of this minor version (``3.11``): uv's choice, or the newest one of pyenv.

    One with the header files that Inductor compiles against is preferred. Raises EnvironmentUnfitError if there is
    none.
    """
    without_headers = None
    for path in (*_of_uv(version), *_of_pyenv(version)):
        description = _output([str(path), "-I", "-c", _PROBE])
        if description == f"{version} True":
            return path
        if description == f"{version} False" and without_headers is None:
            without_headers = path
    if without_headers is None:
        raise EnvironmentUnfitError(
            f"no Python {version} found with uv or pyenv: install it with `uv python install {version}` or "
            f"`pyenv install {version}`"
        )
    return without_headers


def _of_uv(version: str) -> list[Path]:
    uv = find_uv("find a Python")
    path = _output([uv, "python", "find", "--system", "--no-project", "--no-python-downloads", version])
    return [Path(path)] if path else []


def _of_pyenv(version: str) -> list[Path]:
    """Return pyenv's interpreters of a minor version, newest first; pyenv need not be set up in this shell."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    versions = [
        (int(matched[1]), path / "bin" / "python")
        for path in root.glob(f"versions/{version}.*")
        if (matched := re.fullmatch(rf"{re.escape(version)}\.(\d+)", path.name))
    ]
    return [path for _, path in sorted(versions, reverse=True)]


def _output(command: list[str]) -> str | None:
    """Return the output of a command, or None if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
