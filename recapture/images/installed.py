"""Prints what an environment has installed, as JSON: run by that environment's Python.

``python bootstrap.py recapture.images.installed [MODULE]...`` imports the named modules first, and fails where one
fails.
"""

from __future__ import annotations

import importlib
import json
import platform
import sys

from recapture.machine.describe import installed_packages

if __name__ == "__main__":
    for module in sys.argv[1:]:
        importlib.import_module(module)
    print(json.dumps({"python": platform.python_version(), "packages": installed_packages()}))
