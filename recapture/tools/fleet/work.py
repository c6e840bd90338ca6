"""The work of a matrix as data: one task for each image, type of GPU and shard.

History of the file format, newest first (``SCHEMA_VERSION``):

1. first version.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from recapture.base.decode import Format
from recapture.base.errors import UsageError
from recapture.known.issues import chosen_issues
from recapture.machine.pins import can_run_on, lock_hash, lock_path
from recapture.records.record import TIMINGS
from recapture.run.durations import recorded_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from recapture.machine.pins import Image
    from recapture.run.plan import RunOptions

WORK = "plan.json"
"""Name of the file with the work, in the folder that its attempts write to."""

SCHEMA_VERSION: Literal[1] = 1

GPU_CAPABILITIES = {
    "v100": "7.0",
    "t4": "7.5",
    "a100": "8.0",
    "a10": "8.6",
    "l4": "8.9",
    "l40s": "8.9",
    "h100": "9.0",
    "h200": "9.0",
    "b200": "10.0",
}
"""Types of GPUs, as clusters name them, with their compute capability."""

Via = Literal["here", "venv", "docker"]


class WorkImage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One image of the matrix: its lock, the cells and seconds of earlier runs, as far as known, and its shards."""

    name: str
    torch: str
    python: str
    lock: str | None
    cells: int | None
    seconds: float | None
    shards: int


class WorkTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One shard of one image on one device; `seconds` is the sum of its cells' recorded durations, as far as known."""

    name: str
    image: str
    device: str
    gpu: str | None
    shard: int
    shards: int
    seconds: float | None


class MatrixWork(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The work of a matrix. `arguments` are the selection and options of `recapture run` that every task has.

    `left_out` says why an image does not run on a type of GPU.
    """

    schema: Literal[1] = SCHEMA_VERSION
    device: str
    via: Via
    arguments: list[str]
    images: list[WorkImage]
    tasks: list[WorkTask]
    left_out: list[str] = []


class Known(NamedTuple):
    """The cells of an image that earlier runs recorded, and their seconds."""

    cells: int
    seconds: float


def _check(work: MatrixWork) -> None:
    names = [task.name for task in work.tasks]
    if len(set(names)) < len(names):
        raise ValueError("two of `tasks` have one name")
    for name in names:
        if not re.fullmatch(r"[\w.+-]{1,200}", name, re.ASCII) or name.startswith("."):
            raise ValueError(f"`tasks` has one named {name!r}")


_FORMAT: Format[MatrixWork] = Format(MatrixWork, "plan", SCHEMA_VERSION, _check)


def read_work(folder: Path) -> MatrixWork:
    """Read the work in a folder; raises UsageError, naming the file, if this version does not understand it."""
    return _FORMAT.read(folder / WORK)


def work_of(
    images: Sequence[Image],
    options: RunOptions,
    *,
    via: Via,
    arguments: Sequence[str],
    shards: int,
    gpus: Sequence[str] = (),
    results: Path,
) -> MatrixWork:
    """Return the work of a matrix of images, each divided into `shards`, on each of these types of GPUs.

    `results` has the timings of earlier runs. Raises UsageError for an unknown type of GPU, and where no image runs on
    any of the types.
    """
    for name in gpus:
        if name not in GPU_CAPABILITIES:
            raise UsageError(f"unknown type of GPU {name!r}: it is one of {', '.join(GPU_CAPABILITIES)}")
    known = {image.name: _known(results / image.name, options) for image in images}
    seconds = [one.seconds for one in known.values() if one is not None]
    usual = sum(seconds) / len(seconds) if seconds else None
    tasks: list[WorkTask] = []
    left_out: list[str] = []
    for gpu in gpus or (None,):
        for image in images:
            reason = None if gpu is None else can_run_on(image, GPU_CAPABILITIES[gpu])
            if reason:
                left_out.append(f"{image.name} on {gpu}: {reason}")
                continue
            earlier = known[image.name]
            whole = usual if earlier is None else earlier.seconds
            tasks += [
                WorkTask(
                    name=f"{image.name}.{gpu or options.device}.{shard}-of-{shards}",
                    image=image.name,
                    device=options.device,
                    gpu=gpu,
                    shard=shard,
                    shards=shards,
                    seconds=None if whole is None else round(whole / shards, 1),
                )
                for shard in range(1, shards + 1)
            ]
    if not tasks:
        raise UsageError(f"no image runs on {', '.join(gpus)}: {left_out[0]}")
    found = [_image(image, known[image.name], shards) for image in images]
    return MatrixWork(
        device=options.device, via=via, arguments=[*arguments], images=found, tasks=tasks, left_out=left_out
    )


def _image(image: Image, known: Known | None, shards: int) -> WorkImage:
    lock = lock_path(image.name)
    return WorkImage(
        name=image.name,
        torch=image.torch,
        python=image.python,
        lock=lock_hash(lock) if lock.is_file() else None,
        cells=known.cells if known else None,
        seconds=round(known.seconds, 1) if known else None,
        shards=shards,
    )


def _known(folder: Path, options: RunOptions) -> Known | None:
    """Return the selected cells that earlier runs of an image recorded, and the sum of their seconds."""
    admits = _selected(options)
    found = [
        seconds
        for path in sorted(folder.glob("cpu" if options.device == "cpu" else "sm_*"))
        for (case, compiler, _), seconds in recorded_seconds(path / TIMINGS, options.device).items()
        if admits(case, compiler)
    ]
    return Known(len(found), sum(found)) if found else None


def _selected(options: RunOptions) -> Callable[[str, str], bool]:
    tried = {case for issue in chosen_issues(options.issues) for case in issue.cases} if options.issues else None

    def admits(case: str, compiler: str) -> bool:
        suite, _, name = case.partition("::")
        return (
            (tried is None or case in tried)
            and options.selection.admits(suite, name, compiler)
            and (not options.compilers or compiler in options.compilers)
            and (options.keyword is None or options.keyword(case))
        )

    return admits
