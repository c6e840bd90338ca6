"""The plan of a run: its options, and the cells that they select."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.option_fields import argument, option
from recapture.base.paths import data_folder
from recapture.cases.collection import Selection, find_suites
from recapture.cases.compilers import EAGER, builtin_compilers
from recapture.cases.name_filter import matcher
from recapture.known.issues import chosen_issues
from recapture.records.artifact_folders import artifacts_folder
from recapture.records.record import CellKey
from recapture.run.cell import EXAMINE, CellSpec
from recapture.run.cell_options import CellOptions
from recapture.run.shards import Shard, parse_shard

if TYPE_CHECKING:
    from collections.abc import Collection

    from recapture.cases.collection import CaseInfo, SuiteInfo


@dataclass(frozen=True, kw_only=True)
class RunOptions(CellOptions):
    """The options of `recapture run`."""

    selection: Selection = argument("[SUITE|FILE|CELL]...", parse=find_suites)
    keyword: Callable[[str], bool] | None = option(
        "-k",
        default=None,
        metavar="EXPR",
        parse=matcher,
        help="Only cases whose suite::name matches: words, and, or, not.",
    )
    issues: tuple[str, ...] = option(
        "--issue", default=(), metavar="NUMBER", help="Only cases of this known issue; may be given several times."
    )
    results: Path = option("--results", default=Path("results"), help="Folder for the results of all images.")
    resume: bool = option(
        "--resume",
        default=False,
        help="Run only cells that are missing, were edited, or failed because of the machine.",
    )
    shard: Shard | None = option(
        "--shard", default=None, metavar="I/N", parse=parse_shard, help="Only part I of N; recapture merge joins them."
    )
    durations: Path | None = option(
        "--durations", default=None, help="Durations that divide a run into shards. [default: the committed results]"
    )
    worker: Literal["auto", "fork", "fresh"] = option(
        "--worker", default="auto", show_default=False, help="How cells get a process."
    )
    examiner: str = EXAMINE
    """The function that runs each cell in its process, as ``module:function``."""
    artifacts: Path | None = None
    """The folder that receives each cell's graphs and generated code, in a folder by suite, case and compiler."""
    words: tuple[str, ...] = ()
    """The selection as typed on the command line; it is written to the environment."""

    @property
    def whole(self) -> bool:
        """Whether the run has no selection: all suites, cases and default compilers."""
        unrestricted = not self.selection.addresses and self.keyword is None and not self.compilers and not self.issues
        return unrestricted and self.shard is None

    @property
    def durations_place(self) -> Path:
        """The file or folder with the durations that divide a run into shards."""
        return self.durations or data_folder("results")

    def check_durations(self) -> None:
        """Raise UsageError if the durations do not exist, or divide nothing.

        The same if this run would change them: then the next shard would divide the run in another way.
        """
        if self.shard is None:
            if self.durations is not None:
                raise UsageError("--durations divides a run into shards: name one with --shard")
            return
        place = self.durations_place
        if self.durations is not None and not place.exists():
            raise UsageError(f"--durations {place} does not exist")
        if place.is_dir() and place.resolve() == self.results.resolve():
            raise UsageError(
                f"a shard would change the durations in {place} that divide the run: choose another folder with "
                "--results"
            )


@dataclass(frozen=True)
class PlannedCell:
    """One cell of the plan, which is recorded exactly once."""

    spec: CellSpec
    info: CaseInfo

    @property
    def key(self) -> CellKey:
        """The key that identifies the cell among a directory's records."""
        return self.spec.key

    @property
    def address(self) -> str:
        """The cell as written on the command line."""
        return self.spec.address

    def limit(self, usual: float) -> float:
        """Return the seconds that the cell may take: the case's own limit, or the run's `usual` one if that is less."""
        return min(usual, float(self.info.options.get("seconds", usual)))


def check_compilers(options: RunOptions, known: Collection[str]) -> None:
    """Raise UsageError, with the most similar known name, for an unknown requested compiler."""
    for name in [*options.compilers, *(how for _, _, how in options.selection.addresses if how)]:
        if name not in known:
            raise unknown_compiler(name, known)


def unknown_compiler(name: str, known: Collection[str]) -> UsageError:
    """Return the error for a compiler that is not known, with its name here or the most similar one."""
    others = {other: own for own, compiler in builtin_compilers().items() for other in compiler.also_called}
    own_name = others.get(name.lower())
    return UsageError(
        f"unknown compiler {name!r}" + (f"; here it is {own_name!r}" if own_name else did_you_mean(name, known))
    )


