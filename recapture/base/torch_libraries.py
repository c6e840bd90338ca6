"""Operators that a file registers with `torch.library`: undone before the file is executed again in one process."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import Any

__all__ = ["release_libraries"]


def release_libraries(namespace: dict[str, Any]) -> None:
    """Undo what a module has registered through `torch.library`; `namespace` are the module's globals.

    A process that executes a file again would otherwise define its operators twice, which torch refuses.
    """
    library = sys.modules.get("torch.library")
    kind = getattr(library, "Library", None)
    if kind is None:
        return
    kept: list[Any] = getattr(library, "_keep_alive", [])  # by functions such as `torch.library.define`
    own = _defined_in(str(namespace.get("__file__") or ""), kept)
    for one in [*(value for value in namespace.values() if isinstance(value, kind)), *own]:
        if hasattr(one, "_destroy"):
            one._destroy()  # noqa: SLF001 - torch has no public way
            continue
        with contextlib.suppress(AttributeError):  # releases before 2.2 undo it where the object ends
            one.__del__()
        vars(sys.modules["torch"].ops).pop(str(one.ns), None)  # they keep the operators that were looked up
    kept[:] = [one for one in kept if one not in own]


def _defined_in(path: str, kept: list[Any]) -> list[Any]:
    """Return the libraries of the operators that a file defines by `torch.library.define("mine::twice", …)`.

    Those of modules that the file imports stay, because they are not executed again.
    """
    if not kept or not path.endswith(".py"):
        return []
    try:
        with open(path, encoding="utf-8", errors="replace") as source:  # noqa: PTH123 - this is part of scripts
            defined = set(re.findall(r"\bdefine\(\s*[\"']([\w.:]+)[\"']", source.read()))
    except OSError:
        return []
    return [one for one in kept if not defined.isdisjoint(_operators(one))]


def _operators(library: Any) -> set[str]:
    """Return the operators that a library defines or implements, as ``mine::twice``."""
    implemented = {"::".join(key.split("/")[:2]) for key in getattr(library, "_op_impls", ())}
    return implemented | set(getattr(library, "_op_defs", ()))
