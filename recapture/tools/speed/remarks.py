"""Ranks the rows of a workload, and explains each: why it has no figures, or what lies behind its figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import exp, log
from statistics import median
from typing import NamedTuple

import msgspec

from recapture.base.text import ratio_text, time_text
from recapture.cases.compiler import Family
from recapture.cases.compilers import EAGER, plain_compiler
from recapture.tools.speed.speedups import Measured, Row

MOVED = 1.25
"""Ratio of eager's times in different rows from which the difference is reported.

A row's speedup does not change if eager and the candidate slow down together. If they wait for different parts of the
machine (eager for the processor, a CUDA graph for the GPU), the speedup also depends on the machine's state.
"""


class Best(NamedTuple):
    """The best configuration, and those whose intervals overlap with that of the largest speedup."""

    row: Row
    measured: Measured
    ties: list[Row]


def best_first(rows: Sequence[Row]) -> list[Row]:
    """Sort a workload's rows: the best, the other measured rows by speedup, then those that failed."""
    # The best need not have the largest speedup: of those that overlap it pays back first.
    winner = best(rows)

    def rank(row: Row) -> tuple[bool, bool, float, str]:
        is_best = winner is not None and row is winner.row
        speedup = row.measured.speedup[0] if row.measured else 0.0
        return (not is_best, row.measured is None, -speedup, str(row.configuration))

    return sorted(rows, key=rank)


def best(rows: Sequence[Row]) -> Best | None:
    """Return the best of a workload's rows, or None if none is faster than eager.

    Rows whose 95 % interval overlaps with that of the largest speedup count as equal; the best of them is the row that
    recovers its compile time after the fewest iterations.
    """
    faster = [(row, row.measured) for row in rows if row.measured and row.measured.finding == "faster"]
    if not faster:
        return None
    faster.sort(key=lambda pair: -pair[1].speedup[0])
    # What reaches the lower end of the largest speedup cannot be told from it.
    least = faster[0][1].speedup[1]
    alike = [(row, measured) for row, measured in faster if measured.speedup[2] >= least]

    def cost(pair: tuple[Row, Measured]) -> float:
        even = pair[1].break_even_cold
        return float("inf") if even is None else even

    chosen, measured = min(alike, key=cost)
    return Best(chosen, measured, [row for row, _ in alike if row is not chosen])


def eager_elsewhere(row: Row, rows: Sequence[Row]) -> float | None:
    """Return eager's median seconds in a workload's other rows, or None if it agrees with `row`'s."""
    others = [other.measured.eager_seconds for other in rows if other.measured is not None and other is not row]
    if row.measured is None or not others:
        return None
    usual, own = median(others), row.measured.eager_seconds
    return usual if max(usual, own) > MOVED * min(usual, own) else None


LAUNCH_BOUND = 0.6
"""Share of an iteration spent in kernels below which the row is called launch-bound."""

OVERHEAD = 0.1
"""Share of the timed iterations from which the cost of measuring is reported."""

WIDE = 1.5
"""Ratio of the ends of an interval from which the reason is reported: nothing can be concluded from a wider one."""

HOST_BOUND = 0.7
"""Share of an iteration in the GPU's own time below which the iteration waits for launches."""

CLOCKS_DIFFER = 1.1
"""Ratio of a GPU's highest to its lowest clock from which its clock is a reason for a wide interval."""

FEW_ROUNDS = 15
"""Samples of a process up to which they are few."""

DRIFT = 1.25
"""Ratio of the last third of the samples to the first third from which there is no steady state."""

SLOWER = 1.1
"""Ratio of times from which kernels chosen by autotuning are reported as slower than the default kernels."""

NOTICEABLE = 1.0
"""Compile time in seconds from which its stages are reported."""

NUMBER = re.compile(r"\d+(?:\.\d+)?")
"""Pattern of a number inside a remark."""

MINOR_STAGE = 0.05
"""Share of the compile time below which a stage is not listed."""


