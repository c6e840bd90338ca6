"""The pages of the site that are written from the committed results."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from packaging.version import Version
from page_text import grid, plain

from recapture.cases.compilers import builtin_compilers
from recapture.known.findings import FAULTS, FINDINGS, Cause
from recapture.known.table import UNDOCUMENTED
from recapture.known.transitions import TRANSITIONS, Transition
from recapture.records import record as records
from recapture.records import verdicts
from recapture.report.findings import finding_of, issues_of

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
LATEST = RESULTS / "torch2.11.0-cu130" / "cpu"
"""The results of the image that the README's commands install."""

LATEST_GPU = RESULTS / "torch2.11.0-cu130" / "sm_90"
"""The results of the same release on a GPU."""


def groups_of(verdict: verdicts.Verdict) -> str:
    """Return the group of a verdict."""
    return verdict.facts.group


def releases_page() -> str:
    """The committed history of all releases, one heading level down."""
    text = (RESULTS / "README.md").read_text(encoding="utf-8")
    return "# Every release\n\n`recapture history --format markdown` prints this page.\n\n" + re.sub(
        r"^#", "##", text, flags=re.MULTILINE
    )


def known_issues_page() -> str:
    """The committed comparison of known public issues with the records, one heading level down."""
    text = (RESULTS / "known-issues.md").read_text(encoding="utf-8")
    told = "`recapture history --issues --format markdown` prints this page."
    return f"# Known issues\n\n{told}\n\n" + re.sub(r"^#", "##", text, flags=re.MULTILINE)


def changes_page() -> str:
    """The known changes between releases, newest first, with their sources."""
    changes = sorted(TRANSITIONS.shipped, key=lambda change: (Version(change.first), change.case or ""), reverse=True)
    confirmed = sum(change.source != UNDOCUMENTED for change in changes)
    on_gpu = sum(change.device == "cuda" for change in changes)
    rows = (
        [
            f"{change.last} → {change.first}",
            f"`{change.case}`" if change.case else "all",
            ", ".join(f"`{name}`" for name in change.compilers),
            _outcomes(change),
            plain(change.what),
            change.source if change.source == UNDOCUMENTED else f"[{source_name(change.source)}]({change.source})",
        ]
        for change in changes
    )
    return f"""# Changes explained

{len(changes)} changes between two recorded releases, which the records showed first: {on_gpu} of them on a GPU alone.
For {confirmed}, a thread, a change or a document confirms it. They stand in `suites/transitions.toml`; a test
compares each with the committed records, and `recapture history CELL` prints those of a cell.

{grid(["releases", "case", "compilers", "change", "what happened", "source"], rows)}"""


def _outcomes(change: Transition) -> str:
    """Return what a change turned into what, and on which device if a GPU alone shows it."""
    if change.case is None:
        return "another call"
    return f"{change.was} → {change.now}" + (" on a GPU" if change.device == "cuda" else "")


def findings_page() -> str:
    """The causes of silently wrong results that were found by hand, by whose fault they are."""
    wrong = [
        row
        for path in (LATEST, LATEST_GPU)
        for row in records.read_conformance(path)
        if row.verdict in verdicts.SILENTLY_WRONG
    ]
    cells: dict[str, set[tuple[str, str]]] = {}
    for row in wrong:
        finding = finding_of(row)
        if finding is not None:
            cells.setdefault(finding.name, set()).add((row.case, row.compiler))
    by_issue = len({(row.case, row.compiler) for row in wrong if finding_of(row) is None and issues_of(row)})
    parts = [
        f"""# Wrong results explained

Silently wrong cells of torch 2.11.0, on the CPU and on a GPU, looked at one by one: {len(FINDINGS.shipped)} causes.
Tracing (`jit.trace`, `make_fx` and `fx`) is left out: it keeps the path of the example by design. {by_issue} more cells
show one of the [known issues](known-issues.md). The causes stand in `suites/findings.toml`; a test compares them with
the committed records, and `recapture explain CELL` and `recapture history CELL` print the one of a cell.

{grid(["fault", "causes", "recorded cells", "meaning"], _fault_rows(cells))}"""
    ]
    for fault in FAULTS:
        causes = [cause for cause in FINDINGS.shipped if cause.fault == fault]
        if causes:
            parts += [f"## {fault.capitalize()}", plain(FAULTS[fault]), *(_cause(cause, cells) for cause in causes)]
    return "\n\n".join(parts) + "\n"


