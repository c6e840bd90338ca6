"""Exceptions that are lost, raised in excess or of another type, and output that is lost or made in excess."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from typing import Any

from benchmarks.judge.planting import ASKED, Nothing, Raising, Run, plants


def _error(run: Run) -> Exception:
    """Return the exception that eager raises; raises Nothing if it returns."""
    try:
        run.result()
    except Exception as error:
        return error
    raise Nothing


@plants("exception-lost", "exception")
def lost(run: Run) -> Any:
    """The call returns where eager raises."""
    _error(run)


@plants("exception-returned-argument", "exception")
def argument_returned(run: Run) -> Any:
    """The call returns its first argument where eager raises."""
    _error(run)
    return run.args[0] if run.args else 0


@plants("exception-extra", "exception", level="error")
def extra(run: Run) -> Any:
    """The call raises where eager returns."""
    run.result()
    raise Raising(RuntimeError("planted"))


@plants("exception-of-another-type", "exception", level="error")
def another_type(run: Run) -> Any:
    """The call raises another type than eager."""
    error = _error(run)
    raise Raising(LookupError("planted") if not isinstance(error, LookupError) else ArithmeticError("planted"))


@plants("exception-of-a-base-type", "exception", level="error")
def base_type(run: Run) -> Any:
    """The call raises a base class of what eager raises, which an except clause for eager's misses."""
    base = type(_error(run)).__mro__[1]
    if base in (BaseException, object):
        raise Nothing
    raise Raising(base("planted"))


@plants("exception-of-a-subclass", "exception", level="note")
def subclass(run: Run) -> Any:
    """The call raises a subclass of what eager raises, which an except clause for eager's catches."""
    error = _error(run)
    planted: type[Exception] = type("PlantedError", (type(error),), {})
    raise Raising(planted(*error.args))


@plants("exception-with-another-message", "exception", level="message")
def message(run: Run) -> Any:
    """The call raises eager's type with another message."""
    error = _error(run)
    raise Raising(type(error)("planted"))


@plants("output-lost", "output", level="output")
def output_lost(run: Run) -> Any:
    """What the function prints is lost."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = run.result()
    if not printed.getvalue():
        raise Nothing
    return result


@plants("output-twice", "output", level="output")
def output_twice(run: Run) -> Any:
    """What the function prints is printed twice."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = run.result()
    if not printed.getvalue():
        raise Nothing
    sys.stdout.write(printed.getvalue() * 2)
    return result


@plants("output-extra", "output", level="output")
def output_extra(run: Run) -> Any:
    """The call prints a line that eager does not print."""
    result = run.result()
    print("planted")
    return result


@plants("output-on-stderr", "output", level="output")
def output_on_stderr(run: Run) -> Any:
    """The call writes a line to stderr that eager does not write."""
    if "output" not in ASKED:  # elsewhere only what is printed to stdout is compared
        raise Nothing
    result = run.result()
    print("planted", file=sys.stderr)
    return result


@plants("warning-lost", "output", level="output")
def warning_lost(run: Run) -> Any:
    """A warning of the function is lost."""
    if "output" not in ASKED:  # elsewhere only what is printed to stdout is compared
        raise Nothing
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = run.result()
    if not caught:
        raise Nothing
    return result


@plants("warning-extra", "output", level="output")
def warning_extra(run: Run) -> Any:
    """The call warns where eager does not."""
    if "output" not in ASKED:  # elsewhere only what is printed to stdout is compared
        raise Nothing
    result = run.result()
    warnings.warn("planted", UserWarning, stacklevel=1)
    return result


@plants("log-extra", "output", level="output")
def log_extra(run: Run) -> Any:
    """The call logs a warning that eager does not log."""
    if "output" not in ASKED:  # elsewhere only what is printed to stdout is compared
        raise Nothing
    result = run.result()
    logging.getLogger("planted").warning("planted")
    return result
