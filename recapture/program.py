"""How the processes of this project are started."""

from __future__ import annotations

from pathlib import Path

__all__ = ["program"]

PARENT = str(Path(__file__).parents[1])


def program(module: str) -> str:
    """Python that runs a module of this project as ``python -m`` does, but for the caller's directory, which comes last.

    There a suite may be called types.py, and would be taken for the library's own.
    """
    return f"""
import sys
if sys.path[0] == "":
    import os
    sys.path[0:1] = []
    sys.path += [{PARENT!r}, os.getcwd()]
import runpy
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""
