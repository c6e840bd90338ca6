"""Tests, in a child process, the custom operators that a user's code defines, with `torch.library.opcheck`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from recapture.base.exceptions import qualified, safe_text
from recapture.base.scrub import encodable, scrub
from recapture.base.text import one_line, shorten
from recapture.cases.own_code import OwnCode
from recapture.judge.observe import ARGUMENTS_SEED
from recapture.pool.protocol import task_name
from recapture.tools.check.answers import CheckedOperator
from recapture.tools.check.request import CheckRequest
from recapture.tools.check.source_facts import INSTALLED
from recapture.torch_api.compat import seed_everything
from recapture.torch_api.custom_operators import (
    calls_of_operators,
    failed_tests,
    has_opcheck,
    loaded_libraries,
    place_of_operator,
    registered_operators,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

REASON = 200
"""Characters of torch's reason why an operator fails a test."""

MOST_CALLS = 4
"""Calls of one operator that are tested, each with other shapes or types."""

_FROM_PACKAGES = (INSTALLED, "dist-packages")


class OperatorSearch(msgspec.Struct, frozen=True):
    """A target, and how it is called (see `Prepared`)."""

    request: CheckRequest
    calling: dict[str, Any]


def own_operators(before: Collection[str]) -> tuple[str, ...]:
    """Return the operators that were registered since a list was made, without those of installed packages."""
    return tuple(sorted(name for name in registered_operators() - set(before) if not _is_installed(name)))


def _is_installed(name: str) -> bool:
    """Whether an operator comes from an installed package.

    Its file tells. Of one in C++ the file is that of another machine, where it was compiled: the name of its package
    tells, and it is installed if every library of C++ that is loaded is.
    """
    file, _ = place_of_operator(name)
    if file.endswith(".py"):
        return _in_packages(file)
    import importlib.util

    try:
        spec = importlib.util.find_spec(name.partition("::")[0])
    except (ImportError, ValueError):
        spec = None
    return _in_packages(spec.origin or "") if spec is not None else all(map(_in_packages, loaded_libraries()))


def _in_packages(file: str) -> bool:
    return any(folder in Path(file).parts for folder in _FROM_PACKAGES)


def test_operators(payload: bytes, enter: Callable[[str], None]) -> bytes:
    """Test the operators of a target on the calls of its example: `OperatorSearch` → a list of `CheckedOperator`."""
    search = msgspec.json.decode(payload, type=OperatorSearch)
    enter("load")
    before = registered_operators()
    own = OwnCode(**search.request.own_code, **search.calling)
    target = own.load()
    names = own_operators(before)
    seed_everything(ARGUMENTS_SEED)
    enter("call")
    calls = calls_of_operators(target, own.example(), names, MOST_CALLS)
    checked = []
    for name in names:
        enter(name)
        failures: dict[str, str] = {}
        own_calls = [call for call in calls if call.name == name]
        for call in own_calls if has_opcheck() else ():
            try:
                failures |= failed_tests(call)
            except Exception as error:  # opcheck itself, on an operator that it cannot handle
                failures["opcheck"] = f"{qualified(type(error))}: {safe_text(error)}"
        file, line = place_of_operator(name)
        checked.append(
            CheckedOperator(
                name=name,
                file=encodable(Path(file).name),
                line=line,
                calls=len(own_calls),
                failures=tuple((test, _short(reason)) for test, reason in failures.items()),
                problem="" if has_opcheck() else "it is in torch 2.4 and newer",
            )
        )
    return msgspec.json.encode(checked)


def _short(reason: str) -> str:
    return encodable(shorten(one_line(scrub(reason)), REASON))


OPERATORS = task_name(test_operators)
