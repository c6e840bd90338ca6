"""``recapture check``: compares compilers with eager on a user's own function or model, on one release or several."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from recapture.base.errors import UsageError
from recapture.base.option_fields import option
from recapture.base.text import plural
from recapture.cases.target import refuse_unknown_name
from recapture.command.command_table import of_tools
from recapture.command.in_images import typed_words
from recapture.command.options import OutputFile, require_torch, takes
from recapture.command.output import echo, echo_error, print_json, write_file
from recapture.machine.pins import Image, find_releases
from recapture.tools.check.request import CheckOptions, CheckRequest, request_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from recapture.tools.check.across import CheckRuns
    from recapture.tools.check.answers import CheckReport, CheckRow
    from recapture.tools.check.case_text import Prepared

FAILED = 1
"""Exit status if ``--fail-on`` found something."""

NOT_PASSED = ("lists", "requirements", "via", "keep", "again", "as_json", "html_file", "github", "fail_on")
"""Parameters of the command that are not passed on to the checks on the releases."""


@dataclass(frozen=True, kw_only=True)
class AcrossOptions:
    """The releases that a check runs on, and how; without releases it runs in this Python."""

    lists: tuple[tuple[Image, ...], ...] = option(
        "--across",
        default=(),
        metavar="RELEASE[,RELEASE…]|all",
        parse=find_releases,
        help="Check on these releases of torch, such as 2.6.0,2.11.0, each in its own environment.",
    )
    requirements: tuple[Path, ...] = option(
        "--with",
        default=(),
        metavar="FILE",
        parse=Path,
        help="With --across: a requirements file of what the code imports; may be given several times.",
    )
    via: Literal["venv", "docker"] | None = option(
        "--via", default=None, help="With --across: environments made with uv, or containers. [default: venv]"
    )
    keep: int | None = option(
        "--keep", default=None, between=(1, None), help="With --across: the most environments on disk, 5 to 7 GB each."
    )
    again: bool = option("--again", default=False, help="With --across: run again what earlier calls have answered.")

    @property
    def images(self) -> tuple[Image, ...]:
        """The images in the order given, each once. Raises UsageError if another option needs releases."""
        if not self.lists and (self.requirements or self.via is not None or self.keep is not None or self.again):
            raise UsageError(
                "--with, --via, --keep and --again say how to check on other releases: name them with --across"
            )
        if self.keep is not None and self.via == "docker":
            raise UsageError("--keep is for --via venv")
        return tuple({image.name: image for images in self.lists for image in images}.values())


@click.command("check")
@click.argument("target", metavar="TARGET")
@takes(options=CheckOptions, across=AcrossOptions)
@click.option("--time", "timed", is_flag=True, help="Also measure the speed of the compilers that are right.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.option("--html", "html_file", type=OutputFile(), help="Write a self-contained page to this file.")
@click.option("--junit", "junit_file", type=OutputFile(), help="Write JUnit's XML to this file.")
@click.option("--github", is_flag=True, help="Print GitHub's annotations, and add to the summary of its job.")
@click.option(
    "--save", "saved", type=OutputFile(program=True), help="Write the generated case to this file, to keep and edit."
)
@click.option(
    "--fail-on",
    type=click.Choice(["silently_wrong", "failing", "breaks", "any", "accepts_refused", "regression"]),
    multiple=True,
    help="Exit with status 1 if a compiler is silently_wrong, is failing, or breaks the graph; any: on any of these, "
    "or if eager disagrees with itself; accepts_refused: if a compiler returns a value where eager raises; regression, "
    "with --across: if a compiler is worse on the newest release than on the oldest. May be given several times.",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Also print every difference and graph break, and the inputs that eager refuses or cannot afford.",
)
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

    TARGET is my_model.py:Net, package.module:factory or torchvision:resnet18: a function, an nn.Module, or a class or
    function without arguments that makes one. Held-out inputs are derived from the example: other batch sizes, values,
    layouts and Python values. Inputs that eager refuses are counted apart.
    """
    from recapture.tools.check.answers import failed
    from recapture.tools.check.session import compilers_of_check

    request = request_of(target, options)
    if across.images:
        compilers_of_check(options.compilers, request)  # an unknown one is refused before anything is installed
        _refuse_across({"--time": timed, "--junit": junit_file, "--save": saved})
        return _check_across(
            context, request, across, as_json=as_json, html_file=html_file, github=github, fail_on=fail_on
        )
    if "regression" in fail_on:
        raise UsageError("--fail-on regression compares releases: name them with --across")
    refuse_unknown_name(request.place, request.name)
    require_torch()
    report = _report(request, options, timed=timed, quiet=as_json, saved=saved)
    if as_json:
        import msgspec

        facts = {"sentence": report.sentence, **msgspec.to_builtins(report)}
        print_json(facts)
    else:
        from recapture.tools.check.report import check_details, closing_lines

        echo("\n" + "\n".join(closing_lines(report)))
        echo(check_details(report, verbose=verbose), nl=False)
    if html_file is not None:
        from recapture.tools.check.report import check_page

        write_file(html_file, check_page(report))
    if junit_file is not None:
        from recapture.tools.check.report import check_junit

        write_file(junit_file, check_junit(report).decode())
    if github:
        from recapture.tools.check.report import check_annotations, check_markdown

        _tell_github(check_annotations(report), check_markdown(report))
    return FAILED if failed(report, fail_on) else 0


