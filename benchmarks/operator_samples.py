"""Torch's own operator samples as cells, beside a plain check: ``python -m benchmarks.operator_samples FOLDER``.

`recapture generate` makes programs of the samples and judges them under five compilers; `benchmarks.plain_check` runs
the same programs with torch alone. The benchmark prints the verdicts of both, each family of cells that do not pass
without a known reason, and each cell on which the two disagree without one. FOLDER keeps both, so that an interrupted
benchmark goes on. The exit status is 1 if something has no reason.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks.plain_check import CAPTURES, check_isolated, warm_up
from recapture.base.errors import RecaptureError
from recapture.machine.hardware import cores
from recapture.records.record import Record
from recapture.records.verdicts import FAILING, RIGHT, SILENTLY_WRONG
from recapture.report.document import Table
from recapture.report.markdown_writer import table_markdown, to_markdown
from recapture.tools.generate.generate_options import GenerateOptions
from recapture.tools.generate.report import document, facts_of
from recapture.tools.generate.session import Generation, generate

FORMS = ("function", "in_place", "out", "strided", "backward")
"""The forms of the programs."""

PLAIN = "plain.jsonl"
"""The file with the outcomes of the plain check, a line for each file of programs."""


class Disagreement(NamedTuple):
    """One cell on which the judge and the plain check disagree."""

    record: Record
    plain: str

    @property
    def judged(self) -> str:
        """What the judge says, with the headline difference or the exception."""
        record = self.record
        if record.differences:
            difference = record.differences[0]
            return f"{record.verdict}: {difference.where} ({difference.kind}): {difference.detail}"
        return f"{record.verdict}: {record.error.type if record.error else record.reason or ''}"


class Known(NamedTuple):
    """Disagreements with a reason: kinds of the judge's headline difference, or its verdict, and the plain outcome."""

    judged: tuple[str, ...]
    plain: str
    why: str


KNOWN = (
    Known(("alias", "metadata", "state"), "pass", "the plain check does not ask for this kind"),
    Known(("unstable",), "", "eager does not agree with itself, so that no compiler is judged"),
)
"""Every disagreement with a reason; the first that fits counts."""


def group_of(outcome: str) -> str:
    """Return ``right``, ``wrong`` or ``error`` for an outcome of the plain check."""
    return {"pass": "right"}.get(outcome, outcome.partition(":")[0])


def judged_group(record: Record) -> str:
    """Return the same for a record."""
    if record.verdict in RIGHT:
        return "right"
    if record.verdict in SILENTLY_WRONG:
        return "wrong"
    return "error" if record.verdict in FAILING else str(record.verdict)


def plain_outcomes(folder: Path, files: list[Path], jobs: int) -> dict[tuple[str, str], str]:
    """Return the outcomes of the plain check, by case and compiler; what the folder has is not run again."""
    warm_up()
    outcomes: dict[tuple[str, str], str] = {}
    path = folder / PLAIN
    done = set()
    for line in path.read_text().splitlines() if path.exists() else ():
        suite, rows = json.loads(line)
        done.add(suite)
        outcomes |= {(f"{suite}::{program}", compiler): outcome for program, compiler, outcome in rows}
    missing = [file for file in files if file.stem not in done]

    def check(file: Path) -> tuple[str, list[tuple[str, str, str]]]:
        return file.stem, [(*key, outcome) for key, outcome in check_isolated(file, CAPTURES).items()]

    with ThreadPoolExecutor(jobs) as threads, path.open("a") as out:
        for number, (suite, rows) in enumerate(threads.map(check, missing), 1):
            print(json.dumps([suite, rows]), file=out, flush=True)
            outcomes |= {(f"{suite}::{program}", compiler): outcome for program, compiler, outcome in rows}
            if number % 50 == 0:
                print(f"plain check: {number} of {len(missing)} operators", file=sys.stderr, flush=True)
    return outcomes


def disagreements(generation: Generation, plain: dict[tuple[str, str], str]) -> Iterator[Disagreement]:
    """Yield the cells that both ran and on which they disagree."""
    for key, record in sorted(generation.records.items()):
        outcome = plain.get((key.case, key.compiler))
        if outcome is not None and group_of(outcome) != judged_group(record):
            yield Disagreement(record, outcome)


def reason_of(disagreement: Disagreement) -> str | None:
    """Return why the two disagree; None if nobody knows."""
    record = disagreement.record
    kind = record.differences[0].kind if record.differences else str(record.verdict)
    return next((known.why for known in KNOWN if kind in known.judged and known.plain in disagreement.plain), None)


def main() -> int:
    """Run both checks and print what they say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operator_samples", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("--operator", action="append", default=[], metavar="NAME")
    parser.add_argument("--operators", type=Path, metavar="FILE", help="a file with the names, one a line")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    options = GenerateOptions(
        compilers=tuple(CAPTURES),
        jobs=arguments.jobs,
        results=arguments.folder,
        operators=(*arguments.operator, *(arguments.operators.read_text().split() if arguments.operators else ())),
        forms=FORMS,
        seed=arguments.seed,
    )
    generation = generate(options, lambda text: print(text, file=sys.stderr, flush=True))
    facts = facts_of(generation)
    print(to_markdown(document(facts)))
    files = [
        arguments.folder / "suites" / f"{suite.name}.py"
        for suite in generation.suites.values()
        if any(program.refused is None for program in suite.programs)
    ]
    plain = plain_outcomes(arguments.folder, files, arguments.jobs)
    rows = []
    for compiler in CAPTURES:
        outcomes = {case: outcome for (case, name), outcome in plain.items() if name == compiler}
        judged = Counter(judged_group(record) for key, record in generation.records.items() if key.compiler == compiler)
        checked = Counter(map(group_of, outcomes.values()))
        rows.append([compiler, *(f"{judged[group]} / {checked[group]}" for group in ("right", "wrong", "error"))])
    print(table_markdown(Table(["compiler", "right", "wrong", "error"], rows, "lr")))
    print("The judge / the plain check.\n")
    reasons: Counter[str] = Counter()
    unknown = []
    for disagreement in disagreements(generation, plain):
        reason = reason_of(disagreement)
        if reason is None:
            unknown.append(disagreement)
        else:
            reasons[reason] += 1
    for reason, number in reasons.most_common():
        print(f"{number} disagreements: {reason}.")
    for disagreement in unknown:
        print(f"  {disagreement.record.cell}: judge {disagreement.judged[:160]}; plain check {disagreement.plain}")
    new = [family for family in facts.families if not family.known]
    print(f"\n{facts.operators} operators, {facts.programs} programs, {facts.cells} cells.")
    print(f"{len(facts.families)} families, {len(new)} without a reason.")
    print(f"{reasons.total() + len(unknown)} disagreements, {len(unknown)} without a reason.")
    return 1 if new or unknown else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RecaptureError as error:
        print(f"operator_samples: {error}", file=sys.stderr)
        sys.exit(2)
