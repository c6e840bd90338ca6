"""Runs a command as a child of its own: ``python supervisor.py FILE WORD...``; it needs the standard library alone.

FILE gets the bytes of the largest of the command's processes.

A test that kills its parent kills this process, and not the one that keeps the outcomes. If either dies, the kernel
kills the command.
"""

from __future__ import annotations

import contextlib
import ctypes
import resource
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1

NOT_STARTED = 127
"""Exit status of a command that cannot be started, as a shell has it."""


def _end_with_parent() -> None:
    _PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    _PRCTL = ctypes.CDLL(None).prctl
    try:
        # Foreground: a shell's background command would ignore Ctrl-C, which a test may send to itself.
        status = subprocess.run(sys.argv[2:], check=False, preexec_fn=_end_with_parent).returncode
    except OSError as error:
        sys.stderr.write(f"{sys.argv[2]}: {error.strerror}\n")
        status = NOT_STARTED
    # A full disk must not hide the command's own status; the figure is then unknown.
    with contextlib.suppress(OSError), open(sys.argv[1], "w", encoding="ascii") as file:  # noqa: PTH123 - starts faster
        file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024))
    sys.exit(status if status >= 0 else 128 - status)
