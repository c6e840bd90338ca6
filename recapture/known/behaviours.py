"""Behaviours (``suites/behaviours.toml``): what a person would search for, with the cases that show it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

import msgspec

from recapture.known.table import Table, check_source

LONGEST_EXAMPLE = 8
"""The most lines of an example."""

GRAPH_BREAK_SITE = "https://meta-pytorch.github.io/compile-graph-break-site/gb/"
"""Address of torch's pages about reasons of graph breaks, without the page."""


class Behaviour(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One behaviour; the comment at the top of behaviours.toml explains each field."""

    id: str
    title: str
    sentence: str
    group: str
    example: str
    cases: tuple[str, ...]
    cure: str | None = None
    rewrite: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    graph_break: str | None = None
    lint: str | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", self.id):
            raise ValueError(f"{self.id!r} is not an id of a behaviour: small letters, digits and hyphens")
        for text in (self.title, self.sentence, self.group):
            if not text.strip() or "\n" in text:
                raise ValueError(f"{self.id}: a title, a sentence and a group are one line each")
        if not self.sentence.endswith("."):
            raise ValueError(f"{self.id}: the sentence has no full stop")
        if len(self.example.strip("\n").splitlines()) not in range(1, LONGEST_EXAMPLE + 1):
            raise ValueError(f"{self.id}: the example has no line, or more than {LONGEST_EXAMPLE}")
        try:
            ast.parse(self.example)
        except SyntaxError as error:
            raise ValueError(f"{self.id}: the example is not Python: {error}") from None
        if not self.cases:
            raise ValueError(f"{self.id}: no case is named")
        for pattern in (*self.cases, *self.rewrite):
            if not re.fullmatch(r"\w+::[\w*]+", pattern):
                raise ValueError(f"{self.id}: {pattern!r} is not a case, SUITE::NAME")
        for address in self.threads:
            check_source(self.id, address)
        if self.graph_break is not None and not re.fullmatch(r"GB\d{4}", self.graph_break):
            raise ValueError(f"{self.id}: {self.graph_break!r} is not an id of a graph break, such as GB0124")

    def holds(self, case: str) -> bool:
        """Return whether a case, ``suite::name``, belongs to this behaviour."""
        return any(fnmatchcase(case, pattern) for pattern in self.cases)

    def cases_among(self, cases: Iterable[str]) -> list[str]:
        """Return those of some cases that belong to this behaviour, in the order of its patterns."""
        known = list(cases)
        return list(dict.fromkeys(case for pattern in self.cases for case in known if fnmatchcase(case, pattern)))

    @property
    def graph_break_page(self) -> str | None:
        """The address of torch's page about the reason of the graph break."""
        return f"{GRAPH_BREAK_SITE}{self.graph_break.lower()}.html" if self.graph_break else None


def _build(behaviours: list[Behaviour]) -> dict[str, Behaviour]:
    patterns: dict[str, str] = {}
    for behaviour in behaviours:
        for pattern in behaviour.cases:
            if pattern in patterns:
                raise ValueError(f"{pattern} is in {patterns[pattern]} and in {behaviour.id}")
            patterns[pattern] = behaviour.id
    return {behaviour.id: behaviour for behaviour in behaviours}


BEHAVIOURS: Table[dict[str, Behaviour]] = Table("behaviours.toml", "the behaviours", _build, behaviours=Behaviour)
"""The behaviours by id, in the order of the file."""
