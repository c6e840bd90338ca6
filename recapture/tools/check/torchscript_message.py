"""What TorchScript says of a call that fails: a line that every such message has, a stack, and at last the cause."""

from __future__ import annotations

import re

OF_THE_INTERPRETER = "The following operation failed in the TorchScript interpreter."
"""The first line of the message."""

_FRAME = re.compile(r"\(\d+\): \S+$")
"""A line of the stack, such as ``torch/nn/modules/conv.py(370): forward``; the innermost is first."""


def cause(message: str, kind: str) -> str:
    """Return the last line of a message, without the name `kind` of the exception before it.

    Where that line is lost, because the message was cut, the innermost frame is named.
    """
    lines = message.strip().splitlines()
    if not lines[-1].endswith("…") or lines[-1].startswith(f"{kind}: "):
        return lines[-1].removeprefix(f"{kind}: ")
    frame = next((line.strip() for line in lines if _FRAME.search(line)), "")
    return "fails in the TorchScript interpreter" + (f", in {frame}" if frame else "")
