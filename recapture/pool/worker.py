"""The process of one task, with its own session, scratch directory and output files; it exits after the task.

A child forked by the server calls `run_task`. Where forking is impossible, the server starts this module as a script,
which does the same in a new process.

A case runs in the same process as the code that compares it with eager and reports the result. So a malicious case can
falsify its own result, for example by replacing functions of torch or of this package. Isolation protects everything
else from a case: the other cells, the run and its records, and the machine's memory, processes and time. It does not
protect from a case that debugs the run's other processes (ptrace), which the user who runs it may do. Do not rely on
verdicts about code that you do not trust.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import fcntl
import os
import resource
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from recapture.base.by_name import load
from recapture.base.paths import without_callers_directory
from recapture.pool import processes
from recapture.pool.protocol import EXIT_LINE, LineBuffer, phase_line, result_message

Enter = Callable[[str], None]

STDOUT = "stdout"
STDERR = "stderr"

FAILED = 70
"""Exit status of a process that could not report a result; the traceback at the end of its stderr says why."""

LINK_NUMBER = 500
"""The lowest number of a link's descriptor, above those that code closes or writes to by mistake."""

PR_SET_PDEATHSIG = 1

_exit = os._exit
"""Ends this process; taken now, because a case may replace the function, and nothing may run after a task."""

NICENESS = 19
"""Nice value of tasks: low priority, so that the server can keep deadlines even beside a fork bomb."""


class Reusable(bytes):
    """A task's result that says that its process may run another task: nothing is left that could influence it."""


class Following(msgspec.Struct, frozen=True):
    """The next task of a process of a group: its directory, number, function, payload and deadline in seconds."""

    scratch: str
    number: int
    task: str
    payload: msgspec.Raw
    deadline: float


class LinkLostError(Exception):
    """The code that runs in this process closed the descriptor of its link, or replaced it."""


class Link:
    """This process's end of its link to the server."""

    def __init__(self, link: socket.socket) -> None:
        self._socket = link
        with contextlib.suppress(OSError, ValueError):  # a lower limit on descriptors
            self._socket = socket.socket(fileno=fcntl.fcntl(link, fcntl.F_DUPFD_CLOEXEC, LINK_NUMBER))
            link.close()
        self._identity = os.fstat(self._socket.fileno()).st_ino

    def enter(self, phase: str) -> None:
        """Report a phase, which shows where a crash happens."""
        self._send(phase_line(phase))

    def report(self, number: int, result: bytes) -> None:
        """Report the result of the task with this number."""
        self._send(result_message(number, result, reusable=isinstance(result, Reusable)))

    def tell_exit(self) -> None:
        """Report that C code has called ``exit``."""
        self._send(EXIT_LINE)

    def following(self) -> Following | None:
        """Wait for the next task; None if there is none."""
        buffer = LineBuffer()
        with contextlib.suppress(OSError):
            while chunk := self._socket.recv(1 << 16):
                for line in buffer.add(chunk):
                    return msgspec.json.decode(line, type=Following)
        return None

    def _send(self, data: bytes) -> None:
        """Send to the server. Raises LinkLostError if the descriptor is no longer that of the link."""
        number = self._socket.fileno()
        try:
            if os.fstat(number).st_ino == self._identity:
                os.set_blocking(number, True)
                self._socket.sendall(data)
                return
        except OSError:
            pass
        raise LinkLostError("the code closed or flooded the descriptor on which its process reports")


def stack_time(deadline: float) -> float:
    """Return the seconds after which a task's stack is written to its stderr: shortly before its deadline.

    Another thread writes it while the task goes on, which can end the process with SIGSEGV.
    """
    return max(deadline - 0.5, deadline * 0.9)


