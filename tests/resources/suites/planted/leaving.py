"""Cases that return, and leave processes behind."""

import os
import threading
import time

import torch

from recapture import case

SECONDS = 600


def ones():
    return (torch.ones(3),)


OWNER = os.environ.setdefault("RECAPTURE_PLANTED_OWNER", str(os.getpid()))
"""The process of the cell; its children execute this file as well."""


@case(example=ones)
def neighbour(x):
    """Does no harm."""
    return x + 1


@case(example=ones)
def leaves_children(x):
    """Leaves three children in its own session."""
    for _ in range(3):
        if os.fork() == 0:
            time.sleep(SECONDS)
            os._exit(0)
    return x + 1


@case(example=ones)
def leaves_a_session(x):
    """Leaves a child in a session of its own."""
    if os.fork() == 0:
        os.setsid()
        time.sleep(SECONDS)
        os._exit(0)
    return x + 1


@case(example=ones)
def leaves_a_daemon(x):
    """Leaves a grandchild in a session of its own whose parent is gone, as daemons do."""
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(SECONDS)
        os._exit(0)
    os.waitpid(child, 0)
    return x + 1


@case(example=ones)
def leaves_a_child_of_a_thread(x):
    """Leaves a child that another thread forked, in a session of its own."""

    def fork():
        if os.fork() == 0:
            os.setsid()
            time.sleep(SECONDS)
            os._exit(0)

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    return x + 1


@case(example=ones)
def returns_twice(x):
    """Forks, and returns in both processes: another value in the child, which is not the cell's."""
    if str(os.getpid()) != OWNER or os.fork() == 0:  # a child goes on with the calls, and forks no more
        return x - 1
    time.sleep(0.3)
    return x + 1
