"""Finds changes of speed between two benchmarks, configuration by configuration, for `recapture diff`.

`recapture.tools.compare` calls `folders_below`, `speedups_of`, `environment_of` and `diff_speeds` by name, and receives
plain data, which it checks: its `SpeedChange` and `SpeedSide` say what the fields mean.

Two benchmarks are not interleaved, so that every difference includes changes of the machine between them. Therefore
seconds are divided by those of the yardstick in the same process, where both benchmarks have it. Small differences are
not reported, however certain they look, and each row shows eager's own change as a control.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

from recapture.machine.environment import Environment
from recapture.tools.speed.cost_changes import cost_changes
from recapture.tools.speed.figures import compare_runs
from recapture.tools.speed.speedups import Finding, Process, Row, Speedups, find_speedups, read_speedups

SpeedChange = dict[str, Any]
"""The fields of a `recapture.tools.compare.changes.SpeedChange`."""

Comparison = tuple[str, "tuple[float, float, float] | None"]
"""The category of a change of speed, and the ratio with its 95 % interval."""

FINDINGS: dict[Finding, str] = {
    "faster": "faster",
    "slower": "slower",
    "too noisy": "too_noisy",
    "no difference shown": "no_difference_shown",
}


def folders_below(root: Path) -> set[Path]:
    """Return the directories at or below a directory that have files of `recapture bench`."""
    return {path.parent for path in find_speedups(root)}


def speedups_of(directory: Path) -> dict[str, Path]:
    """Return the files of `recapture bench` in a results directory, by name, without those set aside."""
    return {path.name: path for path in sorted(directory.glob("speedups-*.json")) if ".before-" not in path.name}


def environment_of(path: Path) -> Environment:
    """Return the environment in which a file of `recapture bench` was measured."""
    return read_speedups(path).environment


def diff_speeds(old: Path, new: Path) -> tuple[list[SpeedChange], list[str]]:
    """Compare the benchmarks of two results directories; return the changes and warnings.

    Files with equal names are compared, or the only file of each side. Raises UsageError if reading them fails.
    """
    before, after = speedups_of(old), speedups_of(new)
    pairs = [(before[name], after[name]) for name in sorted(before.keys() & after.keys())]
    if not pairs and len(before) == 1 == len(after):
        pairs = list(zip(before.values(), after.values(), strict=True))
    changes: list[SpeedChange] = []
    notes: list[str] = []
    if before and after and not pairs:
        notes.append("speed is not compared: OLD and NEW were timed on several devices, none of them the same")
    if bool(before) != bool(after):
        notes.append(f"speed is not compared: {'NEW' if before else 'OLD'} has no benchmark")
    if pairs and importlib.util.find_spec("scipy") is None:  # an installation that only reads results
        return [], ["speed is not compared: that needs scipy"]
    for was, now in ((read_speedups(was), read_speedups(now)) for was, now in pairs):
        for name, side in (("OLD", was), ("NEW", now)):
            done = sum(not row.again for row in side.rows)
            if done < side.planned:
                notes.append(f"speed: {name} is incomplete: {side.planned} configurations planned, {done} measured")
        differ = hardware_change(was, now)
        if differ:
            notes.append(f"speed: {differ}, so speedups over eager are compared, not seconds")
        changes += _changes(was, now, seconds=not differ)
    return changes, notes


def hardware_change(old: Speedups, new: Speedups) -> str:
    """Return the hardware differences of two benchmarks; empty if their seconds can be compared."""
    differ = (f"{was} became {now}" for was, now in zip(_timed_on(old), _timed_on(new), strict=True) if was != now)
    return next(differ, "")


def _timed_on(speedups: Speedups) -> tuple[str, str, str, str]:
    """Return the hardware that affects timing; on a GPU also the processor, because models may wait for launches."""
    gpu, cpu = speedups.environment.gpu, speedups.environment.cpu
    threads = f"{speedups.method.get('CPU threads')} CPU threads"
    settings = speedups.method.get("cores and allocator", "leave")
    steady = "cores and allocator set" if settings == "set" else "cores and allocator left as they are"
    return (gpu.name or "an unknown GPU") if gpu else "a CPU", cpu.model or "an unknown CPU", threads, steady


def _changes(old: Speedups, new: Speedups, *, seconds: bool) -> Iterable[SpeedChange]:
    # A row that was to be measured again, but was not, is from an earlier benchmark.
    stale = {row.key for side in (old, new) for row in side.rows if row.again}
    before, after = ({row.key: row for row in side.rows} for side in (old, new))
    for key in sorted((before.keys() | after.keys()) - stale):
        was, now = before.get(key), after.get(key)
        category = _category(was, now)
        change: SpeedChange = {
            "workload": key[0],
            "configuration": str(key[1]),
            "category": category or "no_difference_shown",
            "basis": "seconds" if seconds else "speedup",
            "old": None if was is None else _side(was),
            "new": None if now is None else _side(now),
        }
        if category is None and was is not None and now is not None:
            change |= compared(was, now, device=new.environment.device, seconds=seconds)
        yield change


def compared(old: Row, new: Row, *, device: str, seconds: bool) -> SpeedChange:
    """Return how the speed and the costs of a row changed that is right on both sides."""
    costs = cost_changes(old, new, device=device, same_processor=seconds)
    if old.counted or new.counted:
        return {"category": "counted", "basis": "seconds", "costs": costs}
    return _timed(old, new, seconds=seconds) | {"costs": costs}


def _timed(old: Row, new: Row, *, seconds: bool) -> SpeedChange:
    """Return how the speed of a row changed that was timed on both sides, by seconds if those are conclusive.

    Processes differ in eager's time, too (addresses, the processor's clock, launching), so the speedup over eager is
    more certain. It decides if seconds do not, unless eager itself changed.
    """
    over_eager = _fields(_compared(old, new, _log_speedup), "speedup")
    if not seconds:
        return over_eager
    own, eager = (_compared(old, new, _by_yardstick(old, new, rate)) for rate in (_log_rate, _log_eager_rate))
    eager_stayed = eager[0] not in ("slower", "faster")
    if own[0] == "too_noisy" and over_eager["category"] != "too_noisy" and eager_stayed:
        change = over_eager
    else:
        change = _fields(own, "seconds")
    if _have_yardstick(old, new):
        change["yardstick"] = _compared(old, new, _log_yardstick_rate)[1]
    return change | {"eager": eager[1]}


def _fields(comparison: Comparison, basis: str) -> SpeedChange:
    category, ratio = comparison
    return {"category": category, "change": ratio, "basis": basis}


def _category(old: Row | None, new: Row | None) -> str | None:
    """Return the category of a configuration; None if it is right on both sides."""
    if old is None:
        return "only_in_new"
    if new is None:
        return "only_in_old"
    if old.hash is not None and new.hash is not None and old.hash != new.hash:
        return "edited"
    if old.right != new.right:
        return "newly_right" if new.right else "no_longer_right"
    if not old.right:
        return "failing_differently" if _failure(old) != _failure(new) else "not_timed"
    return None


def _failure(row: Row) -> tuple[object, ...]:
    """Return a key that is equal for equal failures."""
    return (row.verdict, row.phase, *((row.error.type, row.error.fingerprint) if row.error else ()))


def _log_rate(process: Process) -> float:
    return -math.log(median(process.candidate.seconds))


def _log_eager_rate(process: Process) -> float:
    return -math.log(median(process.eager.seconds))


def _log_yardstick_rate(process: Process) -> float:
    return -math.log(median(process.yardstick or (1.0,)))


def _have_yardstick(old: Row, new: Row) -> bool:
    return all(process.yardstick for row in (old, new) for process in row.processes)


def _by_yardstick(old: Row, new: Row, rate: Callable[[Process], float]) -> Callable[[Process], float]:
    """Return a rate relative to that of the yardstick, if both rows have it: what the machine changed cancels."""
    if not _have_yardstick(old, new):
        return rate
    return lambda process: rate(process) - _log_yardstick_rate(process)


def _log_speedup(process: Process) -> float:
    pairs = zip(process.eager.seconds, process.candidate.seconds, strict=True)
    return median(math.log(eager / candidate) for eager, candidate in pairs)


def _compared(old: Row, new: Row, estimate: Callable[[Process], float]) -> Comparison:
    """Compare the processes of two rows by one estimate for each, the logarithm of a speed."""
    comparison = compare_runs(*([estimate(process) for process in row.processes] for row in (old, new)))
    if comparison is None:
        return "too_noisy", None
    ratio = (comparison.ratio, comparison.low, comparison.high)
    if any(process.conditions.shared for row in (old, new) for process in row.processes):
        return "too_noisy", ratio
    return FINDINGS[comparison.finding], ratio


def _side(row: Row) -> dict[str, Any]:
    measured = row.measured
    return {
        "verdict": str(row.verdict),
        "reason": row.reason or (f"{row.error.type}: {row.error.message}" if row.error else None),
        "speedup": None if measured is None else measured.speedup,
        "seconds": None if measured is None else measured.seconds,
        "memory": None if measured is None else measured.memory,
        "cold": None if row.cold is None else row.cold.capture + row.cold.calls[0],
        "warm": None if row.warm is None else row.warm.capture + row.warm.calls[0],
    }


def figures_of(path: Path) -> list[dict[str, Any]]:
    """Return the figures of each row of a file, as the fields of a `recapture.data.Speed`; of what was timed alone."""
    rows = []
    for row in read_speedups(path).rows:
        if row.counted:
            continue
        measured = row.measured
        figures: dict[str, Any] = {
            "workload": row.workload,
            "configuration": str(row.configuration),
            "compiler": row.configuration.compiler,
            "verdict": row.verdict.value,
            "reason": row.reason or (f"{row.error.type}: {row.error.message}"[:300] if row.error else None),
            "compile_seconds": round(row.cold.total, 3) if row.cold else None,
        }
        if measured is not None:
            figures |= {
                "finding": measured.finding,
                "speedup": tuple(round(figure, 4) for figure in measured.speedup),
                "seconds": float(f"{measured.seconds:.5g}"),
                "eager_seconds": float(f"{measured.eager_seconds:.5g}"),
                "memory": measured.memory,
                "eager_memory": measured.eager_memory,
            }
        rows.append(figures)
    return rows
