"""How many whole models each compiler captures, in the form of the table of the PyTorch 2 paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from recapture.records.record import Record
from recapture.records.verdicts import NOT_RUN, RIGHT, SILENTLY_WRONG, Verdict
from recapture.report import summary
from recapture.report.document import Block, Heading, Inline, Paragraph, Table, code_span, strong, verbatim
from recapture.report.summary import suite_of

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


def captures(records: Iterable[Record]) -> dict[str, list[Captures]]:
    """Return for each suite of whole models, and for ``all`` of them if there are several, a row for each compiler."""
    models = [record for record in records if suite_of(record.case).startswith(ZOO)]
    tables = {suite: _captures_by_compiler(cells) for suite, cells in summary.by_suite(models).items()}
    return tables | ({"all": _captures_by_compiler(models)} if len(tables) > 1 else {})


def _captures_by_compiler(records: Sequence[Record]) -> list[Captures]:
    return [_captures(name, cells) for name, cells in summary.by_compiler(records).items()]


def _captures(compiler: str, cells: Sequence[Record]) -> Captures:
    right = [record for record in cells if record.verdict in RIGHT]
    graphs = [record.graphs for record in right if record.graphs is not None]
    breaks = [record.graph_breaks for record in right if record.graphs is not None and record.graph_breaks is not None]
    return Captures(
        compiler=compiler,
        tried=sum(record.verdict not in NOT_RUN for record in cells),
        right=len(right),
        broken=sum(record.verdict is Verdict.PASS_WITH_BREAKS for record in right),
        wrong=sum(record.verdict in SILENTLY_WRONG for record in cells),
        graphs=sum(graphs) / len(graphs) if graphs else None,
        breaks=sum(breaks) / len(breaks) if breaks else None,
        counted=len(graphs),
    )


def model_captures(records: Sequence[Record]) -> Iterator[Block]:
    """Yield a table for each suite of whole models; nothing if there is none."""
    tables = captures(records)
    if not tables:
        return
    yield Heading("Models captured")
    yield Paragraph(
        "Right means: on every input what eager does, with or without graph breaks. Beside each mean stands the number "
        "of models that it is taken over: those that are right and whose graphs torch reports."
    )
    headers = ["compiler", "right", "share", "with breaks", "silently wrong", "failing"]
    for suite, compilers in tables.items():
        rows: list[list[Inline]] = [
            [
                code_span(row.compiler),
                f"{row.right} of {row.tried}",
                f"{100 * row.right / row.tried:.0f} %" if row.tried else "",
                row.broken,
                strong(str(row.wrong)) if row.wrong else "0",
                row.failing,
                _mean(row.graphs, row),
                _mean(row.breaks, row),
            ]
            for row in compilers
        ]
        yield Heading(code_span(suite), 3)
        yield Table([*headers, "graphs a model", "breaks a model"], rows, "lr")


def _mean(value: float | None, row: Captures) -> Inline:
    return verbatim("" if value is None else f"{value:.1f} ({row.counted} of {row.tried})")
