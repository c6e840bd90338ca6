"""The results that the fuzzer damages: two images, their benchmarks, and an interrupted run, all of them small."""

from __future__ import annotations

import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

import msgspec

from recapture.results.records import SCHEMA_VERSION, Difference, Record, read_jsonl, write_jsonl

REPOSITORY = Path(__file__).resolve().parents[2]
IMAGES = REPOSITORY / "tests" / "resources" / "results" / "images"
BENCHMARK = REPOSITORY / "results" / "bare-torch2.11.0-cu130" / "sm_90" / "speedups-nvidia-h200.json"

OLD = Path("torch2.6.0-cu124/cpu")
NEW = Path("bare-torch2.11.0-cu130/cpu")
CELL = "types::scale::compile"
SAMPLES = 12


def build(root: Path) -> None:
    """Write undamaged results below a folder: ``results`` with two images, and ``unfinished`` with one."""
    for place in (OLD, NEW):
        folder = root / "results" / place
        folder.mkdir(parents=True)
        for name in ("conformance.jsonl", "environment.json"):
            shutil.copyfile(IMAGES / place / name, folder / name)
        if place == OLD:
            (folder / "conformance.jsonl").write_bytes(renewed())
        _beside(folder, "")
        (folder / "speedups-nvidia-h200.json").write_text(json.dumps(_benchmark()))
    folder = root / "unfinished" / OLD
    folder.mkdir(parents=True)
    for name in ("conformance.jsonl", "environment.json"):
        first, _, last = name.partition(".")
        shutil.copyfile(root / "results" / OLD / name, folder / f"{first}.partial.{last}")
        shutil.copyfile(root / "results" / OLD / name, folder / name)
    _beside(folder, ".partial")


def files(root: Path) -> list[Path]:
    """Return every file below a folder, in one order."""
    return sorted(path for path in root.rglob("*") if path.is_file())


@cache
def renewed() -> bytes:
    """Return the records of OLD as records of this version, with a noted difference and distances.

    A resumed run keeps them; those of version 1, as in NEW, it would run again.
    """
    rows = [
        msgspec.structs.replace(
            row,
            schema=SCHEMA_VERSION,
            noted=(Difference("example", "result", "value", "-0.0", bits="signed-zero", ulps=0, elements=(1, 4)),),
            differences=tuple(
                msgspec.structs.replace(one, bits="value", ulps=7, elements=(2, 4)) for one in row.differences
            ),
        )
        for row in read_jsonl(IMAGES / OLD / "conformance.jsonl", Record)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "conformance.jsonl"
        write_jsonl(path, rows)
        return path.read_bytes()


def _beside(folder: Path, partial: str) -> None:
    rows = [json.loads(line) for line in (folder / "conformance.jsonl").read_text().splitlines()]
    timings, said = [], []
    for row in rows:
        key = {name: row[name] for name in ("case", "compiler", "device")}
        timings.append(json.dumps({**key, "seconds": 0.5, "peak_rss": 1000, "worker": "fork", "schema": 1}))
        said.append(json.dumps({"cell": f"{row['case']}::{row['compiler']}", "stdout": "printed", "stderr": ""}))
    (folder / f"timings{partial}.jsonl").write_text("\n".join(timings) + "\n")
    (folder / f"output{partial}.jsonl").write_text("\n".join(said) + "\n")


def _benchmark() -> dict:
    document = json.loads(BENCHMARK.read_text())
    timed = [row for row in document["rows"] if row["measured"]][:2]
    failed = [row for row in document["rows"] if not row["measured"]][:1]
    for row in timed:
        row["processes"] = row["processes"][:2]
        row["again"] = False
        for process in row["processes"]:
            for variant in ("eager", "twin", "candidate"):
                if process[variant]:
                    process[variant]["seconds"] = process[variant]["seconds"][:SAMPLES]
    document["rows"] = [*timed, *failed]
    document["planned"] = len(document["rows"])
    return document
