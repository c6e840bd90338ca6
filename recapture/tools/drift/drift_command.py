"""``recapture drift``: whether two releases, devices, compilers or machines give the same numbers, and where not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.option_fields import WEEK, known_device, option
from recapture.cases.compilers import EAGER, builtin_compilers
from recapture.cases.target import (
    DEFAULT_SHAPE,
    ExampleOptions,
    parse_inputs_place,
    parse_target,
    refuse_unknown_name,
)
from recapture.command.options import PathParameter, console, require_torch, takes
from recapture.command.output import echo, echo_error, print_json, write_file
from recapture.machine.pins import Image, find_releases

if TYPE_CHECKING:
    from recapture.tools.drift.sides import SideOf

FOUND = 1
"""Exit status if ``--fail-on`` found something."""

FAIL_ON = {"changed": ("changed", "form", "refuses"), "rounding": ("changed", "form", "refuses", "rounding")}
"""What each value of ``--fail-on`` looks for."""


@dataclass(frozen=True, kw_only=True)
class SideOptions:
    """In what the two sides differ."""

    lists: tuple[tuple[Image, ...], ...] = option(
        "--across",
        default=(),
        metavar="RELEASE,RELEASE",
        parse=find_releases,
        help="Two releases of torch, such as 2.6.0,2.11.0, each in its own environment.",
    )
    requirements: tuple[Path, ...] = option(
        "--with",
        default=(),
        metavar="FILE",
        parse=Path,
        help="A requirements file: one for both sides of --across, or two, one for each side of one release.",
    )
    compilers: tuple[str, ...] = option(
        "--compiler", default=(), metavar="NAME", help="The compiler of both sides, or of each. [default: eager]"
    )
    devices: str = option(
        "--device", default="cpu", metavar="NAME[,NAME]", help="The device of both sides, or of each."
    )
    save: Path | None = option(
        "--save", default=None, metavar="FOLDER", parse=Path, help="Save this side, to compare another machine with it."
    )
    against: Path | None = option(
        "--against", default=None, metavar="FOLDER", parse=Path, help="Compare with a side that was saved."
    )
    keep: int | None = option(
        "--keep", default=None, between=(1, None), help="The most environments on disk, 5 to 7 GB each."
    )


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How both sides train."""

    train: int = option("--train", default=0, between=(0, 100_000), help="Compare this number of training steps.")
    optimizer: str = option("--optimizer", default="sgd", metavar="sgd|adamw", help="The optimizer of --train.")
    rate: float = option("--rate", default=0.01, between=(0.0, 1e6), help="The learning rate of --train.")


@click.command("drift")
@click.argument("target", metavar="TARGET")
@takes(inputs=ExampleOptions, sides=SideOptions, training=TrainingOptions)
@click.option(
    "--why", is_flag=True, help="Also try which settings make the difference: oneDNN, MKL, vector kernels, threads."
)
@click.option("--timeout", type=click.FloatRange(1, WEEK), default=600.0, show_default=True, help="Seconds per side.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print GitHub Markdown instead of text.")
@click.option(
    "--html", "html_file", type=PathParameter(), help="Write a page with a picture of the digits to this file."
)
@click.option(
    "--fail-on",
    type=click.Choice(list(FAIL_ON)),
    help="Exit with status 1 on what rounding does not explain (changed), or on any other bit (rounding).",
)
@click.pass_context
def drift_command(
    context: click.Context,
    target: str,
    inputs: ExampleOptions,
    sides: SideOptions,
    training: TrainingOptions,
    *,
    why: bool,
    timeout: float,
    as_json: bool,
    as_markdown: bool,
    html_file: Path | None,
    fail_on: str | None,
) -> None:
    """Say whether two sides of TARGET give the same numbers, where they first differ, and because of what.

    TARGET is my_model.py:Net, package.module:factory or torchvision:resnet18. The sides are two releases (--across),
    two sets of packages, two devices, two compilers, or this machine and one that saved its side before. Both begin
    with the same weights and inputs, as bytes.
    """
    place, name = parse_target(target)
    refuse_unknown_name(place, name)
    if training.optimizer not in ("sgd", "adamw"):
        raise UsageError(f"--optimizer {training.optimizer!r}: it is sgd or adamw")
    old, new = two_sides(sides)
    if any(side.image is None for side in (old, new)):
        require_torch()
    from recapture.tools.drift.answer import Drift
    from recapture.tools.drift.report import print_report, saved_text, to_markdown, to_page
    from recapture.tools.drift.sides import SideRuns

    drift = Drift(
        target=target if not place.endswith(".py") else f"{Path(place).name}:{name}",
        own_code=own_code_of(place, name, inputs),
        old=old,
        new=new,
        why=why,
        train=training.train,
        optimizer=training.optimizer,
        rate=training.rate,
    )
    with SideRuns(timeout=timeout, keep=sides.keep, show=echo_error) as runs:
        if sides.save is not None:
            echo(saved_text(drift.save(runs, sides.save), sides.save))
            return
        report = drift.compare(runs)
    if html_file is not None:
        write_file(html_file, to_page(report))
    if as_json:
        print_json(report.to_dict())
    elif as_markdown:
        echo(to_markdown(report), nl=False)
    else:
        print_report(console(), report)
    if fail_on is not None and report.verdict in FAIL_ON[fail_on]:
        context.exit(FOUND)


