"""The options of `recapture plan` and `recapture matrix`: which images, on what, in how many parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recapture.base.option_fields import option
from recapture.machine.pins import Image, find_image, load_images


def named_images(text: str) -> tuple[Image, ...]:
    """Return the images of a list such as ``torch2.6.0-cu124,torch2.7.1-cu126``, or of ``all``."""
    if text == "all":
        return tuple(load_images().values())
    return tuple(find_image(name.strip()) for name in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip().lower() for name in text.split(","))


@dataclass(frozen=True, kw_only=True)
class MatrixOptions:
    """The images of a matrix, the types of GPUs, and the number of parts of each."""

    lists: tuple[tuple[Image, ...], ...] = option(
        "--image", default=(), metavar="NAME[,NAME…]|all", parse=named_images, help="These images. [default: all]"
    )
    inside: Literal["here", "venv", "docker"] = option(
        "--inside",
        default="venv",
        help="How a machine runs an image: an environment made with uv, a container, or its own Python.",
    )
    shards: int = option("--shards", default=1, between=(1, 1000), help="Parts of each image's run.")
    gpu_lists: tuple[tuple[str, ...], ...] = option(
        "--gpu", default=(), metavar="TYPE[,TYPE…]", parse=_names, help="Types of GPU, such as h100; for --device cuda."
    )

    @property
    def images(self) -> tuple[Image, ...]:
        """The images in the order given, each once; without any given, all."""
        images = [image for images in self.lists for image in images] or load_images().values()
        return tuple({image.name: image for image in images}.values())

    @property
    def gpus(self) -> tuple[str, ...]:
        """The types of GPUs in the order given, each once."""
        return tuple(dict.fromkeys(name for names in self.gpu_lists for name in names))
