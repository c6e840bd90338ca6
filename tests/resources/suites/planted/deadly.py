"""Cases and compilers that kill, stop or starve the process they run in."""

import ctypes
import os
import signal
import sys
import time

import torch

from recapture import case
from recapture.cases.compiler import compiler


def ones():
    return (torch.ones(3),)


@case(example=ones)
def neighbour(x):
    """Does no harm."""
    return x + 1


@case(example=ones)
def segfaults(x):
    """Reads address zero."""
    return ctypes.string_at(0)


@case(example=ones)
def aborts(x):
    """Calls abort."""
    os.abort()


@case(example=ones)
def exits(x):
    """Leaves with status 0, and without a result."""
    os._exit(0)


@case(example=ones)
def loops(x):
    """Never ends."""
    while True:
        pass


@case(example=ones)
def loops_and_ignores_sigterm(x):
    """Never ends, and will not be asked to."""
    for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)
    while True:
        time.sleep(1)


@case(example=ones)
def hogs_memory(x):
    """Touches more memory as fast as it can."""
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1)) * (64 << 20))


@case(example=ones)
def bombs(x):
    """Forks, and every child forks, up to a depth: 2**10 processes if nothing stops them."""
    for _ in range(10):
        os.fork()
    time.sleep(600)


@case(example=ones)
def kills_its_server_and_leaves_a_child(x):
    """Leaves a process behind that nothing but its environment tells from others, then kills its parent."""
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


@compiler("dies-in-capture")
def dies_in_capture(fn, example):
    """Dies while it captures."""
    os.kill(os.getpid(), signal.SIGSEGV)


@compiler("hangs-in-capture")
def hangs_in_capture(fn, example):
    """Never finishes capturing."""
    time.sleep(600)


@compiler("dies-in-call")
def dies_in_call(fn, example):
    """Dies when what it made is called."""
    return lambda *args: os.kill(os.getpid(), signal.SIGBUS)


@compiler("allocates-too-much")
def allocates_too_much(fn, example):
    """Asks torch for more memory than there is."""
    return lambda *args: torch.empty(1 << 60)


@compiler("exits-with-status")
def exits_with_status(fn, example):
    """Calls sys.exit, which is an exception like any other."""
    sys.exit(3)
