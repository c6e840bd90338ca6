"""Measures derived inputs on the shipped suites: how many silent wrongs they find without the hand-written inputs.

    python -m benchmarks.derived_inputs [--compiler NAME]... [--suite NAME]... [--recorded DIR] [--all]
                                        [--records FILE --suites-at-once N --seconds N]

Every case is treated as a user's own function or module: its held-out inputs are ignored, and inputs are derived from
its example. The reference are the case's own inputs: recorded ones, or run at the same time. A cell counts if its
verdict with them is `specialized`: right on the example, silently wrong on an input that somebody thought of. Cells
that no change of inputs can reveal are named, with the reason, in derived_inputs.toml, and counted separately.

A false alarm is a cell that is silently wrong under `eager`, whose two sides are the same code. With ``--all``, every
case is checked, not only those that count, and cells that are silently wrong with derived inputs alone are listed: they
are findings or faults of the judge. ``--records FILE`` keeps each finished suite, so that a stopped benchmark goes
on. With ``--suites-at-once``, several suites run at the same time, each in a process of its own; ``--seconds`` ends
them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click
import msgspec

from benchmarks.side_by_side import append_row, run_parts
from recapture.base.errors import RecaptureError
from recapture.cases.collection import Selection, SuiteFile, shipped_suites
from recapture.pool.worker_pool import WorkerPool
from recapture.records.record import read_conformance
from recapture.records.verdicts import SILENTLY_WRONG, Verdict
from recapture.report.run_progress import RunProgress
from recapture.report.summary import explain
from recapture.run.plan import RunOptions
from recapture.run.preparation import IMPORTS, collect_suites
from recapture.run.runner import run_cells
from recapture.tools.check.case_text import Prepared, case_file, case_name
from recapture.tools.check.derivation import PREPARE
from recapture.tools.check.request import CheckOptions, CheckRequest
from recapture.tools.check.session import OF_A_BACKWARD, prepare

if TYPE_CHECKING:
    from recapture.records.record import Record

Cell: TypeAlias = "tuple[str, str | None, str | None]"
"""A suite, a case and a compiler; None for all of them."""

CHEAP = ("eager", "jit.trace", "fx", "make_fx")
"""Default compilers: they generate no code."""

SECONDS = 120.0
"""Seconds that the inputs of one case may take."""

EXAMPLE = """\
import sys


def inputs():
    module = next(one for one in [*sys.modules.values()] if getattr(one, "__file__", None) == {path!r})
    return next(one for one in module.__recapture_cases__ if one.name == {case!r}).example()
"""
"""The user's function of inputs: it takes the example from the file that the target is from."""

BEYOND_INPUTS = Path(__file__).with_suffix(".toml")
"""Cells that derived inputs cannot find, by reason."""


def _derived(pool: WorkerPool, suite: SuiteFile, case: str, folder: Path) -> tuple[SuiteFile | None, Prepared | str]:
    """Write the generated case of one shipped case; return its file and what is known, or why there is none."""
    inputs = folder / "inputs" / f"{suite.name}_{case}.py"
    inputs.parent.mkdir(exist_ok=True)
    inputs.write_text(EXAMPLE.format(path=str(suite.path), case=case))
    request = CheckRequest(place=str(suite.path), name=case, inputs_from=(str(inputs), "inputs"))
    try:
        prepared = prepare(pool, request, CheckOptions(timeout=SECONDS))
    except RecaptureError as error:
        return None, str(error)
    path = folder / f"{suite.name}__{case}.py"
    path.write_text(case_file(request, prepared))
    return SuiteFile(path.stem, path), prepared


class Row(msgspec.Struct, frozen=True):
    """One cell: its verdicts with hand-written and with derived inputs, the input that shows it, and the reasons.

    `refused` says that this input is one that eager refuses; `missed` is why the hand-written input shows it.
    """

    case: str
    compiler: str
    written: str
    derived: str
    input: str = ""
    refused: bool = False
    reason: str = ""
    missed: str = ""


class Finished(msgspec.Struct, frozen=True):
    """One suite: its rows, the cases that could not be prepared, and the numbers of inputs kept, tried and refused."""

    suite: str
    rows: list[Row]
    not_prepared: dict[str, str]
    inputs: int
    must_raise: int
    refused: int


