"""A variation of a cell: the same case and compiler, stopped after a stage or with other settings of torch."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import msgspec

from recapture.torch_api.stages import redirected

if TYPE_CHECKING:
    from recapture.cases.compiler import Compiler


class Variation(msgspec.Struct, frozen=True):
    """What a child changes before it runs a cell.

    `backend` replaces that of `torch.compile` or, as ``exported`` or ``decomposed``, what AOTInductor does. `settings`
    are values by module and dotted name, `arguments` those of `torch.compile` and `torch.export.export`, and
    `variables` those of the environment.
    """

    backend: str | None = None
    settings: dict[str, dict[str, Any]] = {}
    arguments: dict[str, Any] = {}
    variables: dict[str, str] = {}


def varied(compiler: Compiler, how: Variation) -> Compiler:
    """Return a compiler that captures in the varied way."""

    @functools.wraps(compiler.function)
    def capture(*args: Any, **kwargs: Any) -> Any:
        with redirected(how.backend, how.settings, how.arguments, how.variables):
            return compiler.function(*args, **kwargs)

    return dataclasses.replace(compiler, function=capture)
