"""The sources of claims (``suites/claims.toml``): published documents, their claims, and what checks each claim."""

from __future__ import annotations

import re
from typing import Literal, get_args

import msgspec

from recapture.base.errors import did_you_mean
from recapture.known.table import Table

EvidenceKind = Literal["case", "workload", "check", "test", "command"]

_RANGE = re.compile(r"(?:>=|<=|==|<|>)\d+\.\d+(?:\.\d+)?")
"""Pattern of one bound of a range of torch releases; commas separate several bounds."""


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A published document; the comment at the top of claims.toml explains each field."""

    id: str
    title: str
    kind: str
    language: str
    torch: str
    year: int | None = None
    link: str | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        if self.link is not None and not re.fullmatch(r"https://[\w.-]+/[!-~]*", self.link):
            raise ValueError(f"source {self.id}: the link {self.link!r} is not an https address")


class Evidence(msgspec.Struct, frozen=True):
    """Something that checks a claim: a case, a workload, a check of the doctor, a test or a command."""

    kind: EvidenceKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class PublishedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """One claim of a document; `torch` is the range of releases that it applies to, None for every release."""

    id: str
    source: Source
    claim: str
    figures: str | None = None
    torch: str | None = None
    shown_by: tuple[Evidence, ...] = ()
    not_shown: str | None = None


class _ClaimTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A table ``[claims.ID]`` as written in the file."""

    id: str
    source: str
    claim: str
    figures: str | None = None
    torch: str | None = None
    shown_by: list[str] = []
    not_shown: str | None = None


def _build(sources: list[Source], claims: list[_ClaimTable]) -> dict[str, PublishedClaim]:
    by_id = {source.id: source for source in sources}
    return {table.id: _claim(table, by_id) for table in claims}


def _claim(table: _ClaimTable, sources: dict[str, Source]) -> PublishedClaim:
    name = table.id
    if table.source not in sources:
        raise ValueError(f"claim {name}: unknown source {table.source!r}{did_you_mean(table.source, sources)}")
    if not table.shown_by and not table.not_shown:
        raise ValueError(f"claim {name}: neither shown_by nor not_shown is given")
    if table.torch is not None and not all(_RANGE.fullmatch(bound) for bound in table.torch.split(",")):
        raise ValueError(f"claim {name}: a range of releases is written as '>=2.3,<2.10', not {table.torch!r}")
    return PublishedClaim(
        id=name,
        source=sources[table.source],
        claim=table.claim,
        figures=table.figures,
        torch=table.torch,
        shown_by=tuple(_evidence(name, text) for text in table.shown_by),
        not_shown=table.not_shown,
    )


def _evidence(claim: str, text: str) -> Evidence:
    kind, _, name = text.partition(" ")
    for known in get_args(EvidenceKind):
        if kind == known and name.strip():
            return Evidence(known, name.strip())
    kinds = ", ".join(get_args(EvidenceKind))
    raise ValueError(f"claim {claim}: {text!r} in shown_by does not begin with one of {kinds}, then a name")


CLAIMS: Table[dict[str, PublishedClaim]] = Table(
    "claims.toml", "the published claims", _build, sources=Source, claims=_ClaimTable
)
"""The claims by id, in the order of the file."""
