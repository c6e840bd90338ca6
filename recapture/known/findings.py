"""Causes of silently wrong cells (``suites/findings.toml``): what is wrong, whose fault it is, and the thread."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from recapture.known.table import Table, check_source

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
            raise ValueError(f"{self.name!r} is not a name of a finding: small letters, digits and hyphens")
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


def _build(findings: list[Cause]) -> tuple[Cause, ...]:
    _by_cell(findings)  # refuses a cell that occurs twice
    if len({cause.name for cause in findings}) != len(findings):
        raise ValueError("two findings have one name")
    return tuple(findings)


def _by_cell(findings: Iterable[Cause]) -> dict[str, Cause]:
    causes: dict[str, Cause] = {}
    for cause in findings:
        for case, compilers in cause.cells.items():
            for compiler in compilers:
                cell = f"{case}::{compiler}"
                if cell in causes:
                    raise ValueError(f"{cell} is in {causes[cell].name} and in {cause.name}")
                causes[cell] = cause
    return causes


FINDINGS: Table[tuple[Cause, ...]] = Table("findings.toml", "the findings", _build, findings=Cause)
"""The findings, in the order of the file."""


@functools.cache
def findings_by_cell() -> dict[str, Cause]:
    """Return the finding of each cell, SUITE::CASE::COMPILER, that has one."""
    return _by_cell(FINDINGS.shipped)
