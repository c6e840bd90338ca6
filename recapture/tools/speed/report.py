"""The results of a benchmark for people: ``speedups-<gpu>.md``, and tables in a terminal."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from recapture.base.option_fields import GIB
from recapture.base.text import one_line, ratio_text, shorten, time_text
from recapture.cases.compilers import EAGER
from recapture.records.verdicts import FAILING, SILENTLY_WRONG
from recapture.report import environment_facts
from recapture.report.claim_sources import address, claim_items
from recapture.report.document import (
    Block,
    Heading,
    Inline,
    Item,
    Items,
    Paragraph,
    Span,
    Table,
    code_list,
    code_span,
    strong,
    verbatim,
)
from recapture.report.markdown_writer import to_markdown
from recapture.report.summary import natural_key
from recapture.report.terminal_writer import say, say_all, say_wrapped, terminal_lines
from recapture.tools.speed.cost_table import cost_table
from recapture.tools.speed.figures import geometric_mean
from recapture.tools.speed.remarks import best, best_first, drift, remarks
from recapture.tools.speed.speedups import Claimed, Configuration, Finding, Measured, Row, Speedups
from recapture.tools.speed.spent import spent_text, total

TEXT_LIMIT = 320
"""Characters shown of a remark."""

PAYS_BACK = "pays back after (iterations, cold / warm)"
"""Header of the column with the iterations after which the compile time is recovered."""


def render_speedups(speedups: Speedups) -> str:
    """Return the report as GitHub Markdown, with the same bytes for the same rows."""
    timed = [row for row in speedups.rows if not row.counted]
    workloads = (_workload(name, rows) for name, rows in _by_workload(speedups.rows).items())
    return to_markdown(
        [
            *_head(speedups),
            *_winners(timed),
            *_claims(timed),
            *itertools.chain.from_iterable(workloads),
            *_means(timed),
            *_conditions(speedups.rows),
            *_method(speedups),
        ]
    )


def _by_workload(rows: Sequence[Row]) -> dict[str, list[Row]]:
    workloads: dict[str, list[Row]] = {}
    for row in rows:
        workloads.setdefault(row.workload, []).append(row)
    return workloads


def break_even_text(finding: Finding, *iterations: float | None) -> str:
    """Return the iterations after which a row pays back; empty for a row that is neither faster nor slower."""
    if finding != "faster":
        return "never" if finding == "slower" else ""
    return " / ".join(f"{value:,.0f}" for value in iterations if value is not None)


def configurations_text(number: int) -> str:
    """Return a number of configurations as text."""
    return f"{number} configuration{'' if number == 1 else 's'}"


def _bytes(value: int | None) -> str:
    if value is None:
        return ""
    return f"{value / GIB:.2f} GiB" if value >= GIB else f"{value / (1 << 20):.0f} MiB"


def _head(speedups: Speedups) -> Iterator[Block]:
    environment = speedups.environment
    lines = [f"{name}: {value}" for name, value in environment_facts.brief(environment)]
    why = environment_facts.why_bare(environment)
    if why:
        lines.append(f"bare, not the image, because {shorten(why, TEXT_LIMIT)}")
    checks = [
        *environment_facts.failing_checks(environment, lasting=True),
        *environment_facts.warnings(environment, lasting=True),
    ]
    lines += [f"recapture doctor: {shorten(check, TEXT_LIMIT)}" for check in checks]
    right = sum(row.measured is not None for row in speedups.rows)
    counted = sum(row.counted for row in speedups.rows)
    wrong = sum(row.verdict in SILENTLY_WRONG for row in speedups.rows)
    failing = sum(row.verdict in FAILING for row in speedups.rows)
    again = sum(row.again for row in speedups.rows)
    others = len(speedups.rows) - right - counted - wrong - failing
    more = f", {others} not comparable or not applicable" if others else ""
    unfinished = speedups.planned - len(speedups.rows)
    late: list[str | Span] = [", ", strong(f"{unfinished} not finished")] if unfinished > 0 else []
    if again:
        which = "it" if again == 1 else "them"
        late += ["; ", strong(f"{again} of these from before: measuring {which} again has not ended")]
    yield Heading(["Speedups: ", code_span(environment.image), " on ", code_span(environment.capability)], 1)
    planned = configurations_text(speedups.planned)
    not_timed = f"{counted} right and not timed, " if counted else ""
    numbers = f"{planned} planned: {right} right and timed, {not_timed}{wrong} wrong, {failing} failing{more}"
    yield Paragraph([numbers, *late, "."])
    yield Items(list(map(Item, lines)))


def _winners(rows: Sequence[Row]) -> Iterator[Block]:
    lines: list[list[Inline]] = []
    for name, workload_rows in _by_workload(rows).items():
        first = code_span(name)
        winner = best(workload_rows)
        if winner is None:
            timed = any(row.measured is not None for row in workload_rows)
            lines.append(
                [first, "none is faster than eager beyond doubt" if timed else "none could be timed", "", "", ""]
            )
            continue
        lines.append(
            [
                first,
                code_span(str(winner.row.configuration)),
                verbatim(ratio_text(winner.measured.speedup)),
                _pays_back(winner.measured),
                code_list([str(row.configuration) for row in winner.ties]),
            ]
        )
    if lines:
        yield Heading("Best configurations")
        yield Paragraph("Of those whose intervals overlap with the greatest speedup's, the one that pays back soonest.")
        yield Table(["workload", "best", "speedup", PAYS_BACK, "intervals overlap with"], lines, "lllrl")


def claim_status(row: Row, claim: Claimed) -> str:
    """Return the status of a claim: reproduced, not reproduced, inconclusive, or not runnable here."""
    if claim.holds is not None:
        return "reproduced" if claim.holds else "not reproduced"
    return "inconclusive" if row.measured is not None else "not runnable here"


def _claims(rows: Sequence[Row]) -> Iterator[Block]:
    lines: list[list[Inline]] = [
        [
            Span(claim.id, link=address(claim.id)),
            claim_status(row, claim),
            code_span(row.workload),
            code_span(str(row.configuration)),
            claim.published,
            claim.expected,
            verbatim(ratio_text(row.measured.speedup)) if row.measured else code_span(str(row.verdict)),
        ]
        for claim, row in sorted(
            ((claim, row) for row in rows for claim in row.claims),
            key=lambda pair: (
                natural_key(pair[0].id),
                claim_status(pair[1], pair[0]),
                pair[1].workload,
                str(pair[1].configuration),
            ),
        )
    ]
    if not lines:
        return
    yield Heading("Published claims")
    yield Paragraph(
        "A figure from one machine need not hold on another: a claim is reproduced where the whole 95 % interval "
        "satisfies what should hold everywhere, and inconclusive where only a part of it does."
    )
    yield Table(["claim", "status", "workload", "configuration", "published", "should be", "measured"], lines)
    if items := claim_items(sorted({claim.id for row in rows for claim in row.claims}, key=natural_key)):
        yield Items(items)


def _workload(name: str, rows: Sequence[Row]) -> Iterator[Block]:
    lines: list[list[Inline]] = []
    notes: list[Item] = []
    for row in best_first([row for row in rows if not row.counted]):
        first: list[Inline] = [code_span(str(row.configuration))]
        if explained := remarks(row, rows):
            text = "; ".join(shorten(remark, TEXT_LIMIT) for remark in explained)
            notes.append(Item([code_span(str(row.configuration)), f": {text}"]))
        if row.measured is None:
            lines.append([*first, strong(str(row.verdict)), *[""] * 11])
            continue
        measured = row.measured
        over = "" if measured.over_twin is None else ratio_text(measured.over_twin).partition(" ")[0]
        lines.append(
            [
                *first,
                verbatim(ratio_text(measured.speedup)),
                measured.finding,
                over,
                time_text(measured.seconds),
                time_text(measured.eager_seconds),
                ""
                if measured.kernel is None
                else f"{time_text(measured.kernel)} ({_share(measured.kernel / measured.seconds)})",
                *_memory(measured),
                time_text(row.cold.capture + row.cold.calls[0]) if row.cold else "",
                time_text(row.warm.capture + row.warm.calls[0]) if row.warm else "",
                time_text(row.cold.calls[1]) if row.cold else "",
                _pays_back(measured),
            ]
        )
    headers: list[str | Span] = [
        "configuration",
        verbatim("speedup [95 %]"),
        "finding",
        "speedup, same arithmetic",
        "median",
        "eager's median",
        "GPU time in kernels",
        "peak memory",
        "peak memory ÷ eager's",
        "first call, cold",
        "first call, warm",
        "second call, cold",
        PAYS_BACK,
    ]
    yield Heading(code_span(name))
    if lines:
        yield Table(headers, lines, "lllr")
    if notes:
        yield Items(notes)
    costs = cost_table(rows)
    if costs is not None:
        yield Paragraph("What compiling costs. Counts are the same in each run; times and instructions are not quite.")
        yield costs


def _share(share: float) -> str:
    """Return a share as text; it can exceed 100 %, because a profiler makes kernels slightly slower."""
    return "all" if share >= 1 else f"{share:.0%}"


def _memory(measured: Measured) -> list[str]:
    if measured.memory is None:
        return ["", ""]
    share = f"{measured.memory / measured.eager_memory:.2f}×" if measured.eager_memory else ""
    return [_bytes(measured.memory), share]


def _pays_back(measured: Measured) -> str:
    return break_even_text(measured.finding, measured.break_even_cold, measured.break_even_warm)


def _means(rows: Sequence[Row]) -> Iterator[Block]:
    """Yield the geometric means of configurations over workloads, each with its number of workloads."""
    workloads = _by_workload(rows)
    by_way: dict[tuple[str, str, bool], dict[str, Row]] = {}
    for row in rows:
        configuration = row.configuration
        # Workloads differ in their own dtype, so rows are grouped by whether they keep it.
        own = _own_dtype(workloads[row.workload])
        dtype = "as in eager" if configuration.dtype == own else configuration.dtype
        way = f"{configuration.compiler} {dtype}" + (
            f" {configuration.layout}" if configuration.layout != "contiguous" else ""
        )
        by_way.setdefault((way, configuration.compiler, configuration.dynamic), {})[row.workload] = row
    lines: list[tuple[float, str, list[Inline]]] = []
    for (way, compiler, dynamic), by_workload in by_way.items():
        # Eager against another copy of itself.
        if compiler == EAGER and way.endswith("as in eager"):
            continue
        # A row without a steady state has no single speed that a mean could count.
        values = [row.measured.speedup[0] for row in by_workload.values() if row.measured and drift(row) is None]
        mean = geometric_mean(values)
        name = way + (" dynamic" if dynamic else "")
        row_shown: list[Inline] = [
            code_span(name),
            "" if mean is None else f"{mean:.2f}×",
            f"{len(values)} of {len(by_workload)} right and in a steady state, of {len(workloads)} workloads",
        ]
        lines.append((-(mean or 0.0), name, row_shown))
    if lines:
        yield Heading("Geometric means")
        yield Paragraph(
            "Over the workloads where a configuration is right and in a steady state; a mean over other workloads "
            "cannot be compared with it."
        )
        ordered = [cells for _, _, cells in sorted(lines, key=lambda line: line[:2])]
        yield Table(["configuration", "mean speedup", "coverage"], ordered, "lrl")


def _own_dtype(rows: Sequence[Row]) -> str:
    """Return the dtype of a workload's own eager; in older files, that of the eager row without a twin."""
    for row in rows:
        if row.own_dtype is not None:
            return row.own_dtype
    for row in rows:
        if row.configuration == Configuration(EAGER, row.configuration.dtype) and (
            row.processes and row.processes[0].twin is None
        ):
            return row.configuration.dtype
    return rows[0].configuration.dtype


