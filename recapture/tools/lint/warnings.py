"""Warnings: behaviours in a file that the records call bad with the compilers and on the release asked for."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import msgspec

from recapture.base.errors import UsageError
from recapture.cases.compiler import Family
from recapture.data import Data
from recapture.tools.lint.patterns import Found, Reader
from recapture.tools.lint.ranges import WORDS, Affected, Outcome, affected
from recapture.tools.lint.source import read_source

SKIPPED = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__", ".nox", ".tox", "build", "dist"})
"""Names of folders that are not looked into."""


TENSORS_ALONE = Family.TRACE.value
"""The family of compilers that refuse a call with anything but tensors and their containers."""


class LintWarning(msgspec.Struct, frozen=True, kw_only=True):
    """A behaviour at a place of a file. Lines and columns count from one. `where` says when it is bad."""

    path: str
    line: int
    column: int
    behaviour: str
    title: str
    sentence: str
    function: str
    where: tuple[str, ...]
    silent: bool
    compilers: tuple[str, ...]
    cure: str | None = None
    sure: bool = True
    threads: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """What is said beside the place: where it is bad, and the cure."""
        text = "; ".join(self.where)
        return f"{text}; {self.cure[:1].lower()}{self.cure[1:].rstrip('.')}" if self.cure else text


class Linter:
    """Looks for behaviours in files.

    `release` is None where every release counts. With `every`, what is less sure is told as well; `selected` are the
    only behaviours to tell, sure or not.
    """

    def __init__(
        self,
        data: Data,
        compilers: Sequence[str],
        outcomes: Sequence[Outcome],
        release: str | None,
        *,
        every: bool = False,
        selected: Collection[str] = (),
    ) -> None:
        self.data = data
        self._compilers = compilers
        self._outcomes = outcomes
        self._release = release
        self._every = every
        self._selected = selected
        self._known: dict[str, list[Affected]] = {}

    def lint(self, path: Path) -> list[LintWarning]:
        """Return the warnings about a file, in the order of its lines. Raises UsageError for one that is no Python."""
        source = read_source(path)
        warnings: dict[tuple[int, int, str], LintWarning] = {}
        for captured in source.captured():
            for finding in filter(self._is_told, Reader(source, captured).read()):
                rows = self._affected(finding.behaviour)
                if captured.needs_numbers:
                    rows = [row for row in rows if self.data.compilers[row.compiler].family != TENSORS_ALONE]
                lines = (finding.node.lineno, finding.node.end_lineno or finding.node.lineno)
                if rows and not source.suppressed(finding.behaviour, lines):
                    key = (finding.node.lineno, finding.node.col_offset, finding.behaviour)
                    owner = f"{captured.owner.name}." if captured.owner else ""
                    warning = self._warning(path, finding, rows, owner + captured.node.name)
                    if key not in warnings or (warning.sure and not warnings[key].sure):
                        warnings[key] = warning
        return [warnings[key] for key in sorted(warnings)]

    def _is_told(self, finding: Found) -> bool:
        if self._selected:
            return finding.behaviour in self._selected
        return finding.sure or self._every

    def _affected(self, behaviour: str) -> list[Affected]:
        if behaviour not in self._known:
            rows = affected(self.data, behaviour, self._compilers, self._outcomes)
            self._known[behaviour] = [row for row in rows if self._release is None or row.holds(self._release)]
        return self._known[behaviour]

    def _warning(self, path: Path, finding: Found, rows: Sequence[Affected], function: str) -> LintWarning:
        entry = self.data.behaviours[finding.behaviour]
        where = []
        for outcome in WORDS:
            words = [row.words for row in rows if row.outcome == outcome]
            if words:
                where.append(f"{WORDS[outcome]} under {', under '.join(words)}")
        return LintWarning(
            path=str(path),
            line=finding.node.lineno,
            column=finding.node.col_offset + 1,
            behaviour=finding.behaviour,
            title=entry.title,
            sentence=entry.sentence,
            function=function,
            where=tuple(where),
            silent=any(row.outcome == "silently wrong" for row in rows),
            compilers=tuple(dict.fromkeys(row.compiler for row in rows)),
            cure=entry.cure,
            sure=finding.sure,
            threads=entry.threads,
        )


def python_files(places: Iterable[Path]) -> list[Path]:
    """Return the Python files at some places, those of folders sorted. Raises UsageError for an absent place."""
    files: list[Path] = []
    for place in places:
        if place.is_dir():
            inside = (path for path in sorted(place.rglob("*.py")) if not SKIPPED & {*path.relative_to(place).parts})
            files += [path for path in inside if path.is_file()]
        elif place.exists():
            files.append(place)
        else:
            raise UsageError(f"no file or folder {place}")
    return list(dict.fromkeys(files))


def installed_torch() -> str | None:
    """Return the version of torch in this environment, without importing it; None if there is none."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None