def _run(
    pool: WorkerPool, files: list[SuiteFile], cells: list[Cell], compilers: tuple[str, ...], results: Path
) -> list[Record]:
    """Run some cells of some files, or every case with these compilers if none is named."""
    chosen = tuple(cells) or tuple((suite.name, None, None) for suite in files)
    selection = Selection(tuple(files), chosen, frozenset())
    named = () if cells else compilers
    options = RunOptions(selection=selection, compilers=named, jobs=pool.jobs, results=results, words=("derived",))
    with RunProgress() as progress:
        return run_cells(options, progress, lambda text: print(text, file=sys.stderr), opened=pool).selected


def _suite(
    pool: WorkerPool, info: Any, compilers: tuple[str, ...], recorded: dict[Any, Record], folder: Path, *, every: bool
) -> Finished:
    """Measure one suite."""
    suite = SuiteFile(info.name, Path(info.path))
    as_written = {key: row for key, row in recorded.items() if key[0].startswith(f"{info.name}::")}
    if not as_written:
        records = _run(pool, [suite], [], compilers, folder / f"written {info.name}")
        as_written = {(row.case, row.compiler): row for row in records}
    meant: dict[str, list[str]] = {}
    for (address, how), row in as_written.items():
        if row.verdict is Verdict.SPECIALIZED and how in compilers and how != "eager":
            meant.setdefault(address, ["eager"]).append(how)
    known: dict[str, Prepared] = {}
    files: dict[str, SuiteFile] = {}
    failed = {}
    for case in info.cases:
        address = f"{info.name}::{case.name}"
        if not every and address not in meant:
            continue
        file, prepared = _derived(pool, suite, case.name, folder)
        if file is None or isinstance(prepared, str):
            failed[address] = str(prepared)
            continue
        files[address], known[address] = file, prepared
    addresses = {file.name: address for address, file in files.items()}
    cells: list[Cell] = []
    if not every:
        cells = [
            (file.name, case_name(known[address].name), how)
            for address, file in files.items()
            for how in sorted(set(meant[address]))
        ]
    derived = _run(pool, [*files.values()], cells, compilers, folder / f"derived {info.name}") if files else []
    rows = []
    for record in derived:
        address = addresses[record.case.split("::")[0]]
        if (address, record.compiler) in as_written:
            rows.append(_row(address, record, as_written[address, record.compiler], known[address]))
    return Finished(
        info.name,
        rows,
        failed,
        sum(len(prepared.inputs) + len(prepared.other_ranks) for prepared in known.values()),
        sum(len(prepared.must_raise) for prepared in known.values()),
        sum(len(prepared.refused) for prepared in known.values()),
    )


def _row(address: str, record: Record, as_written: Record, prepared: Prepared) -> Row:
    accepted = (*prepared.inputs, *prepared.other_ranks)
    names = (*accepted, *prepared.must_raise)
    number = (record.input or "").partition("[")[2].rstrip("]")
    return Row(
        address,
        record.compiler,
        str(as_written.verdict),
        str(record.verdict),
        names[int(number)] if number.isdigit() else record.input or "",
        number.isdigit() and int(number) >= len(accepted),
        explain(record, 160),
        explain(as_written, 160),
    )


@click.command()
@click.option("--compiler", "compilers", multiple=True, default=CHEAP)
@click.option("--suite", "only_suites", multiple=True)
@click.option("--jobs", default=1)
@click.option(
    "--recorded",
    "records",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Take the verdicts with the cases' own inputs from here; may be given several times.",
)
@click.option("--all", "every", is_flag=True, help="Check cases that count for nothing, too: for false alarms.")
@click.option("--records", "file", type=click.Path(path_type=Path), help="Keep finished suites in this file.")
@click.option("--suites-at-once", "at_once", default=0, help="Suites that run at the same time; needs --records.")
@click.option("--seconds", default=float("inf"), help="With --suites-at-once: stop after this time.")
def main(
    compilers: tuple[str, ...],
    only_suites: tuple[str, ...],
    jobs: int,
    records: tuple[Path, ...],
    every: bool,
    file: Path | None,
    at_once: int,
    seconds: float,
) -> None:
    """Print what derived inputs find on the shipped suites."""
    deadline = time.monotonic() + seconds
    suites = [suite for suite in shipped_suites() if not only_suites or suite.name in only_suites]
    done = read(file)
    left = [suite for suite in suites if suite.name not in done]
    if at_once and file is not None:
        shared = [word for compiler in compilers for word in ("--compiler", compiler)]
        shared += [word for directory in records for word in ("--recorded", str(directory))]
        shared += ["--records", str(file), "--jobs", str(jobs), *(["--all"] if every else [])]
        parts = {suite.name: ["--suite", suite.name, *shared] for suite in left}
        unfinished = run_parts("benchmarks.derived_inputs", parts, at_once, deadline)
        if unfinished:
            print(f"not finished: {', '.join(unfinished)}")
        done = read(file)
    else:
        done |= measure(tuple(left), compilers, jobs, records, every, file)
    print(summary([done[suite.name] for suite in suites if suite.name in done]))


