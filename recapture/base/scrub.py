"""Error messages without the parts that change from run to run, and a short hash that identifies equal failures."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from recapture.base.paths import PACKAGE

MAX_LINES = 12
MAX_LENGTH = 900

_OURS = re.compile(rf"(?m)^[ \t]*(?:{re.escape(str(PACKAGE))}/(?!data/)\S+|<frozen runpy>)\(\d+\): .*\n?")
"""Lines of a TorchScript stack that show only this project's own code, and change with it.

Lines under ``data/`` are kept: that is where installed suites are, the code under test.
"""

_FRAME = re.compile(
    r"""^(?P<indent>[ \t]*)File "(?P<path>[^"\n]+)", line \d+(?:, in .*)?"""
    r"""(?P<code>(?:\n(?P=indent)[ \t]+(?!File ")\S.*(?:\n[ \t]+[~^]+[ \t]*$)?)?)""",
    re.MULTILINE,
)
"""A frame of a Python stack, with the line of code that it quotes and the marks below that line."""

_COMMENTED = re.compile(r"^[ \t]*# File: (?P<path>[^\s:]+):\d+ in .*\n?", re.MULTILINE)
"""A frame above a node of a printed graph."""

_PLACE = re.compile(r"(?<![^\s\"'():])(?P<path>[^\s\"'():]+\.py)(?::\d+|\(\d+\))")
"""A line of a file, as in ``file.py:12``."""

_MARK = "\0"
"""What stands for each character of an own frame until the message is shortened."""

_WIDTHS = (37, 20)
"""Characters for which the first line of an own frame counts, after its indentation, and each further line.

Messages are shortened as if frames had this size, which is what those of committed results had. Where a message ends
then depends neither on how long the lines of this project are, nor on whether its frames are left out.
"""

_SEPARATOR = r"[\"']?(?:=|[ \t]*:[ \t]*|[ \t]*=[ \t]*(?=[\"']))[\"']?"
"""Pattern between a name and its value, as in ``name=value``, ``name: value`` and ``"name": "value"``.

An equals sign between spaces is code, unless a quoted text follows.
"""

_SENSITIVE = "passw(?:or)?d|passphrase|secret|(?:api|access|private|secret)[_-]?key|(?:access|auth)[_-]?token"
"""Pattern of how the names of passwords, tokens and keys end."""

_SCHEME = "bearer|basic|token|digest|apikey"
"""Pattern of the schemes of an ``Authorization`` header."""

_SECRETS = (
    (r"(?<=[A-Za-z0-9]://)[^\s/@\"']{1,500}@", "…@"),  # a user's name and password in an address
    (r"(?i)\b(bearer|basic)(\s+)(?=[\w.~+/=-]*[0-9=])[\w.~+/=-]{16,}", r"\1\2…"),
    (r"\b(?:gh[opsur]_|github_pat_|glpat-|hf_|sk-|pypi-|xox[abprs]-|AKIA)(?=\w*[0-9])[A-Za-z0-9-]{16,}", "…"),
    (rf"(?i)\b(authorization{_SEPARATOR}(?:{_SCHEME})[ \t]+)[^\s\"',;&]{{8,}}", r"\1…"),
    (rf"(?i)\b(authorization{_SEPARATOR})(?!{_SCHEME})(?=[^\s\"',;&]*[0-9])[^\s\"',;&]{{8,}}", r"\1…"),
    (rf"(?i)\b(\w*(?:{_SENSITIVE}){_SEPARATOR})[^\s\"',;&]{{4,}}", r"\1…"),
    # "token" is also a word of parsers: only what has letters and digits is taken for a secret.
    (rf"(?i)\b(\w*token{_SEPARATOR})(?=[\w.~+/-]*[0-9])(?=[\w.~+/-]*[a-z])[\w.~+/=-]{{8,}}", r"\1…"),
)
"""Patterns of passwords, tokens and keys, which must not be published even where a message quotes them."""

