"""Every way in which recapture reads a file, each run in this process with its output in files."""

from __future__ import annotations

import contextlib
import os
import traceback
from typing import TYPE_CHECKING

from tests.fuzz import checks, corpus, resuming

if TYPE_CHECKING:
    from pathlib import Path

STATUSES = {0, 1, 2, 3}


def _of_results(root: Path) -> dict[str, list[str]]:
    results = root / "results"
    old, new = str(results / corpus.OLD), str(results / corpus.NEW)
    out = str(root / "written.md")
    commands = {
        "report": ["report", str(results)],
        "report --html": ["report", "--html", "--quiet", str(results)],
        "report --output": ["report", "--output", out, old],
        "report --output -": ["report", "--output", "-", new],
        "report --output pipe": ["report", "--html", "--output", str(root / "pipe"), old],
        "report --kind": ["report", "--kind", "value", "--output", out, new],
        "report OLD": ["report", old],
        "report NEW": ["report", "--html", new],
    }
    for form in ("text", "markdown", "json"):
        commands[f"diff {form}"] = ["diff", old, new, "--format", form]
        commands[f"diff back {form}"] = ["diff", new, old, "--format", form, "--fail-on", "any"]
        commands[f"diff --kind {form}"] = ["diff", old, new, "--format", form, "--kind", "value", "--category", "noise"]
        commands[f"history {form}"] = ["history", "--results", str(results), "--format", form]
        commands[f"history CELL {form}"] = ["history", corpus.CELL, "--results", str(results), "--format", form]
    return commands


def _of_unfinished(root: Path) -> dict[str, list[str]]:
    return {"report --interrupted": ["report", "--interrupted", str(root / "unfinished")]}


def names_for(path: Path, root: Path) -> list[str]:
    """Return the names of the commands that read a file of the corpus."""
    if path.is_relative_to(root / "unfinished"):
        return ["report --interrupted", "run --resume"]
    if path.name.startswith("speedups"):
        return [name for name in _of_results(root) if "report" in name or "diff" in name] + ["bench --resume"]
    if path.name.startswith(("timings", "output")):
        return ["run --resume finished"]
    return [*_of_results(root), "repro"]


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
    if status == 2 and (not lines or not lines[-1].startswith("recapture: ")):
        problems.append(f"status 2, and on stderr {err[:300]!r}")
    if any(len(line) > 5000 for line in lines):
        problems.append("stderr has a line of more than 5000 characters")
    if status in (0, 1) and name.endswith("json"):
        problems += checks.document(out, "stdout")
    if name.endswith(("markdown", "--output -")):
        problems += checks.markdown(out, "stdout")
    for path in sorted(root.rglob("*.md")):
        problems += checks.markdown(path.read_bytes().decode(), path.name)
        path.unlink()
    for path in sorted(root.rglob("*.html")):
        problems += checks.page(path.read_bytes().decode(), path.name)
        path.unlink()
    return "raised" if isinstance(status, str) else status, [f"{name}: {one}" for one in problems]


def _status(name: str, root: Path, arguments: list[str] | None) -> object:
    from recapture.base.errors import RecaptureError
    from recapture.cli.main import _run

    commands = _of_results(root) | _of_unfinished(root)
    try:
        if arguments is not None or name in commands:
            return _run(arguments or commands[name])
        readers = {"repro": _repro, "bench --resume": resuming.bench}
        readers.get(name, resuming.run)(root, name)
    except RecaptureError as error:
        os.write(2, b"recapture: refused\n")
        return error.exit_status
    except BaseException:
        return traceback.format_exc()[-3000:]
    return 0


def _repro(root: Path, _name: str) -> None:
    """Read the records of a cell as ``repro`` does."""
    from recapture.conformance import repro
    from recapture.results.directories import find_results, read_results

    said = getattr(repro, "recorded_line", None)
    for path in find_results(root / "results"):
        for record in read_results(path).records:
            if said is not None:
                os.write(1, (said(record) + "\n").encode(errors="replace"))


@contextlib.contextmanager
def _into(streams: dict[int, Path]):
    """Redirect file descriptors to files inside the context."""
    import sys

    kept = {number: os.dup(number) for number in streams}
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
        for number, handle in kept.items():
            os.dup2(handle, number)
            os.close(handle)
