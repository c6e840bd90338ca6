"""Compares the cells that a CPU and a GPU recorded with one release, and finds what explains each difference."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from recapture.base.text import one_line
from recapture.known.devices import DeviceDifference, matching
from recapture.records.directories import Results
from recapture.records.record import Record
from recapture.records.verdicts import NOT_RUN, RIGHT, outcome_of
from recapture.report.differences import kinds_of


class Pair(NamedTuple):
    """The records of one cell on the two devices, and the entries of devices.toml that explain them."""

    cpu: Record
    gpu: Record
    known: tuple[DeviceDifference, ...]


@dataclass(frozen=True)
class Devices:
    """The cells that two devices recorded, by how their outcomes relate."""

    same: int
    """The number of cells with the same outcome, in the same way."""
    other_outcome: tuple[Pair, ...]
    """Right on one device, silently wrong or failing on the other; or wrong on one, failing on the other."""
    other_way: tuple[Pair, ...]
    """Silently wrong on both, or failing on both, with another verdict, kind of difference, phase, input or type."""
    not_judged: tuple[Pair, ...]
    """Not run, or not judged, on one device alone."""
    judged_otherwise: tuple[Pair, ...]
    """Another outcome or way that nothing explains, where two versions of the judge gave the verdicts."""
    on_one: dict[str, Counter[str]]
    """By device, the numbers of cells that only it recorded, by compiler."""

    @property
    def compared(self) -> int:
        """The number of cells that both devices recorded."""
        differing = (self.other_outcome, self.other_way, self.not_judged, self.judged_otherwise)
        return self.same + sum(len(pairs) for pairs in differing)


def compare_devices(cpu: Results, gpu: Results, release: str) -> Devices:
    """Compare the records of a CPU with those of a GPU, cell by cell.

    Cells whose case was edited between the two recordings are not compared; they count as recorded on one device. Where
    another version of the judge judged one of the two, a difference that nothing explains can be the judge's.
    """
    # With the hash, so that an edited case is not compared with its earlier self.
    on_cpu = {(record.case, record.compiler, record.case_hash): record for record in cpu.records}
    on_gpu = {(record.case, record.compiler, record.case_hash): record for record in gpu.records}
    names = ("same", "other_outcome", "other_way", "not_judged", "judged_otherwise")
    pairs: dict[str, list[Pair]] = {name: [] for name in names}
    versions = {results.environment.judge_version for results in (cpu, gpu) if results.environment is not None}
    for key in sorted(on_cpu.keys() & on_gpu.keys()):
        cpu_record, gpu_record = on_cpu[key], on_gpu[key]
        known = matching(release, cpu_record, gpu_record)
        relation = _relation(cpu_record, gpu_record)
        if len(versions) > 1 and not known and relation in ("other_outcome", "other_way"):
            relation = "judged_otherwise"
        pairs[relation].append(Pair(cpu_record, gpu_record, tuple(known)))
    alone = {"cpu": on_cpu.keys() - on_gpu.keys(), "gpu": on_gpu.keys() - on_cpu.keys()}
    return Devices(
        same=len(pairs["same"]),
        other_outcome=tuple(pairs["other_outcome"]),
        other_way=tuple(pairs["other_way"]),
        not_judged=tuple(pairs["not_judged"]),
        judged_otherwise=tuple(pairs["judged_otherwise"]),
        on_one={device: Counter(compiler for _, compiler, _ in keys) for device, keys in alone.items()},
    )


def way(record: Record) -> str:
    """Return how a cell is wrong or fails, in words: what tells two failures of one outcome apart."""
    parts = [str(record.verdict), f"in phase {record.phase}" if record.phase else "", record.input or ""]
    parts += [record.error.type.rpartition(".")[2]] if record.error else []
    parts += [one_line(record.reason)] if record.reason and not record.error else []
    kinds = kinds_of(record.differences)
    return ", ".join(part for part in [*parts, f"differs in {', '.join(kinds)}" if kinds else ""] if part)


def _relation(cpu: Record, gpu: Record) -> str:
    outcomes = outcome_of(cpu.verdict), outcome_of(gpu.verdict)
    if outcomes[0] == outcomes[1]:
        alike = cpu.verdict in RIGHT or cpu.verdict in NOT_RUN or way(cpu) == way(gpu)
        return "same" if alike else "other_way"
    return "not_judged" if None in outcomes else "other_outcome"
