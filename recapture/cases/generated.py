"""Cases that are generated: one for each name in a list that only torch or another library knows."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from recapture.cases.case import CASES_ATTRIBUTE, REFUSED_ATTRIBUTE, Case, CaseError, RefusedCase, case
from recapture.cases.collection import LACKING_ATTRIBUTE, unmet

Builder = TypeVar("Builder", bound=Callable[[str], Mapping[str, Any]])


def case_for_each(
    *, names: Callable[[], Sequence[str]], since: str | None = None, requires: Sequence[str] = ()
) -> Callable[[Builder], Builder]:
    """Declare a case for each name: the decorated ``build(name)`` returns its ``target`` and the options of `case`.

    ``names()`` returns the names. It runs whenever the file is executed, as ``build`` does for each name, so both
    should be quick: a large model is built when its class is called, not before. The target is a function or an
    ``nn.Module`` subclass with this name, and its address is ``suite::name``. The key ``source``, if given, is text
    from outside the file that the case is made from; it is part of the case's hash, as the source of ``build`` is.

    Where torch is older than `since`, or modules in `requires` are not installed, there are no such cases, and
    `recapture` says so in one line. An invalid case is refused alone, as with `case`. The decorated function is
    returned unchanged.
    """

    def register(build: Builder) -> Builder:
        namespace = vars(sys.modules[build.__module__])
        lacking = unmet("it", since, requires)
        if lacking is not None:
            namespace.setdefault(LACKING_ATTRIBUTE, []).append(lacking)
            return build
        refused: list[RefusedCase] | None = namespace.get(REFUSED_ATTRIBUTE)
        for name in names():
            try:
                _declare(build, name, namespace)
            except CaseError as error:
                if refused is None:  # the file is not executed by `recapture`
                    raise
                refused.append(RefusedCase(str(name), None, str(error)))
        return build

    return register


def _declare(build: Callable[[str], Mapping[str, Any]], name: str, namespace: dict[str, Any]) -> None:
    """Declare one case. Raises CaseError, which names it."""
    maker = build.__name__
    try:
        options = dict(build(name))
    except Exception as error:  # of a library, for one of its names
        text = next(iter(str(error).splitlines()), "")
        raise CaseError(f"case {name!r}: {maker} raised {type(error).__name__}: {text}"[:300]) from None
    target, source = options.pop("target", None), options.pop("source", "")
    if getattr(target, "__name__", None) != name:
        raise CaseError(f"case {name!r}: {maker} gives no target of this name but {target!r}"[:300])
    cases: list[Case] = namespace.setdefault(CASES_ATTRIBUTE, [])
    before = len(cases)
    target.__module__ = namespace["__name__"]
    case(**options)(target)
    if len(cases) > before:  # else it is among the refused ones
        cases[-1] = dataclasses.replace(cases[-1], made_by=maker, source=str(source))
