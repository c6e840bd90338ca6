"""Cases that close, limit or replace what their process needs to report a result."""

import os
import resource
import select
import signal
import time
from pathlib import Path

import msgspec
import torch

from recapture import case


def ones():
    return (torch.ones(3),)


def scratch():
    """The directory of this task: HOME/TASKS/SCRATCH."""
    return Path(os.environ["TMPDIR"]).parent


@case(example=ones)
def neighbour(x):
    """Takes its time."""
    time.sleep(2)
    return x + 1


@case(example=ones)
def closes_its_scratch_directory(x):
    """Forbids everybody to enter the directory where its own result belongs."""
    scratch().chmod(0)
    return x + 1


@case(example=ones)
def closes_the_tasks(x):
    """Forbids everybody to enter the directory of all tasks, for a while."""
    scratch().parent.chmod(0)
    time.sleep(0.5)
    return x + 1


@case(example=ones)
def closes_the_home(x):
    """Forbids everybody to enter the directory of the run, for a while."""
    scratch().parent.parent.chmod(0)
    time.sleep(0.5)
    return x + 1


@case(example=ones)
def may_write_no_file(x):
    """Limits the size of files to zero."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    return x + 1


@case(example=ones)
def may_open_no_file(x):
    """Limits the number of open files to those that are open."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    return x + 1


@case(example=ones)
def disturbs_every_descriptor(x):
    """Fills every pipe and socket, and forgets what any epoll object waits for."""
    for number in range(3, 64):
        try:
            os.set_blocking(number, False)
            while True:
                os.write(number, bytes(65536))
        except OSError:
            pass
        for other in range(64):
            try:
                select.epoll.fromfd(os.dup(number)).unregister(other)
            except OSError:
                pass
    return x + 1


@case(example=ones)
def kills_its_group(x):
    """Sends SIGKILL to its process group."""
    os.killpg(0, signal.SIGKILL)


@case(example=ones)
def stops_its_server(x):
    """Stops its parent."""
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(600)


@case(example=ones)
def does_not_end(x):
    """Replaces what ends a process, so that its result is not the last thing that happens."""
    os._exit = lambda status: None
    return x + 1


@case(example=ones)
def breaks_the_encoder(x):
    """Replaces functions that write results, files and tracebacks."""
    msgspec.json.encode = Path.write_bytes = Path.write_text = None
    return x + 1


@case(example=ones)
def forks_a_thousand_times(x):
    """Starts a thousand children that stay."""
    for _ in range(1000):
        if os.fork() == 0:
            time.sleep(600)
    time.sleep(600)


@case(example=ones)
def leaves_a_child_without_a_mark(x):
    """Leaves a process of another session, directory and program, without environment, that took its mark off."""
    if os.fork() == 0:
        os.setsid()
        os.chdir("/")
        resource.setrlimit(resource.RLIMIT_RTTIME, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        time.sleep(0.3)  # seen as a child of the case
        if os.fork() == 0:
            time.sleep(0.3)
            os.execve("/bin/sleep", ["sleep", "86399"], {})
        time.sleep(0.3)
        os._exit(0)
    time.sleep(1)
    return x + 1
