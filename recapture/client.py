"""The host's end of the worker server: starts it, hands it tasks, and starts another when it dies."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from recapture.errors import EnvironmentUnfitError
from recapture.protocol import Begun, Ended, FromServer, Preload, Ready, Task
from recapture.torch_compat import isolate_caches

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Client", "ServerDiedError"]

START_SECONDS = 300.0
"""Importing torch from a cold disk can take a minute; longer than this is a fault."""

T = TypeVar("T")


class ServerDiedError(Exception):
    """The server process is gone: a task killed it, or the machine ran out of memory."""


class Client:
    """One worker server; use it as a context manager. `worker` says how it makes children: ``fork`` or ``fresh``."""

    def __init__(self, *, jobs: int, fork: bool = True, level: str = "all", cache_dir: str | None = None) -> None:
        self.jobs = jobs
        self.fork = fork
        self.level = level
        self.cache_dir = cache_dir
        self.rss = 0
        self._next = 0
        self._decoder = msgspec.json.Decoder(FromServer)

    def __enter__(self) -> Client:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server and wait until torch is imported there."""
        mine, theirs = socket.socketpair()
        command = [sys.executable, "-m", "recapture.server", "--fd", str(theirs.fileno()), "--jobs", str(self.jobs)]
        command += ["--level", self.level, *([] if self.fork else ["--fresh"])]
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the server
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            pass_fds=[theirs.fileno()],
            env=self._environment(),
            start_new_session=True,
        )
        theirs.close()
        self.link = mine
        self._buffer = b""
        self._wait_ready()

    def _environment(self) -> dict[str, str]:
        environment = dict(os.environ)
        if self.cache_dir is not None:
            before = dict(os.environ)
            try:
                isolate_caches(self.cache_dir)
                environment = dict(os.environ)
            finally:
                os.environ.clear()
                os.environ.update(before)
        return environment

    def stop(self) -> None:
        """Close the socket: the server kills its children and goes."""
        self.link.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()

    def preload(self, modules: list[str]) -> None:
        """Import modules in the server before more children fork."""
        self._send(Preload(modules))
        self._wait_ready()

    def submit(self, task: str, payload: Any, *, timeout: float, memory: int) -> int:
        """Queue a task; its Begun and Ended messages carry the number returned."""
        self._next += 1
        self._send(Task(self._next, task, msgspec.Raw(msgspec.json.encode(payload)), timeout, memory))
        return self._next

    def messages(self, timeout: float | None = None) -> Iterator[Begun | Ended]:
        """Yield what the server says; an iteration ends when `timeout` seconds pass in silence."""
        while True:
            message = self._read(timeout)
            if message is None:
                return
            if not isinstance(message, Ready):
                yield message

    def run(self, task: str, payload: Any, kind: type[T], *, timeout: float, memory: int = 1 << 40) -> T | Ended:
        """Run one task to its end; returns its decoded result, or the message of its end when it left none."""
        wanted = self.submit(task, payload, timeout=timeout, memory=memory)
        for message in self.messages():
            if isinstance(message, Ended) and message.id == wanted:
                return message if message.result is None else msgspec.json.decode(message.result, type=kind)
        raise ServerDiedError

    def _send(self, message: Task | Preload) -> None:
        try:
            self.link.sendall(msgspec.json.encode(message) + b"\n")
        except OSError:
            raise ServerDiedError from None

    def _wait_ready(self) -> None:
        message = self._read(START_SECONDS)
        if not isinstance(message, Ready):
            raise EnvironmentUnfitError("the worker server did not start within five minutes")
        self.rss = message.rss

    def _read(self, timeout: float | None) -> FromServer | None:
        while b"\n" not in self._buffer:
            self.link.settimeout(timeout)
            try:
                chunk = self.link.recv(1 << 20)
            except TimeoutError:
                return None
            except OSError:
                chunk = b""
            if not chunk:
                raise ServerDiedError
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: FromServer = self._decoder.decode(line)
        if isinstance(message, Ended):
            self.rss = max(self.rss, message.rss_server)
        return message

    def last_words(self) -> str:
        """The last line the server wrote before it died, for an error message."""
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no message"
