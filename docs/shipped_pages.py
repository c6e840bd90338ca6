"""The reference pages that list what ships with recapture: compilers, checks, published claims, images."""

from __future__ import annotations

import importlib
import inspect

from page_text import grid, plain

from recapture.cases.compilers import builtin_compilers
from recapture.known.claims import CLAIMS
from recapture.machine.doctor import register
from recapture.machine.pins import load_images


def compilers_page() -> str:
    """Every compiler that ships."""
    rows = []
    for compiler in builtin_compilers().values():
        needs = [*([f"torch {compiler.since}"] if compiler.since else []), *compiler.requires]
        marks = [
            *(["built on Dynamo"] if compiler.uses_dynamo else []),
            *(["generates code"] if compiler.generates_code else []),
            *(["runs only when named"] if compiler.optional else []),
        ]
        rows.append([f"`{compiler.name}`", plain(compiler.describe()), ", ".join(needs), ", ".join(marks)])
    return f"""# Compilers

Written from `recapture/cases/compilers/`. `recapture list --compilers` prints the list for your installation.
"Generates code" means that it compiles C++ on a CPU or Triton kernels on a GPU.

{grid(["name", "what it does", "needs", "remarks"], rows)}"""


def checks_page() -> str:
    """Every check of `recapture doctor`."""
    importlib.import_module("recapture.machine.doctor")  # registers the checks
    affects = {
        "all": "every cell",
        "codegen": "compilers that generate code",
        "dynamo": "compilers built on Dynamo",
        "cuda": "cells on a GPU",
        "numpy": "cells that pass data between tensors and arrays",
    }
    rows = [
        [
            f"`{check.name}`",
            plain(inspect.getdoc(check.function) or ""),
            affects[check.affects],
            ", ".join(check.devices),
        ]
        for check in register._REGISTER.values()  # noqa: SLF001 - the register has no other reader
    ]
    return f"""# Checks of `recapture doctor`

Written from `recapture/machine/doctor/`. A cell that fails with an error that a failing check explains gets the verdict
`environment`, and the check is named in its record.

{grid(["check", "what it does", "concerns", "devices"], rows)}"""


def claims_page() -> str:
    """Every published claim, by its source, with what shows it."""
    parts = ["# Published claims\n\nWritten from `suites/claims.toml`; `recapture list --claims` prints the same."]
    claims = list(CLAIMS.shipped.values())
    for source in dict.fromkeys(claim.source for claim in claims):
        facts = [source.kind, source.language, *([str(source.year)] if source.year else []), f"torch {source.torch}"]
        title = f"[{plain(source.title)}]({source.link})" if source.link else "No public address is known"
        rows = [
            [
                f"`{claim.id}`",
                plain(claim.claim),
                ", ".join(f"{place.kind} `{place.name}`" for place in claim.shown_by) or plain(claim.not_shown or ""),
            ]
            for claim in claims
            if claim.source == source
        ]
        about = f"{', '.join([title, *map(plain, facts)])}.{' ' + plain(source.note) if source.note else ''}"
        table = grid(["claim", "what it says", "what shows it"], rows)
        parts.append(f"## {source.id}: {plain(source.title)}\n\n{about}\n\n{table}")
    return "\n\n".join(parts)


def images_page() -> str:
    """Every pinned image, and the GPUs that it can run on."""
    rows = [
        [
            f"`{image.name}`",
            image.python,
            image.torch,
            image.numpy,
            image.scipy,
            image.cuda,
            ", ".join(image.capabilities),
            str(image.driver),
        ]
        for image in load_images().values()
    ]
    head = ["image", "Python", "torch", "numpy", "scipy", "CUDA", "GPU capabilities", "oldest driver"]
    return f"""# Images

Written from `docker/images.toml`. A GPU can run an image when its capability has the same major number as one of the
image's and an equal or higher minor number. V100 is 7.0, A100 is 8.0, H100 and H200 are 9.0.

{grid(head, rows)}"""
