"""Write the reference pages of the site from the code, so that they cannot differ from it; it needs no torch.

Sphinx calls `write` before it reads the pages (see conf.py).
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
from devices_page import devices_page
from page_text import docstring, grid, member_docs, plain
from results_pages import (
    best_speeds_page,
    changes_page,
    findings_page,
    groups_of,
    known_issues_page,
    releases_page,
    silently_wrong_page,
)
from shipped_pages import checks_page, claims_page, compilers_page, images_page

from recapture.base import errors
from recapture.cases.case import case, case_for_each
from recapture.cases.claim import Claim, SpeedClaim
from recapture.cases.compiler import compiler
from recapture.cases.workload import workload
from recapture.command.command_table import COMMANDS
from recapture.command.examples import EXAMPLES
from recapture.command.main import cli
from recapture.machine import environment, hardware
from recapture.machine.doctor import register
from recapture.records import difference, eager_calls, eager_file, guilty_stage, kinds, verdicts
from recapture.records import record as records
from recapture.tools.compare.changes import CATEGORIES, FAIL_ON, SPEED_CATEGORIES
from recapture.tools.speed import speedups


def write(folder: Path) -> None:
    """Write every page into a folder; pages that did not change keep their time, so that Sphinx skips them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        path, text = folder / f"{name}.md", page()
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def verdict_page() -> str:
    """Every verdict with its group and meaning, the kinds of differences, and the categories of `recapture diff`."""
    docs = member_docs(verdicts.Verdict)
    rows = [[f"`{verdict}`", groups_of(verdict), plain(docs[verdict.name])] for verdict in verdicts.Verdict]
    categories = [[f"`{name}`", plain(text)] for name, text in CATEGORIES.items()]
    speeds = [[f"`{name}`", plain(text)] for name, text in SPEED_CATEGORIES.items()]
    return f"""# Verdicts and categories

Written from `recapture/records/verdicts.py`, `recapture/records/kinds.py` and `recapture/tools/compare/changes.py`.

## Verdicts

Every planned cell (case × compiler × device) ends with exactly one verdict.

{grid(["verdict", "counted as", "meaning"], rows)}
## Kinds of differences

Each difference between eager and a captured callable is of one kind. A silent difference decides the verdict. A note is
recorded and counted, and decides nothing. Some notes decide where the case asks for it with `strict=`.

{grid(["kind", "decides the verdict", "always a note", "a note, unless the case has it in `strict=`"], kind_rows())}
## How far numbers differ

The field `bits` of a difference has the first of these classes that applies to any element. `ulps` is the largest
distance in units in the last place, and `elements` counts the elements that differ.

{grid(["class", "meaning"], [[f"`{name}`", plain(text)] for name, text in kinds.BITS.items()])}
## Categories of `recapture diff`

Each cell is in at most one category. The list is in order of weight, heaviest first.

{grid(["category", "meaning"], categories)}
`--fail-on` takes {", ".join(f"`{name}`" for name in [*FAIL_ON, "slower"])}.

## Categories of compared speeds

{grid(["category", "meaning"], speeds)}"""


def kind_rows() -> list[list[str]]:
    """Return a row for each kind of difference: what is silent, what is always a note, what `strict=` decides."""
    strict: dict[str, list[str]] = {}
    for name, (meaning, kind) in kinds.STRICT.items():
        strict.setdefault(kind, []).append(f"`{name}`: {plain(meaning)}")
    return [
        [f"`{name}`", plain(kind.meaning), plain(kind.noted), " ".join(strict.get(name, []))]
        for name, kind in kinds.KINDS.items()
    ]


def fields_of(kind: type[Any]) -> str:
    """Describe one struct, dataclass or named tuple: its docstring, then its fields with their types."""
    docs = member_docs(kind)
    types: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        types |= vars(base).get("__annotations__", {})
    # msgspec reads and writes all three sorts of types, and so knows their fields alike.
    fields = getattr(msgspec.inspect.type_info(kind), "fields", ())
    rows = []
    for field in fields:
        needed = "yes" if field.required else "no"
        rows.append([f"`{field.name}`", f"`{types[field.name]}`", needed, plain(docs.get(field.name, ""))])
    if not any(row[3] for row in rows):
        return f"{docstring(kind)}\n\n{grid(['field', 'type', 'required'], [row[:3] for row in rows])}"
    return f"{docstring(kind)}\n\n{grid(['field', 'type', 'required', 'meaning'], rows)}"


FILES: dict[str, tuple[str, tuple[type[Any], ...]]] = {
    "conformance.jsonl": (
        """One JSON object per line, one line per cell, sorted by case, compiler and device. It holds no times,
addresses, paths or dates: two runs of one installation give the same bytes.""",
        (
            records.Record,
            records.ErrorInfo,
            difference.Difference,
            difference.InputChange,
            records.ClaimResult,
            guilty_stage.GuiltyStage,
        ),
    ),
    "timings.jsonl": ("The time and memory of each cell. These figures differ from run to run.", (records.Timing,)),
    "eager.jsonl": (
        """What eager itself gave on each input of a case, as digests: a hash of all bits, and enough digits to tell
rounding from a change. Two runs of one installation give the same bytes.""",
        (eager_file.EagerRow, eager_calls.EagerCall, eager_calls.Digest),
    ),
    "environment.json": (
        "The machine and the installation, without host names, user names or absolute paths.",
        (
            environment.Environment,
            environment.TorchInfo,
            hardware.GpuInfo,
            hardware.CpuInfo,
            environment.SuiteEntry,
            environment.Origin,
            register.Check,
        ),
    ),
    "speedups-&lt;gpu&gt;.json": (
        "What `recapture bench` measured, with every raw sample. On a CPU it is `speedups-cpu.json`.",
        (
            speedups.Speedups,
            speedups.Row,
            speedups.Configuration,
            speedups.Measured,
            speedups.Process,
            speedups.Series,
            speedups.Start,
            speedups.Conditions,
            speedups.Deviation,
            speedups.Reasons,
            speedups.Claimed,
        ),
    ),
}
"""Every file of results that programs may read, with a description and its structs."""


