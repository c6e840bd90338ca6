"""What changed between two results directories: found (`compare`), located (`directories`) and told (`render`)."""

from recapture.diff.compare import compare, diff
from recapture.diff.directories import locate
from recapture.diff.model import CATEGORIES, FAIL_ON, SPEED_CATEGORIES, Change, Diff, diff_schema, found, is_regression
from recapture.diff.render import print_diff, to_json, to_markdown

__all__ = [
    "CATEGORIES",
    "FAIL_ON",
    "SPEED_CATEGORIES",
    "Change",
    "Diff",
    "compare",
    "diff",
    "diff_schema",
    "found",
    "is_regression",
    "locate",
    "print_diff",
    "to_json",
    "to_markdown",
]
