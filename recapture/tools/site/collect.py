"""Collects the document of the data package from committed results and from what people found out (`suites/*.toml`)."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from recapture import data
from recapture.base.paths import data_folder
from recapture.base.text import one_line, shorten
from recapture.base.version import __version__
from recapture.cases.compilers import builtin_compilers, compiler_facts
from recapture.cases.source import SourceFile, closure, parse_file
from recapture.cases.syntax import dotted
from recapture.command.command_table import of_tools
from recapture.known.behaviours import BEHAVIOURS
from recapture.known.findings import FINDINGS
from recapture.known.issues import ISSUES, KnownIssue
from recapture.known.transitions import TRANSITIONS
from recapture.records.directories import Results
from recapture.records.kinds import KINDS
from recapture.records.record import Record
from recapture.records.releases import is_bare, is_partial, read_by_age, torch_version, twin, usual_cells, version_key
from recapture.records.verdicts import Verdict
from recapture.report.differences import describe_difference, kinds_of
from recapture.report.environment_facts import IN_BRIEF, comparable
from recapture.report.summary import compiler_key, mark, natural_key

ZOO = "zoo"
"""The folder of suites whose cases are models of other libraries."""

TEXT_LIMIT = 420
"""Characters of what is said about a cell: enough of a message to find it again by pasting it."""

PACKAGES = (*IN_BRIEF, "cuda", "cudnn")
"""Packages whose releases are named for each environment."""

IMPORTED_AS = {"F": "torch.nn.functional", "np": "numpy", "nn": "torch.nn"}
"""Usual short names of modules in the suites."""

Cell = tuple[str, str]
"""A case and a compiler."""

Columns = dict[str, dict[str, dict[Cell, Record]]]
"""The records that strips show, by capability, then release, then cell."""


def collect(root: Path) -> data.Data:
    """Return the document for all results at or below a folder.

    Raises UsageError if there are no results, or if reading them or the tables of what people found out fails.
    """
    results = _whole(read_by_age(root))
    releases = tuple(sorted({_release(folder) for folder in results}, key=version_key))
    columns = _columns(results)
    texts = _Texts()
    cells = {capability: _strips(by_release, releases, texts) for capability, by_release in columns.items()}
    names = sorted({case for strips in cells.values() for case, _ in strips})
    behaviours = _behaviours(names)
    of_case = {case: name for name, entry in behaviours.items() for case in entry.cases}
    threads = _threads(behaviours, of_case)
    by_case: dict[str, dict[str, dict[str, data.Strip]]] = {name: {} for name in names}
    for capability, strips in cells.items():
        for (case, compiler), strip in strips.items():
            by_case[case].setdefault(compiler, {})[capability] = strip
    sources = _Sources()
    return data.Data(
        version=__version__,
        releases=releases,
        environments=tuple(_environments(results, columns)),
        marks=_marks(),
        kinds={name: kind.meaning for name, kind in KINDS.items()},
        compilers=_compilers({compiler for strips in cells.values() for _, compiler in strips}),
        texts=tuple(texts.texts),
        behaviours=behaviours,
        cases={
            name: sources.case(name, of_case.get(name), threads.get(name, {}), _in_report_order(by_case[name]))
            for name in names
        },
        issues={issue.id: _issue(issue, columns, releases) for issue in ISSUES.shipped.values()},
        changes=tuple(
            data.Change(
                last=change.last,
                first=change.first,
                compilers=change.compilers,
                what=change.what,
                source=change.source,
                case=change.case,
                was=change.was,
                now=change.now,
                device=change.device,
            )
            for change in TRANSITIONS.shipped
        ),
        findings={
            cause.name: data.Finding(
                what=cause.what,
                fault=cause.fault,
                source=cause.source,
                cells=tuple(f"{case}::{name}" for case, names in cause.cells.items() for name in names),
            )
            for cause in FINDINGS.shipped
        },
        speeds=tuple(_speeds(root)),
    )


class _Texts:
    """The texts of the document, each once, in the order in which they were met."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int | None:
        """Return the place of a text, which is new or was met before; None for an empty one."""
        if not text:
            return None
        if text not in self._places:
            self._places[text] = len(self.texts)
            self.texts.append(text)
        return self._places[text]


