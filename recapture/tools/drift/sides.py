"""The two sides of a comparison: which Python, packages, device and settings each has, and how its process runs."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.files import read_regular
from recapture.base.text import shorten
from recapture.cases.compilers import EAGER
from recapture.images.environments import Environments, environments_folder, size_limit
from recapture.images.interpreter import Interpreter
from recapture.images.requirements import Requirements
from recapture.tools.drift.facts import OPERATORS, REPORT, REQUEST, Operator, SideReport, Task

if TYPE_CHECKING:
    from recapture.machine.pins import Image

MODULE = "recapture.tools.drift.side"
"""The module that a side's Python runs."""

LAST_WORDS = 300
"""Characters of the last line that a process wrote before it died."""


@dataclass(frozen=True, kw_only=True)
class SideOf:
    """One side: the Python of an image, or this one, with further packages, a device, a compiler and settings.

    `variables` are environment variables of its process. `stored` is a folder that an earlier call saved; nothing runs
    then.
    """

    name: str
    image: Image | None = None
    requirements: Requirements = field(default_factory=lambda: Requirements(()))
    device: str = "cpu"
    compiler: str = EAGER
    variables: Mapping[str, str] = field(default_factory=dict)
    mkldnn: bool = True
    stored: Path | None = None

    def with_setting(self, name: str, variables: Mapping[str, str], *, mkldnn: bool = True) -> SideOf:
        """Return the side with other settings."""
        return dataclasses.replace(
            self, name=f"{self.name} {name}", variables={**self.variables, **variables}, mkldnn=self.mkldnn and mkldnn
        )


class SideRuns:
    """Runs tasks in the Pythons of sides; the environments are held until this context ends.

    `timeout` are the seconds of one task.
    """

    def __init__(
        self, *, timeout: float = 600.0, keep: int | None = None, show: Callable[[str], object] = lambda _: None
    ) -> None:
        self.timeout = timeout
        self._environments = Environments(root=environments_folder(), limit=size_limit(), keep=keep, show=show)
        self._interpreters: dict[tuple[str, tuple[Path, ...]], Interpreter] = {}
        self._number = 0

    def __enter__(self) -> SideRuns:
        with contextlib.ExitStack() as stack:
            self.root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="recapture-drift-")))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def folder(self) -> Path:
        """Return a new folder for the files of a task."""
        self._number += 1
        path = self.root / str(self._number)
        path.mkdir()
        return path

    def run(self, side: SideOf, task: Task) -> SideReport:
        """Carry out a task.

        Raises UsageError for what the user can mend, EnvironmentUnfitError where a process dies.
        """
        folder = Path(task.folder)
        (folder / REQUEST).write_bytes(msgspec.json.encode(task))
        interpreter = self._interpreter(side)
        try:
            done = subprocess.run(
                interpreter.command(MODULE, str(folder / REQUEST)),
                env={**interpreter.variables, **side.variables},
                pass_fds=interpreter.keep_open,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                timeout=self.timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise EnvironmentUnfitError(f"{side.name}: still running after {self.timeout:g} s") from None
        except OSError as error:
            raise EnvironmentUnfitError(f"{side.name}: its Python does not start: {error.strerror}") from None
        if not (folder / REPORT).exists():
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise EnvironmentUnfitError(f"{side.name}: its process died: {shorten(lines[-1], LAST_WORDS)}")
        report = read_report(folder)
        if report.problem:
            raise UsageError(f"{side.name}: {report.problem}")
        return report

    def _interpreter(self, side: SideOf) -> Interpreter:
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


def read_report(folder: Path) -> SideReport:
    """Read what a side said. Raises UsageError, naming the folder, if there is nothing, or of another version."""
    if not (folder / REPORT).is_file():
        raise UsageError(f"{folder} holds no saved side: make one with recapture drift TARGET --save {folder}")
    try:
        return msgspec.json.decode(read_regular(folder / REPORT), type=SideReport)
    except ValueError as error:
        raise UsageError(f"{folder / REPORT} cannot be read: {error}") from None


def read_operators(folder: Path) -> list[Operator]:
    """Read the operators of a side; none if they were not recorded."""
    path = folder / OPERATORS
    if not path.is_file():
        return []
    try:
        return msgspec.json.decode(read_regular(path, most=1 << 29), type=list[Operator])
    except ValueError as error:
        raise UsageError(f"{path} cannot be read: {error}") from None


def settings_to_try(device: str) -> Iterator[tuple[str, Mapping[str, str], bool]]:
    """Yield settings that replace kernels: a name, environment variables, and whether oneDNN is on.

    Where two sides agree under one of them, and differ without, what it switches off makes the difference.
    """
    if device == "cuda":
        yield "TF32 off", {"NVIDIA_TF32_OVERRIDE": "0"}, True
        return
    yield "oneDNN", {}, False
    yield "MKL's choice of kernels", {"MKL_CBWR": "COMPATIBLE"}, True
    yield "vectorised kernels of ATen", {"ATEN_CPU_CAPABILITY": "default"}, True
    yield "the number of threads", {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}, True
