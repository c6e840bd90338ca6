"""What a short script looks at after each call: the place where a record has its first difference."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from recapture.records.record import Difference
    from recapture.run.cell import CellResult

_OTHER = re.compile(r"\b(?:args|result)(?:\[[^\]]*\]|\.\w+)*")
_STATE = "{**dict(target.named_parameters()), **dict(target.named_buffers())}"


class Looked(NamedTuple):
    """An expression over ``result``, ``args``, ``target``, ``program`` and ``printed``, and what it needs to be true.

    `gradients` needs a backward before, `output` needs what the call prints, and `separate` that the two sides do not
    share globals. `numbers` is whether a float64 reference says something. `plain` values are compared with ``!=``.
    """

    expression: str
    gradients: bool = False
    output: bool = False
    separate: bool = False
    numbers: bool = False
    plain: bool = False


def looked_at(found: CellResult) -> Looked | None:
    """Return what to look at; None if a short script cannot see it."""
    if not found.differences or found.error is not None:
        return Looked("None", gradients=found.phase == "backward", plain=True)  # whether it raises is what counts
    first = next(one for one in found.differences if one.input == found.input)
    if first.input in ("capture", "original"):
        return None
    root = re.split(r"[.\[]", first.where)[0]
    path = _path(first.where, root)
    if path is None:
        return None
    expression = _property(first, path)
    if expression is None:
        return None
    return Looked(
        expression,
        gradients=root == "gradients",
        output=root == "output",
        separate=root in ("globals", "watched"),
        numbers=first.kind in ("value", "gradient") and first.bits == "value",
        plain=first.kind not in ("value", "gradient", "mutation", "exception"),
    )


def _path(where: str, root: str) -> str | None:
    """Return the expression for a place of a record."""
    if root in ("result", "args"):
        return where
    if root == "output":
        return "printed"
    if root == "globals":
        return where.replace("globals", "vars(program)", 1)
    if root == "state":
        return where.replace("state", _STATE, 1) if where.startswith("state[") else where.replace("state", "target", 1)
    if root == "gradients":
        inner = where.removeprefix("gradients.").removeprefix("gradients")
        path = _path(inner, re.split(r"[.\[]", inner)[0])
        return None if path is None else f"{path}.grad"
    return None


def _property(one: Difference, path: str) -> str | None:
    """Return the expression for the property that differs."""
    if one.kind in ("value", "mutation", "gradient", "output", "exception"):
        return path
    if one.kind == "dtype":
        return f"{path}.dtype"
    if one.kind == "shape":
        return f"tuple({path}.shape)"
    if one.kind == "type":
        return f'f"{{type({path}).__module__}}.{{type({path}).__qualname__}}"'
    if one.kind == "alias":
        other = _OTHER.search(one.detail)
        if other is None:
            return None
        return f"{path}.untyped_storage().data_ptr() == {other[0]}.untyped_storage().data_ptr()"
    if one.kind == "metadata":
        return f"({path}.requires_grad, {path}.stride())"
    return None
