"""Facts about an environment, from ``environment.json``, for all reports and for the diff."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from recapture.base.text import one_line
from recapture.machine.environment import Environment
from recapture.records.record import Record

FIRST = ("image", "torch", "python", "numpy", "scipy", "triton", "torchvision", "cuda", "cudnn", "GPU", "driver")
"""Names of the facts that come first in a comparison; the others follow by name."""

IN_BRIEF = ("numpy", "scipy", "torchvision", "triton", "setuptools")
"""Packages that a report shows besides torch and Python."""


PASSING_CHECKS = frozenset({"disk-space", "memory"})
"""Checks of `recapture doctor` whose findings change from minute to minute."""


class Place(NamedTuple):
    """The origin of results: an image and a capability."""

    image: str
    capability: str


def place(records: Sequence[Record], environment: Environment | None) -> Place:
    """Return the image and capability, from the records alone if no environment was recorded."""
    if environment is None:
        devices = sorted({record.device for record in records})
        return Place("an unknown environment", ", ".join(devices) or "no device")
    return Place(environment.image, environment.capability)


def brief(environment: Environment) -> list[tuple[str, str]]:
    """Return the most important facts for a reader of verdicts, by name."""
    facts = comparable(environment)
    lines = [(name, facts[name]) for name in ("torch", "python", "cuda", "cudnn", *IN_BRIEF) if name in facts]
    if "GPU" in facts:
        lines.append(("GPU", ", ".join(facts[name] for name in ("GPU", "GPU capability", "driver") if name in facts)))
    lines += [(name, facts[name]) for name in ("CPU", "C++ compiler", "lock") if name in facts]
    if environment.image_digest != "bare":
        lines.append(("image digest", environment.image_digest))
    return lines + [("measured on", text) for text in origins(environment)]


def origins(environment: Environment) -> list[str]:
    """Return where the rows were measured, the largest part first; empty if all are of what `environment` describes."""
    largest_first = sorted(environment.origins.values(), key=lambda origin: origin.cells, reverse=True)
    recorded = environment.recorded or 0
    unknown = recorded - sum(origin.cells for origin in largest_first)
    if len(largest_first) + bool(unknown > 0) < 2:
        return []
    lines = []
    for origin in largest_first:
        machine = ", ".join(
            fact for fact in (origin.gpu, origin.cpu, origin.instructions, origin.platform, origin.cxx) if fact
        )
        revision = f"suites {origin.suite_commit[:12]}" if origin.suite_commit else "suites of no known revision"
        lines.append(f"{machine}; {revision} ({origin.cells} of {recorded} cells)")
    if unknown > 0:
        lines.append(f"an unknown machine, before origins were recorded ({unknown} of {recorded} cells)")
    return lines


def why_bare(environment: Environment) -> str:
    """Return why results are filed as bare, not under an image's name; empty if they are not bare."""
    return ", ".join(environment.lock_mismatches) if environment.image.startswith("bare") else ""


def accounting(records: Sequence[Record], environment: Environment | None) -> tuple[str, bool]:
    """Return a text with the numbers of planned and recorded cells, and whether none is missing.

    If a report shows only some of the recorded cells, the text has their number, too.
    """
    planned = environment.planned if environment else None
    recorded = environment.recorded if environment else None
    if planned is None or recorded is None:
        return f"{len(records)} recorded", True
    if planned != recorded:
        return f"{planned} planned, but only {recorded} recorded", False
    partly = f", {len(records)} shown" if len(records) < recorded else ""
    return f"{planned} planned = {recorded} recorded{partly}", True


def failing_checks(environment: Environment | None, *, lasting: bool = False) -> list[str]:
    """Return the faults that `recapture doctor` found in the machine, one line each.

    `lasting` excludes findings that change from minute to minute, for reports that must be reproducible.
    """
    return _checks(environment, "fault", lasting=lasting)


def warnings(environment: Environment | None, *, lasting: bool = False) -> list[str]:
    """Return the warnings of `recapture doctor`, one line each; `lasting` is as in `failing_checks`."""
    return _checks(environment, "warning", lasting=lasting)


def uncollected(environment: Environment | None) -> list[tuple[str, str]]:
    """Return the suites that could not be collected, with the error of each."""
    return [(suite.name, suite.error) for suite in environment.suites if suite.error] if environment else []


def comparable(environment: Environment | None) -> dict[str, str]:
    """Return the facts of an environment that a diff compares, as text by name, without unknown facts."""
    if environment is None:
        return {}
    torch, gpu = environment.torch, environment.gpu
    facts: dict[str, object] = {
        **environment.packages,
        "image": environment.image,
        "image digest": environment.image_digest,
        "lock": environment.lock_hash,
        "python": environment.python,
        "torch": torch.version,
        "torch revision": torch.git_version,
        "cuda": torch.cuda,
        "cudnn": torch.cudnn,
        "libc": environment.libc,
        "CPU": environment.cpu.model,
        "CPU instructions": environment.cpu.instructions,
        "suite revision": environment.suite_commit,
        "worker": environment.worker,
        "judge": environment.judge_version,
        **{{"c++": "C++ compiler"}.get(name, name): version for name, version in environment.compilers.items()},
        **{f"flag {name}": value for name, value in environment.flags.items()},
    }
    if gpu is not None:
        facts |= {"GPU": gpu.name, "GPU capability": gpu.capability, "driver": gpu.driver}
    return {name: one_line(str(value)) for name, value in facts.items() if value is not None}


def is_minor(name: str, environment: Environment | None) -> bool:
    """Whether a name of `comparable` is a package that rarely affects results."""
    return environment is not None and name in environment.packages and name not in (*FIRST, *IN_BRIEF)


def importance(name: str) -> tuple[int, str]:
    """Sort key of the names of `comparable`: the most important first."""
    return (FIRST.index(name) if name in FIRST else len(FIRST), name)


def _checks(environment: Environment | None, status: str, *, lasting: bool) -> list[str]:
    checks = environment.doctor if environment else []
    return [
        f"{check.name}: {one_line(check.found)}"
        for check in checks
        if check.status == status and not (lasting and check.name in PASSING_CHECKS)
    ]
