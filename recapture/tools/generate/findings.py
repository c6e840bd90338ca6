"""Findings: each new family worked out as a program with torch alone, an issue to paste, and the releases that have it.

The work is that of other commands, `reduce`, `repro` and `bisect`, which run as processes. Each finding has a folder.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from recapture.base.errors import UsageError
from recapture.base.files import read_regular, write_atomically
from recapture.base.text import one_line, shorten
from recapture.images.interpreter import Interpreter
from recapture.records.verdicts import Verdict
from recapture.tools.generate.folder import FINDINGS
from recapture.tools.generate.generate_options import GenerateOptions
from recapture.tools.generate.report import Facts, Finding, FoundFamily
from recapture.tools.generate.resemblance import similar_cases
from recapture.tools.generate.session import Generation

FINDING = "finding.json"
PROGRAM = "program.py"
ISSUE = "issue.md"


def work_out(
    options: GenerateOptions, generation: Generation, facts: Facts, log: Callable[[str], None]
) -> list[Finding]:
    """Work out the new families of a generation, those that are silently wrong first; return all findings.

    A finding that is in the folder already is not worked out again.
    """
    findings = []
    new = [family for family in facts.families if not family.known and _reducible(generation, family)]
    for family in new[: options.findings]:
        folder = options.results / FINDINGS / _name(family)
        path = folder / FINDING
        if path.exists():
            findings.append(msgspec.json.decode(read_regular(path), type=Finding))
            continue
        log(f"working out {family.examples[0]}: {family.outcome}: {family.kind}")
        folder.mkdir(parents=True, exist_ok=True)
        finding = Worker(options, generation, folder).finding(family)
        write_atomically(path, msgspec.json.format(msgspec.json.encode(finding)) + b"\n")
        findings.append(finding)
    return findings


def _reducible(generation: Generation, family: FoundFamily) -> bool:
    """Whether a program of a family fails alone, in a way that can be reduced."""
    return family.alone > 0 and _verdict(generation, family.examples[0]).facts.reducible


def _verdict(generation: Generation, cell: str) -> Verdict:
    return next(record.verdict for record in generation.records.values() if record.cell == cell)


def _name(family: FoundFamily) -> str:
    """Return the name of a finding, which is that of its folder: the same in each run."""
    words = re.findall(r"[a-z]+", " ".join([family.suspect or family.signature, family.kind]).lower())
    suite, case, _ = family.examples[0].split("::", 2)
    return "_".join([*words[:5], suite, case])


class Worker:
    """Works out one finding in its folder."""

    def __init__(self, options: GenerateOptions, generation: Generation, folder: Path) -> None:
        self.options = options
        self.generation = generation
        self.folder = folder
        self.lacking: list[str] = []

    def finding(self, family: FoundFamily) -> Finding:
        """Return the finding of a family."""
        suite, case, compiler = family.examples[0].split("::", 2)
        finding = Finding(
            name=self.folder.name,
            family=f"{family.outcome}: {family.kind}: {family.signature}"
            + f" ({family.suspect})" * bool(family.suspect),
            cell=family.examples[0],
            verdict=str(_verdict(self.generation, family.examples[0])),
        )
        path = self._program_file(suite, compiler)
        device = ("--device", self.options.device)
        seconds = ("--seconds", str(self.options.seconds))
        address = f"{path}::{case}::{compiler}"
        reduced = self._facts_of("reduce", address, *device, *seconds)
        if reduced is not None:
            path = self.folder / f"{self.folder.name}.py"
            write_atomically(path, reduced["case"].encode(errors="backslashreplace"))
            finding = msgspec.structs.replace(
                finding,
                cell=f"{path.stem}::{case}::{compiler}",
                fault=reduced["fault"],
                stage=reduced["stage"] or "",
                lines=reduced["after"]["lines"],
            )
            if reduced["script"] is not None:
                write_atomically(self.folder / PROGRAM, reduced["script"].encode(errors="backslashreplace"))
                finding = msgspec.structs.replace(finding, ending=str(reduced["script_runs"]))
            if not self._is_declared(compiler):  # the smallest case does not declare a compiler
                address = f"{path}::{case}::{compiler}"
            similar = similar_cases(reduced["case"], family.kind, compiler, self.generation.settings.torch)
            finding = msgspec.structs.replace(finding, similar=tuple(similar))
        issue = self._facts_of("repro", address, *device, "--upstream")
        if issue is not None:
            write_atomically(self.folder / ISSUE, issue["issue"].encode(errors="backslashreplace"))
        if self.options.across is not None:
            history = self._facts_of("bisect", address, *device, "--across", self.options.across, "--yes")
            if history is not None:
                first = [turn["image"] for turn in history["boundaries"] if turn["kind"] == "first_bad"]
                finding = msgspec.structs.replace(
                    finding,
                    releases=dict(history["verdicts"]),
                    first_bad=first[0] if first else history["always"] or "",
                )
        return msgspec.structs.replace(finding, lacking=tuple(self.lacking))

    def _is_declared(self, compiler: str) -> bool:
        """Whether a file of the user, or of this generation, declares a compiler."""
        return self.generation.declared is not None and compiler in self.generation.declared.compilers

    def _program_file(self, suite: str, compiler: str) -> Path:
        """Return the file of a program; one that also declares the compiler, where this is no compiler that ships."""
        path = self.options.results / "suites" / f"{suite}.py"
        declared = self.generation.declared
        if declared is None or not self._is_declared(compiler):
            return path
        text = "\n\n\n".join(read_regular(Path(part)).decode() for part in (path, declared.path))
        path = self.folder / f"{suite}.py"
        write_atomically(path, text.encode())
        return path

    def _facts_of(self, *words: str) -> Any:
        """Run a command and return its facts; None, with a note of what is lacking, if it gave none."""
        output: list[bytes] = []
        errors: list[bytes] = []
        status = Interpreter.here().recapture(
            *words, "--json", write={"stdout": output.append, "stderr": errors.append}
        )
        try:
            if status == 0:
                return json.loads(b"".join(output))
        except ValueError:
            pass
        message = b"".join(errors).decode(errors="replace").strip().split("\n")[-1]
        self.lacking.append(f"{words[0]}: exit status {status}: {shorten(one_line(message), 200)}")
        return None


def keep(results: Path, name: str, suite: Path) -> str:
    """Add the smallest program of a finding to a file of cases; return the name of the case.

    Raises UsageError for an unknown finding, and for a file that has a case of this name already.
    """
    path = results / FINDINGS / name / f"{name}.py"
    if not path.is_file():
        known = sorted(folder.name for folder in (results / FINDINGS).glob("*") if (folder / FINDING).exists())
        raise UsageError(f"no finding {name!r} with a smallest program in {results}; there are: {', '.join(known)}")
    finding = msgspec.json.decode(read_regular(path.with_name(FINDING)), type=Finding)
    case = finding.cell.split("::")[1]
    text = read_regular(path).decode()
    before = read_regular(suite).decode() if suite.exists() else '"""Programs that were generated."""\n'
    if re.search(rf"^(def|class) {name}\b", before, re.MULTILINE):
        raise UsageError(f"{suite} has a case {name!r} already")
    imports, definitions = _parts(text)
    lacking = [line for line in imports if line not in _parts(before)[0]]
    definitions = re.sub(rf"\b{case}\b", name, definitions)
    definitions = re.sub(
        rf"(^(?:def|class) {name}\(.*:\n)",
        rf'\1    """{finding.family}."""\n',
        definitions,
        count=1,
        flags=re.MULTILINE,
    )
    write_atomically(suite, _with_imports(before, lacking).rstrip().encode() + b"\n\n\n" + definitions.encode())
    return name


def _parts(text: str) -> tuple[list[str], str]:
    """Return the imports of a file, and the text of what follows them."""
    tree = ast.parse(text)
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    lines = text.splitlines(keepends=True)
    end = max((node.end_lineno or 0 for node in imports), default=0)
    return [ast.unparse(node) for node in imports], "".join(lines[end:]).strip("\n") + "\n"


def _with_imports(text: str, imports: list[str]) -> str:
    """Return the text of a file with more imports before its first, or behind its docstring."""
    if not imports:
        return text
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    first = next((node.lineno - 1 for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))), None)
    at = first if first is not None else (tree.body[0].end_lineno or 0 if ast.get_docstring(tree) is not None else 0)
    return "".join(
        [*lines[:at], *([] if first is not None else ["\n"]), *(f"{line}\n" for line in imports), *lines[at:]]
    )
