"""Every way in which recapture reads a file, each run in this process with its output in files.

What is not here, and why:

- what a case sends to its server, and its output: `tests/test_hostile_cases.py` plants it
  with real processes;
- the owner file of a run's home: `tests/test_home.py`;
- what a container engine returns as an archive: `tests/test_images_places.py`;
- suites, and files and pickles that a user names for `check`: these are code, which recapture executes;
- files of torch (its registry of graph breaks), of Python's packages, of ``/proc`` and ``/sys``: they belong to the
  system, which this fuzzer never names;
- what another Python or uv prints to recapture: it is run by recapture, from the user's own environments.
"""

from __future__ import annotations

import contextlib
import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz import checks, corpus, resuming
from tests.fuzz.readers import READERS

if TYPE_CHECKING:
    import random

STATUSES = {0, 1, 2, 3}

SPEEDS = "speeds.json"
"""Name of the file with speedups for another tool."""

OF_A_TARGET = ("one.md", "across.md")
"""Names of the reports of a check, whose heading begins with the name of a user's target."""

PLAIN_PAGES = ("one.html", "across.html")
"""Names of the pages of a check, which have no script."""


def _of_results(root: Path) -> dict[str, list[str]]:
    results = root / "results"
    old, new, gpu = (str(results / place) for place in (corpus.OLD, corpus.NEW, corpus.GPU))
    out, moves = str(root / "written.md"), ["--from", "jit.trace", "--to", "compile"]
    commands = {
        "report": ["report", str(results)],
        "report --html": ["report", "--html", "--quiet", str(results)],
        "report --output": ["report", "--output", out, old],
        "report --output -": ["report", "--output", "-", new],
        "report --output pipe": ["report", "--html", "--output", str(root / "pipe"), old],
        "report --kind": ["report", "--kind", "value", "--output", out, new],
        "report --suite": ["report", "--suite", "types", "-k", "scale or not s", str(results)],
        "report --json": ["report", "--json", str(results)],
        "report --benchmark-json FILE": ["report", "--quiet", "--benchmark-json", str(root / SPEEDS), str(results)],
        "report --from --to": ["report", *moves, old],
        "report --from --to all": ["report", *moves, str(results)],
        "report --from --to json": ["report", *moves, "--json", str(results)],
        "report OLD": ["report", old],
        "report NEW": ["report", "--html", new],
        "bisect": ["bisect", corpus.CELL, "--no-run", "--results", str(results)],
        "bisect json": ["bisect", corpus.CELL, "--no-run", "--json", "--results", str(results)],
    }
    of_all = ["--results", str(results)]
    for form in ("text", "markdown", "json"):
        commands[f"diff {form}"] = ["diff", old, new, "--format", form]
        commands[f"diff back {form}"] = ["diff", new, old, "--format", form, "--fail-on", "any"]
        commands[f"diff --kind {form}"] = ["diff", old, new, "--format", form, "--kind", "value", "--category", "noise"]
        commands[f"diff devices {form}"] = ["diff", new, gpu, "--format", form]
        commands[f"diff steps {form}"] = ["diff", old, new, gpu, "--format", form]
        commands[f"history {form}"] = ["history", "--results", str(results), "--format", form]
        commands[f"history CELL {form}"] = ["history", corpus.CELL, "--results", str(results), "--format", form]
        commands[f"history --suite {form}"] = ["history", "--suite", "types", *of_all, "--format", form]
        commands[f"history --issues {form}"] = ["history", "--issues", "--results", str(results), "--format", form]
    return commands


def _of_unfinished(root: Path) -> dict[str, list[str]]:
    return {"report --interrupted": ["report", "--interrupted", str(root / "unfinished")]}


