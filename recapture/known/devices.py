"""Known differences of outcome between a CPU and a GPU (``suites/devices.toml``): what the GPU does differently."""

from __future__ import annotations

import functools
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

import msgspec

from recapture.base.paths import data_folder
from recapture.base.toml_file import load_toml
from recapture.known.confirmation import UNDOCUMENTED, check_source
from recapture.records.verdicts import Outcome, outcome_of

if TYPE_CHECKING:
    from pathlib import Path

    from recapture.records.record import Record

Group = Literal["address", "assertion", "code", "fuser", "graphs", "mixed", "thread"]

GROUPS: dict[Group, str] = {
    "code": "Inductor writes Triton for a GPU and C++ for a CPU",
    "graphs": "Two modes of `torch.compile` record CUDA graphs, which a CPU does not have",
    "fuser": "TorchScript fuses operations on a GPU alone",
    "thread": "Autograd runs the backward of CUDA tensors in a thread of its own",
    "mixed": "The case uses the CPU's memory, which on a CPU is the memory of its inputs",
    "assertion": "Eager or a graph fails an assertion inside a kernel, where on a CPU it raises an exception",
    "address": "A read outside of an input ends the process on a CPU, and its use of the GPU on a GPU",
}
"""The groups of differences, with what is different on the GPU."""


class DeviceDifference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One explained difference; the comment at the top of devices.toml explains each field."""

    group: Group
    release: str
    cases: tuple[str, ...]
    compilers: tuple[str, ...]
    cpu: tuple[Outcome, ...]
    gpu: Outcome
    shows: str
    what: str
    source: str = UNDOCUMENTED

    def __post_init__(self) -> None:
        name = f"{', '.join(self.cases)} under {', '.join(self.compilers)}"
        for case in self.cases:
            if not re.fullmatch(r"[\w*]+::[\w*]+", case):
                raise ValueError(f"{name}: {case!r} is not a case, SUITE::NAME")
        if not self.cases or not self.compilers or not self.cpu:
            raise ValueError(f"{name}: cases, compilers and cpu name at least one each")
        if not self.shows.strip() or not self.what.strip():
            raise ValueError(f"{name}: shows and what say something")
        check_source(name, self.source)

    def is_about(self, case: str, compiler: str) -> bool:
        """Whether a cell is among those that the entry names."""
        return compiler in self.compilers and any(fnmatchcase(case, pattern) for pattern in self.cases)

    def covers(self, cpu: Record, gpu: Record) -> bool:
        """Whether the entry explains two records of one cell: their outcomes, and what one of them shows."""
        if not self.is_about(gpu.case, gpu.compiler):
            return False
        outcomes = outcome_of(cpu.verdict), outcome_of(gpu.verdict)
        return outcomes[0] in self.cpu and outcomes[1] == self.gpu and any(self.shows in one for one in _said(cpu, gpu))

    @property
    def line(self) -> str:
        """The explanation in one line, with its source."""
        return f"{self.what} ({self.source})"


class _DevicesFile(msgspec.Struct, forbid_unknown_fields=True):
    """The content of devices.toml."""

    differences: list[DeviceDifference]


@functools.cache
def known_device_differences() -> tuple[DeviceDifference, ...]:
    """Return the differences that ship with recapture, in the order of the file."""
    return load_device_differences(data_folder("suites") / "devices.toml")


def matching(release: str, cpu: Record, gpu: Record) -> list[DeviceDifference]:
    """Return the entries that explain two records of one cell with a release of torch, such as ``2.11.0``."""
    return [one for one in known_device_differences() if one.release == release and one.covers(cpu, gpu)]


def load_device_differences(path: Path) -> tuple[DeviceDifference, ...]:
    """Read a file of differences, in its order.

    Raises UsageError, in one line, for an unreadable file, an unknown key, and an entry that cannot be true.
    """
    noun = "the known differences of devices"
    return load_toml(path, noun, lambda file: tuple(msgspec.convert(file, _DevicesFile).differences))


def _said(cpu: Record, gpu: Record) -> list[str]:
    """Return what the records say about their failures and differences, each with the device before it."""
    said = []
    for device, record in (("cpu", cpu), ("gpu", gpu)):
        said += [f"{device}: {one.kind}: {one.detail}" for one in record.differences]
        said += [f"{device}: {record.error.type}: {record.error.message}"] if record.error else []
        said += [f"{device}: {record.reason}"] if record.reason else []
    return said
