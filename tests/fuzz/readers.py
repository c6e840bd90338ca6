"""Readers of files that no command line of the fuzzer reaches without starting cells, with what uses their result."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from pathlib import Path


def _say(text: str) -> None:
    os.write(1, (text + "\n").encode(errors="replace"))


def repro(root: Path) -> None:
    """Read the records of a cell as ``repro`` does."""
    from recapture.records.directories import find_results, read_results
    from recapture.tools.explain.script import repro as scripts

    recorded_line = getattr(scripts, "recorded_line", None)
    for path in find_results(root / "results"):
        for record in read_results(path).records:
            if recorded_line is not None:
                _say(recorded_line(record))


def explain(root: Path) -> None:
    """Read the records beside a cell as ``explain`` does, and word what they say."""
    from recapture.command.output import echo
    from recapture.records.directories import find_results, read_results
    from recapture.tools.explain.explain_cells import explanation_of
    from recapture.tools.explain.explain_command import explanation_lines

    for path in find_results(root / "results"):
        records = read_results(path).records
        for record in records[:20]:
            beside = [row for row in records if row.case == record.case]
            explanation = explanation_of(record, None, torch="2.6.0", image="an-image", beside=beside, folder=None)
            echo("\n".join(explanation_lines(explanation, brief=False)))


def durations(root: Path) -> None:
    """Read the durations that order a run and divide it into shards."""
    from recapture.run.durations import earlier_runs, frozen_seconds, recorded_seconds

    earlier_runs(root / "results", "cpu", "torch2.11.0-cu130")
    recorded_seconds(root / "matrix" / "durations.jsonl", "cpu")
    frozen_seconds(root / "results", "cpu")


def forecast(root: Path) -> None:
    """Read what earlier runs of images lead to expect of their time."""
    from recapture.images.each_image import expected_seconds
    from tests.fuzz import corpus

    names = [place.parts[0] for place in (corpus.OLD, corpus.NEW)]
    expected_seconds(names, root / "results", "cpu", resume=True)


def locks(root: Path) -> None:
    """Read locks as ``bisect``, ``images lock`` and the layers of ``check --with`` do."""
    from recapture.images.lock_files import read_inputs_digest
    from recapture.machine.image_match import pinned_images
    from recapture.machine.pins import load_images, lock_hash, lock_path, lock_text
    from recapture.tools.upgrade.cell_bisect import lock_changes, mixed_lock
    from tests.fuzz import corpus

    images = load_images()
    good, bad = (images[name] for name in (corpus.IMAGE, corpus.DRIFTED))
    for image in (good, bad):
        read_inputs_digest(lock_path(image.name))
        lock_hash(lock_path(image.name))
    changes, _ = lock_changes(good, bad)
    names = [change.name for change in changes if change.name not in ("python", "cuda")][:1]
    mixed_lock(lock_text(lock_path(good.name)), lock_text(lock_path(bad.name)), names)
    pinned_images(torch="2.6.0")


def requirements(root: Path) -> None:
    """Read a user's requirements files, compare them with a lock, and say what uv would install of them."""
    from recapture.images.requirements import Requirements, beyond_lock, check_against, to_install
    from recapture.machine.pins import load_images, lock_path
    from tests.fuzz import corpus

    parsed = Requirements.read([root / "requirements.txt"])
    check_against(load_images()[corpus.IMAGE], parsed)
    parsed.digest(lock_path(corpus.IMAGE))
    # uv has just written this one, which is a regular file.
    path = root / "resolved.txt"
    resolved = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    hashed, others = to_install(beyond_lock(resolved, lock_path(corpus.IMAGE)), parsed)
    for line in (*parsed.options, *hashed.splitlines(), *others.splitlines()):
        _say(ascii(line))


def answers(root: Path) -> None:
    """Read the kept answers of ``check --across``, and what a check in another environment printed; print all forms."""

    from recapture.base.text import printable
    from recapture.command.output import echo, print_json
    from recapture.tools.check import report as forms
    from recapture.tools.check.across import AcrossReport, ReleaseAnswer, failures, kept_answer, printed_report
    from recapture.tools.check.report import check_annotations, check_junit

    stored = [kept_answer(path) for path in sorted((root / "cache" / "checks").glob("torch*.json"))]
    releases = [answer[1] for answer in stored if answer is not None]
    printed = root / "cache" / "checks" / "printed.json"
    if printed.is_file():
        report = printed_report(printed.read_bytes())
        releases.append(ReleaseAnswer(release="2.12.0", image="x", report=report))
        echo(report.sentence)
        (root / "one.md").write_text(printable(forms.check_markdown(report)))
        (root / "one.html").write_text(printable(forms.check_page(report)))
        ET.fromstring(check_junit(report))
        for line in check_annotations(report):
            echo(line, err=True)
    across = AcrossReport(target="m.py:Net", device="cpu", releases=tuple(releases))
    failed = failures(across, ("any", "regression"))
    echo(forms.across_text(across))
    print_json(across.to_dict())
    (root / "across.md").write_text(printable(forms.across_markdown(across)))
    (root / "across.html").write_text(printable(forms.across_page(across)))
    for line in forms.across_annotations(across, failed):
        echo(line, err=True)


def context(root: Path) -> None:
    """Read the settings of a Docker context."""
    from recapture.images import engine

    os.environ["DOCKER_CONFIG"] = str(root / "docker-config")
    getattr(engine, "_context")("there")  # noqa: B009 - private, and `connect` would use the network


READERS = {
    "repro": repro,
    "explain": explain,
    "durations": durations,
    "forecast": forecast,
    "locks": locks,
    "requirements": requirements,
    "answers": answers,
    "context": context,
}
"""Every reader, by the name that the fuzzer prints."""
