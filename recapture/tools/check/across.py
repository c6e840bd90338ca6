"""Checks a user's code on several releases of torch: where answers change, the environments, and answers kept.

A check of unchanged code in an unchanged environment says the same again, so that its answer is kept for the next call.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import time
from dataclasses import dataclass, field
from itertools import groupby
from modulefinder import ModuleFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.files import read_regular, write_atomically
from recapture.base.paths import module_file
from recapture.base.text import plural, shorten
from recapture.cases.compiler import Family
from recapture.cases.compilers import compiler_facts, plain_compiler, shorter_compilers
from recapture.images.each_image import run_in_each
from recapture.images.environments import Environments, environments_folder, size_limit
from recapture.images.requirements import Requirements
from recapture.machine.nvidia_gpus import local_gpus
from recapture.machine.pins import can_run_on, lock_path
from recapture.records.guilty_stage import STAGES
from recapture.records.releases import version_key
from recapture.records.verdicts import FAILING, RIGHT, SILENTLY_WRONG, Verdict, mark_of
from recapture.report.summary import compiler_key
from recapture.tools.check.answers import CheckReport, CheckRow, failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from recapture.images.interpreter import Interpreter
    from recapture.machine.pins import Image

REASON = 300
"""Characters of the reason why a release was not checked."""

_SUCCESS = (0, 1)
"""Exit statuses of `recapture check` with a report."""

REGRESSION = "regression"
"""What ``--fail-on`` looks for besides FAIL_ON of a check: worse on the newest release than on the oldest."""


class ReleaseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The check on one release: its report, or `gap`, the reason why there is none, and the exit `status` of it.

    `seconds` is how long it took when it ran; `reused` says that an earlier call ran it.
    """

    release: str
    image: str
    report: CheckReport | None = None
    gap: str = ""
    status: int = 0
    seconds: float = 0.0
    reused: bool = False

    def row(self, compiler: str) -> CheckRow | None:
        """Return the row of a compiler, or None if there is none."""
        rows = self.report.rows if self.report is not None else ()
        return next((row for row in rows if row.compiler == compiler), None)


