"""What a newcomer meets: a fresh clone, set up as the README says, and the documents followed with nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import documents
import pytest
from documents import find_blocks, make_clone, run_document

pytestmark = [pytest.mark.slow, pytest.mark.timeout(documents.SET_UP_SECONDS + 600)]

FOLLOWED = (
    "README.md",
    "docs/first-results.md",
    "docs/your-own-code.md",
    "docs/your-own-case.md",
    "docs/before-an-upgrade.md",
    "docs/leaving-torchscript.md",
    "docs/reading-a-verdict.md",
    "docs/why.md",
    *sorted(str(path.relative_to(documents.ROOT)) for path in documents.ROOT.glob("examples/*/README.md")),
)
"""The documents of the first days, in the order in which they are read."""


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory):
    """The clone, and the variables of the shell that set it up."""
    folder = tmp_path_factory.mktemp("newcomer")
    try:
        yield folder / "recapture", make_clone(folder)
    finally:
        shutil.rmtree(folder)  # two environments of five gigabytes


def test_the_set_up_brings_no_tool_of_developers(newcomer):
    clone, environment = newcomer
    assert environment["PATH"] == f"{clone}/.nox/cpu-suite/bin:{documents.SYSTEM_PATH}"
    assert "PYTHONPATH" not in environment


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_document_runs_in_a_fresh_clone(name, newcomer):
    clone, environment = newcomer
    assert run_document((clone / name).read_text(encoding="utf-8"), clone, environment) > 0


def test_what_the_documents_ran_changed_no_committed_result(newcomer):
    clone, environment = newcomer

    def git(*arguments):
        ended = subprocess.run(
            ["git", *arguments], cwd=clone, env=environment, capture_output=True, text=True, check=True
        )
        return ended.stdout

    def meaning(records):
        """What each row says: its verdict, its fields, and the set of its differences.

        The rows of some releases were recorded when differences had another order. Until they are recorded again, a run
        writes such a row anew, and with it the files that are made from all rows.
        """
        rows = [json.loads(line) for line in records.splitlines()]
        for row in rows:
            for key in ("differences", "noted"):
                row[key] = sorted(json.dumps(difference, sort_keys=True) for difference in row.get(key, ()))
        return rows

    changed = [Path(line[3:]) for line in git("status", "--porcelain", "results").splitlines() if line[:2] != "??"]
    for folder in {path.parent for path in changed}:
        records = folder / "conformance.jsonl"
        assert records in changed, f"of {folder}, {changed} changed and no row did"
        assert meaning((clone / records).read_text(encoding="utf-8")) == meaning(git("show", f"HEAD:{records}"))


def test_across_makes_the_environment_of_a_release_with_the_users_packages(newcomer):
    """The document names two releases; the one that the set-up has taken from the package index is enough here."""
    clone, environment = newcomer
    text = (clone / "docs" / "before-an-upgrade.md").read_text(encoding="utf-8")
    (command,) = (block.text for block in find_blocks(text) if "--across 2.6.0,2.11.0" in block.text)
    ended = subprocess.run(
        ["bash", "-c", command.replace("--across 2.6.0,2.11.0", "--across 2.11.0")],
        cwd=clone,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    rows = {tuple(line.split()) for line in ended.stdout.splitlines()}
    assert {("compile:eager", "P"), ("jit.script", "E"), ("export", "e")} <= rows, ended.stdout