def read(file: Path | None) -> dict[str, Finished]:
    """Return the suites that a file of records holds."""
    lines = file.read_bytes().splitlines() if file is not None and file.is_file() else []
    return {suite.suite: suite for suite in (msgspec.json.decode(line, type=Finished) for line in lines)}


def measure(
    suites: tuple[SuiteFile, ...],
    compilers: tuple[str, ...],
    jobs: int,
    records: tuple[Path, ...],
    every: bool,
    file: Path | None,
) -> dict[str, Finished]:
    """Measure suites one after the other in this process."""
    recorded = {(row.case, row.compiler): row for directory in records for row in read_conformance(directory)}
    done = {}
    with (
        tempfile.TemporaryDirectory() as name,
        WorkerPool(device="cpu", jobs=jobs, imports=(*IMPORTS, PREPARE.split(":")[0])) as pool,
    ):
        pool.client.preload("bare", [OF_A_BACKWARD])
        for info in collect_suites(pool, suites):
            done[info.name] = _suite(pool, info, compilers, recorded, Path(name), every=every)
            if file is not None:
                append_row(file, msgspec.json.encode(done[info.name]))
    return done


def summary(finished: list[Finished]) -> str:
    """Return the counts, the misses, what is new, and the false alarms as text."""
    wrong = {str(verdict) for verdict in SILENTLY_WRONG}
    rows = [row for suite in finished for row in suite.rows]
    beyond = msgspec.toml.decode(BEYOND_INPUTS.read_bytes(), type=dict[str, list[str]])
    reasons = {cell: reason for reason, cells in beyond.items() for cell in cells}
    meant = [row for row in rows if row.written == str(Verdict.SPECIALIZED) and row.compiler != "eager"]
    left = [row for row in meant if f"{row.case}::{row.compiler}" not in reasons]
    detected = [row for row in left if row.derived in wrong]
    missed = [row for row in left if row.derived not in wrong]
    new = [row for row in rows if row.derived in wrong and row.written not in wrong]
    alarms = [row for row in new if row.compiler == "eager"]
    share = f" ({len(detected) / len(left):.0%})" if left else ""
    cases = {row.case for row in rows}
    derived, raising = sum(suite.inputs for suite in finished), sum(suite.must_raise for suite in finished)
    lines = [f"{len(cases)} cases, {derived} derived inputs, and {raising} that eager refuses"]
    lines += [f"  not prepared: {case}: {why}" for suite in finished for case, why in suite.not_prepared.items()]
    lines.append(
        f"silently wrong on a hand-written input: {len(meant)}; no change of inputs can show it: "
        f"{len(meant) - len(left)}; of the others found by derived inputs: {len(detected)} of {len(left)}{share}, "
        f"{sum(row.refused for row in detected)} of them on an input that eager refuses"
    )
    for compiler in dict.fromkeys(row.compiler for row in left):
        of_compiler = [row for row in left if row.compiler == compiler]
        lines.append(f"  {compiler}: {sum(row in detected for row in of_compiler)} of {len(of_compiler)}")
    lines += [f"  missed: {row.case}::{row.compiler} ({row.derived}): {row.missed}" for row in missed]
    lines += [
        f"  beyond inputs: {row.case}::{row.compiler}: {reasons[f'{row.case}::{row.compiler}']}"
        for row in meant
        if row not in left
    ]
    lines.append(f"found by derived inputs alone: {len(new)}")
    lines += [f"  new: {row.case}::{row.compiler} on {row.input}: {row.reason}" for row in new]
    lines.append(f"false alarms, silently wrong under eager: {len(alarms)}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
