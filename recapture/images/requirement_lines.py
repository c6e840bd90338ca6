"""The lines of a requirements file, and what each names: a package of an index, a file or an address, or an option.

The syntax is that of pip and uv: https://pip.pypa.io/en/stable/reference/requirements-file-format/.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

from recapture.base.errors import UsageError
from recapture.base.files import read_regular
from recapture.base.text import shorten

LARGEST = 1 << 20
"""Bytes of the largest requirements file that is read."""

DEEPEST = 50
"""Files of requirements that may name each other in a row."""

LONGEST_REASON = 300
"""Characters of the longest reason why a file cannot be read, which may quote a path of the user's file."""

HASH = re.compile(r"\s--hash[=\s]\s*(\S+)")
"""The hash of a file that a line allows."""

EDITABLE = re.compile(r"(?:-e|--editable)[\s=]+")
"""What stands before a folder that is installed in place."""

_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
"""A variable of the environment, which uv replaces by its value."""

_NEXT_OPTION = re.compile(
    r"\s+(?=(?:-[rcfi]|--(?:requirement|constraint|find-links|index-url|extra-index-url|no-index|require-hashes"
    r"|prefer-binary|pre|no-binary|only-binary|trusted-host))(?:[\s=]|$))"
)
"""What stands between two options of one line."""

_ARCHIVES = (".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar")
"""How the names of files end that are packages."""

_FIND_LINKS = re.compile(r"(?:-f|--find-links)[\s=]+(?P<place>.+)")
_OTHER_FILE = re.compile(r"(?:-r|--requirement|-c|--constraint)[\s=]+(?P<path>.+)")


def lines_of(files: Iterable[Path]) -> tuple[tuple[Path, str], ...]:
    """Return pairs of a file and a line of it: those of requirements files and of the files that they name.

    Lines have no comments, and each option is a line of its own. Raises UsageError, naming the file, for one that
    cannot be read.
    """
    read: set[Path] = set()
    return tuple(line for path in files for line in _lines(path, read))


def _lines(path: Path, read: set[Path], depth: int = 0) -> Iterator[tuple[Path, str]]:
    """Yield the lines of a requirements file without comments, those of the files that it names in their place.

    Each file is read once, however often it is named; `read` holds those that were, and `depth` is how many files in a
    row have led here.
    """
    if path in read:
        return
    read.add(path)
    if depth > DEEPEST:
        raise UsageError(f"--with {path.name}: more than {DEEPEST} files name each other with -r in a row")
    try:
        # With a mark of its encoding, as editors on Windows write.
        text = read_regular(path, most=LARGEST).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"--with {path}: not a text file") from None
    except UsageError as error:
        raise UsageError(f"--with: {shorten(str(error), LONGEST_REASON)}") from None
    if "\0" in text:
        raise UsageError(f"--with {path}: not a text file")
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        words = re.sub(r"(^|\s)#.*", "", line).strip()
        is_option = words.startswith("-") and not EDITABLE.match(words)
        for part in _NEXT_OPTION.split(words) if is_option else [words]:
            if match := _OTHER_FILE.fullmatch(part):
                name = _unquoted(match["path"])
                if "://" in name:
                    raise UsageError(f"{path.name}: -r and -c take a file, and not the address {shorten(name, 100)}")
                yield from _lines(real_path(path.parent / name), read, depth + 1)
            elif links := _FIND_LINKS.fullmatch(part):
                place = _unquoted(links["place"])
                # A path is relative to the file that has it; the line will stand in another one.
                is_complete = "://" in place or place.startswith("${")  # a variable, which uv replaces
                yield path, f"--find-links {place if is_complete else path.parent.absolute() / place}"
            elif part:
                yield path, part


def _source(line: str) -> str:
    """Return what a requirement names, without its hashes, its marker and its extras; what follows ``@``, if it has."""
    text = HASH.sub("", EDITABLE.sub("", line)).strip()
    text = re.split(r"\s@\s*|(?<=\])@\s*|^[\w.-]+@\s*", text, maxsplit=1)[-1]
    text = re.split(r"\s*;|\s*\\?\n|\s+\\", text, maxsplit=1)[0]
    return re.sub(r"\[[^\]]*\]$", "", text.partition("#")[0].strip())


def is_file(line: str) -> bool:
    """Whether a line names a file, a folder or an address and no package by its name."""
    text = HASH.sub("", line).strip()
    named = _source(line)
    return (
        bool(EDITABLE.match(text))
        or text.startswith((".", "/", "~", "${"))
        or bool(re.match(r"[\w+]+:/", text))
        or (text.startswith(named) and (named.lower().endswith(_ARCHIVES) or "/" in named))
    )


def file_of(line: str) -> str:
    """Return the last part of the path or address that a requirement names, which may follow a name and ``@``."""
    return unquote(Path(_source(line)).name)


def meaning_here(lines: Sequence[str]) -> list[str]:
    """Return what decides, beside lines themselves, which packages they are on this machine and in this folder.

    That is the values of their variables, and the folder of their relative paths. A file that is named by its path
    counts with its size and time, since it can be built anew.
    """
    names = sorted({name for line in lines for name in _VARIABLE.findall(line)})
    variables = [f"{name}={os.environ.get(name)}" for name in names]
    paths = [_VARIABLE.sub(lambda match: os.environ.get(match[1], ""), _path_in(line)) for line in lines]
    folder = [str(Path.cwd())] if any(path and not Path(path).is_absolute() for path in paths) else []
    return [*variables, *folder, *(_stamp(path) for path in paths if path)]


def _path_in(line: str) -> str:
    """Return the path on this machine that a line names; an empty text for a package of an index or an address."""
    option = re.fullmatch(r"--?[a-z-]+(?:[\s=]+(?P<value>.+))?", line)
    if option is not None and not EDITABLE.match(line):
        value = _unquoted(option["value"] or "")
        names_place = re.match(r"-f|-i|--find-links|--index-url|--extra-index-url", line)
        source = value if names_place else ""
    else:
        text = HASH.sub("", line)
        source = _source(line) if is_file(line) or "@" in text.partition(";")[0] else ""
    if source.startswith("file:"):
        return re.sub(r"^file:(//(localhost)?(?=/|\$))?", "", source)
    return "" if re.match(r"[\w+]+:", source) else source


def _stamp(path: str) -> str:
    """Return the size and the time of a file; an empty text for what is none."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return ""
    return f"{status.st_size} {status.st_mtime_ns}" if stat.S_ISREG(status.st_mode) else ""


def real_path(path: Path) -> Path:
    """Return a path without links; unlike `Path.resolve`, also where links lead in a circle."""
    return Path(os.path.realpath(path))


def _unquoted(text: str) -> str:
    return text.strip().strip("'\"")
