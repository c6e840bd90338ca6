"""Exceptions of user code as text. Their own methods may raise, which these functions handle."""

from __future__ import annotations

import traceback

from recapture.base.scrub import encodable

SUITE_MODULES = "recapture_suite_"
"""What the names of the modules that are made from files of suites begin with."""


def qualified(kind: type) -> str:
    """Return a type's name with its module: no module for builtins, the suite's name for suite files."""
    try:
        # Of the class `str`, so that a text of the case's own class runs no code: this is called for every value.
        module, name = str.removeprefix(kind.__module__, SUITE_MODULES), str(kind.__qualname__)
    except Exception:  # a metaclass or a __module__ of the case's own
        return encodable(type.__dict__["__qualname__"].__get__(kind))
    return encodable(name if module == "builtins" else f"{module}.{name}")


def safe_text(error: BaseException) -> str:
    """Return ``str(error)``, or a substitute where ``__str__`` raises."""
    try:
        return encodable(str(error))
    except BaseException as second:  # the case's own code runs here
        return f"<the exception's own __str__ raised {type(second).__name__}>"


def traceback_text(error: BaseException) -> str:
    """Return the traceback of an exception; only its type and message where formatting it raises."""
    try:
        return "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except BaseException:  # formatting calls __str__ too
        return f"{qualified(type(error))}: {safe_text(error)}"
