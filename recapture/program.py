"""How the processes of this project are started."""

from __future__ import annotations

from pathlib import Path

__all__ = ["program"]

PACKAGE = str(Path(__file__).parent)


def program(module: str) -> str:
    """Return Python that runs a module of this very package, as ``python -m`` does but for two things.

    The caller's directory comes last on the path, for there a suite may be called types.py and would be taken for the
    library's own. And another copy of this package that is installed is not taken for this one.
    """
    return f"""
import sys
if sys.path[0] == "":
    import os
    sys.path[0:1] = []
    sys.path.append(os.getcwd())
import importlib.util, runpy
package = {PACKAGE!r}
where = dict(submodule_search_locations=[package])
spec = importlib.util.spec_from_file_location("recapture", package + "/__init__.py", **where)
sys.modules["recapture"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["recapture"])
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""