def own_code_of(place: str, name: str, inputs: ExampleOptions) -> dict[str, Any]:
    """Return the arguments of `recapture.cases.own_code.OwnCode` for what the command line says."""
    if inputs.inputs and inputs.inputs_from is not None:
        raise UsageError("--input and --inputs both give the inputs: use one of them")
    arguments = inputs.inputs
    if not arguments and inputs.inputs_from is None and place == "torchvision":
        arguments = ((DEFAULT_SHAPE, "float32"),)
    fields: dict[str, Any] = {"place": place, "name": name, "inputs": arguments, "folder": str(Path.cwd())}
    if inputs.inputs_from is not None:
        fields["inputs_from"] = parse_inputs_place(inputs.inputs_from)
    return fields


def two_sides(options: SideOptions) -> tuple[SideOf, SideOf]:
    """Return the two sides that the options name. Raises UsageError unless exactly one thing differs between them."""
    from recapture.images.requirements import Requirements
    from recapture.tools.drift.sides import SideOf

    images = list({image.name: image for images in options.lists for image in images}.values())
    devices = [known_device(name) for name in options.devices.split(",")]
    compilers = list(options.compilers)
    for name in compilers:
        if name not in builtin_compilers():
            raise UsageError(f"unknown compiler {name!r}{did_you_mean(name, builtin_compilers())}")
    if len(images) > 2 or len(devices) > 2 or len(compilers) > 2 or len(options.requirements) > 2:
        raise UsageError("drift compares two sides: name two releases, devices, compilers or files of packages at most")
    requirements = [Requirements.read([path]) for path in options.requirements]
    stored = options.save is not None or options.against is not None
    if options.save is not None and options.against is not None:
        raise UsageError("--save and --against: use one of them")
    if requirements and not images:
        raise UsageError("--with needs a release to install the packages for: name it with --across")
    counts = {
        "--across": len(images),
        "--device": len(devices),
        "--compiler": len(compilers),
        "--with": len(requirements),
    }
    differing = [name for name, number in counts.items() if number == 2]
    if stored and differing:
        raise UsageError(f"--save and --against are for one side: {differing[0]} names two")
    if not stored and not differing:
        raise UsageError(
            "name what the two sides differ in: --across 2.6.0,2.11.0, two of --compiler, --device cpu,cuda, two files "
            "with --with, or --save and --against"
        )

    def side(number: int) -> SideOf:
        def pick(values: list[Any], default: Any) -> Any:
            return values[min(number, len(values) - 1)] if values else default

        image, device = pick(images, None), pick(devices, "cpu")
        compiler, packages = pick(compilers, EAGER), pick(requirements, Requirements(()))
        words = {
            "--across": f"torch {image.torch.partition('+')[0]}" if image is not None else "",
            "--device": device,
            "--compiler": compiler,
            "--with": packages.files[0].name if packages.files else "",
        }
        label = " ".join(words[name] for name in differing) or "this side"
        return SideOf(name=label, image=image, device=device, compiler=compiler, requirements=packages)

    if options.against is not None:
        import dataclasses

        return dataclasses.replace(side(0), name=str(options.against), stored=options.against), side(0)
    return side(0), side(1)