# Strips


def _release(results: Results) -> str:
    return torch_version(results).split("+")[0]


def _whole(every: Sequence[Results]) -> list[Results]:
    """Return results without those of images on which few suites ran: their columns would be nearly empty."""
    of_images = [results for results in every if not twin(results.image) and not is_bare(results.image)]
    usual = {
        capability: usual_cells(results for results in of_images if results.capability == capability)
        for capability in {results.capability for results in of_images}
    }
    return [
        results for results in every if results not in of_images or not is_partial(results, usual[results.capability])
    ]


def _columns(results: Sequence[Results]) -> Columns:
    """Return the records that strips show: those of an image first, then bare ones.

    Bare results add the cells that the image's do not have, such as models of libraries that no image pins. Results
    with packages of another time are not in strips.
    """
    folders = [folder for folder in results if not twin(folder.image)]
    folders.sort(key=lambda folder: (is_bare(folder.image), len(folder.directory.parts), str(folder.directory)))
    columns: Columns = {}
    for capability in sorted({folder.capability for folder in folders}, key=lambda name: (name != "cpu", name)):
        columns[capability] = defaultdict(dict)
        for folder in folders:
            if folder.capability == capability:
                cells = columns[capability][_release(folder)]
                for record in folder.records:
                    cells.setdefault((record.case, record.compiler), record)
    return columns


def _strips(
    by_release: Mapping[str, dict[Cell, Record]], releases: Sequence[str], texts: _Texts
) -> dict[Cell, data.Strip]:
    """Return the strips of all cells on one capability."""
    rows: dict[Cell, dict[int, Record]] = defaultdict(dict)
    for index, release in enumerate(releases):
        for cell, row in by_release.get(release, {}).items():
            rows[cell][index] = row
    described: dict[int, tuple[str, str, tuple[str, ...]]] = {}  # by the record: releases share most of them
    strips = {}
    for cell in sorted(rows):
        marks, runs = [], []
        last: tuple[int | None, tuple[str, ...]] = (None, ())
        for index in range(len(releases)):
            record = rows[cell].get(index)
            if record is None:
                marks.append(data.NOT_RECORDED)
                continue
            if id(record) not in described:
                described[id(record)] = (_mark(record), text_of(record), tuple(kinds_of(record.differences)))
            letter, text, kinds = described[id(record)]
            marks.append(letter)
            now = (texts.place(text), kinds)
            if now != last:
                runs.append(data.Run(index, *now))
                last = now
        strips[cell] = data.Strip("".join(marks), tuple(runs))
    return strips


def _mark(record: Record) -> str:
    return _plain(mark(record))


def _plain(letter: str) -> str:
    """Return a mark as one byte, so that a strip can be indexed in any encoding."""
    return "-" if letter == "–" else letter


def _marks() -> dict[str, data.MarkFacts]:
    marks = {}
    for verdict in Verdict:
        facts = verdict.facts
        for sign in (facts.mark, facts.mark_at_capture):
            if sign is not None:
                letter = "-" if sign.letter == "–" else sign.letter
                marks[letter] = data.MarkFacts(
                    verdict=verdict.value,
                    short=facts.state or sign.words,
                    group=facts.group,
                    tone=facts.tone,
                    words=sign.words,
                )
    return marks


def text_of(record: Record) -> str:
    """Return what a record says about its cell in one line: the difference, the exception, the reason, or the break."""
    if record.differences:
        return shorten(describe_difference(record.differences[0]), TEXT_LIMIT)
    if record.error:
        at = "" if record.phase in (None, "capture") else f"{record.phase} on {record.input}: "
        return shorten(one_line(f"{at}{record.error.type}: {_message(record.error.message)}"), TEXT_LIMIT)
    if record.reason:
        return shorten(one_line(record.reason), TEXT_LIMIT)
    if record.break_reasons:
        return shorten(one_line(f"graph break: {record.break_reasons[0]}"), TEXT_LIMIT)
    return ""


def _message(message: str) -> str:
    """Return a message without the part that quotes the user's code, which a page shows anyway."""
    before, _, _ = message.strip().partition("\nfrom user code:")
    return before or message


