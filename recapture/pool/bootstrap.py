"""Starts the processes of this project: ``python bootstrap.py MODULE ARGUMENT...``.

This differs from ``python -m MODULE ARGUMENT...`` in two ways. The caller's directory comes last on the path, because a
suite there may be called types.py, and would be imported instead of the standard library's module. And the package
that runs is always the one that contains this file, even if another copy is installed.
"""

from __future__ import annotations

import sys


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs a module of this package in a separate process."""
    return [sys.executable, __file__, module, *arguments]


def _run() -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # this file's folder: its modules must not be importable by their bare names
    import importlib.util
    import os
    import runpy

    sys.path.append(os.getcwd())  # noqa: PTH109 - avoids importing pathlib
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    spec = importlib.util.spec_from_file_location(
        "recapture",
        os.path.join(package, "__init__.py"),  # noqa: PTH118
        submodule_search_locations=[package],
    )
    if spec is None or spec.loader is None:
        raise ImportError(package)
    sys.modules["recapture"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["recapture"])
    from recapture.base import paths

    paths.callers_directory = sys.path[-1]
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run()
