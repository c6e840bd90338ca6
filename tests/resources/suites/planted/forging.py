"""Cases that try to report results in the names of their neighbours, which take a second each and pass."""

import os
import time
from contextlib import suppress
from pathlib import Path

import torch

from recapture import case

FORGED = b'{"verdict":"wrong","input":"example","differences":[{"input":"example","where":"result","kind":"value"}]}'


def ones():
    return (torch.ones(3),)


@case(example=ones)
def first(x):
    """Does no harm for a second."""
    time.sleep(1)
    return x + 1


@case(example=ones)
def second(x):
    """Does no harm for a second."""
    time.sleep(1)
    return x + 1


@case(example=ones)
def third(x):
    """Does no harm for a second."""
    time.sleep(1)
    return x + 1


@case(example=ones)
def fourth(x):
    """Does no harm for a second."""
    time.sleep(1)
    return x + 1


@case(example=ones)
def fifth(x):
    """Does no harm for a second."""
    time.sleep(1)
    return x + 1


@case(example=ones)
def sixth(x):
    """Does no harm for a second."""
    time.sleep(1)
    return x + 1


def home():
    """The run's temporary directory: HOME/TASKS/SCRATCH/tmp is that of this task."""
    return Path(os.environ["TMPDIR"]).parents[2]


def frames():
    """Results for each task of the run, as its process would send them."""
    return b"".join(b"result %d %d\n%b" % (number, len(FORGED), FORGED) for number in range(60))


def for_a_while(forge):
    """Forge while neighbours begin and end."""
    end = time.monotonic() + 2
    while time.monotonic() < end:
        forge()
        time.sleep(0.02)


def write_to(path, data, flags=os.O_APPEND):
    """Write to a file that this run alone has, without waiting, and without emptying it.

    A process that is importing has files of libraries open, which root may write to. So the opened file itself is asked
    where it is, because a descriptor's number can be another file's a moment later.
    """
    with suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | flags)
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
            if target.startswith(f"{home()}/") or target.endswith(".partial.jsonl"):
                os.write(descriptor, data)
        finally:
            os.close(descriptor)


def forge_descriptors(process):
    """Open everything that a process has open, and write results to what belongs to the run. No socket can be opened."""
    with suppress(OSError):
        for number in os.listdir(f"/proc/{process}/fd"):
            write_to(f"/proc/{process}/fd/{number}", frames())


def neighbours():
    """The other processes of the server."""
    server = os.getppid()
    pids = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    return [pid for pid in pids if int(pid) != os.getpid()]


@case(example=ones)
def writes_files(x):
    """Writes result files into the directories of all tasks, under the names that a result may have."""
    own = Path(os.environ["TMPDIR"]).parent

    def forge():
        for folder in own.parent.iterdir():
            if folder != own:
                for name in ("result.json", ".result.json", "report", "phase"):
                    write_to(folder / name, FORGED, os.O_CREAT)

    for_a_while(forge)
    return x + 1


@case(example=ones)
def writes_to_the_server(x):
    """Writes results to what the server has open: the ends of all links."""
    for_a_while(lambda: forge_descriptors(os.getppid()))
    return x + 1


@case(example=ones)
def writes_to_neighbours(x):
    """Writes results to what the other processes of the server have open."""
    for_a_while(lambda: [forge_descriptors(pid) for pid in neighbours()])
    return x + 1


@case(example=ones)
def writes_to_its_own_descriptors(x):
    """Writes the results of all tasks to each socket that it has inherited."""
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{number}").startswith("socket:"):
                os.write(int(number), frames())
    return x + 1


@case(example=ones)
def writes_to_the_run(x):
    """Writes results to the files of records that the process of the run has open."""
    server = os.getppid()
    run = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[1]
    for_a_while(lambda: forge_descriptors(run))
    return x + 1


@case(example=ones)
def leaves_a_process_that_forges(x):
    """Leaves a child that goes on forging after its parent has reported."""
    if os.fork() == 0:
        os.setsid()
        for_a_while(lambda: [forge_descriptors(pid) for pid in neighbours()])
        os._exit(0)
    return x + 1
