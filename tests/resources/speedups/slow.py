"""A workload whose compiler takes its time and writes down when it runs: for tests that interrupt a benchmark."""

import os
import time
from pathlib import Path

import torch
from torch import nn

from recapture import compiler, workload


@workload(inputs=lambda: (torch.randn(8, 16),))
def slow():
    """One linear layer."""
    return nn.Linear(16, 4)


@compiler("sleeps")
def sleeps(fn, example):
    """Waits until the file that the test names is gone."""
    log = Path(os.environ["RECAPTURE_TEST_LOG"])
    with log.open("a") as lines:
        lines.write("compiles\n")
    while log.with_suffix(".wait").exists():
        time.sleep(0.05)
    return fn
