"""Names the modules that importing and making a target imports, so that a server can import them before it forks."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

INSTALLED = "site-packages"
"""The folder of installed packages."""


class ImportsOfTarget:
    """Watches imports while it is entered; `modules` are the installed ones that the user's code asks for.

    What they import themselves is left out, because it comes with them: a large package has more than a thousand
    modules, and its user names two of them.
    """

    def __init__(self) -> None:
        self._asked: list[str] = []
        self._outside: Any = None

    def __enter__(self) -> Self:
        self._outside = _caller()
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        sys.meta_path.remove(self)
        self._outside = None

    def find_spec(self, name: str, *_: object) -> None:
        """Note a module that is about to be imported; the finders that follow find it."""
        frame = _caller()
        while frame is not None and frame is not self._outside:
            code = frame.f_code
            if code.co_name == "<module>" and INSTALLED in code.co_filename:
                return
            frame = frame.f_back
        self._asked.append(name)

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules in the order in which they were imported."""
        return tuple(dict.fromkeys(name for name in self._asked if _is_installed(name)))


def _caller() -> Any:
    """Return the frame that called the function that asks."""
    here: Any = inspect.currentframe()
    return here.f_back.f_back


def _is_installed(name: str) -> bool:
    """Whether a module was imported from an installed package, which is neither torch nor this project."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None or INSTALLED not in Path(file).parts or name.partition(".")[0] in ("torch", "recapture"):
        return False
    return all(part.isidentifier() for part in name.split("."))