def remarks(row: Row, rows: Sequence[Row] = ()) -> list[str]:
    """Return why a row has no figures, or what explains its figures; `rows` are those of its workload."""
    texts = ["from before: measuring it again has not ended"] if row.again else []
    if row.measured is None:
        if row.reason:
            texts.append(row.reason)
        if row.error is not None:
            texts.append(f"{row.error.type}: {row.error.message}")
        return texts + _variables(row)
    texts += why_wide(row)
    texts += row.reasons.cudagraphs
    if row.reasons.recorded:
        texts.append(f"{row.reasons.recorded} CUDA graphs recorded again while timing")
    if row.reasons.break_reasons:
        count = len(row.reasons.break_reasons)
        texts.append(f"{count} graph break{'s' if count > 1 else ''}: {row.reasons.break_reasons[0]}")
    if row.reasons.recompiles:
        count = len(row.reasons.recompiles)
        texts.append(f"{count} recompile{'s' if count > 1 else ''}: {row.reasons.recompiles[0]}")
    grown = drift(row)
    if grown is not None:
        first, last = map(time_text, grown)
        # First, because it makes all other figures of the row doubtful.
        texts.insert(0, f"no steady state: an iteration took {first} at first and {last} at last")
    if row.measured.kernel is not None and not row.reasons.recorded:  # recording a graph launches no kernels
        share = row.measured.kernel / row.measured.seconds
        # The GPU waits for the processor, so that faster kernels would not help.
        if share < LAUNCH_BOUND:
            texts.append(f"launch-bound: kernels run {share:.0%} of the time")
        texts += _choice_of_kernels(row, rows)
    if row.measured.device_speedup is not None:
        own = f"{time_text(row.measured.device)} of {time_text(row.measured.seconds)}"
        texts.append(f"the GPU's own time: {ratio_text(row.measured.device_speedup)}, {own}")
    elsewhere = eager_elsewhere(row, rows)
    if elsewhere is not None:
        beside = time_text(row.measured.eager_seconds)
        texts.append(f"eager took {beside} beside it, {time_text(elsewhere)} beside the other rows")
    if len(row.processes) == 1:
        texts.append("one process: the interval was widened by what processes usually differ")
    worst = max((process.overhead for process in row.processes), default=0.0)
    if worst > OVERHEAD:
        texts.append(f"measuring cost {worst:.0%} beside the iterations")
    texts += _of_the_machine(row)
    return texts + _where_time_went(row) + _variables(row)


def why_wide(row: Row) -> list[str]:
    """Return what causes an interval wider than `WIDE`, and what to do about each cause; none for a narrow one."""
    if row.measured is None or row.measured.speedup[2] <= WIDE * row.measured.speedup[1]:
        return []
    _, low, high = row.measured.speedup
    causes = _causes_of_width(row) or ["no cause was found; measure with more --processes and --seconds"]
    return [f"the interval is {high / low:.1f}× wide: {causes[0]}", *causes[1:]]


def _causes_of_width(row: Row) -> list[str]:
    """Return the reasons why a row's samples spread, each with what helps against it."""
    causes = []
    for name, own, cpu, seconds in _launching(row):
        if own < HOST_BOUND * seconds:
            launching = "" if cpu is None else f", which needs {time_text(cpu)} to launch it"
            causes.append(
                f"{name} waits for the processor{launching}: the GPU works {time_text(own)} of {time_text(seconds)}; "
                "compare the GPU's own time, or take a larger batch"
            )
    conditions = [process.conditions for process in row.processes]
    if work := [mark for mark in _of_the_machine(row) if not mark.startswith("throttled")]:
        causes.append(f"{', '.join(work)}: measure again on an idle machine")
    if reasons := sorted({reason for condition in conditions for reason in condition.throttled}):
        causes.append(f"the GPU was throttled ({', '.join(reasons)}): let it cool, or lock a lower clock")
    clocks = [condition.sm_clock for condition in conditions if condition.sm_clock is not None]
    if clocks and min(clock[0] for clock in clocks) * CLOCKS_DIFFER < max(clock[2] for clock in clocks):
        slowest, fastest = min(clock[0] for clock in clocks), max(clock[2] for clock in clocks)
        causes.append(f"the GPU's clock went from {slowest:g} to {fastest:g} MHz: lock it with nvidia-smi -lgc")
    estimates = [log(median(process.eager.seconds) / median(process.candidate.seconds)) for process in row.processes]
    if estimates and exp(max(estimates) - min(estimates)) > WIDE**0.5:
        fewest, most = exp(min(estimates)), exp(max(estimates))
        causes.append(f"processes disagree, from {fewest:.2f}× to {most:.2f}×: measure more --processes")
    if not causes and min(len(process.candidate.seconds) for process in row.processes) <= FEW_ROUNDS:
        causes.append("few iterations fit into the time: measure longer with --seconds")
    return causes