_SCRUBBING: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    *((re.compile(pattern), replacement) for pattern, replacement in _SECRETS),
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"\b0x[0-9a-fA-F]{4,}"), "0x…"),
    (re.compile(r"(_(?:obj|type)_id\([^,\n]*,\s*)\d+"), r"\1…"),  # guards identify objects by their address
    # Paths of installed suites and of this project are cut to the file name, as in a checkout.
    (re.compile(r"/\S*/(?:site|dist)-packages/(?:recapture/(?:[\w.-]+/)*)?"), ""),
    (re.compile(r"(?<=[\"'])/(?:[^\"'\n/]+/)+(?=[^\"'\n/])"), ""),
    # Any other absolute path is cut to the file name, also after an option of a compiler, such as -I/usr/include.
    (re.compile(r"(?:(?<![\w./])|(?<=\s-[ILBo]))/(?:[\w.+@~-]+/)+(?=[\w.+-])"), ""),
    # Torch removes the prefix that a path shares with torch's own path, even mid-word: "ome/me/suite.py:12".
    (re.compile(r"(?<![\w./-])(?!torch|functorch|aten|c10|caffe2)(?:[\w.+@~-]+/)+(?=[\w+-]+\.py:\d)"), ""),
    (re.compile(r"recapture_suite_"), ""),
    (re.compile(r"\bc[a-z2-7]{50,}\b"), "…"),  # names Inductor derives from a hash of the source
    (re.compile(r"\b(tmp|recapture-|tasks-)[a-z0-9_]{8}\b"), r"\1…"),
    (re.compile(r"\[?\b[VDIWEF]\d{4}\s+\d\d:\d\d:\d\d\.\d+\s+(?:\d+\s+)?"), ""),  # prefix of a log line
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"), "…"),
    (re.compile(r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b"), "…"),
    (re.compile(r"\b(pid|process|thread)(\s*[ =:]\s*)\d+", re.IGNORECASE), r"\1\2…"),
    (re.compile(r"(Tried to allocate [\d.]+ \w+)\b.*", re.DOTALL), r"\1"),  # the rest is the memory free at that moment
    (re.compile(r"\b\d+(?:\.\d+)?\s*(?:ms|s|seconds)\b"), "… s"),
    # A set of many classes that torch prints as a list has another order in each process.
    (re.compile(r"(?<=\[)<class '[^'\n]*'>(?:, <class '[^'\n]*'>){5,}(?=\])"), lambda match: _sorted(match[0])),
]

_NOISE = re.compile(
    r"^\s*(?:Set TORCH|You can suppress|import torch\._dynamo|torch\._dynamo\.config\.suppress|.*To execute this test"
    r"|Please (?:report|convert)|.*TORCHDYNAMO_VERBOSE|CUDA kernel errors might"
    r"|For (?:more|extended|C\+\+|debugging) |If you suspect the guard|The error above occurred when calling)"
)


def _is_own(path: str) -> bool:
    """Whether a path, of which torch may have removed the beginning, is that of a file of this project."""
    folder, name, inside = path.rpartition(f"{PACKAGE.name}/")
    if not name or not f"{PACKAGE.parent}/".endswith(folder):
        return False
    return not inside.startswith("data/") and (PACKAGE / inside).is_file()


def _marked(frame: re.Match[str]) -> str:
    """Return a frame with marks in the place of its characters if it is this project's."""
    if not _is_own(frame["path"]) and frame["path"] != "<frozen runpy>":  # with which this project starts processes
        return frame[0]
    lines = [_MARK * (len(frame["indent"]) + _WIDTHS[0])]
    return "\n".join(lines + [_MARK * _WIDTHS[1]] * frame["code"].count("\n"))


def _without_own_places(message: str) -> str:
    """Return a message whose own frames are marked, and without the numbers of this project's lines.

    An edit of this project would change them, although nothing changed for the user.
    """
    message = _FRAME.sub(_marked, message)
    message = _COMMENTED.sub(lambda place: "" if _is_own(place["path"]) else place[0], message)
    return _PLACE.sub(lambda place: place["path"].rpartition("/")[2] if _is_own(place["path"]) else place[0], message)


def _without_marks(message: str) -> str:
    lines = [line.lstrip(_MARK) for line in message.split("\n") if line.strip(_MARK) or not line]
    return "\n".join(lines)


def _sorted(classes: str) -> str:
    return ", ".join(sorted(classes.split(", ")))


def encodable(text: str) -> str:
    """Return a text with lone surrogates as escapes, so that JSON can hold it: file names may contain them."""
    return text.encode(errors="backslashreplace").decode()


def scrub(message: str) -> str:
    """Return a message without addresses, paths, temporary names, times and advice, shortened to a readable length."""
    message = _without_own_places(_OURS.sub("", encodable(message)).replace(_MARK, ""))
    for pattern, replacement in _SCRUBBING:
        message = pattern.sub(replacement, message)
    lines = [line.rstrip() for line in message.strip().splitlines() if line.strip() and not _NOISE.match(line)]
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], "…"]
    text = "\n".join(lines)
    return _without_marks(text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 1] + "…")


def fingerprint(kind: str, message: str) -> str:
    """Return 10 hexadecimal digits that failures with the same cause share; numbers and line breaks are ignored."""
    return recorded_fingerprint(kind, scrub(message))


def recorded_fingerprint(kind: str, message: str) -> str:
    """Return the fingerprint of a message that is scrubbed already, as those of records are."""
    first = re.sub(r"\d+", "#", " ".join(message.split()))
    return hashlib.sha256(f"{kind}\n{first}".encode()).hexdigest()[:10]


def without_paths(text: str) -> str:
    """Return a text with ``<path>`` for absolute paths, which contain user names and differ between machines."""
    return re.sub(r"(?<![\w./])/(?:[\w.@+~-]+/?)+", "<path>", text)
