"""How many models of a zoo each compiler captures, in the form of the table of the PyTorch 2 paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recapture.records.verdicts import NOT_RUN, RIGHT, SILENTLY_WRONG, Verdict
from recapture.report.summary import by_compiler, suite_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from recapture.records.record import Record

ZOO = "zoo"
"""Beginning of the names of the suites of whole models."""


@dataclass(frozen=True)
class Captures:
    """The models of one suite, or of several, with one compiler.

    `tried` are the models that say something about the compiler; each is among `right` (of which `broken` have graph
    breaks), `wrong`, or neither: refused or failed. `graphs` and `breaks` are the means over the `counted` models that
    are right and whose graphs torch reports; None if there is none.
    """

    compiler: str
    tried: int
    right: int
    broken: int
    wrong: int
    graphs: float | None
    breaks: float | None
    counted: int

    @property
    def failing(self) -> int:
        """The models that are refused or fail."""
        return self.tried - self.right - self.wrong


def is_zoo(record: Record) -> bool:
    """Whether a cell is of a suite of whole models."""
    return suite_of(record.case).startswith(ZOO)


def captures(records: Iterable[Record]) -> dict[str, list[Captures]]:
    """Return for each suite of whole models, and for ``all`` of them if there are several, a row for each compiler."""
    models = [record for record in records if is_zoo(record)]
    suites = sorted({suite_of(record.case) for record in models})
    found = {suite: _rows([one for one in models if suite_of(one.case) == suite]) for suite in suites}
    return found | ({"all": _rows(models)} if len(suites) > 1 else {})


def _rows(records: Sequence[Record]) -> list[Captures]:
    return [_row(name, cells) for name, cells in by_compiler(records).items()]


def _row(compiler: str, cells: Sequence[Record]) -> Captures:
    right = [one for one in cells if one.verdict in RIGHT]
    graphs = [one.graphs for one in right if one.graphs is not None]
    breaks = [one.graph_breaks for one in right if one.graphs is not None and one.graph_breaks is not None]
    return Captures(
        compiler=compiler,
        tried=sum(one.verdict not in NOT_RUN for one in cells),
        right=len(right),
        broken=sum(one.verdict is Verdict.PASS_WITH_BREAKS for one in right),
        wrong=sum(one.verdict in SILENTLY_WRONG for one in cells),
        graphs=sum(graphs) / len(graphs) if graphs else None,
        breaks=sum(breaks) / len(breaks) if breaks else None,
        counted=len(graphs),
    )
