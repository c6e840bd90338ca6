"""``recapture check --across``: the same check in the environments of other releases of torch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from recapture.base.errors import UsageError
from recapture.base.option_fields import option
from recapture.command.in_images import typed_words
from recapture.command.output import echo, echo_error, print_json
from recapture.machine.pins import Image, find_releases

if TYPE_CHECKING:
    import click

    from recapture.tools.check.across import CheckRuns
    from recapture.tools.check.across_answers import AcrossReport
    from recapture.tools.check.request import CheckRequest

NOT_PASSED = ("lists", "requirements", "via", "keep", "again", "as_json", "html_file", "github", "fail_on")
"""Parameters of the command that are not passed on to the checks on the releases."""

FAILED = 1
"""Exit status if ``--fail-on`` found something."""


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


def across_only(given: dict[str, object]) -> None:
    """Raise UsageError for options that say what one check does besides its report: `given` has them by name."""
    names = [name for name, value in given.items() if value]
    if names:
        raise UsageError(f"{names[0]} is for a check on one release: leave it out, or leave out --across")


def check_across(
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
    from recapture.tools.check.across_answers import failures

    report = _runs(context, request, options).run(options.images)
    lines = failures(report, fail_on)
    _print(report, lines, as_json=as_json, html_file=html_file, github=github)
    return FAILED if lines else max(one.status for one in report.releases)


def _runs(context: click.Context, request: CheckRequest, options: AcrossOptions) -> CheckRuns:
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


def _print(report: AcrossReport, found: list[str], *, as_json: bool, html_file: Path | None, github: bool) -> None:

    from recapture.base.files import write_output
    from recapture.base.text import printable
    from recapture.tools.check.across_report import across_annotations, across_markdown, across_page, across_text

    if as_json:
        print_json(report.to_dict())
    else:
        echo(across_text(report))
    try:
        if html_file is not None:
            write_output(html_file, printable(across_page(report)).encode())
        if github and (summary := os.environ.get("GITHUB_STEP_SUMMARY")):
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(across_markdown(report))
    except OSError as error:
        raise UsageError(f"cannot write {error.filename}: {error.strerror}") from None
    for line in found:
        echo_error(f"--fail-on: {line}")
    for line in across_annotations(report, found) if github else ():
        echo(line, err=True)
