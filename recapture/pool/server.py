"""The worker server: imports torch once, forks a child for every task, and lets none of them harm another.

It runs as a process of its own (see `recapture.pool.bootstrap`), single-threaded, so that forking is safe, and it never
initialises CUDA. Each child has its own session; when it ends, or passes its deadline or memory cap, everything it left
running is killed, also what moved to a session of its own: the server is the reaper of its descendants.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import os
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import msgspec

from recapture.base.torch_compat import preload
from recapture.pool import bootstrap
from recapture.pool.huge_pages import collapse
from recapture.pool.protocol import GOODBYE, Begun, Ended, FromServer, Preload, Ready, Task, ToServer
from recapture.pool.worker import PHASE, RESULT, STDERR, STDOUT, run_task, set_process_option

__all__ = ["Server", "main"]

PR_SET_CHILD_SUBREAPER = 36

PRIORITY = -10

POLL_SECONDS = 0.05
"""How often deadlines, memory and output of running children are looked at; a child's end is noticed at once."""

TAIL_BYTES = 8 * 1024
OUTPUT_CAP_BYTES = 32 * 1024 * 1024
"""An output file past this size is cut: the end of it is what is kept anyway."""

WEIGH_SECONDS = 0.1
"""How long finding out what one task's processes use may take, but for the last of them to be asked."""

MAX_PROCESSES = 64
"""Processes one task may have at a time; a compiler needs a handful, a fork bomb has no limit of its own."""


@dataclass
class Child:
    """One running task."""

    task: Task
    pid: int
    scratch: Path
    started: float
    peak_rss: int = 0
    cause: str | None = None
    processes: int = 0
    weighed_again: float = 0.0


