"""Operators that a file registers with `torch.library`: undone before the file is executed again in one process."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

__all__ = ["release_libraries"]


def release_libraries(namespace: dict[str, Any]) -> None:
    """Undo what the `torch.library.Library` objects in a module's namespace have registered.

    A process that executes a file of cases again would otherwise define its operators twice, which torch refuses.
    """
    kind = getattr(sys.modules.get("torch.library"), "Library", None)
    if kind is None:
        return
    for one in [value for value in namespace.values() if isinstance(value, kind)]:
        if hasattr(one, "_destroy"):
            one._destroy()  # noqa: SLF001 - torch has no public way
            continue
        with contextlib.suppress(AttributeError):  # releases before 2.2 undo it where the object ends
            one.__del__()
        vars(sys.modules["torch"].ops).pop(str(one.ns), None)  # they keep the operators that were looked up