# Environments and compilers


def _environments(results: Sequence[Results], columns: Columns) -> Iterator[data.Environment]:
    for folder in results:
        in_strips = not twin(folder.image)
        facts = comparable(folder.environment)
        differs = {}
        if not in_strips:
            strips = columns.get(folder.capability, {}).get(_release(folder), {})
            for other in folder.records:
                beside = strips.get((other.case, other.compiler))
                if beside is not None and _mark(beside) != _mark(other):
                    differs[other.cell] = _mark(other)
        yield data.Environment(
            release=_release(folder),
            capability=folder.capability,
            image=folder.image,
            torch=torch_version(folder),
            python=facts.get("python"),
            packages={name: facts[name] for name in PACKAGES if name in facts},
            hardware=facts.get("GPU", facts.get("CPU")),
            bare=is_bare(folder.image),
            in_strips=in_strips,
            differs=differs,
        )


def _compilers(names: Iterable[str]) -> dict[str, data.Compiler]:
    shipped = builtin_compilers()
    compilers = {}
    for name in sorted(names, key=compiler_key):
        facts, compiler = compiler_facts(name), shipped.get(name)
        compilers[name] = data.Compiler(
            family=str(facts.family),
            frontend=facts.frontend,
            sentence=compiler.describe() if compiler else name,
            since=compiler.since if compiler else None,
            is_reference=facts.is_reference,
        )
    return compilers


def _in_report_order(cells: dict[str, dict[str, data.Strip]]) -> dict[str, dict[str, data.Strip]]:
    return {name: cells[name] for name in sorted(cells, key=compiler_key)}


# Cases


class _Sources:
    """What the files of the suites say about their cases, without running them."""

    def __init__(self) -> None:
        folder = data_folder("suites")
        self._paths = {path.stem: path for path in sorted(folder.rglob("*.py"))}
        self._folder = folder

    def case(
        self,
        name: str,
        behaviour: str | None,
        threads: dict[str, tuple[str, ...]],
        cells: dict[str, dict[str, data.Strip]],
    ) -> data.Case:
        """Return a case with its source. A case that no function has, such as a model of the zoo, has no code."""
        suite, _, short = name.partition("::")
        path = self._paths.get(suite)
        facts: dict[str, Any] = {}
        if path is not None:
            within = path.relative_to(self._folder)
            facts["file"] = f"suites/{within.as_posix()}"
            if within.parts[0] == ZOO:
                facts["model"] = (suite.removeprefix(f"{ZOO}_"), short)
                facts["title"] = f"{short} of {suite.removeprefix(f'{ZOO}_')}"
            facts |= self._definition(path, short)
        return data.Case(behaviour=behaviour, threads=threads, cells=cells, **facts)

    def _definition(self, path: Path, name: str) -> dict[str, Any]:
        parsed: SourceFile = parse_file(path)
        node = next((node for node in parsed.body if getattr(node, "name", None) == name), None)
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            return {}
        title = (ast.get_docstring(node) or "").strip().partition("\n")[0]
        return {
            "title": title,
            "line": min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]),
            "code": closure(path, name).declared.strip(),
            "names": tuple(sorted(called_names(node.body))),
        }


def called_names(body: Iterable[ast.stmt]) -> set[str]:
    """Return the functions and methods that some code calls: ``torch.argmin``; ``.argmin`` of a value."""
    names = set()
    inside = (inner for statement in body for inner in ast.walk(statement))
    for call in (inner for inner in inside if isinstance(inner, ast.Call)):
        name = dotted(call.func)
        if name is not None and "." in name:
            first, _, rest = name.partition(".")
            first = IMPORTED_AS.get(first, first)
            if first.partition(".")[0] in ("torch", "numpy", "scipy", "torchvision", "math", "random", "itertools"):
                names.add(f"{first}.{rest}")
                continue
        if isinstance(call.func, ast.Attribute):
            names.add(f".{call.func.attr}")
    return names


# What people found out


