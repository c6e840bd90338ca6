"""The files that the fuzzer damages, all of them small.

A folder is built that is results and checkout in one: two images with their benchmarks, an interrupted run, the folder
of a matrix, and the tables of ``suites`` and ``docker`` (`tests.fuzz.tables`).
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

import msgspec

from recapture.machine.pins import load_images, lock_hash
from recapture.records.difference import Difference
from recapture.records.record import SCHEMA_VERSION, Record, read_jsonl, write_jsonl
from recapture.records.shard_files import ShardCell, ShardPlan
from recapture.records.verdicts import Verdict
from recapture.tools.fleet.work import MatrixWork, WorkImage, WorkTask
from tests.fuzz import tables

REPOSITORY = Path(__file__).resolve().parents[2]
IMAGES = REPOSITORY / "tests" / "resources" / "results" / "images"
BENCHMARK = REPOSITORY / "results" / "bare-torch2.11.0-cu130" / "sm_90" / "speedups-nvidia-h200.json"

OLD = Path("torch2.6.0-cu124/cpu")
NEW = Path("bare-torch2.11.0-cu130/cpu")
GPU = Path("torch2.11.0-cu130/sm_90")
IMAGE, DRIFTED = tables.IMAGES
CELL = "types::scale::compile"
SAMPLES = 12


def build(root: Path) -> None:
    """Write undamaged files below a folder."""
    for place in (OLD, NEW, GPU):
        folder = root / "results" / place
        folder.mkdir(parents=True)
        for name in ("conformance.jsonl", "environment.json"):
            shutil.copyfile(IMAGES / place / name, folder / name)
        if place == OLD:
            (folder / "conformance.jsonl").write_bytes(renewed())
        (folder / ".lock").touch()
        _beside(folder, "")
        if place == GPU:
            continue
        (folder / ".speedups.lock").touch()
        (folder / "speedups-nvidia-h200.json").write_text(json.dumps(_benchmark()))
    _drifted(root / "results")
    folder = root / "unfinished" / OLD
    _interrupted(root, folder)
    (folder / ".lock").touch()
    tables.build(root)
    _matrix(root)


def _drifted(results: Path) -> None:
    """Write the results of a twin image, in which one cell is wrong that is right in OLD."""
    folder = results / DRIFTED / "cpu"
    folder.mkdir(parents=True)
    environment = json.loads((results / OLD / "environment.json").read_text())
    (folder / "environment.json").write_text(json.dumps({**environment, "image": DRIFTED, "planned": 1, "recorded": 1}))
    wrong = (Difference("example", "result", "value", "1 of 4 elements differ"),)
    rows = [row for row in read_jsonl(results / OLD / "conformance.jsonl", Record) if row.cell == CELL]
    write_jsonl(
        folder / "conformance.jsonl",
        [msgspec.structs.replace(row, verdict=Verdict.WRONG, input="example", differences=wrong) for row in rows],
    )


def _interrupted(root: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in ("conformance.jsonl", "environment.json"):
        first, _, last = name.partition(".")
        shutil.copyfile(root / "results" / OLD / name, folder / f"{first}.partial.{last}")
        shutil.copyfile(root / "results" / OLD / name, folder / name)
    _beside(folder, ".partial")


def files(root: Path) -> list[Path]:
    """Return every file of data below a folder, in one order."""
    return sorted(path for path in root.rglob("*") if path.is_file() and path.suffix != ".py")


def weight(path: Path) -> int:
    """Return how much more often a file is damaged than a small one: records have the most fields and readers."""
    if path.suffix == ".txt" and path.parent.name != "locks":  # of a user
        return 3
    if path.suffix == ".txt" or path.name.startswith((".", "told")):
        return 1
    return {"conformance": 6, "speedups-nvidia-h200": 4, "environment": 3}.get(path.name.partition(".")[0], 2)


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
                dataclasses.replace(difference, bits="value", ulps=7, elements=(2, 4)) for difference in row.differences
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
    timings, outputs = [], []
    for row in rows:
        key = {name: row[name] for name in ("case", "compiler", "device")}
        timings.append(json.dumps({**key, "seconds": 0.5, "peak_rss": 1000, "worker": "fork", "schema": 1}))
        outputs.append(json.dumps({"cell": f"{row['case']}::{row['compiler']}", "stdout": "printed", "stderr": ""}))
    (folder / f"timings{partial}.jsonl").write_text("\n".join(timings) + "\n")
    (folder / f"output{partial}.jsonl").write_text("\n".join(outputs) + "\n")


def _matrix(root: Path) -> None:
    """Write the folder of a matrix of two shards: one is published, of the other an attempt died."""
    folder, lock = root / "matrix", lock_hash(root / "docker" / "locks" / f"{IMAGE}.txt")
    image = load_images()[IMAGE]
    names = [f"{IMAGE}.cpu.{number}-of-2" for number in (1, 2)]
    work = MatrixWork(
        device="cpu",
        via="venv",
        arguments=["types"],
        images=[
            WorkImage(name=IMAGE, torch=image.torch, python=image.python, lock=lock, cells=9, seconds=9.5, shards=2)
        ],
        tasks=[
            WorkTask(name=name, image=IMAGE, device="cpu", gpu=None, shard=number, shards=2, seconds=4.75)
            for number, name in enumerate(names, 1)
        ],
    )
    rows = [json.loads(line) for line in renewed().splitlines()]
    cells = [
        ShardCell(row["case"], row["compiler"], row["device"], row["case_hash"], number % 2 + 1)
        for number, row in enumerate(rows)
    ]
    places = {1: folder / "shards" / names[0] / OLD, 2: folder / "attempts" / f"{names[1]}.77" / OLD}
    for shard, place in places.items():
        _interrupted(root, place)
        for path in place.iterdir():
            if ".partial" not in path.name:
                path.unlink()
            elif shard == 1:
                path.rename(path.with_name(path.name.replace(".partial", "")))
        for path in place.glob("*.jsonl"):
            lines = path.read_text().splitlines(keepends=True)
            path.write_text("".join(lines[shard - 1 :: 2]))
        (place / "shard.json").write_bytes(msgspec.json.encode(ShardPlan(number=shard, count=2, cells=cells)))
    attempt = folder / "attempts" / f"{names[1]}.77"
    (attempt / "attempt.json").write_text(json.dumps({"schema": 1, "task": names[1], "status": 70, "node": "n1"}))
    (attempt / "told").touch()
    (folder / "plan.json").write_bytes(msgspec.json.encode(work))
    timings = root / "results" / OLD / "timings.jsonl"
    shutil.copyfile(timings, folder / "durations.jsonl")


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
