"""Checks a target: prepares it in a child, writes its case, and runs the cheap compilers before the others."""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from recapture.base.errors import EnvironmentUnfitError, UsageError, did_you_mean
from recapture.base.option_fields import GIB
from recapture.cases.collection import Selection, SuiteFile
from recapture.cases.compilers import builtin_compilers, compiler_facts
from recapture.command.command_table import of_tools
from recapture.machine.hardware import cores
from recapture.pool.client import ServerDiedError
from recapture.pool.protocol import Ended
from recapture.pool.worker_pool import WorkerPool, cause_of_death
from recapture.records.verdicts import RIGHT
from recapture.run.plan import RunOptions
from recapture.run.preparation import COLLECT_MEMORY, IMPORTS, begin_survey
from recapture.run.runner import run_cells
from recapture.tools.check.case_text import SUITE, Prepared, case_file, case_name
from recapture.tools.check.derivation import NO_GPU, PREPARE, Preparation
from recapture.tools.check.obstacles import OBSTACLES, Obstacle, ObstacleSearch
from recapture.tools.check.request import CheckRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from typing_extensions import Self

    from recapture.records.record import Record

OF_A_BACKWARD = "torch.fx.experimental.symbolic_shapes"
"""What the first backward of a process imports, with sympy: a second of CPU time that every cell would need."""

PREPARE_SECONDS = 300.0
"""Seconds that loading a target and trying its derived inputs in eager may take."""

SHARE_OF_EAGER = 0.5
"""Part of a compiler's memory that eager may need for a derived input: the cell keeps results, and repeats eager."""

MOST_DEATHS = 5
"""The most derived inputs that may kill the process that tries them."""


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """How a check runs; `timeout` is in seconds and `memory` in bytes, both per compiler."""

    compilers: tuple[str, ...] = ()
    device: str = "cpu"
    jobs: int = dataclasses.field(default_factory=cores)
    timeout: float = 600.0
    memory: int = 16 * GIB
    worker: Literal["auto", "fork", "fresh"] = "auto"


