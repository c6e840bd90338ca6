"""The public address of the pytest plugin, for ``-p`` and ``pytest_plugins``; the tool ``check`` contains it."""

from __future__ import annotations

import importlib
import sys

sys.modules[__name__] = importlib.import_module("recapture.tools.check.pytest_plugin")
