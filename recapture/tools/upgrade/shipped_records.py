"""The records of a cell that come with recapture: what a search begins with where there is no folder of results."""

from __future__ import annotations

from recapture.data import Data
from recapture.records.record import Record
from recapture.records.verdicts import Verdict
from recapture.report.data_history import DataCell, cells_in

SHIPPED_SOURCE = "shipped"
"""The hash of the source of every shipped record: that of the suites that come with recapture."""


def shipped_records(data: Data, cell: str, device: str) -> dict[str, Record]:
    """Return the records of a cell, ``suite::name::compiler``, by image; none of a suite that the data do not have.

    A record has the verdict, and the recorded text as its reason. Raises UsageError, with the most similar address, if
    the data have the suite and not the cell.
    """
    suite = cell.partition("::")[0]
    if not any(name.startswith(f"{suite}::") for name in data.cases):
        return {}
    records: dict[str, Record] = {}
    for strip in cells_in(data, cell):
        if (strip.capability == "cpu") is (device == "cpu"):
            records |= _by_image(data, strip, device)
    return records


def _by_image(data: Data, strip: DataCell, device: str) -> dict[str, Record]:
    of_strips = [entry for entry in data.environments if entry.in_strips and entry.capability == strip.capability]
    # The image with the pinned packages stands for its release, beside another with those of a machine.
    images = {entry.release: entry.image for entry in sorted(of_strips, key=lambda entry: not entry.bare)}
    records = {}
    for span in strip.spans:
        verdict = Verdict(span.verdict)
        for release in data.releases[data.releases.index(span.first) : data.releases.index(span.last) + 1]:
            records[images[release]] = Record(
                case=strip.case,
                compiler=strip.compiler,
                device=device,
                verdict=verdict,
                reason=span.text,
                case_hash=SHIPPED_SOURCE,
            )
    return records
