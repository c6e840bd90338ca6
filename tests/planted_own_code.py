"""Checks of the planted functions and modules in ``resources/own_code.py``, through the shared worker server."""

from pathlib import Path

import pytest

from recapture.cases.target import parse_input
from recapture.tools.check import session
from recapture.tools.check.api import CheckResult
from recapture.tools.check.request import CheckOptions, CheckRequest
from recapture.tools.check.session import CheckEvents, run_check

USER = Path(__file__).parent / "resources" / "own_code.py"


@pytest.fixture
def served(warm, monkeypatch):
    """Checks of this process use the shared server."""
    monkeypatch.setattr(session, "WorkerPool", lambda **_: warm)
    return warm


def checked(name, *inputs, compilers=("jit.trace",), place=USER, timeout=600.0, case=lambda _: None, **fields):
    request = CheckRequest(place=str(place), name=name, inputs=tuple(map(parse_input, inputs)), **fields)
    return result_of(request, compilers=compilers, timeout=timeout, case=case)


def result_of(request, *, compilers=("jit.trace",), timeout=600.0, **events):
    options = CheckOptions(compilers=compilers, timeout=timeout)
    outcome = run_check(request, options, CheckEvents(**events))
    return CheckResult(outcome.report, outcome.scripts)