def _tell_github(annotations: list[str], markdown: str) -> None:
    """Print annotations to standard error, which GitHub reads too, and append a report to the job's summary."""
    for line in annotations:
        echo(line, err=True)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        try:
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(markdown)
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
                f"{plural(len(self.left), 'compiler')}, each called with the example and at most "
                f"{plural(request.most_inputs, 'other input')}"
            )

    def prepared(self, prepared: Prepared) -> None:
        """Say what is about to run, and how long its calls of eager take."""
        number = len(prepared.inputs) + len(prepared.other_ranks)
        refused = f" and refuses {plural(len(prepared.refused), 'other')}" if prepared.refused else ""
        echo_error(f"{plural(number, 'derived input')}; eager takes {prepared.seconds:.3g} s a call{refused}")

    def finished(self, row: CheckRow) -> None:
        """Print a compiler's line and, when only slow ones are left, what to expect."""
        from recapture.tools.check.report import check_line

        self.left.pop(row.compiler, None)
        if not self.quiet:
            echo(check_line(row))
            sys.stdout.flush()  # a pipe would get all lines at the end
        if self.slow and self.left.keys() == set(self.slow):
            seconds = time.monotonic() - self.began
            names = ", ".join(self.slow)
            echo_error(f"{seconds:.0f} s so far; {names} compile C++ or Triton: 10 s to minutes each")
            self.slow = []


# --- on several releases ---------------------------------------------------------------------------------------------


def _refuse_across(options: dict[str, object]) -> None:
    """Raise UsageError for options of a check on one release alone; `options` has their values by name."""
    names = [name for name, value in options.items() if value]
    if names:
        raise UsageError(f"{names[0]} is for a check on one release: leave it out, or leave out --across")


def _check_across(
    context: click.Context,
    request: CheckRequest,
    options: AcrossOptions,
    *,
    as_json: bool,
    html_file: Path | None,
    github: bool,
    fail_on: tuple[str, ...],
) -> int:
    """Check on every release, print the report, and return the exit status.

    The status is 1 if ``--fail-on`` found something, else the highest status of a release that was not checked.
    """
    from recapture.tools.check.across import failures
    from recapture.tools.check.report import across_annotations, across_markdown, across_page, across_text

    report = _across_runs(context, request, options).run(options.images)
    lines = failures(report, fail_on)
    if as_json:
        print_json(report.to_dict())
    else:
        echo(across_text(report))
    if html_file is not None:
        write_file(html_file, across_page(report))
    for line in lines:
        echo_error(f"--fail-on: {line}")
    if github:
        _tell_github(across_annotations(report, lines), across_markdown(report))
    return FAILED if lines else max(answer.status for answer in report.releases)


def _across_runs(context: click.Context, request: CheckRequest, options: AcrossOptions) -> CheckRuns:
    from recapture.images.requirements import Requirements
    from recapture.tools.check.across import CheckRuns

    return CheckRuns(
        target=request.title,
        words=typed_words(context, *NOT_PASSED),
        places=request.places,
        device=request.device,
        via=options.via or "venv",
        requirements=Requirements.read(options.requirements),
        keep=options.keep,
        again=options.again,
        show=echo_error,
    )
