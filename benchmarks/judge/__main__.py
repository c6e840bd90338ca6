"""Prints the judge's error rate: ``python -m benchmarks.judge``.

Four tables: how many planted differences the judge catches, how many cells it blames in which nothing differs, how many
numbers that differ by rounding alone, and which comparisons find the silent wrongs of recorded results. The exit status
is 1 if a planted difference was missed or anything was blamed.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.judge.ablation import ablation, ablation_table
from benchmarks.judge.execution import HERE, run_groups
from benchmarks.judge.genuine import genuine
from benchmarks.judge.groups import Group, Outcome
from benchmarks.judge.numerics import numerics, numerics_table
from benchmarks.judge.planting import DEFECTS_ATTRIBUTE, Defect
from benchmarks.judge.sample import QUICK, QUICK_EQUALS
from benchmarks.judge.tables import blame_table, blames, catch_table, catches
from recapture.base.errors import UsageError
from recapture.base.escape import indented_json
from recapture.records.directories import find_results, read_results
from recapture.records.record import CONFORMANCE, CellKey, Record, read_conformance
from recapture.run.durations import Expected, earlier_runs

EQUALS = (
    "equal:eager",
    "equal:wrapped",
    "equal:recompiled",
    "equal:fresh-containers",
    "equal:reordered-dicts",
    "equal:reversed-sums",
    "equal:blocked-sums",
    "equal:rounded-once",
    "equal:reciprocals",
    "equal:folded-norms",
    "equal:unfused-attention",
    "equal:unrolled-recurrences",
    "equal:dense-and-dequantized",
    "equal:two-threads",
    "equal:biases-apart",
)
"""Compilers of `equals` that change nothing."""

PARTS = ("planted", "equal", "rounding", "ablation")
"""The tables, in their order."""

LARGEST = 24
"""Largest number of planted differences in one group."""

REPETITIONS = 10
"""Default number of times that each cell of a compiler that changes nothing is run."""


def defects() -> dict[str, tuple[Defect, str]]:
    """Return every defect with the file that declares it, by the name of its compiler."""
    by_name = {}
    for path in sorted((HERE / "defects").glob("[!_]*.py")):
        module = importlib.import_module(f"benchmarks.judge.defects.{path.stem}")
        by_name.update({f"planted:{defect.name}": (defect, str(path)) for defect in getattr(module, DEFECTS_ATTRIBUTE)})
    return by_name


def plan(options: argparse.Namespace, cases: list[tuple[str, str, str]], planted: dict[str, str]) -> list[Group]:
    """Return the groups to run: for every case, all planted differences, and all that changes nothing.

    `planted` maps the names of compilers that plant something to their files. A case has several groups of planted
    differences, so that no group takes much longer than the others, and the slow cases come first.
    """
    groups = []
    seconds = earlier_runs(options.results, "cpu", "")
    slow = Expected()
    cases = sorted(
        cases, key=lambda address: -seconds.get(CellKey(f"{address[0]}::{address[2]}", "eager", "cpu"), slow).seconds
    )
    for suite, path, case in cases:
        address = f"{suite}::{case}"
        if (options.quick and address not in QUICK) or not re.search(options.case or "", address):
            continue
        names = [f"planted:{name}" for name in QUICK[address]] if options.quick else list(planted)
        compilers = tuple((name, planted[name]) for name in names if name in planted)
        if "planted" in options.parts:
            groups += [
                Group(suite, path, case, compilers[start : start + LARGEST], options.device, planted=True)
                for start in range(0, len(compilers), LARGEST)
            ]
        equals = tuple((name, str(HERE / "equals.py")) for name in (QUICK_EQUALS if options.quick else EQUALS))
        for nothing in (equals, () if options.quick else (("compile:eager", None),)):
            if "equal" in options.parts and nothing:
                repetitions = 1 if options.quick else options.repetitions
                unchanged = Group(suite, path, case, nothing, options.device, planted=False, repetitions=repetitions)
                groups += alone(unchanged) if unchanged.dynamo and options.device != "cpu" else [unchanged]
    return groups


def alone(group: Group) -> list[Group]:
    """Return a group for each repetition: on a GPU a group has one process, in which Dynamo keeps what it compiled."""
    return [msgspec.structs.replace(group, repetitions=1, turn=turn) for turn in range(group.repetitions)]


def _records(directory: Path) -> list[Record]:
    folders = [directory] if (directory / CONFORMANCE).is_file() else sorted(directory.glob("*/*"))
    return [row for folder in folders if (folder / CONFORMANCE).is_file() for row in read_conformance(folder)]


def _same_release(directory: Path, device: str) -> list[Record]:
    """Return the records of the installed release of torch on the kind of `device`."""
    import torch

    records: list[Record] = []
    for folder in find_results(directory, needed=False):
        results = read_results(folder)
        environment = results.environment
        same = environment is not None and environment.torch.version == torch.__version__
        if same and (results.capability == "cpu") == (device == "cpu"):
            records += results.records
    return records


def _left_out(known: dict[str, str]) -> list[str]:
    """Return a list of the cells in which a compiler that should change nothing does, if any was run."""
    lines = [f"- {cell}: {why}" for cell, why in known.items()]
    return ["\n".join(["left out, because the compiler does change something there:", *lines])] if lines else []


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.judge", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="run a sample of the cases, every cell once")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="of each cell in which nothing differs")
    parser.add_argument("--seeds", type=int, default=100, help="random inputs for each computation that is rounded")
    parser.add_argument("--first-seed", type=int, default=0, help="the first seed of those random inputs")
    parser.add_argument("--case", metavar="REGEX", help="run only cases whose address matches")
    parser.add_argument("--defect", metavar="REGEX", help="plant only defects whose name matches")
    parser.add_argument(
        "--part",
        dest="parts",
        action="append",
        choices=PARTS,
        help="compute only this table; may be repeated",
    )
    parser.add_argument("--results", type=Path, default=Path("results"), help="records for the ablation")
    parser.add_argument("--records", type=Path, metavar="FILE", help="file of finished cells, which do not run again")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    options.parts = options.parts or [part for part in PARTS if part != "rounding" or not options.quick]
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark and print its tables."""
    options = _options(arguments)
    planted = {name: declared for name, declared in defects().items() if re.search(options.defect or "", name)}
    files = {name: file for name, (_, file) in planted.items()}
    begun = time.monotonic()
    outcomes: list[Outcome] = []
    problems: list[str] = []
    if "planted" in options.parts or "equal" in options.parts:

        def progress(text: str) -> None:
            print(f"{time.monotonic() - begun:7.1f} s  {text}", file=sys.stderr, flush=True)

        outcomes, problems = run_groups(
            lambda cases: plan(options, cases, files),
            device=options.device,
            jobs=options.jobs,
            progress=progress,
            finished=options.records,
        )
    caught = catches([defect for defect, _ in planted.values()], outcomes)
    known = genuine(outcomes, _same_release(options.results, options.device))
    blamed = blames(outcomes, known)
    rounded = None
    if "rounding" in options.parts:
        rounded = numerics(options.device, options.seeds, options.first_seed, options.jobs)
    report: dict[str, Any] = {"problems": problems}
    sections: list[tuple[str, str]] = []
    for form in ("simple", "github"):
        sections = []
        if "planted" in options.parts:
            sections.append(("Planted differences", catch_table(caught, form)))
            report["planted"] = [dataclasses.asdict(catch) for catch in caught]
        if "equal" in options.parts:
            sections.append(("Nothing differs", "\n\n".join([blame_table(blamed, form), *_left_out(known)])))
            report["equal"] = [dataclasses.asdict(blame) for blame in blamed]
        if rounded is not None:
            sections.append(("Only rounding differs", numerics_table(rounded, form)))
            report["rounding"] = rounded
        if "ablation" in options.parts:
            counts = ablation(_records(options.results))
            sections.append((f"Ablation over {options.results}", ablation_table(counts, form)))
            report["ablation"] = dataclasses.asdict(counts)
        if form == "simple":
            print("\n\n".join(f"{title}\n\n{text}" for title, text in sections))
    if options.markdown is not None:
        options.markdown.write_text("\n\n".join(f"## {title}\n\n{text}" for title, text in sections) + "\n")
    if options.json is not None:
        options.json.write_bytes(indented_json(report).encode())
    for problem in problems:
        print(problem, file=sys.stderr)
    wrong = [*problems, *(item for item in caught if item.missed), *(item for item in blamed if item.blamed)]
    return int(bool(wrong) or (rounded is not None and rounded.blamed > 0))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UsageError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
