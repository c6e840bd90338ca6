"""``recapture run``: runs cases with compilers and records every cell."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from recapture.base.errors import UsageError
from recapture.base.option_fields import WEEK, option
from recapture.base.text import plural
from recapture.base.time_limit import ending_after
from recapture.command.command_table import of_tools
from recapture.command.in_images import ImageOptions, run_in_images
from recapture.command.options import OutputFile, PathParameter, json_flag, require_torch, takes
from recapture.command.output import echo, echo_error, print_json, write_file
from recapture.records.verdicts import FAIL_ON, Verdict
from recapture.run.plan import RunOptions, check_compilers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from recapture.records.record import Record
    from recapture.run.runner import OpenRun, RunSummary


FAILED = 1
"""Exit status if ``--fail-on`` found something."""

ADDITIONS: dict[str, type[Any]] = {tool.__name__: tool for tool in of_tools("additions to run")}
"""Dataclasses with the options that tools add, by name; `applied` says what they change."""


@dataclass(frozen=True, kw_only=True)
class TimeOptions:
    """How long the whole run may take."""

    minutes: float | None = option(
        "--minutes",
        default=None,
        between=(0.01, WEEK / 60),
        metavar="M",
        help="End after M minutes, with exit status 124; --resume continues. With several images, M minutes for each.",
    )

    @property
    def seconds(self) -> float | None:
        """The limit in seconds; None if there is none."""
        return None if self.minutes is None else 60 * self.minutes


@click.command("run")
@takes(options=RunOptions, **ADDITIONS, time=TimeOptions, where=ImageOptions)
@click.option(
    "--publish",
    type=PathParameter(),
    metavar="FOLDER",
    help="With --shard: put the results into this folder by one rename, when every cell of the shard is recorded.",
)
@click.option(
    "--fail-on",
    type=click.Choice(list(FAIL_ON)),
    multiple=True,
    help="Exit with status 1 if a cell is silently_wrong, is failing, or breaks the graph; any: on any of these. Only "
    "selected cells count. May be given several times.",
)
@click.option("--junit", "junit_file", type=OutputFile(), help="Write JUnit's XML to this file: a test for each cell.")
@click.option("--quiet", is_flag=True, help="Print only warnings and errors.")
@click.option("--start-times", is_flag=True, help="Show how long each stage took before the first cell.")
@json_flag
@click.pass_context
def run_command(
    context: click.Context,
    /,
    options: RunOptions,
    time: TimeOptions,
    where: ImageOptions,
    publish: Path | None,
    fail_on: tuple[str, ...],
    junit_file: Path | None,
    *,
    quiet: bool,
    start_times: bool,
    as_json: bool,
    **added: Any,
) -> int:
    """Run cases with compilers and record a verdict for every cell.

    SUITE is a suite's name, FILE a file or folder of cases, CELL is SUITE::CASE or SUITE::CASE::COMPILER;
    without arguments, every suite runs. --json prints one document, with several images one for each.

    The exit status is 0 whatever the verdicts are, unless --fail-on names one.
    """
    from recapture.base.start_times import described
    from recapture.cases.collection import shipped_groups, shipped_suites
    from recapture.cases.compilers import builtin_compilers
    from recapture.report.conformance_report import write_report
    from recapture.report.run_progress import RunProgress
    from recapture.report.terminal_writer import SafeConsole
    from recapture.run.runner import run_cells

    options = dataclasses.replace(options, words=_words(context.params))
    shipped = {*shipped_suites(), *(suite for group in shipped_groups().values() for suite in group)}
    if set(options.selection.suites) <= shipped:  # they declare no compilers: refuse a misspelt one at once
        check_compilers(options, builtin_compilers())
    if junit_file is not None and (publish is not None or len(where.images) > 1 or where.via == "docker"):
        raise UsageError("--junit is for a run on this machine, in one image and without --publish")
    if publish is not None:
        return _run_and_publish(context, options, where, publish)
    options.check_durations()  # here, so that it is refused before anything is installed or started
    if where.images:
        return run_in_images(context, where, results=options.results, device=options.device, resume=options.resume)
    require_torch()
    afterwards: list[Callable[[OpenRun], None]] = []
    for tool in added.values():
        options, work = tool.applied(options)
        afterwards += work
    with ending_after(time.seconds), RunProgress(SafeConsole(stderr=True, quiet=quiet)) as progress:
        summary = run_cells(options, progress, echo_error, afterwards=afterwards)
    if start_times:
        echo(f"recapture: {described()}", err=True)
    write_report(summary.directory)
    wrong = _not_run(summary)
    if as_json:
        _print_json(summary)
    elif not quiet:
        _print_text(options, summary)
    if junit_file is not None:
        write_file(junit_file, _junit(summary).decode())
    for line in wrong:
        echo_error(line)
    failed = _failed(summary.selected, fail_on)
    for line in failed:
        echo_error(line)
    if wrong:
        return UsageError.exit_status
    return FAILED if failed else 0


def _not_run(summary: RunSummary) -> list[str]:
    """Return a line for each suite and case that was not run, or that compares nothing."""
    lines = [f"suite {suite.name!r} was not run: {suite.error}" for suite in summary.failed_suites if not suite.lacking]
    lines += [f"a case was not run: {line}" for line in summary.refused_cases]
    return lines + _without_reference(summary.selected)


def _failed(records: list[Record], fail_on: tuple[str, ...]) -> list[str]:
    """Return a line for each word of ``--fail-on`` that is true of a record."""
    counts = {word: sum(row.verdict in FAIL_ON[word] for row in records) for word in fail_on}
    return [f"--fail-on {word}: {plural(number, 'cell')}" for word, number in counts.items() if number]


def _junit(summary: RunSummary) -> bytes:
    """Return the selected cells as JUnit's XML: a test for each, in a class for each case."""
    from recapture.report.junit import JUnitCase, junit
    from recapture.report.summary import explain

    cases = []
    for row in summary.selected:
        message = f"{row.verdict.value}: {explain(row)}"
        details = tuple(
            f"{difference.input}: {difference.where} ({difference.kind}): {difference.detail}"
            for difference in row.differences
        )
        cases.append(
            JUnitCase(row.case, row.compiler, summary.seconds.get(row.key, 0.0), row.verdict, message, details)
        )
    environment = summary.environment
    properties = {"torch": environment.torch.version, "device": environment.device, "image": environment.image}
    return junit(cases, properties, f"results: {summary.directory}")


