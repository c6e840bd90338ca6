"""Looks for what cannot be true in results: a wrong lock, missing cells, edited records, impossible values.

The yardstick is the committed results. None of this proves that results are true: who forges records with care, and
renders them again, is not found. It finds mistakes, and what a careless hand changed.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from packaging.version import Version

from recapture.base.errors import RecaptureError, UsageError
from recapture.base.text import plural
from recapture.cases.compilers import EAGER, builtin_compilers
from recapture.command.command_table import of_tools
from recapture.machine.image_match import image_for, pinned_images
from recapture.records.directories import Results, read_results
from recapture.records.record import CONFORMANCE, TIMINGS, CellKey, read_jsonl, write_jsonl
from recapture.records.record import Timing as TimingRow
from recapture.records.releases import is_bare, read_by_age, torch_version
from recapture.records.verdicts import NOT_RUN, Verdict
from recapture.report.conformance_report import write_report
from recapture.tools.contribute.suite_sources import hashes_at

SHOWN = 4
"""The most cells that a message names."""

SETTLED_RELEASES = 10
"""A cell that ends alike on at least so many recorded releases is expected to end so here."""

MOST_UNSETTLED = 0.1
"""The share of such cells that may end otherwise: a new release changes some, not many.

Of the committed results the first release, 2.0.1, has the most, 6.8 %: what all later ones share came after it.
"""

FEWEST_SETTLED = 20
"""With fewer such cells the share says nothing."""


class Problem(msgspec.Struct, frozen=True):
    """Something that cannot be true, by the rule that found it."""

    rule: str
    message: str


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What was verified, where it says that it comes from, and the problems; none if nothing is wrong."""

    directory: str
    image: str
    capability: str
    torch: str
    cells: int
    lock_hash: str | None
    image_digest: str
    suite_commit: str | None
    hardware: str
    problems: tuple[Problem, ...]


def verify(directory: Path, references: Sequence[Results]) -> Verified:
    """Verify one results directory against others. Raises UsageError if it has no records that can be read."""
    try:
        results = read_results(directory)
    except RecaptureError as error:
        return Verified(
            directory=str(directory),
            image=directory.resolve().parent.name,
            capability=directory.resolve().name,
            torch="unknown",
            cells=0,
            lock_hash=None,
            image_digest="unknown",
            suite_commit=None,
            hardware="unknown",
            problems=(Problem("reading", str(error)),),
        )
    others = [other for other in references if other.directory.resolve() != directory.resolve()]
    environment = results.environment
    gpu = environment.gpu.name if environment and environment.gpu else None
    return Verified(
        directory=str(directory),
        image=results.image,
        capability=results.capability,
        torch=torch_version(results),
        cells=len(results.records),
        lock_hash=environment.lock_hash if environment else None,
        image_digest=environment.image_digest if environment else "unknown",
        suite_commit=environment.suite_commit if environment else None,
        hardware=gpu or (environment.cpu.model if environment else None) or "unknown",
        problems=(
            *_environment(results),
            *_files(results),
            *_timings(results),
            *_cells(results, others),
            *_values(results),
            *_settled(results, others),
        ),
    )


def read_references(root: Path) -> list[Results]:
    """Return the results to compare with, oldest release first; none if the folder does not exist."""
    return read_by_age(root) if root.is_dir() else []


# Where it was measured


def _environment(results: Results) -> Iterator[Problem]:
    environment = results.environment
    if environment is None:
        yield Problem("environment", "environment.json is missing: nothing says where this was measured")
        return
    if results.misfiled:
        yield Problem("filing", results.misfiled)
    pinned = pinned_images(torch=environment.torch.version)
    match = image_for(environment.packages, environment.python, pinned, cuda=environment.torch.cuda)
    if match.image != environment.image:
        differing = "; ".join(match.mismatches) or f"the packages are those of {match.image}"
        yield Problem("lock", f"filed as {environment.image}, but {differing}")
    elif match.lock_hash != environment.lock_hash:
        yield Problem("lock", f"the lock of {environment.image} is {match.lock_hash}, not {environment.lock_hash}")
    on_gpu = environment.capability != "cpu"
    if on_gpu != (environment.device == "cuda"):
        yield Problem("device", f"the capability is {environment.capability}, the device {environment.device}")
    if on_gpu and environment.gpu is None:
        yield Problem("device", f"the capability is {environment.capability}, and no GPU is described")
    strange = {record.device for record in results.records} - {environment.device}
    if strange:
        yield Problem(
            "device", f"records of {', '.join(sorted(strange))} beside an environment of {environment.device}"
        )


