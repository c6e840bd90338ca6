"""The files of a project that decide what its tests do, at one moment: their hash, and which of them changed since."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from recapture.base.text import in_a_row

_ENDINGS = (".py", ".pyi", ".toml", ".cfg", ".ini", ".c", ".cc", ".cpp", ".cu", ".h", ".pyx", ".rst", ".txt")
"""Endings of the files that decide what a test does."""

_TEXTS = (".rst", ".txt")
"""Endings of those that tests write, too: one that is gone is no edit."""

_NOT_SOURCES = ("build", "dist", "node_modules", "__pycache__", "site-packages")

_LARGEST = 1 << 20
"""Bytes of the largest file whose content is read; of a larger one only the size counts."""

_FOUND_BY_ITSELF = re.compile(r"(test_.*|.*_test|conftest)\.py|.*\.(toml|cfg|ini)")
"""Names of files that count without another one that mentions them. Other new files may be what a test writes."""

_NAMED = 5
"""Files that a line names; the others are counted."""

_GIT_SECONDS = 30.0
"""The longest that git may take: a network file system may not answer."""


class _Source(NamedTuple):
    """A file: what a change of it changes, as cheaply as can be said, and the hash of its content."""

    mark: tuple[int, int, int]
    content: bytes


@dataclass(frozen=True)
class Sources:
    """The sources of the project in `root`, by their relative path, as they are at one moment."""

    root: Path
    files: Mapping[str, _Source]

    @classmethod
    def read(cls, root: Path, without: Path | None = None, earlier: Sources | None = None) -> Sources:
        """Return what the sources are now, without those in a folder that this tool writes.

        A file that looks as it did `earlier` is not read again.
        """
        known = earlier.files if earlier is not None else {}
        files = {}
        for path in _paths(root, without):
            with contextlib.suppress(OSError):  # removed meanwhile, or a link that leads nowhere
                facts = path.stat()
                if not stat.S_ISREG(facts.st_mode):  # a pipe would never end
                    continue
                mark = (facts.st_size, facts.st_mtime_ns, facts.st_ino)
                name = str(path.relative_to(root))
                before = known.get(name)
                if before is None or before.mark != mark:
                    content = path.read_bytes() if facts.st_size <= _LARGEST else str(facts.st_size).encode()
                    before = _Source(mark, hashlib.sha256(content).digest())
                files[name] = before
        return cls(root, files)

    def digest(self, without: Collection[str] = ()) -> str:
        """Return the hash of the names and contents of all files but some."""
        whole = hashlib.sha256()
        for name, source in self.files.items():
            if name not in without:
                whole.update(f"{name}\0".encode(errors="surrogateescape"))
                whole.update(source.content)
        return whole.hexdigest()

    def rewritten(self, later: Sources) -> set[str]:
        """Return the files that were written until `later`, be it with the same content."""
        return {name for name, source in later.files.items() if name in self.files and self.files[name] != source}

    def edits(self, later: Sources) -> list[str]:
        """Return the files that were edited, removed or added until `later`, sorted.

        What git ignores is left out, and so are new files that only the tests can have written.
        """
        edited = [
            name
            for name, source in self.files.items()
            if (name not in later.files and not name.endswith(_TEXTS))
            or (name in later.files and later.files[name].content != source.content)
        ]
        added = [
            name
            for name in later.files
            if name not in self.files and _FOUND_BY_ITSELF.fullmatch(name.rpartition("/")[2])
        ]
        return _not_ignored(self.root, sorted({*edited, *added}))


def _paths(root: Path, without: Path | None) -> Iterator[Path]:
    left_out = str(without) if without is not None else ""
    for folder, names, files in os.walk(root):
        names[:] = sorted(
            name
            for name in names
            if not name.startswith(".")
            and name not in _NOT_SOURCES
            and not name.endswith(".egg-info")
            and os.path.join(folder, name) != left_out  # noqa: PTH118 - faster
            and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))  # noqa: PTH110, PTH118 - faster
        )
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(_ENDINGS))


def _not_ignored(root: Path, names: Iterable[str]) -> list[str]:
    """Return the files that git does not ignore; all, where it cannot say so."""
    chosen = list(names)
    if not chosen:
        return []
    command = ["git", "-C", str(root), "check-ignore", "--stdin", "-z"]
    try:
        # Names need not be text: the file system has bytes.
        text = "\0".join(chosen).encode(errors="surrogateescape")
        done = subprocess.run(command, input=text, capture_output=True, timeout=_GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return chosen
    ignored = set(done.stdout.decode(errors="surrogateescape").split("\0"))
    return [name for name in chosen if name not in ignored]


def named_files(names: Sequence[str]) -> str:
    """Return a few of the files, and how many more there are."""
    return in_a_row([*names[:_NAMED], *([f"{len(names) - _NAMED} more"] if len(names) > _NAMED else [])])


def edited_text(names: Sequence[str]) -> str:
    """Return the line that says that files were edited while a command ran."""
    return (
        f"{named_files(names)} changed while this ran, so that not all runs had the same code: type the line again. "
        "A file that the command itself writes in each run does not count, nor does one that git ignores"
    )
