"""How calls are timed side by side: rounds, rotation of inputs, and what the timing itself costs."""

import time

import pytest

from recapture.tools.speed.timing import FEWEST_ROUNDS, MOST_ROUNDS, interleave


class Sleeper:
    """A subject whose iterations take a known time."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.seen = []

    def context(self):
        import contextlib

        return contextlib.nullcontext()

    def iterate(self, number):
        self.seen.append(number)
        until = time.perf_counter() + self.seconds
        while time.perf_counter() < until:
            pass


@pytest.mark.serial
def test_samples_are_seconds_an_iteration_and_cost_little_beside_them():
    short, long = Sleeper(0.001), Sleeper(0.004)
    samples = interleave([short, long], "cpu", 0.6, seed=0)
    assert len(samples.seconds[0]) == len(samples.seconds[1]) >= FEWEST_ROUNDS
    assert samples.iterations[0] > samples.iterations[1]
    # The least of them: on a busy machine the others wait for their turn.
    assert min(samples.seconds[0]) == pytest.approx(0.001, rel=0.3)
    assert min(samples.seconds[1]) == pytest.approx(0.004, rel=0.3)
    assert 0 <= samples.overhead < 0.1
    assert samples.began < samples.ended


def test_inputs_go_on_in_rotation():
    subject = Sleeper(0.001)
    interleave([subject], "cpu", 0.2, seed=0)
    assert subject.seen == list(range(len(subject.seen)))


def test_the_number_of_rounds_has_bounds():
    assert len(interleave([Sleeper(0.03)], "cpu", 0.01, seed=0).seconds[0]) == FEWEST_ROUNDS
    assert len(interleave([Sleeper(0.0001)], "cpu", 0.5, seed=0).seconds[0]) <= MOST_ROUNDS
