"""A run or a benchmark that is resumed over damaged files, up to the final files; nothing measured may be lost."""

from __future__ import annotations

import json
import types
from typing import TYPE_CHECKING

import msgspec

from tests.fuzz import corpus

if TYPE_CHECKING:
    from pathlib import Path

RAN_AGAIN = "ran again"
"""Reason in the records of cells that a resumed run finds missing; nothing is executed here."""


def run(root: Path, name: str) -> None:
    """Resume the unfinished run, or a run whose results are finished: record what is missing, and write all files."""
    from recapture.cases.collection import CaseInfo
    from recapture.machine.environment import read_environment
    from recapture.records.record import Record, Timing
    from recapture.run.cell import CellSpec
    from recapture.run.plan import PlannedCell
    from recapture.run.result_files import ResultFiles

    cells = []
    for row in map(json.loads, corpus.renewed().splitlines()):
        suite, _, case = row["case"].partition("::")
        spec = CellSpec(suite=suite, path=f"{suite}.py", case=case, compiler=row["compiler"], device=row["device"])
        cells.append(PlannedCell(spec, CaseInfo(case, row["case_hash"], "", {})))
    environment = read_environment(corpus.IMAGES / corpus.OLD)
    options = types.SimpleNamespace(resume=True, whole=True, words=(), device="cpu", results=root / "results")
    with ResultFiles(directory(root, name), options, cells, environment) as result_files:  # type: ignore[arg-type]
        for cell in result_files.missing():
            case, compiler, device = cell.key
            key = {"case": case, "compiler": compiler, "device": device}
            row = Record(**key, verdict="crash", case_hash=cell.info.hash, reason=RAN_AGAIN)  # type: ignore[arg-type]
            result_files.record(row, Timing(**key, seconds=1.0), "", "")
        result_files.close()


def directory(root: Path, name: str) -> Path:
    """Return the results directory of the run that a command resumes."""
    return root / ("results" if name.endswith("finished") else "unfinished") / corpus.OLD


def measured(root: Path, name: str) -> set[bytes]:
    """Return the undamaged lines of records that a resumed run must keep, whatever else the file with them holds.

    An unfinished run replaces finished results, so only its own records count.
    """
    path = directory(root, name) / ("conformance.jsonl" if name.endswith("finished") else "conformance.partial.jsonl")
    known = set(corpus.renewed().splitlines())
    return known & _lines(path) if path.is_file() and not path.is_symlink() else set()


def lost(folder: Path, before: set[bytes]) -> list[str]:
    """Return what is wrong after a resumed run: undamaged records that no file holds any more.

    A record of the same cell in a later line of a file replaces one; that of a cell that ran again does not.
    """
    paths = [path for path in folder.rglob("conformance*.jsonl") if path.is_file() and not path.is_symlink()]
    rows = [_decoded(line) for path in paths for line in _lines(path)]
    keys = {_key(row) for row in rows if row.get("reason") != RAN_AGAIN}
    return [f"lost {_key(json.loads(line))}" for line in sorted(before) if _key(json.loads(line)) not in keys]


def bench(root: Path, _name: str) -> None:
    """Resume every benchmark with all its rows measured: read, derive, set aside, and write the file again."""
    from recapture.tools.speed.figures import derive
    from recapture.tools.speed.results_file import SpeedupsFile, set_aside_others, writing
    from recapture.tools.speed.speedups import find_speedups, read_speedups

    environment = json.loads(corpus.BENCHMARK.read_bytes())["environment"]
    for path in find_speedups(root / "results"):
        speedups = read_speedups(path)
        for row in speedups.rows:
            derive(row)
        installed = msgspec.convert(environment, type(speedups.environment))
        with writing(path):
            moved = set_aside_others(path, installed)
        SpeedupsFile(path, installed, speedups.method, [], resume=True).write()
        continued = read_speedups(moved[0] / path.name if moved else path)
        missing = {row.key for row in speedups.rows} - {row.key for row in continued.rows}
        if missing:
            raise AssertionError(f"lost {missing}")


def _lines(path: Path) -> set[bytes]:
    """Return the whole lines of a file."""
    return {line for line in path.read_bytes().split(b"\n")[:-1] if line}


def _decoded(line: bytes) -> dict[str, object]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _key(row: dict[str, object]) -> tuple[object, ...]:
    return tuple(str(row.get(name)) for name in ("case", "compiler", "device"))
