"""``recapture check``: compares compilers with eager on a user's own function or model."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recapture.base.errors import UsageError
from recapture.base.text import plural
from recapture.command.command_table import of_tools
from recapture.command.options import PathParameter, require_torch, takes
from recapture.command.output import echo, echo_error, print_json, write_file
from recapture.tools.check.across_command import AcrossOptions, across_only, check_across
from recapture.tools.check.arguments import CheckOptions, refuse_unknown_name, request_of
from recapture.tools.check.request import CheckRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from recapture.tools.check.answers import CheckReport, CheckRow
    from recapture.tools.check.case_text import Prepared

FAILED = 1
"""Exit status if ``--fail-on`` found something."""


@click.command("check")
@click.argument("target", metavar="TARGET")
@takes(options=CheckOptions, across=AcrossOptions)
@click.option("--time", "timed", is_flag=True, help="Also measure the speed of the compilers that are right.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.option("--html", "html_file", type=PathParameter(), help="Write a self-contained page to this file.")
@click.option("--junit", "junit_file", type=PathParameter(), help="Write JUnit's XML to this file.")
@click.option("--github", is_flag=True, help="Print GitHub's annotations, and add to the summary of its job.")
@click.option("--save", "saved", type=PathParameter(), help="Write the generated case to this file, to keep and edit.")
@click.option(
    "--fail-on",
    type=click.Choice(["silently_wrong", "failing", "breaks", "any", "accepts_refused", "regression"]),
    multiple=True,
    help="Exit with status 1 on: a silently wrong compiler, a failing one, a graph break, or any of these; "
    "accepts_refused: one that returns a value where eager raises. With --across also regression: a compiler that is "
    "worse on the newest release than on the oldest.",
)
@click.option("-v", "--verbose", is_flag=True, help="Also print every difference, and what eager refuses.")
@click.pass_context
def check_command(
    context: click.Context,
    target: str,
    options: CheckOptions,
    across: AcrossOptions,
    *,
    timed: bool,
    as_json: bool,
    html_file: Path | None,
    junit_file: Path | None,
    github: bool,
    saved: Path | None,
    fail_on: tuple[str, ...],
    verbose: bool,
) -> int:
    """Compare every compiler with eager on your own function or model.

    TARGET is my_model.py:Net, package.module:factory or torchvision:resnet18: a function, an nn.Module, or a function
    without arguments that makes one. Held-out inputs are derived from the example: other batch sizes, values, layouts
    and Python values. What eager refuses is dropped.
    """
    from recapture.tools.check.answers import failed
    from recapture.tools.check.session import compilers_of_check

    request = request_of(target, options)
    if across.images:
        compilers_of_check(options.compilers, request)  # an unknown one is refused before anything is installed
        across_only({"--time": timed, "--junit": junit_file, "--save": saved})
        return check_across(
            context, request, across, as_json=as_json, html_file=html_file, github=github, fail_on=fail_on
        )
    if "regression" in fail_on:
        raise UsageError("--fail-on regression compares releases: name them with --across")
    refuse_unknown_name(request)
    require_torch()
    report = _report(request, options, timed=timed, quiet=as_json, saved=saved)
    if as_json:
        import msgspec

        facts = {"sentence": report.sentence, **msgspec.to_builtins(report)}
        print_json(facts)
    else:
        from recapture.tools.check.check_report import check_details, closing_lines

        echo("\n" + "\n".join(closing_lines(report)))
        echo(check_details(report, verbose=verbose), nl=False)
    if html_file is not None:
        from recapture.tools.check.check_report import check_page

        write_file(html_file, check_page(report))
    if junit_file is not None:
        from recapture.tools.check.ci_report import check_junit

        write_file(junit_file, check_junit(report).decode())
    if github:
        _tell_github(report)
    return FAILED if failed(report, fail_on) else 0


def _tell_github(report: CheckReport) -> None:
    """Print annotations to standard error, which GitHub reads too, and append the report to the job's summary."""
    from recapture.tools.check.check_report import check_markdown
    from recapture.tools.check.ci_report import check_annotations

    for line in check_annotations(report):
        echo(line, err=True)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        try:
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(check_markdown(report))
        except OSError as error:
            raise UsageError(f"cannot write {summary}: {error.strerror}") from None


def _report(
    request: CheckRequest, options: CheckOptions, *, timed: bool, quiet: bool, saved: Path | None
) -> CheckReport:
    from recapture.tools.check.session import CheckEvents, compilers_of_check, run_check

    stream = _Stream(compilers_of_check(options.compilers, request), quiet=quiet)
    stream.begin(request)
    save: Callable[[str], object] = (lambda text: write_file(saved, text)) if saved is not None else (lambda _: None)
    events = CheckEvents(
        prepared=stream.prepared,
        finished=stream.finished,
        warn=echo_error,
        case=save,
        speeds=_speeds(options) if timed else None,
    )
    report = run_check(request, options, events).report
    if timed and not quiet:
        for row in report.rows:
            if row.speed:
                echo(f"{row.compiler:18} {row.speed}")
    return report


def _speeds(options: CheckOptions) -> Callable[[Path, tuple[str, ...]], Any]:
    tools = of_tools("speed of a case")
    if not tools:
        raise UsageError("--time needs the tool that measures speed, which is not installed")
    return lambda path, compilers: tools[0](path, compilers, options.device, lambda text: echo(text, err=True))


class _Stream:
    """Prints what is known as soon as it is known: verdicts to standard output, the rest to standard error."""

    def __init__(self, compilers: tuple[str, ...], *, quiet: bool) -> None:
        from recapture.cases.compilers import builtin_compilers

        known = builtin_compilers()
        self.quiet = quiet
        self.left = dict.fromkeys(compilers)
        self.slow = [name for name in compilers if known[name].generates_code]
        self.began = time.monotonic()

    def begin(self, request: CheckRequest) -> None:
        """Say how much will be called, before anything is."""
        if request.derive:
            echo_error(
                f"{plural(len(self.left), 'compiler')}; each is called with the example and at most "
                f"{plural(request.most_inputs, 'derived input')}"
            )

    def prepared(self, prepared: Prepared) -> None:
        """Say what is about to run, and how long its calls of eager take."""
        number = len(prepared.inputs) + len(prepared.other_ranks)
        refused = f", {len(prepared.refused)} refused by eager" if prepared.refused else ""
        echo_error(f"{plural(number, 'derived input')}{refused}; eager takes {prepared.seconds:.3g} s a call")

    def finished(self, row: CheckRow) -> None:
        """Print a compiler's line and, when only slow ones are left, what to expect."""
        from recapture.tools.check.check_report import check_line

        self.left.pop(row.compiler, None)
        if not self.quiet:
            echo(check_line(row))
            sys.stdout.flush()
        if self.slow and self.left.keys() == set(self.slow):
            seconds = time.monotonic() - self.began
            names = ", ".join(self.slow)
            echo_error(f"{seconds:.0f} s so far; {names} compile C++ or Triton: 10 s to minutes each")
            self.slow = []
