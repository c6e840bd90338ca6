"""Packs a caller's functions, modules and tensors for the processes that check them."""

from __future__ import annotations

import base64
import inspect
import io
import linecache
import os
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recapture.base.errors import UsageError
from recapture.base.exceptions import qualified, safe_text
from recapture.base.text import one_line
from recapture.tools.check.request import Pickled

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST_TEXT = 1 << 20
"""Bytes of the largest object that is written into the generated case; others get a file beside it."""


def place_of(target: Any) -> tuple[str, str] | None:
    """Return the file and the name of a function or class at the top level of a module that is in no package.

    Such a file can be executed anew for every run. None for everything else: it is pickled.
    """
    module = sys.modules.get(getattr(target, "__module__", None) or "")
    name = getattr(target, "__qualname__", "")
    file = getattr(module, "__file__", None)
    if module is None or module.__name__ == "__main__" or "." in module.__name__ or not file or not name.isidentifier():
        return None
    if getattr(module, name, None) is not target or Path(file).suffix != ".py" or Path(file).name == "__init__.py":
        return None
    return str(Path(file).resolve()), name


def pack(value: Any, folder: Path) -> Pickled:
    """Return an object as text; a large one is written to a file in `folder`. The object is not changed.

    Raises UsageError if it cannot be pickled.
    """
    import cloudpickle
    import torch

    data = io.BytesIO()
    try:
        torch.save(value, data, pickle_module=cloudpickle)
    except Exception as error:  # an object may raise anything when it is pickled
        why = one_line(f"{qualified(type(error))}: {safe_text(error)}")
        raise UsageError(f"{_shown(value)} cannot be sent to another process: {why}") from None
    content = data.getvalue()
    paths = search_path()
    sources = tuple(_sources(value))
    if len(content) > LARGEST_TEXT:
        number = len(list(folder.glob("*.packed")))
        file = folder / f"{number}.packed"
        file.write_bytes(content)
        return Pickled(f"@{file}", sources, paths)
    return Pickled(base64.b64encode(content).decode(), sources, paths)


def search_path() -> tuple[str, ...]:
    """Return the user's folders in which this process finds modules; another process may have others.

    Those of this Python and of its packages are left out: every process has them, and a script may be passed on.
    """
    folders = (os.path.abspath(path) for path in sys.path if isinstance(path, str))  # noqa: PTH100 - "" is the cwd
    own = {os.path.abspath(path) for path in sysconfig.get_paths().values()}  # noqa: PTH100
    parts = ("site-packages", "dist-packages", "lib-dynload")
    return tuple(
        folder
        for folder in folders
        if folder not in own and not set(parts) & set(Path(folder).parts) and not folder.endswith(".zip")
    )


def _shown(value: Any) -> str:
    name = getattr(value, "__qualname__", None) or type(value).__name__
    return one_line(str(name))[:100]


def _sources(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the name and text of what an object's code was compiled from, if it is no file: a notebook's cell."""
    seen: set[str] = set()
    kinds = [type(one) for one in value.modules()] if hasattr(value, "modules") else [value]
    functions = [one for kind in kinds for one in (vars(kind).values() if inspect.isclass(kind) else [kind])]
    for one in functions:
        code = getattr(one, "__code__", None)
        name = getattr(code, "co_filename", None)
        if not isinstance(name, str) or name in seen or Path(name).is_file():
            continue
        seen.add(name)
        lines = linecache.getlines(name, getattr(one, "__globals__", None))
        if lines:
            yield name, "".join(lines)
