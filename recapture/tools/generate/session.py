"""A generation: makes programs, screens them with every compiler, and runs alone what did not pass."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from recapture.base.errors import EnvironmentUnfitError, UsageError, did_you_mean
from recapture.base.option_fields import WEEK, option
from recapture.base.text import duration_text
from recapture.cases.collection import DYNAMO, Selection, SuiteFile, SuiteInfo, find_suites
from recapture.cases.compilers import builtin_compilers
from recapture.pool.protocol import Ended
from recapture.pool.worker_pool import WorkerPool, cause_of_death
from recapture.records.record import CellKey, Record
from recapture.records.verdicts import RIGHT
from recapture.run import tasks as cell_tasks
from recapture.run.cell import CellSpec
from recapture.run.cell_options import CellOptions
from recapture.run.plan import RunOptions
from recapture.run.preparation import collect_suites, preload_level
from recapture.run.runner import run_cells
from recapture.tools.generate import tasks
from recapture.tools.generate.families import FamilyKey, family_of
from recapture.tools.generate.folder import RECORDS, GeneratedFolder, Settings
from recapture.tools.generate.operator_programs import FORMS, OperatorRequest
from recapture.tools.generate.python_programs import PythonRequest
from recapture.tools.generate.screening import GeneratedCell, Limits, MakingPrograms, Screening, SuiteRequest
from recapture.tools.generate.suite_files import GeneratedSuite
from recapture.torch_api.compat import installed_torch

DATABASE = "recapture.tools.generate.operator_database"
"""The module that a server imports so that its children have torch's samples."""

IN_A_FILE = 10
"""Programs of Python in one file."""

LOG_SECONDS = 60.0
"""Seconds between two lines of the log."""

ALONE = 2
"""Members of a family that run again alone for each compiler, because the cells before them may be the cause."""

MOST_ROUNDS = 4
"""How often further members of a family run alone if the first ones pass then."""

NAMES_SECONDS = 180.0
"""Seconds that importing torch's samples may take."""


def _known_form(name: str) -> str:
    if name not in FORMS:
        raise UsageError(f"unknown form {name!r}{did_you_mean(name, FORMS)}; the forms are {', '.join(FORMS)}")
    return name


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(CellOptions):
    """The options of `recapture generate`."""

    results: Path = option("--results", default=Path("generated"), help="Folder of the programs and the findings.")
    seed: int = option("--seed", default=0, between=(0, 1 << 31), help="What decides the samples, and so the programs.")
    source: Literal["operators", "python"] = option(
        "--source", default="operators", help="Torch's samples of its operators, or programs of operators and Python."
    )
    programs: int = option(
        "--programs", default=200, between=(1, 1_000_000), help="Programs of Python, each in two spellings."
    )
    minutes: float | None = option(
        "--minutes", default=None, between=(0.05, WEEK / 60), metavar="M", help="Begin no cell after M minutes."
    )
    operators: tuple[str, ...] = option(
        "--operator", default=(), metavar="NAME", help="Only this operator of torch; may be given several times."
    )
    forms: tuple[str, ...] = option(
        "--form", default=(), metavar="NAME", parse=_known_form, help="Only this form; may be given several times."
    )
    samples: int = option("--samples", default=2, between=(1, 20), help="Samples of each operator.")
    dtype: str = option(
        "--dtype", default="float32", metavar="NAME", help="The dtype of the samples, where an operator has it."
    )
    compilers_from: Path | None = option(
        "--compilers-from", default=None, metavar="FILE", help="The compilers that this file declares, instead."
    )
    timeout: float = option("--timeout", default=60.0, between=(0.1, WEEK), help="Seconds per cell.")


@dataclass(frozen=True)
class Generation:
    """What a generation has found: its programs by operator, and the last record of each cell.

    `alone` are the cells that ran in a process of their own. `planned` is the number of cells of all programs; the
    others were not begun in time.
    """

    settings: Settings
    suites: Mapping[str, GeneratedSuite]
    records: Mapping[CellKey, Record]
    alone: frozenset[CellKey]
    compilers: tuple[str, ...]
    planned: int
    seconds: float


