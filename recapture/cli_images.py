"""`recapture images`: list, lock, build and run the pinned images."""

from __future__ import annotations

import click

from recapture.images.pins import find_image, load_pins

__all__ = ["images"]


@click.group()
def images() -> None:
    """Pinned images: every torch release with the packages of its own time."""


@images.command()
@click.argument("names", nargs=-1, metavar="[IMAGE]...")
def lock(names: tuple[str, ...]) -> None:
    """Write docker/locks: resolve the named images (default: all) as of their cut-off days, every wheel by hash."""
    from recapture.images.locks import build_plan, image_plan, write_lock

    pins = load_pins()
    chosen = [find_image(name) for name in names] or pins.images.values()
    plans = [image_plan(image, pins.tools) for image in chosen]
    if not names:
        plans.append(build_plan(pins.tools))
    for plan in plans:
        click.echo(f"{plan.path}: {write_lock(plan)} packages")
