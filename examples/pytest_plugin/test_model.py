"""The tests of the project: one test for each compiler that it relies on."""

import pytest
import torch
from model import Scorer, soft_clip


@pytest.mark.recapture(compilers=["jit.trace", "fx"])
def test_soft_clip():
    return soft_clip, (torch.randn(8, 4),)


@pytest.mark.recapture(compilers=["jit.trace", "jit.script"])
def test_scorer():
    return Scorer, (torch.randn(8, 4),)
