"""The page of the site that compares the committed results of a CPU and of a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from device_pairs import Devices, Pair, compare_devices, way
from page_text import grid, plain
from results_pages import LATEST, RESULTS, source_name

from recapture.known.devices import DEVICE_DIFFERENCES, GROUPS, DeviceDifference
from recapture.known.table import UNDOCUMENTED
from recapture.records.directories import Results, read_results
from recapture.records.verdicts import outcome_of
from recapture.report import environment_facts

RELEASE = "2.11.0"
"""The release of torch that both directories are of."""

ON_GPU = RESULTS / f"bare-torch{RELEASE}-cu130" / "sm_90"

MOST_CASES = 12
"""Number of cases of an entry that are named."""


def devices_page() -> str:
    """The committed results of the CPU and of the GPU, compared: counts, explanations, and what is left."""
    cpu, gpu = read_results(LATEST), read_results(ON_GPU)
    devices = compare_devices(cpu, gpu, RELEASE)
    return "\n".join([*_counts(devices, cpu, gpu), *_outcomes(devices), *_ways(devices), *_alone(devices)])


def _counts(devices: Devices, cpu: Results, gpu: Results) -> Iterable[str]:
    versions = ", ".join(_versions(cpu, gpu))
    rows = [
        ["the same outcome, in the same way", str(devices.same)],
        ["another outcome: right, silently wrong or failing", str(len(devices.other_outcome))],
        ["wrong on both or failing on both, in another way", str(len(devices.other_way))],
        ["judged on one device alone", str(len(devices.not_judged))],
    ]
    if devices.judged_otherwise:
        judges = " and ".join(str(results.environment.judge_version) for results in (cpu, gpu) if results.environment)
        told = f"differing in a way that can come from the judge: its versions are {judges}"
        rows.append([told, str(len(devices.judged_otherwise))])
    yield f"""# CPU and GPU compared

`{LATEST.relative_to(RESULTS)}` and `{ON_GPU.relative_to(RESULTS)}`: {devices.compared} cells with torch {RELEASE} that
both recorded. Besides the device, these differ: {versions}. `recapture diff` of the two directories shows every cell.

{grid(["", "cells"], rows)}"""


def _versions(cpu: Results, gpu: Results) -> Iterable[str]:
    """Return the versions that differ, of what cases use: Python, numpy and scipy."""
    facts = [environment_facts.comparable(results.environment) for results in (cpu, gpu)]
    for name in ("python", "numpy", "scipy"):
        cpu_fact, gpu_fact = (installation.get(name) for installation in facts)
        if cpu_fact != gpu_fact:
            yield f"{name} {cpu_fact} on the CPU and {gpu_fact} on the GPU"


def _outcomes(devices: Devices) -> Iterable[str]:
    moves = Counter(
        f"{outcome_of(pair.cpu.verdict)} → {outcome_of(pair.gpu.verdict)}" for pair in devices.other_outcome
    )
    yield f"""## Another outcome

{grid(["CPU → GPU", "cells"], ([name, str(number)] for name, number in sorted(moves.items())))}
`suites/devices.toml` says what the GPU does differently; a test compares each entry with the records.
"""
    yield from _explained(devices.other_outcome)


def _ways(devices: Devices) -> Iterable[str]:
    if devices.other_way:
        yield """## Wrong or failing on both, in another way

Another verdict, kind of difference, phase, input or type of exception.
"""
        yield from _explained(devices.other_way)


def _explained(pairs: Iterable[Pair]) -> Iterable[str]:
    """One table for each group of explanations, and one of the cells that none explains."""
    cells: dict[DeviceDifference, list[Pair]] = {difference: [] for difference in DEVICE_DIFFERENCES.shipped}
    unexplained = []
    for pair in pairs:
        for difference in pair.known:
            cells[difference].append(pair)
        if not pair.known:
            unexplained.append(pair)
    for group, meaning in GROUPS.items():
        rows = [
            _row(difference, members) for difference, members in cells.items() if difference.group == group and members
        ]
        if rows:
            yield f"### {meaning}\n\n{grid(['cells', 'cases', 'compilers', 'CPU → GPU', 'what happens'], rows)}"
    if unexplained:
        rows = [
            [f"`{pair.gpu.case}`", f"`{pair.gpu.compiler}`", plain(way(pair.cpu)), plain(way(pair.gpu))]
            for pair in unexplained
        ]
        yield f"### Not explained\n\n{grid(['case', 'compiler', 'CPU', 'GPU'], rows)}"


def _row(difference: DeviceDifference, members: list[Pair]) -> list[str]:
    cases = list(dict.fromkeys(pair.gpu.case for pair in members))
    named = ", ".join(f"`{case}`" for case in cases[:MOST_CASES])
    compilers = sorted({pair.gpu.compiler for pair in members}, key=difference.compilers.index)
    moves = Counter(f"{outcome_of(pair.cpu.verdict)} → {difference.gpu}" for pair in members)
    source = "" if difference.source == UNDOCUMENTED else f" [{source_name(difference.source)}]({difference.source})"
    return [
        str(len(members)),
        named + (f" and {len(cases) - MOST_CASES} more" if len(cases) > MOST_CASES else ""),
        ", ".join(f"`{name}`" for name in compilers),
        ", ".join(move + (f" ({number})" if len(moves) > 1 else "") for move, number in sorted(moves.items())),
        plain(difference.what) + source,
    ]


def _alone(devices: Devices) -> Iterable[str]:
    counted = Counter(map(_not_judged, devices.not_judged))
    rows = [[f"`{case}`", str(cells), device, plain(why)] for (case, device, why), cells in sorted(counted.items())]
    yield f"## Judged or recorded on one device alone\n\n{grid(['case', 'cells', 'not on the', 'why'], rows)}"
    for device, compilers in devices.on_one.items():
        if compilers:
            named = ", ".join(f"`{name}` ({number})" for name, number in sorted(compilers.items()))
            yield f"Recorded on the {device.upper()} alone, by compiler: {named}.\n"


def _not_judged(pair: Pair) -> tuple[str, str, str]:
    on_cpu = outcome_of(pair.cpu.verdict) is None
    return pair.gpu.case, "CPU" if on_cpu else "GPU", way(pair.cpu if on_cpu else pair.gpu)
