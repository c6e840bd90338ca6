"""Loads suite files that one process executes many times: each file is compiled once."""

from __future__ import annotations

import marshal
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_COMPILED: dict[str, tuple[bytes, bytes]] = {}
"""The last source of each file in this process, by path, and what it was compiled to."""


class _SuiteLoader(SourceFileLoader):
    """Gives each execution of a file new code objects, because Dynamo keeps what it compiled beside them."""

    def source_to_code(self, data: Any, path: Any = "<string>", **options: Any) -> Any:  # type: ignore[override]
        """Return the code of a module's source."""
        known, compiled = _COMPILED.get(str(path), (None, b""))
        if known != data:
            compiled = marshal.dumps(super().source_to_code(data, path, **options))
            _COMPILED[str(path)] = (bytes(data), compiled)
        return marshal.loads(compiled)  # noqa: S302 - written above


def suite_loader(name: str, path: Path) -> SourceFileLoader | None:
    """Return the loader of a Python file as the module `name`; None for a file of another kind."""
    return _SuiteLoader(name, str(path)) if path.suffix == ".py" else None
