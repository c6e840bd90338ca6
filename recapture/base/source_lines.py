"""The line of the user's code that a message of torch points to."""

from __future__ import annotations

import re
from typing import NamedTuple

from recapture.base.scrub import MAX_LENGTH
from recapture.base.text import shorten

MOST = 100
"""Characters shown of a line of code."""

_MARKED = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:, in \w+)?\n(?P<text>(?:.*\n)*?)\s*~+ <--- HERE')
"""TorchScript's excerpt of a source: the line above the mark is the one at fault."""

_CAUSED = re.compile(r"Caused by: (?P<text>.*\S)\s+# (?P<file>[\w.-]+\.py):(?P<line>\d+) in ")
_PLACE = re.compile(r"Caused by: .*?\((?P<file>[\w.-]+\.py):(?P<line>\d+) in (?!__torch_function__)")
_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in \S+\n(?P<text>[^\n]*)')
_TRACED = re.compile(r"^(?P<file>[\w.-]+\.py)\((?P<line>\d+)\): \w+", re.MULTILINE)
_BROKEN = re.compile(r" at (?P<file>[^\s:]+\.py):(?P<line>\d+)$")

_NOT_USER = re.compile(
    r"(?:^|/)(?:torch|functorch)/|^(?:export|fx|dynamo|torchscript|non_strict_utils)\.py$|^<(?:string|eval_with_key)>"
)
"""Files of torch, of the compilers of this project, and generated code."""


class SourceLine(NamedTuple):
    """A line of the user's code; `text` is empty where the message does not quote it."""

    file: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}"
        return f"{place} `{self.text}`" if self.text else place


def source_line(message: str) -> SourceLine | None:
    """Return the line of the user's code that a message names, None if it names none.

    Of a stack, this is the innermost line that is neither torch's nor this project's.
    """
    message = message[:MAX_LENGTH]  # a longer one is not a run's, and patterns take long on it
    for pattern in (_MARKED, _CAUSED):
        for match in pattern.finditer(message):
            if not _NOT_USER.search(match["file"]):
                return _line(match, match["text"].rstrip().rpartition("\n")[2])
    frames = [frame for frame in _FRAME.finditer(message) if not _NOT_USER.search(frame["file"])]
    if frames:
        own = [frame for frame in frames if "/" not in frame["file"]]  # a library's file keeps its folders
        return _line((own or frames)[-1], (own or frames)[-1]["text"])
    for pattern in (_PLACE, _TRACED, _BROKEN):
        for match in pattern.finditer(message):
            if not _NOT_USER.search(match["file"]):
                return _line(match, "")
    return None


def _line(match: re.Match[str], text: str) -> SourceLine:
    return SourceLine(match["file"], int(match["line"]), "" if text.strip() == "…" else shorten(text, MOST))
