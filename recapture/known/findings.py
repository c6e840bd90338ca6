"""Causes of silently wrong cells (``suites/findings.toml``): what is wrong, whose fault it is, and the thread."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from recapture.base.paths import data_folder
from recapture.base.toml_file import load_toml
from recapture.known.confirmation import check_source

if TYPE_CHECKING:
    from pathlib import Path

Fault = Literal["torch", "limit", "design", "other project", "eager", "case"]
"""Whose fault a silently wrong result is."""

FAULTS: dict[Fault, str] = {
    "torch": "A fault of torch: the captured code should do what eager does, and nothing says that it need not.",
    "limit": "A limit that torch's documents, warnings, settings or maintainers state; a user gets no error.",
    "design": "What the capture is made for leaves no room for it: an ONNX model has no Python lists, for example.",
    "other project": "A fault or a choice of another project that runs the captured code, such as ONNX Runtime.",
    "eager": "Eager is at fault; the captured code does what the documents say.",
    "case": "The case asks for the difference: code may know of its capture, and a rewrite need not be equal.",
}
"""Every kind of fault, with its meaning."""


class Cause(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One cause, with the cells that it explains; the comment at the top of findings.toml explains each field."""

    name: str
    what: str
    fault: Fault
    source: str
    cells: dict[str, tuple[str, ...]] = {}
    inputs_unlike_the_example: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", self.name):
            raise ValueError(f"{self.name!r} is no name of a finding: small letters, digits and hyphens")
        check_source(self.name, self.source)
        if not self.cells and not self.inputs_unlike_the_example:
            raise ValueError(f"{self.name}: neither a cell nor a compiler is named")
        for case, compilers in self.cells.items():
            if not re.fullmatch(r"\w+::\w+", case):
                raise ValueError(f"{self.name}: {case!r} is not a case, SUITE::NAME")
            if not compilers or len(set(compilers)) != len(compilers):
                raise ValueError(f"{self.name}: the compilers of {case} are none, or one is named twice")

    @property
    def line(self) -> str:
        """The finding in one line, with whose fault it is and its source."""
        words = {"limit": "a stated limit", "design": "by design", "case": "asked for by the case"}
        return f"{self.what} ({words.get(self.fault, f'fault: {self.fault}')}; {self.source})"


class _FindingFile(msgspec.Struct, forbid_unknown_fields=True):
    """The content of findings.toml."""

    findings: list[Cause]


@functools.cache
def known_findings() -> tuple[Cause, ...]:
    """Return the findings that ship with recapture, in the order of the file."""
    return load_findings(data_folder("suites") / "findings.toml")


@functools.cache
def findings_by_cell() -> dict[str, Cause]:
    """Return the finding of each cell, SUITE::CASE::COMPILER, that has one."""
    return _by_cell(known_findings())


def load_findings(path: Path) -> tuple[Cause, ...]:
    """Read a file of findings, in its order.

    Raises UsageError, in one line, for an unreadable file, an unknown key, an entry that cannot be true, and a cell or
    a name that occurs twice.
    """
    return load_toml(path, "the findings", _findings)


def _findings(file: dict[str, Any]) -> tuple[Cause, ...]:
    found = tuple(msgspec.convert(file, _FindingFile).findings)
    _by_cell(found)  # refuses a cell or a name that occurs twice
    return found


def _by_cell(findings: tuple[Cause, ...]) -> dict[str, Cause]:
    found: dict[str, Cause] = {}
    for one in findings:
        for case, compilers in one.cells.items():
            for compiler in compilers:
                cell = f"{case}::{compiler}"
                if cell in found:
                    raise ValueError(f"{cell} is in {found[cell].name} and in {one.name}")
                found[cell] = one
    if len({one.name for one in findings}) != len(findings):
        raise ValueError("two findings have one name")
    return found