def _conditions(rows: Sequence[Row]) -> Iterator[Block]:
    processes = [(row, process) for row in rows for process in row.processes]
    if not processes:
        return
    marked = {
        f"{row.workload} {row.configuration}": process.conditions.marks
        for row, process in processes
        if process.conditions.marks
    }
    yield Heading("State of the machine")
    yield Paragraph(
        f"Processes timed: {len(processes)}; configurations timed on a throttled or shared machine: {len(marked)}."
    )
    lines = []
    for title, name, unit in (
        ("SM clock", "sm_clock", "MHz"),
        ("memory clock", "memory_clock", "MHz"),
        ("temperature", "temperature", "°C"),
        ("power", "power", "W"),
    ):
        spreads = [
            getattr(process.conditions, name)
            for _, process in processes
            if getattr(process.conditions, name) is not None
        ]
        if spreads:
            lines.append(f"{title}: {min(s[0] for s in spreads):g} to {max(s[2] for s in spreads):g} {unit}")
    first = processes[0][1].conditions
    lines.append(
        f"CPU: {first.threads} threads on {first.affinity} cores, governor {first.governor or 'unknown'}, "
        f"allocator {first.allocator or 'unknown'}, "
        f"load {min(process.conditions.load or 0 for _, process in processes):g} to "
        f"{max(process.conditions.load or 0 for _, process in processes):g}"
    )
    others = [process.conditions.cpu_others for _, process in processes if process.conditions.cpu_others is not None]
    if others:
        lines.append(f"other work on the CPU: {min(others):.1f} to {max(others):.1f} cores")
    overheads = sorted(process.overhead for _, process in processes)
    lines.append(
        f"measuring cost {overheads[len(overheads) // 2]:.1%} beyond the timed iterations (median), "
        f"{overheads[-1]:.1%} at most"
    )
    yield Items(list(map(Item, lines)))


