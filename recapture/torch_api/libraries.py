"""Operators that a file registers with `torch.library`: undone before the file is executed again in one process."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any


def release_libraries(namespace: dict[str, Any]) -> None:
    """Undo what a module has registered through `torch.library`; `namespace` are the module's globals.

    A process that executes a file again would otherwise define its operators twice, which torch refuses.
    """
    library = sys.modules.get("torch.library")
    kind = getattr(library, "Library", None)
    if kind is None:
        return
    alive: list[Any] = getattr(library, "_keep_alive", [])  # by functions such as `torch.library.define`
    own = _defined_in(str(namespace.get("__file__") or ""), alive)
    for registered in [*(value for value in namespace.values() if isinstance(value, kind)), *own]:
        _undo(registered)
    alive[:] = [registered for registered in alive if registered not in own]


def _undo(library: Any) -> None:
    """Undo what a library has registered, whatever its release leaves to the end of the object.

    The object may live on: a cycle, or a decorated function, can hold it.
    """
    if hasattr(library, "_destroy"):
        library._destroy()  # noqa: SLF001 - torch has no public way
    else:  # 2.0 and 2.1
        library.m = None
    torch = sys.modules["torch"]
    for name in ("_impls", "_defs"):  # what torch refuses to register again; later releases' `_destroy` clears it
        own: set[str] = getattr(library, f"_op{name}", set())
        getattr(torch.library, name, set()).difference_update(own)
        if name == "_impls":
            own.clear()  # else the end of the object would clear what is registered by then
    if library.kind != "IMPL":  # torch keeps the operators that were looked up; later releases' `_destroy` forgets them
        _forget(vars(torch.ops), library)
        # From torch 2.14 on, the end of the object forgets them by name, also those of the next execution.
        getattr(library, "_op_defs", set()).clear()


def _forget(namespaces: dict[str, Any], library: Any) -> None:
    """Remove the operators that a library has defined from those that were looked up."""
    defined: set[str] | None = getattr(library, "_op_defs", None)
    if defined is None:  # 2.0 and 2.1 do not know which they are
        namespaces.pop(str(library.ns), None)
        return
    namespace = namespaces.get(str(library.ns))
    for name in defined if namespace is not None else ():
        vars(namespace).pop(name.split("::")[-1].split(".")[0], None)


def _defined_in(path: str, alive: list[Any]) -> list[Any]:
    """Return the libraries of the operators that a file defines by `torch.library.define("mine::twice", …)`.

    Those of modules that the file imports stay, because they are not executed again.
    """
    if not alive or not path.endswith(".py"):
        return []
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    defined = set(re.findall(r"\bdefine\(\s*[\"']([\w.:]+)[\"']", text))
    return [registered for registered in alive if not defined.isdisjoint(_operators(registered))]


def _operators(library: Any) -> set[str]:
    """Return the operators that a library defines or implements, as ``mine::twice``."""
    implemented = {"::".join(key.split("/")[:2]) for key in getattr(library, "_op_impls", ())}
    return implemented | set(getattr(library, "_op_defs", ()))