def _of_matrix(root: Path) -> dict[str, list[str]]:
    matrix, merged, results = str(root / "matrix"), str(root / "merged"), str(root / "results")
    plan = ["plan", "types", "--image", corpus.IMAGE, "--shards", "2"]
    return {
        "merge": ["merge", matrix, "--results", merged],
        "merge --incomplete": ["merge", "--incomplete", matrix, "--results", merged],
        "merge --incomplete into results": ["merge", "--incomplete", "--json", matrix, "--results", results],
        "merge results": ["merge", results, "--results", merged],
        "merge unfinished": ["merge", str(root / "unfinished"), "--incomplete", "--results", merged],
        "plan slurm": [*plan, "--format", "slurm", "--folder", matrix],
    }


def _of_tables(root: Path) -> dict[str, list[str]]:
    ends = ["--no-run", "--good", corpus.IMAGE, "--bad", corpus.DRIFTED]
    return {
        "list --claims": ["list", "--claims"],
        "list --claims json": ["list", "--claims", "--json"],
        "list --issues": ["list", "--issues"],
        "list --issues json": ["list", "--issues", "--json"],
        "images list": ["images", "list", "--gpu", "7.0"],
        "images list json": ["images", "list", "--json", "--gpu", "7.0"],
        "plan": ["plan", "types", "--image", corpus.IMAGE, "--shards", "2"],
        "plan json": ["plan", "types", "--image", "all", "--format", "json"],
        "plan github": ["plan", "types", "--image", corpus.IMAGE, "--format", "github"],
        "plan kubernetes": ["plan", "types", "--image", corpus.IMAGE, "--inside", "docker", "--format", "kubernetes"],
        "bisect packages": ["bisect", corpus.CELL, *ends, "--results", str(root / "results")],
    }


_BY_NAME = {
    "claims.toml": ["list --claims", "list --claims json", "report", "report --html"],
    "known_issues.toml": ["list --issues", "list --issues json", "history --issues markdown", "history --issues text"],
    "findings.toml": ["report", "report --html", "diff text", "diff markdown", "history CELL text", "explain"],
    "transitions.toml": ["diff text", "diff markdown", "history CELL text", "history CELL markdown", "explain"],
    "devices.toml": ["diff devices text", "diff devices markdown", "diff devices json", "report"],
    "images.toml": [
        "images list",
        "images list json",
        "plan",
        "plan json",
        "plan github",
        "plan kubernetes",
        "bisect",
        "bisect packages",
        "locks",
    ],
    "requirements.txt": ["requirements"],
    "more.txt": ["requirements"],
    "resolved.txt": ["requirements"],
    "meta.json": ["context"],
    ".lock": ["run --resume", "run --resume finished", "merge --incomplete into results", "report --interrupted"],
    ".speedups.lock": ["bench --resume", "report"],
}
"""The commands that read a file with a name of its own."""


REFUSED = {
    "merge": "a shard is missing",
    "bisect packages": "several packages differ, and nothing may run",
    "report --output pipe": "nothing reads from the pipe",
}
"""Commands that undamaged files end with status 2, and why."""


def expected() -> dict[str, set[object]]:
    """Return every command with the exit statuses that it may have on undamaged files."""
    names = [name for maker in (_of_results, _of_unfinished, _of_matrix, _of_tables) for name in maker(Path())]
    names += [*READERS, "run --resume", "run --resume finished", "bench --resume"]
    return {name: {2} if name in REFUSED else {1} if name.startswith("diff back") else {0} for name in names}


def names_for(path: Path, root: Path) -> list[str]:
    """Return the names of the commands that read a file of the corpus."""
    if path.name in _BY_NAME:
        return _BY_NAME[path.name]
    if path.is_relative_to(root / "docker"):
        return ["locks", "requirements", "plan", "images list"]
    if path.is_relative_to(root / "cache"):
        return ["answers"]
    if path.is_relative_to(root / "matrix"):
        return ["durations"] if path.name.startswith("durations") else [*_of_matrix(root)]
    if path.is_relative_to(root / "unfinished"):
        return ["report --interrupted", "run --resume", "merge unfinished"]
    if path.name.startswith("speedups"):
        return [name for name in _of_results(root) if "report" in name or "diff" in name] + ["bench --resume"]
    if path.name.startswith("timings"):
        return ["run --resume finished", "merge results", "durations", "forecast", "plan"]
    if path.name.startswith("output"):
        return ["run --resume finished", "merge results"]
    return [*_of_results(root), "repro", "explain", "merge results", "forecast"]


