"""The two sides of a comparison: which Python, packages, device and settings each has, and how its process runs."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.files import read_regular
from recapture.base.text import shorten
from recapture.cases.compilers import EAGER
from recapture.images.environments import Environments, environments_folder, size_limit
from recapture.images.interpreter import Interpreter
from recapture.images.overlay import make_overlay, overlaid
from recapture.images.requirements import Requirements
from recapture.pool.kept_folder import builds_limit, kept_folder
from recapture.tools.drift.facts import ERRORS, OPERATORS, REPORT, REQUEST, Operator, SideReport, Task
from recapture.torch_api.kept_builds import VARIABLE as KEPT_BUILDS
from recapture.torch_api.kept_builds import prune

if TYPE_CHECKING:
    from recapture.machine.pins import Image

MODULE = "recapture.tools.drift.side"
"""The module that a side's Python runs."""

LAST_WORDS = 300
"""Characters of the last line that a process wrote before it died."""


class Overlay(NamedTuple):
    """Packages that replace those of an environment; with `dependencies`, also what they need at other versions."""

    requirements: Requirements
    dependencies: bool = True

    @classmethod
    def of_version(cls, name: str, version: str) -> Overlay:
        """Return an overlay with one package alone."""
        place = Path(f"{name}=={version}")
        return cls(Requirements((place,), ((place, str(place)),)), dependencies=False)


@dataclass(frozen=True, kw_only=True)
class SideOf:
    """One side: the Python of an image, or this one, with further packages, a device, a compiler and settings.

    A training runs in `ranks` processes, with `parallel` (``ddp`` or ``fsdp``). `requirements` add packages to those of
    the image. Each of `overlays` replaces some, the last one first. `variables` are environment variables of its
    process, `without` libraries that are switched off in it. `stored` is a folder that an earlier call saved; nothing
    runs then.
    """

    name: str
    image: Image | None = None
    requirements: Requirements = field(default_factory=lambda: Requirements(()))
    overlays: tuple[Overlay, ...] = ()
    device: str = "cpu"
    compiler: str = EAGER
    variables: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    ranks: int = 1
    parallel: str = "ddp"
    stored: Path | None = None

    def with_setting(self, name: str, variables: Mapping[str, str], without: tuple[str, ...]) -> SideOf:
        """Return the side with other settings."""
        return dataclasses.replace(
            self,
            name=f"{self.name} {name}",
            variables={**self.variables, **variables},
            without=(*self.without, *without),
        )


class Server:
    """A process of one Python that has imported torch, and carries out each task in a fork of itself."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @classmethod
    @contextlib.contextmanager
    def started(cls, interpreter: Interpreter, variables: Mapping[str, str]) -> Iterator[Server]:
        """Start the process; it and its forks end with this context."""
        process = subprocess.Popen(
            interpreter.command(MODULE),
            env=variables,
            pass_fds=interpreter.keep_open,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        server = cls(process)
        try:
            with process:
                yield server
                server.end()
        finally:
            server.end()

    def end(self) -> None:
        """End the process and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def carry_out(self, request: Path, seconds: float) -> str:
        """Carry out the task in a file; return the last line that its process wrote where there is no report.

        Raises TimeoutError after some seconds, and ends the process.
        """
        process = self._process
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise AssertionError("it has pipes")
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(f"{request}\n".encode())
            process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        if not ready:
            self.end()
            raise TimeoutError
        if process.stdout.readline():
            return last_line(request.with_name(ERRORS))
        return (process.stderr.read().decode(errors="replace").strip().splitlines() or ["without a word"])[-1]