def _method(speedups: Speedups) -> Iterator[Block]:
    yield Heading("How it was measured")
    yield Paragraph(
        "Only what computes the same as eager is timed: results, gradients, updated parameters and buffers are "
        "compared with a float64 reference, and may be as far from it as the arithmetic explains or a few times "
        "eager's own distance; training steps have to be as long as eager's, within a factor of two, and to point the "
        "same way. Eager and a compiled run are interleaved in one process, round by round in random "
        "order; a speedup is the median of the rounds' ratios eager ÷ compiled, averaged over processes; its "
        "interval is from a bootstrap of processes and blocks of rounds, or Student's over the processes where that is "
        "wider. Faster or slower means: the 99 % interval "
        "lies beyond 1 ± 1 % and Mann-Whitney's test rejects equality at 1 %; on a shared device nothing is "
        "concluded. The row of eager is eager against another copy of itself. “Same arithmetic” is the speedup "
        "over eager with the row's own dtype and layout, where those are not the workload's. Cold: fresh compile "
        "caches; warm: another process with those caches; importing torch is counted in neither. It pays back once "
        "the time saved exceeds what compiling cost beyond eager's first calls. Kernels are timed under a profiler, "
        "which makes each a little longer."
    )
    spent = total(row.spent for row in speedups.rows)
    if spent:
        yield Paragraph(f"Where the time went: {spent_text(spent)}.")
    if speedups.method:
        yield Items([Item(f"{name}: {value}") for name, value in speedups.method.items()])


