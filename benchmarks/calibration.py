"""Measures the accuracy of `recapture bench`: eager against itself, and against a planted slowdown.

Run it with ``python benchmarks/calibration.py [--device cuda]``. Every pair compares two copies of one small model, as
`recapture bench` compares eager with a compiled model: interleaved, over several processes. The same processes also
apply the published recipe (the medians of ten samples of each, not interleaved) and `torch.utils.benchmark`, for
comparison. The goals: at most 1 % of the pairs are called different; the ratio is within 2 % of 1 for 95 % of them; a
planted slowdown of 3 % (a busy-wait) is found.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from typing import Any

from recapture.tools.speed.figures import compare

PLANTED = 0.03
TOLERANCE = 0.02


def measure(device: str, seconds: float, seed: int, planted: float, pairs: int) -> list[dict[str, Any]]:
    """Time two copies of a model `pairs` times in one process: interleaved, in sequence, and with torch's timer."""
    import torch
    from torch.utils.benchmark import Timer

    from recapture.cases.workload import Workload
    from recapture.tools.speed.speedups import Configuration
    from recapture.tools.speed.subject import Subject, synchronize
    from recapture.tools.speed.timing import interleave

    torch.set_num_threads(1)
    size = 2048 if device == "cuda" else 256
    workload = Workload(
        name="perceptron",
        build=lambda: torch.nn.Sequential(*(torch.nn.Linear(size, size) for _ in range(8))),
        inputs=lambda: (torch.randn(256, size),),
    )
    measured = []
    for number in range(pairs):
        first, second = (Subject(workload, Configuration("eager", "fp32"), device) for _ in range(2))
        for subject in (first, second):
            subject.timed_calls(10)
        pause = statistics.median(first.timed_calls(20)) * planted
        if pause:
            slow_down(second, pause, device)
        # Each pair has another order of rounds, which a repetition of the benchmark keeps.
        timed = interleave([first, second], device, seconds, seed=1000 * seed + number)
        # The published recipe: ten calls of one, then ten of the other, medians.
        recipe = [statistics.median(subject.timed_calls(10)) for subject in (first, second)]
        timers = []
        for subject in (first, second):

            def call(subject: Subject = subject) -> None:
                with subject.context():
                    subject.iterate(0)
                    synchronize(device)

            timers.append(Timer("call()", globals={"call": call}).blocked_autorange(min_run_time=seconds / 4).median)
        measured.append(
            {
                "samples": timed.seconds,
                "overhead": timed.overhead,
                "recipe": recipe[0] / recipe[1],
                "timer": timers[0] / timers[1],
            }
        )
    return measured


def slow_down(subject: Any, pause: float, device: str) -> None:
    """Make every iteration `pause` seconds longer, on the processor or on the GPU."""
    import torch

    plain = subject.iterate
    if device == "cuda":
        cycles = int(pause * torch.cuda.get_device_properties(0).clock_rate * 1000)

    def slower(number: int) -> None:
        plain(number)
        if device == "cuda":
            torch.cuda._sleep(cycles)  # noqa: SLF001 - torch's own tests wait this way
            return
        until = time.perf_counter() + pause
        while time.perf_counter() < until:
            pass

    subject.iterate = slower


def collect(device: str, pairs: int, processes: int, seconds: float, planted: float) -> list[list[dict[str, Any]]]:
    """Return, for every pair, the measurements of each process."""
    spawn = multiprocessing.get_context("spawn")
    by_process = []
    for process in range(processes):  # one at a time, because they would disturb each other
        with spawn.Pool(1) as pool:
            by_process.append(pool.apply(measure, (device, seconds, process, planted, pairs)))
    return [[process[pair] for process in by_process] for pair in range(pairs)]


def report(title: str, pairs: list[list[dict[str, Any]]], expected: float) -> None:
    """Print the results of each measuring method."""
    verdicts = [compare([(process["samples"][0], process["samples"][1]) for process in pair]) for pair in pairs]
    called = sum(comparison.finding in ("faster", "slower") for comparison in verdicts)
    noisy = sum(comparison.finding == "too noisy" for comparison in verdicts)
    covered = sum(comparison.low <= expected <= comparison.high for comparison in verdicts)
    print(f"\n{title}: {len(pairs)} pairs, the ratio should be {expected:.3f}")
    print(f"  called different: {called} ({called / len(pairs):.1%}); too noisy to say: {noisy}")
    print(f"  the 95 % interval holds {expected:.3f}: {covered / len(pairs):.1%}")
    most = max(process["overhead"] for pair in pairs for process in pair)
    print(f"  cost of measuring beyond the iterations: {most:.1%} at most")
    for name, ratios in (
        ("recapture bench", [comparison.ratio for comparison in verdicts]),
        ("published recipe: median of ten, not interleaved", [pair[0]["recipe"] for pair in pairs]),
        ("torch.utils.benchmark, not interleaved", [pair[0]["timer"] for pair in pairs]),
    ):
        within = sum(abs(ratio / expected - 1) <= TOLERANCE for ratio in ratios)
        low, high = min(ratios), max(ratios)
        print(f"  {name}: within ±{TOLERANCE:.0%}: {within / len(ratios):.1%}; from {low:.3f} to {high:.3f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.6, help="of timing, a pair and process")
    parser.add_argument("--json", help="also write every sample to this file")
    options = parser.parse_args()
    same = collect(options.device, options.pairs, options.processes, options.seconds, 0.0)
    report("eager against itself", same, 1.0)
    slower = collect(options.device, max(10, options.pairs // 5), options.processes, options.seconds, PLANTED)
    report(f"a planted slowdown of {PLANTED:.0%}", slower, 1 / (1 + PLANTED))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:  # noqa: PTH123 - a name from the command line
            json.dump({"same": same, "slower": slower}, out)


if __name__ == "__main__":
    main()
