"""Inductor's settings as compilers: a file that declares one for each setting whose value is changed.

The space of settings is that of torch's own fuzzer, so each release has its own.
"""

from __future__ import annotations

import random

from recapture.torch_api.inductor_settings import changed_settings

HEAD = '''"""`torch.compile` with one of Inductor's settings changed."""

import torch

from recapture import compiler
'''

PREFIX = "compile:with:"
"""What the name of such a compiler begins with; the setting and its value follow."""


def settings_text(number: int, seed: int) -> str:
    """Return the source of compilers with so many of Inductor's settings changed, each alone.

    Raises EnvironmentUnfitError if this torch has no fuzzer of settings.
    """
    settings = changed_settings()
    names = random.Random(seed).sample(sorted(settings), k=min(number, len(settings)))  # noqa: S311 - no secret
    parts = [_compiler(place, name, settings[name]) for place, name in enumerate(sorted(names))]
    return "\n\n".join([HEAD, *parts])


def _compiler(place: int, name: str, value: object) -> str:
    return (
        f'@compiler("{PREFIX}{name}={value}", family="dynamo", uses_dynamo=True, generates_code=True)\n'
        f"def changed_{place}(fn, example):\n"
        f'    """`torch.compile` with `{name}` set to {value!r}."""\n'
        f"    return torch.compile(fn, options={{{name!r}: {value!r}}})\n"
    )
