"""A reduced cell as text and as JSON: the sizes first, then the programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recapture.base.text import duration_text, one_line, plural

if TYPE_CHECKING:
    from recapture.tools.explain.reduce.program import Size
    from recapture.tools.explain.reduce.reducing import Reduced
    from recapture.tools.explain.script.choice import TriedScript

ENDINGS = {
    "finished": "nothing smaller was found",
    "time limit": "stopped at the time limit, so it may get smaller",
    "interrupted": "interrupted, so it may get smaller",
}
"""How a search ended, in words."""


def reduction_text(reduced: Reduced, script: TriedScript | None) -> str:
    """Return the report of a reduction: size before and after, tries, and the program in both forms.

    `script` is the program without recapture; None if it was not made.
    """
    lines = [
        f"{reduced.cell} on {reduced.device}: {one_line(reduced.fault)}",
        f"{_size(reduced.before)} → {_size(reduced.after)}; {_tries(reduced)}; {ENDINGS[reduced.ending]}",
        *([f"stage: {reduced.stage}, searched with {reduced.searched_with}"] if reduced.stage else []),
        _kept(reduced),
        "",
        "# the smallest program as a case",
        reduced.case.rstrip(),
    ]
    if script is not None:
        lines += ["", f"# the same without recapture ({script.ending})", script.text.rstrip()]
    return "\n".join(lines) + "\n"


def _tries(reduced: Reduced) -> str:
    count = "1 try" if reduced.tries == 1 else f"{reduced.tries} tries"
    return f"{count} in {duration_text(reduced.seconds)}, {reduced.tries_per_second:.1f} a second"


def _kept(reduced: Reduced) -> str:
    if reduced.holds is None:
        return "verdict: not checked again, because the reduction was interrupted"
    if reduced.holds:
        return f"verdict: {reduced.verdict} again when it ran once more, with the same difference or error"
    return "verdict: not kept by any smaller program, so this is the whole case"


def _size(size: Size) -> str:
    return f"{plural(size.lines, 'line')}, {plural(size.bytes, 'byte')}"


def reduction_data(reduced: Reduced, script: TriedScript | None) -> dict[str, Any]:
    """Return a reduction as JSON-compatible data."""
    return {
        "schema": 1,
        "cell": reduced.cell,
        "device": reduced.device,
        "verdict": str(reduced.verdict),
        "fault": reduced.fault,
        "stage": reduced.stage,
        "searched_with": reduced.searched_with,
        "before": {"lines": reduced.before.lines, "bytes": reduced.before.bytes},
        "after": {"lines": reduced.after.lines, "bytes": reduced.after.bytes},
        "tries": reduced.tries,
        "seconds": reduced.seconds,
        "tries_per_second": round(reduced.tries_per_second, 2),
        "ending": reduced.ending,
        "verdict_kept": reduced.holds,
        "case": reduced.case,
        "script": None if script is None else script.text,
        "script_runs": None if script is None else script.ending,
    }
