"""Where rows of results were measured: one folder may hold rows of several machines, or of several versions of suites.

``environment.json`` describes the last run alone. Each row of ``timings.jsonl`` has the id of its origin, and
``environment.json`` says what each id stands for, with the number of rows.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from recapture.base.decode import Count


class Origin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine and a revision of the suites; `cells` is the number of rows measured there. None means unknown."""

    cpu: str | None
    instructions: str | None
    gpu: str | None
    platform: str
    cxx: str | None
    suite_commit: str | None
    cells: Count = 0


def id_of(origin: Origin) -> str:
    """Return the id of an origin, eight hexadecimal digits: equal facts have the same one, whatever `cells` is."""
    # The number of rows grows during a run, in which the id has to stay.
    facts = msgspec.json.encode(msgspec.structs.replace(origin, cells=0))
    return hashlib.sha256(facts).hexdigest()[:8]


def counted(known: Mapping[str, Origin], ids: Iterable[str | None]) -> dict[str, Origin]:
    """Return the origins that rows have, each with its number of rows; `ids` has the id of each row."""
    rows = Counter(ids)
    return {name: msgspec.structs.replace(known[name], cells=rows[name]) for name in sorted(known) if rows[name]}
