"""Finds the files of a target and of the user's modules that it imports, without executing them, and hashes them."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
from modulefinder import ModuleFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def code_hash(places: Iterable[str]) -> str:
    """Return the hash of the names and contents of all files that `code_files` finds."""
    digest = hashlib.sha256()
    for path in code_files(places):
        digest.update(f"{path}\n".encode(errors="surrogateescape"))
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def code_files(places: Iterable[str]) -> list[Path]:
    """Return the files of targets, and of what they import, also indirectly, from their folders and the current one.

    A place is the path of a file, or the name of a module that is looked for in the current folder. Installed packages
    are left out: the environment decides about them. So are files that are imported by names computed at run time.
    """
    found: set[Path] = set()
    for place in places:
        is_file = place.endswith(".py")
        folder = Path(place).resolve().parent if is_file else Path.cwd()
        found |= {Path(place).resolve()} if is_file else set()
        found |= _imported(place, folder, is_file=is_file)
    return sorted(found)


def _imported(place: str, folder: Path, *, is_file: bool) -> set[Path]:
    if not is_file and importlib.machinery.PathFinder.find_spec(place.partition(".")[0], [str(folder)]) is None:
        return set()
    finder = ModuleFinder(path=list(dict.fromkeys((str(folder), str(Path.cwd())))))
    # A file with a mistake is found again, and named, when it is executed.
    with contextlib.suppress(Exception):
        if is_file:
            finder.run_script(str(Path(place).resolve()))
        else:
            finder.import_hook(place)
    files = (getattr(module, "__file__", None) for module in finder.modules.values())
    return {Path(file).resolve() for file in files if file is not None and file.endswith(".py")}
