"""Runs a command as a child of its own: ``python supervisor.py WORD...``; it needs the standard library alone.

A test that kills its parent kills this process, and not the one that keeps the outcomes. If either dies, the kernel
kills the command.
"""

from __future__ import annotations

import ctypes
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
        status = subprocess.run(sys.argv[1:], check=False, preexec_fn=_end_with_parent).returncode
    except OSError as error:
        sys.stderr.write(f"{sys.argv[1]}: {error.strerror}\n")
        status = NOT_STARTED
    sys.exit(status if status >= 0 else 128 - status)
