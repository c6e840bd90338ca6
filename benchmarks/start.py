"""Measures the time of ``recapture run`` until its first cell, compared with ``import torch``.

``python benchmarks/start.py [--runs N]`` imports torch and starts a run alternately, so that a busy machine slows both.
It prints the fastest of each, because load only adds time, the stages of that start, and the median of the ratios of
the pairs. The goal is a ratio of at most 1.5 for cells that need only ``import torch``.

This only measures: the exit status is 0 for any figures.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time

GOAL = 1.5


def import_torch() -> float:
    """Return the wall seconds that a new Python process takes to import torch."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - begin


def start(words: list[str]) -> dict[str, float]:
    """Return the seconds of each stage of a run's start."""
    with tempfile.TemporaryDirectory(prefix="recapture-benchmark-") as results:
        command = [sys.executable, "-m", "recapture", "run", *words, "--start-times", "--results", results]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    line = next((line for line in done.stderr.splitlines() if "start:" in line), None)
    if line is None:
        raise SystemExit(f"the run failed: {done.stderr.strip()}")
    return {name: float(seconds) for name, seconds in re.findall(r"([a-z][a-z ]*) ([0-9.]+)[,)]", line)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", default=["types"], help="what to run [types]")
    parser.add_argument("--compiler", default="eager", help="the compiler of the cells [eager]")
    parser.add_argument("--device", default="cpu", help="cpu or cuda [cpu]")
    parser.add_argument("--runs", type=int, default=5, help="times that each is measured [5]")
    options = parser.parse_args()
    words = [*options.words, "--compiler", options.compiler, "--device", options.device]
    torch, starts = [], []
    for _ in range(options.runs):
        torch.append(import_torch())
        starts.append(start(words))
    fastest = min(starts, key=lambda start: sum(start.values()))
    print(f"import torch: {min(torch):.2f} s (fastest of {options.runs})")
    print(f"to the first cell of recapture run {' '.join(words)}: {sum(fastest.values()):.2f} s (also the fastest)")
    for stage, seconds in fastest.items():
        print(f"  {stage:10} {seconds:5.2f} s")
    ratios = [sum(start.values()) / alone for start, alone in zip(starts, torch, strict=True)]
    print(
        f"start / import torch: {sum(fastest.values()) / min(torch):.2f} of the fastest, "
        f"{statistics.median(ratios):.2f} median of pairs (goal: at most {GOAL})"
    )


if __name__ == "__main__":
    main()
