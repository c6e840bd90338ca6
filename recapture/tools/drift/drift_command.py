"""``recapture drift``: whether two releases, devices, compilers or machines give the same numbers, and where not."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.option_fields import WEEK, known_device, option
from recapture.base.text import plural, shorten
from recapture.cases.compilers import EAGER, builtin_compilers
from recapture.cases.target import (
    DEFAULT_SHAPE,
    ExampleOptions,
    parse_inputs_place,
    parse_target,
    refuse_unknown_name,
)
from recapture.command.options import OutputFile, console, require_torch, takes
from recapture.command.output import echo, echo_error, print_json, write_file
from recapture.machine.pins import Image, find_releases
from recapture.tools.drift.facts import BEYOND_ROUNDING, Training

if TYPE_CHECKING:
    from recapture.images.requirements import Requirements
    from recapture.tools.drift.sides import SideOf

FOUND = 1
"""Exit status if ``--fail-on`` found something."""

FAIL_ON = {"changed": BEYOND_ROUNDING, "rounding": (*BEYOND_ROUNDING, "rounding")}
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
        help="A requirements file: one to add to both sides of --across, or one for each side, which may replace "
        "packages.",
    )
    compilers: tuple[str, ...] = option(
        "--compiler",
        default=(),
        metavar="NAME[,NAME]",
        commas=True,
        help="The compiler of both sides, or of each. [default: eager]",
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
    settings: tuple[str, ...] = option(
        "--setting",
        default=(),
        metavar="NAME=VALUE[,VALUE]",
        help="A setting of both sides, or of each: threads; onednn, cudnn or tf32, on or off; or an environment "
        "variable.",
    )
    keep: int | None = option(
        "--keep", default=None, between=(1, None), help="The most environments on disk, 5 to 7 GB each."
    )


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How both sides train."""

    train: int = option("--train", default=0, between=(0, 100_000), help="Compare this number of training steps.")
    optimizer: str = option(
        "--optimizer",
        default="sgd",
        metavar="sgd|adamw|FILE:FUNCTION",
        help="The optimizer, or a function of the module that returns one, or an optimizer and a scheduler.",
    )
    rate: float = option("--rate", default=0.01, between=(0.0, 1e6), help="The learning rate of sgd and adamw.")
    loss: str | None = option(
        "--loss",
        default=None,
        metavar="FILE:FUNCTION",
        help="A function of the result and the inputs. [default: the mean of the squares of the results]",
    )
    autocast: str = option("--autocast", default="", metavar="bfloat16|float16", help="The dtype of autocast.")
    clip: float | None = option(
        "--clip", default=None, between=(0.0, 1e9), help="Clip the norm of all gradients to this."
    )
    accumulate: int = option(
        "--accumulate", default=1, between=(1, 10_000), help="Divide the batch, and add the gradients of the shares."
    )
    ranks: str = option(
        "--ranks", default="1", metavar="NUMBER[,NUMBER]", help="Train in this number of processes, with gloo."
    )
    parallel: str = option("--parallel", default="ddp", metavar="ddp|fsdp", help="How several processes train.")

    def training(self) -> Training | None:
        """Return what each side does; None without --train. Raises UsageError for values that mean nothing."""
        if self.parallel not in ("ddp", "fsdp"):
            raise UsageError(f"--parallel {shorten(self.parallel, 40)!r}: it is ddp or fsdp")
        if self.autocast not in ("", "bfloat16", "float16"):
            raise UsageError(f"--autocast {shorten(self.autocast, 40)!r}: it is bfloat16 or float16")
        optimizer: str | tuple[str, str] = self.optimizer
        if self.optimizer not in ("sgd", "adamw"):
            if ":" not in self.optimizer:
                raise UsageError(f"--optimizer {shorten(self.optimizer, 40)!r}: it is sgd, adamw or FILE:FUNCTION")
            optimizer = parse_target(self.optimizer)
        if not self.train:
            if self.ranks != "1":
                raise UsageError("--ranks is for --train")
            return None
        return Training(
            steps=self.train,
            optimizer=optimizer,
            rate=self.rate,
            loss=None if self.loss is None else parse_target(self.loss),
            autocast=self.autocast,
            clip=self.clip,
            accumulate=self.accumulate,
        )

    def numbers_of_ranks(self) -> list[int]:
        """Return the number of processes of both sides, or of each. Raises UsageError for no number."""
        words = self.ranks.split(",")
        if len(words) > 2 or not all(re.fullmatch(r"[1-9]\d?", word) for word in words):
            raise UsageError(f"--ranks {shorten(self.ranks, 40)!r}: it is written as 2, or 1,2")
        return list(map(int, words))


