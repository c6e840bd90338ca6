"""Cases that change the process they run in."""

import os
import shutil

import torch

from recapture import case


def ones():
    return (torch.ones(3),)


@case(example=ones)
def neighbour(x):
    """Does no harm."""
    return x + 1


@case(example=ones)
def closes_every_file(x):
    """Closes every descriptor, standard output included."""
    os.closerange(0, 4096)
    return x + 1


@case(example=ones)
def removes_its_directory(x):
    """Removes the working directory, where it still can."""
    try:
        shutil.rmtree(os.getcwd())
    except FileNotFoundError:
        pass
    return x + 1


@case(example=ones, held_out=[ones])
def changes_the_default_dtype(x):
    """Leaves another default dtype behind."""
    torch.set_default_dtype(torch.float64)
    return x + torch.rand(3).dtype.itemsize


@case(example=ones, held_out=[ones])
def turns_gradients_off(x):
    """Leaves gradients off."""
    torch.set_grad_enabled(False)
    return x * 2