def _behaviours(names: Sequence[str]) -> dict[str, data.Behaviour]:
    behaviours = {}
    for entry in BEHAVIOURS.shipped.values():
        behaviours[entry.id] = data.Behaviour(
            title=entry.title,
            sentence=entry.sentence,
            example=entry.example,
            cases=tuple(entry.cases_among(names)),
            group=entry.group,
            cure=entry.cure,
            rewrite=tuple(name for name in names if any(fnmatchcase(name, pattern) for pattern in entry.rewrite)),
            threads=tuple(link for link in entry.threads if link.startswith("https://")),
            graph_break=entry.graph_break,
            graph_break_page=entry.graph_break_page,
        )
    return behaviours


def _threads(
    behaviours: Mapping[str, data.Behaviour], of_case: Mapping[str, str]
) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the public threads about the cells of each case, with the compilers that each is about.

    A thread of a behaviour is about all compilers of its cases, which is an empty list of names.
    """
    threads: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for issue in ISSUES.shipped.values():
        for cell in issue.shown_by:
            case, compiler = cell.rsplit("::", 1) if cell.count("::") == 2 else (cell, "")
            threads[case][issue.link].add(compiler)
    for cause in FINDINGS.shipped:
        if cause.source.startswith("https://"):
            for case, compilers in cause.cells.items():
                threads[case][cause.source].update(compilers)
    for change in TRANSITIONS.shipped:
        if change.case is not None and change.source.startswith("https://"):
            threads[change.case][change.source].update(change.compilers)
    for case, name in of_case.items():
        for link in behaviours[name].threads:
            threads[case][link] = set()
    return {
        case: {link: tuple(sorted(compilers, key=compiler_key)) for link, compilers in sorted(links.items())}
        for case, links in threads.items()
    }


def _issue(issue: KnownIssue, columns: Columns, releases: Sequence[str]) -> data.Issue:
    measured = {}
    for capability, by_release in columns.items():
        letters = ""
        for release in releases:
            cells = by_release.get(release, {})
            recorded = (cells.get((case, name)) for case, _, name in (cell.rpartition("::") for cell in issue.shown_by))
            letters += _measured(issue, [record for record in recorded if record is not None])
        measured[capability] = letters
    return data.Issue(
        what=issue.what,
        link=issue.link,
        compares=issue.compares,
        span=issue.span,
        sure=issue.sure,
        documented="".join({"wrong": "w", "right": "r", None: "."}[issue.says(release)] for release in releases),
        measured=measured,
        cells=issue.shown_by,
        advisory=issue.advisory,
        gpu=issue.gpu,
        not_shown=issue.not_shown,
        explanation=issue.explanation,
    )


def _measured(issue: KnownIssue, records: Sequence[Record]) -> str:
    """Return what the cells of an issue show in one release, as a character of `recapture.data.Issue.measured`."""
    if not records:
        return data.NOT_RECORDED
    groups = {record.verdict.facts.group for record in records}
    if "silently wrong" in groups:
        kinds = {difference.kind for record in records for difference in record.differences}
        return "w" if issue.compares in kinds else "o"
    tried = [record for record in records if record.verdict.facts.group != "not run"]
    if not tried:
        return "-"
    # A lost check is back where the call raises, whatever the exception.
    checks = issue.compares == "exception"
    right = all(
        record.verdict.facts.group == "right" or (checks and record.verdict is Verdict.ERROR and record.phase == "call")
        for record in tried
    )
    return "r" if right else "e"


# Speed


def _speeds(root: Path) -> Iterator[data.Speed]:
    """Yield the figures of all benchmarks at or below a folder, by workload, release and configuration."""
    rows = []
    for tool in of_tools("speeds to compare"):
        for folder in sorted(tool.folders_below(root)):
            for path in tool.speedups_of(folder).values():
                environment = tool.environment_of(path)
                hardware = (environment.gpu.name if environment.gpu else environment.cpu.model) or "unknown"
                release = re.split(r"[+]", environment.torch.version)[0]
                rows += [
                    data.Speed(release=release, capability=environment.capability, hardware=hardware, **figures)
                    for figures in tool.figures_of(path)
                ]
    yield from sorted(
        rows,
        key=lambda row: (
            natural_key(row.workload),
            version_key(row.release),
            row.capability,
            compiler_key(row.compiler),
            row.configuration,
        ),
    )