class Server:
    """Runs tasks that arrive on a socket, at most `jobs` at a time; `fork` False starts a fresh Python for each.

    Tasks get their scratch directories below `tasks`; it and `home`, around it, belong to the host, and go with it.
    """

    def __init__(
        self, link: socket.socket, *, home: Path, tasks: Path, jobs: int, fork: bool, imports: list[str]
    ) -> None:
        self.link = link
        self.jobs = jobs
        self.fork = fork
        self.imports = imports
        self.queue: deque[Task] = deque()
        self.children: dict[int, Child] = {}
        self.home = home
        self.root = tasks.resolve()  # as the kernel names the working directories below it
        self.host = os.getppid()
        self.decoder = msgspec.json.Decoder(ToServer)
        self.buffer = b""
        self.open = True
        self.orderly = False

    def serve(self) -> None:
        """Work until the host closes the socket."""
        set_process_option(PR_SET_CHILD_SUBREAPER, 1)
        with contextlib.suppress(OSError):  # where it may: deadlines are kept by whoever gets a processor first
            os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
        wake_read, wake_write = socket.socketpair()
        for end in (wake_read, wake_write):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):  # they are for the host, which then closes the socket
            signal.signal(number, signal.SIG_IGN)
        selector = selectors.DefaultSelector()
        selector.register(self.link, selectors.EVENT_READ)
        selector.register(wake_read, selectors.EVENT_READ)
        try:
            self._warm(Preload("bare", self.imports))
            while self.open:
                for key, _ in selector.select(POLL_SECONDS if self.children else None):
                    if key.fileobj is self.link:
                        self._receive()
                    else:
                        with contextlib.suppress(BlockingIOError):
                            wake_read.recv(4096)
                self._reap()
                self._police()
                self._start()
        finally:
            for child in self.children.values():
                self._kill(child)
            self._sweep()
            shutil.rmtree(self.root, ignore_errors=True)
            if not self.orderly and self._host_is_gone():  # nobody else is left to tidy up
                for _ in range(100):
                    shutil.rmtree(self.home, ignore_errors=True)
                    if not self.home.exists():
                        break
                    time.sleep(0.1)  # a process that is just dying put something there meanwhile

    def _host_is_gone(self) -> bool:
        """Whether the host died; its end of the link closes a moment before its children get another parent."""
        for _ in range(100):
            if os.getppid() != self.host:
                return True
            time.sleep(0.02)
        return False

    def _send(self, message: FromServer) -> None:
        self.link.sendall(msgspec.json.encode(message) + b"\n")

    def _receive(self) -> None:
        chunk = self.link.recv(1 << 20)
        if not chunk:
            self.open = False
            return
        *lines, self.buffer = (self.buffer + chunk).split(b"\n")
        for line in lines:
            if line == GOODBYE:
                self.orderly = True
                self.open = False
                return
            message = self.decoder.decode(line)
            if isinstance(message, Task):
                self.queue.append(message)
            else:
                self._warm(message)

    def _warm(self, wanted: Preload) -> None:
        if self.fork:
            preload(wanted.level, wanted.modules)
            gc.collect()
            gc.freeze()  # children then leave the parent's pages shared
            if wanted.level != "bare":  # a server that stays as small has few or quick children
                collapse()
        self._send(Ready(_rss(os.getpid())))

    def _start(self) -> None:
        while self.queue and len(self.children) < self.jobs:
            task = self.queue.popleft()
            scratch = Path(tempfile.mkdtemp(dir=self.root))
            self._send(Begun(task.id))
            started = time.monotonic()
            pid = self._fork(task, scratch) if self.fork else self._spawn(task, scratch)
            self.children[pid] = Child(task, pid, scratch, started)

    def _fork(self, task: Task, scratch: Path) -> int:
        pid = os.fork()
        if pid == 0:
            self.link.close()
            run_task(scratch, task.task, bytes(task.payload), task.timeout, timed=task.timed)  # exits
        return pid

    def _spawn(self, task: Task, scratch: Path) -> int:
        (scratch / "payload.json").write_bytes(bytes(task.payload))
        command = bootstrap.command(
            "recapture.pool.worker", str(scratch), task.task, str(task.timeout), "timed" if task.timed else "nice"
        )
        with (scratch / STDERR).open("ab") as stderr:  # a Python that cannot start says so there
            files = [
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, stderr.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, stderr.fileno(), 2),
            ]
            # No Popen: the next one that is made would wait for this child, and its end would never come to `_reap`.
            return os.posix_spawn(sys.executable, command, os.environ, file_actions=files)

    def _reap(self) -> None:
        """Collect every dead child, whether a task or an orphan that a task left behind."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self.children.pop(pid, None)
            if child is not None:
                child.peak_rss = max(child.peak_rss, usage.ru_maxrss * 1024)
                self._finish(child, status)

    def _finish(self, child: Child, status: int) -> None:
        seconds = time.monotonic() - child.started
        self._kill(child)
        self._sweep(child if self.children else None)
        lost = not child.scratch.is_dir()
        result = None
        with contextlib.suppress(OSError):
            result = (child.scratch / RESULT).read_text(encoding="utf-8")
        phase = None
        with contextlib.suppress(OSError):
            phase = (child.scratch / PHASE).read_bytes().decode(errors="replace").strip() or None
        self._send(
            Ended(
                id=child.task.id,
                cause=child.cause or "exit",  # type: ignore[arg-type]
                status=os.waitstatus_to_exitcode(status),
                phase=phase,
                result=result,
                seconds=seconds,
                peak_rss=child.peak_rss,
                stdout=_tail(child.scratch / STDOUT),
                stderr=_tail(child.scratch / STDERR),
                rss_server=_rss(os.getpid()),
                lost=lost,
            )
        )
        shutil.rmtree(child.scratch, ignore_errors=True)

    def _police(self) -> None:
        """Enforce deadlines, memory caps and the size of output files; kill what tasks left behind."""
        now = time.monotonic()
        for child in self.children.values():
            if child.cause is not None:
                self._kill(child)  # it is dying; its descendants may still be forking
                continue
            processes = _descendants(child.pid)
            rss = sum(_rss(pid) for pid in [child.pid, *processes])
            child.peak_rss = max(child.peak_rss, rss)
            if len(processes) > MAX_PROCESSES:
                child.cause = "processes"
            elif rss > child.task.memory and len(processes) <= child.processes and self._exceeds(child, processes):
                child.cause = "memory"
            elif now - child.started > child.task.timeout:
                child.cause = "timeout"
            child.processes = len(processes)
            if child.cause is not None:
                self._kill(child)
            for name in (STDOUT, STDERR):
                _cut(child.scratch / name)

    def _exceeds(self, child: Child, processes: list[int]) -> bool:
        """Whether a task is past its memory cap when pages that its processes share count once.

        To weigh one process the kernel goes through its pages, and waits while it forks: up to half a second each. No
        task may delay the others' deadlines and caps by that. So a task is not asked about while it makes processes
        (it has only so many to make), and past `WEIGH_SECONDS` those not yet weighed are taken to be as much their own
        as the others of the task.
        """
        begin = time.monotonic()
        if begin < child.weighed_again:
            return False
        weight = weighed = 0
        rest = [child.pid, *processes]
        while rest and (not weighed or time.monotonic() - begin < WEIGH_SECONDS):
            pid = rest.pop(0)
            weight += _pss(pid)
            weighed += _rss(pid)
        end = time.monotonic()
        child.weighed_again = end + 5 * (end - begin)
        if weighed:
            weight += weight * sum(_rss(pid) for pid in rest) // weighed
        return weight > child.task.memory

    def _kill(self, child: Child) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)  # first, and all at once: a fork bomb may have no time to go on
        for pid in _descendants(child.pid):
            _signal(pid)
        if child.cause is not None:
            _signal(child.pid)

    def _sweep(self, ended: Child | None = None) -> None:
        """Kill the orphans that became this server's children, and theirs, until none is left.

        While other tasks run, those that the one which `ended` left: any other may be a helper that one waits for.
        """
        doomed: set[int] = set()
        for _ in range(100):
            orphans = [pid for pid in _children(os.getpid()) if pid not in self.children]
            if ended is not None:
                doomed.update(pid for pid in orphans if self._comes_of(ended, pid))
                orphans = [pid for pid in orphans if pid in doomed]
            if not orphans:
                return
            for orphan in orphans:
                for pid in [*_descendants(orphan), orphan]:
                    _signal(pid)
            for orphan in orphans:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(orphan, os.WNOHANG)
            time.sleep(0.002)

    def _comes_of(self, ended: Child, pid: int) -> bool:
        """Whether an orphan is of a task that ended, as far as its session, directory and environment tell.

        In this order: what a fork bomb leaves is known by the first, and to read the last it may have to be waited for.
        """
        with contextlib.suppress(OSError):
            session = os.getsid(pid)
            if session == ended.pid or session in self.children:
                return session == ended.pid
            directory = Path(f"/proc/{pid}/cwd").readlink()
            if directory.is_relative_to(self.root):
                return directory.is_relative_to(ended.scratch)
            return os.fsencode(f"TMPDIR={ended.scratch}/") in Path(f"/proc/{pid}/environ").read_bytes()
        return False


def _signal(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        for thread in Path(f"/proc/{pid}/task").iterdir():  # each thread has its own list of those it forked
            with contextlib.suppress(OSError, ValueError):
                found += map(int, (thread / "children").read_text().split())
    return found


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    queue = [pid]
    while queue and len(found) <= 2 * MAX_PROCESSES:
        children = _children(queue.pop())
        found += children
        queue += children
    return found


def _rss(pid: int) -> int:
    """Resident memory in bytes, with what is shared with other processes."""
    try:
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return resident * os.sysconf("SC_PAGE_SIZE")


def _pss(pid: int) -> int:
    """Resident memory in bytes, where a page that n processes share counts as its n-th part."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, IndexError, ValueError):
        pass
    return _rss(pid)


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as handle:
            handle.seek(0, os.SEEK_END)
            handle.seek(max(0, handle.tell() - TAIL_BYTES))
            return handle.read().decode(errors="replace")
    except OSError:
        return ""


