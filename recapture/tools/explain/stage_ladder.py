"""The ladder of each family of compilers: from the first stage alone to the whole compiler."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from recapture.records.guilty_stage import StageName
from recapture.torch_api.stages import DECOMPOSED, EXPORTED

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Sequence

Family = Literal["compile", "export", "aoti"]


class Rung(NamedTuple):
    """The compiler with its stages up to one: the last of them, the backend that does it, and words for people."""

    stage: StageName
    backend: str
    words: str


COMPILE = (
    Rung("dynamo", "eager", "Dynamo alone (backend eager)"),
    Rung("aot_autograd", "aot_eager", "and AOTAutograd (aot_eager)"),
    Rung("decompositions", "aot_eager_decomp_partition", "and decompositions (aot_eager_decomp_partition)"),
)
AOTI = (
    Rung("export", EXPORTED, "the exported program"),
    Rung("decompositions", DECOMPOSED, "and decompositions (run_decompositions)"),
)
STAGE_OF_BACKEND: dict[str, StageName] = {rung.backend: rung.stage for rung in COMPILE}

_BACKEND = re.compile(r"""\bbackend\s*=\s*["'](\w+)["']""")


def family_of(source: str) -> Family | None:
    """Return the family of a compiler by what its source calls; None if no stage of it can be told from another."""
    if "aoti_compile_and_package" in source:
        return "aoti"
    if re.search(r"\btorch\.compile\b", source):
        return "compile"
    return "export" if re.search(r"\bexport\.export\(", source) and "onnx" not in source else None


def top_stage(family: Family, source: str) -> StageName | None:
    """Return the last stage of a compiler, given its source; None for a backend that is not torch's."""
    if family == "export":
        return "export"
    named = _BACKEND.search(source) if family == "compile" else None
    return "inductor" if named is None or named[1] == "inductor" else STAGE_OF_BACKEND.get(named[1])


def rungs_below(family: Family, top: StageName, backends: Collection[str]) -> tuple[Rung, ...]:
    """Return the rungs below a compiler whose last stage is `top`, of those that this release has, lowest first."""
    if family == "export":
        return ()
    if family == "aoti":
        return AOTI
    found = []
    for rung in COMPILE:
        if rung.stage == top:
            break
        if rung.backend in backends:
            found.append(rung)
    return tuple(found)


def lowest_rung(
    rungs: Sequence[Rung], error: str = "", known: Collection[str] = ()
) -> Generator[Rung, bool | None, Rung | None]:
    """Search the lowest rung that shows what the whole compiler shows, by halves.

    Yields a rung and receives whether it shows the same; None means that there is no time left for it. Returns None for
    the whole compiler. `error` is the type of its exception, and `known` are backends that cost no time.
    """
    low, high = 0, len(rungs)
    while low < high:
        place = _next_place(rungs, low, high, error, known)
        same = yield rungs[place]
        if same is None:
            break
        low, high = (low, place) if same else (place + 1, high)
    return rungs[high] if high < len(rungs) else None


def _next_place(rungs: Sequence[Rung], low: int, high: int, error: str, known: Collection[str]) -> int:
    """Return the rung to try: one that is known, the one that an error's type points at, or the middle."""
    there = [place for place in range(low, high) if rungs[place].backend in known]
    if there:
        return there[len(there) // 2]
    if error.startswith("torch._dynamo.exc.") and not error.endswith("BackendCompilerFailed"):
        return low
    return high - 1 if "Inductor" in error or "CppCompile" in error else (low + high) // 2
