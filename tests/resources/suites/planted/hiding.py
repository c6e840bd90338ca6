"""Cases that use memory and processes where a look at their own process does not show them."""

import mmap
import os
import time

import torch

from recapture import case

STEP = 64 << 20


def ones():
    return (torch.ones(3),)


def daemonize():
    """Return in a process whose parent has died, in a session, directory and environment of its own; and in this one."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return False
    os.setsid()
    os.chdir("/")
    if os.fork():
        os._exit(0)
    return True


@case(example=ones)
def neighbour(x):
    """Does no harm."""
    return x + 1


@case(example=ones)
def fills_a_memory_file(x):
    """Writes to a file in memory that no process maps."""
    file = os.memfd_create("planted")
    while True:
        os.write(file, bytes(STEP))


@case(example=ones)
def fills_shared_memory(x):
    """Fills anonymous memory that is shared with children."""
    kept = []
    while True:
        kept.append(mmap.mmap(-1, STEP))
        kept[-1].write(bytes(STEP))


@case(example=ones)
def shares_memory_with_children(x):
    """Maps a memory file in four processes: it is there once."""
    file = os.memfd_create("planted")
    os.truncate(file, 3 * STEP)
    shared = mmap.mmap(file, 3 * STEP)
    for _ in range(3):
        shared.write(bytes(STEP))
    for _ in range(3):
        if os.fork() == 0:
            sum(shared[:: mmap.PAGESIZE])
            time.sleep(600)
    time.sleep(1)
    return x + 1


@case(example=ones)
def starts_a_daemon_that_hogs_memory(x):
    """Waits while a process that is no longer its descendant fills memory."""
    if daemonize():
        kept = []
        while True:
            kept.append(bytearray(os.urandom(1)) * STEP)
    time.sleep(600)


@case(example=ones)
def leaves_eighty_daemons(x):
    """Starts daemons and returns."""
    for _ in range(80):
        if daemonize():
            time.sleep(600)
            os._exit(0)
    return x + 1
