"""``recapture upgrade -- COMMAND``: a user's own tests on several releases, and what is new on each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import click

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.command.options import OutputFile, PathParameter, console, how_to_print, takes
from recapture.command.output import echo, echo_error, print_json, write_file
from recapture.report.markdown_writer import to_markdown
from recapture.report.terminal_writer import print_document
from recapture.tools.upgrade.baseline import STEADY_RUNS, Baseline, NewBaseline, as_result, new_baseline, read_baseline
from recapture.tools.upgrade.command_options import CommandAfterDashes, CommandOptions, words_after_dashes
from recapture.tools.upgrade.places import Via, find_places
from recapture.tools.upgrade.upgrade import PlaceResult, Upgrade, UpgradeReport
from recapture.tools.upgrade.upgrade_report import upgrade_document, upgrade_junit

WORSE = 1
"""Exit status if something is worse than in the baseline."""

_NAMED = 5
"""Tests that the line about a baseline file names."""


@click.command("upgrade", cls=CommandAfterDashes)
@click.option(
    "--across",
    metavar="RELEASE[,RELEASE…]|all|here",
    required=True,
    help="The releases of torch, such as 2.6.0,2.11.0; the first is the baseline. `here` is this Python.",
)
@takes(options=CommandOptions)
@click.option(
    "--via",
    type=click.Choice(get_args(Via)),
    default="venv",
    show_default=True,
    help="Environments made with uv, or containers of images that are built.",
)
@click.option(
    "--runs",
    type=click.IntRange(1),
    metavar="N",
    default=3,
    show_default=True,
    help="Runs of the baseline, to know flaky tests.",
)
@click.option(
    "--confirm",
    type=click.IntRange(0),
    metavar="N",
    default=5,
    show_default=True,
    help="Further runs, on both sides, of the tests that look worse.",
)
@click.option(
    "--frames",
    is_flag=True,
    help="Also count graph breaks and recompiles in each function of your code; needs torch 2.6 or newer.",
)
@click.option("--again", is_flag=True, help="Run again what earlier calls have run.")
@click.option("--baseline", "saved", type=PathParameter(), help="Compare with this file instead of the first release.")
@click.option("--write-baseline", "written", type=OutputFile(replaces="saved"), help="Write the outcomes to this file.")
@click.option("--junit", "junit_file", type=OutputFile(), help="Write JUnit's XML to this file.")
@click.option(
    "--fail-on",
    type=click.Choice(["new", "never"]),
    help="Exit with status 1 if something is worse. [default: new with --baseline, else never]",
)
@how_to_print
@click.pass_context
def upgrade_command(
    context: click.Context,
    across: str,
    options: CommandOptions,
    via: Via,
    runs: int,
    confirm: int,
    saved: Path | None,
    written: Path | None,
    junit_file: Path | None,
    fail_on: str | None,
    form: str,
    *,
    frames: bool,
    again: bool,
) -> int:
    """Run COMMAND, such as a test suite, on several releases of torch, and say what is new on each.

    The project of the current folder is installed into the environment of each release. The tests of pytest are
    compared one by one, whatever starts pytest; another command is compared by its exit status. The first release runs
    several times, so that a test that disagrees with itself is not blamed on a release. Run again, it continues.
    """
    words = words_after_dashes(context)
    if not words:
        raise UsageError("name the command after two dashes: recapture upgrade --across 2.6.0,2.11.0 -- pytest tests/")
    chosen = find_places(across, options.index)
    root = Path.cwd()
    rounds = options.rounds(words, root, options.folder("upgrade", words, root), via)
    baseline = read_baseline(saved) if saved is not None else None
    earlier = baseline if written is None or baseline is not None else _replaced(written)
    upgrade = Upgrade(
        rounds=rounds,
        chosen=chosen,
        runs=runs,
        confirm=confirm,
        options=options.repeated,
        frames=frames or (baseline is not None and baseline.has_frames),
        saved=(lambda name: as_result(baseline, name)) if baseline is not None else None,
        show=echo_error,
    )
    if saved is None and len(chosen) < 2 and written is None:
        raise UsageError("--across needs two releases to compare, or --baseline or --write-baseline with one")
    with rounds.held(again=again):
        report, results = upgrade.run()
    try:  # files first: who reads the report may close it early, as `| head` does
        if junit_file is not None:
            write_file(junit_file, upgrade_junit(report, results).decode())
        if written is not None:
            _write(written, words, report, results, earlier)
    finally:
        _print(report, form)
    if report.edited:
        return EnvironmentUnfitError.exit_status
    gate = (fail_on or ("new" if saved is not None else "never")) == "new"
    if gate and report.worse:
        return WORSE
    if gate and any(comparison.not_run for comparison in report.places):
        return EnvironmentUnfitError.exit_status
    return max(result.status for result in results)


def _print(report: UpgradeReport, form: str) -> None:
    if form == "json":
        print_json(report)
    elif form == "markdown":
        echo(to_markdown(upgrade_document(report, whole=True)), nl=False)
    else:
        print_document(console(), upgrade_document(report))


def _replaced(path: Path) -> Baseline | None:
    """Return the baseline that a file has so far; None if there is no file. Raises UsageError for another one."""
    if not path.is_file():
        return None
    try:
        return read_baseline(path)
    except UsageError as error:
        raise UsageError(f"--write-baseline would replace what is no baseline: {error}") from None


def _write(
    path: Path, words: Sequence[str], report: UpgradeReport, results: Sequence[PlaceResult], earlier: Baseline | None
) -> None:
    """Write a baseline file and say what it has. One with which every comparison would pass is not written."""
    if report.edited:
        echo_error(f"did not write {path}: the project was edited while this ran")
        return
    if report.fails_itself:
        raise UsageError(f"did not write {path}: the command fails on {report.baseline} itself, without any test")
    new = new_baseline(words, results, earlier)
    write_file(path, new.text)
    echo_error(_written(path, report, new))


def _written(path: Path, report: UpgradeReport, new: NewBaseline) -> str:
    """Return the line that says what a baseline file has, and which failures it accepts from now on."""
    names = ", ".join(comparison.name for comparison in report.places if not comparison.problem)
    parts = [f"wrote {path}: the outcomes on {names}"]
    worse = [f"{len(comparison.bad)} on {comparison.name}" for comparison in report.places if comparison.bad]
    if worse:
        parts.append(f"a comparison with it accepts what is worse: {', '.join(worse)}")
    if new.steady:
        parts.append(f"still called flaky, until they end alike in {STEADY_RUNS} runs: {_named(new.steady)}")
    if new.forgotten:
        parts.append(f"flaky no more, after {STEADY_RUNS} runs that ended alike: {_named(new.forgotten)}")
    return "; ".join(parts)


def _named(tests: Sequence[str]) -> str:
    return ", ".join(tests[:_NAMED]) + (f" and {len(tests) - _NAMED} more" if len(tests) > _NAMED else "")
