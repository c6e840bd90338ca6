"""What the front page searches: the cells for queries, and the pages and messages for words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from recapture.base.text import shorten
from recapture.data import Data
from recapture.tools.site.view import Site, slug

LONGEST = 260
"""Characters of a message that are searched."""

MOST_PLACES = 4
"""The most cells that are named for one message."""

_VARIABLE = re.compile(r"0x[0-9a-f]+|\b\d+\b")
"""What differs between two occurrences of a message."""


def cells_for_script(site: Site) -> dict[str, Any]:
    """Return every strip in a compact form.

    ``strips`` are the different strips. ``cases`` are lists of name, title, behaviour, page and names that the code
    calls. ``cells`` has a list for each case; in it, for each compiler, its place, the places of its strips by
    capability (-1 where there is none), the kinds of its silent differences, and whether a public thread is about it.
    """
    data = site.data
    compilers, kinds = list(data.compilers), list(data.kinds)
    strips: dict[str, int] = {}
    cases, cells = [], []
    for name, case in data.cases.items():
        cases.append([name, case.title, case.behaviour or "", site.pages[name], " ".join(case.names)])
        row = []
        for compiler, by_capability in case.cells.items():
            places = [
                strips.setdefault(by_capability[capability].marks, len(strips)) if capability in by_capability else -1
                for capability in data.capabilities
            ]
            kinds_of_cell = {kind for strip in by_capability.values() for run in strip.runs for kind in run.kinds}
            mask = sum(1 << kinds.index(kind) for kind in kinds_of_cell)
            threads = any(not names or compiler in names for names in case.threads.values())
            row.append([compilers.index(compiler), places, mask, int(threads)])
        cells.append(row)
    return {"strips": list(strips), "cases": cases, "cells": cells, "kinds": kinds}


def pages_for_script(site: Site) -> list[list[str]]:
    """Return what words are searched in: for each page its type, title, address, subtitle and further words."""
    return [list(page) for page in _pages(site)]


def _pages(site: Site) -> Iterator[tuple[str, str, str, str, str]]:
    data = site.data
    for name, behaviour in data.behaviours.items():
        names = sorted({called for case in behaviour.cases for called in data.cases[case].names})
        words = [name, behaviour.group, behaviour.example, behaviour.cure or "", behaviour.graph_break or "", *names]
        yield (
            "behaviour",
            behaviour.title,
            f"behaviours/{name}.html",
            behaviour.sentence,
            " ".join([*words, *behaviour.cases]),
        )
    for name, case in data.cases.items():
        if case.model is None:
            behaviour_of = data.behaviours[case.behaviour].title if case.behaviour else ""
            yield "case", name, site.pages[name], case.title, " ".join([behaviour_of, *case.names])
    for name, case in data.cases.items():
        if case.model is not None:
            library, model = case.model
            hardware = " ".join(f"{key} {text}" for key, text in site.hardware.items())
            yield "model", f"{model} ({library})", site.pages[name], f"Model of {library}", hardware
    for number, issue in data.issues.items():
        link = f"issues/{slug(number)}.html"
        title = f"#{number} {issue.what}" if number.isdigit() else f"{number} {issue.what}"
        yield "issue", title, link, issue.span, " ".join([issue.advisory or "", *issue.cells])
    for release in data.releases:
        short = release.rpartition(".")[0]
        yield "release", release, f"releases/{release}.html", "What this release changed", f"{short} upgrade release"
    for old, new in site.upgrades:
        search_words = f"{old.rpartition('.')[0]} {new.rpartition('.')[0]} {old} {new} upgrade diff"
        yield "upgrade", f"{old} → {new}", f"upgrades/{old}-{new}.html", "Every cell that changed", search_words
    for name, compiler in data.compilers.items():
        yield "compiler", name, f"compilers/{slug(name)}.html", compiler.sentence, compiler.family
    for workload in dict.fromkeys(speed.workload for speed in data.speeds):
        title = workload.replace("_", " ")
        yield "workload", workload, f"speed/{slug(workload)}.html", "Speed of every compiler over eager", title


def messages_for_script(data: Data) -> list[list[Any]]:
    """Return the messages of refusals, failures and graph breaks, each with the first cells that it was recorded for.

    Messages that differ in numbers alone are one. A place is the index of the case, the index of the compiler, and the
    index of the first release; the last item is the number of all places.
    """
    compilers = list(data.compilers)
    entries: dict[str, list[Any]] = {}
    for index, case in enumerate(data.cases.values()):
        for compiler, strips in case.cells.items():
            for strip in strips.values():
                for run in strip.runs:
                    if run.text is None or run.kinds:
                        continue
                    text = data.texts[run.text]
                    entry = entries.setdefault(_VARIABLE.sub("#", text), [shorten(text, LONGEST), [], 0])
                    entry[2] += 1
                    if len(entry[1]) < MOST_PLACES and all(place[0] != index for place in entry[1]):
                        entry[1].append([index, compilers.index(compiler), run.at])
    return list(entries.values())
