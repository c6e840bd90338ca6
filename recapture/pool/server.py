"""The worker server: imports torch once, forks a child for every task, and isolates the children from each other.

It runs as a separate process (see `recapture.pool.bootstrap`), single-threaded, so that forking is safe, and it never
initialises CUDA. Each child has its own session. When a child ends, or exceeds its deadline or a limit, all processes
that it started are killed, even in other sessions: the server is the subreaper of its descendants.

Each process has a link to the server, on which it reports its phases and its result. No other task has it, so none can
report in another one's name.

A process can run several tasks of a group, one after the other, and then those of another group. When its task has
finished and left nothing that could influence another one, its result asks for the next task. If there is none, the
server closes the link, and the process ends as after any task.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import os
import selectors
import signal
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import msgspec

from recapture.pool import bootstrap
from recapture.pool.folders import Folder
from recapture.pool.output_files import cut, tail
from recapture.pool.processes import Child, Running, check_caps, descendants, rss
from recapture.pool.protocol import (
    GOODBYE,
    Begun,
    Ended,
    FromServer,
    LineBuffer,
    Preload,
    Processes,
    Ready,
    Task,
    ToServer,
)
from recapture.pool.worker import STDERR, STDOUT, Following, Link, run_task, set_process_option, stack_time
from recapture.torch_api.kept_builds import take_folder
from recapture.torch_api.preload import preload

PR_SET_CHILD_SUBREAPER = 36

POLL_SECONDS = 0.05
"""Seconds between checks of the deadlines, memory and output of running children; a child's end is seen at once."""

MOST_BEFORE = 100
"""Tasks after which a process is given to no other group: what libraries keep of each task grows."""

MADV_COLLAPSE = 25
"""Number of the madvise call that turns existing memory into huge pages at once; it needs Linux 6.1 or newer."""

HUGE = 2 << 20
"""Bytes of a huge page on x86-64, and on 64-bit Arm with pages of 4 KiB."""


def use_huge_pages() -> int:
    """Turn this process's private writable memory into huge pages where possible; return the number of bytes turned.

    A fork copies a table entry for every page of such memory, and the end of the child frees it. For the 400 MiB of
    torch and Dynamo this takes 45 ms per child with pages of 4 KiB, and 8 ms with huge pages. Copy-on-write still
    copies only the pages that a child writes to. This function takes one or two seconds, because the kernel moves the
    contents.
    """
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
        madvise = ctypes.CDLL(None, use_errno=True).madvise
    except (OSError, AttributeError):  # not Linux
        return 0
    collapsed = 0
    for line in lines:
        span, mode, _, _, inode = line.split()[:5]
        if mode != "rw-p" or inode != "0":
            continue
        begin, end = (int(edge, 16) for edge in span.split("-"))
        begin, end = -(-begin // HUGE) * HUGE, end // HUGE * HUGE
        if begin < end and not madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), MADV_COLLAPSE):
            collapsed += end - begin
    return collapsed


class Links:
    """The server's ends of the links, by process id; the `selector` shows which process has sent something."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._ends: dict[int, socket.socket] = {}
        self._new: tuple[socket.socket, socket.socket]

    def create(self) -> socket.socket:
        """Create the link of a process that is about to start, and return that process's end."""
        self._new = socket.socketpair()
        return self._new[1]

    def close_servers_ends(self) -> None:
        """Close the server's ends of all links in a new process, which needs none of them."""
        for end in [*self._ends.values(), self._new[0]]:
            end.close()

    def register(self, pid: int) -> None:
        """Listen to the new process; the selector has its id as data."""
        end, process_end = self._new
        process_end.close()
        end.setblocking(False)
        self._ends[pid] = end
        self._selector.register(end, selectors.EVENT_READ, pid)

    def receive(self, child: Child) -> None:
        """Add what a process has sent to the report of its task, without waiting.

        The link is closed when the process has closed it, or has sent what is no report: nobody reads a flood.
        """
        while (end := self._ends.get(child.pid)) is not None:
            try:
                chunk = end.recv(1 << 20)
            except BlockingIOError:
                return
            except OSError:
                chunk = b""
            child.report.add(chunk)
            if not chunk or child.report.invalid:
                self.close(child.pid)

    def send(self, pid: int, scratch: Path, task: Task) -> None:
        """Send a task to a process; a process that cannot receive it is dying."""
        following = Following(str(scratch), task.id, task.task, task.payload, task.timeout)
        with contextlib.suppress(OSError):
            self._ends[pid].sendall(msgspec.json.encode(following) + b"\n")

    def close(self, pid: int) -> None:
        """Close the link of a process, if it has one."""
        end = self._ends.pop(pid, None)
        if end is not None:
            self._selector.unregister(end)
            end.close()