def _fault_rows(cells: dict[str, set[tuple[str, str]]]) -> Iterator[list[str]]:
    for fault, meaning in FAULTS.items():
        names = [cause.name for cause in FINDINGS.shipped if cause.fault == fault]
        number = sum(len(cells.get(name, ())) for name in names)
        yield [f"`{fault}`", str(len(names)), str(number), plain(meaning)]


def _cause(cause: Cause, cells: dict[str, set[tuple[str, str]]]) -> str:
    """Return one cause: its sentence, its source and its cells, a line for each group of compilers."""
    source = cause.source if cause.source == UNDOCUMENTED else f"[{source_name(cause.source)}]({cause.source})"
    by_case = {case: set(names) for case, names in cause.cells.items()}
    for case, compiler in cells.get(cause.name, ()):
        by_case.setdefault(case, set()).add(compiler)
    order = list(builtin_compilers())
    groups: dict[tuple[str, ...], list[str]] = {}
    for case, names in sorted(by_case.items()):
        groups.setdefault(tuple(sorted(names, key=order.index)), []).append(case)
    lines = [
        f"- {', '.join(f'`{name}`' for name in names)}: {', '.join(f'`{case}`' for case in cases)}"
        for names, cases in groups.items()
    ]
    return f"### `{cause.name}`\n\n{plain(cause.what)} Source: {source}.\n\n" + "\n".join(lines)


def source_name(address: str) -> str:
    """Return a short name for an address: the number of a thread, with another project's name, or the site."""
    parts = address.rstrip("/").split("/")
    project = "" if parts[4:5] == ["pytorch"] else parts[4] if len(parts) > 4 else ""
    return f"{project}#{parts[-1]}" if parts[-1].isdigit() else parts[2]


def counts() -> dict[str, Counter[str]]:
    """Count the groups of verdicts in the latest results, by compiler."""
    counted: dict[str, Counter[str]] = {}
    for row in records.read_conformance(LATEST):
        counted.setdefault(row.compiler, Counter())[groups_of(row.verdict)] += 1
    return counted


def silently_wrong_page() -> str:
    """The silently wrong cells of each compiler in the latest results, counted and listed by case."""
    rows = records.read_conformance(LATEST)
    cases = {row.case for row in rows}
    order = [name for name in builtin_compilers() if name in counts()]
    groups = ("right", "silently wrong", "failing", "not run")
    table = grid(
        ["compiler", *groups], ([f"`{name}`", *(str(counts()[name][group]) for group in groups)] for name in order)
    )
    wrong = [row for row in rows if groups_of(row.verdict) == "silently wrong" and row.compiler == "compile"]
    listed = grid(
        ["case", "verdict", "input", "what differs"],
        (
            [
                f"`{row.case}`",
                f"`{row.verdict}`",
                f"`{difference.input}`",
                plain(f"{difference.where}: {difference.detail}"),
            ]
            for row in wrong
            for difference in row.differences[:1]
        ),
    )
    return f"""# Silently wrong results

Written from `{LATEST.relative_to(ROOT)}`: {len(rows)} cells, {len(cases)} cases.

{table}
`eager` is silently wrong where a case is offered as a rewrite of another function and computes something else.

## Under `torch.compile`

The first difference of each case. `conformance.md` in the results directory has all of them, for every compiler.

{listed}"""


def best_speeds_page() -> str:
    """The best configuration of every workload in the committed benchmarks."""
    parts = ["# Speedups\n"]
    for path in sorted(RESULTS.rglob("speedups-*.json")):
        head = json.loads(path.read_text(encoding="utf-8"))["environment"]
        machine = head["gpu"]["name"] if head["gpu"] else f"{head['cpu']['model']}, {head['cpu']['cores']} cores"
        report = path.with_suffix(".md").read_text(encoding="utf-8")
        section = report.split("## Best configurations\n", 1)[1].split("\n## ", 1)[0]
        parts.append(f"## {machine}, torch {head['torch']['version']}\n\nFrom `{path.relative_to(ROOT)}`.\n{section}")
    return "\n".join(parts)