FILES_INTRODUCTION = """# Files of a results directory

Written from the structs that read and write the files. JSON Schemas ship in `recapture/records/schema/`. A reader
refuses a file whose `schema` it does not know.

Beside these files are reports for people: `conformance.md`, `conformance.html` and `speedups-*.md`. The program does
not read them; `recapture report` renders them again.
"""


def files_page() -> str:
    """Every file of a results directory with its fields."""
    parts = [FILES_INTRODUCTION]
    for name, (about, structs) in FILES.items():
        parts.append(f"## {name}\n\n{about}\n")
        parts += [f"### {kind.__name__}\n\n{fields_of(kind)}" for kind in structs]
    return "\n".join(parts)


def command_of(name: str) -> click.Command:
    """Import one command of the command line."""
    module, _, attribute = COMMANDS[name].place.partition(":")
    command: click.Command = getattr(importlib.import_module(module), attribute)
    return command


def commands(
    name: str, command: click.Command, parent: click.Context
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yield a command and those below it, each with its full name and context."""
    context = click.Context(command, info_name=name, parent=parent, terminal_width=100, max_content_width=100)
    yield context.command_path, command, context
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            subcommand = command.get_command(context, below)
            if subcommand is not None:
                yield from commands(below, subcommand, context)


def command_line_page() -> str:
    """Every command with its options, and the exit statuses."""
    top = click.Context(cli, info_name="recapture")
    source = "Written from the commands themselves; `recapture COMMAND --help` prints the same."
    parts = [f"# Command line\n\n{source}\n\n{exits()}"]
    for name in COMMANDS:
        for path, command, context in commands(name, command_of(name), top):
            usage = " ".join([path, *command.collect_usage_pieces(context)])
            text = "\n\n".join(plain(part) for part in inspect.cleandoc(command.help or "").split("\n\n"))
            rows = [
                [f"`{' '.join(record[0].split())}`", plain(record[1])]
                for record in (parameter.get_help_record(context) for parameter in command.get_params(context))
                if record is not None and not record[0].endswith("--help")
            ]
            listed = grid(["option", "meaning"], rows) if rows else ""
            examples = "\n".join(EXAMPLES.get(path.removeprefix("recapture "), ()))
            example = f"\nFor example:\n\n```sh\n{examples}\n```\n" if examples else ""
            parts.append(f"## {path}\n\n```text\n{usage}\n```\n\n{text}\n\n{listed}{example}")
    return "\n".join(parts)


def exits() -> str:
    """Describe the exit statuses: those of errors, from their classes, and the others."""
    meanings = {
        0: "Done.",
        1: "`recapture diff` found what `--fail-on` names.",
        124: "The time that `--minutes` gives a run is over. Finished work is kept; continue with `--resume`.",
        130: "Interrupted by Ctrl-C. Finished work is kept; continue with `--resume`.",
        143: "Ended by SIGTERM, which container engines and batch systems send. Finished work is kept as well.",
    }
    for kind in (errors.UsageError, errors.EnvironmentUnfitError):
        meanings[kind.exit_status] = (inspect.getdoc(kind) or "").split(": exit status")[0].rstrip(".") + "."
    rows = [[f"`{status}`", meanings[status]] for status in sorted(meanings)]
    return f"## Exit statuses\n\n{grid(['status', 'meaning'], rows)}"


def signature(function: Callable[..., Any]) -> str:
    """Return the signature of a public function, one argument per line."""
    lines = []
    for parameter in inspect.signature(function).parameters.values():
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        lines.append(f"    {parameter.name}: {parameter.annotation}{default},\n")
    return f"{function.__name__}(\n{''.join(lines)})"


def api_page() -> str:
    """The functions and classes that suite files use."""
    source = (
        "Written from the docstrings. `from recapture import case, case_for_each, compiler, workload` gives all four."
    )
    functions = [
        f"## {function.__name__}\n\n```text\n{signature(function)}\n```\n\n{docstring(function)}"
        for function in (case, case_for_each, workload, compiler)
    ]
    claims = f"## Claims\n\n{docstring(importlib.import_module(Claim.__module__))}"
    kinds = [f"### {kind.__name__}\n\n{docstring(kind)}" for kind in (Claim, SpeedClaim)]
    return "\n\n".join(["# Python API", source, *functions, claims, *kinds]) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "verdicts": verdict_page,
    "files": files_page,
    "command-line": command_line_page,
    "compilers": compilers_page,
    "checks": checks_page,
    "api": api_page,
    "images": images_page,
    "claims": claims_page,
    "releases": releases_page,
    "known-issues": known_issues_page,
    "changes": changes_page,
    "devices": devices_page,
    "findings": findings_page,
    "silently-wrong": silently_wrong_page,
    "speedups": best_speeds_page,
}
"""Every generated page by its file name."""