def _run_and_publish(context: click.Context, options: RunOptions, where: ImageOptions, folder: Path) -> int:
    """Run this command again with the folder of an attempt as its --results, and publish what it records.

    So a shard in an environment or a container is published by the process outside of it.
    """
    from recapture.run.attempts import run_and_publish, shard_name

    if options.shard is None:
        raise UsageError("--publish is for one part of a run: name it with --shard")
    if len(where.images) > 1:
        raise UsageError("--publish is for a shard of one image: name one with --image")
    for name in ("results", "resume"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"--{name} does not go with --publish: every attempt has a new folder for its results")

    def run(results: Path) -> int:
        context.params |= {"results": results, "publish": None}
        context.set_parameter_source("results", ParameterSource.COMMANDLINE)  # passed on to an image's own command
        context.set_parameter_source("publish", ParameterSource.DEFAULT)
        status: int = context.command.callback(**context.params)  # type: ignore[misc]
        return status

    image = where.images[0].name if where.images else _this_image()
    name = shard_name(image, options.device, options.shard)
    selection = [" ".join(options.words)] if options.words else []
    return run_and_publish(folder, name, options.shard, selection, run, echo_error)


def _this_image() -> str:
    """Return the name of the image that has the packages of this Python, without importing torch."""
    import platform

    from recapture.machine.describe import installed_packages
    from recapture.machine.image_match import image_for, pinned_images

    require_torch()
    packages = installed_packages()
    if "torch" not in packages:  # built in place, without metadata
        return "bare"
    version = packages["torch"].partition("+")[0]
    match = image_for(packages, platform.python_version(), pinned_images(torch=version), cuda=None)
    return f"bare-torch{version}" if match.lock_hash is None else match.image


def _print_json(summary: RunSummary) -> None:
    """Print where the results are, and the records of what was selected."""
    counts = Counter(str(row.verdict) for row in summary.selected)
    print_json(
        {
            "results": str(summary.directory),
            "image": summary.environment.image,
            "torch": summary.environment.torch.version,
            "verdicts": dict(counts.most_common()),
            "records": summary.selected,
        }
    )


def _print_text(options: RunOptions, summary: RunSummary) -> None:
    """Print the table of what was selected, and where the results are."""
    import msgspec

    from recapture.report.terminal_summary import print_summary
    from recapture.report.terminal_writer import SafeConsole

    console = SafeConsole()
    if options.whole:
        print_summary(console, summary.records, summary.environment, summary.directory)
    else:
        number = len(summary.selected)
        environment = msgspec.structs.replace(summary.environment, planned=number, recorded=number)
        print_summary(console, summary.selected, environment, summary.directory)
    console.print(f"results: {summary.directory}", soft_wrap=True, highlight=False, markup=False)
    if not options.whole and len(summary.records) > len(summary.selected):
        hint = f"{len(summary.records)} records in all: recapture report {summary.directory} shows them"
        console.print(hint, soft_wrap=True, highlight=False, markup=False)


def _without_reference(records: list[Record]) -> list[str]:
    """Return a line for each case whose inputs or module cannot be made, so that its cells compare nothing."""
    lines: dict[str, str] = {}
    for row in records:
        if row.verdict is Verdict.ERROR and row.phase == "reference" and row.error is not None:
            message = next(iter(row.error.message.splitlines()), "")
            lines.setdefault(row.case, f"case {row.case!r} cannot run in eager: {row.error.type}: {message}")
    return list(lines.values())


def _words(typed: dict[str, Any]) -> tuple[str, ...]:
    """Return the selection as typed, for the record of the run."""
    keyword = ("-k", typed["keyword"]) if typed["keyword"] else ()
    return (*typed["selection"], *keyword, *(part for name in typed["compilers"] for part in ("--compiler", name)))
