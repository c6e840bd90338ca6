"""Packs modules of this package into one archive that Python can import from, for a script that needs torch alone.

The judge imports torch and the standard library, and nothing else from outside. So `packed("recapture.judge.steps")` is
the whole judge.
"""

from __future__ import annotations

import ast
import io
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from recapture.base.paths import PACKAGE

ROOT = PACKAGE.name
"""The name of the package whose modules can be packed."""

ROOT_TEXT = '"""The part of recapture that this archive needs; `pip install recapture` has all of it."""\n'
"""What stands for the package's own ``__init__``, which imports the public names and with them other packages."""

BEGIN = (1980, 1, 1, 0, 0, 0)
"""The time of every file in an archive, the earliest of the format: the bytes depend on the sources alone."""


@lru_cache
def packed(*modules: str) -> bytes:
    """Return a zip archive of modules and of all modules of this package that they import, also inside functions.

    A script writes it to a file and puts the file on ``sys.path``. The same sources give the same bytes. The files are
    not compressed: the whole archive gets smaller if it is compressed as one. Raises ValueError for a module that this
    package does not have.
    """
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name, source in sorted(sources(*modules).items()):
            path = name.replace(".", "/") + ("/__init__.py" if _file(name).name == "__init__.py" else ".py")
            file.writestr(zipfile.ZipInfo(path, BEGIN), source)
    return archive.getvalue()


def sources(*modules: str) -> dict[str, str]:
    """Return the text of the files of an archive by their modules; see `packed`."""
    texts = {ROOT: ROOT_TEXT}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in texts:
            continue
        texts[name] = _file(name).read_text(encoding="utf-8")
        waiting += [name.rpartition(".")[0], *_imported(ast.parse(texts[name]))]
    return texts


def _imported(tree: ast.AST) -> Iterator[str]:
    """Yield the modules of this package that code imports when it runs; not those that only annotations need."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] == ROOT)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == ROOT:
            module = str(node.module)
            yield module
            yield from (name for alias in node.names if _exists(name := f"{module}.{alias.name}"))
        else:
            yield from _imported(node)


def _file(module: str) -> Path:
    """Return the source file of a module."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    for file in (path / "__init__.py", path.with_suffix(".py")):
        if file.is_file():
            return file
    raise ValueError(f"{ROOT} has no module {module!r}")


def _exists(module: str) -> bool:
    path = PACKAGE.joinpath(*module.split(".")[1:])
    return (path / "__init__.py").is_file() or path.with_suffix(".py").is_file()