def _launching(row: Row) -> list[tuple[str, float, float | None, float]]:
    """Return, for eager and the candidate: its name, the GPU's own, the launching and the whole seconds.

    The GPU's own seconds are those in kernels where nothing better was measured.
    """
    measured = row.measured
    if measured is None:
        return []
    times = [process.device_time for process in row.processes if process.device_time is not None]
    own = (measured.eager_device, measured.device) if times else (measured.eager_kernel, measured.kernel)
    cpu = (
        (median(time.eager_cpu for time in times), median(time.candidate_cpu for time in times))
        if times
        else (None, None)
    )
    whole = (measured.eager_seconds, measured.seconds)
    names = (EAGER, str(row.configuration))
    return [
        (name, seconds, launching, total)
        for name, seconds, launching, total in zip(names, own, cpu, whole, strict=True)
        if seconds is not None
    ]


def _of_the_machine(row: Row) -> list[str]:
    """Return conditions that make the timing doubtful, once for all processes."""
    marks_by_text: dict[str, list[str]] = {}
    for process in row.processes:
        for mark in process.conditions.marks:
            # Processes report the same with other numbers: one text with their range says it once.
            marks_by_text.setdefault(NUMBER.sub("\0", mark), []).append(mark)
    described = []
    for text, marks in marks_by_text.items():
        numbers = sorted((float(number[0]), number[0]) for mark in marks for number in NUMBER.finditer(mark))
        if text.count("\0") == 1 and numbers[0] != numbers[-1]:
            described.append(text.replace("\0", f"{numbers[0][1]} to {numbers[-1][1]}"))
        else:
            described += dict.fromkeys(marks)
    return described


def _variables(row: Row) -> list[str]:
    """Return the environment variables that were set and that compilers read."""
    values = [f"{name.removeprefix('env ')}={value}" for name, value in row.flags.items() if name.startswith("env ")]
    return [f"with {' '.join(values)}"] if values else []


def _choice_of_kernels(row: Row, rows: Sequence[Row]) -> list[str]:
    """Return a remark if autotuning chose slower kernels than `torch.compile` uses without it."""
    plain = msgspec.structs.replace(row.configuration, compiler=plain_compiler(Family.DYNAMO))
    untuned = next((other.measured for other in rows if other.configuration == plain), None)
    if not row.configuration.autotunes or row.measured is None or untuned is None:
        return []
    if row.measured.kernel is None or untuned.kernel is None or row.measured.kernel < SLOWER * untuned.kernel:
        return []
    return [f"its kernels take {row.measured.kernel / untuned.kernel:.2f}× as long as those of {plain}"]


def _where_time_went(row: Row) -> list[str]:
    """Return the stages of a cold compile; none if torch does not report them or the compile was short."""
    start = row.cold
    if start is None or not start.stages or start.total < NOTICEABLE:
        return []
    most = sorted(start.stages.items(), key=lambda stage: -stage[1])
    parts = [f"{name} {time_text(seconds)}" for name, seconds in most if seconds >= MINOR_STAGE * start.total]
    return [f"compiling, cold: {', '.join(parts)}"] if parts else []


def drift(row: Row) -> tuple[float, float] | None:
    """Return the seconds per iteration in the first and in the last third of the samples.

    None unless they grew by `DRIFT` in every process.
    """
    thirds = []
    for process in row.processes:
        # Without the middle third, a slow trend shows as two levels.
        third = len(process.candidate.seconds) // 3
        if third == 0:
            return None
        thirds.append((median(process.candidate.seconds[:third]), median(process.candidate.seconds[-third:])))
    if not thirds or min(last / first for first, last in thirds) < DRIFT:
        return None
    return median(first for first, _ in thirds), median(last for _, last in thirds)
