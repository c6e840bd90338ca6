"""Finds, in a child process, the lines of a target that stand in the way of a compiler."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from recapture.base.exceptions import qualified, safe_text
from recapture.base.scrub import encodable
from recapture.base.text import one_line, shorten
from recapture.cases.compiler import Family
from recapture.cases.compilers import builtin_compilers, compiler_facts
from recapture.cases.own_code import OwnCode, as_module
from recapture.judge.observe import ARGUMENTS_SEED
from recapture.pool.protocol import task_name
from recapture.tools.check.request import CheckRequest
from recapture.torch_api.compat import seed_everything
from recapture.torch_api.places import CodePlace, draft_places, graph_breaks, place_of_error, traced_constants

if TYPE_CHECKING:
    from collections.abc import Callable


REASON = 400
"""Characters of torch's reason."""


class ObstacleSearch(msgspec.Struct, frozen=True):
    """A target, how it is called (see `Prepared`), and the compilers whose obstacles are wanted."""

    request: CheckRequest
    calling: dict[str, Any]
    compilers: tuple[str, ...]


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """A line in the way of a compiler, with torch's reason; `file` is empty if torch does not tell the line.

    `kind` says what happens there: ``refused``, ``break`` (the graph is broken) or ``constant`` (a value of the example
    is recorded). `file` is the name without its folder; `text` is the line, `following` the line below it.
    """

    compiler: str
    kind: str
    reason: str
    file: str = ""
    line: int = 0
    text: str = ""
    following: str = ""


def find_obstacles(payload: bytes, enter: Callable[[str], None]) -> bytes:
    """Find the obstacles of a target: `ObstacleSearch` → a list of `Obstacle`. `enter` gets each compiler's name."""
    search = msgspec.json.decode(payload, type=ObstacleSearch)
    enter("reference")
    own = OwnCode(**search.request.own_code, **search.calling)
    target = own.load()
    obstacles: list[Obstacle] = []
    for compiler in search.compilers:
        enter(compiler)
        seed_everything(ARGUMENTS_SEED)
        example = own.example()
        with contextlib.redirect_stdout(io.StringIO()):  # user code may print at each capture
            obstacles += _of_compiler(compiler, target, example, own)
    return msgspec.json.encode(obstacles)


def _of_compiler(compiler: str, target: Any, example: tuple[Any, ...], own: OwnCode) -> list[Obstacle]:
    """Return what stands in the way of one compiler, with no more than the capture that it begins with, and a draft."""
    family = compiler_facts(compiler).family
    try:
        if family == Family.DYNAMO:
            return [_obstacle(compiler, "break", place) for place in graph_breaks(target, example)]
        if family == Family.TRACE:
            return [_obstacle(compiler, "constant", place) for place in traced_constants(target, example)]
        _capture(compiler, target, example)
    except Exception as error:  # any exception is the refusal that is looked for
        place = place_of_error(error, first=family == Family.SCRIPT)
        reason = f"{qualified(type(error))}: {safe_text(error)}"
        if place is None:
            first = Obstacle(compiler=compiler, kind="refused", reason=_short(reason))
        else:
            first = _obstacle(compiler, "refused", place._replace(reason=reason))
        return [first, *(_behind(compiler, first, own) if family in (Family.EXPORT, Family.AOTI) else ())]
    return []


def _behind(compiler: str, first: Obstacle, own: OwnCode) -> list[Obstacle]:
    """Return the other obstacles of `torch.export`, which names only the first one."""
    try:
        target = as_module(own.load())
        seed_everything(ARGUMENTS_SEED)  # whether draft_export itself fails can depend on the example's values
        places = draft_places(target, own.example())
    except Exception:  # what export has refused is known; draft_export cannot go on either
        return []
    others = [_obstacle(compiler, "refused", place) for place in places]
    return [other for other in others if (other.file, other.line) != (first.file, first.line) or not other.file]


def _capture(compiler: str, target: Any, example: tuple[Any, ...]) -> None:
    if compiler_facts(compiler).family != Family.AOTI:
        builtin_compilers()[compiler].capture(target, example)
        return
    import torch

    # What AOTInductor refuses is what `torch.export` does: compiling C++ would tell nothing more about the source.
    torch.export.export(as_module(target), example)


def _obstacle(compiler: str, kind: str, place: CodePlace) -> Obstacle:
    import linecache

    return Obstacle(
        compiler=compiler,
        kind=kind,
        reason=_short(place.reason),
        file=encodable(Path(place.file).name),
        line=place.line,
        text=encodable(one_line(place.text)),
        following=encodable(one_line(linecache.getline(place.file, place.line + 1))),
    )


def _short(reason: str) -> str:
    """Return torch's reason on one line: without the listing of source that TorchScript and Dynamo append."""
    text = reason.partition("\nfrom user code")[0]
    lines = []
    for line in text.splitlines():
        if line.lstrip().startswith(('File "', "~~~", "Developer debug", "Set TORCH", "You can suppress")):
            break
        lines.append(line)
    return encodable(shorten(one_line(" ".join(lines)), REASON))


OBSTACLES = task_name(find_obstacles)
