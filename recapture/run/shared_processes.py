"""Which cells run in one process, one after the other, because creating a CUDA context takes longer than a cell.

What a cell gives in a process that others had used before counts if the cell is known to end in this way on this
release of torch: if it ends as it did before, in a process of its own or on another device, then the cells before it
are not the cause. Otherwise it runs again, alone, and so its record is that of a process of its own.

Where no cell of a case is left, the process goes on with another case, of any suite, whose ends are known, too.

Of cells that never ran on this release, only those of one case share a process, only those that capture, and only while
each passes: what a cell leaves behind can then mislead no other case. In its order, a group begins with the cells that
are expected to pass: after one that does not, a new process may be needed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from recapture.base.errors import UsageError
from recapture.base.paths import data_folder
from recapture.cases.compilers import builtin_compilers
from recapture.machine.environment import ENVIRONMENT, read_environment
from recapture.records.record import CONFORMANCE, SCHEMA_VERSION, Record
from recapture.records.verdicts import Verdict
from recapture.run.durations import lines_of
from recapture.torch_api.compat import release

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from recapture.records.record import Phase
    from recapture.run.cell import CellResult
    from recapture.run.plan import PlannedCell

UNEVENTFUL = frozenset(verdict.value for verdict in Verdict if verdict.facts.uneventful)
"""Verdicts, as they are written, of cells in which nothing failed or differed."""

LONG = 25.0
"""Seconds above which a cell runs in a process of its own: a CUDA context costs it little, and long cells in one
process, one after the other, would be the last of a run.

A recorded duration includes the wait for a context: 10 to 11 seconds in the median, and up to 22, where 60 processes
begin at the same time. It must be below this limit: else a cell that once waited for a context would get one of its
own in every later run, so that all of them wait longer."""


LIKELY_TO_PASS = tuple(
    compiler.name
    for compiler in sorted(builtin_compilers().values(), key=lambda compiler: compiler.share_passing, reverse=True)
    if compiler.share_passing and not compiler.generates_code
)
"""Compilers that only capture, in the order of the share of recorded cells that pass, highest first."""


def passes(verdict: Verdict, phase: Phase | None) -> bool:
    """Whether a cell with this verdict passed, or had nothing to compare.

    A cell that is not applicable for what eager did, in phase ``reference``, left a GPU that refuses everything.
    """
    return verdict.facts.uneventful and phase is None


def leaves_process_whole(verdict: Verdict) -> bool:
    """Whether a process can run another cell after one with this verdict, if nothing else shows that it cannot."""
    return verdict.facts.reusable


def compiles(cell: PlannedCell) -> bool:
    """Whether a cell may generate code, because of its compiler (unless a user's own) or because of the case."""
    compiler = builtin_compilers().get(cell.spec.compiler)
    return compiler is None or compiler.generates_code or cell.info.compiles


def group_of(cell: PlannedCell, ends: Collection[End], verdicts: Collection[str], seconds: float = 0.0) -> str | None:
    """Return the name of the group that a cell belongs to; None if it needs a process of its own.

    `ends` are the known ones on this release of torch, `verdicts` those of earlier runs on any release. A cell that
    never ran on this release, and may not pass, would have to run again alone. `seconds` are those that the cell is
    expected to take.
    """
    if seconds > LONG:
        return None
    name = cell.key.case
    if not ends:
        return None if compiles(cell) or not set(verdicts) <= UNEVENTFUL else name
    own = cell.spec.compiler not in builtin_compilers()
    # The code of a user's compiler is not part of the hash of the case, so it may end otherwise than it is known to.
    if own or not all(leaves_process_whole(end.verdict) for end in ends):
        return None
    return name


def in_groups(
    cells: list[PlannedCell],
    group: Callable[[PlannedCell], str | None],
    seconds: Callable[[PlannedCell], float],
    ends: Callable[[PlannedCell], Collection[End]],
) -> list[PlannedCell]:
    """Return the cells in the order in which they start: the groups that take the longest first.

    `seconds` are those that a cell is expected to take. A group's cells are one after the other, those first that are
    likely to pass.
    """
    members: dict[object, list[PlannedCell]] = {}
    for cell in cells:
        members.setdefault(group(cell) or cell.key, []).append(cell)
    # Else a long group that starts last would run alone at the end.
    longest_first = sorted(members.values(), key=lambda group: sum(map(seconds, group)), reverse=True)
    return [cell for group in longest_first for cell in sorted(group, key=lambda cell: _rank(cell, ends(cell)))]


def _rank(cell: PlannedCell, ends: Collection[End]) -> tuple[bool, int]:
    name = cell.spec.compiler
    place = LIKELY_TO_PASS.index(name) if name in LIKELY_TO_PASS else len(LIKELY_TO_PASS)
    return any(not end.verdict.facts.uneventful for end in ends), place


class End(NamedTuple):
    """What identifies the end of a cell: an exception by its fingerprint, differences by place and kind, and counts.

    `counts` are those of graphs, graph breaks and recompilations: in a process that other cells had used, Dynamo
    sometimes captures fewer graphs, for a reason that is not known.
    """

    verdict: Verdict
    phase: str | None
    input: str | None
    fingerprint: str | None
    differences: frozenset[tuple[str, str, str]]
    counts: tuple[int | None, int | None, int | None]


class CellOfCase(NamedTuple):
    """A cell on any device, with the hash of the source of its case."""

    case: str
    compiler: str
    case_hash: str


def end_of(result: Record | CellResult) -> End:
    """Return what identifies the end of a cell."""
    differences = frozenset((difference.input, difference.where, difference.kind) for difference in result.differences)
    fingerprint = result.error.fingerprint if result.error else None
    counts = (result.graphs, result.graph_breaks, result.recompiles)
    return End(result.verdict, result.phase, result.input, fingerprint, differences, counts)


def known_ends(results: Path, version: str) -> dict[CellOfCase, set[End]]:
    """Return how cells ended in the results below `results` and in the checkout, on any device, on one release.

    The release is that of the torch version `version`. Results that cannot be read, or that other rules judged, are
    ignored: a cell without known ends merely shares its process with fewer others.
    """
    ends: dict[CellOfCase, set[End]] = {}
    decoder = msgspec.json.Decoder(Record)
    for root in dict.fromkeys((results.absolute(), data_folder("results").absolute())):
        for path in sorted(root.rglob(CONFORMANCE)):
            if _release_of(path.parent) != release(version):
                continue
            for line in lines_of(path):
                with contextlib.suppress(ValueError, RecursionError):
                    record = decoder.decode(line)
                    # Other versions were judged by other rules, so their ends are not those of this one.
                    if record.schema == SCHEMA_VERSION:
                        key = CellOfCase(record.case, record.compiler, record.case_hash)
                        ends.setdefault(key, set()).add(end_of(record))
    return ends


def _release_of(directory: Path) -> tuple[int, ...] | None:
    """Return the release of torch of a directory of results; None if it cannot be read."""
    with contextlib.suppress(OSError, UsageError):
        return release(read_environment(directory / ENVIRONMENT).torch.version)
    return None
