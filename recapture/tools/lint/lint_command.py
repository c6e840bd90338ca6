"""``recapture lint``: warns about lines that are recorded as silently wrong, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from recapture.base.errors import UsageError
from recapture.base.option_fields import divided
from recapture.base.text import plural
from recapture.command.options import PathParameter
from recapture.command.output import echo, echo_error, print_json

if TYPE_CHECKING:
    from recapture.tools.lint.formats import Format

FOUND = 1
"""Exit status if there is a warning."""

DEFAULT_COMPILERS = ("compile", "export")
"""What is asked about without ``--compiler``."""


@click.command("lint")
@click.argument("places", metavar="FILE|FOLDER…", nargs=-1, required=True, type=PathParameter())
@click.option(
    "--torch",
    "release",
    metavar="RELEASE",
    help="The release of torch, such as 2.14.1, or `any`. [default: the installed one, else the newest recorded]",
)
@click.option(
    "--compiler",
    "compilers",
    multiple=True,
    metavar="NAME[,NAME]",
    help=f"Warn about these compilers. [default: {', '.join(DEFAULT_COMPILERS)}]",
)
@click.option(
    "--also",
    type=click.Choice(["failing", "broken"]),
    multiple=True,
    help="Also warn about what is refused or fails, or about what breaks the graph.",
)
@click.option("--all", "every", is_flag=True, help="Also warn about what is less sure, and often right after all.")
@click.option(
    "--select",
    "selected",
    multiple=True,
    metavar="ID",
    help="Warn about this behaviour only, sure or not; may be given several times.",
)
@click.option(
    "--output-format",
    "output_format",
    type=click.Choice(["text", "github", "json", "sarif"]),
    default="text",
    show_default=True,
    help="How to write the warnings.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --output-format json.")
@click.option("--data", "data_file", type=PathParameter(), help="The data to read instead of the package's.")
@click.option("--exit-zero", is_flag=True, help="Exit with status 0 also if there is a warning.")
def lint_command(
    places: tuple[Path, ...],
    release: str | None,
    compilers: tuple[str, ...],
    also: tuple[str, ...],
    selected: tuple[str, ...],
    output_format: Format,
    data_file: Path | None,
    *,
    every: bool,
    as_json: bool,
    exit_zero: bool,
) -> int:
    """Warn about lines that are recorded as silently wrong, without running them.

    Only code that can run while a graph is captured is looked at: the `forward` of modules, functions of tensors, and
    what they call. Each warning has the id of a behaviour, and with which compilers and on which releases of torch the
    records call it silently wrong. `# noqa: recapture` or `# noqa: ID` on the line turns it off.
    """
    from recapture.data import load
    from recapture.tools.lint import formats, ranges
    from recapture.tools.lint.warnings import Linter, installed_torch, python_files

    data = load(data_file)
    text = release or installed_torch() or data.releases[-1]
    chosen = None if text == "any" else ranges.chosen_release(data, text)
    outcomes = ("silently wrong", *also)
    linter = Linter(
        data,
        ranges.chosen_compilers(data, divided(compilers) or DEFAULT_COMPILERS),
        outcomes,  # type: ignore[arg-type]
        chosen,
        every=every,
        selected=ranges.chosen_behaviours(selected),
    )
    files = python_files(places)
    warnings = []
    for path in files:
        try:
            warnings += linter.lint(path)
        except UsageError as error:
            if path in places:
                raise
            echo_error(f"left out: {error}")  # one file of a folder, such as a template or old Python
    if as_json or output_format == "json":
        print_json(formats.json_document(warnings))
    elif output_format == "sarif":
        print_json(formats.sarif_document(warnings))
    else:
        write = formats.github_lines if output_format == "github" else formats.text_lines
        for line in write(warnings):
            echo(line)
        on = "any release" if chosen is None else ranges.in_words(chosen, text)
        echo_error(f"{plural(len(files), 'file')}, {on}: {plural(len(warnings), 'warning')}")
    return FOUND if warnings and not exit_zero else 0
