"""Builds the site from the data alone: every page, the script's data, and the files that pages share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jinja2

from recapture import data as data_module
from recapture.base.escape import indented_json
from recapture.base.paths import module_file
from recapture.data import NOT_RECORDED, Data
from recapture.tools.site import charts
from recapture.tools.site.data_package import packed
from recapture.tools.site.search_index import cells_for_script, messages_for_script, pages_for_script
from recapture.tools.site.strips import SYMBOLS, in_short, phrase
from recapture.tools.site.view import Site, part_path, script_json, slug

TEMPLATES = module_file("tools", "site", "templates")
"""The templates of the pages, the style and the script."""

Files = Iterator[tuple[str, bytes]]
"""Files of the site by their path from its root."""


class Changed(NamedTuple):
    """A cell that changed between two releases: its case, its compiler, both marks, and what is said about the new."""

    case: str
    compiler: str
    old: str
    new: str
    text: str


class Category(NamedTuple):
    """One way in which cells change, with its heading."""

    name: str
    heading: str
    tone: str


CATEGORIES = (
    Category("newly_wrong", "Newly silently wrong", "wrong"),
    Category("newly_failing", "Newly failing", "failing"),
    Category("fixed", "Fixed", "right"),
    Category("failing_now_wrong", "Wrong or failing in another way", "failing"),
    Category("breaks", "Graph breaks that came or went", "broken"),
    Category("applies", "Cells that began or ceased to apply", "none"),
)
"""How cells change, in the order in which a person before an upgrade reads them."""


def site_files(data: Data) -> Files:
    """Yield every file of the site."""
    yield from Builder(data).files()


class ModelTable(NamedTuple):
    """The models of a library: a column for each compiler and capability; a row of marks, or None, for each model."""

    columns: list[tuple[str, str]]
    rows: dict[str, list[str | None]]


class Builder:
    """Renders the pages of one document of data."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.site = Site(data)
        self.first_compiler = next(name for name, facts in data.compilers.items() if not facts.is_reference)
        self.environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(TEMPLATES),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )
        self.environment.filters |= {"slug": slug}
        self.environment.globals |= {
            "data": data,
            "site": self.site,
            "symbols": SYMBOLS,
            "first_compiler": self.first_compiler,
        }

    def files(self) -> Files:
        """Yield every file of the site by its path."""
        yield from self._assets()
        yield from self._front_page()
        yield from self._behaviours()
        yield from self._releases()
        yield from self._compilers()
        yield from self._models()
        yield from self._speed()
        yield from self._issues()
        yield self._page("help.html", "help.html.j2", title="How to read and search this site")

    def _page(self, path: str, template: str, **values: Any) -> tuple[str, bytes]:
        root = "../" * path.count("/")
        text = self.environment.get_template(template).render(root=root, path=path, **values)
        return path, text.encode()

    def _assets(self) -> Files:
        data = self.data
        for name in ("site.css", "site.js", "theme.js"):
            yield f"assets/{name}", (TEMPLATES / name).read_bytes()
        common = {
            "releases": data.releases,
            "capabilities": data.capabilities,
            "hardware": self.site.hardware,
            "images": self.site.images,
            "marks": {
                mark: {"verdict": facts.verdict, "short": facts.short, "group": facts.group, "tone": facts.tone}
                | {"words": facts.words}
                for mark, facts in data.marks.items()
            },
            "symbols": SYMBOLS,
            "compilers": list(data.compilers),
            "families": [facts.family for facts in data.compilers.values()],
            "kinds": data.kinds,
            "behaviours": {name: entry.title for name, entry in data.behaviours.items()},
            "firstCompiler": self.first_compiler,
        }
        for name, value in (
            ("common", common),
            ("cells", cells_for_script(self.site)),
            ("pages", pages_for_script(self.site)),
            ("messages", messages_for_script(data)),
        ):
            yield f"assets/{name}.js", f"recapture_data({script_json(name)}, {script_json(value)});\n".encode()
        document = data_module.encode(data)
        yield "data/recapture-data.json", document
        yield "data/recapture-data.json.gz", packed(document)
        yield "data/schema.json", indented_json(data_module.json_schema()).encode()

    def _front_page(self) -> Files:
        groups: dict[str, list[str]] = defaultdict(list)
        for name, behaviour in self.data.behaviours.items():
            groups[behaviour.group or "others"].append(name)
        compiler = self.first_compiler
        names = [name for members in groups.values() for name in members]
        table = self.site.table_of_behaviours(compiler, names, every=True)
        yield self._page("index.html", "index.html.j2", title="", groups=groups, table=table)

    # Behaviours and cases

    def _behaviours(self) -> Files:
        """Yield the pages of behaviours, and of suites that have cases without one."""
        for page, parts in self.site.parts.items():
            folder, _, name = page.partition("/")
            behaviour = self.data.behaviours[name] if folder == "behaviours" else None
            every = [case for part in parts for case in part]
            for number, cases in enumerate(parts):
                yield self._cases_page(
                    part_path(page, number),
                    cases,
                    every=every,
                    parts=[part_path(page, other) for other in range(len(parts))],
                    title=behaviour.title if behaviour else f"Cases of the suite {name}",
                    behaviour=behaviour,
                    name=name,
                )

    def _models(self) -> Files:
        models = {name: case for name, case in self.data.cases.items() if case.model is not None}
        for name, case in models.items():
            yield self._cases_page(
                self.site.pages[name],
                [name],
                every=[name],
                parts=[],
                title=case.title,
                behaviour=None,
                name=name,
                kind="model",
            )
        libraries: dict[str, dict[str, data_module.Case]] = defaultdict(dict)
        for name, case in models.items():
            libraries[case.model[0] if case.model else ""][name] = case
        tables = {library: self._table_of_models(cases) for library, cases in libraries.items()}
        yield self._page("models.html", "models.html.j2", title="Models", tables=tables)

    def _table_of_models(self, models: dict[str, data_module.Case]) -> ModelTable:
        """Return the outcome of each model with each compiler and device, on the newest release that has one."""
        data = self.data
        columns = [
            (compiler, capability)
            for capability in data.capabilities
            for compiler, facts in data.compilers.items()
            if not facts.is_reference and any(capability in case.cells.get(compiler, {}) for case in models.values())
        ]
        rows = {}
        for name, case in models.items():
            strips = [case.cells.get(compiler, {}).get(capability) for compiler, capability in columns]
            rows[name] = [
                next((mark for mark in reversed(strip.marks) if mark != NOT_RECORDED), None) if strip else None
                for strip in strips
            ]
        return ModelTable(columns, rows)

    def _cases_page(
        self, path: str, cases: Sequence[str], *, every: Sequence[str], kind: str = "behaviour", **values: Any
    ) -> tuple[str, bytes]:
        """Return a page with some cases, under the summary of `every` case of the same behaviour."""
        data, site = self.data, self.site
        shorts = {}
        for capability in data.capabilities:
            strips = {name: site.worst_of(every, name).get(capability) for name in site.compilers_of(every)}
            lines = in_short(data, {name: marks for name, marks in strips.items() if marks is not None})
            if lines:
                shorts[capability] = lines
        named = set(every)
        return self._page(
            path,
            "cases.html.j2",
            kind=kind,
            cases=cases,
            every=every,
            shorts=shorts,
            findings=[
                finding
                for finding in data.findings.values()
                if any(cell.rpartition("::")[0] in named for cell in finding.cells)
            ],
            changes=[change for change in data.changes if change.case in named],
            issues={
                number: issue
                for number, issue in data.issues.items()
                if any(cell.rpartition("::")[0] in named for cell in issue.cells)
            },
            threads=sorted({link for name in every for link in data.cases[name].threads}),
            messages=site.messages(cases),
            script_data=script_json(site.script_data(cases)),
            **values,
        )

    # Releases

    def _releases(self) -> Files:
        data = self.data
        facts = [self._release_facts(release) for release in data.releases]
        yield self._page("releases.html", "releases.html.j2", title="Releases", facts=facts)
        for old, new in self.site.upgrades:
            yield self._page(
                f"upgrades/{old}-{new}.html",
                "upgrade.html.j2",
                title=f"{old} → {new}",
                old=old,
                new=new,
                changed=self.changed(old, new),
                changes=self._explained(old, new),
                environments=self._environments(old, new),
                categories=CATEGORIES,
            )
        for index, release in enumerate(data.releases):
            before = data.releases[index - 1] if index else None
            yield self._page(
                f"releases/{release}.html",
                "release.html.j2",
                title=f"torch {release}",
                release=release,
                before=before,
                after=data.releases[index + 1] if index + 1 < len(data.releases) else None,
                changed=self.changed(before, release) if before else {},
                changes=self._explained(before, release) if before else [],
                devices=[
                    (capability, old, {capability: self.changed(old, release).get(capability, {})})
                    for (old, new), capability in self.site.upgrades.items()
                    if new == release and capability is not None
                ],
                counts=self._counts(index),
                environments=[entry for entry in data.environments if entry.release == release],
                categories=CATEGORIES,
                issues=[
                    (number, issue)
                    for number, issue in data.issues.items()
                    if any(letters[index] == "w" for letters in issue.measured.values())
                ],
            )

    def _release_facts(self, release: str) -> dict[str, Any]:
        index = self.data.releases.index(release)
        before = self.data.releases[index - 1] if index else None
        changed = self.changed(before, release).get("cpu", {}) if before else {}
        numbers = {category.name: len(changed.get(category.name, ())) for category in CATEGORIES}
        return {"release": release, "before": before, "numbers": numbers}

    def changed(self, old: str, new: str) -> dict[str, dict[str, list[Changed]]]:
        """Return the cells that changed between two releases, by capability and category."""
        data = self.data
        was_at, now_at = data.releases.index(old), data.releases.index(new)
        changed: dict[str, dict[str, list[Changed]]] = {}
        for name, case in data.cases.items():
            for compiler, strips in case.cells.items():
                for capability, strip in strips.items():
                    was, now = strip.marks[was_at], strip.marks[now_at]
                    if was == now or NOT_RECORDED in (was, now):
                        continue
                    category = self._category(was, now)
                    runs = [run.text for run in strip.runs if run.at <= now_at and run.text is not None]
                    text = data.texts[runs[-1]] if runs and data.marks[now].group != "right" else ""
                    changed.setdefault(capability, {}).setdefault(category, []).append(
                        Changed(name, compiler, was, now, text)
                    )
        return changed

    def _category(self, was: str, now: str) -> str:
        old, new = self.data.marks[was].group, self.data.marks[now].group
        if "not run" in (old, new):
            return "applies"
        if old == new == "right":
            return "breaks"
        if new == "right":
            return "fixed"
        if old == "right":
            return "newly_wrong" if new == "silently wrong" else "newly_failing"
        return "failing_now_wrong"

    def _explained(self, old: str, new: str) -> list[data_module.Change]:
        """Return the changes that were looked into and happened between two releases that follow one another."""
        return [change for change in self.data.changes if change.last == old and change.first == new]

    def _environments(self, old: str, new: str) -> dict[str, list[tuple[str, str, str]]]:
        """Return the packages that differ between the environments of two releases, by capability."""
        facts: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
        for entry in self.data.environments:
            if entry.in_strips and entry.release not in facts[entry.capability]:
                python = {"python": entry.python} if entry.python else {}
                facts[entry.capability][entry.release] = {"torch": entry.torch, **python, **entry.packages}
        rows = {}
        for capability, by_release in facts.items():
            if old in by_release and new in by_release:
                was, now = by_release[old], by_release[new]
                rows[capability] = [
                    (name, was.get(name, "absent"), now.get(name, "absent"))
                    for name in dict.fromkeys([*was, *now])
                    if was.get(name) != now.get(name)
                ]
        return rows

    def _counts(self, index: int) -> dict[str, list[tuple[str, charts.Counts]]]:
        """Return the outcomes of each compiler in one release, by capability."""
        data = self.data
        strips: dict[str, dict[str, list[str]]] = {capability: {} for capability in data.capabilities}
        for case in data.cases.values():
            for compiler, by_capability in case.cells.items():
                for capability, strip in by_capability.items():
                    strips[capability].setdefault(compiler, []).append(strip.marks)
        release = data.releases[index]
        counts = {}
        for capability, by_compiler in strips.items():
            rows = [
                (compiler, row)
                for compiler in data.compilers
                for row in charts.counts_by_release(data, by_compiler.get(compiler, ()))
                if row.release == release
            ]
            if rows:
                counts[capability] = rows
        return counts

    # Compilers, speed, issues

    def _compilers(self) -> Files:
        data, site = self.data, self.site
        rows = {}
        for name, facts in data.compilers.items():
            strips = {
                capability: [
                    case.cells[name][capability].marks
                    for case in data.cases.values()
                    if capability in case.cells.get(name, {}) and case.model is None
                ]
                for capability in data.capabilities
            }
            counts = {
                capability: charts.counts_by_release(data, charts.recorded_throughout(marks))
                for capability, marks in strips.items()
                if marks
            }
            rows[name] = counts
            yield self._page(
                f"compilers/{slug(name)}.html",
                "compiler.html.j2",
                title=name,
                name=name,
                facts=facts,
                counts=counts,
                bars={capability: charts.stacked(rows) for capability, rows in counts.items()},
                table=site.table_of_behaviours(name, list(data.behaviours)),
            )
        yield self._page("compilers.html", "compilers.html.j2", title="Compilers", rows=rows)

    def _speed(self) -> Files:
        workloads: dict[str, list[data_module.Speed]] = defaultdict(list)
        for speed in self.data.speeds:
            workloads[speed.workload].append(speed)
        for name, speeds in workloads.items():
            yield self._page(
                f"speed/{slug(name)}.html",
                "workload.html.j2",
                title=name,
                name=name,
                plots=charts.release_plots(speeds),
                groups={
                    group: (rows, charts.interval_plot(rows))
                    for group, rows in charts.by_group(speeds, self.data.releases).items()
                },
            )
        yield self._page("speed.html", "speed.html.j2", title="Speed", workloads=workloads)

    def _issues(self) -> Files:
        data = self.data
        for number, issue in data.issues.items():
            cases = list(dict.fromkeys(cell.rpartition("::")[0] for cell in issue.cells))
            present = [name for name in cases if name in data.cases]
            yield self._page(
                f"issues/{slug(number)}.html",
                "issue.html.j2",
                title=f"#{number}" if number.isdigit() else number,
                number=number,
                issue=issue,
                cases=present,
                verdicts={
                    capability: [
                        (release, documented, letter)
                        for release, documented, letter in zip(data.releases, issue.documented, letters, strict=True)
                    ]
                    for capability, letters in issue.measured.items()
                    if set(letters) != {NOT_RECORDED}
                },
                phrases={
                    cell: words
                    for cell in issue.cells
                    for name, _, compiler in [cell.rpartition("::")]
                    if name in data.cases and "cpu" in data.cases[name].cells.get(compiler, {})
                    for words in [phrase(data, data.cases[name].cells[compiler]["cpu"].marks)]
                },
            )
        yield self._page("issues.html", "issues.html.j2", title="Known issues")
