"""Compares models that nobody here wrote between two releases of torch, in eager mode or with a compiler on both.

    python -m benchmarks.drift_models --records FILE --across 2.6.0,2.11.0 [--with FILE] [--compiler NAME]
                                      [--model NAME]... [--models-at-once N] [--why] [--timeout SECONDS] [--table]
    python -m benchmarks.drift_models --records FILE --device cpu,cuda [--setting tf32=off] [--dtype bfloat16] ...

The sides are named as for `recapture drift`. ``--dtype`` gives all weights and inputs of torchvision's models that
dtype. The models are those of `benchmarks.own_models`: random weights and small inputs. Each finished model is
appended to the file of records, one JSON object a line, so that an interrupted benchmark goes on where it stopped.
``--table`` runs nothing and prints the Markdown table of what the file holds.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import msgspec

from benchmarks.own_models import TARGETS, requests
from benchmarks.side_by_side import append_row
from recapture.base.errors import RecaptureError, UsageError
from recapture.command.options import takes
from recapture.report.document import Inline, Table, code_span
from recapture.report.markdown_writer import table_markdown
from recapture.tools.check.request import CheckRequest
from recapture.tools.drift.answer import Drift, DriftReport
from recapture.tools.drift.drift_command import SideOptions, TrainingOptions, two_sides
from recapture.tools.drift.sides import SideOf, SideRuns


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One model: what came out, or why nothing did; `seconds` is its wall time."""

    model: str
    report: DriftReport | None = None
    error: str = ""
    seconds: float = 0.0


def read(file: Path) -> dict[str, Compared]:
    """Return what a file of records holds, by model."""
    lines = file.read_bytes().splitlines() if file.is_file() else []
    return {row.model: row for row in (msgspec.json.decode(line, type=Compared) for line in lines)}


def chosen(names: tuple[str, ...], dtype: str | None) -> dict[str, CheckRequest]:
    """Return the models to compare, by name; with a dtype, those of torchvision that take tensors of images."""
    every = requests()
    if dtype is not None:
        every = {
            f"{name} {dtype}": msgspec.structs.replace(
                request,
                place=TARGETS,
                name=f"{dtype}_{request.name}",
                inputs=tuple((*argument[:1], dtype) for argument in request.inputs if isinstance(argument, tuple)),
            )
            for name, request in every.items()
            if request.place == "torchvision" and request.inputs
        }
    return {name: request for name, request in every.items() if not names or name.partition(" ")[0] in names}


def compare_model(
    name: str, request: CheckRequest, sides: tuple[SideOf, SideOf], runs: SideRuns, *, why: bool
) -> Compared:
    """Compare one model on both sides."""
    own_code = {"place": request.place, "name": request.name, "inputs": request.inputs, "folder": str(Path.cwd())}
    if request.inputs_from is not None:
        own_code["inputs_from"] = request.inputs_from
    began = time.monotonic()
    try:
        report = Drift(target=name, own_code=own_code, old=sides[0], new=sides[1], why=why).compare(runs)
    except RecaptureError as error:
        return Compared(model=name, error=str(error), seconds=round(time.monotonic() - began, 1))
    short = msgspec.structs.replace(report, layers=())
    return Compared(model=name, report=short, seconds=round(time.monotonic() - began, 1))


def row_of(compared: Compared) -> list[str]:
    """Return the row of a model: its verdict, how many digits agree at least, the first place, and the cause."""
    report = compared.report
    if report is None:
        return [compared.model, f"not compared: {compared.error}", "", "", ""]
    if not all(side.stable for side in report.about):
        return [compared.model, "differs from itself when called again", "", "", ""]
    old, new = (side.raised for side in report.about)
    if old is not None and new is not None and old.type == new.type:
        return [compared.model, f"both raise {old.type}", "", "", ""]
    place = report.place
    where = place.name.removesuffix(".default") if place is not None else ""
    if place is not None and place.short_dtype:
        where += f" in {place.short_dtype}"
    return [
        compared.model,
        report.verdict,
        "" if report.verdict == "same bits" or report.digits is None else f"{report.digits:.1f}",
        where,
        ", ".join(report.causes),
    ]


def table(rows: dict[str, Compared]) -> str:
    """Return the Markdown table, and how many models have each verdict."""
    cells = [row_of(row) for row in rows.values()]
    counts = Counter(row[1].partition(":")[0] for row in cells)
    total = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
    heads = ["model", "verdict", "digits", "first place", "because of"]
    if not any(row[-1] for row in cells):  # without --why
        heads, cells = heads[:-1], [row[:-1] for row in cells]
    marked: list[list[Inline]] = [
        [row[0], row[1], row[2], code_span(row[3]) if row[3] else "", *row[4:]] for row in cells
    ]
    return f"{table_markdown(Table(heads, marked, 'llrll'[: len(heads)]))}\n{total}\n"


@click.command(help=__doc__.partition("\n")[0])
@click.option("--records", type=click.Path(path_type=Path), required=True)
@takes(sides=SideOptions)
@click.option("--dtype")
@click.option("--model", "names", multiple=True)
@click.option("--models-at-once", default=1)
@click.option("--why", is_flag=True)
@click.option("--timeout", default=600.0)
@click.option("--table", "table_alone", is_flag=True)
def main(
    *,
    records: Path,
    sides: SideOptions,
    dtype: str | None,
    names: tuple[str, ...],
    models_at_once: int,
    why: bool,
    timeout: float,
    table_alone: bool,
) -> None:
    """Run what the file of records lacks, and print the table."""
    if not table_alone:
        try:
            pair = two_sides(sides, TrainingOptions())
        except UsageError as error:
            raise click.UsageError(str(error)) from None
        done = read(records)
        waiting = iter([item for item in chosen(names, dtype).items() if item[0] not in done])  # threads share it

        def work(_: int) -> None:
            with SideRuns(timeout=timeout, show=click.echo) as runs:
                for name, request in waiting:
                    compared = compare_model(name, request, pair, runs, why=why)
                    append_row(records, msgspec.json.encode(compared))
                    click.echo(f"{name}: {compared.seconds:.0f} s")

        with ThreadPoolExecutor(models_at_once) as pool:
            list(pool.map(work, range(models_at_once)))  # raises what a thread raised
    click.echo(table(read(records)))


if __name__ == "__main__":
    main()