WIDE = 130
"""Width of the console in columns from which the costs are also shown."""

COSTS = ("eager", "first call", "pays back after\n(iterations)")
"""Headers of the columns with the costs of a speedup."""

COLUMNS = (7, 4, 3)
"""Possible numbers of columns of a table: with costs, without costs, and without the median."""

COLOURS = {"faster": "green", "slower": "red"}
"""Colour by finding."""


def print_speedups(console: Console, speedups: Speedups, workloads: set[str] | None = None) -> None:
    """Print a table for each workload, best row first, then the claims; for the given workloads or all."""
    rows = [row for row in speedups.rows if workloads is None or row.workload in workloads]
    for name in dict.fromkeys(row.workload for row in rows):
        workload_rows = best_first([row for row in rows if row.workload == name])
        say(console, one_line(name), "bold")
        timed = [row for row in workload_rows if not row.counted]
        if timed:
            say_all(console, _table_lines(timed, console.width))
        counted = cost_table([row for row in workload_rows if row.counted])
        if counted is not None:
            say_all(console, terminal_lines(counted))
        for row in timed:
            for remark in remarks(row, workload_rows)[:1]:
                line = shorten(f"{row.configuration}: {remark}", TEXT_LIMIT)
                say_wrapped(console, line, "dim", indent=2)
        say(console)
    for row in rows:
        for claim in row.claims:
            measured = ratio_text(row.measured.speedup) if row.measured else str(row.verdict)
            where = f"{row.workload} {row.configuration}"
            say_wrapped(
                console,
                f"claim {claim.id}: {claim_status(row, claim)}: {where}: {measured}, published {claim.published}",
            )


def _table_lines(rows: Sequence[Row], width: int) -> list[Text]:
    """Return a table of one workload with as many of its columns as fit into `width` characters."""
    lines: list[Text] = []
    # The widest table that fits, or the narrowest if none does.
    for columns in COLUMNS if width >= WIDE else COLUMNS[1:]:
        lines = terminal_lines(_table(rows, columns))
        if max(line.cell_len for line in lines) <= width:
            break
    return lines


def _table(rows: Sequence[Row], columns: int) -> Table:
    headers = ["configuration", "speedup [95 %]", "finding", "median", *COSTS][:columns]
    lines: list[list[Inline]] = []
    for row in rows:
        name = str(row.configuration)
        if row.measured is None:
            lines.append([name, "", Span(str(row.verdict), style="bold")])
            continue
        measured = row.measured
        first = time_text(row.cold.capture + row.cold.calls[0]) if row.cold else ""
        cells: list[Inline] = [
            name,
            ratio_text(measured.speedup),
            Span(measured.finding, style=COLOURS.get(measured.finding, "")),
            time_text(measured.seconds),
            time_text(measured.eager_seconds),
            first,
            break_even_text(measured.finding, measured.break_even_cold),
        ]
        lines.append(cells[:columns])
    return Table([Span(header, style="bold") for header in headers], lines, "lrlr")
