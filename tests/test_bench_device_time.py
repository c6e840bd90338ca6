"""A GPU's own time, on a planted GPU: a queue that a simulated processor fills, and two clocks."""

import contextlib

import pytest

from recapture.records.verdicts import Verdict
from recapture.tools.speed import device_time as module
from recapture.tools.speed.device_time import SAMPLES, device_time
from recapture.tools.speed.remarks import why_wide
from recapture.tools.speed.speedups import (
    Conditions,
    Configuration,
    DeviceTime,
    Measured,
    Process,
    Row,
    Series,
    Start,
)

RATE = 2e9
"""Cycles a second of the planted GPU."""


class Machine:
    """A processor and a GPU; launches are queued, at most `depth` of them."""

    def __init__(self, depth=1000):
        self.now = 0.0
        self.ends: list[float] = []
        self.depth = depth

    def launch(self, seconds):
        begin = max(self.now, self.ends[-1] if self.ends else 0.0)
        self.ends.append(begin + seconds)
        if len(self.ends) > self.depth:  # the processor waits until there is room
            self.now = max(self.now, self.ends[-1 - self.depth])

    # what `device_time` calls
    def synchronize(self):
        self.now = max([self.now, *self.ends[-1:]])

    def wait(self, cycles):
        self.launch(cycles / RATE)

    def mark(self):
        self.launch(0.0)
        at = self.ends[-1]
        return lambda: at


class Iterations:
    """A variant with so many kernels of a length, each of which takes the processor some seconds to launch."""

    def __init__(self, machine, kernels, seconds, launch):
        self.machine, self.kernels, self.seconds, self.launch = machine, kernels, seconds, launch

    def context(self):
        return contextlib.nullcontext()

    def iterate(self, _number):
        for _ in range(self.kernels):
            self.machine.now += self.launch
            self.machine.launch(self.seconds)


@pytest.fixture
def machine(monkeypatch):
    planted = Machine()
    monkeypatch.setattr(module.time, "perf_counter", lambda: planted.now)
    monkeypatch.setattr(module.time, "process_time", lambda: planted.now)
    return planted


def test_an_iteration_that_waits_for_launches_has_its_gpu_time_and_its_launching_time(machine):
    host_bound = Iterations(machine, 500, 4e-6, 20e-6)
    graph = Iterations(machine, 1, 1.5e-3, 50e-6)
    device_times = device_time(host_bound, graph, machine)
    assert len(device_times.eager) == len(device_times.candidate) == SAMPLES
    assert device_times.eager == pytest.approx([2e-3] * SAMPLES, rel=1e-4)  # the whole takes 10 ms
    assert device_times.candidate == pytest.approx([1.5e-3] * SAMPLES, rel=1e-4)
    assert device_times.eager_cpu == pytest.approx(10e-3, rel=0.05)
    assert device_times.candidate_cpu == pytest.approx(50e-6, rel=0.05)


def test_more_launches_than_the_queue_holds_give_an_upper_bound(machine):
    many = Iterations(machine, 3000, 4e-6, 20e-6)
    device_times = device_time(many, many, machine)
    assert 12e-3 < device_times.eager[0] < 60e-3


def row(times, *, sm_clock=None, ratios=(1.0, 4.0)):
    processes = tuple(
        Process(
            start=Start(capture=0, calls=(1, 1)),
            eager_start=Start(capture=0, calls=(1, 1)),
            eager=Series(iterations=1, seconds=(0.010 * ratio,) * 20),
            twin=None,
            candidate=Series(iterations=1, seconds=(0.010,) * 20),
            overhead=0,
            conditions=Conditions(samples=5, sm_clock=sm_clock),
            device_time=times,
        )
        for ratio in ratios
    )
    measured = Measured(
        speedup=(2, 1, 4), finding="too noisy", p_value=1, over_twin=None, seconds=0.010, eager_seconds=0.020,
        kernel=None, eager_kernel=None, memory=None, eager_memory=None, break_even_cold=None, break_even_warm=None,
        device=times and times.candidate[0], eager_device=times and times.eager[0], device_speedup=None,
    )  # fmt: skip
    return Row(
        workload="w", configuration=Configuration("compile", "fp32"), verdict=Verdict.PASS, measured=measured,
        processes=processes,
    )  # fmt: skip


def test_a_wide_interval_of_a_host_bound_eager_says_so_with_both_times():
    times = DeviceTime(eager=(0.005,), candidate=(0.009,), eager_cpu=0.019, candidate_cpu=0.0001)
    first, *others = why_wide(row(times))
    assert first == (
        "the interval is 4.0× wide: eager waits for the processor, which needs 19.00 ms to launch it: the GPU works "
        "5.00 ms of 20.00 ms; compare the GPU's own time, or take a larger batch"
    )
    assert others == ["processes disagree, from 1.00× to 4.00×: measure more --processes"]


def test_a_wide_interval_names_the_clock_if_that_moved():
    [first] = why_wide(row(None, sm_clock=(1200, 1500, 1980), ratios=(2.0, 2.0)))
    assert first.startswith("the interval is 4.0× wide: the GPU's clock went from 1200 to 1980 MHz")


def test_a_wide_interval_without_a_cause_says_that_too():
    [first] = why_wide(row(None, ratios=(2.0, 2.0)))
    assert first == "the interval is 4.0× wide: no cause was found; measure with more --processes and --seconds"
