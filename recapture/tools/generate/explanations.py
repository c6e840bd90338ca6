"""What is known of cells that do not pass: torch's own marks, the families read by hand, and the suites' records."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from recapture.base.errors import UsageError
from recapture.base.paths import data_folder
from recapture.base.text import shorten
from recapture.cases.compiler import Family
from recapture.cases.compilers import compiler_facts
from recapture.known.findings import FAULTS, Fault
from recapture.known.table import Table, check_source
from recapture.records.directories import find_results, read_results
from recapture.records.record import Record
from recapture.records.verdicts import RIGHT
from recapture.report.findings import known_lines
from recapture.tools.generate.families import FamilyKey, family_of

TESTS_OF_COMPILERS: dict[Family, str] = {
    Family.TRACE: r"TestJit\.(\*|test_variant_consistency_jit)",
    Family.SCRIPT: r"TestJit\.(\*|test_variant_consistency_jit)",
    Family.SYMBOLIC: r"TestNormalizeOperators\.",
    Family.DYNAMO: r"Test(FakeTensor|Meta|InductorOpInfo)\.",
    Family.EXPORT: r"Test(FakeTensor|Meta)\.",
    Family.ATEN: r"Test(FakeTensor|Meta)\.",
}
"""Torch's own tests of an operator that ask what a compiler's cells ask, by the compiler's family."""

TESTS_OF_FORMS = {
    "out": r"TestCommon\.test_out|TestCommon\.\*",
    "strided_out": r"TestCommon\.(test_out|test_noncontiguous_samples|\*)",
    "strided": r"TestCommon\.(test_noncontiguous_samples|\*)",
    "strided_in_place": r"TestCommon\.(test_noncontiguous_samples|\*)",
}
"""Torch's own tests of an operator that ask what a form asks."""


class Known(NamedTuple):
    """What is known of a cell: where it is known from, and a sentence."""

    source: str
    what: str


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A family that was read by hand: what its cells have in common, why, whose fault it is, and the thread.

    `text` is searched in the family's line, `suspects`, `forms` and `compilers` must match as a whole; all are
    patterns.
    """

    name: str
    what: str
    fault: Fault
    source: str
    text: str = ""
    suspects: str = ".*"
    forms: str = ".*"
    compilers: str = ".*"

    def __post_init__(self) -> None:
        check_source(self.name, self.source)
        if self.fault not in FAULTS:
            raise ValueError(f"{self.name}: unknown fault {self.fault!r}")
        for pattern in (self.text, self.suspects, self.forms, self.compilers):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{self.name}: {pattern!r} is not a pattern: {error}") from None

    def explains(self, family: FamilyKey, suspect: str, form: str, compiler: str) -> bool:
        """Whether a cell is one of these."""
        return (
            re.search(self.text, str(family)) is not None
            and re.fullmatch(self.suspects, suspect) is not None
            and re.fullmatch(self.forms, form) is not None
            and re.fullmatch(self.compilers, compiler) is not None
        )


REASONS: Table[tuple[Reason, ...]] = Table("families.toml", "the families", tuple, families=Reason)
"""The families that were read by hand, in the order of the file."""


def known_of(
    record: Record,
    family: FamilyKey,
    suspect: str,
    form: str,
    excused: tuple[str, ...],
    suites: dict[FamilyKey, Known],
) -> Known | None:
    """Return what is known of a cell that does not pass; None if nothing is."""
    for reason in REASONS.shipped:
        if reason.explains(family, suspect, form, record.compiler):
            return Known(reason.name, f"{reason.what} ({reason.fault}; {reason.source})")
    kind = compiler_facts(record.compiler).family
    tests = [TESTS_OF_FORMS.get(form), TESTS_OF_COMPILERS.get(kind) if isinstance(kind, Family) else None]
    for test in excused:
        if any(pattern is not None and re.match(pattern, test) for pattern in tests):
            return Known("torch's own tests", f"torch skips {test} for {suspect}, or expects it to fail")
    return suites.get(family)


def known_from_suites(torch: str, device: str) -> dict[FamilyKey, Known]:
    """Return what the committed records of a release show, by the family that they would be in.

    Families of one operator are left out: a case of the suites says nothing about the operators of others.
    """
    known: dict[FamilyKey, Known] = {}
    for record in committed_records(torch):
        if record.verdict in RIGHT or record.device != device:
            continue
        lines = known_lines(record)
        words = shorten(lines[0], 200) if lines else f"{record.cell} fails in the same way"
        if record.error is not None or lines:
            known.setdefault(family_of(record, ""), Known(f"suites: {record.cell}", words))
    return known


def committed_records(torch: str) -> Iterator[Record]:
    """Yield the committed records of a release."""
    root = data_folder("results")
    for directory in find_results(root, needed=False) if root.is_dir() else ():
        if directory.parent.name.startswith(f"torch{torch.split('+', maxsplit=1)[0]}-"):
            with contextlib.suppress(UsageError):  # results that this version cannot read say nothing
                yield from read_results(directory).records