def refused_cases(options: RunOptions, suites: list[SuiteInfo]) -> list[str]:
    """Return a line for each selected case that is no part of the plan, because its declaration is invalid."""
    return [
        f"in suite {suite.name!r}, {case}"
        for suite in suites
        for case in suite.refused
        if options.selection.admits_case(suite.name, case.name)
        and (options.keyword is None or options.keyword(f"{suite.name}::{case.name}"))
    ]


def plan_cells(options: RunOptions, suites: list[SuiteInfo], failed: list[SuiteInfo]) -> list[PlannedCell]:
    """Return every selected cell of the collected suites.

    Raises UsageError for an unknown compiler or case, for a claim about an unknown compiler, and for an empty
    selection.
    """
    builtin = builtin_compilers()
    declared: dict[str, SuiteInfo] = {}
    for suite in suites:
        for name in suite.compilers:
            if name in declared:
                files = " and ".join(Path(other.path).name for other in (declared[name], suite))
                raise UsageError(f"{files} both declare a compiler {name!r}; choose another name in one of them")
            declared[name] = suite
    clash = sorted(builtin.keys() & declared)
    if clash:
        raise UsageError(
            f"{Path(declared[clash[0]].path).name}: compiler {clash[0]!r} exists already; choose another name"
        )
    known = [*builtin, *declared]
    check_compilers(options, known)
    addresses = {f"{suite.name}::{case.name}" for suite in suites for case in suite.cases}
    addresses |= {f"{suite.name}::{case.name}" for suite in suites for case in suite.refused}
    broken = {suite.name for suite in failed}
    for place, case_name, _ in options.selection.addresses:
        address = f"{place}::{case_name}"
        # A suite that cannot be imported has no cases to compare with. Its own error is shown instead.
        if case_name is not None and place not in broken and address not in addresses:
            raise UsageError(f"unknown case {address!r}{did_you_mean(address, addresses)}")
    tried = {case for issue in chosen_issues(options.issues) for case in issue.cases} if options.issues else None
    cells = []
    for suite in suites:
        for case in suite.cases:
            for what, names in (("claim of", case.claims), ("compilers names the", case.compilers or ())):
                absent = [name for name in names if name not in known]
                if absent:
                    near = did_you_mean(absent[0], known)
                    raise UsageError(f"case '{suite.name}::{case.name}': {what} unknown compiler {absent[0]!r}{near}")
            address = f"{suite.name}::{case.name}"
            if (options.keyword and not options.keyword(address)) or (tried is not None and address not in tried):
                continue
            for name in known:
                optional = name in builtin and builtin[name].only_when_named
                if not _is_selected(options, suite, case, name, optional=optional):
                    continue
                owner = declared.get(name)
                spec = CellSpec(
                    suite=suite.name,
                    path=suite.path,
                    case=case.name,
                    compiler=name,
                    device=options.device,
                    compiler_suite=owner.name if owner else None,
                    compiler_file=owner.path if owner else None,
                    examiner=options.examiner,
                    artifacts=_artifacts(options, suite.name, case.name, name),
                )
                cells.append(PlannedCell(spec, case))
    refused = refused_cases(options, suites)
    if not cells and refused:
        raise UsageError(f"nothing to run: {'; '.join(refused)}")
    if not cells and suites:
        raise UsageError("nothing to run: no case matches the selection")
    return cells


def _artifacts(options: RunOptions, *cell: str) -> str | None:
    """Return the folder for the artifacts of a cell: its suite, case and compiler."""
    return None if options.artifacts is None else str(artifacts_folder(options.artifacts.absolute(), *cell))


def _is_selected(options: RunOptions, suite: SuiteInfo, case: CaseInfo, compiler: str, *, optional: bool) -> bool:
    """Whether a cell is part of the plan. An address that names a compiler selects it whatever the case is about."""
    if not options.selection.admits(suite.name, case.name, compiler):
        return False
    if options.compilers and compiler not in options.compilers:
        return False
    if options.selection.names_cell(suite.name, case.name, compiler):
        return True
    # Eager always runs: that eager agrees with itself is what the other cells rest on.
    if case.compilers is not None and compiler not in (EAGER, *case.compilers):
        return False
    named = any(address[2] == compiler for address in options.selection.addresses)
    return not optional or named or compiler in options.compilers
