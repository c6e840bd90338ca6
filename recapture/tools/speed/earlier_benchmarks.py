"""What earlier benchmarks, of any release, say about the rows of this one: which of them do not end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from recapture.base.errors import UsageError
from recapture.records.verdicts import Verdict
from recapture.tools.speed.rows import PlannedRow
from recapture.tools.speed.speedups import find_speedups, read_speedups


def hanging_last(rows: Iterable[PlannedRow], device: str, roots: Iterable[Path]) -> list[PlannedRow]:
    """Return the rows with those at the end that exceeded their limit in a benchmark on such a device below `roots`.

    Each of them may take the whole limit again, while nothing else is measured. Files that cannot be read are ignored:
    only the order depends on them.
    """
    hanging = set()
    for path in dict.fromkeys(path.absolute() for root in roots for path in find_speedups(root)):
        with contextlib.suppress(UsageError, OSError):
            speedups = read_speedups(path)
            if speedups.environment.device == device:
                hanging |= {row.key for row in speedups.rows if row.verdict is Verdict.TIMEOUT}
    return sorted(rows, key=lambda row: row.key in hanging)
