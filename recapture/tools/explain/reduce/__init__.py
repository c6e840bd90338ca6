"""Reduces a cell to the smallest program with the same verdict: edits, predicate, runner, search."""
