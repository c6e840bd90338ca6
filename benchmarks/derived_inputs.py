"""Measures derived inputs on the shipped suites: how many silent wrongs they find without the hand-written inputs.

    python -m benchmarks.derived_inputs [--compiler NAME]... [--suite NAME]... [--jobs N] [--recorded DIR]

Every case is treated as a user's own function or module: its held-out inputs are ignored, and inputs are derived from
its example. The reference are the case's own inputs, run at the same time. A cell counts if its verdict with them is
`specialized`: right on the example, silently wrong on an input that somebody thought of. A false alarm is a cell that
is silently wrong under `eager`, whose two sides are the same code. Cells that are silently wrong with derived inputs
alone are listed, because they are findings or faults of the judge.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from recapture.analysis.summary import explain
from recapture.conformance.own_code.derivation import PREPARE, Preparation
from recapture.conformance.plan import RunOptions
from recapture.conformance.preparation import IMPORTS, collect_suites
from recapture.conformance.runner import run_cells
from recapture.declare.collection import Selection, SuiteFile, shipped_suites
from recapture.declare.own_code.case_text import Prepared, case_file
from recapture.declare.own_code.request import CheckRequest
from recapture.pool.protocol import Ended
from recapture.pool.worker_pool import WorkerPool
from recapture.report.run_progress import RunProgress
from recapture.results.records import read_conformance
from recapture.results.verdicts import SILENTLY_WRONG, Verdict

if TYPE_CHECKING:
    from recapture.results.records import Record

CHEAP = ("eager", "jit.trace", "fx", "make_fx")
"""Default compilers: they generate no code."""

SECONDS = 120.0
"""Seconds that the inputs of one case may take."""

EXAMPLE = """\
from pathlib import Path

from recapture.declare.collection import execute


def inputs():
    module = execute({suite!r}, Path({path!r}))
    return next(one for one in module.__recapture_cases__ if one.name == {case!r}).example()
"""


def _derived(pool: WorkerPool, suite: SuiteFile, case: str, folder: Path) -> tuple[SuiteFile | None, Prepared | str]:
    """Write the generated case of one shipped case; return its file and what is known, or why there is none."""
    inputs = folder / "inputs" / f"{suite.name}_{case}.py"
    inputs.parent.mkdir(exist_ok=True)
    inputs.write_text(EXAMPLE.format(suite=suite.name, path=str(suite.path), case=case))
    request = CheckRequest(place=str(suite.path), name=case, inputs=(str(inputs), "inputs"))
    without: tuple[str, ...] = ()
    while True:
        found = pool.client.run(PREPARE, Preparation(request, without), Prepared, timeout=SECONDS, memory=8 << 30)
        if not isinstance(found, Ended):
            break
        if found.phase in (None, "", "reference", *without):
            return None, f"died in {found.phase}: {found.stderr.strip().splitlines()[-1:]}"
        without = (*without, str(found.phase))
    if found.error is not None:
        return None, found.error
    path = folder / f"{suite.name}__{case}.py"
    path.write_text(case_file(request, found))
    return SuiteFile(path.stem, path), found


def _run(files: list[SuiteFile], compilers: tuple[str, ...], jobs: int, results: Path) -> list[Record]:
    selection = Selection(tuple(files), tuple((one.name, None, None) for one in files), frozenset())
    options = RunOptions(selection=selection, compilers=compilers, jobs=jobs, results=results, words=("derived",))
    with RunProgress() as progress:
        return run_cells(options, progress, lambda text: print(text, file=sys.stderr)).selected


def _prepared(
    jobs: int, suites: list[SuiteFile], folder: Path
) -> tuple[dict[str, str], list[SuiteFile], dict[str, Prepared]]:
    """Return the shipped case of each generated file's stem, the files, and what is known about each."""
    names: dict[str, str] = {}
    files: list[SuiteFile] = []
    known: dict[str, Prepared] = {}
    with WorkerPool(device="cpu", jobs=jobs, imports=(*IMPORTS, PREPARE.split(":")[0])) as pool:
        for info in collect_suites(pool, tuple(suites)):
            for case in info.cases:
                file, found = _derived(pool, SuiteFile(info.name, Path(info.path)), case.name, folder)
                address = f"{info.name}::{case.name}"
                if file is None or isinstance(found, str):
                    print(f"not prepared: {address}: {found}")
                    continue
                names[file.name], known[address] = address, found
                files.append(file)
    return names, files, known


@click.command()
@click.option("--compiler", "compilers", multiple=True, default=CHEAP)
@click.option("--suite", "wanted", multiple=True)
@click.option("--jobs", default=1)
@click.option(
    "--recorded", type=click.Path(path_type=Path), help="Take the verdicts with the cases' own inputs from here."
)
@click.option("--json", "file", type=click.Path(path_type=Path), help="Also write the rows to this file.")
def main(
    compilers: tuple[str, ...], wanted: tuple[str, ...], jobs: int, recorded: Path | None, file: Path | None
) -> None:
    """Print what derived inputs find on the shipped suites."""
    suites = [one for one in shipped_suites() if not wanted or one.name in wanted]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names, files, known = _prepared(jobs, suites, folder)
        derived = {
            (names[row.case.split("::")[0]], row.compiler): row
            for row in _run(files, compilers, jobs, folder / "derived")
        }
        rows = read_conformance(recorded) if recorded else _run(suites, compilers, jobs, folder / "written")
        written = {(row.case, row.compiler): row for row in rows}
    inputs = sum(len(one.inputs) for one in known.values())
    refused = sum(len(one.refused) for one in known.values())
    print(f"{len(known)} cases, {inputs} derived inputs, {refused} more refused by eager and dropped")
    both = [key for key in written if key in derived]
    meant = [key for key in both if written[key].verdict is Verdict.SPECIALIZED]
    found = [key for key in meant if derived[key].verdict in SILENTLY_WRONG]
    share = f" ({len(found) / len(meant):.0%})" if meant else ""
    print(f"silently wrong on a hand-written input: {len(meant)}; found by derived inputs: {len(found)}{share}")
    for case, compiler in sorted(set(meant) - set(found)):
        print(f"  missed: {case}::{compiler}: {explain(written[case, compiler], 120)}")
    new = [key for key in both if derived[key].verdict in SILENTLY_WRONG and written[key].verdict not in SILENTLY_WRONG]
    print(f"found by derived inputs alone: {len(new)}")
    for case, compiler in sorted(new):
        on = _named(derived[case, compiler], known[case])
        print(f"  new: {case}::{compiler} on {on}: {explain(derived[case, compiler], 160)}")
    alarms = [key for key in derived if key[1] == "eager" and derived[key].verdict in SILENTLY_WRONG]
    print(f"false alarms, silently wrong under eager: {len(alarms)} {alarms or ''}")
    if file is not None:
        both_sides = {f"{case}::{how}": [derived[case, how].verdict, written[case, how].verdict] for case, how in both}
        file.write_bytes(msgspec.json.format(msgspec.json.encode(both_sides)))


def _named(record: Record, prepared: Prepared) -> str:
    on = record.input or ""
    number = on.partition("[")[2].rstrip("]")
    return prepared.inputs[int(number)] if number.isdigit() else on


if __name__ == "__main__":
    main()
