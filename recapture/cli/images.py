"""`recapture images`: list, lock, build and run the pinned images."""

from __future__ import annotations

import click

from recapture.base.errors import EnvironmentUnfitError
from recapture.base.text import plural
from recapture.cli.options import takes
from recapture.cli.output import echo, standard_streams
from recapture.images.build import BuildOptions, build_image
from recapture.images.container import ContainerOptions, check_image_runs_on, run_image
from recapture.images.engine import EngineOptions, connect, is_local
from recapture.images.environments import Environments, environments_folder
from recapture.machine.pins import can_run_on, find_image, load_images, load_pins, parse_capability

__all__ = ["images"]


@click.group()
def images() -> None:
    """Pinned images: every torch release with packages from its time."""


@images.command("list")
@click.option("--gpu", metavar="CAPABILITY", help="Show which can run on it, such as 7.0. [default: the GPU found]")
def list_command(gpu: str | None) -> None:
    """List the images, and which of them can run on a GPU."""
    from rich.table import Table

    from recapture.machine.nvidia_gpus import local_gpus
    from recapture.report.console import SafeConsole

    driver = None
    if gpu is None:
        found = local_gpus()
        if found:
            gpu, driver = found[0].capability, found[0].driver
            echo(f"{found[0].name}, capability {gpu}, driver {driver}:")
    else:
        parse_capability(gpu)
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
def lock(names: tuple[str, ...]) -> None:
    """Write docker/locks: resolve the named images (default: all) as of their cut-off dates, with wheel hashes."""
    from recapture.images.lock_files import build_plan, image_plan, write_lock

    pins = load_pins()
    chosen = [find_image(name) for name in names] or pins.images.values()
    plans = [image_plan(image, pins.tools) for image in chosen]
    if not names:
        plans.append(build_plan(pins.tools))
    for plan in plans:
        echo(f"{plan.path}: {write_lock(plan)} packages")


@images.command()
@click.argument("name", metavar="IMAGE")
@takes(options=BuildOptions, engine=EngineOptions)
def build(name: str, options: BuildOptions, engine: EngineOptions) -> None:
    """Build an image from its lock; print its size and build time. An image has five to seven gigabytes."""
    built = build_image(find_image(name), options, lambda line: echo(line, err=True), engine)
    echo(f"{built.tag}: {built.size / 1e9:.2f} GB, built in {built.seconds:.0f} s, {built.digest}")


@images.command(context_settings={"ignore_unknown_options": True})
@click.argument("name", metavar="IMAGE")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENT OF RUN]...")
@takes(options=ContainerOptions, engine=EngineOptions)
@click.option("--capability", metavar="X.Y", help="Capability of a remote engine's GPUs; refuses unfit images.")
def run(
    name: str, arguments: tuple[str, ...], options: ContainerOptions, engine: EngineOptions, capability: str | None
) -> int:
    """Run `recapture run` in an image, without network and with a read-only root; results are in --results.

    Other options and arguments go to `recapture run`: recapture images run torch2.6.0-cu124 basic_use --timeout 60
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
    echo(f"on this machine: {options.results}")
    return status


@images.command()
@click.argument("names", nargs=-1, metavar="[IMAGE]...")
def clean(names: tuple[str, ...]) -> None:
    """Remove the environments that `--via venv` made for these images (default: all); those in use are kept."""
    chosen = tuple(find_image(name).name for name in names)
    environments = Environments(root=environments_folder(), show=lambda text: echo(text, err=True))
    removed = environments.clean(chosen)
    for one in removed:
        echo(f"removed {one.image}, {one.size / 1e9:.1f} GB")
    echo(f"{plural(len(removed), 'environment')} removed from {environments.root}")
