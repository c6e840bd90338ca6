"""Runs one cell of a check as any other cell, and keeps what a long message of TorchScript says at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from recapture.base.scrub import scrub
from recapture.base.text import shorten
from recapture.run.cell import result_of, rule
from recapture.tools.check.torchscript_message import OF_THE_INTERPRETER

if TYPE_CHECKING:
    from collections.abc import Callable

    from recapture.run.cell import CellResult, CellSpec

EXAMINE_WITH_CAUSE = f"{__name__}:examine"
"""The name of `examine`, which a plan gives to the run of a check."""

LONGEST_CAUSE = 300
"""Characters of the last line of a message."""


def examine(spec: CellSpec, enter: Callable[[str], None]) -> CellResult:
    """Run one cell as `recapture.run.cell.examine` does; a message that is cut also has its last line."""
    ruling, events = rule(spec, enter)
    result = result_of(ruling, events)
    if result.error is None or ruling.raised is None:
        return result
    message = with_last_line(result.error.message, ruling.raised.message)
    return msgspec.structs.replace(result, error=msgspec.structs.replace(result.error, message=message))


def with_last_line(message: str, whole: str) -> str:
    """Return the message of a record with the last line of the whole one, if it is TorchScript's and was cut."""
    if not (message.startswith(OF_THE_INTERPRETER) and message.endswith("…")):
        return message
    last = whole.strip().splitlines()[-1]
    return f"{message}\n{shorten(scrub(last), LONGEST_CAUSE)}"
