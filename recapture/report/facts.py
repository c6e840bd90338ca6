"""What the reports say about an environment: one reading of ``environment.json`` for all of them, and for the diff."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recapture.environment import Environment
    from recapture.records import Record

__all__ = [
    "Place",
    "accounting",
    "brief",
    "comparable",
    "failing_checks",
    "importance",
    "place",
    "uncollected",
    "warnings",
    "why_bare",
]

FIRST = ("image", "torch", "python", "numpy", "scipy", "triton", "torchvision", "cuda", "cudnn", "GPU", "driver")
"""What differs first in a comparison; the rest follows by name."""

IN_BRIEF = ("numpy", "scipy", "torchvision", "triton", "setuptools")
"""The packages that a report names beside torch and Python."""


class Place(NamedTuple):
    """Where results come from."""

    image: str
    capability: str


def place(records: Sequence[Record], environment: Environment | None) -> Place:
    """Return the image and capability; what the records alone say where no environment was recorded."""
    if environment is None:
        devices = sorted({record.device for record in records})
        return Place("an unknown environment", ", ".join(devices) or "no device")
    return Place(environment.image, environment.capability)


def brief(environment: Environment) -> list[tuple[str, str]]:
    """Return the few facts that a reader of verdicts wants, by name."""
    facts = comparable(environment)
    lines = [("torch", facts["torch"])] if "torch" in facts else []
    lines += [(name, facts[name]) for name in ("python", "cuda", "cudnn", *IN_BRIEF) if name in facts]
    if "GPU" in facts:
        gpu = [facts[name] for name in ("GPU", "GPU capability", "driver") if name in facts]
        lines.append(("GPU", ", ".join(gpu)))
    if "CPU" in facts:
        lines.append(("CPU", facts["CPU"]))
    if environment.image_digest:
        lines.append(("image digest", environment.image_digest))
    if environment.lock_hash:
        lines.append(("lock", environment.lock_hash))
    return lines


def why_bare(environment: Environment) -> str:
    """Return why results are filed as bare, not under an image's name; empty where they are not."""
    return ", ".join(environment.lock_mismatches) if environment.image.startswith("bare") else ""


def accounting(records: Sequence[Record], environment: Environment | None) -> tuple[str, bool]:
    """Return how many cells were planned and recorded, in words, and whether none is missing.

    A run of some cells only keeps the others that its directory holds: then there are more records than it planned.
    """
    here = len(records)
    planned = environment.planned if environment else None
    recorded = environment.recorded if environment else None
    if planned is None or recorded is None:
        return f"{here} recorded", True
    if planned != recorded or here < recorded:
        return f"{planned} planned, but only {min(recorded, here)} recorded", False
    if here > recorded:
        return f"{here} on record; the last run planned {planned} and recorded {recorded} of them", True
    return f"{planned} planned = {recorded} recorded", True


def failing_checks(environment: Environment | None) -> list[str]:
    """Return the faults that `recapture doctor` found in the machine, a line each."""
    return _checks(environment, "fault")


def warnings(environment: Environment | None) -> list[str]:
    """Return what `recapture doctor` warned of, a line each."""
    return _checks(environment, "warning")


def uncollected(environment: Environment | None) -> list[tuple[str, str]]:
    """Return the suites that could not be collected, with the error of each."""
    suites = [msgspec.to_builtins(suite) for suite in environment.suites] if environment else []
    return [(suite["name"], suite["error"]) for suite in suites if suite.get("error")]


def comparable(environment: Environment | None) -> dict[str, str]:
    """Return everything about an environment that a diff compares, by name, as words; what is unknown is left out."""
    if environment is None:
        return {}
    facts: dict[str, Any] = dict(environment.packages)
    torch, gpu, cpu = (_fields(part) for part in (environment.torch, environment.gpu, environment.cpu))
    facts |= {"python": environment.python, "image": environment.image, "suite commit": environment.suite_commit}
    facts |= {"torch": torch.pop("version", None) or facts.get("torch")} | torch
    if gpu:
        facts |= {"GPU": gpu.get("name"), "GPU capability": gpu.get("capability"), "driver": gpu.get("driver")}
    facts |= {"CPU": cpu.get("model")}
    facts |= {f"flag {name}": value for name, value in _fields(environment.flags).items()}
    return {name: _line(value) for name, value in facts.items() if value not in (None, "", [], {})}


def _checks(environment: Environment | None, status: str) -> list[str]:
    checks = environment.doctor if environment else ()
    return [f"{one.name}: {_line(one.found)}" for one in checks if one.status == status]


def importance(name: str) -> tuple[int, str]:
    """Sort key of the names of `comparable`: what decides most first."""
    return (FIRST.index(name) if name in FIRST else len(FIRST), name)


def _fields(part: Any) -> dict[str, Any]:
    """Return a part of the environment by name, whether it is a struct, a mapping or a list of names."""
    built = msgspec.to_builtins(part)
    if isinstance(built, dict):
        return built
    return {str(one): "set" for one in built or ()}


def _line(value: Any) -> str:
    """Return a value of any shape as one line."""
    built = msgspec.to_builtins(value)
    if isinstance(built, dict):
        return ", ".join(f"{name}: {_line(one)}" for name, one in built.items() if one not in (None, ""))
    if isinstance(built, (list, tuple)):
        return ", ".join(map(_line, built))
    return " ".join(str(built).split())
