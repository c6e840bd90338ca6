"""A container in which one command of a user runs, with folders of this machine at their own paths.

The docker command starts it, because its output, its input and its exit status are then those of a process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from recapture.base.errors import EnvironmentUnfitError
from recapture.images.container import OWNER, clear_left_behind, image_digest, this_process
from recapture.images.engine import connect, is_local, reporting
from recapture.images.environments import Environments
from recapture.images.requirements import IMAGE_FILE, Requirements
from recapture.machine.nvidia_gpus import local_gpus
from recapture.machine.pins import Image

_PYTHON = "/opt/recapture/bin/python"
"""The Python of every image, as the Dockerfile makes it."""

_PROGRAMS = "/opt/recapture/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class CommandContainer(NamedTuple):
    """An image by its digest, and what a command in it needs.

    `variables` are environment variables besides those of the image. `files` are files and folders of this machine,
    each with its path in the container; they cannot be written.
    """

    digest: str
    variables: Mapping[str, str]
    files: tuple[tuple[Path, Path], ...] = ()

    def start(
        self,
        script: Path,
        words: Sequence[str],
        *,
        folders: Sequence[Path],
        current: Path,
        variables: Mapping[str, str],
        output: IO[bytes],
    ) -> tuple[str, subprocess.Popen[bytes]]:
        """Start a script with the image's Python, and return the name of the container and the client's process.

        The `folders` can be written, the root of the image cannot, and there is no network. The standard input of the
        script ends when this process does, however it ends: a script that heeds it leaves no container behind.
        """
        name = f"recapture-{uuid.uuid4().hex[:12]}"
        docker = ["docker", "run", "--rm", "--interactive", "--init", "--pull", "never", "--name", name]
        docker += ["--label", f"{OWNER}={this_process()}", "--user", f"{os.getuid()}:{os.getgid()}"]
        docker += ["--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        docker += ["--tmpfs", "/tmp:rw,exec,nosuid,nodev,mode=1777", "--shm-size", "2g", "--pids-limit", "8192"]  # noqa: S108
        docker += ["--ulimit", "core=0", "--workdir", str(current)]
        docker += ["--gpus", "all"] if local_gpus() else []
        for folder in folders:
            docker += ["--mount", _mount(folder, folder)]
        for path, inside in ((script, script), *self.files):
            docker += ["--mount", f"{_mount(path, inside)},readonly"]
        for variable, value in variables.items():
            docker += ["--env", f"{variable}={value}"]
        process = subprocess.Popen(
            [*docker, "--entrypoint", _PYTHON, self.digest, "-I", "-S", str(script), *words],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C reaches the command once, through this process
        )
        return name, process


def end_container(name: str) -> None:
    """End a container at once, with everything in it; one that has ended already is left as it is."""
    subprocess.run(["docker", "kill", name], stdin=subprocess.DEVNULL, capture_output=True, check=False)


@contextlib.contextmanager
def use_container(environments: Environments, image: Image, requirements: Requirements) -> Iterator[CommandContainer]:
    """Yield what starts commands in an image with further packages, which a layer holds.

    Raises EnvironmentUnfitError if no engine of this machine answers or the image is not built, and what
    `Environments.use_container_layer` raises.
    """
    if shutil.which("docker") is None:
        raise EnvironmentUnfitError("the docker command is not installed")
    with connect() as client, reporting(client, "the container engine stopped answering"):
        if not is_local(client):
            raise EnvironmentUnfitError("the engine is on another machine, or maps user ids: use --via venv")
        digest = image_digest(client, image)
        clear_left_behind(client)
    if not requirements.files:
        yield CommandContainer(digest, {"PATH": _PROGRAMS})
        return
    with environments.use_container_layer(image, requirements, _PYTHON) as layer:
        packages = Path(_PYTHON).parents[1] / "lib" / f"python{image.python}" / "site-packages"
        files = ((layer, layer), (layer / IMAGE_FILE, packages / IMAGE_FILE))
        yield CommandContainer(digest, {"PATH": f"{layer}/bin:{_PROGRAMS}"}, files)


def _mount(source: Path, inside: Path) -> str:
    """Return the words of ``--mount`` for a path, which may have commas and quotes."""
    fields = (f"src={source}", f"dst={inside}")
    return ",".join(["type=bind", *('"' + field.replace('"', '""') + '"' for field in fields)])
