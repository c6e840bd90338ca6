"""A generation: makes programs, screens them with every compiler, and runs alone what did not pass."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.text import duration_text
from recapture.cases.collection import DYNAMO, SuiteInfo, find_suites
from recapture.cases.compilers import EAGER, builtin_compilers
from recapture.pool.worker_pool import WorkerPool
from recapture.records.record import CellKey, Record
from recapture.records.verdicts import RIGHT
from recapture.run import tasks as cell_tasks
from recapture.run.cell import CellSpec
from recapture.run.preparation import collect_suites, preload_level
from recapture.tools.generate import tasks
from recapture.tools.generate.alone import run_alone
from recapture.tools.generate.folder import GeneratedFolder, Settings
from recapture.tools.generate.generate_options import GenerateOptions
from recapture.tools.generate.making import make_operator_programs, make_python_programs
from recapture.tools.generate.operator_programs import FORMS
from recapture.tools.generate.python_programs import REWRITTEN
from recapture.tools.generate.screening import GeneratedCell, Limits, Screening
from recapture.tools.generate.settings_axis import settings_text
from recapture.tools.generate.suite_files import GeneratedSuite
from recapture.torch_api.compat import installed_torch

LOG_SECONDS = 60.0
"""Seconds between two lines of the log."""


@dataclass(frozen=True)
class Generation:
    """What a generation has found: its programs by subject, and the last record of each cell.

    `declared` is the file that declares some of the compilers. `alone` are the cells that ran in a process of their
    own. `planned` is the number of cells of all programs; the others were not begun in time.
    """

    settings: Settings
    suites: Mapping[str, GeneratedSuite]
    records: Mapping[CellKey, Record]
    alone: frozenset[CellKey]
    compilers: tuple[str, ...]
    declared: SuiteInfo | None
    planned: int
    seconds: float


def generate(options: GenerateOptions, log: Callable[[str], None]) -> Generation:
    """Carry out a generation, or continue the one in the folder; `log` receives a line a minute.

    Raises UsageError for unknown compilers and operators, and for a folder with other programs.
    """
    began = time.monotonic()
    if options.settings is not None and (options.compilers or options.compilers_from):
        raise UsageError("--settings chooses the compilers: give neither --compiler nor --compilers-from with it")
    declared = None if options.compilers_from is None else _declaring(options.compilers_from)
    compilers = _compilers(options, declared) if options.settings is None else ()
    settings = Settings(
        seed=options.seed,
        source=options.source,
        device=options.device,
        dtype=options.dtype,
        samples=options.samples,
        forms=options.forms or tuple(FORMS),
        without=options.without,
        torch=installed_torch(),
    )
    deadline = None if options.minutes is None else began + 60 * options.minutes
    limits = Limits(options.timeout, options.memory, deadline, options.until)
    with GeneratedFolder(options.results, settings) as folder:
        if options.settings is not None:
            text = settings_text(options.settings, options.seed)
            declared = _declaring(folder.write_compilers(text))
            compilers = tuple(declared.compilers)
        make = make_operator_programs if options.source == "operators" else make_python_programs
        suites = [folder.suites[subject] for subject in make(options, folder, log)]
        cells = _cells(folder, suites, compilers, declared)
        planned = {cell.key for cell in cells}
        missing = [cell for cell in cells if cell.key not in folder.screened]
        if missing and not limits.passed:
            _screen(options, folder, missing, compilers, limits, log)
        run_alone(options, folder, planned, declared, log)
        alone = {key: record for key, record in folder.alone().items() if key in planned}
        return Generation(
            settings=settings,
            suites={suite.subject: suite for suite in suites},
            records={key: record for key, record in folder.screened.items() if key in planned} | alone,
            alone=frozenset(alone),
            compilers=tuple(dict.fromkeys(cell.spec.compiler for cell in cells)) or compilers,
            declared=declared,
            planned=len(cells),
            seconds=time.monotonic() - began,
        )


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


def _compilers(options: GenerateOptions, declared: SuiteInfo | None) -> tuple[str, ...]:
    """Return the compilers to compare: the named ones, else those of the file, else those that are for this tool."""
    shipped = builtin_compilers()
    known = [*shipped, *(declared.compilers if declared is not None else ())]
    for name in options.compilers:
        if name not in known:
            raise UsageError(f"unknown compiler {name!r}{did_you_mean(name, known)}")
    if options.compilers:
        return tuple(dict.fromkeys(options.compilers))
    if declared is not None:
        return tuple(declared.compilers)
    return tuple(name for name, compiler in shipped.items() if "generate" in compiler.run_by)


def _cells(
    folder: GeneratedFolder, suites: Iterable[GeneratedSuite], compilers: tuple[str, ...], declared: SuiteInfo | None
) -> list[GeneratedCell]:
    """Return the cells of all programs that eager takes; the suites are in an order that the seed decides.

    The second spelling of a program also runs in eager, which shows whether it means the same.
    """
    shuffled = sorted(suites, key=lambda suite: suite.subject)
    random.Random(folder.settings.seed).shuffle(shuffled)  # noqa: S311 - a short generation is a sample of all
    names = frozenset(declared.compilers if declared is not None else ())
    return [
        GeneratedCell(
            CellSpec(
                suite=suite.name,
                path=str(folder.suite_path(suite)),
                case=program.name,
                compiler=compiler,
                device=folder.settings.device,
                compiler_suite=declared.name if declared is not None and compiler in names else None,
                compiler_file=declared.path if declared is not None and compiler in names else None,
            )
        )
        for suite in shuffled
        for program in suite.programs
        if program.refused is None
        for compiler in dict.fromkeys([*([EAGER] if program.form == REWRITTEN else []), *compilers])
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
        limits.failures += record.verdict not in RIGHT
        now = time.monotonic()
        if now - last >= LOG_SECONDS:
            last = now
            log(_progress(verdicts, len(cells), now - began))

    shipped = builtin_compilers()
    compiles = any(name in shipped and shipped[name].generates_code for name in compilers)
    # A user's own compiler may use anything of torch: it is not known to need no more than torch itself.
    modules = [] if shipped.keys() >= set(compilers) else [DYNAMO]
    with WorkerPool(device=options.device, jobs=options.jobs, imports=(tasks.__name__,)) as pool:
        pool.prepare(preload_level(options.device, modules, set(compilers), compiles=compiles), modules)
        Screening(pool, cells, options.jobs, limits, receive).run()
    log(_progress(verdicts, len(cells), time.monotonic() - began))


def _progress(verdicts: Counter[str], planned: int, seconds: float) -> str:
    number = verdicts.total()
    counts = ", ".join(f"{count} {name}" for name, count in verdicts.most_common())
    pace = f"{60 * number / seconds:.0f} a minute" if seconds else ""
    return f"{duration_text(seconds)}: {number} of {planned} cells, {counts}; {pace}"
