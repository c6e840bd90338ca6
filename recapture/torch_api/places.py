"""Where in a user's source torch refuses or breaks: from the stacks of its errors, its explanations and warnings.

What tells the place (tried on 2.11.0):

- TorchScript: the first ``File "…", line N`` of the message; the later ones are the callers.
- Dynamo, and `torch.export` with ``strict=True``: ``real_stack`` of the error, else the last place of the message.
- `torch.export` with ``strict=False``, and tracing: the last frame of the user in the traceback.
- the others of `torch.export`: ``user_stack`` in the report of `torch.export.draft_export`.
- graph breaks: ``break_reasons`` of `torch._dynamo.explain`, which follows one path and stops where it cannot go on.
- `torch.jit.trace`: the warnings about values that became constants.
"""

from __future__ import annotations

import linecache
import os
import re
import sysconfig
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from recapture.base.paths import PACKAGE
from recapture.torch_api.compat import release
from recapture.torch_api.custom_operators import place_of_operator

_IN_MESSAGE = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)')


DATA_DEPENDENT = "data-dependent expression"
"""What torch calls a condition on a tensor's value, as its own errors begin."""


class CodePlace(NamedTuple):
    """A line of a user's source, and torch's reason about it."""

    file: str
    line: int
    text: str
    reason: str


def place_of_error(error: BaseException, *, first: bool = False) -> CodePlace | None:
    """Return the user's line that an error of torch is about, or None if it does not tell.

    `first` is for TorchScript, whose messages name the line before its callers.
    """
    reason = str(error)
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        seen.append(current)
        current = current.__cause__ or current.__context__
    for place in () if first else seen:
        stack = getattr(place, "real_stack", None) or getattr(place, "user_stack", None) or ()
        if places := list(_of_user((frame.filename, frame.lineno) for frame in stack)):
            return _place(places[-1], reason)
    named = list(_of_user((match["file"], int(match["line"])) for match in _IN_MESSAGE.finditer(reason)))
    frames = list(_of_user((frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)))
    for places in (named, frames):
        if places:
            return _place(places[0 if first else -1], reason)
    return None


def graph_breaks(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[CodePlace]:
    """Return the places where Dynamo breaks the graph of one call; places outside the user's code are left out.

    Errors of torch, and of the function itself, propagate.
    """
    import torch._dynamo

    explain = torch._dynamo.explain  # noqa: SLF001 - where torch's own documentation has it
    if release() < (2, 1):
        reasons: Any = explain(function, *arguments)[4]
    else:
        reasons = explain(function)(*arguments).break_reasons
    places = []
    for reason in reasons:
        frames = list(_of_user((frame.filename, frame.lineno) for frame in reason.user_stack))
        if frames:
            places.append(_place(frames[-1], str(reason.reason)))
    return list(dict.fromkeys(places))


def draft_places(module: Any, arguments: tuple[Any, ...]) -> list[CodePlace]:
    """Return all places that `torch.export` would refuse one after another, as `torch.export.draft_export` lists them.

    This goes on with the example's values where export stops. The place of an operator without a correct fake
    implementation is where it is registered. Before torch 2.7, which has it first, there are none. What it raises
    itself propagates: it goes on after values, not after Python that cannot be captured. In torch 2.11 it computes
    with other values in each call where a size depends on them, so that one call can raise and the next one cannot.
    """
    import torch

    draft_export = getattr(torch.export, "draft_export", None)
    if draft_export is None:
        return []
    places = []
    report = draft_export(module, arguments)._report  # noqa: SLF001 - as torch's documentation has it
    for failure in report.failures:
        data = failure.data
        if "op" in data:
            name = str(data["op"]).replace(".", "::", 1).partition(".")[0]
            text = f"the custom operator {name} has no fake implementation"
            if reason := data.get("reason"):
                text = f"the fake implementation of the custom operator {name} is wrong: {reason}"
            file, line = place_of_operator(name)
            places.append(_place((file, line), text) if file else CodePlace("", 0, "", text))
            continue
        files = report.str_to_filename
        stack = [(files.get(frame["filename"], ""), frame["line"]) for frame in data.get("user_stack", ())]
        if frames := list(_of_user(stack)):
            places.append(_place(frames[-1], f"{DATA_DEPENDENT} {data.get('expr')}, which the example decides"))
    return list(dict.fromkeys(places))


def traced_constants(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[CodePlace]:
    """Return the places where `torch.jit.trace` warns that a value of the example becomes a constant."""
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.jit.trace(function, arguments, check_trace=False)
    tracer = torch.jit.TracerWarning
    warned = [warning for warning in caught if issubclass(warning.category, tracer)]
    places = [
        _place(where, str(warning.message))
        for warning in warned
        for where in _of_user([(warning.filename, warning.lineno)])
    ]
    return list(dict.fromkeys(places))


def _of_user(places: Iterable[tuple[str, int | None]]) -> Iterator[tuple[str, int]]:
    """Yield the places that are neither torch's nor this package's nor the standard library's."""
    import torch

    standard = sysconfig.get_path("stdlib")
    outside = (str(Path(torch.__file__).parent) + os.sep, f"{PACKAGE}{os.sep}")
    for file, line in places:
        installed = "site-packages" in file or "dist-packages" in file
        if line is None or not linecache.getline(file, line).strip() or file.startswith(outside):
            continue
        if installed or not file.startswith(standard + os.sep):
            yield file, line


def _place(where: tuple[str, int], reason: str) -> CodePlace:
    file, line = where
    return CodePlace(file, line, linecache.getline(file, line).strip(), reason)
