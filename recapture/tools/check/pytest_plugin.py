"""The pytest plugin: ``@pytest.mark.recapture`` makes a test function one test for each compiler.

The function returns what is checked: ``(target, example)``, as `recapture.check` takes them. Without pytest-xdist, one
check runs all compilers of a function that were selected; under it, each test runs its own compiler, in the process
that got it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recapture.cases.compilers import builtin_compilers
from recapture.records.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from recapture.tools.check.answers import CheckReport
    from recapture.tools.check.api import CheckResult

MARK = "recapture"
"""Name of the marker."""

ARGUMENT = "recapture_compiler"
"""Name of the parameter that makes a test for each compiler."""

DEFAULT_COMPILERS = tuple(
    compiler.name
    for compiler in sorted(builtin_compilers().values(), key=lambda each: (each.generates_code, not each.torch_alone))
    if "pytest" in compiler.run_by
)
"""Compilers of a marker that names none, the quickest first."""

DEFAULT_FAIL_ON = ("silently_wrong", "failing")
"""What fails a test if its marker does not say."""

OPTIONS = frozenset(
    {"compilers", "fail_on", "held_out", "train", "derive", "most_inputs", "nonfinite", "dtypes", "device", "timeout"}
)
"""Keywords of the marker."""

RESULTS: pytest.StashKey[dict[str, CheckResult]] = pytest.StashKey()
"""Results by test function and compiler, in the session's configuration."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the folder of scripts."""
    group = parser.getgroup("recapture")
    group.addoption("--recapture-scripts", metavar="DIR", help="Write the script of each failed check to this folder.")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        "recapture(compilers=…, fail_on=…, held_out=…, train=…): compare each compiler with eager on the (target, "
        "example) that the function returns; fail_on: silently_wrong, failing, breaks, any, accepts_refused",
    )
    config.stash[RESULTS] = {}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test for each compiler of a marked function."""
    mark = metafunc.definition.get_closest_marker(MARK)
    if mark is None:
        return
    unknown = sorted(set(mark.kwargs) - OPTIONS)
    if unknown or mark.args:
        raise pytest.UsageError(f"@pytest.mark.recapture takes {', '.join(sorted(OPTIONS))}, by name")
    compilers = mark.kwargs.get("compilers", DEFAULT_COMPILERS)
    if isinstance(compilers, str):
        raise pytest.UsageError(f"@pytest.mark.recapture: compilers is a list of names, not {compilers!r}")
    if ARGUMENT not in metafunc.fixturenames:  # pytest parametrizes what a function asks for alone
        metafunc.fixturenames.append(ARGUMENT)
    metafunc.parametrize(ARGUMENT, list(compilers), indirect=True)


@pytest.fixture
def recapture_compiler(request: pytest.FixtureRequest) -> str:
    """Return the compiler of this test."""
    name: str = request.param
    return name


@pytest.fixture
def recapture_check() -> Callable[..., CheckResult]:
    """Return `recapture.check`, for tests that look at its result themselves."""
    from recapture.tools.check.api import check

    return check


# First, because pytest itself would call the function, and complain that a test returns something.
@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    """Check what a marked function returns, with the compiler of this test."""
    mark = pyfuncitem.get_closest_marker(MARK)
    if mark is None:
        return None
    compiler = str(pyfuncitem.callspec.params[ARGUMENT])
    result = _result(pyfuncitem, mark, compiler)
    _judge(pyfuncitem, result, compiler, mark.kwargs.get("fail_on", DEFAULT_FAIL_ON))
    return True


def _result(item: pytest.Function, mark: pytest.Mark, compiler: str) -> CheckResult:
    """Return a result with this compiler: an earlier one of the same function, or a new one."""
    from recapture.base.errors import RecaptureError
    from recapture.tools.check.api import check

    known = item.config.stash[RESULTS]
    key = f"{item.parent.nodeid if item.parent else ''}::{_variant(item)}"
    if (earlier := known.get(f"{key}::{compiler}")) is not None:
        return earlier
    arguments = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}  # noqa: SLF001 - as pytest itself
    subject = item.obj(**arguments)
    if not isinstance(subject, tuple) or len(subject) != 2:
        pytest.fail("a test marked with recapture returns (target, example)", pytrace=False)
    options = {name: value for name, value in mark.kwargs.items() if name not in ("compilers", "fail_on")}
    compilers = [compiler] if "PYTEST_XDIST_WORKER" in os.environ else _selected(item)
    try:
        result = check(*subject, compilers=compilers, **options)
    except RecaptureError as error:
        pytest.fail(str(error), pytrace=False)
    known |= {f"{key}::{name}": result for name in compilers}
    return result


def _variant(item: pytest.Function) -> str:
    """Return a function's name with its other parameters, which are the same for all of its compilers."""
    others = {name: value for name, value in item.callspec.indices.items() if name != ARGUMENT}
    return f"{item.originalname}{sorted(others.items())}"


def _selected(item: pytest.Function) -> list[str]:
    """Return the compilers of the selected tests of one function."""
    function = item.parent, _variant(item)
    return [
        str(other.callspec.params[ARGUMENT])
        for other in item.session.items
        if isinstance(other, pytest.Function)
        and other.get_closest_marker(MARK) is not None
        and (other.parent, _variant(other)) == function
    ]


def _judge(item: pytest.Function, result: CheckResult, compiler: str, fail_on: Sequence[str]) -> None:
    """Fail or skip a test by the verdict of its compiler."""
    from recapture.tools.check.answers import FAIL_ON, failed

    fail_on = (fail_on,) if isinstance(fail_on, str) else tuple(fail_on)
    if not set(fail_on) <= set(FAIL_ON):
        raise pytest.UsageError(f"@pytest.mark.recapture: fail_on is of {', '.join(FAIL_ON)}")
    row = result[compiler]
    if Verdict(row.verdict).facts.skipped:
        pytest.skip(f"{row.verdict}: {row.reason}")
    report: CheckReport = result.report
    if row not in failed(report, fail_on):
        return
    script = _folder(item.config) / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', item.nodeid)}.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(result.repro(compiler), encoding="utf-8")
    lines = [f"{report.target}: {compiler} is {row.words}", *(f"  {difference}" for difference in row.differences[:5])]
    lines += [f"  {row.reason}"] if not row.differences else []
    lines += [f"to do: {row.advice}"] if row.advice else []
    lines += [f"to see it: python {script}"]
    pytest.fail("\n".join(lines), pytrace=False)


def _folder(config: pytest.Config) -> Path:
    """Return the folder of scripts: the one of the option, or one in pytest's cache."""
    named = config.getoption("--recapture-scripts")
    if named:
        return Path(named)
    cache = getattr(config, "cache", None)
    return Path(cache.mkdir("recapture")) if cache is not None else config.rootpath / ".recapture"
