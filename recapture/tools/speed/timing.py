"""Steady-state timing: variants are interleaved in one process, and every sample is kept.

A sample is the mean over a few consecutive iterations, so that the cost of reading the clock is negligible. A round
takes one sample of each variant, in random order, so that neither position nor drift favours one. The number of rounds
is fixed before the first round, because stopping when the figures look good would bias them.
"""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from recapture.tools.speed.subject import Subject, synchronize

SAMPLE_SECONDS = {"cuda": 0.01, "cpu": 0.002}
"""Seconds of one sample, by device; longer if a single iteration takes longer.

With short samples, a disturbance affects only a few of many, which a median tolerates: with samples of 20 ms,
`benchmarks/calibration.py` found 84 % of the ratios within 2 % of the true ratio, with these values all of them.
"""

FEWEST_ROUNDS, MOST_ROUNDS = 10, 400

PILOT_SAMPLES = 5


@dataclass(frozen=True)
class Interleaved:
    """The samples of each variant, in the order given, and their time window in monotonic seconds."""

    iterations: list[int]
    seconds: list[list[float]]
    began: float
    ended: float
    overhead: float


def interleave(subjects: Sequence[Subject], device: str, seconds: float, *, seed: int) -> Interleaved:
    """Time the subjects for about `seconds` in total; they must be warmed up."""
    clocks = [_Clock(subject, device) for subject in subjects]
    for clock in clocks:
        pilot = [clock.sample(1) for _ in range(PILOT_SAMPLES)]
        # Use the fastest, so that one disturbed pilot does not make every sample too short.
        clock.iterations = max(1, math.ceil(SAMPLE_SECONDS[device] / max(min(pilot), 1e-9)))
    round_seconds = sum(clock.iterations * clock.sample(clock.iterations) for clock in clocks)
    rounds = min(MOST_ROUNDS, max(FEWEST_ROUNDS, math.floor(seconds / round_seconds)))
    order = list(range(len(clocks)))
    shuffle = random.Random(seed).shuffle  # noqa: S311 - not for cryptography
    samples: list[list[float]] = [[] for _ in clocks]
    gc.collect()
    collecting = gc.isenabled()
    gc.disable()  # a garbage collection would count towards the variant that is running
    timed = 0.0
    began = time.monotonic()
    try:
        for _ in range(rounds):
            shuffle(order)
            for index in order:
                per_iteration = clocks[index].sample(clocks[index].iterations)
                timed += per_iteration * clocks[index].iterations
                samples[index].append(per_iteration)
    finally:
        ended = time.monotonic()
        if collecting:
            gc.enable()
    return Interleaved([clock.iterations for clock in clocks], samples, began, ended, (ended - began) / timed - 1)


class _Clock:
    """Takes samples of one subject: with CUDA events on a GPU, with a monotonic clock elsewhere."""

    def __init__(self, subject: Subject, device: str) -> None:
        self.subject = subject
        self.device = device
        self.iterations = 1
        self.number = 0
        if device == "cuda":
            import torch

            self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def sample(self, iterations: int) -> float:
        """Return the seconds per iteration, over several consecutive iterations, with nothing else running."""
        subject, first = self.subject, self.number
        self.number += iterations
        with subject.context():
            if self.device == "cuda":
                synchronize(self.device)
                self.begin.record()
                for number in range(first, first + iterations):
                    subject.iterate(number)
                self.end.record()
                self.end.synchronize()
                return float(self.begin.elapsed_time(self.end)) / 1000 / iterations
            begin = time.perf_counter_ns()
            for number in range(first, first + iterations):
                subject.iterate(number)
            return (time.perf_counter_ns() - begin) / 1e9 / iterations
