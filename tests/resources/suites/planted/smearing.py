"""Cases that plant something in the files through which their process reports its result."""

import os
import time
from pathlib import Path

import torch

from recapture import case


def ones():
    return (torch.ones(3),)


def scratch():
    """The directory of this task, where its result belongs."""
    return Path(os.environ["TMPDIR"]).parent


@case(example=ones)
def neighbour(x):
    """Does no harm."""
    return x + 1


@case(example=ones)
def malformed(x):
    """Leaves something that is not JSON."""
    (scratch() / "result.json").write_text("{")
    os._exit(0)


@case(example=ones)
def another_shape(x):
    """Leaves JSON that is not a result."""
    (scratch() / "result.json").write_text('{"verdict": ["pass"]}')
    os._exit(0)


@case(example=ones)
def nested(x):
    """Leaves JSON that is nested too deeply to be parsed."""
    (scratch() / "result.json").write_text('{"a":' * 100_000)
    os._exit(0)


@case(example=ones)
def not_text(x):
    """Leaves bytes that are not UTF-8."""
    (scratch() / "result.json").write_bytes(b'"\xff\xfe"')
    os._exit(0)


@case(example=ones)
def huge(x):
    """Leaves a file of a tebibyte that occupies no disk."""
    with (scratch() / "result.json").open("wb") as file:
        file.truncate(1 << 40)
    os._exit(0)


@case(example=ones)
def a_link(x):
    """Leaves a link to a file that says that the cell passed."""
    (scratch() / "tmp" / "mine").write_text('{"verdict": "pass"}')
    (scratch() / "result.json").symlink_to(scratch() / "tmp" / "mine")
    os._exit(0)


@case(example=ones)
def a_directory(x):
    """Makes a directory where the result belongs, and returns."""
    (scratch() / "result.json").mkdir()
    return x + 1


def replace_by_fifos():
    for name in ("result.json", "phase", "stdout", "stderr"):
        (scratch() / name).unlink(missing_ok=True)
        os.mkfifo(scratch() / name)


@case(example=ones)
def fifos(x):
    """Replaces every file that the server reads by a FIFO, which nobody writes to."""
    replace_by_fifos()
    os._exit(0)


@case(example=ones)
def fifos_for_a_while(x):
    """The same, and goes on: the server looks at the output of a running task."""
    replace_by_fifos()
    time.sleep(1)
    os._exit(0)


@case(example=ones)
def a_device(x):
    """Links the files that the server reads to a device that never ends."""
    for name in ("result.json", "phase", "stdout", "stderr"):
        (scratch() / name).unlink(missing_ok=True)
        (scratch() / name).symlink_to("/dev/zero")
    os._exit(0)


@case(example=ones)
def an_unknown_phase(x):
    """Names a phase that does not exist, and dies."""
    (scratch() / "phase").write_text("holiday" * 1000)
    os._exit(0)


@case(example=ones)
def buried(x):
    """Leaves directories that are nested deeper than Python can remove, and one that is closed."""
    for _ in range(1500):
        os.mkdir("d")
        os.chdir("d")
    os.mkdir("closed", 0)
    return x + 1
