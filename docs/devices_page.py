"""The page of the site that compares the committed results of a CPU with those of a GPU, release by release."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from device_pairs import Devices, Pair, compare_devices, way
from page_text import grid, plain
from results_pages import RESULTS, source_name

from recapture.base.text import plural
from recapture.known.devices import DEVICE_DIFFERENCES, GROUPS, DeviceDifference
from recapture.known.table import UNDOCUMENTED
from recapture.records.directories import Results, read_results
from recapture.records.verdicts import outcome_of
from recapture.report import environment_facts
from recapture.torch_api.compat import release as release_of

MOST_CASES = 12
"""Number of cases of an entry that are named."""


class Compared(NamedTuple):
    """The results of a CPU and of a GPU with one release, and how their cells relate."""

    release: str
    cpu: Results
    gpu: Results
    devices: Devices


def compared_releases() -> list[Compared]:
    """Compare the two devices for each image whose whole results are committed for both, oldest release first."""
    compared = []
    for gpu_directory in RESULTS.glob("torch*/sm_*"):
        cpu_directory = gpu_directory.with_name("cpu")
        release = gpu_directory.parent.name.removeprefix("torch").partition("-")[0]
        cpu, gpu = read_results(cpu_directory), read_results(gpu_directory)
        compared.append(Compared(release, cpu, gpu, compare_devices(cpu, gpu, release)))
    return sorted(compared, key=lambda pair: release_of(pair.release))


def devices_page() -> str:
    """The committed results of the CPU and of the GPU, compared: counts, explanations, and what is left."""
    compared = compared_releases()
    return "\n".join([*_counts(compared), *_outcomes(compared), *_ways(compared), *_alone(compared)])


def _counts(compared: Sequence[Compared]) -> Iterable[str]:
    relations: dict[str, Callable[[Devices], int]] = {
        "the same outcome, in the same way": lambda devices: devices.same,
        "another outcome: right, silently wrong or failing": lambda devices: len(devices.other_outcome),
        "wrong on both or failing on both, in another way": lambda devices: len(devices.other_way),
        "judged on one device alone": lambda devices: len(devices.not_judged),
        "differing in a way that can come from another version of the judge": lambda devices: len(
            devices.judged_otherwise
        ),
    }
    rows = [[name, *(str(number(pair.devices)) for pair in compared)] for name, number in relations.items()]
    shown = [row for row in rows if set(row[1:]) != {"0"}]
    differing = "; ".join(
        f"with torch {pair.release}, {', '.join(versions)}"
        for pair in compared
        if (versions := list(_versions(pair.cpu, pair.gpu)))
    )
    besides = f" Besides the device, these differ: {differing}." if differing else ""
    yield f"""# CPU and GPU compared

The cells that a CPU and a GPU both recorded in the same image, for each image that ran whole on both. `recapture diff
results/IMAGE/cpu results/IMAGE/sm_90` shows every cell.{besides}

{grid(["", *(f"torch {pair.release}" for pair in compared)], shown)}"""


def _versions(cpu: Results, gpu: Results) -> Iterable[str]:
    """Return the versions that differ, of what cases use: Python, numpy and scipy."""
    facts = [environment_facts.comparable(results.environment) for results in (cpu, gpu)]
    for name in ("python", "numpy", "scipy"):
        cpu_fact, gpu_fact = (installation.get(name) for installation in facts)
        if cpu_fact != gpu_fact:
            yield f"{name} {cpu_fact} on the CPU and {gpu_fact} on the GPU"


def _outcomes(compared: Sequence[Compared]) -> Iterable[str]:
    moves = [
        Counter(
            f"{outcome_of(cell.cpu.verdict)} → {outcome_of(cell.gpu.verdict)}" for cell in pair.devices.other_outcome
        )
        for pair in compared
    ]
    names = sorted({name for counted in moves for name in counted})
    rows = [[name, *(str(counted[name]) for counted in moves)] for name in names]
    yield f"""## Another outcome

