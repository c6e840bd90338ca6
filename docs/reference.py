"""Write the reference pages of the site from the code, so that they cannot differ from it; it needs no torch.

Sphinx calls `write` before it reads the pages (see conf.py).
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from recapture.analysis.changes import CATEGORIES, FAIL_ON, SPEED_CATEGORIES
from recapture.base import errors
from recapture.cli.main import COMMANDS, cli
from recapture.declare.case import case
from recapture.declare.claim import Claim
from recapture.declare.compiler import compiler
from recapture.declare.compilers import builtin_compilers
from recapture.declare.workload import SpeedClaim, workload
from recapture.machine import environment, hardware
from recapture.machine.doctor import register
from recapture.machine.pins import load_images
from recapture.results import records, speedups, verdicts
from recapture.results.sources import published_claims

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["PAGES", "write"]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
LATEST = RESULTS / "torch2.11.0-cu130" / "cpu"
"""The results of the image that the README's commands install."""


def write(folder: Path) -> None:
    """Write every page into a folder; pages that did not change keep their time, so that Sphinx skips them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        path, text = folder / f"{name}.md", page()
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def grid(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table; cells are Markdown of one line."""
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join("| " + " | ".join(part.replace("|", r"\|") for part in line) + " |\n" for line in lines)


def plain(text: str) -> str:
    """Return help text with the characters escaped that Markdown reads as structure outside of back-ticks."""
    parts = re.split(r"(`+[^`]+`+)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"([*_<>\[\]\\])", r"\\\1", part) for part in parts)


def docstring(thing: object) -> str:
    """Return a docstring as Markdown paragraphs."""
    return "\n\n".join(plain_block(part) for part in (inspect.getdoc(thing) or "").split("\n\n"))


def plain_block(text: str) -> str:
    """Escape one paragraph, or each item of a list; what is indented is shown as it is."""
    if all(line.startswith("    ") for line in text.splitlines()):
        return f"```text\n{inspect.cleandoc(text)}\n```"
    text = text.removesuffix("::") + (":" if text.endswith("::") else "")
    if not text.startswith("- "):
        return plain(text)
    return "\n".join("- " + plain(item) for item in re.split(r"^- ", text, flags=re.MULTILINE)[1:])


def member_docs(thing: type) -> dict[str, str]:
    """Return the docstrings that stand below the fields of a class."""
    body = ast.parse(inspect.cleandoc("\n" + inspect.getsource(thing))).body[0]
    if not isinstance(body, ast.ClassDef):
        raise TypeError(thing)
    found: dict[str, str] = {}
    for before, after in zip(body.body, body.body[1:], strict=False):
        target = before.targets[0] if isinstance(before, ast.Assign) else getattr(before, "target", None)
        text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
        if isinstance(target, ast.Name) and isinstance(text, str):
            found[target.id] = " ".join(text.split())
    return found


def groups_of(verdict: verdicts.Verdict) -> str:
    """Return the group that a verdict counts in."""
    named = {"right": "RIGHT", "silently wrong": "SILENTLY_WRONG", "failing": "FAILING", "not run": "NOT_RUN"}
    return next(words for words, name in named.items() if verdict in getattr(verdicts, name))


def verdict_page() -> str:
    """Every verdict, its group and its meaning; and what `recapture diff` makes of two verdicts."""
    docs = member_docs(verdicts.Verdict)
    rows = [[f"`{one}`", groups_of(one), plain(docs[one.name])] for one in verdicts.Verdict]
    kinds = [[f"`{name}`", plain(text)] for name, text in CATEGORIES.items()]
    speeds = [[f"`{name}`", plain(text)] for name, text in SPEED_CATEGORIES.items()]
    return f"""# Verdicts and categories

Written from `recapture/results/verdicts.py` and `recapture/analysis/changes.py`.

## Verdicts

Every planned cell (case × compiler × device) ends with exactly one verdict.

{grid(["verdict", "counted as", "meaning"], rows)}
## Categories of `recapture diff`

Each cell is in at most one category. The list is in order of weight, heaviest first.

{grid(["category", "meaning"], kinds)}
`--fail-on` takes {", ".join(f"`{name}`" for name in [*FAIL_ON, "slower"])}.

## Categories of compared speeds

{grid(["category", "meaning"], speeds)}"""


def fields_of(kind: type[msgspec.Struct]) -> str:
    """Describe one struct: its docstring, then its fields with their types."""
    docs = member_docs(kind)
    defaults = {one.name: one for one in msgspec.structs.fields(kind)}
    types: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        types |= vars(base).get("__annotations__", {})
    rows = []
    for name in kind.__struct_fields__:
        needed = "yes" if defaults[name].required else "no"
        rows.append([f"`{name}`", f"`{types[name]}`", needed, plain(docs.get(name, ""))])
    if not any(row[3] for row in rows):
        return f"{docstring(kind)}\n\n{grid(['field', 'type', 'required'], [row[:3] for row in rows])}"
    return f"{docstring(kind)}\n\n{grid(['field', 'type', 'required', 'meaning'], rows)}"


FILES: dict[str, tuple[str, tuple[type[msgspec.Struct], ...]]] = {
    "conformance.jsonl": (
        """One JSON object a line, one line a cell, sorted by case, compiler and device. It holds no times, addresses,
paths or dates: two runs of one installation give the same bytes.""",
        (records.Record, records.ErrorInfo, records.Difference, records.ClaimResult),
    ),
    "timings.jsonl": ("What each cell cost. These figures differ from run to run.", (records.Timing,)),
    "environment.json": (
        "The machine and the installation, without host names, user names or absolute paths.",
        (
            environment.Environment,
            environment.TorchInfo,
            hardware.GpuInfo,
            hardware.CpuInfo,
            environment.SuiteEntry,
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
"""Every file of results that programs may read, what it is, and the structs it is made of."""


FILES_INTRODUCTION = """# Files of a results directory

Written from the structs that read and write the files. JSON Schemas ship in `recapture/results/schema/`. A reader
refuses a file whose `schema` it does not know.

Beside these files are reports for people: `conformance.md`, `conformance.html` and `speedups-*.md`. Nothing reads them
back. `recapture report` renders them again.
"""


def files_page() -> str:
    """Every file of a results directory with its fields."""
    parts = [FILES_INTRODUCTION]
    for name, (about, kinds) in FILES.items():
        parts.append(f"## {name}\n\n{about}\n")
        parts += [f"### {kind.__name__}\n\n{fields_of(kind)}" for kind in kinds]
    return "\n".join(parts)


def command_of(name: str) -> click.Command:
    """Import one command of the command line."""
    module, _, attribute = COMMANDS[name].partition(":")
    found: click.Command = getattr(importlib.import_module(module), attribute)
    return found


def commands(
    name: str, command: click.Command, parent: click.Context
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yield a command and those below it, each with its full name and context."""
    context = click.Context(command, info_name=name, parent=parent, terminal_width=100, max_content_width=100)
    yield context.command_path, command, context
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            if found is not None:
                yield from commands(below, found, context)


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
                for record in (one.get_help_record(context) for one in command.get_params(context))
                if record is not None and not record[0].endswith("--help")
            ]
            listed = grid(["option", "meaning"], rows) if rows else ""
            parts.append(f"## {path}\n\n```text\n{usage}\n```\n\n{text}\n\n{listed}")
    return "\n".join(parts)


def exits() -> str:
    """Describe the exit statuses: those of errors from their classes, and those that are no error."""
    found = {
        0: "Done.",
        1: "`recapture diff` found what `--fail-on` names.",
        130: "Interrupted by Ctrl-C. What is done is kept; `--resume` goes on.",
        143: "Ended by SIGTERM, as a container engine or a batch system sends it. What is done is kept, too.",
    }
    for kind in (errors.UsageError, errors.EnvironmentUnfitError):
        found[kind.exit_status] = (inspect.getdoc(kind) or "").split(": exit status")[0].rstrip(".") + "."
    rows = [[f"`{status}`", found[status]] for status in sorted(found)]
    return f"## Exit statuses\n\n{grid(['status', 'meaning'], rows)}"


def compilers_page() -> str:
    """Every compiler that ships."""
    rows = []
    for one in builtin_compilers().values():
        needs = [*([f"torch {one.since}"] if one.since else []), *one.requires]
        marks = [
            *(["built on Dynamo"] if one.uses_dynamo else []),
            *(["generates code"] if one.generates_code else []),
            *(["runs only when named"] if one.optional else []),
        ]
        rows.append([f"`{one.name}`", plain(one.describe()), ", ".join(needs), ", ".join(marks)])
    return f"""# Compilers

Written from `recapture/declare/compilers/`. `recapture list --compilers` prints the list for your installation.
"Generates code" means that it compiles C++ on a CPU or Triton kernels on a GPU.

{grid(["name", "what it does", "needs", "remarks"], rows)}"""


def checks_page() -> str:
    """Every check of `recapture doctor`."""
    importlib.import_module("recapture.machine.doctor")  # registers the checks
    affects = {
        "all": "every cell",
        "codegen": "compilers that generate code",
        "dynamo": "compilers built on Dynamo",
        "cuda": "cells on a GPU",
        "numpy": "what crosses between tensors and arrays",
    }
    rows = [
        [f"`{one.name}`", plain(inspect.getdoc(one.function) or ""), affects[one.affects], ", ".join(one.devices)]
        for one in register._REGISTER.values()  # noqa: SLF001 - the register has no other reader
    ]
    return f"""# Checks of `recapture doctor`

Written from `recapture/machine/doctor/`. A cell that fails with an error that a failing check explains gets the verdict
`environment`, and the check is named in its record.

{grid(["check", "what it does", "concerns", "devices"], rows)}"""


def signature(function: Callable[..., Any]) -> str:
    """Return the signature of a public function, an argument a line."""
    lines = [
        f"    {one.name}: {one.annotation}{'' if one.default is one.empty else f' = {one.default!r}'},\n"
        for one in inspect.signature(function).parameters.values()
    ]
    return f"{function.__name__}(\n{''.join(lines)})"


def api_page() -> str:
    """The functions and classes that suite files use."""
    source = "Written from the docstrings. `from recapture import case, compiler, workload` gives all three."
    functions = [
        f"## {one.__name__}\n\n```text\n{signature(one)}\n```\n\n{docstring(one)}" for one in (case, workload, compiler)
    ]
    claims = f"## Claims\n\n{docstring(importlib.import_module(Claim.__module__))}"
    kinds = [f"### {one.__name__}\n\n{docstring(one)}" for one in (Claim, SpeedClaim)]
    return "\n\n".join(["# Python API", source, *functions, claims, *kinds]) + "\n"


def claims_page() -> str:
    """Every published claim, by its source, with what shows it."""
    parts = ["# Published claims\n\nWritten from `suites/claims.toml`; `recapture list --claims` prints the same."]
    claims = list(published_claims().values())
    for source in dict.fromkeys(claim.source for claim in claims):
        facts = [source.kind, source.language, *([str(source.year)] if source.year else []), f"torch {source.torch}"]
        title = f"[{plain(source.title)}]({source.link})" if source.link else "No public address is known"
        rows = [
            [
                f"`{one.id}`",
                plain(one.claim),
                ", ".join(f"{shown.kind} `{shown.name}`" for shown in one.shown_by) or plain(one.not_shown or ""),
            ]
            for one in claims
            if one.source == source
        ]
        about = f"{', '.join([title, *map(plain, facts)])}.{' ' + plain(source.note) if source.note else ''}"
        parts.append(
            f"## {source.id}: {plain(source.title)}\n\n{about}\n\n{grid(['claim', 'what it says', 'what shows it'], rows)}"
        )
    return "\n\n".join(parts)


def images_page() -> str:
    """Every pinned image, and the GPUs that it can run on."""
    rows = [
        [
            f"`{one.name}`",
            one.python,
            one.torch,
            one.numpy,
            one.scipy,
            one.cuda,
            ", ".join(one.capabilities),
            str(one.driver),
        ]
        for one in load_images().values()
    ]
    head = ["image", "Python", "torch", "numpy", "scipy", "CUDA", "GPU capabilities", "oldest driver"]
    return f"""# Images

Written from `docker/images.toml`. A GPU can run an image when its capability has the same major number as one of the
image's and an equal or higher minor number. V100 is 7.0, A100 is 8.0, H100 and H200 are 9.0.

{grid(head, rows)}"""


def releases_page() -> str:
    """The committed history of all releases, one heading level down."""
    text = (RESULTS / "README.md").read_text(encoding="utf-8")
    return "# Every release\n\n`recapture history --format markdown` prints this page.\n\n" + re.sub(
        r"^#", "##", text, flags=re.MULTILINE
    )


def counts() -> dict[str, Counter[str]]:
    """Count the groups of verdicts in the latest results, by compiler."""
    found: dict[str, Counter[str]] = {}
    for row in records.read_conformance(LATEST):
        found.setdefault(row.compiler, Counter())[groups_of(row.verdict)] += 1
    return found


def silently_wrong_page() -> str:
    """What each compiler gets silently wrong in the latest results, counted and listed by case."""
    rows = records.read_conformance(LATEST)
    cases = {row.case for row in rows}
    order = [name for name in builtin_compilers() if name in counts()]
    groups = ("right", "silently wrong", "failing", "not run")
    table = grid(
        ["compiler", *groups], ([f"`{name}`", *(str(counts()[name][one]) for one in groups)] for name in order)
    )
    wrong = [row for row in rows if groups_of(row.verdict) == "silently wrong" and row.compiler == "compile"]
    listed = grid(
        ["case", "verdict", "input", "what differs"],
        (
            [f"`{row.case}`", f"`{row.verdict}`", f"`{one.input}`", plain(f"{one.where}: {one.detail}")]
            for row in wrong
            for one in row.differences[:1]
        ),
    )
    return f"""# Silently wrong results

Written from `{LATEST.relative_to(ROOT)}`: {len(rows)} cells, {len(cases)} cases.

{table}
`eager` is silently wrong where a case is offered as a rewrite of another function and computes something else.

## Under `torch.compile`

The first difference of each case. `conformance.md` in the results directory has all of them, for every compiler.

{listed}"""


def best_speeds_page() -> str:
    """The best configuration of every workload in the committed benchmarks."""
    parts = ["# Speedups\n"]
    for path in sorted(RESULTS.rglob("speedups-*.json")):
        head = json.loads(path.read_text(encoding="utf-8"))["environment"]
        machine = head["gpu"]["name"] if head["gpu"] else f"{head['cpu']['model']}, {head['cpu']['cores']} cores"
        report = path.with_suffix(".md").read_text(encoding="utf-8")
        section = report.split("## Best configurations\n", 1)[1].split("\n## ", 1)[0]
        parts.append(f"## {machine}, torch {head['torch']['version']}\n\nFrom `{path.relative_to(ROOT)}`.\n{section}")
    return "\n".join(parts)


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
    "silently-wrong": silently_wrong_page,
    "speedups": best_speeds_page,
}
"""Every generated page by its file name."""
