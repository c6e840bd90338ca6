"""The folder of a generation: its programs, what screening found, and the records of what ran again alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from recapture.base.errors import UsageError
from recapture.base.files import append_line, read_regular, write_atomically
from recapture.records.record import CONFORMANCE, Record, append_record, read_conformance, read_jsonl
from recapture.tools.generate.suite_files import GeneratedSuite

if TYPE_CHECKING:
    from types import TracebackType

    from recapture.records.record import CellKey

SETTINGS = "generation.json"
PROGRAMS = "programs.jsonl"
SCREENED = "screened.jsonl"
SUITES = "suites"
RECORDS = "records"
FINDINGS = "findings"
COMPILERS = "changed_settings.py"
FAMILIES = "families.json"
REPORT = "families.md"

S = TypeVar("S")


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What decides the programs of a folder. A folder is continued with the same settings alone."""

    seed: int
    source: str
    device: str
    dtype: str
    samples: int
    forms: tuple[str, ...]
    without: tuple[str, ...] = ()
    torch: str


class GeneratedFolder:
    """The files of a generation, each line written at once, so that a killed one loses no finished cell.

    Use it as a context manager. Raises UsageError for a folder that holds something else.
    """

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self.settings = settings
        self._check()
        self.suites: dict[str, GeneratedSuite] = {
            suite.subject: suite for suite in self._lines(PROGRAMS, msgspec.json.Decoder(GeneratedSuite))
        }
        self._mend(SCREENED)
        screened = self.path / SCREENED
        rows = read_jsonl(screened, Record, tolerate_torn_tail=True) if screened.exists() else []
        self.screened: dict[CellKey, Record] = {row.key: row for row in rows}
        self._programs = self._opened(PROGRAMS)
        self._screened = self._opened(SCREENED)

    def __enter__(self) -> GeneratedFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._programs)
        os.close(self._screened)

    def _check(self) -> None:
        """Write the settings of a new folder; raise UsageError for one with others."""
        path = self.path / SETTINGS
        if path.exists():
            try:
                before = msgspec.json.decode(read_regular(path), type=Settings)
            except (ValueError, RecursionError) as error:
                raise UsageError(f"{path}: {error}") from None
            for name in Settings.__struct_fields__:
                old, new = getattr(before, name), getattr(self.settings, name)
                if old != new:
                    raise UsageError(
                        f"{self.path} was made with {name} {_words(old)}, not {_words(new)}: name another folder"
                    )
            return
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise UsageError(f"{self.path} holds something else: name a new folder with --results")
        try:
            (self.path / SUITES).mkdir(parents=True)
            write_atomically(path, msgspec.json.format(msgspec.json.encode(self.settings)) + b"\n")
        except OSError as error:
            raise UsageError(f"cannot write {self.path}: {error.strerror}") from None

    def add_suite(self, suite: GeneratedSuite) -> None:
        """Write the programs of a file."""
        if suite.text:
            write_atomically(self.suite_path(suite), suite.text.encode())
        row = msgspec.structs.replace(suite, text="")
        append_line(self._programs, msgspec.json.encode(row) + b"\n")
        self.suites[suite.subject] = row

    def suite_path(self, suite: GeneratedSuite) -> Path:
        """Return the file with the programs of a file."""
        return (self.path / SUITES / f"{suite.name}.py").absolute()

    def write_compilers(self, text: str) -> Path:
        """Write the file of compilers that a generation declares itself, and return its path."""
        path = self.path / COMPILERS
        write_atomically(path, text.encode())
        return path

    def add_screened(self, record: Record) -> None:
        """Write what screening says of a cell."""
        append_record(self._screened, record)
        self.screened[record.key] = record

    def alone(self) -> dict[CellKey, Record]:
        """Return the records of the cells that ran again alone."""
        directories = sorted(path.parent for path in (self.path / RECORDS).rglob(CONFORMANCE))
        return {record.key: record for directory in directories for record in read_conformance(directory)}

    def _lines(self, name: str, decoder: msgspec.json.Decoder[S]) -> list[S]:
        self._mend(name)
        path = self.path / name
        try:
            return [decoder.decode(line) for line in read_regular(path).splitlines()] if path.exists() else []
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path}: {error}") from None

    def _mend(self, name: str) -> None:
        """Remove an unfinished last line, which a killed generation may leave."""
        path = self.path / name
        data = read_regular(path) if path.exists() else b""
        if data and not data.endswith(b"\n"):
            write_atomically(path, data[: data.rfind(b"\n") + 1])

    def _opened(self, name: str) -> int:
        return os.open(self.path / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
