"""The rewrites of the collection: for a construct that compilers refuse or get wrong, the case with what works."""

from __future__ import annotations

import re
from typing import NamedTuple

from recapture.tools.check.advice import OF_SIZE, ON_DATA


class Rewrite(NamedTuple):
    """A construct, how it is recognised, and the case of the collection that does without it.

    `reason` and `line` are patterns for torch's reason and for the line of source; one that is empty fits anything.
    `original` is the case, or the function in the file of the rewrite, that has the construct. `since` is the first
    torch release that has what the rewrite needs.
    """

    construct: str
    advice: str
    case: str
    original: str
    reason: str = ""
    line: str = ""
    since: str = ""


REWRITES = (
    Rewrite(
        "a loop that a value ends with break",
        "run every step and keep the old value with torch.where",
        "control_flow_python::masks_instead_of_breaking",
        "control_flow_python::breaks_out_of_a_loop",
        reason=ON_DATA,
        line=r"^(el)?if\b.*\n\s*break\b",
    ),
    Rewrite(
        "a while loop whose end depends on a value",
        "use the operator while_loop",
        "higher_order::while_loop_as_a_rewrite",
        "higher_order::double_until_large",
        reason=ON_DATA,
        line=r"^while\b",
        since="2.5",
    ),
    Rewrite(
        "a branch on a value",
        "compute both sides and choose with torch.where",
        "control_flow_python::both_paths_and_a_choice",
        "control_flow_python::chooses_a_function_by_value",
        reason=ON_DATA,
        line=r"^(el)?if\b|\bif\b.+\belse\b|^return .*\bif\b",
    ),
    Rewrite(
        "a branch on a value whose sides are costly",
        "use torch.cond",
        "higher_order::cond_as_a_rewrite",
        "higher_order::branch_instead_of_cond",
        reason=ON_DATA,
        line=r"^(el)?if\b|\bif\b.+\belse\b|^return .*\bif\b",
        since="2.4",
    ),
    Rewrite(
        "tensors sorted by their values in Python",
        "stack them and index with argsort",
        "containers::sorts_rows_by_value",
        "containers::sorts_tensors_by_value",
        line=r"\bsorted\(|\.sort\(key",
    ),
    Rewrite(
        "an assignment through a mask",
        "use torch.where",
        "mutation::selects_by_a_mask",
        "mutation::assigns_through_a_mask",
        line=r"\w\[[^\]]*(<|>|==|!=|mask|~)[^\]]*\] *[-+*/]?=[^=]",
    ),
    Rewrite(
        "a result whose size depends on the values",
        "keep the size, and let the mask be a weight",
        "data_dependent::mean_of_the_positive_by_weights",
        "data_dependent::mean_of_the_positive",
        reason=OF_SIZE,
    ),
    Rewrite(
        "a write into the diagonal or another view",
        "use diagonal_scatter, or another of the scatter functions",
        "mutation::scatters_the_diagonal",
        "mutation::writes_the_diagonal",
        line=r"\.(diagonal|diag|unbind|select|narrow)\(.*\)(\[[^\]]*\])?\.?(\w+_\(| *[-+*/]?=[^=])",
    ),
    Rewrite(
        "a tensor detached in place",
        "use detach, which gives another tensor",
        "autograd::detached_copy",
        "autograd::detach_in_place",
        line=r"\.detach_\(",
    ),
    Rewrite(
        "a counter or another state outside the function",
        "pass the state in as a tensor and return the new one",
        "side_effects::state_in_and_out",
        "side_effects::counts_on_an_object",
        reason=r"python value of type '(dict|list|set)'|closed over global|global variable|side effect",
    ),
)
"""The rewrites, the most specific first."""


def rewrites_for(reason: str, line: str, following: str = "") -> list[Rewrite]:
    """Return the rewrites that fit torch's reason and a line of source, with the line below it; the best first."""
    text = f"{line.strip()}\n{following.strip()}"
    found = [
        one
        for one in REWRITES
        if re.search(one.reason, reason, re.IGNORECASE) and re.search(one.line, text, re.IGNORECASE)
    ]
    return found[:2]


def rewrite_of_case(case: str) -> Rewrite | None:
    """Return the rewrite that the collection has beside a case, or None."""
    return next((one for one in REWRITES if one.original == case), None)
