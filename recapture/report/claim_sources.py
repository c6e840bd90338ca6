"""Text about published claims for reports: a claim's sentence, and its source."""

from __future__ import annotations

from collections.abc import Iterable

from recapture.known.claims import CLAIMS, PublishedClaim
from recapture.report.document import Item, Span, strong


def _claim(claim: str) -> PublishedClaim | None:
    """Return a published claim; None for one that only users' own cases name."""
    return CLAIMS.shipped.get(claim)


def address(claim: str) -> str:
    """Return the public address of the document with a claim; empty if none is known."""
    known = _claim(claim)
    return (known.source.link or "") if known else ""


def sentence(claim: str) -> str:
    """Return a claim as one sentence; empty for an undefined claim."""
    known = _claim(claim)
    return known.claim if known else ""


def source_text(claim: str) -> str:
    """Return a text about the document with a claim, such as ``Title (tutorial, 2025, torch 2.7)``."""
    known = _claim(claim)
    if known is None:
        return ""
    year = f", {known.source.year}" if known.source.year else ""
    return f"{known.source.title} ({known.source.kind}{year}, torch {known.source.torch})"


def claim_items(claims: Iterable[str]) -> list[Item]:
    """Return list entries for claims, each with its sentence and source.

    Undefined claims, from users' own cases, are left out.
    """
    known = {claim: _claim(claim) for claim in claims}
    return [
        Item([strong(name), ": ", claim.claim, " ", Span(source_text(name), link=claim.source.link or "")])
        for name, claim in known.items()
        if claim is not None
    ]
