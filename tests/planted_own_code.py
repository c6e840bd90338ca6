"""Checks of the planted functions and modules in ``resources/own_code.py``, through the shared worker server."""

from pathlib import Path

import pytest

from recapture.tools.check import session
from recapture.tools.check.api import run_check
from recapture.tools.check.request import CheckRequest, parse_input
from recapture.tools.check.session import CheckOptions

USER = Path(__file__).parent / "resources" / "own_code.py"


@pytest.fixture
def served(warm, monkeypatch):
    """Checks of this process use the shared server."""
    monkeypatch.setattr(session, "WorkerPool", lambda **_: warm)
    return warm


def checked(name, *given, compilers=("jit.trace",), **options):
    request = CheckRequest(place=str(USER), name=name, given=tuple(map(parse_input, given)), **options)
    return run_check(request, CheckOptions(compilers=compilers), scripts=options.get("scripts", False))
