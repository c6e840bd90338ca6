"""The options --image, --via and --keep: a command that runs in images' environments instead of this one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import click
from click.core import ParameterSource

from recapture.base.errors import UsageError
from recapture.base.option_fields import declared, option
from recapture.base.text import plural
from recapture.command.matrix_options import named_images
from recapture.command.output import echo, standard_streams
from recapture.machine.pins import Image, can_run_on

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from recapture.images.environments import Environments


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """The images that a command runs in, and how; without images it runs in this Python."""

    lists: tuple[tuple[Image, ...], ...] = option(
        "--image",
        default=(),
        metavar="NAME[,NAME…]|all",
        parse=named_images,
        help="Run in these images, one by one; a release of torch names its image.",
    )
    via: Literal["here", "venv", "docker"] | None = option(
        "--via",
        default=None,
        help="How to run in an image: an environment made with uv, a container, or this Python if it is the image's. "
        "[default: venv]",
    )
    keep: int | None = option(
        "--keep", default=None, between=(1, None), help="The most environments on disk at a time, 5 to 7 GB each."
    )

    @property
    def images(self) -> tuple[Image, ...]:
        """The images in the order given, each once. Raises UsageError if another option needs an image."""
        if not self.lists and (self.via is not None or self.keep is not None):
            raise UsageError("--via and --keep say how to run in an image: name it with --image")
        if self.keep is not None and self.via not in (None, "venv"):
            raise UsageError("--keep is for --via venv")
        return tuple({image.name: image for images in self.lists for image in images}.values())


def run_in_images(
    context: click.Context,
    options: ImageOptions,
    *,
    results: Path | None,
    device: str,
    resume: bool = False,
    command: str | None = None,
    without: tuple[str, ...] = (),
) -> int:
    """Run the command of this context in each image, and return the highest exit status.

    What the user typed is passed on, without the options of `ImageOptions` and those in `without`. `command` is run
    instead of this context's, with ``--resume`` if `resume` is set. With several images, progress and one line
    for each image go to standard error. `results` is the folder of the results of all images, if there are any.
    """
    from recapture.images.each_image import expected_seconds, run_in_each
    from recapture.images.environments import Environments, environments_folder, size_limit

    def show(text: str) -> None:
        echo(f"recapture: {text}", err=True)

    environments = Environments(root=environments_folder(), limit=size_limit(), keep=options.keep, show=show)
    images = {image.name: image for image in options.images}
    name = command or str(context.info_name)
    extra = ("--resume",) if command and resume else ()

    def words(*more: str) -> tuple[str, ...]:
        return (*extra, *typed_words(context, *without, *more))

    run = _runner(name, words, options, results, device, environments)
    if len(images) == 1:
        (image,) = images.values()
        return run(image)
    makes = options.via in (None, "venv")
    if absent := [image for image in images.values() if makes and not environments.has(image)]:
        bound = "" if options.keep else "; --keep N keeps at most N of them"
        show(f"installs {plural(len(absent), 'environment')} of 5 to 7 GB each in {environments.root}{bound}")
    expected = expected_seconds(list(images), results, device, resume=resume) if results else {}
    outcomes = run_in_each(list(images), lambda name: run(images[name]), show, expected)
    for outcome in outcomes:
        show(str(outcome))
    return max(outcome.status for outcome in outcomes)


def _runner(
    name: str,
    words: Callable[..., tuple[str, ...]],
    options: ImageOptions,
    results: Path | None,
    device: str,
    environments: Environments,
) -> Callable[[Image], int]:
    """Return the function that runs the command in one image; `words` returns what is passed on, without some."""
    from recapture.base.errors import EnvironmentUnfitError
    from recapture.images.interpreter import Interpreter, check_installed
    from recapture.machine.nvidia_gpus import local_gpus

    gpus = local_gpus() if device == "cuda" else []

    def run(image: Image) -> int:
        for gpu in gpus:
            reason = can_run_on(image, gpu.capability, driver=gpu.driver)
            if reason:
                raise EnvironmentUnfitError(f"{image.name} cannot run on {gpu.name}: {reason}")
        if options.via == "here":
            interpreter = Interpreter.here()
            check_installed(interpreter, image, "use --via venv, or install the image's lock here")
            return interpreter.recapture(name, *words())
        if options.via == "docker":
            return _in_container(image, name, words("results", "durations"), results, device)
        with environments.use(image) as interpreter:
            return interpreter.recapture(name, *words())

    return run


def _in_container(image: Image, name: str, words: tuple[str, ...], results: Path | None, device: str) -> int:
    from recapture.images.container import ContainerOptions, run_image
    from recapture.images.engine import connect

    options = ContainerOptions(gpus=("all",) if device == "cuda" else ())
    if results is not None:
        options = replace(options, results=results)
    with connect() as client:
        return run_image(client, image, words, options, standard_streams(), name)


def typed_words(context: click.Context, *without: str) -> tuple[str, ...]:
    """Return the options and arguments that the user typed, without those of `ImageOptions` and `without`."""
    options: list[str] = []
    arguments: list[str] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        typed = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not typed or name in without or name in declared(ImageOptions):
            continue
        value = context.params[name]
        values = value if isinstance(value, tuple) else (value,)
        if isinstance(parameter, click.Argument):
            arguments += map(str, values)
        elif isinstance(parameter, click.Option) and parameter.is_flag:
            options.append(parameter.opts[0])
        else:
            options += [word for item in values for word in (parameter.opts[0], str(item))]
    # The command in the image would read them as options.
    if any(word.startswith("-") for word in arguments):
        options.append("--")
    return (*options, *arguments)
