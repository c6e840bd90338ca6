"""Checks a user's code in the environments of several releases, and keeps the answers for the next call."""

from __future__ import annotations

import contextlib
import hashlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.files import read_regular, write_atomically
from recapture.base.paths import module_file
from recapture.base.text import shorten
from recapture.images.each_image import run_in_each
from recapture.images.environments import Environments, environments_folder, size_limit
from recapture.images.requirements import Requirements
from recapture.machine.nvidia_gpus import local_gpus
from recapture.machine.pins import can_run_on, lock_path
from recapture.records.releases import version_key
from recapture.records.verdicts import Verdict
from recapture.tools.check.across_answers import AcrossReport, ReleaseAnswer
from recapture.tools.check.answers import CheckReport
from recapture.tools.check.code_files import code_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from recapture.images.interpreter import Interpreter
    from recapture.machine.pins import Image

REASON = 300
"""Characters of the reason why a release was not checked."""

_SUCCESS = (0, 1)
"""Exit statuses of `recapture check` with a report."""


@dataclass(frozen=True, kw_only=True)
class CheckRuns:
    """Runs ``recapture check WORDS --json`` in the environment of each image, and reads the report.

    `words` are the target and the options; `places` are the files and modules of the user that the words name, whose
    contents decide, with the words and the environment, whether a kept answer still holds. With `again`, none is used.
    `show` receives each line of progress.
    """

    target: str
    words: tuple[str, ...]
    places: tuple[str, ...] = ()
    device: str = "cpu"
    via: Literal["venv", "docker"] = "venv"
    requirements: Requirements = field(default_factory=lambda: Requirements(()))
    keep: int | None = None
    again: bool = False
    show: Callable[[str], object] = lambda _: None

    @property
    def folder(self) -> Path:
        """The folder of kept answers."""
        return environments_folder().parent / "checks"

    def run(self, images: Sequence[Image]) -> AcrossReport:
        """Check on every image, oldest torch first. One that cannot be checked is a gap, and the rest still run.

        Raises the reason if it is the same for all of them.
        """
        if self.via == "docker" and self.requirements.files:
            raise UsageError("--with is for --via venv: a container has the packages of its image alone")
        chosen = {one.name: one for one in sorted(images, key=lambda one: (version_key(one.torch), one.name))}
        answers: dict[str, ReleaseAnswer] = {}
        expected = {name: self._expected(image) for name, image in chosen.items()}

        def run(name: str) -> int:
            answers[name] = self._answer(chosen[name])
            return 0

        outcomes = run_in_each(
            list(chosen), run, self.show, {name: one for name, one in expected.items() if one is not None}
        )
        for one in outcomes:
            if one.problem:
                image = chosen[one.image]
                gap = shorten(one.problem, REASON)
                answers[one.image] = ReleaseAnswer(
                    release=release_of(image), image=image.name, gap=gap, status=one.status, seconds=one.seconds
                )
        report = AcrossReport(target=self.target, device=self.device, releases=tuple(answers[name] for name in chosen))
        _raise_if_nowhere(report)
        return report

    def _expected(self, image: Image) -> float | None:
        """Return the seconds that an image will take: none if its answer is kept, else as before; None if unknown."""
        before = self._kept(image, stale=True)
        if before is None:
            return None
        return before.seconds if self.again or self._kept(image) is None else 0.0

    def _answer(self, image: Image) -> ReleaseAnswer:
        """Return the kept answer of an image, or run the check. Raises what says why there is none."""
        for gpu in local_gpus() if self.device == "cuda" else []:
            reason = can_run_on(image, gpu.capability, driver=gpu.driver)
            if reason:
                raise EnvironmentUnfitError(f"{image.name} cannot run on {gpu.name}: {reason}")
        kept = None if self.again else self._kept(image)
        if kept is not None:
            self.show(f"{image.name}: unchanged since an earlier call, which took {kept.seconds:.0f} s")
            return msgspec.structs.replace(kept, reused=True)
        heard = _Heard(self.show)
        status = self._run(image, heard)
        if status not in _SUCCESS:
            kind = UsageError if status == UsageError.exit_status else EnvironmentUnfitError
            raise kind(heard.problem or f"recapture check ended with exit status {status}")
        heard.flush()
        report = printed_report(heard.output)
        answer = ReleaseAnswer(release=release_of(image), image=image.name, report=report, seconds=heard.seconds())
        self._keep(image, answer)
        return answer

    def _run(self, image: Image, heard: _Heard) -> int:
        """Run the check in an image; return its exit status."""
        words = (*self.words, "--json")
        if self.via == "docker":
            from recapture.images.container import ContainerOptions, run_image
            from recapture.images.engine import connect

            options = ContainerOptions(gpus=("all",) if self.device == "cuda" else (), results=self.folder)
            with connect() as client:
                return run_image(client, image, words, options, heard.write, "check")
        environments = Environments(root=environments_folder(), limit=size_limit(), keep=self.keep, show=self.show)
        with contextlib.ExitStack() as stack:
            interpreter: Interpreter = stack.enter_context(
                environments.use_with(image, self.requirements) if self.requirements.files else environments.use(image)
            )
            heard.begin()
            return interpreter.recapture("check", *words, write=heard.write)

    def _kept(self, image: Image, *, stale: bool = False) -> ReleaseAnswer | None:
        """Return the kept answer of an image, or None. With `stale`, also that of code that was edited since."""
        kept = kept_answer(self._place(image))
        return kept[1] if kept is not None and (stale or kept[0] == self._key(image)) else None

    def _keep(self, image: Image, answer: ReleaseAnswer) -> None:
        """Keep an answer, unless the machine is at fault for a part of it."""
        rows = answer.report.rows if answer.report is not None else ()
        if any(row.verdict == Verdict.ENVIRONMENT.value for row in rows):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._place(image), msgspec.json.encode((self._key(image), answer)))

    def _place(self, image: Image) -> Path:
        """Return the file of an image's answer to these words."""
        asked = "\0".join([image.name, self.via, str(Path.cwd()), *self.words, *map(str, self.requirements.files)])
        return self.folder / f"{image.name}-{hashlib.sha256(asked.encode()).hexdigest()[:16]}.json"

    def _key(self, image: Image) -> str:
        """Return the hash of what decides an answer: the code, the environment, and this version of recapture."""
        gpus = [gpu.name for gpu in local_gpus()] if self.device == "cuda" else []
        parts = [code_hash(self.places), self._environment(image), _own_hash(), *gpus]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _environment(self, image: Image) -> str:
        if self.via == "venv":
            return self.requirements.digest(lock_path(image.name))
        from recapture.images.container import image_digest
        from recapture.images.engine import connect

        with connect() as client:
            return image_digest(client, image)