def last_line(path: Path) -> str:
    """Return the last line of a file, or that there is none."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    return (text.strip().splitlines() or ["without a word"])[-1]


class SideRuns:
    """Runs tasks in the Pythons of sides; the environments are held until this context ends.

    `timeout` are the seconds of one task.
    """

    def __init__(
        self, *, timeout: float = 600.0, keep: int | None = None, show: Callable[[str], object] = lambda _: None
    ) -> None:
        self.timeout = timeout
        self._environments = Environments(root=environments_folder(), limit=size_limit(), keep=keep, show=show)
        self._show = show
        self._interpreters: dict[tuple[object, ...], Interpreter] = {}
        self._servers: dict[tuple[object, ...], Server] = {}
        self._number = 0
        self._kept: Path | None = None

    def __enter__(self) -> SideRuns:
        with contextlib.ExitStack() as stack:
            self.root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="recapture-drift-")))
            stack.callback(self._prune_builds)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def folder(self) -> Path:
        """Return a new folder for the files of a task."""
        self._number += 1
        path = self.root / "tasks" / str(self._number)
        path.mkdir(parents=True)
        return path

    def clear(self) -> None:
        """Remove the files of all tasks, which hold the weights of a model many times."""
        shutil.rmtree(self.root / "tasks", ignore_errors=True)

    def run(self, side: SideOf, task: Task) -> SideReport:
        """Carry out a task.

        Raises UsageError for what the user can mend, EnvironmentUnfitError where a process dies.
        """
        folder = Path(task.folder)
        (folder / REQUEST).write_bytes(msgspec.json.encode(task))
        interpreter = self._interpreter(side)
        variables = {**interpreter.variables, **self._for_compiling(side), **side.variables}
        key = (interpreter.python, tuple(sorted(variables.items())))
        if key not in self._servers:
            try:
                self._servers[key] = self._stack.enter_context(Server.started(interpreter, variables))
            except OSError as error:
                raise EnvironmentUnfitError(f"{side.name}: its Python does not start: {error.strerror}") from None
        try:
            last_words = self._servers[key].carry_out(folder / REQUEST, self.timeout)
        except TimeoutError:
            del self._servers[key]
            raise EnvironmentUnfitError(f"{side.name}: still running after {self.timeout:g} s") from None
        if not (folder / REPORT).exists():
            self._servers.pop(key)
            raise EnvironmentUnfitError(f"{side.name}: its process died: {shorten(last_words, LAST_WORDS)}")
        report = read_report(folder)
        if report.problem:
            raise UsageError(f"{side.name}: {report.problem}")
        return report

    def _for_compiling(self, side: SideOf) -> dict[str, str]:
        """Return environment variables that let a compiler use builds of earlier runs, and no graphs of theirs."""
        if side.compiler == EAGER:
            return {}
        self._kept = self._kept or kept_folder()[0]
        variables = {"TORCHINDUCTOR_CACHE_DIR": str(self.root / "compiled" / "inductor")}
        return variables if self._kept is None else {**variables, KEPT_BUILDS: str(self._kept)}

    def _prune_builds(self) -> None:
        if self._kept is not None:
            prune(self._kept, builds_limit())

    def environments_here(self, images: Iterable[Image]) -> list[Image]:
        """Return the images whose environments are there, so that they need not be made."""
        return [image for image in images if self._environments.has(image)]

    def _interpreter(self, side: SideOf) -> Interpreter:
        if side.overlays:
            return self._overlaid(side)
        if side.image is None:
            return Interpreter.here()
        key = (side.image.name, side.requirements.files)
        if key not in self._interpreters:
            environments = self._environments
            self._interpreters[key] = self._stack.enter_context(
                environments.use_with(side.image, side.requirements)
                if side.requirements.files
                else environments.use(side.image)
            )
        return self._interpreters[key]

    def _overlaid(self, side: SideOf) -> Interpreter:
        """Return the Python of a side with its last overlay before what the others make of it."""
        *others, last = side.overlays
        below = dataclasses.replace(side, overlays=tuple(others))
        base = self._interpreter(below)
        key = (side.image and side.image.name, side.requirements.files, side.overlays)
        if key not in self._interpreters:
            self._show(f"installing {', '.join(path.name for path in last.requirements.files)}")
            folder = self.root / f"packages-{len(self._interpreters)}"
            make_overlay(base, last.requirements, folder, dependencies=last.dependencies)
            self._interpreters[key] = overlaid(base, folder)
        return self._interpreters[key]


def read_report(folder: Path) -> SideReport:
    """Read what a side said. Raises UsageError, naming the folder, if there is nothing, or of another version."""
    if not (folder / REPORT).is_file():
        raise UsageError(f"{folder} holds no saved side: make one with recapture drift TARGET --save {folder}")
    try:
        return msgspec.json.decode(read_regular(folder / REPORT), type=SideReport)
    except ValueError as error:
        raise UsageError(f"{folder / REPORT} cannot be read: {error}") from None


def read_operators(folder: Path) -> list[Operator]:
    """Read the operators of a side; none if they were not recorded. Raises UsageError if they cannot be read."""
    path = folder / OPERATORS
    if not path.is_file():
        return []
    try:
        return msgspec.json.decode(read_regular(path, most=1 << 29), type=list[Operator])
    except ValueError as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
