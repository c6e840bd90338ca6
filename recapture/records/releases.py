"""The order of results by torch release, and their names in tables."""

from __future__ import annotations

import re
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from packaging.version import InvalidVersion, Version

from recapture.records.directories import find_results, read_results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from recapture.records.directories import Results
    from recapture.records.record import Record


WHOLE = 0.9
"""Smallest share of the median number of cells that results must have to count as a whole run."""


class Named(Protocol):
    """An object that represents the results of one image."""

    @property
    def torch(self) -> str:
        """The torch version."""

    @property
    def image(self) -> str:
        """The image's name."""


def age(results: Results) -> tuple[Any, ...]:
    """Sort key of results: by torch release, with images before runs outside an image."""
    return (version_key(torch_version(results)), is_bare(results.image), results.image)


def read_by_age(root: Path, check: Callable[[Results], object] | None = None) -> list[Results]:
    """Read all results at or below a directory, oldest torch first, and call `check` with each of them.

    Results of one image and capability that have no cell in common become one: those of suites that were run into a
    folder of their own, as in ``results/exportdb/<image>/cpu``. Raises UsageError where there are none, and as reading
    them does.
    """
    known: dict[bytes, Record] = {}
    every = [read_results(path, known) for path in find_results(root)]
    if check is not None:
        for results in every:
            check(results)
    return sorted(_joined(every), key=age)


def _joined(every: Iterable[Results]) -> list[Results]:
    """Join results of one image and capability without a common cell; the one nearest to the root is the first."""
    joined: dict[tuple[str, str], Results] = {}
    apart = []
    for results in sorted(every, key=lambda results: len(results.directory.parts)):
        first = joined.setdefault((results.image, results.capability), results)
        if first is results:
            continue
        if {record.cell for record in first.records} & {record.cell for record in results.records}:
            apart.append(results)
        else:
            joined[results.image, results.capability] = replace(
                first, records=(*first.records, *results.records), joined=(*first.joined, results.directory)
            )
    return [*joined.values(), *apart]


def usual_cells(every: Iterable[Results]) -> int:
    """Return the median number of cells of some results, one that one of them really has; 0 if there are none."""
    numbers = [len(results.records) for results in every]
    return statistics.median_high(numbers) if numbers else 0


def is_partial(results: Results, usual: int) -> bool:
    """Whether results have too few cells to be compared as a whole with others, which have the `usual` number.

    So are those of an interrupted run, and those of a release on which only the known issues ran.
    """
    return len(results.records) < WHOLE * usual


def torch_version(results: Results) -> str:
    """Return the torch version of some results: the recorded version, or the one in the image's name."""
    if results.environment is not None:
        return results.environment.torch.version
    match = re.search(r"torch(\d[^-]*)(?:-(\w+))?", results.image)
    return "+".join(part for part in match.groups() if part) if match else results.image


def version_key(version: str) -> tuple[bool, Version, str]:
    """Sort key of torch versions: invalid versions first, 2.9.1 before 2.10.0, a pre-release before its release."""
    try:
        return (True, Version(version), "")
    except InvalidVersion:
        return (False, Version("0"), version)


def is_bare(image: str) -> bool:
    """Whether results were recorded outside an image."""
    return image.startswith("bare-")


def twin(image: str) -> str:
    """Return the suffix of a variant of a release's image, such as ``drifted``; empty for the main image."""
    match = re.search(r"-(?:cu\d+|cpu)-(\w+)$", image)
    return match[1] if match else ""


def labels(entries: Iterable[Named]) -> list[str]:
    """Return a short, unique name for each entry: the release or, if ambiguous, the full version or the image."""
    names = [_names(entry) for entry in entries]
    return [
        next((name for name in candidates if sum(name in others for others in names) == 1), candidates[-1])
        for candidates in names
    ]


def _names(entry: Named) -> tuple[str, str, str]:
    kind = " (bare)" if is_bare(entry.image) else f" {twin(entry.image)}" if twin(entry.image) else ""
    return (f"{entry.torch.split('+')[0]}{kind}", f"{entry.torch}{kind}", entry.image)