# What stands in the files


def _files(results: Results) -> Iterator[Problem]:
    """Yield files that recapture would write otherwise: somebody edited them, or another version wrote them."""
    with tempfile.TemporaryDirectory(prefix="recapture-verify-") as name:
        # The report names the folder and its parent, so the copy has the same names.
        copy = Path(name) / results.directory.resolve().parent.name / results.directory.resolve().name
        copy.mkdir(parents=True)
        for path in results.directory.iterdir():
            if path.suffix in (".json", ".jsonl") and path.is_file():
                shutil.copyfile(path, copy / path.name)
        records = sorted(results.records, key=lambda record: (record.case, record.compiler, record.device))
        write_jsonl(copy / "again.jsonl", records)
        if (copy / "again.jsonl").read_bytes() != (results.directory / CONFORMANCE).read_bytes():
            yield Problem("edited", f"{CONFORMANCE} has not the bytes that recapture writes for its records")
        (copy / "again.jsonl").unlink()
        try:
            write_report(copy)
            for addition in of_tools("additions to report"):
                for path in addition().find(copy):
                    addition().render(path, None)
        except UsageError as error:
            yield Problem("reading", str(error).replace(str(copy), str(results.directory)))
        for path in sorted(results.directory.glob("*.md")):
            rendered = copy / path.name
            if rendered.is_file() and rendered.read_bytes() != path.read_bytes():
                yield Problem("edited", f"{path.name} is not what its data render to: `recapture report` writes it")


def _timings(results: Results) -> Iterator[Problem]:
    path = results.directory / TIMINGS
    if not path.is_file():
        yield Problem("timings", f"{TIMINGS} is missing")
        return
    try:
        rows = read_jsonl(path, TimingRow)
    except RecaptureError as error:
        yield Problem("reading", str(error))
        return
    times = Counter(row.key for row in rows)
    twice = [key for key, count in times.items() if count > 1]
    if twice:
        yield Problem("timings", f"timed twice: {_some(twice)}")
    recorded = {record.key for record in results.records}
    if extra := times.keys() - recorded:
        yield Problem("timings", f"timed without a record: {_some(extra)}")
    if untimed := recorded - times.keys():
        yield Problem("timings", f"recorded without a time: {_some(untimed)}")
    if timeless := [row.key for row in rows if not row.seconds > 0]:
        yield Problem("timings", f"no time at all: {_some(timeless)}")


# The cells


