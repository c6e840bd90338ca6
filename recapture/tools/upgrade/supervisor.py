"""Runs a command as a child of its own: ``supervisor.py [--while-input] FILE WORD...``; it needs no package.

With ``--while-input``, everything ends when the standard input does: in a container, where nothing else tells that the
process which started it is gone. FILE gets the bytes of the largest of the command's processes.

A test that kills its parent kills this process, and not the one that keeps the outcomes. If either dies, the kernel
kills the command. What the command leaves behind, such as a daemon in a session of its own, ends with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

NOT_STARTED = 127
"""Exit status of a command that cannot be started, as a shell has it."""


def _end_with_parent() -> None:
    _PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != _SUPERVISOR:  # killed before the kernel knew of it
        os._exit(128 + signal.SIGKILL)


def _end_descendants() -> None:
    """Kill what the command left behind: as their reaper, this process gets the children of each that ends."""
    while True:
        children = []
        for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 - starts faster
            with open(f"/proc/self/task/{thread}/children", encoding="ascii") as file:  # noqa: PTH123 - starts faster
                children += [int(number) for number in file.read().split()]
        if not children:
            return
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _end_with_input() -> None:
    while os.read(0, 1 << 10):
        pass
    os._exit(128 + signal.SIGKILL)


if __name__ == "__main__":
    stdin = None
    if sys.argv[1] == "--while-input":
        del sys.argv[1]
        stdin = subprocess.DEVNULL
        threading.Thread(target=_end_with_input, daemon=True).start()
    _PRCTL, _SUPERVISOR = ctypes.CDLL(None).prctl, os.getpid()
    _PRCTL(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        # Foreground: a shell's background command would ignore Ctrl-C, which a test may send to itself.
        status = subprocess.run(sys.argv[2:], check=False, stdin=stdin, preexec_fn=_end_with_parent).returncode
    except OSError as error:
        sys.stderr.write(f"{sys.argv[2]}: {error.strerror}\n")
        status = NOT_STARTED
    with contextlib.suppress(OSError):  # a kernel without these files
        _end_descendants()
    # A full disk must not hide the command's own status; the figure is then unknown.
    with contextlib.suppress(OSError), open(sys.argv[1], "w", encoding="ascii") as file:  # noqa: PTH123 - starts faster
        file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024))
    sys.exit(status if status >= 0 else 128 - status)