class AcrossReport(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of a check on several releases, oldest first."""

    target: str
    device: str
    releases: tuple[ReleaseAnswer, ...]
    version: Literal[1] = 1

    @property
    def gaps(self) -> list[ReleaseAnswer]:
        """The releases without an answer."""
        return [answer for answer in self.releases if answer.report is None]

    @property
    def compilers(self) -> list[str]:
        """The compilers that any release has, in the order of the reports."""
        reports = [answer.report for answer in self.releases if answer.report is not None]
        return sorted({row.compiler for report in reports for row in report.rows}, key=compiler_key)

    def line(self, compiler: str) -> list[tuple[str, CheckRow, CheckReport]]:
        """Return the releases that say something about a compiler, with its row and the report of the release."""
        return [
            (answer.release, row, answer.report)
            for answer in self.releases
            if answer.report is not None and (row := answer.row(compiler)) is not None and state_of(row)
        ]

    @property
    def headline(self) -> str:
        """How many compilers change their answer, in one line."""
        judged = [compiler for compiler in self.compilers if self.line(compiler)]
        changing = [compiler for compiler in judged if self._changes(compiler)]
        where = _span([answer.release for answer in self.releases if answer.report is not None])
        if not judged:
            return f"{self.target}: no release could be checked"
        if not changing:
            return f"{self.target}: no compiler changes its answer {where} ({plural(len(judged), 'compiler')})"
        word = "changes its" if len(changing) == 1 else "change their"
        return f"{self.target}: {len(changing)} of {plural(len(judged), 'compiler')} {word} answer {where}"

    @property
    def changes(self) -> list[str]:
        """A sentence for each answer that changes along the releases; the silently wrong ones come first."""
        sentences: dict[str, list[str]] = {}
        for compiler in self.compilers:
            if self._changes(compiler):
                sentences.setdefault(self._history(compiler), []).append(compiler)
        ordered = sorted(sentences, key=lambda text: "silently wrong" not in text)
        return [f"{', '.join(sentences[text])}: {text}" for text in ordered]

    @property
    def constants(self) -> str:
        """What is the same on every release that was checked, in one line; empty if nothing is."""
        same: dict[str, list[str]] = {}
        for compiler in self.compilers:
            line = self.line(compiler)
            if line and not self._changes(compiler):
                same.setdefault(_constant(line[0][1]), []).append(compiler)
        return "; ".join(f"{state} under {', '.join(names)}" for state, names in sorted(same.items(), reverse=True))

    @property
    def other_inputs(self) -> list[str]:
        """A line for each release on which eager accepts other derived inputs than on the first one."""
        checked = [(answer.release, answer.report) for answer in self.releases if answer.report is not None]
        lines = []
        for release, report in checked[1:]:
            before, first = checked[0]
            less = [name for name in first.inputs if name not in report.inputs]
            more = [name for name in report.inputs if name not in first.inputs]
            parts = [f"without {', '.join(less)}"] if less else []
            parts += [f"also with {', '.join(more)}"] if more else []
            if parts:
                lines.append(f"{release} was tried {' and '.join(parts)}, compared with {before}")
        return lines

    def marks(self, compiler: str) -> list[str]:
        """Return the character of each release's outcome, as in ``LEGEND``; ``?`` for a gap."""
        rows = [(answer.report, answer.row(compiler)) for answer in self.releases]
        return [
            "?" if report is None else "–" if row is None else mark_of(Verdict(row.verdict), row.phase).letter
            for report, row in rows
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data: the answers in words, and every release's own report."""
        words = {"headline": self.headline, "changes": self.changes, "same": self.constants}
        return {**words, **msgspec.to_builtins(self)}

    def _changes(self, compiler: str) -> bool:
        return len({state_of(row) for _, row, _ in self.line(compiler)}) > 1

    def _history(self, compiler: str) -> str:
        """Return the states of a compiler along the releases, in words."""
        runs = [list(group) for _, group in groupby(self.line(compiler), key=lambda entry: state_of(entry[1]))]
        earlier: set[str] = set()
        parts = []
        for number, run in enumerate(runs):
            _, row, report = run[0]
            state, first, last = state_of(row), run[0][0], run[-1][0]
            again = " again" if state in earlier else ""
            when = f"{first} to {last}" if first != last else first
            if number == 0:
                where = f" up to {last}" if first != last else f" on {last}"
            else:
                where = f" from {first}" if number == len(runs) - 1 else f" on {when}"
            parts.append(f"{state.rstrip(',')}{again}{where}{_detail(row, report)}")
            earlier.add(state)
        return ", ".join(parts)


def _span(releases: Sequence[str]) -> str:
    if len(releases) < 2:
        return f"on torch {releases[0]}" if releases else ""
    return f"from torch {releases[0]} to {releases[-1]}"


def state_of(row: CheckRow) -> str:
    """Return what a compiler does with the code, in words; empty if the row says nothing about the compiler."""
    if row.verdict == Verdict.ERROR.value:
        return "refused" if row.phase == "capture" else "failing"
    state = Verdict(row.verdict).facts.state
    return f"{state}," if "," in state else state


def _constant(row: CheckRow) -> str:
    return state_of(row).rstrip(",")


def _detail(row: CheckRow, report: CheckReport) -> str:
    """Return where a silent difference shows and which layer is guilty, or an error's reason, in brackets."""
    if Verdict(row.verdict) in SILENTLY_WRONG:
        layer = guilty_layer(report, row.compiler)
        guilty = [f"guilty: {layer}"] if layer else []
        on = [f"wrong on {row.input}"] if row.input else []
        return f" ({', '.join([*on, *guilty])})" if on or guilty else ""
    return ""


def guilty_layer(report: CheckReport, compiler: str) -> str:
    """Return the layer that makes a compiler wrong, as far as the other rows tell: the first one that is not right."""
    rows = {row.compiler: row for row in report.rows}
    family, export = compiler_facts(compiler).family, plain_compiler(Family.EXPORT)
    if family == Family.AOTI and export in rows:
        return "AOTInductor" if Verdict(rows[export].verdict) in RIGHT else "torch.export"
    if family != Family.DYNAMO:
        return ""
    for name, stage in shorter_compilers(family).items():
        if name not in rows or not state_of(rows[name]):
            return ""
        if Verdict(rows[name].verdict) not in RIGHT:
            return STAGES[stage]
    return "Inductor"


def failures(report: AcrossReport, fail_on: Sequence[str]) -> list[str]:
    """Return a line for each compiler and release that ``--fail-on`` names: see FAIL_ON and REGRESSION."""
    usual = [name for name in fail_on if name != REGRESSION]
    lines = []
    for answer in report.releases:
        if answer.report is not None:
            lines += [f"{row.compiler} on {answer.release}: {row.words}" for row in failed(answer.report, usual)]
    if REGRESSION in fail_on:
        for compiler in report.compilers:
            line = report.line(compiler)
            if line and _rank(line[-1][1]) > _rank(line[0][1]):
                lines.append(
                    f"{compiler}: {_constant(line[0][1])} on {line[0][0]}, {line[-1][1].words} on {line[-1][0]}"
                )
    return lines


def _rank(row: CheckRow) -> int:
    """Return how bad an outcome is: right, failing visibly, silently wrong."""
    verdict = Verdict(row.verdict)
    return 2 if verdict in SILENTLY_WRONG else 1 if verdict in FAILING else 0


# --- the checks in their environments --------------------------------------------------------------------------------


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
        by_age = sorted(images, key=lambda image: (version_key(image.torch), image.name))
        chosen = {image.name: image for image in by_age}
        answers: dict[str, ReleaseAnswer] = {}
        expected = {name: seconds for name, image in chosen.items() if (seconds := self._expected(image)) is not None}

        def run(name: str) -> int:
            answers[name] = self._answer(chosen[name])
            return 0

        for outcome in run_in_each(list(chosen), run, self.show, expected):
            if outcome.problem:
                image = chosen[outcome.image]
                answers[image.name] = ReleaseAnswer(
                    release=release_of(image),
                    image=image.name,
                    gap=shorten(outcome.problem, REASON),
                    status=outcome.status,
                    seconds=outcome.seconds,
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
        earlier = None if self.again else self._kept(image)
        if earlier is not None:
            self.show(f"{image.name}: unchanged since an earlier call, which took {earlier.seconds:.0f} s")
            return msgspec.structs.replace(earlier, reused=True)
        streams = _Streams(self.show)
        status = self._run(image, streams)
        if status not in _SUCCESS:
            kind = UsageError if status == UsageError.exit_status else EnvironmentUnfitError
            raise kind(streams.problem or f"recapture check ended with exit status {status}")
        streams.flush()
        report = printed_report(streams.output)
        answer = ReleaseAnswer(release=release_of(image), image=image.name, report=report, seconds=streams.seconds())
        self._keep(image, answer)
        return answer

    def _run(self, image: Image, streams: _Streams) -> int:
        """Run the check in an image; return its exit status."""
        words = (*self.words, "--json")
        if self.via == "docker":
            from recapture.images.container import ContainerOptions, run_image
            from recapture.images.engine import connect

            options = ContainerOptions(gpus=("all",) if self.device == "cuda" else (), results=self.folder)
            with connect() as client:
                return run_image(client, image, words, options, streams.write, "check")
        environments = Environments(root=environments_folder(), limit=size_limit(), keep=self.keep, show=self.show)
        with contextlib.ExitStack() as stack:
            interpreter: Interpreter = stack.enter_context(
                environments.use_with(image, self.requirements) if self.requirements.files else environments.use(image)
            )
            streams.begin()
            return interpreter.recapture("check", *words, write=streams.write)

    def _kept(self, image: Image, *, stale: bool = False) -> ReleaseAnswer | None:
        """Return the kept answer of an image, or None. With `stale`, also that of code that was edited since."""
        entry = kept_answer(self._place(image))
        if entry is None:
            return None
        key, answer = entry
        return answer if stale or key == self._key(image) else None

    def _keep(self, image: Image, answer: ReleaseAnswer) -> None:
        """Keep an answer, unless the machine is at fault for a part of it."""
        rows = answer.report.rows if answer.report is not None else ()
        if any(row.verdict == Verdict.ENVIRONMENT.value for row in rows):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._place(image), msgspec.json.encode((self._key(image), answer)))

    def _place(self, image: Image) -> Path:
        """Return the file of an image's answer to these words."""
        # With the current folder: the same words may name other files elsewhere.
        question = "\0".join([image.name, self.via, str(Path.cwd()), *self.words, *map(str, self.requirements.files)])
        return self.folder / f"{image.name}-{hashlib.sha256(question.encode()).hexdigest()[:16]}.json"

    def _key(self, image: Image) -> str:
        """Return the hash of what decides an answer: the code, the environment, and this version of recapture."""
        gpus = [gpu.name for gpu in local_gpus()] if self.device == "cuda" else []
        parts = [code_hash(self.places), self._environment(image), _own_hash(), *gpus]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _environment(self, image: Image) -> str:
        """Return what names the packages of an image's environment: a hash of the lock, or the container's digest."""
        if self.via == "venv":
            return self.requirements.digest(lock_path(image.name))
        from recapture.images.container import image_digest
        from recapture.images.engine import connect

        with connect() as client:
            return image_digest(client, image)


class _Streams:
    """What a check in another environment wrote: its report, and the last line of its errors."""

    def __init__(self, show: Callable[[str], object]) -> None:
        self._began = time.monotonic()
        self._show = show
        self._unfinished = b""
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
        *lines, self._unfinished = (self._unfinished + chunk).split(b"\n")
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
    reasons = {answer.gap for answer in report.releases}
    if len(reasons) == 1 and (reason := reasons.pop()):
        usage = any(answer.status == UsageError.exit_status for answer in report.releases)
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


# --- the files that decide an answer ---------------------------------------------------------------------------------


def code_hash(places: Iterable[str]) -> str:
    """Return the hash of the names and contents of all files that `code_files` finds."""
    digest = hashlib.sha256()
    for path in code_files(places):
        digest.update(f"{path}\n".encode(errors="surrogateescape"))
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def code_files(places: Iterable[str]) -> list[Path]:
    """Return the files of targets, and of what they import, also indirectly, from their folders and the current one.

    A place is the path of a file, or the name of a module that is looked for in the current folder. Installed packages
    are left out: the environment decides about them. So are files that are imported by names computed at run time.
    """
    files: set[Path] = set()
    for place in places:
        is_file = place.endswith(".py")
        folder = Path(place).resolve().parent if is_file else Path.cwd()
        files |= {Path(place).resolve()} if is_file else set()
        files |= _imported(place, folder, is_file=is_file)
    return sorted(files)


def _imported(place: str, folder: Path, *, is_file: bool) -> set[Path]:
    if not is_file and importlib.machinery.PathFinder.find_spec(place.partition(".")[0], [str(folder)]) is None:
        return set()
    finder = ModuleFinder(path=list(dict.fromkeys((str(folder), str(Path.cwd())))))
    # A file with a mistake is found again, and named, when it is executed.
    with contextlib.suppress(Exception):
        if is_file:
            finder.run_script(str(Path(place).resolve()))
        else:
            finder.import_hook(place)
    files = (getattr(module, "__file__", None) for module in finder.modules.values())
    return {Path(file).resolve() for file in files if file is not None and file.endswith(".py")}
