"""Chooses the shortest script that shows a cell's fault: runs each in a child of the pool."""

from __future__ import annotations

import ast
import contextlib
import io
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from recapture.base.errors import UsageError
from recapture.base.text import plural
from recapture.cases.compilers import builtin_compilers
from recapture.pool.client import ServerDiedError
from recapture.pool.protocol import Ended, task_name
from recapture.pool.worker_pool import WorkerPool, cause_of_death
from recapture.tools.explain.reduce.attempt import protect_files
from recapture.tools.explain.script.printing import printed
from recapture.tools.explain.script.repro import CellToPrint
from recapture.tools.explain.script.short_script import (
    Form,
    case_parts,
    inspection_of,
    needs_fallback,
    short_script,
    without_compiler,
)

if TYPE_CHECKING:
    from recapture.run.cell import CellResult
    from recapture.tools.explain.reduce.program import Program
    from recapture.tools.explain.reduce.reducing import Reduction


START_SECONDS = 60.0
"""Seconds that a script's own imports, and the other side of its comparison, may take besides the case."""

SHORT = "a short script"
"""The form of a script that compares one place; without its compiler it must exit with 0."""

LONGEST = 20_000
"""Characters kept of what a script prints."""


class TriedScript(NamedTuple):
    """A script without this project: its text, what it needs, how it ended, and whether it takes a backend's name."""

    text: str
    form: str
    end: ScriptEnd
    has_backends: bool

    @property
    def shows(self) -> bool:
        """Whether the script exited with 1, as it does where the fault shows."""
        return self.end.status == 1

    @property
    def ending(self) -> str:
        """How the script ended, in words."""
        lines = plural(len(self.text.splitlines()), "line")
        if self.end.status is None:
            return f"{self.form}, {lines}; its process {self.end.output}"
        return f"{self.form}, {lines}; it exits with {self.end.status} here"


def choose(reduction: Reduction, program: Program, result: CellResult) -> TriedScript | None:
    """Return the first script that shows the fault: a short one, or one with recapture's whole comparison.

    A short one must also exit with 0 where nothing is compiled. None if there is none: a short one cannot see the
    difference, and the whole comparison cannot be printed.
    """
    last = None
    for text, form, has_backends in _scripts(reduction, program, result):
        candidate = TriedScript(text, form, run(reduction, text), has_backends)
        if not candidate.shows:
            last = candidate
        elif form != SHORT or run(reduction, without_compiler(text)).status == 0:
            return candidate
    return last


def run(reduction: Reduction, text: str, *arguments: str) -> ScriptEnd:
    """Run a script in a child, in a file of its own."""
    runner = reduction.runner
    path = runner.write(text)
    try:
        script = ScriptRun(path, arguments, str(runner.place.imports), (str(runner.pool.home.path),))
        return run_in_child(runner.pool, script, timeout=2 * runner.timeout + START_SECONDS, memory=runner.memory)
    finally:
        runner.remove(path)


def _scripts(reduction: Reduction, program: Program, result: CellResult) -> Iterator[tuple[str, str, bool]]:
    """Yield scripts, the shortest first, with their form in words and whether they take a backend's name."""
    spec = reduction.spec
    compiler = None if spec.compiler_file else builtin_compilers().get(spec.compiler)
    parts = case_parts(program.tree, program.name, program.decorators)
    inspection = inspection_of(result)
    if compiler is not None and parts is not None and inspection is not None and spec.device == "cpu":
        title = f"{reduction.address}: {result.verdict}"
        fallback = needs_fallback(parts, compiler)
        sides = (True,) if inspection.separate or result.verdict.facts.died else (False, True)
        seconds = round(reduction.runner.timeout)
        for separate in sides:
            for random in (True, False) if fallback else (False,):
                text = short_script(title, parts, compiler, inspection, result.verdict, Form(separate, random), seconds)
                if text is None:
                    continue
                try:
                    ast.parse(text)
                except (SyntaxError, ValueError):  # a name or a text that cannot stand in a script
                    continue
                yield text, SHORT, "BACKEND" in text
    whole = _whole(reduction, program)
    if whole is not None:
        yield whole, "a script with the whole comparison of recapture", False


def _whole(reduction: Reduction, program: Program) -> str | None:
    """Return the script that `recapture repro` prints; None if it cannot be printed."""
    spec, runner = reduction.spec, reduction.runner
    path = spec.path if spec.compiler_file else runner.write(program.text)
    cell = CellToPrint(spec.suite, path, spec.case, spec.compiler, spec.device, str(Path("results").absolute()))
    try:
        return printed(runner.pool, cell)
    except UsageError:
        return None
    finally:
        if not spec.compiler_file:
            runner.remove(path)


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