def _cells(results: Results, others: Sequence[Results]) -> Iterator[Problem]:
    """Yield cells that are missing, and cases whose source is none that was ever recorded."""
    recorded = {(record.case, record.compiler) for record in results.records}
    cases = {case for case, _ in recorded}
    suites = {case.partition("::")[0] for case in cases}
    beside = [other for other in others if other.capability == results.capability] or list(others)
    nearest = min(beside, key=lambda other: _distance(other, results), default=None)
    for other in [nearest] if nearest is not None else []:
        expected = {
            (record.case, record.compiler) for record in other.records if record.case.partition("::")[0] in suites
        }
        # A compiler that was not asked for is no gap; a cell of one that was is.
        compilers_recorded = {compiler for _, compiler in recorded}
        missing = sorted(cell for cell in expected - recorded if cell[1] in compilers_recorded)
        if missing:
            names = [CellKey(case, compiler, "") for case, compiler in missing]
            yield Problem(
                "missing", f"{plural(len(missing), 'cell')} of {other.image} on {other.capability} not: {_some(names)}"
            )
    hashes: dict[str, set[str]] = defaultdict(set)
    for record in results.records:
        hashes[record.case].add(record.case_hash)
    if several := sorted(case for case, values in hashes.items() if len(values) > 1):
        yield Problem("case", f"cells of one case from different sources: {', '.join(several[:SHOWN])}")
    known: dict[str, list[set[str]]] = defaultdict(list)
    for other in others:
        of_other: dict[str, set[str]] = defaultdict(set)
        for record in other.records:
            of_other[record.case].add(record.case_hash)
        for case, values in of_other.items():
            known[case].append(values)
    commit = results.environment.suite_commit if results.environment else None
    edited = sorted(
        case
        for case, values in hashes.items()
        if len(known[case]) > 1
        and not values & set().union(*known[case])
        # A case that was changed since, or later than the other results, has the source of the commit it names.
        and not values & hashes_at(commit, case)
    )
    if edited:
        yield Problem(
            "case",
            "neither the source that committed results have nor that of the suites at commit "
            f"{commit or '(none is named)'}: {', '.join(edited[:SHOWN])}",
        )


def _distance(other: Results, results: Results) -> tuple[int, float]:
    """Return how far the release of other results is away; those with packages that no image pins come last."""
    release, beside = (Version(torch_version(side).split("+")[0]) for side in (results, other))
    return is_bare(other.image), abs((release.minor - beside.minor) + 0.1 * (release.micro - beside.micro))


def _values(results: Results) -> Iterator[Problem]:
    """Yield verdicts that this release cannot give."""
    compilers = builtin_compilers()
    version = Version(Version(torch_version(results).split("+")[0]).base_version)
    early = [
        record.key
        for record in results.records
        if record.verdict is not Verdict.NOT_APPLICABLE
        and (compiler := compilers.get(record.compiler)) is not None
        and compiler.since is not None
        and version < Version(compiler.since)
    ]
    if early:
        yield Problem("impossible", f"ran with a compiler that this torch does not have: {_some(early)}")
    referenced = {record.case for record in results.records if record.compiler == EAGER}
    unreferenced = sorted({record.case for record in results.records} - referenced)
    if referenced and unreferenced:
        yield Problem(
            "impossible", "no cell of eager itself, which other cases have: " + ", ".join(unreferenced[:SHOWN])
        )
    unbroken = [
        record.key
        for record in results.records
        if record.verdict is Verdict.PASS_WITH_BREAKS and not record.graph_breaks and not record.break_reasons
    ]
    if unbroken:
        yield Problem("impossible", f"a broken graph without a break: {_some(unbroken)}")


def _settled(results: Results, others: Sequence[Results]) -> Iterator[Problem]:
    """Yield a doubt where too many cells end otherwise that end alike on every release and device that is recorded."""
    verdicts: dict[tuple[str, str], dict[str, Verdict]] = defaultdict(dict)
    ends: dict[tuple[str, str], set[Verdict]] = defaultdict(set)
    for other in others:
        release = torch_version(other)
        for record in other.records:
            if record.verdict not in NOT_RUN:
                verdicts[record.case, record.compiler][release] = record.verdict
                ends[record.case, record.compiler].add(record.verdict)
    settled = {cell for cell, values in ends.items() if len(values) == 1 and len(verdicts[cell]) >= SETTLED_RELEASES}
    checked = [record for record in results.records if (record.case, record.compiler) in settled]
    checked = [record for record in checked if record.verdict not in NOT_RUN]
    odd = [record.key for record in checked if {record.verdict} != ends[record.case, record.compiler]]
    if len(checked) >= FEWEST_SETTLED and len(odd) > MOST_UNSETTLED * len(checked):
        yield Problem(
            "implausible",
            f"{len(odd)} of {len(checked)} cells that end alike on every recorded release end otherwise: {_some(odd)}",
        )


def _some(keys: Iterable[CellKey]) -> str:
    names = sorted(f"{key.case}::{key.compiler}" for key in keys)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
