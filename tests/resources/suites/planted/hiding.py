"""Cases that use memory and processes where a look at their own process does not show them."""

import ctypes
import errno
import mmap
import os
import random
import signal
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


def leave_shared_memory(size):
    """Fill a segment of System V shared memory, and detach it: no process holds it any more.

    The upper half of its key is the number in RECAPTURE_TEST_KEY, by which the test finds the segments of its own run.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    mine = int(os.environ["RECAPTURE_TEST_KEY"]) << 16
    new = 0o1000 | 0o2000  # IPC_CREAT | IPC_EXCL
    while (segment := libc.shmget(mine + random.SystemRandom().randrange(1 << 16), ctypes.c_size_t(size), new | 0o600)) < 0:
        assert ctypes.get_errno() == errno.EEXIST
    memory = ctypes.c_void_p(libc.shmat(segment, None, 0))
    ctypes.memset(memory, 1, size)
    libc.shmdt(memory)


@case(example=ones)
def fills_detached_shared_memory(x):
    """Fills System V shared memory that no process has attached."""
    while True:
        leave_shared_memory(STEP)


@case(example=ones)
def leaves_shared_memory(x):
    """Leaves System V shared memory that it created itself, and more that a child created."""
    leave_shared_memory(1 << 20)
    if os.fork() == 0:
        leave_shared_memory(1 << 20)
        time.sleep(600)
    time.sleep(0.3)
    return x + 1


@case(example=ones)
def leaves_shared_memory_and_kills_its_server(x):
    """Leaves some System V shared memory, and nobody who knows of it but the host."""
    leave_shared_memory(1 << 20)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


@case(example=ones)
def leaves_shared_memory_of_processes_and_kills_its_server(x):
    """Leaves shared memory of a process that has ended and of one that lives, and nobody who knows of it but the host."""
    for seconds in (0.5, 600):
        if os.fork() == 0:
            leave_shared_memory(1 << 20)
            time.sleep(seconds)
            os._exit(0)
    time.sleep(1)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


@case(example=ones)
def shares_memory_with_children(x):
    """Maps a memory file in four processes: it is there once."""
    file = os.memfd_create("planted")
    os.truncate(file, 2 * STEP)
    shared = mmap.mmap(file, 2 * STEP)
    for _ in range(2):
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
def starts_a_daemon_with_a_memory_file(x):
    """Waits while a process that is no longer its descendant writes to a file in memory that no process maps."""
    if daemonize():
        file = os.memfd_create("planted")
        while True:
            os.write(file, bytes(STEP))
    time.sleep(600)


@case(example=ones)
def leaves_eighty_daemons(x):
    """Starts daemons and returns."""
    for _ in range(80):
        if daemonize():
            time.sleep(600)
            os._exit(0)
    return x + 1