{grid(["CPU → GPU", *(f"torch {pair.release}" for pair in compared)], rows)}
`suites/devices.toml` says what the GPU does differently; a test compares each entry with the records.
"""
    yield from _explained({pair.release: pair.devices.other_outcome for pair in compared})


def _ways(compared: Sequence[Compared]) -> Iterable[str]:
    if any(pair.devices.other_way for pair in compared):
        yield """## Wrong or failing on both, in another way

Another verdict, kind of difference, phase, input or type of exception.
"""
        yield from _explained({pair.release: pair.devices.other_way for pair in compared})


def _explained(pairs: dict[str, tuple[Pair, ...]]) -> Iterable[str]:
    """One list for each group of explanations, with the cells of each release, and one of those that none explains."""
    cells: dict[DeviceDifference, dict[str, list[Pair]]] = {entry: {} for entry in DEVICE_DIFFERENCES.shipped}
    unexplained = []
    for release, members in pairs.items():
        for pair in members:
            for difference in pair.known:
                cells[difference].setdefault(release, []).append(pair)
            if not pair.known:
                unexplained.append((release, pair))
    for group, meaning in GROUPS.items():
        items = [
            _item(difference, by_release)
            for difference, by_release in cells.items()
            if difference.group == group and by_release
        ]
        if items:
            yield f"### {meaning}\n\n" + "\n".join(items) + "\n"
    if unexplained:
        rows = [
            [release, f"`{pair.gpu.case}`", f"`{pair.gpu.compiler}`", plain(way(pair.cpu)), plain(way(pair.gpu))]
            for release, pair in unexplained
        ]
        yield f"### Not explained\n\n{grid(['torch', 'case', 'compiler', 'CPU', 'GPU'], rows)}"


def _item(difference: DeviceDifference, by_release: dict[str, list[Pair]]) -> str:
    """One item of a list: what happens, and below it the releases with their numbers of cells, and the cells."""
    members = [pair for pairs in by_release.values() for pair in pairs]
    cases = list(dict.fromkeys(pair.gpu.case for pair in members))
    named = ", ".join(f"`{case}`" for case in cases[:MOST_CASES])
    more = f" and {len(cases) - MOST_CASES} more" if len(cases) > MOST_CASES else ""
    compilers = ", ".join(
        f"`{name}`" for name in sorted({pair.gpu.compiler for pair in members}, key=difference.compilers.index)
    )
    moves = " or ".join(sorted({f"{outcome_of(pair.cpu.verdict)} → {difference.gpu}" for pair in members}))
    numbers = ", ".join(f"{plural(len(pairs), 'cell')} with {release}" for release, pairs in by_release.items())
    source = "" if difference.source == UNDOCUMENTED else f" [{source_name(difference.source)}]({difference.source})"
    return f"- {plain(difference.what)}{source}\\\n  {moves}: {numbers}.\\\n  {named}{more} under {compilers}"


def _alone(compared: Sequence[Compared]) -> Iterable[str]:
    counted = [Counter(map(_not_judged, pair.devices.not_judged)) for pair in compared]
    keys = sorted({key for numbers in counted for key in numbers})
    rows = [[*(str(numbers[key]) for numbers in counted), f"`{key[0]}`", key[1], plain(key[2])] for key in keys]
    heads = [*(pair.release for pair in compared), "case", "not on the", "why"]
    yield f"## Judged or recorded on one device alone\n\n{grid(heads, rows)}"
    for pair in compared:
        for device, compilers in pair.devices.on_one.items():
            if compilers:
                named = ", ".join(f"`{name}` ({number})" for name, number in sorted(compilers.items()))
                yield f"Recorded on the {device.upper()} alone with torch {pair.release}, by compiler: {named}.\n"


def _not_judged(pair: Pair) -> tuple[str, str, str]:
    on_cpu = outcome_of(pair.cpu.verdict) is None
    return pair.gpu.case, "CPU" if on_cpu else "GPU", way(pair.cpu if on_cpu else pair.gpu)
