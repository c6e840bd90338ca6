"""A Python that runs recapture for an image: how it is started, and whether it has the image's packages."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from recapture.base.errors import EnvironmentUnfitError
from recapture.base.text import shorten
from recapture.machine.image_match import image_for, pinned_images
from recapture.pool.bootstrap import command
from recapture.pool.worker import PR_SET_PDEATHSIG, set_process_option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from typing_extensions import Self

    from recapture.machine.pins import Image

CLOSING_SECONDS = 40.0
"""Seconds that an interrupted run may take to end its cells and close its files."""

LIST_SECONDS = 120.0
"""Seconds that listing the installed packages may take."""

_OF_ANOTHER_PYTHON = ("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "VIRTUAL_ENV")
"""Environment variables that describe the caller's Python, and would mix its packages into another one."""


class Interpreter(NamedTuple):
    """A Python, the environment variables to run it with, and descriptors of locks that its processes inherit."""

    python: Path
    variables: Mapping[str, str]
    keep_open: tuple[int, ...] = ()

    @classmethod
    def here(cls) -> Self:
        """Return the Python that runs this process."""
        return cls(Path(sys.executable), os.environ)

    @classmethod
    def of_environment(cls, folder: Path, *, keep_open: tuple[int, ...]) -> Self:
        """Return the Python of a virtual environment, run as if the environment were activated."""
        variables = {name: value for name, value in os.environ.items() if name not in _OF_ANOTHER_PYTHON}
        variables["VIRTUAL_ENV"] = str(folder)
        variables["PATH"] = os.pathsep.join([str(folder / "bin"), variables.get("PATH", os.defpath)])
        return cls(folder / "bin" / "python", variables, keep_open)

    def command(self, module: str, *arguments: str) -> list[str]:
        """Return the command line that runs a module of this package, not of a copy installed there."""
        _, *words = command(module, *arguments)
        return [str(self.python), *words]

    def recapture(self, *arguments: str, write: Mapping[str, Callable[[bytes], object]] | None = None) -> int:
        """Run the command ``recapture`` with these arguments and return its exit status.

        `write` maps ``stdout`` and ``stderr`` to functions that are called with each chunk of what the command writes;
        a stream that it does not name is this process's. An interruption of this process is passed on, and the command
        gets time to close its files. Raises EnvironmentUnfitError if the command was killed.
        """
        pipes = dict.fromkeys(write or (), subprocess.PIPE)
        with self.start(*arguments, **pipes) as process:
            readers = [
                threading.Thread(target=_pass_on, args=(getattr(process, name), to), daemon=True)
                for name, to in (write or {}).items()
            ]
            for reader in readers:
                reader.start()
            process.wait()
            for reader in readers:
                reader.join(CLOSING_SECONDS)  # a grandchild may still hold the pipe
        return exit_status(process)

    @contextlib.contextmanager
    def start(
        self, *arguments: str, stdout: int | IO[bytes] | None = None, stderr: int | IO[bytes] | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start the command ``recapture`` with these arguments, so that several can run beside each other.

        Where this context ends before the command does, as by an interruption, the command gets time to close its
        files. Its streams are those of this process, or what `subprocess.Popen` takes for them.
        """
        process = subprocess.Popen(
            self.command("recapture", *arguments),
            env=self.variables,
            pass_fds=self.keep_open,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,  # a Ctrl-C reaches it once, through this process
            preexec_fn=partial(_end_with_parent, os.getpid()),  # noqa: PLW1509 - this process has no other threads here
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(CLOSING_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def exit_status(process: subprocess.Popen[bytes]) -> int:
    """Wait for a command and return its exit status; raises EnvironmentUnfitError if it was killed."""
    status = process.wait()
    if status < 0:
        raise EnvironmentUnfitError(f"recapture was killed by signal {-status}; finished work is kept")
    return status


def _pass_on(stream: IO[bytes], to: Callable[[bytes], object]) -> None:
    with stream:
        while chunk := os.read(stream.fileno(), 1 << 16):
            to(chunk)


def _end_with_parent(parent: int) -> None:
    """Let the new process close its run if this one, its `parent`, is killed and cannot pass that on."""
    set_process_option(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # killed before the kernel knew of it
        os._exit(128 + signal.SIGTERM)


class Installed(NamedTuple):
    """What an environment has: its packages with their versions, and the version of its Python."""

    packages: dict[str, str]
    python: str


def installed_of(output: str) -> Installed:
    """Return what `recapture.images.installed` printed, on the last line of an output.

    Raises ValueError if that line is another one: code of the environment can print after it.
    """
    lines = output.splitlines() or [""]
    answer = json.loads(lines[-1])
    packages, python = (answer.get(key) for key in Installed._fields) if isinstance(answer, dict) else (None, None)
    if not isinstance(packages, dict) or not all(isinstance(text, str) for text in (python, *packages.values())):
        raise ValueError("not what is installed")
    return Installed(packages, str(python))


def check_installed(
    interpreter: Interpreter, image: Image, advice: str, *modules: str, seconds: float = LIST_SECONDS
) -> None:
    """Raise EnvironmentUnfitError, with advice, unless the image's packages are installed and the modules import."""
    try:
        done = subprocess.run(
            interpreter.command("recapture.images.installed", *modules),
            env=interpreter.variables,
            pass_fds=interpreter.keep_open,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=seconds,
        )
        if done.returncode != 0:
            message = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
            raise EnvironmentUnfitError(
                f"the environment of {image.name} does not work ({shorten(message, 300)}): {advice}"
            )
        answer = installed_of(done.stdout)
    except ValueError:
        raise EnvironmentUnfitError(
            f"the environment of {image.name} does not say what is installed in it: {advice}"
        ) from None
    except subprocess.TimeoutExpired:
        raise EnvironmentUnfitError(
            f"the environment of {image.name} does not answer within {seconds:.0f} s: {advice}"
        ) from None
    except OSError as error:
        raise EnvironmentUnfitError(
            f"the environment of {image.name} does not start ({error.strerror}): {advice}"
        ) from None
    pinned = pinned_images(torch=answer.packages.get("torch", image.torch))
    match = image_for(answer.packages, answer.python, pinned, cuda=None)
    if match.image != image.name:
        differs = ", ".join(match.mismatches) or f"it is that of {match.image}"
        raise EnvironmentUnfitError(f"this is not the environment of {image.name} ({differs}): {advice}")
