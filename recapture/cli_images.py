"""`recapture images`: list, lock, build and run the pinned images."""

from __future__ import annotations

import click

from recapture.images.locks import write_lock
from recapture.images.pins import find_image, load_pins, lock_path

__all__ = ["images"]


@click.group()
def images() -> None:
    """Pinned images: every torch release with the packages of its own time."""


@images.command()
@click.argument("names", nargs=-1, metavar="[IMAGE]...")
def lock(names: tuple[str, ...]) -> None:
    """Write docker/locks: resolve the named images (default: all) as of their cut-off days, every wheel by hash."""
    pins = load_pins()
    for image in [find_image(name) for name in names] or pins.images.values():
        path = lock_path(image.name)
        count = write_lock(image, pins.tools, path)
        click.echo(f"{path}: {count} packages")