def _cut(path: Path) -> None:
    """Empty an output file that takes more room than its cap, keeping its end; the writer goes on writing meanwhile."""
    try:
        status = path.stat()
        if status.st_blocks * 512 <= OUTPUT_CAP_BYTES:
            return
        with path.open("r+b") as handle:
            if _punch(handle.fileno(), status.st_size - TAIL_BYTES):
                return
        end = _tail(path).encode()
        with path.open("r+b") as handle:  # what is written between these lines is lost
            handle.truncate(0)
        with path.open("ab") as handle:
            handle.write(end)
    except OSError:
        return


def _punch(descriptor: int, length: int) -> bool:
    """Give back the blocks of a file's beginning, where the file system can: its size and its end stay as they are."""
    keep_size_and_punch_hole = 0x01 | 0x02
    try:
        fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):  # not Linux
        return False
    return bool(fallocate(descriptor, keep_size_and_punch_hole, ctypes.c_int64(0), ctypes.c_int64(length)) == 0)


def main(arguments: list[str] | None = None) -> None:
    """Serve on an inherited socket: ``--fd N --home DIR --tasks DIR --jobs N [--import MODULE]...``."""
    parser = argparse.ArgumentParser(prog="recapture.pool.server")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--import", action="append", default=[], dest="imports")
    options = parser.parse_args(arguments)
    os.dup2(2, 1)  # nothing a library prints may reach the host's standard output
    link = socket.socket(fileno=options.fd)
    os.set_inheritable(options.fd, False)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the host is gone: nothing left to tell
        server = Server(
            link,
            home=options.home,
            tasks=options.tasks,
            jobs=options.jobs,
            fork=not options.fresh,
            imports=options.imports,
        )
        server.serve()


if __name__ == "__main__":
    main()
