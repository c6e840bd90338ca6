"""Runs the parts of a benchmark in processes of their own, some at the same time, and ends them at a deadline.

The parts append what they finish to one file of records.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

PATIENCE = 15.0
"""Seconds that a part has to end its own processes when it is interrupted."""


def run_parts(module: str, parts: Mapping[str, Sequence[str]], at_once: int, deadline: float) -> list[str]:
    """Run ``python -m module`` for each part, with its arguments; return the parts that did not end by themselves.

    Each part keeps what it finishes. A line is printed when one ends. `deadline` is a time of `time.monotonic`.
    """
    waiting = [*parts]
    running: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
    try:
        while (waiting or running) and time.monotonic() < deadline:
            while waiting and len(running) < at_once:
                name = waiting.pop(0)
                command = [sys.executable, "-m", module, *parts[name]]
                # A session of its own: Ctrl-C reaches this process alone, which then ends the others.
                running[name] = subprocess.Popen(command, start_new_session=True), time.monotonic()
            time.sleep(0.2)
            for name, (process, began) in [*running.items()]:
                if process.poll() is not None:
                    del running[name]
                    code = f", exit status {process.returncode}" if process.returncode else ""
                    print(f"{name}: {time.monotonic() - began:.0f} s{code}", flush=True)
    finally:
        for process, _ in running.values():
            process.send_signal(signal.SIGINT)
        for process, _ in running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
            process.kill()
    return [*running, *waiting]


def append_row(file: Path, row: bytes) -> None:
    """Append one line to a file of records, in one piece, because several processes write to it."""
    with file.open("ab", buffering=0) as stream:
        stream.write(row + b"\n")
