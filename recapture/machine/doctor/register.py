"""The register of checks: the definition of a check, running all checks, and finding the one that explains an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import msgspec

from recapture.base.errors import UsageError
from recapture.base.scrub import without_paths
from recapture.machine.doctor.facts import Facts

Status = Literal["ok", "warning", "fault", "unknown"]
Affects = Literal["all", "codegen", "dynamo", "cuda", "numpy"]
DEVICES = ("cpu", "cuda")


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of one check: what was found and, if something is wrong, how to fix it (`mend`).

    `status` is ``ok``, ``warning`` (results still show the compiler's behaviour), ``fault`` (they do not) or
    ``unknown`` (the check could not be run). `affects` names the cells concerned: ``all``; ``codegen``, which compile
    C++ or Triton; ``dynamo``, which use torch._dynamo; ``cuda``; ``numpy``, which pass data between tensors and
    arrays.
    """

    name: str
    status: Status
    found: str
    mend: str
    affects: Affects

    @property
    def reason(self) -> str:
        """The check's name and finding, without paths and sizes, so that it is the same in every run of an image."""
        return f"{self.name}: {re.sub(r'[0-9.]+ GiB', '… GiB', without_paths(self.found))}"


@dataclass(frozen=True)
class Finding:
    """What a check's function returns; `affects` is set only where it differs from the check's declaration."""

    status: Status
    found: str
    fix: str = ""
    affects: Affects | None = None


def ok(message: str) -> Finding:
    """Return the finding that nothing is wrong."""
    return Finding("ok", message)


def warning(message: str, fix: str) -> Finding:
    """Return the finding that something may go wrong, or that a figure may be misleading."""
    return Finding("warning", message, fix)


def fault(message: str, fix: str, *, affects: Affects | None = None) -> Finding:
    """Return the finding that the machine causes the errors that match the check's signature."""
    return Finding("fault", message, fix, affects)


@dataclass(frozen=True)
class _Registered:
    name: str
    affects: Affects
    signature: re.Pattern[str]
    devices: tuple[str, ...]
    function: Callable[[Facts], Finding]


_REGISTER: dict[str, _Registered] = {}


def check(
    name: str, *, affects: Affects, signature: str, devices: tuple[str, ...] = DEVICES
) -> Callable[[Callable[[Facts], Finding]], Callable[[Facts], Finding]]:
    """Register the decorated function as a check; `signature` matches the text of the errors its fault causes."""

    def register(function: Callable[[Facts], Finding]) -> Callable[[Facts], Finding]:
        _REGISTER[name] = _Registered(name, affects, re.compile(signature, re.DOTALL), devices, function)
        return function

    return register


def examine(device: str = "cpu") -> list[Check]:
    """Run every check for a device, ``cpu`` or ``cuda``; a check that raises an error is ``unknown``.

    CUDA is never initialised in this process. Raises UsageError for another device.
    """
    if device not in DEVICES:
        raise UsageError(f"unknown device {device!r}; known: {', '.join(DEVICES)}")
    facts = Facts(device)
    concerned = [registered for registered in _REGISTER.values() if device in registered.devices]
    with ThreadPoolExecutor() as threads:  # checks mostly wait for programs such as the C++ compiler
        return list(threads.map(lambda registered: _made(registered, facts), concerned))


def _made(registered: _Registered, facts: Facts) -> Check:
    try:
        finding = registered.function(facts)
    except ModuleNotFoundError as error:  # torch itself, on a host that uses only the images
        finding = Finding("unknown", str(error))
    except Exception as error:
        finding = Finding("unknown", f"could not be checked: {type(error).__name__}: {error}")
    return Check(
        name=registered.name,
        status=finding.status,
        found=_one_line(finding.found),
        mend=finding.fix,
        affects=finding.affects or registered.affects,
    )


def explain(error_type: str, error_text: str, checks: Iterable[Check]) -> Check | None:
    """Return the failing check whose signature matches an exception or a worker's stderr.

    None if no signature matches, or if the matching check found nothing wrong: then the compiler is at fault. `checks`
    are not read if no signature matches, because they may still be running.
    """
    text = f"{error_type}: {error_text}"
    named = {registered.name for registered in _REGISTER.values() if registered.signature.search(text)}
    return next((check for check in checks if check.name in named and check.status == "fault"), None) if named else None


def _one_line(text: str) -> str:
    return " ".join(text.split())
