"""What the templates show: the addresses of pages, tables of strips, and what the script of a page needs to know."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from recapture.data import NOT_RECORDED, Case, Data, Strip
from recapture.tools.site.strips import Segment, segments, worst

MOST_CASES = 12
"""Cases on one page. Others of the same behaviour are on further pages, so that no page is large."""


def slug(text: str) -> str:
    """Return a name as part of a file's name: ``compile:dynamic`` as ``compile-dynamic``."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-")


def part_path(page: str, part: int) -> str:
    """Return the path of a part of a page; the first has the page's own name."""
    return f"{page}-{part + 1}.html" if part else f"{page}.html"


def script_json(value: Any) -> str:
    """Return JSON that can stand inside a script element, whatever its texts are."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@dataclass(frozen=True)
class Row:
    """A row of a table of strips: its key in the page's data, its head, and its segments by capability."""

    key: str
    name: str
    title: str
    link: str
    groups: tuple[tuple[Segment, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table of strips: for each capability its name, its hardware and the indexes of its releases."""

    capabilities: tuple[tuple[str, str, tuple[int, ...]], ...]
    rows: tuple[Row, ...]
    head: str = "compiler"
    expands: bool = True

    @property
    def width(self) -> int:
        """The number of columns of releases."""
        return sum(len(columns) for _, _, columns in self.capabilities)


@dataclass(frozen=True)
class Site:
    """The data, with what the pages look up in them more than once."""

    data: Data

    @cached_property
    def parts(self) -> dict[str, list[tuple[str, ...]]]:
        """The cases of every behaviour, and of every suite that has cases without one, in parts of one page each.

        The key is the page's path without what ends it: ``behaviours/branch-on-tensor-value``, ``suites/exportdb``.
        """
        cases = {f"behaviours/{name}": list(behaviour.cases) for name, behaviour in self.data.behaviours.items()}
        for name, case in self.data.cases.items():
            if case.behaviour is None and case.model is None:
                cases.setdefault(f"suites/{name.partition('::')[0]}", []).append(name)
        return {
            page: [tuple(names[start : start + MOST_CASES]) for start in range(0, max(1, len(names)), MOST_CASES)]
            for page, names in cases.items()
        }

    @cached_property
    def pages(self) -> dict[str, str]:
        """The page of each case, by name, as a path from the root of the site, with the place on it."""
        pages = {
            name: f"{part_path(page, part)}#{name}"
            for page, parts in self.parts.items()
            for part, names in enumerate(parts)
            for name in names
        }
        models = {name: case.model for name, case in self.data.cases.items() if case.model is not None}
        return pages | {name: f"models/{slug('-'.join(model))}.html" for name, model in models.items()}

    @cached_property
    def hardware(self) -> dict[str, str]:
        """The hardware of each capability, as a heading names it."""
        names: dict[str, list[str]] = {}
        for environment in self.data.environments:
            if environment.hardware and environment.in_strips:
                names.setdefault(environment.capability, []).append(environment.hardware)
        # The strips of a CPU come from several machines; that of a GPU matters to a reader.
        return {
            capability: "" if capability == "cpu" else ", ".join(sorted(set(hardware)))
            for capability, hardware in names.items()
        }

    @cached_property
    def images(self) -> dict[str, dict[str, str]]:
        """The image of each release, by capability; the first of a release is that of the strips."""
        images: dict[str, dict[str, str]] = {}
        environments = [environment for environment in self.data.environments if environment.in_strips]
        for environment in sorted(environments, key=lambda environment: environment.bare):
            images.setdefault(environment.capability, {}).setdefault(environment.release, environment.image)
        return images

    @cached_property
    def upgrades(self) -> dict[tuple[str, str], str | None]:
        """The pairs of releases that have a page: neighbours, and those that only the results of a GPU make neighbours.

        Each has that GPU's capability, or None for neighbours.
        """
        pairs: dict[tuple[str, str], str | None] = dict.fromkeys(itertools.pairwise(self.data.releases))
        for capability in self.data.capabilities:
            recorded = [release for release in self.data.releases if release in self.images.get(capability, {})]
            for pair in itertools.pairwise(recorded):
                pairs.setdefault(pair, capability)
        return pairs

    @property
    def newest(self) -> str:
        """The newest release."""
        return self.data.releases[-1]

    def columns(self, strips: Iterable[Mapping[str, Strip]]) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
        """Return the capabilities of some strips, with their hardware and the releases that are recorded on them."""
        releases_on: dict[str, set[int]] = {}
        for by_capability in strips:
            for capability, strip in by_capability.items():
                recorded = {index for index, mark in enumerate(strip.marks) if mark != NOT_RECORDED}
                releases_on.setdefault(capability, set()).update(recorded)
        return tuple(
            (capability, self.hardware.get(capability, ""), tuple(sorted(releases_on[capability])))
            for capability in self.data.capabilities
            if releases_on.get(capability)
        )

    def table_of_case(self, name: str) -> Table:
        """Return the table of a case: a row for each compiler."""
        case = self.data.cases[name]
        columns = self.columns(case.cells.values())
        rows = tuple(
            Row(
                key=f"{name}::{compiler}",
                name=compiler,
                title=self.data.compilers[compiler].sentence,
                link=f"compilers/{slug(compiler)}.html",
                groups=self._groups(columns, {capability: strip.marks for capability, strip in strips.items()}),
            )
            for compiler, strips in case.cells.items()
        )
        return Table(columns, rows)

    def table_of_worst(self, cases: Sequence[str]) -> Table:
        """Return the table of several cases: the worst of their strips for each compiler."""
        columns = self.columns(strips for name in cases for strips in self.data.cases[name].cells.values())
        rows = []
        for compiler in self.compilers_of(cases):
            marks = self.worst_of(cases, compiler)
            rows.append(
                Row(
                    key=compiler,
                    name=compiler,
                    title=self.data.compilers[compiler].sentence,
                    link=f"compilers/{slug(compiler)}.html",
                    groups=tuple(
                        tuple(
                            part._replace(target=self._cell_with(cases, compiler, capability, part)) for part in group
                        )
                        for (capability, _, _), group in zip(columns, self._groups(columns, marks), strict=True)
                    ),
                )
            )
        return Table(columns, tuple(rows))

    def _cell_with(self, cases: Sequence[str], compiler: str, capability: str, part: Segment) -> str:
        """Return the first cell of some cases that has the mark of a segment in its first release."""
        for name in cases:
            strip = self.data.cases[name].cells.get(compiler, {}).get(capability)
            if strip is not None and strip.marks[part.first] == part.mark:
                return f"{name}::{compiler}"
        return ""

    def table_of_behaviours(self, compiler: str, names: Sequence[str], *, every: bool = False) -> Table:
        """Return the table of a compiler: a row for each of some behaviours, with the worst of its cases.

        Those without a cell of the compiler are left out, unless `every` is asked for.
        """
        marks = {name: self.worst_of(self.data.behaviours[name].cases, compiler) for name in names}
        columns = self.columns(
            self.data.cases[case].cells.get(compiler, {}) for name in names for case in self.data.behaviours[name].cases
        )
        rows = tuple(
            Row(
                key=name,
                name=self.data.behaviours[name].title,
                title="",
                link=f"behaviours/{name}.html",
                groups=self._groups(columns, marks[name]),
            )
            for name in names
            if marks[name] or every
        )
        return Table(columns, rows, head="behaviour", expands=False)

    def compilers_of(self, cases: Iterable[str]) -> list[str]:
        """Return the compilers that some cases have cells of, in the order of the reports."""
        present = {compiler for name in cases for compiler in self.data.cases[name].cells}
        return [compiler for compiler in self.data.compilers if compiler in present]

    def worst_of(self, cases: Iterable[str], compiler: str) -> dict[str, str]:
        """Return the worst marks of some cases under a compiler, by capability; empty if there is none."""
        strips: dict[str, list[str]] = {}
        for name in cases:
            for capability, strip in self.data.cases[name].cells.get(compiler, {}).items():
                strips.setdefault(capability, []).append(strip.marks)
        return {capability: worst(self.data, marks) for capability, marks in strips.items()}

    def _groups(
        self, columns: Sequence[tuple[str, str, tuple[int, ...]]], marks: Mapping[str, str]
    ) -> tuple[tuple[Segment, ...], ...]:
        nothing = NOT_RECORDED * len(self.data.releases)
        return tuple(
            tuple(segments(self.data, marks.get(capability, nothing), indexes)) for capability, _, indexes in columns
        )

    def script_data(self, cases: Iterable[str]) -> dict[str, Any]:
        """Return what the script needs to open the records of some cases: their strips, texts, files and threads."""
        texts: dict[int, str] = {}
        cells: dict[str, Any] = {}
        files, threads = {}, {}
        for name in cases:
            case = self.data.cases[name]
            if case.file.count("/") > 1:
                files[name] = case.file
            if case.threads:
                threads[name] = case.threads
            for compiler, strips in case.cells.items():
                cells[f"{name}::{compiler}"] = {
                    capability: [strip.marks, [_run(run.at, run.text, run.kinds) for run in strip.runs]]
                    for capability, strip in strips.items()
                }
                for strip in strips.values():
                    texts |= {run.text: self.data.texts[run.text] for run in strip.runs if run.text is not None}
        return {"cells": cells, "texts": texts, "files": files, "threads": threads}

    def messages(self, cases: Iterable[str]) -> list[str]:
        """Return the messages of refusals and failures of some cases, each once."""
        texts: dict[int, None] = {}
        for name in cases:
            for strips in self.data.cases[name].cells.values():
                for strip in strips.values():
                    for run in strip.runs:
                        mark = strip.marks[run.at]
                        if run.text is not None and mark != NOT_RECORDED and self.data.marks[mark].group == "failing":
                            texts[run.text] = None
        return [self.data.texts[place] for place in texts]

    def place_in_repository(self, case: Case) -> str:
        """Return where the source of a case is: ``suites/control_flow.py:24``."""
        return f"{case.file}:{case.line}" if case.line else case.file


def _run(at: int, text: int | None, kinds: tuple[str, ...]) -> list[Any]:
    return [at, text, list(kinds)] if kinds else [at, text] if text is not None else [at]