def generate(options: GenerateOptions, log: Callable[[str], None]) -> Generation:
    """Carry out a generation, or continue the one in the folder; `log` receives a line a minute.

    Raises UsageError for unknown compilers and operators, and for a folder with other programs.
    """
    began = time.monotonic()
    own = None if options.compilers_from is None else _declaring(options.compilers_from)
    compilers = _compilers(options, own)
    settings = Settings(
        seed=options.seed,
        source=options.source,
        device=options.device,
        dtype=_dtype(options.dtype),
        samples=options.samples,
        forms=options.forms or tuple(FORMS),
        torch=installed_torch(),
    )
    deadline = None if options.minutes is None else began + 60 * options.minutes
    limits = Limits(options.timeout, options.memory, deadline)
    with GeneratedFolder(options.results, settings) as folder:
        make = _of_operators if options.source == "operators" else _of_python
        suites = [folder.suites[subject] for subject in make(options, folder, log)]
        cells = _cells(folder, suites, compilers, own)
        missing = [cell for cell in cells if cell.key not in folder.screened]
        if missing and not limits.passed:
            _screen(options, folder, missing, compilers, limits, log)
        wanted = {cell.key for cell in cells}
        _run_alone(options, folder, wanted, own, log)
        alone = {key: record for key, record in folder.alone().items() if key in wanted}
        records = {key: record for key, record in folder.screened.items() if key in wanted} | alone
        made = {suite.subject: suite for suite in suites}
        seconds = time.monotonic() - began
        return Generation(settings, made, records, frozenset(alone), compilers, len(cells), seconds)


def _declaring(path: Path) -> SuiteInfo:
    """Return what a file declares; raises UsageError if it cannot be executed, or declares no compiler."""
    (file,) = find_suites((str(path),)).suites
    with WorkerPool(device="cpu", jobs=1, imports=(cell_tasks.__name__,)) as pool:
        (suite,) = collect_suites(pool, (file,))
    if suite.error is not None or not suite.compilers:
        raise UsageError(f"{path}: {suite.error or 'it declares no compiler'}")
    clash = sorted(builtin_compilers().keys() & set(suite.compilers))
    if clash:
        raise UsageError(f"{path}: compiler {clash[0]!r} exists already; choose another name")
    return suite


def _compilers(options: GenerateOptions, own: SuiteInfo | None) -> tuple[str, ...]:
    """Return the compilers to compare: the named ones, else those of the file, else those that are for this tool."""
    ours = builtin_compilers()
    known = [*ours, *(own.compilers if own is not None else ())]
    for name in options.compilers:
        if name not in known:
            raise UsageError(f"unknown compiler {name!r}{did_you_mean(name, known)}")
    if options.compilers:
        return tuple(dict.fromkeys(options.compilers))
    if own is not None:
        return tuple(own.compilers)
    return tuple(name for name, compiler in ours.items() if "generate" in compiler.run_by)


def _dtype(name: str) -> str:
    known = ("float32", "float64", "float16", "bfloat16", "complex64", "complex128", "int64", "int32", "int8", "bool")
    if name not in known:
        raise UsageError(f"unknown dtype {name!r}{did_you_mean(name, known)}; it is one of {', '.join(known)}")
    return name


