"""Writes ``docker-bake.hcl``, with which `docker buildx bake` builds every image, from ``docker/images.toml``.

    python tools/bake_file.py [--write]

A test compares the committed file with the pins.
"""

from __future__ import annotations

import sys
from pathlib import Path

from recapture.machine.pins import Image, load_images, lock_hash, lock_path

FILE = Path(__file__).parents[1] / "docker-bake.hcl"

HEAD = """\
# Written by `python tools/bake_file.py --write` from docker/images.toml: do not edit.
#   docker buildx bake --load torch2-11-0-cu130       one image: its name, with - for each dot
#   docker buildx bake --push --set '*.platform=linux/amd64'       all of them, with SBOM and provenance

variable "REGISTRY" {
  default = "" # such as registry.example/recapture/, with the slash
}

variable "REVISION" {
  default = "" # the commit that is built
}

target "_image" {
  context    = "."
  dockerfile = "docker/Dockerfile"
  attest = [
    "type=provenance,mode=max",
    "type=sbom",
  ]
}
"""


def target_name(image: Image) -> str:
    """Return the name of an image's target: bake allows no dots."""
    return image.name.replace(".", "-")


def bake_file() -> str:
    """Return the content of the file."""
    images = list(load_images().values())
    names = "".join(f'    "{target_name(image)}",\n' for image in images)
    parts = [HEAD, f'group "default" {{\n  targets = [\n{names}  ]\n}}\n']
    for image in images:
        arguments = {
            "BASE": image.base,
            "BASE_DIGEST": image.base.partition("@")[2],
            "IMAGE": image.name,
            "PYTHON": image.python,
            "LOCK_HASH": lock_hash(lock_path(image.name)),
        }
        lines = [f'    {name:<11} = "{value}"' for name, value in arguments.items()]
        lines.append(f"    {'REVISION':<11} = REVISION")
        parts.append(
            f'target "{target_name(image)}" {{\n'
            '  inherits = ["_image"]\n'
            f'  tags     = ["${{REGISTRY}}{image.tag}"]\n'
            "  args = {\n" + "\n".join(lines) + "\n  }\n}\n"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    if "--write" in sys.argv:
        FILE.write_text(bake_file(), encoding="utf-8")
    else:
        print(bake_file(), end="")