def run_task(
    scratch: Path, number: int, task: str, payload: bytes, deadline: float, *, timed: bool, link: Link
) -> None:
    """Run the task with this number in this process, report its result on the link, and exit. Never returns.

    `task` is ``module:function``. The function receives the payload (JSON) and a callable, which it calls with the name
    of each phase that it enters, and returns its result (JSON). A `timed` task runs at normal priority, because its
    speed is its result.

    `deadline` is in seconds. Shortly before it, the stack is written to stderr, to show where a timeout hung.

    A result that is `Reusable` asks the server for another task of the group.
    """
    status = FAILED
    try:
        owner = os.getpid()
        _tell_exit_of_c(link, owner)
        _settle(nice=not timed)
        _enter_scratch(scratch)
        faulthandler.enable(file=sys.__stderr__ or 2, all_threads=False)
        _one_thread()
        while True:
            faulthandler.dump_traceback_later(stack_time(deadline), file=sys.__stderr__ or 2)
            result = load(task)(payload, link.enter)
            if os.getpid() != owner:
                _exit(0)  # the case forked, and this is the child
            faulthandler.cancel_dump_traceback_later()
            _flush()  # before the report, because the server then reads what the task printed
            link.report(number, result)
            status = 0
            following = link.following() if isinstance(result, Reusable) else None
            if following is None:
                break
            status = FAILED
            scratch, number, task = Path(following.scratch), following.number, following.task
            payload, deadline = bytes(following.payload), following.deadline
            _enter_scratch(scratch)
    except BaseException:  # the server reports that the result is missing; the traceback is in stderr
        traceback.print_exc()
    finally:
        _flush()
        _exit(status)


_OF_EXIT = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)
_called_by_exit: list[Any] = []
"""The function that C calls at ``exit``, which has to live until then."""


def _tell_exit_of_c(link: Link, owner: int) -> None:
    """Let the process `owner` report a call of C's ``exit``; does nothing where C has no ``on_exit``."""

    def tell(_status: int, _argument: int | None) -> None:
        if os.getpid() == owner:
            with contextlib.suppress(OSError, LinkLostError):
                link.tell_exit()

    with contextlib.suppress(OSError, AttributeError):
        on_exit = ctypes.CDLL(None).on_exit
        _called_by_exit.append(_OF_EXIT(tell))
        on_exit(_called_by_exit[-1], None)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # noqa: S110 - a stream that the case closed must not lose the result
            pass


def set_process_option(option: int, value: int) -> None:
    """Call Linux's ``prctl``; does nothing if it is not available or fails."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
    except (OSError, AttributeError):
        return


def _settle(*, nice: bool) -> None:
    """Isolate this process from its parent: a new session, and termination with the server."""
    if os.getpid() != os.getsid(0):
        os.setsid()
    processes.mark()
    set_process_option(PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(OSError, ValueError):  # the core file of a process with a GPU has gigabytes
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.set_wakeup_fd(-1)
    for caught in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(caught, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS if nice else 0)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # first victim when memory runs out


def _enter_scratch(scratch: Path) -> None:
    """Use a task's directories and output files.

    The working directory and the directory for temporary files are inside the scratch directory, separate from the
    files that the server reads. So a case that deletes them deletes nothing else.
    """
    for name in ("cwd", "tmp"):
        (scratch / name).mkdir()
    os.chdir(scratch / "cwd")
    os.environ["TMPDIR"] = str(scratch / "tmp")
    tempfile.tempdir = None  # discard a value cached before the fork
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for number, name in ((1, STDOUT), (2, STDERR)):
        handle = os.open(scratch / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(handle, number)
        os.close(handle)
    # The parent's streams may have unwritten text; these are new and write to the new files.
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False, errors="backslashreplace")  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", closefd=False, errors="backslashreplace", buffering=1)  # type: ignore[misc]  # noqa: SIM115


def _one_thread() -> None:
    """Let torch compute on one thread: an OpenMP pool does not survive a fork, and results must be reproducible.

    A forked child inherits the number of threads, but torch creates a new pool on first use. Do that here, while there
    is only one thread: if two autograd threads find no pool, they abort the process ("Invalid thread pool!").
    """
    with without_callers_directory():
        import torch

    torch.set_num_threads(1)


def canary(payload: bytes, _enter: Enter) -> bytes:
    """Task: use the device once, to test whether children of this server can use it."""
    import torch

    device = msgspec.json.decode(payload, type=str)
    return msgspec.json.encode(float((torch.ones(2, device=device) * 2).sum()))


def main(arguments: list[str]) -> None:
    """Run the task whose payload the server wrote to a scratch directory.

    Arguments: ``DIR LINK NUMBER TASK DEADLINE TIMED``, where LINK is the number of an inherited descriptor.
    """
    scratch, link, number, task, deadline, timed = Path(arguments[0]), *arguments[1:]
    os.setsid()
    payload = (scratch / "payload.json").read_bytes()
    own_end = Link(socket.socket(fileno=int(link)))
    run_task(scratch, int(number), task, payload, float(deadline), timed=timed == "timed", link=own_end)


if __name__ == "__main__":
    main(sys.argv[1:])