def after_renaming(choose: random.Random, path: Path, root: Path) -> tuple[list[str], list[str]]:
    """Return a name and the arguments of a command that meets the renamed folder of a file."""
    if path.is_relative_to(root / "matrix"):
        name = choose.choice([command for command in _of_matrix(root) if command.startswith("merge")])
        return ["folder"], _of_matrix(root)[name]
    if not path.is_relative_to(root / "results"):
        return ["folder"], ["images", "list"]
    results = str(root / "results")
    forms = (
        ["report", results],
        ["report", "--html", results],
        ["history", "--results", results],
        ["history", "--results", results, "--format", "markdown"],
    )
    words = choose.choice(forms)
    return ([f"folder {words[-1]}"] if "--format" in words else ["folder"]), words


def run(name: str, root: Path, arguments: list[str] | None = None) -> tuple[object, list[str]]:
    """Run one command on the results below a folder; return its exit status and the problems found."""
    streams = {number: root / f"{name.replace(' ', '_')}.{number}" for number in (1, 2)}
    resumed = resuming.directory(root, name) if name.startswith("run --resume") else None
    before = resuming.measured(root, name) if resumed else set()
    with _into(streams):
        status = _status(name, root, arguments)
    lost = resuming.lost(resumed, before) if resumed else []
    out, err = (path.read_bytes().decode(errors="replace") for path in streams.values())
    problems = lost + ([status] if isinstance(status, str) else [f"exit status {status}"] * (status not in STATUSES))
    problems += checks.control(out, "stdout") + checks.control(err, "stderr")
    if "Traceback" in err or "Warning:" in err:
        problems.append(f"stderr: {err[-2000:]}")
    lines = err.splitlines()
    if status in (2, 3) and (not lines or not lines[-1].startswith("recapture: ")):
        problems.append(f"status 2, and on stderr {err[:300]!r}")
    if any(len(line) > 5000 for line in lines):
        problems.append("stderr has a line of more than 5000 characters")
    if status in (0, 1) and name.endswith("json"):
        problems += checks.document(out, "stdout")
    if name.endswith(("markdown", "--output -")):
        problems += checks.markdown(out, "stdout")
    for path in sorted(root.rglob("*.md")):
        problems += checks.markdown(path.read_bytes().decode(), path.name, titled=path.name not in OF_A_TARGET)
        path.unlink()
    speeds = root / SPEEDS
    if speeds.is_file():
        problems += checks.document(speeds.read_bytes().decode(), SPEEDS)
        speeds.unlink()
    for path in sorted(root.rglob("*.html")):
        scripts = 0 if path.name in PLAIN_PAGES else None
        problems += checks.page(path.read_bytes().decode(), path.name, scripts=scripts)
        path.unlink()
    return "raised" if isinstance(status, str) else status, [f"{name}: {problem}" for problem in problems]


def _status(name: str, root: Path, arguments: list[str] | None) -> object:
    from recapture.base.errors import RecaptureError
    from recapture.command.main import _run
    from recapture.command.output import echo_error

    commands = _of_results(root) | _of_unfinished(root) | _of_matrix(root) | _of_tables(root)
    try:
        if arguments is not None or name in commands:
            return _run(arguments or commands[name])
        if name in READERS:
            READERS[name](root)
        else:
            (resuming.bench if name == "bench --resume" else resuming.run)(root, name)
    except RecaptureError as error:
        echo_error(str(error))
        return error.exit_status
    except BaseException:
        return traceback.format_exc()[-3000:]
    return 0


@contextlib.contextmanager
def _into(streams: dict[int, Path]):
    """Redirect file descriptors to files inside the context."""
    import sys

    saved = {number: os.dup(number) for number in streams}
    try:
        for number, path in streams.items():
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(handle, number)
            os.close(handle)
        yield
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        for number, handle in saved.items():
            os.dup2(handle, number)
            os.close(handle)
