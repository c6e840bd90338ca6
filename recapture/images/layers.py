"""Layers: a user's own packages on top of an image's environment, whose files are used where they are.

A layer is a small virtual environment. It has the packages that the image lacks, and finds the others in the
environment below it, which a file ``.pth`` names. It is stored and removed like the environments themselves.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from recapture.images.interpreter import Interpreter
from recapture.images.requirements import resolve, without_locked
from recapture.images.uv import find_uv, run_uv

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from recapture.images.requirements import Requirements
    from recapture.machine.pins import Image

LAYER = "+with"
"""What follows the name of the image in the name of a layer."""

LAYER_BYTES = 2 << 30
"""Bytes that must be free for a new layer."""

_BELOW = "recapture_environment_below.pth"


def layer_on(base: Interpreter, folder: Path, held: int) -> Interpreter:
    """Return the Python of a layer; `held` is the lock that keeps the layer."""
    variables = dict(base.variables)
    variables["VIRTUAL_ENV"] = str(folder)
    variables["PATH"] = os.pathsep.join([str(folder / "bin"), variables["PATH"]])
    return Interpreter(folder / "bin" / "python", variables, (*base.keep_open, held))


def build_layer(
    image: Image, base: Interpreter, requirements: Requirements, partial: Path, variables: Mapping[str, str]
) -> None:
    """Make a layer in the folder `partial`; raises UsageError or EnvironmentUnfitError, in one line."""
    uv = find_uv("make environments")
    create = (uv, "venv", "--quiet", "--no-project", "--no-python-downloads", "--relocatable")
    run_uv((*create, "--python", str(base.python), str(partial)), folder=partial.parent, environment=variables)
    more = without_locked(resolve(uv, image, base.python, requirements, partial, variables), image)
    (own,) = partial.glob("lib/python*/site-packages")
    (below,) = base.python.parent.parent.glob("lib/python*/site-packages")
    (own / _BELOW).write_text(f"import site; site.addsitedir({str(below)!r})\n", encoding="utf-8")
    if not more:
        return
    missing = partial / "packages.txt"
    missing.write_text(more, encoding="utf-8")
    install = (uv, "pip", "install", "--quiet", "--no-deps", "--python", str(partial / "bin" / "python"))
    run_uv((*install, "-r", str(missing)), folder=requirements.files[0].parent, environment=variables)
