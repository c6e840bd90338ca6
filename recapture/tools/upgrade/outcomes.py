"""What became of each test in one environment: read from the file that the plugin writes, with a signature of failures.

A signature is what two failures with the same cause share: the type of the exception, its message without what changes
from run to run, the innermost frame of the user's own code, and the operator of torch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from recapture.base.scrub import recorded_fingerprint, scrub
from recapture.base.text import one_line

COMMAND = "(the command)"
"""The id of the row that stands for the whole command."""

FAILING = frozenset({"failed", "error", "died", "timeout", "uncollected"})
"""Outcomes that say that something is wrong."""

NOT_RUN = "not run"
"""The outcome of a test that was collected and did not run."""

ENVIRONMENT = "environment"
"""The outcome of a test whose environment could not be made or did not work."""

OUTCOMES = (*sorted(FAILING), "passed", "skipped", "xfailed", "xpassed", NOT_RUN, ENVIRONMENT)
"""All outcomes of a test."""

_TYPES = r"(?:b?float|u?int|bool|complex|double|half|long|short|strided|device|dtype|py)\d*\w*\b"
"""Pattern of names of torch that messages mention and that are no functions."""

_OPERATORS = (
    re.compile(r"module 'torch(?P<module>[\w.]*)' has no attribute '(?P<name>\w+)'"),
    re.compile(r"\b(?P<whole>(?:aten|prims|quantized|torchvision)::\w+)"),
    re.compile(r"\btorch\.ops\.(?P<ops>\w+\.\w+)"),
    re.compile(r"\b(?P<whole>aten\.\w+)"),
    re.compile(rf"\b(?P<whole>torch(?:\.[a-z_]\w*)*\.(?!{_TYPES})[a-z]\w*)"),
)
"""How messages name an operator or function of torch, the most certain first."""

_INSTALLED = re.compile(r"/(?:site|dist)-packages/(?P<path>.+)")


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a test failed. `place` is ``file:function`` of the user's code, `line` its line, 0 if it is not known.

    `operator` is the operator or function of torch that the message or the frames name, and `package` the installed
    package whose code raised; both are empty if there is none. `signature` are ten hexadecimal digits that failures
    with the same cause share.
    """

    signature: str
    type: str
    message: str = ""
    place: str = ""
    line: int = 0
    operator: str = ""
    package: str = ""

    @property
    def sentence(self) -> str:
        """The failure in one line."""
        text = f"{self.type}: {self.message}" if self.message else self.type
        return f"{text} [{self.place}]" if self.place else text


class TestOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a test: one of `OUTCOMES`, with its failure if it is one of `FAILING`."""

    __test__ = False  # pytest takes the name for that of tests

    test: str
    outcome: str
    seconds: float = 0.0
    failure: Failure | None = None

    @property
    def fails(self) -> bool:
        """Whether something is wrong."""
        return self.outcome in FAILING

    @property
    def mark(self) -> str:
        """The outcome with the signature of its failure, as two outcomes are compared."""
        return f"{self.outcome} {self.failure.signature}" if self.failure is not None else self.outcome


def failure(
    kind: str, message: str = "", *, place: str = "", line: int = 0, operator: str = "", package: str = ""
) -> Failure:
    """Return a failure with its signature; the message is scrubbed here."""
    text = one_line(scrub(message))
    signature = recorded_fingerprint(f"{kind}\n{place}\n{operator}", text)
    return Failure(
        signature=signature, type=kind, message=text, place=place, line=line, operator=operator, package=package
    )


class Warned(msgspec.Struct, frozen=True, kw_only=True):
    """A warning that something is deprecated: its category, and its message without what changes between runs."""

    category: str
    message: str


# --- the lines that the plugin writes --------------------------------------------------------------------------------

_Frame = tuple[str, str, int | None]


class _RawFailure(msgspec.Struct):
    type: str
    message: str
    frames: list[_Frame] = []


class _Line(msgspec.Struct):
    """Any line: see `recapture.tools.upgrade.pytest_outcomes`."""

    prefix: str | None = None
    collected: list[str] | None = None
    start: str | None = None
    test: str | None = None
    outcome: str = ""
    seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    failure: _RawFailure | None = None
    uncollected: str | None = None
    warning: str | None = None
    message: str = ""
    finish: int | None = None
    interrupted: bool = False


_LINES = msgspec.json.Decoder(_Line)


@dataclass
class OutcomeFile:
    """The file of outcomes of one round, read as it grows; lines that a kill or a full disk cut are skipped.

    `root` is the folder of the user's code. `running` are the tests that began and did not end, with the number of
    times that they began. `finish` is pytest's exit status, None until it ends by itself and not by a test. `prefix` is
    the folder of the Python that runs pytest.
    """

    path: Path
    root: Path
    collected: dict[str, None] = field(default_factory=dict)
    tests: dict[str, TestOutcome] = field(default_factory=dict)
    uncollected: dict[str, TestOutcome] = field(default_factory=dict)
    unlike: set[str] = field(default_factory=set)
    """Tests with two outcomes in one round, as where a plugin repeats them."""
    warnings: dict[Warned, None] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    finish: int | None = None
    prefix: str = ""
    _offset: int = 0
    _failures: dict[bytes, Failure] = field(default_factory=dict)

    def update(self) -> bool:
        """Read what was appended; return whether there was something."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return False
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            try:
                self._add(_LINES.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
        return bool(whole)

    def begin(self) -> None:
        """Forget that an earlier attempt ended by itself, and begin another one."""
        self.finish = None

    def add(self, outcome: TestOutcome) -> None:
        """Note an outcome that this process knows, such as of a test that was killed, in the file as well."""
        raw = None
        if outcome.failure is not None:
            raw = {"type": outcome.failure.type, "message": outcome.failure.message, "frames": []}
        row = {"test": outcome.test, "outcome": outcome.outcome, "seconds": outcome.seconds, "failure": raw}
        with self.path.open("ab") as file:
            # A line that a kill cut short must not swallow this one.
            file.write(b"\n" + msgspec.json.encode(row) + b"\n")
        self.update()

    def _add(self, line: _Line) -> None:
        if line.collected is not None:
            self.collected |= dict.fromkeys(line.collected)
        elif line.start is not None:
            self.running[line.start] = self.running.get(line.start, 0) + 1
        elif line.test is not None and line.outcome in OUTCOMES:
            self.running.pop(line.test, None)
            outcome = TestOutcome(
                test=line.test, outcome=line.outcome, seconds=line.seconds, failure=self._failure(line.failure)
            )
            before = self.tests.get(line.test)
            if before is not None and before.mark != outcome.mark:
                self.unlike.add(line.test)
            if before is None or not before.fails:
                self.tests[line.test] = outcome
        elif line.uncollected is not None:
            self.uncollected[line.uncollected] = TestOutcome(
                test=line.uncollected, outcome="uncollected", failure=self._failure(line.failure)
            )
        elif line.warning is not None:
            self.warnings[Warned(category=line.warning, message=one_line(scrub(line.message)))] = None
        elif line.prefix is not None:
            self.prefix = line.prefix
        elif line.finish is not None:
            # A test that ends pytest has no outcome, and those after it have not run.
            self.finish = None if line.interrupted and self.running else line.finish

    def _failure(self, raw: _RawFailure | None) -> Failure | None:
        if raw is None:
            return None
        key = msgspec.json.encode(raw)
        if key not in self._failures:  # scrubbing is slow, and thousands of tests may fail alike
            place, line = _own_place(raw.frames, self.root)
            self._failures[key] = failure(
                raw.type,
                raw.message,
                place=place,
                line=line,
                operator=_operator(raw.message, raw.frames),
                package=_package(raw.frames),
            )
        return self._failures[key]


def _own_place(frames: Sequence[_Frame], root: Path) -> tuple[str, int]:
    """Return the innermost frame of the user's own code as ``file:function``, and its line."""
    for path, name, line in reversed(frames):
        if inside := own_path(path, root):
            return f"{inside}:{name}", line or 0
    return "", 0


def own_path(path: str, root: Path) -> str:
    """Return a file of the user's own code relative to its folder; empty for another file, or what is none."""
    inside = os.path.relpath(path, root) if path.startswith("/") else path
    return "" if inside.startswith("..") or _INSTALLED.search(path) or path.startswith("<") else inside


def _operator(message: str, frames: Sequence[_Frame]) -> str:
    """Return the operator or function of torch that a failure is about, as far as its message or its frames name it."""
    for pattern in _OPERATORS:
        if match := pattern.search(message):
            parts = match.groupdict()
            if "module" in parts:
                return f"torch{parts['module']}.{parts['name']}"
            return f"torch.ops.{parts['ops']}" if "ops" in parts else str(parts["whole"])
    for path, name, _ in frames:
        installed = _INSTALLED.search(path)
        if installed and installed["path"].startswith("torch/") and not name.startswith(("_", "<", "wrapper")):
            module = installed["path"].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            return f"{module}.{name}"
    return ""


def _package(frames: Sequence[_Frame]) -> str:
    """Return the installed package whose code raised; empty if that was the user's own."""
    installed = _INSTALLED.search(frames[-1][0]) if frames else None
    return re.split(r"[/.]", installed["path"])[0] if installed else ""
