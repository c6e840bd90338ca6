"""Tests of a small project: one passes, one fails and is known to."""

import torch


def ramp(size):
    """Return the numbers from 0 up to `size`."""
    return torch.arange(size)


def test_ramp():
    assert ramp(4).tolist() == [0, 1, 2, 3]


def test_ramp_includes_its_end():
    assert ramp(4)[-1] == 4
