"""Because of what two sides differ: packages are exchanged one by one, settings are changed, and releases are bisected.

Torch itself is named only after that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal, NamedTuple

import msgspec

from recapture.base.errors import RecaptureError
from recapture.base.text import shorten
from recapture.machine.pins import Image, find_releases
from recapture.tools.drift.facts import SAME_BITS, VERDICTS, SideReport, Verdict
from recapture.tools.drift.sides import Overlay, SideOf

REASON = 160
"""Characters of the reason why something could not be tried."""


class Agreement(NamedTuple):
    """How two sides compare: the worst verdict of all parts, and the fewest digits to which one agrees, if known."""

    verdict: Verdict
    digits: float | None


Compare = Callable[[SideOf, SideOf], Agreement]
"""Compares two sides anew."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """The sides compared again with one thing changed.

    `kind` is ``package`` where the new side had the old side's version, and ``setting`` where both sides had a kernel
    switched off. `verdict` and `digits` are how the sides then compare; None where `problem` says why that could not be
    tried, and where the parts cannot be compared by digits.
    """

    name: str
    kind: Literal["package", "setting"]
    verdict: Verdict | None = None
    digits: float | None = None
    problem: str = ""


class FirstRelease(msgspec.Struct, frozen=True, kw_only=True):
    """The release that differs first, and the last one before it that does not; `untried` lie between the two."""

    last: str
    first: str
    untried: tuple[str, ...] = ()


def better(verdict: Verdict, than: Verdict) -> bool:
    """Whether a verdict is a better one than another."""
    order = list(VERDICTS)
    return order.index(verdict) > order.index(than)


def try_causes(old: SideOf, new: SideOf, about: tuple[SideReport, SideReport], compare: Compare) -> Iterator[Trial]:
    """Exchange each package that both sides imported at different versions, then change each setting.

    A package that explains every bit ends the search.
    """
    before, after = (side.packages for side in about)
    for name in sorted(before.keys() & after.keys() - {"torch"}):
        if before[name] != after[name]:
            exchanged = dataclasses.replace(
                new,
                name=f"{new.name} with {name} {before[name]}",
                overlays=(*new.overlays, Overlay.of_version(name, before[name])),
            )
            trial = _trial(f"{name} {before[name]} → {after[name]}", "package", compare, old, exchanged)
            yield trial
            if trial.verdict == SAME_BITS:
                return
    for name, variables, without in settings_to_try({old.device, new.device}):
        sides = [side.with_setting(f"without {name}", variables, without) for side in (old, new)]
        yield _trial(name, "setting", compare, *sides)


def _trial(name: str, kind: Literal["package", "setting"], compare: Compare, old: SideOf, new: SideOf) -> Trial:
    try:
        verdict, digits = compare(old, new)
        return Trial(name=name, kind=kind, verdict=verdict, digits=digits)
    except RecaptureError as error:  # as a package that this release of torch cannot use
        return Trial(name=name, kind=kind, problem=shorten(str(error), REASON))


WITHOUT_TF32 = {"NVIDIA_TF32_OVERRIDE": "0"}
"""Environment variables that switch TF32 off in all of NVIDIA's libraries, whatever the target allows."""


def settings_to_try(devices: AbstractSet[str]) -> Iterator[tuple[str, Mapping[str, str], tuple[str, ...]]]:
    """Yield settings that replace kernels: a name, environment variables, and what is switched off besides.

    Where two sides agree under one of them, and differ without, what it switches off makes the difference.
    """
    if "cuda" in devices:
        yield "TF32", WITHOUT_TF32, ()
        yield "cuDNN", {}, ("cuDNN",)
        yield "sums of bfloat16 and float16 in fewer bits", {}, ("reduced sums",)
        return
    yield "oneDNN", {}, ("oneDNN",)
    yield "MKL's choice of kernels", {"MKL_CBWR": "COMPATIBLE"}, ()
    yield "vectorised kernels of ATen", {"ATEN_CPU_CAPABILITY": "default"}, ()
    yield "more than one thread", {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}, ()


def releases_between(old: Image, new: Image) -> list[Image]:
    """Return the releases after the old one and before the new one, in the order of their versions."""
    line = list(find_releases("all"))
    names = [image.name for image in line]
    if old.name not in names or new.name not in names:
        return []
    first, last = sorted((names.index(old.name), names.index(new.name)))
    between = line[first + 1 : last]
    return between if names[first] == old.name else between[::-1]


def find_first_release(
    old: Image, new: Image, present: Sequence[Image], differs: Callable[[Image], bool]
) -> FirstRelease:
    """Bisect the releases between two; those that are not `present`, or cannot be tried, are left out and named."""
    line = [old, *releases_between(old, new), new]
    usable = [image for image in line[1:-1] if image in present]
    last, first = old, new
    while usable:
        image = usable[len(usable) // 2]
        try:
            is_bad = differs(image)
        except RecaptureError:  # as where it cannot run the target
            usable.remove(image)
            continue
        if is_bad:
            first, usable = image, usable[: usable.index(image)]
        else:
            last, usable = image, usable[usable.index(image) + 1 :]
    untried = line[line.index(last) + 1 : line.index(first)]
    return FirstRelease(last=last.torch, first=first.torch, untried=tuple(image.torch for image in untried))
