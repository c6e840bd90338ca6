"""Hostile arguments of every command that takes a name, a path or an address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz import corpus, mutations

if TYPE_CHECKING:
    import random
    from pathlib import Path


def hostile(choose: random.Random, root: Path) -> list[str]:
    """Return a command line with a hostile argument. Nothing that it names exists, so that no cell runs."""
    mark = choose.choice(mutations.MARKS)
    results, old = str(root / "results"), str(root / "results" / corpus.OLD)
    good, bad = corpus.IMAGE, corpus.DRIFTED
    return choose.choice(
        (
            [mark],
            ["diff", mark, old],
            ["diff", old, old + mark],
            ["diff", old, old, "--format", mark],
            ["diff", old, old, "--kind", mark],
            ["diff", old, old, "--category", mark],
            ["history", mark, "--results", results],
            ["history", "--results", mark],
            ["history", "--issue", mark, "--results", results],
            ["history", "--suite", mark, "--results", results],
            ["report", mark],
            ["report", "--" + mark],
            ["report", "--output", old + "/x" + mark, old],
            ["report", "--benchmark-json", old + "/x" + mark, old],
            ["report", "--kind", mark, old],
            ["report", "-k", mark, old],
            ["report", "--from", mark, "--to", "compile", results],
            ["report", "--from", "compile", "--to", mark, old],
            ["bisect", mark, "--no-run", "--results", results],
            ["bisect", corpus.CELL + mark, "--no-run", "--results", results],
            ["bisect", corpus.CELL, "--no-run", "--results", results, "--good", mark, "--bad", bad],
            ["bisect", corpus.CELL, "--no-run", "--results", mark, "--good", good, "--bad", bad],
            ["merge", mark, "--results", str(root / "merged")],
            ["merge", str(root / "matrix"), "--results", str(root / "merged") + mark],
            ["plan", mark],
            ["plan", "types", "--image", mark],
            ["plan", "types", "--image", good, "--compiler", mark],
            ["plan", "types", "--image", good, "--shards", mark],
            ["matrix", mark, "--via", "slurm"],
            ["images", "list", "--gpu", mark],
            ["images", mark],
            ["list", mark],
            ["list", "--claims", mark],
            ["list", "--issues", mark],
            ["explain", mark],
            ["explain", "--device", mark, "types"],
            ["stage", mark],
            ["stage", "--budget", mark, "types"],
            ["reduce", mark],
            ["reduce", corpus.CELL, "--device", mark],
            ["reduce", corpus.CELL, "--output", old + "/none/x" + mark],
            ["repro", mark],
            ["repro", corpus.CELL, "--device", mark],
            ["run", mark],
            ["run", "types", "--shard", mark],
            ["run", "types", "--shard", "1/2", "--durations", f"absent{mark}"],
            ["bench", mark],
            ["check", mark],
            ["check", mark + ":Net", "--input", "2x2"],
            ["check", "types.py:scale", "--input", mark],
            ["check", str(root / "suites" / "types.py") + ":scale", "--across", mark],
            ["check", str(root / "suites" / "types.py") + ":scale", "--across", "2.6.0", "--with", mark],
            ["migrate", mark],
            ["doctor", "--device", mark],
        )
    )