def take_next(queue: deque[Task], busy: Iterable[str | None] = (), group: str | None = None) -> Task | None:
    """Take from a queue the first task of a `group`, or of no `busy` group; None if there is none."""
    avoided = set(busy) - {None}
    return _take(queue, lambda task: (group is None or task.group == group) and task.group not in avoided)


def take_movable(queue: deque[Task], busy: Iterable[str | None]) -> Task | None:
    """Take from a queue the first task of a group that no process runs, if the process of another group may run it."""
    return _take(queue, lambda task: task.movable and task.group not in busy)


def _take(queue: deque[Task], fits: Callable[[Task], bool]) -> Task | None:
    task = next(filter(fits, queue), None)
    if task is not None:
        queue.remove(task)
    return task


class Server:
    """Runs tasks that arrive on a socket, at most `jobs` at a time; without `fork`, starts a new Python for each.

    Tasks get scratch directories below `tasks`, which is inside `home`; the host owns and removes both. If `home`,
    `tasks` or `cache` disappears, the server cannot continue, because torch remembers files there. It then reports its
    tasks as lost and ends, and the host starts another server.
    """

    def __init__(
        self,
        link: socket.socket,
        *,
        home: Path,
        tasks: Path,
        jobs: int,
        fork: bool,
        imports: list[str],
        cache: Path | None = None,
    ) -> None:
        self.link = link
        self.jobs = jobs
        self.fork = fork
        self.imports = imports
        self.queue: deque[Task] = deque()
        self.home = Folder(home)
        self.tasks = Folder(tasks.resolve())  # the form in which the kernel reports working directories below it
        self.running = Running(self.tasks.path)
        self.needed = [self.home, self.tasks, *([Folder(cache)] if cache else [])]
        self.host = os.getppid()
        self.selector = selectors.DefaultSelector()
        self.links = Links(self.selector)
        self.decoder = msgspec.json.Decoder(ToServer)
        self.buffer = LineBuffer()
        self.open = True
        self.orderly = False
        self.private: list[socket.socket | selectors.BaseSelector] = [link]
        """What no task may use or block."""

    def serve(self) -> None:
        """Run tasks until the host closes the socket.

        The server's priority is the host's: tasks are nicer, so it gets a processor soon. With a higher one, the
        kernel spun for up to half a second when it removed an ended process's entries in ``/proc``, because a nicer
        process that it waits for got no processor.
        """
        set_process_option(PR_SET_CHILD_SUBREAPER, 1)
        wake_read, wake_write = socket.socketpair()
        for end in (wake_read, wake_write):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):  # the host handles them and closes the socket
            signal.signal(number, signal.SIG_IGN)
        self.selector.register(self.link, selectors.EVENT_READ)
        self.selector.register(wake_read, selectors.EVENT_READ)
        self.private += [self.selector, wake_read, wake_write]
        try:
            self._warm(Preload("bare", self.imports))
            while self.open:
                for key, _ in self.selector.select(POLL_SECONDS if self.running else None):
                    if key.fileobj is self.link:
                        self._receive()
                    elif key.data is not None:
                        self._continue(self.running[key.data])
                    else:
                        with contextlib.suppress(BlockingIOError):
                            wake_read.recv(4096)
                self._step()
        finally:
            self._tidy_up()

    def _step(self) -> None:
        """Check the children once, and start waiting tasks."""
        if (self.running or self.queue) and self._homeless():
            self._abandon()
            return
        self._reap()
        self._police()
        self._start()

    def _tidy_up(self) -> None:
        for child in self.running.values():
            self.running.kill(child)
        self.running.sweep()
        for child in self.running.values():
            child.remove_leftovers()
        self.tasks.remove()
        if not self.orderly and self._host_is_gone():  # no other process is left to remove the home
            self.home.remove_for_good()

    def _host_is_gone(self) -> bool:
        """Whether the host died; its end of the link closes shortly before its children get another parent."""
        for _ in range(100):
            if os.getppid() != self.host:
                return True
            time.sleep(0.02)
        return False

    def _homeless(self) -> bool:
        """Whether a task removed or moved a directory that this server and its other tasks need."""
        return not all(folder.is_in_place() for folder in self.needed)

    def _abandon(self) -> None:
        """Report all running tasks as lost, and end."""
        self.open = False
        self.orderly = True  # the host is alive and will start another server
        for child in self.running.values():
            child.cause = "exit"
            self.running.kill(child)
        while self.running:
            pid, status, usage = os.wait4(-1, 0)
            if pid in self.running:
                child = self.running.pop(pid)
                child.peak_rss = max(child.peak_rss, usage.ru_maxrss * 1024)
                self._report(child, status, lost=True)

    def _send(self, message: FromServer) -> None:
        self.link.sendall(msgspec.json.encode(message) + b"\n")

    def _receive(self) -> None:
        chunk = self.link.recv(1 << 20)
        if not chunk:
            self.open = False
            return
        for line in self.buffer.add(chunk):
            if line == GOODBYE:
                self.orderly = True
                self.open = False
                return
            message = self.decoder.decode(line)
            if isinstance(message, Task):
                self.queue.append(message)
            else:
                self._warm(message)

    def _warm(self, request: Preload) -> None:
        if self.fork:
            preload(request.level, request.modules)
            gc.collect()
            # Objects that the collector moves between its lists are written to, and their pages copied.
            gc.freeze()  # so that children keep sharing the parent's pages
            if request.many and request.level != "bare":  # a bare server is small, and has few or short-lived children
                use_huge_pages()
        self._send(Ready(rss(os.getpid())))

    def _start(self) -> None:
        groups = [child.task.group for child in self.running.values()]
        while len(self.running) < self.jobs and (task := take_next(self.queue, busy=groups)) is not None:
            groups.append(task.group)
            self._begin(task)

    def _begin(self, task: Task, waiting: Child | None = None) -> None:
        """Start a task in a new process, or in one that waits for another task."""
        folder = Folder(Path(tempfile.mkdtemp(dir=self.tasks.path)))
        self._send(Begun(task.id))  # first, because the task may kill this server at once
        started = time.monotonic()
        if waiting is not None:
            pid = waiting.pid
            self._send(Processes(task.id, [pid]))
            self.links.send(pid, folder.path, task)
        else:
            pid = self._fork(task, folder.path) if self.fork else self._spawn(task, folder.path)
        self.running[pid] = Child(task, pid, folder, started, before=0 if waiting is None else waiting.before + 1)

    def _continue(self, child: Child) -> None:
        """Receive what a process reports. If it has finished its task, let it run another one, or end."""
        self.links.receive(child)
        if child.report.result is None:
            return
        asks = child.report.reusable and not child.report.invalid
        asks = asks and child.task.group is not None and child.cause is None and child.folder.is_in_place()
        task = take_next(self.queue, group=child.task.group) if asks else None
        if task is None and asks and child.task.movable and child.before < MOST_BEFORE:
            task = take_movable(self.queue, [child.task.group for child in self.running.values()])
        if task is None:
            self.links.close(child.pid)
            return
        self.running.kill_started_by(child)
        child.peak_rss = max(child.peak_rss, rss(child.pid))
        self._report(child, 0)
        self._begin(task, waiting=child)

    def _fork(self, task: Task, scratch: Path) -> int:
        link = self.links.create()
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(OSError):  # the host has died
                # Before any code of the task runs: it may kill this server.
                self._send(Processes(task.id, [os.getpid()]))
            self.links.close_servers_ends()
            for resource in self.private:
                resource.close()
            # Does not return.
            run_task(scratch, task.id, task.task, bytes(task.payload), task.timeout, timed=task.timed, link=Link(link))
        self.links.register(pid)
        return pid

    def _spawn(self, task: Task, scratch: Path) -> int:
        (scratch / "payload.json").write_bytes(bytes(task.payload))
        link = self.links.create()
        link.set_inheritable(True)
        words = (scratch, link.fileno(), task.id, task.task, task.timeout, "timed" if task.timed else "nice")
        command = bootstrap.command("recapture.pool.worker", *map(str, words))
        with (scratch / STDERR).open("ab") as stderr:  # for errors of a Python that cannot start
            files = [
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, stderr.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, stderr.fileno(), 2),
            ]
            # Not Popen: creating the next Popen would collect this child's exit status before `_reap` does.
            pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=files)
        self.links.register(pid)
        return pid

    def _reap(self) -> None:
        """Collect every dead child: tasks, and orphans that tasks left behind."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self.running.pop(pid, None)
            if child is not None:
                child.peak_rss = max(child.peak_rss, usage.ru_maxrss * 1024)
                self._finish(child, status)

    def _finish(self, child: Child, status: int) -> None:
        if child.cause is None:  # a task may start daemons or fill shared memory, and end between two checks
            check_caps(child, self.running.orphans(child), ended=True)
        self.running.kill(child)
        self.running.sweep(child if self.running else None)
        self.links.receive(child)  # what it sent before it ended
        self.links.close(child.pid)
        self._report(child, status)

    def _report(self, child: Child, status: int, *, lost: bool = False) -> None:
        """Remove what a task left behind, and tell the host how it ended."""
        gone = not child.folder.is_in_place()
        lost = lost or (gone and child.cause is None)
        result, unreadable = (None, False) if gone or lost else child.report.text()
        status_code, seconds = os.waitstatus_to_exitcode(status), time.monotonic() - child.started
        ended = Ended(
            id=child.task.id,
            cause=child.cause or _cause(status_code, seconds, child.task.timeout),  # type: ignore[arg-type]
            status=status_code,
            phase=None if gone or lost else child.report.phase,
            result=result,
            seconds=seconds,
            peak_rss=child.peak_rss,
            stdout="" if gone else tail(child.scratch / STDOUT),
            stderr="" if gone else tail(child.scratch / STDERR),
            rss_server=rss(os.getpid()),
            unreadable=unreadable,
            lost=lost,
            reused=child.before > 0,
            called_exit=child.report.called_exit,
        )
        child.remove_leftovers()
        self._send(ended)

    def _police(self) -> None:
        """Enforce deadlines, limits and the size of output files; kill processes that tasks left behind."""
        now = time.monotonic()
        for child in self.running.values():
            if child.cause is not None:
                self.running.kill(child)  # it is already dying, but its descendants may still fork
                continue
            check_caps(child, [child.pid, *descendants(child.pid), *self.running.orphans(child)])
            if new := child.new_processes():
                self._send(Processes(child.task.id, new))
            if child.cause is None and now - child.started > child.task.timeout:
                child.cause = "timeout"
            if child.cause is not None:
                self.running.kill(child)
            for name in (STDOUT, STDERR):
                cut(child.scratch / name)


def _cause(status: int, seconds: float, deadline: float) -> Literal["exit", "timeout"]:
    """Return what ended a process that nothing killed: its deadline, if that is why its stack was being written."""
    written = seconds >= stack_time(deadline) and status in (-signal.SIGSEGV, -signal.SIGBUS)
    return "timeout" if written else "exit"


def main(arguments: list[str] | None = None) -> None:
    """Serve on an inherited socket: ``--fd N --home DIR --tasks DIR --cache DIR --jobs N [--import MODULE]...``."""
    parser = argparse.ArgumentParser(prog="recapture.pool.server")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--import", action="append", default=[], dest="imports")
    options = parser.parse_args(arguments)
    take_folder()
    os.dup2(2, 1)  # no output of a library may reach the host's standard output
    link = socket.socket(fileno=options.fd)
    # No program that a task starts may keep the link open.
    os.set_inheritable(options.fd, False)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the host has died
        server = Server(
            link,
            home=options.home,
            tasks=options.tasks,
            cache=options.cache,
            jobs=options.jobs,
            fork=not options.fresh,
            imports=options.imports,
        )
        server.serve()


if __name__ == "__main__":
    main()
