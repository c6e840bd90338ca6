"""The options of `recapture bench`, and the workloads and configurations that they select."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.option_fields import GIB, MOST_GIB, WEEK, argument, known_device, option
from recapture.base.paths import data_folder
from recapture.cases.compiler import Family
from recapture.cases.compilers import builtin_compilers, compiler_facts, plain_name
from recapture.cases.workload import DTYPES
from recapture.cases.workload_sources import ModelSpec, WorkloadInfo, shapes_of
from recapture.pool.client import ServerDiedError
from recapture.pool.protocol import Ended
from recapture.pool.worker_pool import WorkerPool, cause_of_death
from recapture.tools.speed import tasks
from recapture.tools.speed.cpu_settings import physical_cores
from recapture.tools.speed.speedups import MOST_PROCESSES, Configuration

PROCESSES = 5
"""Timed processes of a row, by default."""

QUICK_SECONDS = 1.0
"""Most seconds of timing in the one process of a row, with ``--quick``."""

TIMEOUT = 1800.0
"""Seconds a process may take, by default. Some models compile for a quarter of an hour with autotuning."""

QUICK_TIMEOUT = 300.0
"""Seconds a process may take with ``--quick``, by default: one row that hangs must not keep the others waiting."""

LAYOUTS = ("contiguous", "channels-last")

_BENCHED = [compiler for compiler in builtin_compilers().values() if "bench" in compiler.run_by]
_PLAIN = [plain_name(compiler.name) for compiler in _BENCHED]

# A variant stands after its plain compiler. Modes that differ from others in CUDA graphs are left out on the CPU.
DEFAULT_COMPILERS = {
    device: tuple(
        compiler.name
        for compiler in sorted(_BENCHED, key=lambda compiler: _PLAIN.index(plain_name(compiler.name)))
        if device != "cpu" or not compiler.cuda_graphs
    )
    for device in ("cuda", "cpu")
}
"""Default compilers, by device."""


def configurations(
    own_dtype: str,
    *,
    own: tuple[str, ...] = (),
    compilers: tuple[str, ...],
    dtypes: tuple[str, ...],
    layouts: tuple[str, ...],
    dynamic: bool,
) -> list[Configuration]:
    """Return the configurations of a workload whose own arithmetic is `own_dtype`.

    Every compiler is combined with every dtype (by default the workload's own) and layout. `own` are the compilers that
    the workload's file declares. `dynamic` requests symbolic sizes from `torch.compile`. Raises UsageError for an
    unknown name.
    """
    known = builtin_compilers()
    for kind, requested, names in (
        ("compiler", compilers, (*known, *own)),
        ("dtype", dtypes, DTYPES),
        ("layout", layouts, LAYOUTS),
    ):
        for name in requested:
            if name not in names:
                hint = did_you_mean(name, names) or f"; it is one of {', '.join(names)}"
                raise UsageError(f"unknown {kind} {name!r}{hint}")
    combinations = [
        Configuration(compiler, dtype, layout, dynamic and compiler_facts(compiler).family == Family.DYNAMO)
        for dtype in dtypes or (own_dtype,)
        for layout in layouts or ("contiguous",)
        for compiler in dict.fromkeys(compilers)
    ]
    return list(dict.fromkeys(combinations))


COLLECT_SECONDS = 120.0
"""Seconds that importing a file of workloads may take."""


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """The options of the command line; an empty tuple means the defaults. `memory` is in bytes."""

    names: tuple[str, ...] = argument("[WORKLOAD|FILE]...")
    models: tuple[str, ...] = option(
        "--model", default=(), metavar="SPEC", help="torchvision:NAME or package.module:factory."
    )
    shapes: tuple[tuple[int, ...], ...] = option(
        "--input", default=(), metavar="SHAPE", parse=shapes_of, help="Shape of an input of --model, as 8x3x224x224."
    )
    train: bool = option("--train", default=False, help="Measure training steps of --model, not inference.")
    compilers: tuple[str, ...] = option(
        "--compiler", default=(), metavar="NAME[,NAME]", commas=True, help="Only these compilers."
    )
    dtypes: tuple[str, ...] = option(
        "--dtype", default=(), metavar="NAME", help="fp32, fp32-strict, tf32, bf16 or amp."
    )
    layouts: tuple[str, ...] = option("--layout", default=(), metavar="NAME", help="contiguous or channels-last.")
    dynamic: bool = option("--dynamic", default=False, help="Symbolic sizes from the first call on (torch.compile).")
    device: str = option(
        "--device", default="cpu", metavar="cpu|cuda", parse=known_device, help="Device to measure on."
    )
    processes: int = option(
        "--processes", default=PROCESSES, between=(1, MOST_PROCESSES), help="Timed processes per row."
    )
    seconds: float = option("--seconds", default=2.5, between=(0.1, WEEK), help="Seconds of timing per process.")
    quick: bool = option(
        "--quick",
        default=False,
        help="Time one process for a second per row: a first answer, with a wide interval.",
    )
    costs: bool = option(
        "--costs",
        default=False,
        help="Compile and check each row once, count what that costs, and time nothing: for a busy machine, too.",
    )
    timeout: float | None = option(
        "--timeout",
        default=None,
        between=(1, WEEK),
        help=f"Seconds a process may take. [default: {TIMEOUT:g}; with --quick {QUICK_TIMEOUT:g}]",
    )
    memory: int = option("--memory", default=64 * GIB, unit=GIB, between=(0.1, MOST_GIB), help="GiB of RAM.")
    threads: int = option(
        "--threads",
        default_factory=lambda: len(physical_cores()),
        between=(1, None),
        help="CPU threads of torch. [default: the number of physical cores]",
    )
    cpu_settings: Literal["set", "leave"] = option(
        "--cpu-settings",
        default="set",
        help="Fix timed CPU processes to cores and keep freed memory, or leave both.",
    )
    compile_jobs: int = option(
        "--compile-jobs",
        default=1,
        between=(1, None),
        help="Compilations at a time; a compiler that autotunes compiles alone.",
    )
    gpus: int = option("--gpus", default=1, between=(1, None), help="Time on one GPU, compile on the others.")
    profile: bool = option("--profile", default=False, help="Also write operator tables and traces, under profiles/.")
    worker: Literal["auto", "fork", "fresh"] = option(
        "--worker", default="auto", show_default=False, help="How rows get a process."
    )
    resume: bool = option(
        "--resume", default=False, help="Go on after an interruption: measure what is missing or edited."
    )
    results: Path = option("--results", default=Path("results"), help="Folder for the results of all images.")

    def quickly(self) -> BenchOptions:
        """Return the options of a quick benchmark; raises UsageError if several processes were asked for."""
        if self.processes not in (1, PROCESSES):
            raise UsageError(f"--quick times one process: it cannot be combined with --processes {self.processes}")
        return dataclasses.replace(self, processes=1, seconds=min(self.seconds, QUICK_SECONDS))

    def counting(self) -> BenchOptions:
        """Return the options of a benchmark that times nothing; raises UsageError if timing was asked for, too."""
        for name, asked in (
            ("--quick", self.quick),
            ("--profile", self.profile),
            ("--processes", self.processes != PROCESSES),
        ):
            if asked:
                raise UsageError(f"--costs times nothing: it cannot be combined with {name}")
        return dataclasses.replace(self, processes=0)

    @property
    def process_limit(self) -> float:
        """The seconds that a process may take."""
        if self.timeout is not None:
            return self.timeout
        return QUICK_TIMEOUT if self.quick else TIMEOUT


def shipped_workloads() -> list[Path]:
    """Return the workload files that ship with recapture."""
    return sorted(path for path in data_folder("suites/speedups").glob("*.py") if not path.name.startswith("_"))


@dataclass(frozen=True)
class _Address:
    """An argument: a file, a workload, or a workload in a file; without `compiler`, every compiler."""

    path: Path | None
    workload: str | None
    compiler: str | None

    def means(self, spec: ModelSpec) -> bool:
        """Whether the argument refers to this workload."""
        return self.workload in (None, spec.name) and (self.path is None or str(self.path) == spec.path)


def _addresses(options: BenchOptions) -> list[_Address]:
    """Parse ``FILE::workload::compiler`` and ``workload::compiler``; all parts but the first are optional."""
    addresses = []
    for name in options.names:
        place, _, selector = name.partition("::")
        if place.endswith(".py"):
            workload, _, how = selector.partition("::")
            addresses.append(_Address(Path(place).resolve(), workload or None, how or None))
        else:
            addresses.append(_Address(None, place, selector or None))
    return addresses


def check_names(options: BenchOptions) -> None:
    """Raise UsageError for mistakes that can be detected before a server is started."""
    files = _files(options)
    for path in files:
        if not path.is_file():
            raise UsageError(f"no such workload file: {path.name}")
    if not files:  # a file may declare its own compilers
        compilers = (*options.compilers, *(address.compiler for address in _addresses(options) if address.compiler))
        configurations("fp32", compilers=compilers, dtypes=options.dtypes, layouts=options.layouts, dynamic=False)


def collect(pool: WorkerPool, options: BenchOptions) -> list[WorkloadInfo]:
    """Describe the named files and models; also the shipped files if some name is in none of them."""
    files = _files(options)
    specs = [ModelSpec(name=path.stem, path=str(path)) for path in files]
    specs += [
        ModelSpec(name=name, model=name, shapes=options.shapes, train=options.train)
        for name in dict.fromkeys(options.models)
    ]
    infos = [info for spec in specs for info in _described(pool, spec)]
    known = {info.spec.name for info in infos}
    if not specs or any(address.path is None and address.workload not in known for address in _addresses(options)):
        shipped = [ModelSpec(name=path.stem, path=str(path)) for path in shipped_workloads() if path not in files]
        infos += [info for spec in shipped for info in _described(pool, spec)]
    return infos


def modules_of(options: BenchOptions) -> list[str]:
    """Return the modules to import before workloads are collected: torchvision, if a named file or model uses it."""
    files = _files(options)
    others = options.models or any(address.path is None for address in _addresses(options))
    if not files or others or any(b"torchvision" in path.read_bytes() for path in files):
        return ["torchvision"]
    return []


def _files(options: BenchOptions) -> list[Path]:
    """Return the named files."""
    return list(dict.fromkeys(address.path for address in _addresses(options) if address.path is not None))


def _meant(infos: list[WorkloadInfo], options: BenchOptions) -> list[_Address]:
    """Return the addresses, without files that only locate the workload of another address."""
    addresses = _addresses(options)
    names = {address.workload for address in addresses if address.path is None}
    sources = {info.spec.path for info in infos if info.spec.name in names}
    return [address for address in addresses if address.workload is not None or str(address.path) not in sources]


def _described(pool: WorkerPool, spec: ModelSpec) -> list[WorkloadInfo]:
    try:
        described = pool.client.run(tasks.WORKLOADS, spec, list[WorkloadInfo], timeout=COLLECT_SECONDS)
    except ServerDiedError:
        # The other files still have to be collected.
        pool.restart()
        return [WorkloadInfo(spec=spec, error="killed the worker server on import")]
    return [WorkloadInfo(spec=spec, error=cause_of_death(described))] if isinstance(described, Ended) else described


def choose(infos: list[WorkloadInfo], options: BenchOptions) -> list[WorkloadInfo]:
    """Return the requested workloads; raise UsageError for an unknown workload or a broken named file."""
    named_files = set(_files(options))
    for info in infos:
        # A broken file that nobody named is left out, with a warning.
        if info.error is not None and (info.spec.path is None or Path(info.spec.path) in named_files):
            where = f"workload file {Path(info.spec.path).name!r}: " if info.spec.path else ""
            raise UsageError(f"{where}{info.error}")
    usable = [info for info in infos if info.error is None]
    by_name: dict[str, WorkloadInfo] = {}
    for info in usable:
        if by_name.setdefault(info.spec.name, info) is not info:
            raise UsageError(f"two workloads are named {info.spec.name!r}")
    for address in _addresses(options):
        known = [info.spec.name for info in usable if address.path is None or info.spec.path == str(address.path)]
        if address.workload is not None and address.workload not in known:
            where = f" in {address.path.name}" if address.path else ""
            hint = did_you_mean(address.workload, known) or "; known: " + ", ".join(known)
            raise UsageError(f"unknown workload {address.workload!r}{where}{hint}")
    meant = _meant(usable, options)
    return [
        info
        for info in usable
        if info.spec.path is None
        or any(address.means(info.spec) for address in meant)
        or not (options.names or options.models)
    ]


def select(infos: list[WorkloadInfo], options: BenchOptions) -> list[WorkloadInfo]:
    """Return the workloads to measure: those for this device, and those named. Raises UsageError if there is none."""
    chosen = choose(infos, options)
    names = {address.workload for address in _addresses(options)}
    usable = [info for info in chosen if options.device in info.devices or info.spec.name in names]
    if not usable:
        raise UsageError(f"no workload is meant for {options.device}")
    return usable


def plan_rows(infos: list[WorkloadInfo], options: BenchOptions) -> list[tuple[WorkloadInfo, Configuration]]:
    """Return the requested rows; a workload that is addressed with compilers gets only those."""
    meant = _meant(infos, options)
    rows: dict[tuple[str, Configuration], tuple[WorkloadInfo, Configuration]] = {}
    for info in infos:
        addressed = [address.compiler for address in meant if address.means(info.spec)]
        compilers = options.compilers if None in addressed else tuple(filter(None, addressed)) or options.compilers
        compilers = compilers or (*DEFAULT_COMPILERS[options.device], *info.compilers)
        for configuration in configurations(
            info.dtype,
            own=tuple(info.compilers),
            compilers=compilers,
            dtypes=options.dtypes,
            layouts=options.layouts,
            dynamic=options.dynamic,
        ):
            # Two addresses may select the same row.
            rows.setdefault((info.spec.name, configuration), (info, configuration))
    return list(rows.values())
