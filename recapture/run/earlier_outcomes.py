"""How cells ended before on this release of torch; what a shared process gives is compared with it.

A cell in a process that other cells have used could end as it does because of them. If it ends in the very way in which
it ended before, in a process of its own or on another device, then they are not the cause.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from recapture.base.errors import UsageError
from recapture.machine.environment import ENVIRONMENT, read_environment
from recapture.records.record import CONFORMANCE, SCHEMA_VERSION, Record
from recapture.run.durations import committed_results, lines_of
from recapture.torch_api.compat import release

if TYPE_CHECKING:
    from pathlib import Path

    from recapture.records.verdicts import Verdict
    from recapture.run.cell import CellResult


class End(NamedTuple):
    """What identifies the end of a cell: an exception by its fingerprint, differences by place and kind."""

    verdict: Verdict
    phase: str | None
    input: str | None
    fingerprint: str | None
    differences: frozenset[tuple[str, str, str]]


class CellOfCase(NamedTuple):
    """A cell on any device, with the hash of the source of its case."""

    case: str
    compiler: str
    case_hash: str


def end_of(found: Record | CellResult) -> End:
    """Return what identifies the end of a cell."""
    differences = frozenset((one.input, one.where, one.kind) for one in found.differences)
    fingerprint = found.error.fingerprint if found.error else None
    return End(found.verdict, found.phase, found.input, fingerprint, differences)


def known_ends(results: Path, version: str) -> dict[CellOfCase, set[End]]:
    """Return how cells ended in the results below `results` and in the checkout, on any device, on one release.

    The release is that of the torch version `version`. Results that cannot be read, or that other rules judged, are
    ignored: a cell without known ends merely shares its process with fewer others.
    """
    found: dict[CellOfCase, set[End]] = {}
    decoder = msgspec.json.Decoder(Record)
    for root in dict.fromkeys((results.absolute(), committed_results().absolute())):
        for path in sorted(root.rglob(CONFORMANCE)):
            if _release_of(path.parent) != release(version):
                continue
            for line in lines_of(path):
                with contextlib.suppress(ValueError, RecursionError):
                    record = decoder.decode(line)
                    if record.schema == SCHEMA_VERSION:
                        key = CellOfCase(record.case, record.compiler, record.case_hash)
                        found.setdefault(key, set()).add(end_of(record))
    return found


def _release_of(directory: Path) -> tuple[int, ...] | None:
    """Return the release of torch of a directory of results; None if it cannot be read."""
    with contextlib.suppress(OSError, UsageError):
        return release(read_environment(directory / ENVIRONMENT).torch.version)
    return None
