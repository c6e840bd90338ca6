"""Texts without secrets and without what changes from run to run, and a short hash that identifies equal failures."""

from __future__ import annotations

import hashlib
import json
import os
import re
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

from recapture.base.paths import PACKAGE

MAX_LINES = 12
MAX_LENGTH = 900

MOST_READ = 200_000
"""Characters that are read of a message: of 20 million, the patterns need longer than a call may take."""

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

_SEPARATOR = (
    r"(?:_?[0-9])?"
    r"(?:\\?[\"']?(?:=>?|[ \t]*(?::|=>)[ \t]*|[ \t]*=[ \t]*(?=b?[\"']))|[\"'],[ \t]*(?=b?[\"'])|>(?=[^<>\s]+</))"
    r"(?:b?\\?[\"'])?"
)
"""Pattern between a name and its value: ``name=value``, ``"name": "value"``, ``('name', 'value')``, ``<name>value<``.

An equals sign between spaces is code, unless a quoted text follows. A name may end with a number.
"""


def _value(least: int, look: str = "") -> str:
    """Return the pattern of a value of at least so many characters: a quoted text to its end, or a word."""
    quoted = "|".join(rf"(?<={quote})(?=[^\s,;:)\]]){look}[^{quote}\n]{{{least},}}" for quote in ('\\"', "'"))
    return rf"(?:{quoted}|{look}[^\s\"',;&<>]{{{least},}})"


_MIXED = r"(?=[\w.~+/-]*[0-9])(?=[\w.~+/-]*[A-Za-z])"
"""Looks for letters and digits in a value whose name may also be another word."""

_SENSITIVE = (
    "passw(?:or)?d|passphrase|secret"
    "|(?:api|access|account|private|secret|signing|encryption|subscription|auth|master|shared)[_-]?key"
    "|(?:access|auth|refresh|session)[_-]?token"
)
"""Pattern of how the names of passwords, tokens and keys end."""

_SCHEME = "bearer|basic|token|digest|apikey"
"""Pattern of the schemes of an ``Authorization`` header."""

_SECRETS = (
    (
        "private key",
        r"-----BEGIN ([A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,20})-----(?:(?!-----END)[^…])+(?:-----END \1-----)?",
        "…",
    ),
    # Of a text that was cut at its beginning, the end of a key.
    ("private key", r"(?:[A-Za-z0-9+/=]{16,}\s+)+-----END [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,20}-----", "…"),
    ("eyj", r"\beyJ[\w-]{6,}\.[\w-]{2,}\.[\w-]{2,}", "…"),  # a JSON Web Token
    ("://", r"(?<=[A-Za-z0-9]://)[^\s/?#\"']{1,500}@", "…@"),  # a user's name and password in an address
    # Addresses of which a part allows to post.
    ("hooks.slack.com", r"(?<=\bhooks\.slack\.com/services/)[\w/]{8,}", "…"),
    ("/api/webhooks/", r"(?<=/api/webhooks/)\d+/[\w-]{8,}", "…"),
    ("api.telegram.org", r"(?<=\bapi\.telegram\.org/bot)\d+:[\w-]{8,}", "…"),
    ("cookie", r"(?i)\b((?:set-)?cookie[\"']?:[ \t]*[\"']?)[^\s=;\"']{1,100}=[^\n\"']+", r"\1…"),
    (
        "-",
        (
            rf"(?i)(?<![\w-])(--?[\w-]*(?:{_SENSITIVE}|token|pass|pwd)(?:[ \t]+|=|[\"'],[ \t]*(?=[\"']))[\"']?)"
            r"[^\s\"'-][^\s\"']{3,}"
        ),
        r"\1…",
    ),
    ("-u --user --proxy-user", r"(?<![\w-])((?:-u|--user|--proxy-user)[ \t]+[\"']?[\w.@+-]+:)[^\s\"']{4,}", r"\1…"),
    ("mysql", r"\b(mysql\w*[ \t][^\n]{0,200}?[ \t]-p)[^\s\"']{4,}", r"\1…"),
    ("pass pwd pw= credential", r"\b([A-Z][A-Z0-9_]*_?(?:PASS|PWD|PW|CREDENTIALS?)=[\"']?)[^\s\"',;&]{4,}", r"\1…"),
    ("credential", r"\b(CREDENTIALS?=[\"']?)[^\s\"',;&]{4,}", r"\1…"),
    # In small letters these are also words of compilers: only what has letters and digits is taken for a secret.
    ("pass pwd pw", rf"(?i)\b((?:\w*_pass|\w*pwd|(?:\w*_)?pw){_SEPARATOR}){_value(8, _MIXED)}", r"\1…"),
    ("password", r"(?i)\b(machine\s+\S+\s+login\s+\S+\s+password\s+)\S{4,}", r"\1…"),  # a line of a netrc file
    (
        "passw passphrase",
        rf"(?i)\b((?:passw(?:or)?d|passphrase)[ \t]+(?:is|was)[ \t:]+[\"']?){_value(8, _MIXED)}",
        r"\1…",
    ),
    ("auth", r"(\bauth\\?[\"'][ \t]*:[ \t]*\\?[\"'])[\w+/=-]{16,}", r"\1…"),  # of a registry of containers
    # Addresses that are signed, as clouds' stores give them.
    ("x-amz x-goog", r"(?i)\b(x-(?:amz|goog)-(?:signature|credential|security-token)=)[^\s&\"']{4,}", r"\1…"),
    ("sig", r"(?<=[?&])((?:sig|[Ss]ignature)=)[\w%+/=.-]{16,}", r"\1…"),
    ("bearer basic", r"(?i)\b(bearer|basic)(\s+)(?=[\w.~+/=-]*[0-9=])[\w.~+/=-]{16,}", r"\1\2…"),
    (
        "gh github_pat glpat hf_ sk- pypi- xox akia asia",
        r"\b(?:gh[opsur]_|github_pat_|glpat-|hf_|sk-|pypi-|xox[abprs]-|AKIA|ASIA)(?=[\w-]*[0-9])[A-Za-z0-9-]{16,}",
        "…",
    ),
    (
        "npm_ dckr_pat_ nvapi- aiza ya29. sg. k_live_ k_test_",
        r"\b(?:npm_|dckr_pat_|nvapi-|AIza|ya29\.|SG\.|[sr]k_(?:live|test)_)(?=[\w.-]*[0-9])[\w.-]{16,}",
        "…",
    ),
    ("authorization", rf"(?i)\b(authorization{_SEPARATOR}(?:{_SCHEME})[ \t]+)[^\s\"',;&]{{8,}}", r"\1…"),
    ("authorization", rf"(?i)\b(authorization{_SEPARATOR})(?!{_SCHEME})(?=[^\s\"',;&]*[0-9])[^\s\"',;&]{{8,}}", r"\1…"),
    ("pass secret key token", rf"(?i)\b(\w*(?:{_SENSITIVE}){_SEPARATOR}){_value(4)}", r"\1…"),
    # A line of a file of settings has spaces, too: what is as long and mixed as a key is none of the program's names.
    (
        "pass secret key token",
        rf"(?i)\b(\w*(?:{_SENSITIVE}|token)(?:_?[0-9])?[ \t]*=[ \t]*){_MIXED}[\w/+~-]{{16,}}={{0,2}}(?![\w.(\[])",
        r"\1…",
    ),
    # "token" is also a word of parsers.
    ("token", rf"(?i)\b(\w*token{_SEPARATOR})(?=[\w.~+/-]*[0-9])(?=[\w.~+/-]*[a-z])[\w.~+/=-]{{8,}}", r"\1…"),
)
"""Patterns of passwords, tokens and keys, which must not be published even where a message quotes them.

Before each are texts in small letters, one of which every match contains: looking for them is much faster.
"""

