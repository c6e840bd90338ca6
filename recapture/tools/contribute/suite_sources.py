"""The hashes that the suites of another commit of this checkout give to a case; nothing of them is executed."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path

from recapture.base.paths import data_folder
from recapture.cases.collection import shipped_groups, shipped_suites
from recapture.cases.source import closure, parse_file
from recapture.cases.syntax import called_part, dotted

MAKER = "case_for_each"
"""Name of the decorator of functions that make cases, whose hashes include the case's name."""

HASH_DIGITS = 12
"""Hexadecimal digits of a case's hash."""


def hashes_at(commit: str | None, case: str) -> set[str]:
    """Return the hashes that ``suite::case`` can have at a commit; none if this checkout does not know the commit.

    A commit with ``-dirty`` stands for the commit itself: what was changed since is not known.
    """
    suite, _, name = case.partition("::")
    path = _paths().get(suite)
    text = _text_at(commit.removesuffix("-dirty"), path) if commit and path else None
    if text is None:
        return set()
    with tempfile.TemporaryDirectory(prefix="recapture-suite-") as folder:
        copy = Path(folder) / f"{suite}.py"
        copy.write_bytes(text)
        try:
            return _hashes(copy, name)
        except (OSError, SyntaxError, ValueError):
            return set()


def _paths() -> dict[str, Path]:
    """Return the files of the suites that ship, by name."""
    groups = (suite for suites in shipped_groups().values() for suite in suites)
    return {suite.name: suite.path for suite in (*shipped_suites(), *groups)}


def _text_at(commit: str, path: Path) -> bytes | None:
    """Return a file as it was at a commit; None outside git, or if the checkout has no such commit or file."""
    place = data_folder("suites")
    command = ["git", "-C", str(place), "show", f"{commit}:./{path.relative_to(place)}"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _hashes(path: Path, name: str) -> set[str]:
    """Return the hash of a definition, or those of a case of this name that each function of the file would make."""
    try:
        return {closure(path, name).hash}
    except KeyError:
        pass
    source = parse_file(path)
    makers = [
        node.name
        for node in source.body
        for decorator in source.our_decorators(node)
        if (dotted(called_part(decorator)) or "").endswith(MAKER) and hasattr(node, "name")
    ]
    # As `recapture.cases.collection.case_hash`, for cases without text from outside their file.
    texts = (f"{closure(path, maker).hash}\n{name}\n" for maker in makers)
    return {hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS] for text in texts}