class CheckSession:
    """One target that is checked; use it as a context manager.

    `folder` is where the generated case and its records are; without it, they are in a temporary folder that is removed
    at the end.
    """

    def __init__(self, request: CheckRequest, options: CheckOptions, folder: Path | None = None) -> None:
        self.request = request
        self.options = options
        self.compilers = compilers_of_check(options.compilers, request)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="recapture-check-")
            folder = Path(self._temporary.name)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder.resolve()
        self.path = self.folder / f"{SUITE}.py"
        self.prepared = Prepared()
        self.wants_scripts = False
        self.scripts: dict[str, str] = {}
        """Scripts of the compilers that are not right, if they are wanted."""
        self.wants_obstacles = False
        self.obstacles: tuple[Obstacle, ...] = ()
        """The lines of the target that stand in the way of compilers, if they are wanted."""
        self.image = ""
        self.torch = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()

    def run(
        self,
        announce: Callable[[Prepared], object],
        finished: Callable[[Record, float], object],
        warn: Callable[[str], None],
    ) -> list[Record]:
        """Run every compiler and return the records in the order of the compilers.

        `announce` is called with what is known about the target before the first compiler runs, `finished` with each
        record and the seconds of its process. Raises UsageError, in one line, for a target or an input that cannot be
        used.
        """
        options = self.options
        imports = (*IMPORTS, *(task.partition(":")[0] for task in (PREPARE, OBSTACLES)))
        with WorkerPool(device=options.device, jobs=options.jobs, worker=options.worker, imports=imports) as pool:
            begin_survey(pool)
            pool.client.preload("bare", [OF_A_BACKWARD])
            self.prepared = self._prepare(pool)
            self.path.write_text(case_file(self.request, self.prepared), encoding="utf-8")
            announce(self.prepared)
            found: dict[str, Record] = {}
            cheap = tuple(one for one in self.compilers if compiler_facts(one).torch_alone)
            others = tuple(one for one in self.compilers if not compiler_facts(one).torch_alone)
            for compilers in filter(None, (cheap, others)):
                run = RunOptions(
                    selection=Selection((SuiteFile(SUITE, self.path),), ((SUITE, None, None),), frozenset({SUITE})),
                    compilers=compilers,
                    device=options.device,
                    jobs=options.jobs,
                    timeout=options.timeout,
                    memory=options.memory,
                    results=self.folder / "results",
                    worker=options.worker,
                    words=(self.request.title,),
                )
                summary = run_cells(run, _Listener(finished), warn, opened=pool)
                self.image, self.torch = summary.environment.image, summary.environment.torch.version
                found |= {record.compiler: record for record in summary.selected}
            if self.wants_scripts:
                wrong = [name for name in self.compilers if found[name].verdict not in RIGHT]
                self.scripts = {name: self._script(pool, name) for name in wrong}
            if self.wants_obstacles:
                self.obstacles = self._obstacles(pool)
        return [found[name] for name in self.compilers]

    def _obstacles(self, pool: WorkerPool) -> tuple[Obstacle, ...]:
        found: list[Obstacle] = []
        for compiler in self.compilers:  # one process each: a crash or a long compilation costs one of them
            search = ObstacleSearch(self.request, (compiler,))
            try:
                answer = pool.client.run(
                    OBSTACLES,
                    search,
                    list[Obstacle],
                    timeout=min(PREPARE_SECONDS, self.options.timeout),
                    memory=max(COLLECT_MEMORY, self.options.memory),
                )
            except ServerDiedError:
                pool.restart()
                continue
            if isinstance(answer, Ended):
                found.append(Obstacle(compiler=compiler, kind="refused", reason=cause_of_death(answer)))
            else:
                found += answer
        return tuple(found)

    def _script(self, pool: WorkerPool, compiler: str) -> str:
        case, suite = case_name(self.prepared.name), SuiteFile(SUITE, self.path)
        printers = of_tools("script of a cell")
        if not printers:
            return "# no script can be printed: the tool that prints scripts is not installed\n"
        try:
            return str(printers[0](pool, suite, case, compiler, self.options.device, self.folder / "results"))
        except UsageError as error:
            return f"# no script can be printed: {error}\n"

    def _prepare(self, pool: WorkerPool) -> Prepared:
        without: tuple[str, ...] = ()
        whole = max(COLLECT_MEMORY, self.options.memory)
        memory = max(COLLECT_MEMORY, int(whole * SHARE_OF_EAGER))
        while True:
            try:
                answer = pool.client.run(
                    PREPARE,
                    Preparation(self.request, without),
                    Prepared,
                    timeout=PREPARE_SECONDS,
                    memory=memory,
                )
            except ServerDiedError:
                pool.restart()
                raise UsageError(f"{self.request.title} killed the worker server when it was loaded") from None
            if not isinstance(answer, Ended):
                if answer.error is not None:
                    raise _error(answer.error)
                return answer
            phase = answer.phase or ""
            if phase == "reference" and answer.cause == "memory" and memory < whole:
                memory = whole  # the example itself is that large
                continue
            if phase in ("", "reference") or phase in without or len(without) == MOST_DEATHS:
                last = (answer.stderr.strip().splitlines() or [""])[-1]
                raise UsageError(f"{self.request.title} cannot run in eager: {cause_of_death(answer)} {last}".rstrip())
            without = (*without, phase)


def _error(text: str) -> UsageError | EnvironmentUnfitError:
    """Return the error for a target that cannot be checked: an absent package or GPU is the environment's."""
    return EnvironmentUnfitError(text) if text == NO_GPU or "is not installed" in text else UsageError(text)


def compilers_of_check(wanted: tuple[str, ...], request: CheckRequest) -> tuple[str, ...]:
    """Return the compilers of a check, those that generate no code first. Raises UsageError for an unknown one."""
    known = builtin_compilers()
    for name in wanted:
        if name not in known and name != "all":
            raise UsageError(f"unknown compiler {name!r}{did_you_mean(name, known)}")
    if "all" in wanted:
        chosen = [name for name, one in known.items() if not one.optional]
    elif wanted:
        chosen = [name for name in known if name in wanted]
    else:
        chosen = [name for name, one in known.items() if "check" in one.run_by]
        chosen = [name for name in chosen if not (request.train and known[name].inference_only)]
    return tuple(sorted(chosen, key=lambda name: (known[name].generates_code, not known[name].torch_alone)))


class _Listener:
    """Passes on finished records (implements `recapture.run.runner.CellProgress`)."""

    def __init__(self, finished: Callable[[Record, float], object]) -> None:
        self._finished = finished

    def start(self, total: int, estimate_seconds: float | None, expected: Mapping[str, float]) -> None:
        """Ignore the number of cells: the caller knows its compilers."""

    def cell_started(self, cell: str) -> None:
        """Ignore the start of a cell."""

    def cell_finished(self, record: Record, seconds: float) -> None:
        """Pass on a finished record."""
        self._finished(record, seconds)