@click.command("drift")
@click.argument("target", metavar="TARGET")
@takes(inputs=ExampleOptions, sides=SideOptions, training=TrainingOptions)
@click.option(
    "--why", is_flag=True, help="Also find what makes the difference: packages, oneDNN, MKL, vector kernels, threads."
)
@click.option(
    "--bisect", is_flag=True, help="With --why, make the environments of the releases between the two of --across."
)
@click.option(
    "--timeout",
    type=click.FloatRange(1, WEEK),
    metavar="N",
    default=600.0,
    show_default=True,
    help="Seconds a side may take.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print GitHub Markdown instead of text.")
@click.option("--html", "html_file", type=OutputFile(), help="Write a page with a picture of the digits to this file.")
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
    bisect: bool,
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
    how_to_train = training.training()
    old, new = two_sides(sides, training)
    if why and old.stored is not None:
        raise UsageError("--why runs both sides again, and the one of --against was saved elsewhere")
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
        why=why or bisect,
        make_environments=bisect,
        training=how_to_train,
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
    """Return the arguments of `recapture.cases.own_code.OwnCode` for what the command line says.

    Raises UsageError if it gives the inputs twice.
    """
    if inputs.inputs and inputs.inputs_from is not None:
        raise UsageError("--input and --inputs both give the inputs: use one of them")
    arguments = inputs.inputs
    if not arguments and inputs.inputs_from is None and place == "torchvision":
        arguments = ((DEFAULT_SHAPE, "float32"),)
    fields: dict[str, Any] = {"place": place, "name": name, "inputs": arguments, "folder": str(Path.cwd())}
    if inputs.inputs_from is not None:
        fields["inputs_from"] = parse_inputs_place(inputs.inputs_from)
    return fields


OWN_SETTINGS = {"threads": r"[1-9]\d{0,3}", "onednn": "on|off", "cudnn": "on|off", "tf32": "on|off"}
"""Settings with a name of their own, and what their values look like; all others are environment variables."""

LIBRARIES = {"onednn": "oneDNN", "cudnn": "cuDNN"}
"""Settings that switch a library off, and its name (`recapture.tools.drift.side.SWITCHES`)."""


