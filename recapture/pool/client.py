"""The host's side of the link to a worker server: starts the server, submits tasks and reads its messages."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from recapture.base.errors import EnvironmentUnfitError
from recapture.base.text import shorten
from recapture.pool import bootstrap
from recapture.pool.folders import CACHE, TEMPORARY, Folder
from recapture.pool.processes import cpu_seconds, remove_segment, segments, stopped
from recapture.pool.protocol import GOODBYE, Begun, Ended, FromServer, LineBuffer, Preload, Processes, Ready, Task
from recapture.torch_api.compat import hide_gpus, isolate_caches
from recapture.torch_api.kept_builds import VARIABLE

STILL_SECONDS = 300.0
"""Seconds that a server may use no processor while it starts or preloads; a cold disk can keep it for a minute."""

MOST_SECONDS = 1800.0
"""Seconds that a server may take to start or to preload. Compiling C++ takes minutes on a machine with other work."""

WORK_SECONDS = 1.0
"""Seconds of processor time that show that a server works."""

LOOK_SECONDS = 5.0
"""Seconds between two looks at a server's processor time."""

IMPORTING = "it imported torch"

DOING = {
    "bare": "it imported modules",
    "light": "it imported torch.compile",
    "cuda": "it imported Inductor",
    "cuda_aoti": "it asked the C++ compiler for its instruction sets",
    "capture": "it captured a first graph",
    "codegen": "it compiled C++ for a first graph",
    "aoti": "it compiled and packaged a first program",
}
"""What a server does for each level of `recapture.torch_api.preload`."""


class ServerStart:
    """One step of a server's start, from now on; `pid` is the server's process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.began = self.active = time.monotonic()
        self.used = cpu_seconds(pid)

    @property
    def patience(self) -> float:
        """Seconds until the next look."""
        return min(LOOK_SECONDS, STILL_SECONDS / 4)

    def failed(self, doing: str) -> str | None:
        """Return in a sentence why the server will not get ready; None as long as it works. `doing` says at what."""
        now, used = time.monotonic(), cpu_seconds(self.pid)
        if used >= self.used + WORK_SECONDS:
            self.active, self.used = now, used
        if now - self.active >= STILL_SECONDS:
            return f"the worker server stood still for {now - self.active:.0f} s while {doing}"
        if now - self.began >= MOST_SECONDS:
            return f"the worker server was not ready after {now - self.began:.0f} s; at the end, {doing}"
        return None


SILENCE_SECONDS = 60.0
"""Seconds that a server may stay silent after a deadline before it counts as dead."""

STOPPED_SECONDS = 1.0
"""Seconds that a server may stay stopped (SIGSTOP) before it counts as dead."""

MARK = "RECAPTURE_TASKS"
"""Environment variable with a server's folder of tasks, which identifies the server's processes."""

LONGEST_WORDS = 300
"""Characters of the longest last message of a server; torch's messages may have several lines and list many names."""

_RAISED = re.compile(r"^[A-Za-z_][\w.]*(:|$)", re.MULTILINE)
"""The line of a traceback that names the exception; the lines before it are indented."""

T = TypeVar("T")


class ServerDiedError(EnvironmentUnfitError):
    """The server died or hangs, because of a task or because the machine ran out of memory."""

    def __init__(self, message: str = "the worker server died or hangs") -> None:
        super().__init__(message)


class SlowStartError(ServerDiedError):
    """The server does not get ready; the message says what it was doing."""