class _Heard:
    """What a check in another environment wrote: its report, and the last line of its errors."""

    def __init__(self, show: Callable[[str], object]) -> None:
        self._began = time.monotonic()
        self._show = show
        self._rest = b""
        self._waiting = False
        self.output = b""
        self.problem = ""

    @property
    def write(self) -> dict[str, Callable[[bytes], object]]:
        """The functions that take the chunks of the two streams."""
        return {"stdout": self._of_output, "stderr": self._of_errors}

    def begin(self) -> None:
        """Count the seconds from now."""
        self._began = time.monotonic()

    def seconds(self) -> float:
        """Return the seconds since the beginning."""
        return round(time.monotonic() - self._began, 1)

    def _of_output(self, chunk: bytes) -> None:
        self.output += chunk

    def _of_errors(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace").strip()
            if text.startswith("recapture: "):
                self.flush()
                self.problem = text.removeprefix("recapture: ")
                self._waiting = True

    def flush(self) -> None:
        """Show the last line, which waits because it may be the reason of the end."""
        if self._waiting:
            self._show(self.problem)
        self._waiting = False


def kept_answer(path: Path) -> tuple[str, ReleaseAnswer] | None:
    """Return the key and the answer in a file; None if it is absent, damaged, or of another version."""
    try:
        return _KEPT.decode(read_regular(path))
    except (UsageError, ValueError, RecursionError):
        return None


def printed_report(output: bytes) -> CheckReport:
    """Return the report that ``recapture check --json`` printed; raises EnvironmentUnfitError if it is none."""
    try:
        return _REPORT.decode(output)
    except (ValueError, RecursionError) as error:
        raise EnvironmentUnfitError(f"recapture check printed no report: {shorten(str(error), REASON)}") from None


_KEPT = msgspec.json.Decoder(tuple[str, ReleaseAnswer])
_REPORT = msgspec.json.Decoder(CheckReport)


def _raise_if_nowhere(report: AcrossReport) -> None:
    """Raise the reason, in one line, if no release could be checked and all have the same."""
    reasons = {one.gap for one in report.releases}
    if len(reasons) == 1 and (reason := reasons.pop()):
        usage = any(one.status == UsageError.exit_status for one in report.releases)
        raise (UsageError if usage else EnvironmentUnfitError)(reason)


def release_of(image: Image) -> str:
    """Return the name of a release for people: its number, and what a drifted twin is called."""
    return image.torch if image.drifted_from is None else f"{image.torch} drifted"


def _own_hash() -> str:
    """Return the hash of this package's own source, which decides what a check finds."""
    digest = hashlib.sha256()
    for path in sorted(module_file("__init__.py").parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