def parse_setting(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the name of a setting, and its value for both sides, or one for each. Raises UsageError for others."""
    name, equals, value = text.partition("=")
    values = tuple(value.split(","))
    known = name in OWN_SETTINGS or re.fullmatch(r"[A-Z][A-Z0-9_]*", name)
    if not equals or not known or len(values) > 2:
        raise UsageError(
            f"--setting {shorten(text, 60)!r}: it is written as threads=1,4, onednn=on,off or VARIABLE=VALUE[,VALUE]"
        )
    for side in values:
        if name in OWN_SETTINGS and not re.fullmatch(OWN_SETTINGS[name], side):
            raise UsageError(f"--setting {name}: its values are {'numbers' if name == 'threads' else 'on and off'}")
    return name, values


def two_sides(options: SideOptions, training: TrainingOptions) -> tuple[SideOf, SideOf]:
    """Return the two sides that the options name. Raises UsageError unless exactly one thing differs between them."""
    choices = _choices(options, training)
    differing = _differing(options, choices)
    if options.against is not None:
        stored = dataclasses.replace(_side(choices, 0, differing), name=str(options.against), stored=options.against)
        return stored, _side(choices, 0, differing)
    return _side(choices, 0, differing), _side(choices, 1, differing)


@dataclass(frozen=True)
class Choices:
    """What the options name for the sides: of each thing, one value for both, or one for each."""

    images: list[Image]
    devices: list[str]
    compilers: list[str]
    requirements: list[Requirements]
    ranks: list[int]
    settings: list[tuple[str, tuple[str, ...]]]
    parallel: str


def _choices(options: SideOptions, training: TrainingOptions) -> Choices:
    from recapture.images.requirements import Requirements

    for name in options.compilers:
        if name not in builtin_compilers():
            raise UsageError(f"unknown compiler {name!r}{did_you_mean(name, builtin_compilers())}")
    choices = Choices(
        images=list({image.name: image for images in options.lists for image in images}.values()),
        devices=[known_device(name) for name in options.devices.split(",")],
        compilers=list(options.compilers),
        requirements=[Requirements.read([path]) for path in options.requirements],
        ranks=training.numbers_of_ranks(),
        settings=[parse_setting(text) for text in options.settings],
        parallel=training.parallel,
    )
    several = (choices.images, choices.devices, choices.compilers, choices.requirements)
    if any(len(values) > 2 for values in several):
        raise UsageError("drift compares two sides: name two releases, devices, compilers or files of packages at most")
    return choices


def _differing(options: SideOptions, choices: Choices) -> list[str]:
    """Return the options that name two values."""
    stored = options.save is not None or options.against is not None
    if options.save is not None and options.against is not None:
        raise UsageError("--save and --against: use one of them")
    if len(choices.requirements) == 1 and not choices.images:
        raise UsageError("--with needs a release to install the packages for: name it with --across")
    counts = {
        "--across": len(choices.images),
        "--device": len(choices.devices),
        "--compiler": len(choices.compilers),
        "--with": len(choices.requirements),
        "--ranks": len(choices.ranks),
        "--setting": max((len(values) for _, values in choices.settings), default=0),
    }
    differing = [name for name, number in counts.items() if number == 2]
    if stored and differing:
        raise UsageError(f"--save and --against are for one side: {differing[0]} names two")
    if not stored and not differing:
        raise UsageError(
            "name what the two sides differ in: --across 2.6.0,2.11.0, two of --compiler, --device cpu,cuda, two files "
            "with --with, --setting threads=1,4, or --save and --against"
        )
    return differing


def _side(choices: Choices, number: int, differing: list[str]) -> SideOf:
    """Return the first or the second side, named after what differs."""
    from recapture.images.requirements import Requirements
    from recapture.tools.drift.causes import WITHOUT_TF32
    from recapture.tools.drift.sides import Overlay, SideOf

    def pick(values: Sequence[Any], default: Any) -> Any:
        return values[min(number, len(values) - 1)] if values else default

    image, device = pick(choices.images, None), pick(choices.devices, "cpu")
    compiler, packages = pick(choices.compilers, EAGER), pick(choices.requirements, Requirements(()))
    words = {
        "--across": f"torch {image.torch.partition('+')[0]}" if image is not None else "",
        "--device": device,
        "--compiler": compiler,
        "--with": packages.files[0].name if packages.files else "",
        "--ranks": plural(pick(choices.ranks, 1), "rank"),
        "--setting": " ".join(f"{name}={pick(values, '')}" for name, values in choices.settings if len(values) == 2),
    }
    settings = {name: pick(values, "") for name, values in choices.settings}
    variables = {name: value for name, value in settings.items() if name not in OWN_SETTINGS}
    if "threads" in settings:
        variables |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), settings["threads"])
    if settings.get("tf32") == "off":
        variables |= WITHOUT_TF32
    replaces = len(choices.requirements) == 2
    return SideOf(
        name=" ".join(words[name] for name in differing) or "this side",
        image=image,
        device=device,
        compiler=compiler,
        requirements=Requirements(()) if replaces else packages,
        overlays=(Overlay(packages),) if replaces else (),
        variables=variables,
        without=tuple(library for name, library in LIBRARIES.items() if settings.get(name) == "off"),
        ranks=pick(choices.ranks, 1),
        parallel=choices.parallel,
    )
