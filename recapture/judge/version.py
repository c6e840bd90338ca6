"""The version of the judge, which says whether two runs were judged by the same rules."""

JUDGE_VERSION = 2
"""Raised when the judge may give a cell another verdict; `docs/reading-a-verdict.md` says what each version changed.

A run keeps it in its `environment.json`. Runs of version 1 have none there.
"""