class Client:
    """One worker server; use it as a context manager.

    Without `fork`, it starts a new Python for each task. `whole_graphs` leaves torch's caches of whole graphs on.
    `imports` are modules that the server imports when it starts. `kept` is the folder of builds that are kept from run
    to run (`recapture.pool.kept_folder`), None if none are. `gpus` says whether tasks see the machine's GPUs. The
    server and its tasks write everything, including compile caches, below `home`, the caller's temporary directory (see
    `recapture.pool.folders`), which several servers may share.
    """

    def __init__(
        self,
        *,
        home: Path,
        jobs: int,
        fork: bool = True,
        whole_graphs: bool = False,
        imports: tuple[str, ...] = (),
        gpus: bool = True,
        kept: Path | None = None,
    ) -> None:
        self.jobs = jobs
        self.kept = kept
        self.fork = fork
        self.whole_graphs = whole_graphs
        self.imports = imports
        self.gpus = gpus
        self.home = home
        self.rss = 0
        self._next = 0
        self._unready: deque[str] = deque()
        """What the server still does before it is ready."""
        self._kept: deque[Begun | Ended] = deque()
        """Messages that arrived while the result of another task was awaited."""
        self._awaited: set[int] = set()
        """Tasks whose messages `message` leaves to `result`."""
        self._pids: dict[int, set[int]] = {}
        """Ids of the processes of the running tasks, also of those that have ended, by the task's number."""
        self._decoder = msgspec.json.Decoder(FromServer)

    def __enter__(self) -> Client:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server and wait until it has imported torch."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start the server without waiting for it."""
        self.tasks = Path(tempfile.mkdtemp(prefix="tasks-", dir=self.home))
        self._tasks = Folder(self.tasks)
        self.cache = self.home / CACHE
        self.temporary = self.home / TEMPORARY
        self._others = {segment.id for segment in segments()}
        host_end, server_end = socket.socketpair()
        command = bootstrap.command("recapture.pool.server", "--fd", str(server_end.fileno()))
        command += ["--home", str(self.home), "--tasks", str(self.tasks), "--cache", str(self.cache)]
        command += ["--jobs", str(self.jobs), *([] if self.fork else ["--fresh"])]
        command += [word for name in self.imports for word in ("--import", name)]
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the server
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            pass_fds=[server_end.fileno()],
            env=self._environment(),
            # Ctrl-C then reaches the host alone, which closes the socket in good order.
            start_new_session=True,
        )
        server_end.close()
        self.link = host_end
        self._buffer = LineBuffer()
        self._lines: deque[bytes] = deque()
        self._unready = deque([IMPORTING])

    def _environment(self) -> dict[str, str]:
        environment = dict(os.environ)
        isolate_caches(str(self.cache), str(self.temporary), environment, whole_graphs=self.whole_graphs)
        if not self.gpus:
            hide_gpus(environment)
        environment[MARK] = str(self.tasks)
        environment.pop(VARIABLE, None)
        if self.kept is not None:
            environment[VARIABLE] = str(self.kept)
        return environment

    def stop(self, *, patience: float = 20.0) -> None:
        """Close the socket, so that the server kills its children and ends; kill it after `patience` seconds.

        A server that is still starting has no children and is killed at once.
        """
        with contextlib.suppress(ServerDiedError, OSError):  # a server that died may have named its last tasks before
            while self._read(0.0) is not None:
                pass
        with contextlib.suppress(OSError):
            self.link.settimeout(1.0)
            self.link.sendall(GOODBYE + b"\n")
        self.link.close()
        try:
            self.process.wait(timeout=0 if self._unready else patience)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()
        # Segments outlive the processes that created them, whose ids are all that says whose they are.
        known = self._kill_survivors().union(*self._pids.values())
        for segment in segments():
            if segment.creator in known and segment.id not in self._others:
                remove_segment(segment)
        self._tasks.remove()
        self._tasks.close()

    def _kill_survivors(self) -> set[int]:
        """Kill leftover processes of tasks whose server was killed, and return their ids.

        Their environment names the server's folder of tasks.
        """
        mark = f"{MARK}={self.tasks}".encode()
        killed: set[int] = set()
        for _ in range(100):
            killed_some = False
            for process in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    if mark in (process / "environ").read_bytes().split(b"\0"):
                        os.kill(int(process.name), signal.SIGKILL)
                        killed.add(int(process.name))
                        killed_some = True
            if not killed_some:
                break
            time.sleep(0.01)
        return killed

    def preload(self, level: str, modules: list[str], *, many: bool = True) -> None:
        """Preload a level of `recapture.torch_api.preload` and modules before more children fork: `many`, or a few."""
        self.ask_preload(level, modules, many=many)
        self.wait()

    def ask_preload(self, level: str, modules: list[str], *, many: bool = True) -> None:
        """Request a preload without waiting for it."""
        self._send(Preload(level, modules, many))
        self._unready.append(DOING.get(level, DOING["bare"]))

    def wait(self) -> None:
        """Wait until the server has started and finished every requested preload.

        Raises SlowStartError if it will not get ready: see `ServerStart`.
        """
        while self._unready:
            message = self._next_of_start()
            if isinstance(message, (Begun, Ended)):  # of a task that runs meanwhile
                self._kept.append(message)
                continue
            if isinstance(message, Processes):
                continue
            self._unready.popleft()
            self.rss = message.rss

    def _next_of_start(self) -> FromServer:
        start = ServerStart(self.process.pid)
        while (message := self._read(start.patience)) is None:
            if (why := start.failed(self._unready[0])) is not None:
                raise SlowStartError(why)
        return message

    def submit(
        self,
        task: str,
        payload: Any,
        *,
        timeout: float,
        memory: int,
        timed: bool = False,
        group: str | None = None,
        movable: bool = False,
        awaited: bool = False,
    ) -> int:
        """Queue a task; its Begun and Ended messages carry the number returned.

        If it is `awaited`, `message` skips them, and `result` returns its result even while other tasks run.
        """
        self._next += 1
        raw = msgspec.Raw(msgspec.json.encode(payload))
        if awaited:
            self._awaited.add(self._next)
        self._send(Task(self._next, task, raw, timeout, memory, timed, group, movable))
        return self._next

    def message(self, timeout: float) -> Begun | Ended:
        """Return the next message about tasks that are not awaited; `timeout` is their longest deadline in seconds.

        Raises ServerDiedError if the server died, was stopped, or is silent for `SILENCE_SECONDS` after that.
        """
        for message in self._kept:
            if message.id not in self._awaited:
                self._kept.remove(message)
                return message
        while (message := self._receive(timeout)).id in self._awaited:
            self._kept.append(message)
        return message

    def has_ended(self, number: int) -> bool:
        """Whether the end of an awaited task has arrived, without waiting."""
        return any(isinstance(message, Ended) and message.id == number for message in self._kept)

    def _receive(self, timeout: float) -> Begun | Ended:
        while isinstance(message := self._read(timeout + SILENCE_SECONDS), (Ready, Processes)):
            pass
        if message is None:
            raise ServerDiedError
        return message

    def run(self, task: str, payload: Any, kind: type[T], *, timeout: float, memory: int = 1 << 40) -> T | Ended:
        """Run one task to its end; return its decoded result, or the Ended message if it left no valid result.

        Raises ServerDiedError if the task killed the server or removed its directories.
        """
        return self.result(self.submit(task, payload, timeout=timeout, memory=memory), kind, timeout=timeout)

    def result(self, number: int, kind: type[T], *, timeout: float) -> T | Ended:
        """Wait for the end of a submitted task; messages of other tasks that arrive meanwhile are kept."""
        while not self.has_ended(number):
            self._kept.append(self._receive(timeout))
        ended = next(message for message in self._kept if isinstance(message, Ended) and message.id == number)
        self._kept = deque(message for message in self._kept if message.id != number)
        self._awaited.discard(number)
        if ended.lost:
            raise ServerDiedError
        try:
            return ended if ended.result is None else msgspec.json.decode(ended.result, type=kind)
        except (msgspec.MsgspecError, RecursionError):
            return msgspec.structs.replace(ended, result=None, unreadable=True)

    def _send(self, message: Task | Preload) -> None:
        try:
            self.link.sendall(msgspec.json.encode(message) + b"\n")
        except OSError:
            raise ServerDiedError from None

    def _read(self, timeout: float) -> FromServer | None:
        end = time.monotonic() + timeout
        was_stopped = False
        while not self._lines:
            self.link.settimeout(max(0.001, min(STOPPED_SECONDS, end - time.monotonic())))
            try:
                chunk = self.link.recv(1 << 20)
            except TimeoutError:
                is_stopped = stopped(self.process.pid)
                if is_stopped and was_stopped:
                    raise ServerDiedError from None
                was_stopped = is_stopped
                if time.monotonic() >= end:
                    return None
                continue
            except OSError:
                chunk = b""
            if not chunk:
                raise ServerDiedError
            self._lines.extend(self._buffer.add(chunk))
        try:
            message: FromServer = self._decoder.decode(self._lines.popleft())
        except (msgspec.MsgspecError, UnicodeDecodeError):  # a valid server never sends this
            raise ServerDiedError from None
        if isinstance(message, Processes):
            self._pids.setdefault(message.id, set()).update(message.pids)
        elif isinstance(message, Ended):
            self._pids.pop(message.id, None)
            self.rss = max(self.rss, message.rss_server)
        return message

    def last_words(self) -> str:
        """Return the server's last exception, or the last line that it wrote before it died, as one line."""
        self.log.seek(0)
        text = self.log.read().decode(errors="replace").strip()
        _, traceback, last = text.rpartition("Traceback (most recent call last):\n")
        raised = _RAISED.search(last) if traceback else None
        words = last[raised.start() :] if raised else text.rpartition("\n")[2]
        return shorten(words, LONGEST_WORDS) or "no message"
