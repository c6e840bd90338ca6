"""The work of a matrix as data: one task for each image, type of GPU and shard; and the folder for what tasks write.

The folder is on a disk that all machines see. ``plan.json`` is the work, ``durations.jsonl`` the durations that divide
it, ``tasks.txt`` the options of each task, for Slurm. What attempts at the shards write, and what they publish, is in a
folder for each type of GPU (`recapture.run.attempts`).

History of the file format, newest first (``SCHEMA_VERSION``):

1. first version.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from recapture.base.decode import Format
from recapture.base.errors import UsageError
from recapture.base.escape import indented_json
from recapture.base.files import write_atomically
from recapture.base.paths import data_folder
from recapture.known.issues import chosen_issues
from recapture.machine.pins import Image, can_run_on, lock_hash, lock_path
from recapture.records.record import TIMINGS
from recapture.run.attempts import Attempt, attempts_of, is_published, refuse_other_than_folders, shard_name
from recapture.run.durations import frozen_seconds, recorded_seconds
from recapture.run.plan import RunOptions
from recapture.run.shards import Shard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

WORK = "plan.json"
"""Name of the file with the work, in the folder that its attempts write to."""

DURATIONS = "durations.jsonl"
TASKS = "tasks.txt"
LOGS = "logs"

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

    @property
    def part(self) -> Shard:
        """The shard that the task runs."""
        return Shard(self.shard, self.shards)

    @property
    def options(self) -> list[str]:
        """The options of `recapture run` that a task has on any machine, without folders."""
        return ["--image", self.image, "--device", self.device, "--shard", str(self.part)]

    def folder(self, folder: Path) -> Path:
        """Return the folder that attempts at the task publish to: types of GPUs do not share one."""
        return folder / (self.gpu or self.device)

    @property
    def shard_name(self) -> str:
        """The name of the task's shard in that folder."""
        return shard_name(self.image, self.device, self.part)


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


def prepare(folder: Path, work: MatrixWork) -> bool:
    """Make the folder for some work; return False if it is that of the same work already.

    Raises UsageError if it is that of other work, or has a link in place of a folder.
    """
    refuse_other_than_folders(folder / LOGS, *(task.folder(folder) for task in work.tasks))
    if (folder / WORK).exists():
        if _identity(read_work(folder)) != _identity(work):
            raise UsageError(f"{folder} has other work (see its {WORK}): choose another folder, or remove it")
        return False
    (folder / LOGS).mkdir(parents=True, exist_ok=True)
    write_atomically(folder / DURATIONS, frozen_seconds(data_folder("results"), work.device))
    lines = [
        " ".join(["--via", work.via, *task.options, "--publish", str(task.folder(folder.resolve()))])
        for task in work.tasks
    ]
    write_atomically(folder / TASKS, "".join(f"{line}\n" for line in lines).encode())
    write_atomically(folder / WORK, indented_json(work).encode())
    return True


def _identity(work: MatrixWork) -> tuple[object, ...]:
    """Return what distinguishes work: not what earlier runs lead to expect of it."""
    locks = {image.name: image.lock for image in work.images}
    return work.device, work.via, work.arguments, locks, [task.name for task in work.tasks]


def task_is_published(folder: Path, task: WorkTask) -> bool:
    """Whether an attempt at this task has published its results."""
    return is_published(task.folder(folder), task.shard_name)


def attempts_at(folder: Path, task: WorkTask) -> list[Attempt]:
    """Return the attempts at a task that published nothing, in the order in which they began."""
    return attempts_of(task.folder(folder), task.shard_name)


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
    seconds = [earlier.seconds for earlier in known.values() if earlier is not None]
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
    described = [_image(image, known[image.name], shards) for image in images]
    return MatrixWork(
        device=options.device, via=via, arguments=[*arguments], images=described, tasks=tasks, left_out=left_out
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
    durations = [
        seconds
        for path in sorted(folder.glob("cpu" if options.device == "cpu" else "sm_*"))
        for (case, compiler, _), seconds in recorded_seconds(path / TIMINGS, options.device).items()
        if admits(case, compiler)
    ]
    return Known(len(durations), sum(durations)) if durations else None


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
