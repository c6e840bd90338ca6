"""What a command line of `recapture bench` asks for → workloads and the configurations of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from recapture.bench.configuration import DEFAULT_COMPILERS, Configuration, configurations
from recapture.client import ServerDiedError
from recapture.errors import UsageError, did_you_mean
from recapture.models import ModelSpec, WorkloadInfo
from recapture.protocol import Ended
from recapture.workbench import cause_of_death

if TYPE_CHECKING:
    from recapture.workbench import Workbench

__all__ = ["Options", "check_names", "collect", "plan", "select", "shipped_workloads"]

COLLECT_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a command line asked for; empty tuples stand for the defaults. `seconds` and `processes` are per row."""

    names: tuple[str, ...]
    models: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    train: bool
    compilers: tuple[str, ...]
    dtypes: tuple[str, ...]
    layouts: tuple[str, ...]
    dynamic: bool
    device: str
    processes: int
    seconds: float
    timeout: float
    memory: int
    threads: int
    compile_jobs: int
    gpus: int
    profile: bool
    worker: Literal["auto", "fork", "fresh"]
    resume: bool
    results: Path


def shipped_workloads() -> list[Path]:
    """Return the files of workloads that come with recapture."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package.parent / "suites" / "speedups", package / "data" / "suites" / "speedups"):
        if folder.is_dir():
            return sorted(path for path in folder.glob("*.py") if not path.name.startswith("_"))
    return []


def _file(name: str) -> str | None:
    """The file that an argument names, if it does."""
    place = name.partition("::")[0]
    return place if place.endswith(".py") else None


def check_names(options: Options) -> None:
    """Raise UsageError for what is wrong whatever the workloads turn out to be: before a server is started."""
    files = _files(options)
    for path in files:
        if not path.is_file():
            raise UsageError(f"no such workload file: {path.name}")
    if not files:  # one may declare compilers of its own
        named = [name.partition("::")[2] for name in options.names]
        compilers = (*options.compilers, *(name for name in named if name))
        configurations("fp32", compilers=compilers, dtypes=options.dtypes, layouts=options.layouts, dynamic=False)


def collect(bench: Workbench, options: Options) -> list[WorkloadInfo]:
    """Describe the files and models that were named, and those that ship where a name is none of theirs."""
    files = _files(options)
    specs = [ModelSpec(name=path.stem, path=str(path)) for path in files]
    specs += [
        ModelSpec(name=name, model=name, shapes=options.shapes, train=options.train)
        for name in dict.fromkeys(options.models)
    ]
    found = [info for spec in specs for info in _described(bench, spec)]
    known = {info.spec.name for info in found}
    if not specs or any(name not in known for name in _names(options)):
        shipped = [ModelSpec(name=path.stem, path=str(path)) for path in shipped_workloads() if path not in files]
        found += [info for spec in shipped for info in _described(bench, spec)]
    return found


def _files(options: Options) -> list[Path]:
    """The files that were named."""
    return [Path(name).resolve() for name in map(_file, options.names) if name is not None]


def _names(options: Options) -> list[str]:
    """The workloads that were asked for by name, without the compilers they were asked for with."""
    return [name.partition("::")[0] for name in options.names if _file(name) is None]


def _described(bench: Workbench, spec: ModelSpec) -> list[WorkloadInfo]:
    try:
        told = bench.client.run("workloads", spec, list[WorkloadInfo], timeout=COLLECT_SECONDS)
    except ServerDiedError:
        bench.restart()
        return [WorkloadInfo(spec=spec, error="killed the worker server on import")]
    return [WorkloadInfo(spec=spec, error=cause_of_death(told))] if isinstance(told, Ended) else told


def select(infos: list[WorkloadInfo], options: Options) -> list[WorkloadInfo]:
    """The workloads that were asked for; raises UsageError for what is unknown or, asked for by name, broken."""
    asked = set(_files(options))
    for info in infos:
        if info.error is not None and (info.spec.path is None or Path(info.spec.path) in asked):
            where = f"workload file {Path(info.spec.path).name!r}: " if info.spec.path else ""
            raise UsageError(f"{where}{info.error}")
    usable = [info for info in infos if info.error is None]
    seen: dict[str, WorkloadInfo] = {}
    for info in usable:
        if seen.setdefault(info.spec.name, info) is not info:
            raise UsageError(f"two workloads are named {info.spec.name!r}")
    names = _names(options)
    for name in names:
        if name not in seen:
            raise UsageError(f"unknown workload {name!r}{did_you_mean(name, seen) or '; known: ' + ', '.join(seen)}")
    # A file of which some workloads are named is there for their sake; of another, all are meant.
    whole = asked - {Path(info.spec.path) for info in usable if info.spec.name in names and info.spec.path}
    chosen = [
        info
        for info in usable
        if info.spec.name in names
        or info.spec.path is None
        or Path(info.spec.path) in whole
        or not (options.names or options.models)
    ]
    here = [info for info in chosen if options.device in info.devices or info.spec.name in names]
    if not here:
        raise UsageError(f"no workload is meant for {options.device}")
    return here


def plan(infos: list[WorkloadInfo], options: Options) -> list[tuple[WorkloadInfo, Configuration]]:
    """The rows that were asked for: of a workload addressed as ``workload::compiler``, only those compilers."""
    rows: dict[tuple[str, Configuration], tuple[WorkloadInfo, Configuration]] = {}
    for info in infos:
        addressed = [name.partition("::")[2] for name in options.names if name.partition("::")[0] == info.spec.name]
        wanted = tuple(addressed) if addressed and all(addressed) else options.compilers
        wanted = wanted or (*DEFAULT_COMPILERS[options.device], *info.compilers)
        for one in configurations(
            info.dtype,
            own=info.compilers,
            compilers=wanted,
            dtypes=options.dtypes,
            layouts=options.layouts,
            dynamic=options.dynamic,
        ):
            rows.setdefault((info.spec.name, one), (info, one))
    return list(rows.values())
