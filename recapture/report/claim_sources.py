"""Text about published claims for reports: a claim's sentence, and its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.base.escape import markdown_text as plain
from recapture.known.claims import PublishedClaim, published_claims
from recapture.report.markdown_writer import link

if TYPE_CHECKING:
    from collections.abc import Iterable


def _claim(claim: str) -> PublishedClaim | None:
    """Return a published claim; None for one that only users' own cases name."""
    return published_claims().get(claim)


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


def claim_list(claims: Iterable[str]) -> str:
    """Return a Markdown list of claims, each with its sentence and source, after a blank line.

    Undefined claims, from users' own cases, are left out. Empty if there are no others.
    """
    lines = []
    for claim in claims:
        if known := _claim(claim):
            source = plain(source_text(claim))
            origin = link(source, known.source.link) if known.source.link else source
            lines.append(f"- **{plain(claim)}**: {plain(known.claim)} {origin}")
    return "\n\n" + "\n".join(lines) if lines else ""
