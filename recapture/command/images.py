"""`recapture images`: list, lock, build and run the pinned images."""

from __future__ import annotations

import click

from recapture.base.errors import EnvironmentUnfitError
from recapture.base.text import plural
from recapture.command.options import json_flag, takes
from recapture.command.output import echo, print_json, standard_streams
from recapture.images.build import BuildOptions, build_image
from recapture.images.container import ContainerOptions, check_image_runs_on, run_image
from recapture.images.engine import EngineOptions, connect, is_local
from recapture.images.environments import Environments, environments_folder
from recapture.machine.pins import Image, can_run_on, find_image, load_images, load_pins, parse_capability


@click.group()
def images() -> None:
    """Pinned images: every torch release with packages from its time."""


@images.command("list")
@click.option("--gpu", metavar="CAPABILITY", help="Show which can run on it, such as 7.0. [default: the GPU found]")
@json_flag
def list_command(gpu: str | None, *, as_json: bool) -> None:
    """List the images, and which of them can run on a GPU."""
    from recapture.machine.nvidia_gpus import local_gpus

    driver = None
    if gpu is None:
        gpus = local_gpus()
        if gpus:
            gpu, driver = gpus[0].capability, gpus[0].driver
            echo(f"{gpus[0].name}, capability {gpu}, driver {driver}:", err=as_json)
    else:
        parse_capability(gpu)
    if as_json:
        print_json([_described(image, gpu, driver) for image in load_images().values()])
    else:
        _print_table(gpu, driver)


def _described(image: Image, gpu: str | None, driver: int | None) -> dict[str, str | bool | None]:
    """Return an image's pins as plain data, and the reason why it cannot run on a GPU."""
    names = ("name", "torch", "python", "torchvision", "triton", "numpy", "scipy")
    facts: dict[str, str | bool | None] = {name: getattr(image, name) for name in names}
    if gpu:
        reason = can_run_on(image, gpu, driver=driver)
        facts |= {"gpu": gpu, "runs": not reason, "reason": reason or None}
    return facts


def _print_table(gpu: str | None, driver: int | None) -> None:
    from rich.table import Table

    from recapture.report.terminal_writer import SafeConsole

    table = Table(box=None, pad_edge=False)
    for column in ("image", "python", "torchvision", "triton", "numpy", "scipy", *([f"on {gpu}"] if gpu else [])):
        table.add_column(column, no_wrap=True)
    reasons: dict[str, list[str]] = {}
    for image in load_images().values():
        row = [image.name, image.python, image.torchvision, image.triton, image.numpy, image.scipy]
        if gpu:
            reason = can_run_on(image, gpu, driver=driver)
            row.append("no" if reason else "yes")
            if reason:
                reasons.setdefault(reason, []).append(image.name)
        table.add_row(*row)
    # Wide enough for every row: a name that a narrow terminal cuts off cannot be copied.
    SafeConsole(width=max(120, SafeConsole().width), highlight=False).print(table)
    for reason, names in reasons.items():
        echo(f"\nnot on {gpu}: {', '.join(names)}\n  ({reason})")


@images.command()
@click.argument("names", nargs=-1, metavar="[IMAGE]...")
@json_flag
def lock(names: tuple[str, ...], *, as_json: bool) -> None:
    """Write the locks of images into docker/locks.

    Without a name, every image is locked. A lock has the newest packages of the image's cut-off date that its pins
    allow, with the hashes of their wheels.
    """
    from recapture.images.lock_files import build_plan, image_plan, write_lock

    pins = load_pins()
    chosen = [find_image(name) for name in names] or pins.images.values()
    plans = [image_plan(image, pins.tools) for image in chosen]
    if not names:
        plans.append(build_plan(pins.tools))
    locks = []
    for plan in plans:
        locks.append({"lock": str(plan.path), "packages": write_lock(plan)})
        echo("{lock}: {packages} packages".format(**locks[-1]), err=as_json)
    if as_json:
        print_json(locks)


@images.command()
@click.argument("name", metavar="IMAGE")
@takes(options=BuildOptions, engine=EngineOptions)
@json_flag
def build(name: str, options: BuildOptions, engine: EngineOptions, *, as_json: bool) -> None:
    """Build an image from its lock; print its size and build time. An image has five to seven gigabytes."""
    built = build_image(find_image(name), options, lambda line: echo(line, err=True), engine)
    if as_json:
        print_json({"tag": built.tag, "bytes": built.size, "seconds": built.seconds, "digest": built.digest})
        return
    echo(f"{built.tag}: {built.size / 1e9:.2f} GB, built in {built.seconds:.0f} s, {built.digest}")


@images.command(context_settings={"ignore_unknown_options": True})
@click.argument("name", metavar="IMAGE")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENT OF RUN]...")
@takes(options=ContainerOptions, engine=EngineOptions)
@click.option("--capability", metavar="X.Y", help="Capability of a remote engine's GPUs; refuses unfit images.")
def run(
    name: str, arguments: tuple[str, ...], options: ContainerOptions, engine: EngineOptions, capability: str | None
) -> int:
    """Run `recapture run` in an image, without a network.

    The container can write to /tmp and --results alone. Other options and arguments go to `recapture run`: recapture
    images run torch2.6.0-cu124 basic_use --timeout 60
    """
    from recapture.machine.nvidia_gpus import local_gpus

    image = find_image(name)
    reason = can_run_on(image, capability) if capability else None
    if reason:
        raise EnvironmentUnfitError(f"{image.name} cannot run there: {reason} (see `recapture images list`)")
    with connect(engine) as client:
        if options.gpus and is_local(client):
            check_image_runs_on(image, options.gpus, local_gpus())
        status = run_image(client, image, arguments, options, standard_streams())
    echo(f"on this machine: {options.results}", err="--json" in arguments)
    return status


@images.command()
@click.argument("names", nargs=-1, metavar="[IMAGE]...")
@json_flag
def clean(names: tuple[str, ...], *, as_json: bool) -> None:
    """Remove the environments that `--via venv` made.

    Without a name, those of all images are removed. Environments in use are kept.
    """
    chosen = tuple(find_image(name).name for name in names)
    environments = Environments(root=environments_folder(), show=lambda text: echo(text, err=True))
    removed = environments.clean(chosen)
    if as_json:
        print_json([{"image": environment.image, "bytes": environment.size} for environment in removed])
        return
    for environment in removed:
        echo(f"removed {environment.image}, {environment.size / 1e9:.1f} GB")
    echo(f"{plural(len(removed), 'environment')} removed from {environments.root}")
