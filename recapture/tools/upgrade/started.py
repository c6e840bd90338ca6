"""A command that was started, on this machine or in a container, and how it is ended with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import psutil

from recapture.base.paths import module_file
from recapture.images.command_container import CommandContainer, end_container
from recapture.images.interpreter import Interpreter
from recapture.pool.worker import PR_SET_PDEATHSIG, set_process_option

_SUPERVISOR = module_file("tools", "upgrade", "supervisor.py")


@dataclass(frozen=True, kw_only=True)
class Started:
    """A command below its supervisor; `container` is the name of its container, empty without one."""

    process: subprocess.Popen[bytes]
    container: str = ""

    def end(self) -> None:
        """Kill the command with what it started: its session, and descendants that have begun sessions of their own."""
        if self.container:
            if self.process.poll() is None:
                end_container(self.container)
            if self.process.stdin is not None:
                self.process.stdin.close()
            self.process.wait()
            return
        below: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            below = psutil.Process(self.process.pid).children(recursive=True)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for descendant in below:
            with contextlib.suppress(psutil.Error):
                descendant.kill()
        self.process.wait()


def start(
    interpreter: Interpreter | CommandContainer,
    words: Sequence[str],
    *,
    memory: Path,
    root: Path,
    folder: Path,
    variables: Mapping[str, str],
    output: IO[bytes],
) -> Started:
    """Start a command in the folder `root`; its supervisor writes the bytes of its largest process to `memory`.

    A container can write `root` and `folder` alone.
    """
    if isinstance(interpreter, CommandContainer):
        name, process = interpreter.start(
            _SUPERVISOR,
            ["--while-input", str(memory), *words],
            folders=(root, folder),
            current=root,
            variables=variables,
            output=output,
        )
        return Started(process=process, container=name)
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_SUPERVISOR), str(memory), *words],
        cwd=root,
        env=variables,
        pass_fds=interpreter.keep_open,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=partial(_end_with_parent, os.getpid()),  # noqa: PLW1509 - this process has no other threads here
    )
    return Started(process=process)


def _end_with_parent(parent: int) -> None:
    """Let the command end if this process, its `parent`, is killed and cannot end it."""
    set_process_option(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # killed before the kernel knew of it
        os._exit(128 + signal.SIGKILL)