def _of_python(options: GenerateOptions, folder: GeneratedFolder, log: Callable[[str], None]) -> list[str]:
    """Make the programs of Python that the folder lacks; return the subjects of their files."""
    files = -(-options.programs // IN_A_FILE)
    requests = [PythonRequest(number, options.seed, IN_A_FILE) for number in range(files)]
    missing = [request for request in requests if request.subject not in folder.suites]
    if missing:
        log(f"making {len(missing)} files of {IN_A_FILE} programs")
        with WorkerPool(device="cpu", jobs=options.jobs, imports=(tasks.__name__,)) as pool:
            MakingPrograms(pool, missing, options.jobs, folder.add_suite).run()
    return [request.subject for request in requests]


def _of_operators(options: GenerateOptions, folder: GeneratedFolder, log: Callable[[str], None]) -> list[str]:
    """Make the programs of operators that the folder lacks; return the names of the operators."""
    if options.operators and set(options.operators) <= folder.suites.keys():
        return list(dict.fromkeys(options.operators))
    with WorkerPool(device="cpu", jobs=options.jobs, imports=(tasks.__name__, DATABASE)) as pool:
        names = pool.client.run(tasks.NAMES, None, list[str], timeout=NAMES_SECONDS, memory=options.memory)
        if isinstance(names, Ended):
            raise EnvironmentUnfitError(f"torch's samples cannot be imported: {cause_of_death(names)}")
        for name in options.operators:
            if name not in names:
                raise UsageError(f"torch has no samples of an operator {name!r}{did_you_mean(name, names)}")
        chosen = list(dict.fromkeys(options.operators or names))
        settings = folder.settings
        requests: list[SuiteRequest] = [
            OperatorRequest(name, settings.device, settings.dtype, settings.seed, settings.samples, settings.forms)
            for name in chosen
            if name not in folder.suites
        ]
        if requests:
            log(f"making programs of {len(requests)} operators")
            MakingPrograms(pool, requests, options.jobs, folder.add_suite).run()
    return chosen


def _cells(
    folder: GeneratedFolder, suites: Iterable[GeneratedSuite], compilers: Iterable[str], own: SuiteInfo | None
) -> list[GeneratedCell]:
    """Return the cells of all programs that eager takes; the suites are in an order that the seed decides."""
    shuffled = sorted(suites, key=lambda suite: suite.subject)
    random.Random(folder.settings.seed).shuffle(shuffled)  # noqa: S311 - a short generation is a sample of all
    declared = frozenset(own.compilers if own is not None else ())
    return [
        GeneratedCell(
            CellSpec(
                suite=suite.name,
                path=str(folder.suite_path(suite)),
                case=program.name,
                compiler=compiler,
                device=folder.settings.device,
                compiler_suite=own.name if own is not None and compiler in declared else None,
                compiler_file=own.path if own is not None and compiler in declared else None,
            )
        )
        for suite in shuffled
        for program in suite.programs
        if program.refused is None
        for compiler in compilers
    ]


def _screen(
    options: GenerateOptions,
    folder: GeneratedFolder,
    cells: list[GeneratedCell],
    compilers: tuple[str, ...],
    limits: Limits,
    log: Callable[[str], None],
) -> None:
    began = last = time.monotonic()
    verdicts: Counter[str] = Counter()

    def receive(record: Record) -> None:
        nonlocal last
        folder.add_screened(record)
        verdicts[str(record.verdict.facts.group)] += 1
        now = time.monotonic()
        if now - last >= LOG_SECONDS:
            last = now
            log(_progress(verdicts, len(cells), now - began))

    ours = builtin_compilers()
    compiles = any(name in ours and ours[name].generates_code for name in compilers)
    # A user's own compiler may use anything of torch: it is not known to need no more than torch itself.
    modules = [] if ours.keys() >= set(compilers) else [DYNAMO]
    with WorkerPool(device=options.device, jobs=options.jobs, imports=(tasks.__name__,)) as pool:
        pool.prepare(preload_level(options.device, modules, set(compilers), compiles=compiles), modules)
        Screening(pool, cells, options.jobs, limits, receive).run()
    log(_progress(verdicts, len(cells), time.monotonic() - began))


def _progress(verdicts: Counter[str], planned: int, seconds: float) -> str:
    number = verdicts.total()
    counts = ", ".join(f"{count} {name}" for name, count in verdicts.most_common())
    pace = f"{60 * number / seconds:.0f} a minute" if seconds else ""
    return f"{duration_text(seconds)}: {number} of {planned} cells, {counts}; {pace}"


def _run_alone(
    options: GenerateOptions,
    folder: GeneratedFolder,
    wanted: set[CellKey],
    own: SuiteInfo | None,
    log: Callable[[str], None],
) -> None:
    """Run some members of each family again, each in a process of its own, as a run does, and record them.

    Where those pass, the cells before them in the same process were the cause, and other members follow.
    """
    operators = {suite.name: suite.subject for suite in folder.suites.values()}
    paths = {suite.name: folder.suite_path(suite) for suite in folder.suites.values()}
    declaring = () if own is None else (SuiteFile(own.name, Path(own.path)),)
    for _ in range(MOST_ROUNDS):
        chosen = _to_run_alone(folder, operators, wanted)
        if not chosen:
            return
        log(f"running {len(chosen)} cells alone")
        addresses = tuple((*_parts(key), key.compiler) for key in chosen)
        files = [SuiteFile(suite, paths[suite]) for suite in dict.fromkeys(suite for suite, _, _ in addresses)]
        run = RunOptions(
            selection=Selection((*files, *declaring), addresses, frozenset()),
            results=options.results / RECORDS,
            device=options.device,
            jobs=options.jobs,
            timeout=options.timeout,
            memory=options.memory,
            resume=True,
        )
        run_cells(run, NoProgress(), log)


def _to_run_alone(folder: GeneratedFolder, operators: dict[str, str], wanted: set[CellKey]) -> list[CellKey]:
    """Return the cells that shall run alone: as many of each family and compiler as are missing."""
    alone = folder.alone()
    members: dict[tuple[FamilyKey, str], list[CellKey]] = defaultdict(list)
    for key, record in folder.screened.items():
        if key in wanted and record.verdict not in RIGHT:
            members[family_of(record, operators[_parts(key)[0]]), key.compiler].append(key)
    chosen: list[CellKey] = []
    for keys in members.values():
        holding = [key for key in keys if key in alone and alone[key].verdict not in RIGHT]
        missing = [key for key in keys if key not in alone]
        chosen += missing[: max(ALONE - len(holding), 0)]
    return chosen


def _parts(key: CellKey) -> tuple[str, str]:
    suite, _, case = key.case.partition("::")
    return suite, case


class NoProgress:
    """Receives the progress of a run and says nothing (implements `recapture.run.runner.CellProgress`)."""

    def start(self, likely: Mapping[str, float], jobs: int, *, guessed: bool) -> None:
        """Do nothing."""

    def cell_started(self, cell: str) -> None:
        """Do nothing."""

    def cell_finished(self, record: Record, seconds: float) -> None:
        """Do nothing."""
