"""Error messages without what changes from run to run, and the short hash by which two failures count as one."""

from __future__ import annotations

import hashlib
import re

__all__ = ["fingerprint", "scrub"]

MAX_LINES = 12
MAX_LENGTH = 900

_SCRUBBING = [
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"0x[0-9a-fA-F]{4,}"), "0x…"),
    (re.compile(r"/\S*/(?:site|dist)-packages/"), ""),
    (re.compile(r"(?<![\w.:/])/(?:[\w.+@~-]+/)+(?=[\w.+-])"), ""),  # any other absolute path: keep the file's name
    (re.compile(r"recapture_suite_"), ""),
    (re.compile(r"\bc[a-z2-7]{50,}\b"), "…"),  # names Inductor derives from a hash of the source
    (re.compile(r"\btmp[a-z0-9_]{8}\b"), "tmp…"),
    (re.compile(r"\b(?:pid|PID|process|thread)[ =:]+\d+"), "process …"),
    (re.compile(r"\d+(?:\.\d+)?\s*(?:ms|s|seconds)\b"), "… s"),
]

_NOISE = re.compile(
    r"^\s*(?:Set TORCH|You can suppress|import torch\._dynamo|torch\._dynamo\.config\.suppress|For more details about"
    r"|Please (?:report|convert)|.*To execute this test|.*TORCHDYNAMO_VERBOSE|CUDA kernel errors might|For debugging)"
)


def scrub(message: str) -> str:
    """Return a message without addresses, paths, temporary names, times and advice, cut to a readable length."""
    for pattern, replacement in _SCRUBBING:
        message = pattern.sub(replacement, message)
    lines = [line.rstrip() for line in message.strip().splitlines() if line.strip() and not _NOISE.match(line)]
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], "…"]
    text = "\n".join(lines)
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 1] + "…"


def fingerprint(kind: str, message: str) -> str:
    """Return 10 hexadecimal digits that two failures of one cause share: numbers and line breaks do not count."""
    first = re.sub(r"\d+", "#", " ".join(scrub(message).split()))
    return hashlib.sha256(f"{kind}\n{first}".encode()).hexdigest()[:10]