_SECRET_PATTERNS = [(hints.split(), re.compile(pattern), replacement) for hints, pattern, replacement in _SECRETS]

_SCRUBBING: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
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

_PRIVATE_NAME = re.compile(
    rf"(?i)(?:{_SENSITIVE}|token|key|credentials?|cookie|dsn|_auth|(?:^|_)(?:pass|pwd|pw))(?:_?[0-9])?$"
)
"""How the names of environment variables end whose values are secrets."""

_LAST_NAME = re.compile(r"(?:\.|\[[\"'])([^.\[\]\"']+)(?:[\"']\])?$")
"""The key or attribute at the end of a place, such as ``result['password']``."""

LEAST_SECRET = 6
"""Characters from which the value of such a variable is taken for a secret; a shorter one may stand in any text."""

_PUBLIC_VALUE = re.compile(
    r"(?i)[~/].*|[A-Z]:\\.*|true|false|none|default|enabled|disabled|optional|required", re.DOTALL
)
"""Values of such variables that are no secrets: the path of a file with a key, and switches."""

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


def _secret_values() -> list[str]:
    """Return the values of this process's environment that are secrets, longest first.

    Also as Python and JSON write them between quotes, and as they stand in an address.
    """
    values = {
        value
        for name, value in os.environ.items()
        if len(value) >= LEAST_SECRET and _PRIVATE_NAME.search(name) and not _PUBLIC_VALUE.fullmatch(value)
    }
    quoted = {text[1:-1] for value in values for text in (repr(value), ascii(value), json.dumps(value))}
    in_addresses = {urllib.parse.quote(value, safe="") for value in values}
    return sorted(values | quoted | in_addresses, key=len, reverse=True)


def without_secrets(text: str) -> str:
    """Return a text without passwords, tokens and keys: what looks like one, and the environment's own.

    Of a value that was cut short, the beginning goes as well.
    """
    return _without(text, _secret_values())


def _without(text: str, values: list[str]) -> str:
    for value in values:
        text = text.replace(value, "…")
        beginning = value[:LEAST_SECRET]
        position = text.find(beginning)
        while position >= 0:
            end = text.find("…", position)
            if end >= 0 and value.startswith(text[position:end]):
                text = text[:position] + text[end:]
            position = text.find(beginning, position + 1)
    lowered = text.lower()
    for hints, pattern, replacement in _SECRET_PATTERNS:
        if any(hint in lowered for hint in hints):
            text = pattern.sub(replacement, text)
    return text


def _is_private(key: Any, item: Any, part: Mapping[Any, Any]) -> bool:
    """Whether an item of a difference is a quoted text from a place that is called a password, a token or a key."""
    if key == "where" or not isinstance(item, str) or not re.match(r"b?[\"']", item):
        return False
    place = _LAST_NAME.search(str(part.get("where", "")))
    return place is not None and _PRIVATE_NAME.search(place[1]) is not None


def without_secrets_inside(value: Any) -> Any:
    """Return a value of plain dicts, lists and texts whose texts are without secrets.

    In a description of a difference, what a key or an attribute with the name of a secret has is one, too.
    """
    secrets = _secret_values()

    def cleaned(part: Any) -> Any:
        if isinstance(part, str):
            return _without(part, secrets)
        if isinstance(part, dict):
            return {key: "'…'" if _is_private(key, item, part) else cleaned(item) for key, item in part.items()}
        if isinstance(part, list | tuple):
            return [cleaned(item) for item in part]
        return part

    return cleaned(value)


def scrub(message: str) -> str:
    """Return a message without secrets, addresses, paths, temporary names, times and advice, of a readable length."""
    message = without_secrets(message[:MOST_READ])
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
