"""A reduced cell as text and as JSON: the sizes first, then the programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recapture.base.text import duration_text, one_line, plural

if TYPE_CHECKING:
    from recapture.tools.explain.reduce.program import Size
    from recapture.tools.explain.reduce.reducing import Reduced
    from recapture.tools.explain.script.choice import Standalone

ENDINGS = {
    "finished": "nothing smaller was found",
    "time limit": "stopped at the time limit, so it may get smaller",
    "interrupted": "interrupted, so it may get smaller",
}
"""How a search ended, in words."""


def reduction_text(found: Reduced, script: Standalone | None) -> str:
    """Return the report of a reduction: size before and after, tries, and the program in both forms.

    `script` is the program without recapture; None if it was not made.
    """
    lines = [
        f"{found.cell} on {found.device}: {one_line(found.fault)}",
        f"{_size(found.before)} → {_size(found.after)}; {_tries(found)}; {ENDINGS[found.ending]}",
        *([f"stage: {found.stage}, searched with {found.searched_with}"] if found.stage else []),
        _kept(found),
        "",
        "# the smallest program as a case",
        found.case.rstrip(),
    ]
    if script is not None:
        lines += ["", f"# the same without recapture ({script.said})", script.text.rstrip()]
    return "\n".join(lines) + "\n"


def _tries(found: Reduced) -> str:
    count = "1 try" if found.tries == 1 else f"{found.tries} tries"
    return f"{count} in {duration_text(found.seconds)}, {found.tries_per_second:.1f} a second"


def _kept(found: Reduced) -> str:
    if found.holds is None:
        return "verdict: not checked again, because the reduction was interrupted"
    if found.holds:
        return f"verdict: {found.verdict} again when it ran once more, with the same difference or error"
    return "verdict: not kept by any smaller program, so this is the whole case"


def _size(size: Size) -> str:
    return f"{plural(size.lines, 'line')}, {plural(size.bytes, 'byte')}"


def reduction_data(found: Reduced, script: Standalone | None) -> dict[str, Any]:
    """Return a reduction as JSON-compatible data."""
    return {
        "schema": 1,
        "cell": found.cell,
        "device": found.device,
        "verdict": str(found.verdict),
        "fault": found.fault,
        "stage": found.stage,
        "searched_with": found.searched_with,
        "before": {"lines": found.before.lines, "bytes": found.before.bytes},
        "after": {"lines": found.after.lines, "bytes": found.after.bytes},
        "tries": found.tries,
        "seconds": found.seconds,
        "tries_per_second": round(found.tries_per_second, 2),
        "ending": found.ending,
        "verdict_kept": found.holds,
        "case": found.case,
        "script": None if script is None else script.text,
        "script_runs": None if script is None else script.said,
    }
