"""Builds an image with the docker command, because the Docker SDK cannot use BuildKit."""

from __future__ import annotations

import collections
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recapture.base.errors import EnvironmentUnfitError, RecaptureError, UsageError
from recapture.base.option_fields import option
from recapture.images.engine import LOCAL
from recapture.machine.describe import suite_commit
from recapture.machine.pins import docker_directory, lock_hash, lock_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from recapture.images.engine import EngineOptions
    from recapture.machine.pins import Image

_LAST_LINES = 60
"""Number of last lines of a build's output that are searched for the cause of a failure."""

_MEANINGS = (
    (r"no space left on device", "the engine's disk is full: `docker system prune` frees what no container uses"),
    (
        r"cannot connect to the docker daemon|is the docker daemon running|error during connect|failed to dial",
        "no container engine answers: start Docker, or choose another with --host",
    ),
    (
        r"permission denied while trying to connect",
        "no access to the container engine: add yourself to the group docker",
    ),
    (
        r"failed to do request: head|failed to resolve source metadata",
        "the base image's registry cannot be reached: pull the base beforehand, or build on another with --base",
    ),
    (
        r"certificate verify failed",
        "the build does not know a certificate authority of your network: pass it with --ca",
    ),
    (
        r"temporary failure in name resolution|could not resolve|no such host|network is unreachable",
        "the build has no network access: try --network host, or check the engine's name server",
    ),
)
"""Patterns in the output of the docker command and of tools inside a build, with messages for the user."""


def _readable_file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise UsageError(f"no file {text!r}")
    return path


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """The options of a build."""

    base: str | None = option("--base", default=None, metavar="REF", help="Base image instead of the pinned one.")
    network: str | None = option(
        "--network", default=None, metavar="MODE", help="Network of the build's steps, such as `host`."
    )
    ca: Path | None = option(
        "--ca", default=None, metavar="FILE", parse=_readable_file, help="CA bundle, only for the build."
    )


class Built(NamedTuple):
    """A built image: its tag, its digest, its size in bytes and the seconds it took."""

    tag: str
    digest: str
    size: int
    seconds: float


def build_image(
    image: Image, options: BuildOptions, show: Callable[[str], None], engine: EngineOptions = LOCAL
) -> Built:
    """Build one image from its lock, passing every line of the build's output to `show`.

    Raises EnvironmentUnfitError if the docker command, BuildKit or an engine is missing or the disk is full, UsageError
    outside a checkout, and RecaptureError if the build fails for another reason.
    """
    root = docker_directory().parent
    if not (root / "docker" / "Dockerfile").is_file():
        raise UsageError("images are built by a recapture that is installed from a checkout with pip install -e")
    lock = lock_path(image.name)
    if not lock.is_file():
        raise UsageError(f"{image.name} has no lock yet: recapture images lock {image.name}")
    docker = [docker_command()]
    docker += ["--host", engine.host] if engine.host else []
    docker += ["--context", engine.context] if engine.context else []
    base = options.base or image.base
    arguments = {
        "BASE": base,
        "BASE_DIGEST": base.partition("@")[2] or _inspect(docker, base, "{{.Id}}") or "unknown",
        "IMAGE": image.name,
        "PYTHON": image.python,
        "LOCK_HASH": lock_hash(lock),
        "REVISION": suite_commit(root / "suites") or "",
    }
    command = [
        *docker,
        "build",
        "--progress",
        "plain",
        "--file",
        str(root / "docker" / "Dockerfile"),
        "--tag",
        image.tag,
    ]
    for name, value in arguments.items():
        command += ["--build-arg", f"{name}={value}"]
    command += ["--network", options.network] if options.network else []
    command += ["--secret", f"id=ca,src={options.ca}"] if options.ca else []
    started = time.monotonic()
    last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
    with subprocess.Popen(
        [*command, str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "DOCKER_BUILDKIT": "1"},
    ) as process:
        for line in process.stdout or ():
            last.append(line.rstrip())
            show(line.rstrip())
    if process.returncode != 0:
        raise _failure(image, last)
    digest, size = (_inspect(docker, image.tag, "{{.Id}} {{.Size}}") or " 0").split(" ")
    return Built(image.tag, digest, int(size), time.monotonic() - started)


def docker_command() -> str:
    """Return the first docker command on PATH with BuildKit, which is built in before 23 and needs buildx since.

    Raises EnvironmentUnfitError if there is none.
    """
    seen = []
    for directory in os.get_exec_path():
        command = shutil.which("docker", path=directory)
        if command is None or os.path.realpath(command) in seen:
            continue
        seen.append(os.path.realpath(command))
        if _output([command, "buildx", "version"]) is not None:
            return command
        version = re.search(r"version (\d+)\.", _output([command, "--version"]) or "")
        if version and int(version[1]) < 23:
            return command
    if seen:
        raise EnvironmentUnfitError(
            "docker cannot build here: install its buildx plug-in (package docker-buildx-plugin)"
        )
    raise EnvironmentUnfitError("the docker command is not on PATH: install Docker to build images")


def _failure(image: Image, last: collections.deque[str]) -> RecaptureError:
    output = "\n".join(last)
    for pattern, meaning in _MEANINGS:
        if re.search(pattern, output, re.IGNORECASE):
            return EnvironmentUnfitError(f"{image.name}: {meaning}")
    # BuildKit repeats the failing step's output before its own summary, which is only the step's script. The last error
    # of a tool is the most informative line, then the last line of any step.
    steps = [match[1].strip() for match in (re.match(r"#\d+ [\d.]+ (.*\S)", line) for line in last) if match]
    named = [line for line in steps if re.match(r"(?:[\w.]*Error|ERROR|E|error): ", line)]
    return RecaptureError(f"{image.name} was not built: {(named or steps or list(last) or ['no output'])[-1]}")


def _inspect(docker: list[str], image: str, template: str) -> str | None:
    return _output([*docker, "image", "inspect", "--format", template, image])


def _output(command: list[str]) -> str | None:
    """Return the output of a command, or None if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
