"""Cases that write a hundred megabytes."""

import os
import sys

import torch

from recapture import case

LINE = "all work and no play makes a dull suite\n"
LINES = 100_000_000 // len(LINE)


def ones():
    return (torch.ones(3),)


@case(example=ones)
def neighbour(x):
    """Writes one line."""
    print("hello from the neighbour")
    return x + 1


@case(example=ones)
def floods_stdout(x):
    """Writes through `sys.stdout`."""
    for _ in range(LINES // 1000):
        sys.stdout.write(LINE * 1000)
    print("the end of it")
    return x + 1


@case(example=ones)
def floods_the_descriptor(x):
    """Writes to descriptor 1, past Python."""
    for _ in range(LINES // 1000):
        os.write(1, (LINE * 1000).encode())
    os.write(1, b"the end of it\n")
    return x + 1
