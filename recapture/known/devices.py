"""Known differences of outcome between a CPU and a GPU (``suites/devices.toml``): what the GPU does differently."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from recapture.known.table import UNDOCUMENTED, Table, check_source
from recapture.records.difference import Unlike
from recapture.records.kinds import KINDS
from recapture.records.record import Record
from recapture.records.verdicts import Outcome, outcome_of

Group = Literal["address", "assertion", "code", "dispatch", "fuser", "graphs", "limit", "mixed", "recapture", "thread"]

GROUPS: dict[Group, str] = {
    "code": "Inductor writes Triton for a GPU and C++ for a CPU",
    "graphs": "Two modes of `torch.compile` record CUDA graphs, which a CPU does not have",
    "fuser": "TorchScript fuses operations on a GPU alone",
    "thread": "Autograd runs the backward of CUDA tensors in a thread of its own",
    "mixed": "The case uses the CPU's memory, which on a CPU is the memory of its inputs",
    "assertion": "Eager or a graph fails an assertion inside a kernel, where on a CPU it raises an exception",
    "address": "A read outside of an input ends the process on a CPU, and its use of the GPU on a GPU",
    "dispatch": "An operation of torch itself takes another way for CUDA tensors",
    "limit": "Torch works for about as long as the time limit, and one machine is faster than the other",
    "recapture": "The record shows a fault of recapture itself, which is corrected",
}
"""The groups of differences, with what is different on the GPU."""


class Shown(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the record of one device has: a text in its error or reason, or a difference with these fields."""

    on: Literal["cpu", "gpu"]
    message: str = ""
    kind: str | None = None
    unlike: Unlike | None = None
    eager: str | None = None
    other: str | None = None

    def __post_init__(self) -> None:
        if bool(self.message.strip()) == (self.kind is not None):
            raise ValueError("shows has a message, or the kind of a difference")
        if self.kind is not None and self.kind not in KINDS:
            raise ValueError(f"shows has the unknown kind of difference {self.kind!r}")

    def is_shown_by(self, record: Record) -> bool:
        """Whether a record has this text, or a difference of which every field given here is the same."""
        if self.kind is None:
            error = f"{record.error.type}: {record.error.message}" if record.error else ""
            return self.message in error or self.message in (record.reason or "")
        fields = {"kind": self.kind, "unlike": self.unlike, "eager": self.eager, "other": self.other}
        named_fields = {name: value for name, value in fields.items() if value is not None}
        return any(
            all(getattr(difference, name) == value for name, value in named_fields.items())
            for difference in record.differences
        )


class DeviceDifference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One explained difference; the comment at the top of devices.toml explains each field."""

    group: Group
    releases: tuple[str, ...]
    cases: tuple[str, ...]
    compilers: tuple[str, ...]
    cpu: tuple[Outcome, ...]
    gpu: Outcome
    shows: Shown
    what: str
    source: str = UNDOCUMENTED

    def __post_init__(self) -> None:
        name = f"{', '.join(self.cases)} under {', '.join(self.compilers)}"
        for case in self.cases:
            if not re.fullmatch(r"[\w*]+::[\w*]+", case):
                raise ValueError(f"{name}: {case!r} is not a case, SUITE::NAME")
        if not self.releases or not self.cases or not self.compilers or not self.cpu:
            raise ValueError(f"{name}: releases, cases, compilers and cpu name at least one each")
        if not self.what.strip():
            raise ValueError(f"{name}: what says something")
        check_source(name, self.source)

    def is_about(self, case: str, compiler: str) -> bool:
        """Whether a cell is among those that the entry names."""
        return compiler in self.compilers and any(fnmatchcase(case, pattern) for pattern in self.cases)

    def covers(self, cpu: Record, gpu: Record) -> bool:
        """Whether the entry explains two records of one cell: their outcomes, and what one of them shows."""
        if not self.is_about(gpu.case, gpu.compiler):
            return False
        if outcome_of(cpu.verdict) not in self.cpu or outcome_of(gpu.verdict) != self.gpu:
            return False
        return self.shows.is_shown_by(cpu if self.shows.on == "cpu" else gpu)

    @property
    def line(self) -> str:
        """The explanation in one line, with its source."""
        return f"{self.what} ({self.source})"


DEVICE_DIFFERENCES: Table[tuple[DeviceDifference, ...]] = Table(
    "devices.toml",
    "the known differences of devices",
    tuple,
    differences=DeviceDifference,
)
"""The differences, in the order of the file."""


def matching(release: str, cpu: Record, gpu: Record) -> list[DeviceDifference]:
    """Return the entries that explain two records of one cell with a release of torch, such as ``2.11.0``."""
    return [entry for entry in DEVICE_DIFFERENCES.shipped if release in entry.releases and entry.covers(cpu, gpu)]
