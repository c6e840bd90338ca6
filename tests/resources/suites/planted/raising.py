"""Cases that raise what few expect."""

import torch

from recapture import case


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no words")

    __repr__ = __str__


def ones():
    return (torch.ones(3),)


@case(example=ones)
def neighbour(x):
    """Does no harm."""
    return x + 1


@case(example=ones)
def raises_system_exit(x):
    """Leaves as scripts do."""
    raise SystemExit(0)


@case(example=ones)
def raises_keyboard_interrupt(x):
    """Raises what Ctrl-C raises."""
    raise KeyboardInterrupt


@case(example=ones)
def raises_the_unprintable(x):
    """Raises an exception that cannot be turned into text."""
    raise Unprintable


@case(example=ones)
def raises_the_unprintable_when_traced(x):
    """Raises an exception that cannot be turned into text, at capture alone."""
    if torch.jit.is_tracing():
        raise Unprintable
    return x + 1
