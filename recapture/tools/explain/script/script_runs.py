"""Runs a script in a child of the pool: its exit status, and what it prints."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec

from recapture.pool.client import ServerDiedError
from recapture.pool.protocol import Ended, task_name
from recapture.pool.worker_pool import WorkerPool, cause_of_death
from recapture.tools.explain.reduce.attempt import protect_files

LONGEST = 20_000
"""Characters kept of what a script prints."""


class ScriptRun(msgspec.Struct, frozen=True):
    """A script to run, with its arguments; `imports` is the folder whose modules it may import."""

    path: str
    arguments: tuple[str, ...]
    imports: str
    writable: tuple[str, ...]


class ScriptEnd(msgspec.Struct, frozen=True):
    """How a script ended: its exit status, None if its process died; and what it printed, or how it died."""

    status: int | None
    output: str


def run_script(payload: bytes, _enter: Callable[[str], None]) -> bytes:
    """Run a script in this process: `ScriptRun` → `ScriptEnd`."""
    script = msgspec.json.decode(payload, type=ScriptRun)
    sys.argv = [script.path, *script.arguments]
    if script.imports not in sys.path:
        sys.path.append(script.imports)
    protect_files((*script.writable, str(Path.cwd())))
    status: int | str | None = 0
    with contextlib.redirect_stdout(io.StringIO()) as file:
        try:
            runpy.run_path(script.path, run_name="__main__")
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0 if end.code is None else 2
        except BaseException:  # as the script's own hook ends it
            status = 2
            file.write(traceback.format_exc())
    return msgspec.json.encode(ScriptEnd(int(status or 0), file.getvalue()[-LONGEST:]))


def run_in_child(pool: WorkerPool, run: ScriptRun, *, timeout: float, memory: int) -> ScriptEnd:
    """Run a script in a child of a pool; `timeout` is in seconds, `memory` in bytes."""
    try:
        answer = pool.client.run(RUN_SCRIPT, run, ScriptEnd, timeout=timeout, memory=memory)
    except ServerDiedError:
        pool.restart()
        return ScriptEnd(None, "killed the worker server")
    return ScriptEnd(None, cause_of_death(answer)) if isinstance(answer, Ended) else answer


RUN_SCRIPT = task_name(run_script)
