"""The process of one task: its own session, scratch directory and output files; it does one thing and exits.

A child forked by the server calls `run_task`; where forking is impossible the server starts this module as a script,
and the same happens in a fresh process.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from recapture.cell import CellSpec, examine  # imported here, so that it happens once, in the server
from recapture.collection import collect_suite
from recapture.torch_compat import skip_guard_timing

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PHASE", "RESULT", "STDERR", "STDOUT", "run_task", "set_process_option"]

RESULT = "result.json"
PHASE = "phase"
STDOUT = "stdout"
STDERR = "stderr"

PR_SET_PDEATHSIG = 1

TIMED = frozenset({"bench"})
"""Tasks whose speed is the result: they stand back for nobody."""

NICENESS = 19
"""How far tasks stand back: the server must get a processor at once to keep deadlines, also beside a fork bomb."""


def run_task(scratch: Path, task: str, payload: bytes, deadline: float) -> None:
    """Run one task in this process, leave its result in the scratch directory, and exit. Never returns.

    `deadline` is in seconds: shortly before it, the stack goes to stderr, so that a timeout says where it hung.
    """
    status = 70
    try:
        owner = os.getpid()
        _settle(scratch, nice=task not in TIMED)
        faulthandler.enable(file=sys.__stderr__ or 2, all_threads=False)
        faulthandler.dump_traceback_later(max(deadline - 0.5, deadline * 0.9), file=sys.__stderr__ or 2)
        _one_thread()
        result = TASKS[task](payload, scratch)
        if os.getpid() != owner:
            os._exit(0)  # the case forked, and this is the other process that returned from it
        partial = scratch / f".{RESULT}"
        partial.write_bytes(result)
        partial.replace(scratch / RESULT)
        status = 0
    except BaseException:  # the server reports a child without a result; the traceback is in its stderr
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BaseException:  # noqa: S110 - a closed or broken stream of the case must not cost the result
                pass
        os._exit(status)


def set_process_option(option: int, value: int) -> None:
    """Call Linux's ``prctl``; elsewhere, or where it is refused, nothing happens."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
    except (OSError, AttributeError):
        return


def _settle(scratch: Path, *, nice: bool) -> None:
    """Become a process that cannot disturb its parent: own session, own files, dying with the server.

    The working directory and the one for temporary files lie inside the scratch directory, beside what the server
    reads, so that they go with it, and a case that removes them removes nothing else.
    """
    if os.getpid() != os.getsid(0):
        os.setsid()
    set_process_option(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.set_wakeup_fd(-1)
    for caught in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(caught, signal.SIG_DFL)
    for name in ("cwd", "tmp"):
        (scratch / name).mkdir()
    os.chdir(scratch / "cwd")
    os.environ["TMPDIR"] = str(scratch / "tmp")
    tempfile.tempdir = None  # it may have been looked up before
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS if nice else 0)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(
            "1000"
        )  # a machine out of memory takes this process, not the server
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for number, name in ((1, STDOUT), (2, STDERR)):
        handle = os.open(scratch / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(handle, number)
        os.close(handle)
    # The streams of the parent may hold its text; these write straight to the new files.
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False, errors="backslashreplace")  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", closefd=False, errors="backslashreplace", buffering=1)  # type: ignore[misc]  # noqa: SIM115


def _one_thread() -> None:
    """Let torch compute on one thread: an OpenMP pool does not survive a fork, and one image must give one answer.

    A forked child has inherited the number, but torch makes itself a new pool when it is next asked for one. It must be
    asked here, with one thread running: of the several that autograd starts, two at a time find no pool and abort the
    process ("Invalid thread pool!").
    """
    import torch

    torch.set_num_threads(1)


def _cell(payload: bytes, scratch: Path) -> bytes:
    def enter(phase: str) -> None:  # by name each time: a case may close every file that is open
        (scratch / PHASE).write_text(phase)

    skip_guard_timing()
    return msgspec.json.encode(examine(msgspec.json.decode(payload, type=CellSpec), enter))


def _collect(payload: bytes, _scratch: Path) -> bytes:
    suite, path = msgspec.json.decode(payload, type=tuple[str, str])
    return msgspec.json.encode(collect_suite(suite, Path(path)))


def _survey(payload: bytes, _scratch: Path) -> bytes:
    """What this machine and installation are, and what is wrong with them."""
    from recapture import doctor
    from recapture.environment import describe

    device = msgspec.json.decode(payload, type=str)
    return msgspec.json.encode({"checks": doctor.examine(device), "environment": describe(device)})


def _canary(payload: bytes, _scratch: Path) -> bytes:
    """Use the device once: tells whether children of this server can."""
    import torch

    device = msgspec.json.decode(payload, type=str)
    return msgspec.json.encode(float((torch.ones(2, device=device) * 2).sum()))


def _bench(payload: bytes, scratch: Path) -> bytes:
    """One process of `recapture bench`."""
    from recapture.bench.job import Job, measure

    def enter(phase: str) -> None:
        (scratch / PHASE).write_text(phase)

    return msgspec.json.encode(measure(msgspec.json.decode(payload, type=Job), enter))


def _workloads(payload: bytes, _scratch: Path) -> bytes:
    from recapture.models import ModelSpec, collect_workloads

    return msgspec.json.encode(collect_workloads(msgspec.json.decode(payload, type=ModelSpec)))


TASKS: dict[str, Callable[[bytes, Path], bytes]] = {
    "cell": _cell,
    "collect": _collect,
    "survey": _survey,
    "canary": _canary,
    "bench": _bench,
    "workloads": _workloads,
}


def main(arguments: list[str]) -> None:
    """Run the task that a server wrote into a scratch directory: ``python -m recapture.worker DIR TASK DEADLINE``."""
    scratch, task, deadline = Path(arguments[0]), arguments[1], float(arguments[2])
    os.setsid()
    run_task(scratch, task, (scratch / "payload.json").read_bytes(), deadline)


if __name__ == "__main__":
    main(sys.argv[1:])
