"""Cases that plant something in what their process reports to the server, and in the files with its output."""

import os
import sys
import time
from pathlib import Path

import torch

from recapture import case
from recapture.pool.protocol import result_message


def ones():
    return (torch.ones(3),)


def scratch():
    """The directory of this task, with the files of its output."""
    return Path(os.environ["TMPDIR"]).parent


@case(example=ones)
def neighbour(x):
    """Does no harm."""
    return x + 1


def in_run_task(name):
    """A local variable of the function that runs this process's task."""
    frame = sys._getframe()
    while frame.f_code.co_name != "run_task":
        frame = frame.f_back
    return frame.f_locals[name]


def send(data):
    """Send to the server as this process does, and end."""
    in_run_task("link")._send(data)
    os._exit(0)


def send_result(text):
    send(result_message(in_run_task("number"), text, reusable=False))


@case(example=ones)
def malformed(x):
    """Reports something that is not JSON."""
    send_result(b"{")


@case(example=ones)
def another_shape(x):
    """Reports JSON that is not a result."""
    send_result(b'{"verdict": ["pass"]}')


@case(example=ones)
def nested(x):
    """Reports JSON that is nested too deeply to be parsed."""
    send_result(b'{"a":' * 100_000)


@case(example=ones)
def not_text(x):
    """Reports bytes that are not UTF-8."""
    send_result(b'"\xff\xfe"')


@case(example=ones)
def huge(x):
    """Announces a result that is longer than any."""
    send(b"result %d 999999999\n" % in_run_task("number"))


@case(example=ones)
def half(x):
    """Announces a result, and sends half of it."""
    send(b"result %d 100\n{" % in_run_task("number"))


@case(example=ones)
def of_another_task(x):
    """Reports a result in the name of the next task."""
    send(result_message(in_run_task("number") + 1, b'{"verdict": "pass"}', reusable=False))


@case(example=ones)
def twice(x):
    """Reports a result, and another one."""
    result = result_message(in_run_task("number"), b'{"verdict": "pass"}', reusable=False)
    send(result + result)


@case(example=ones)
def no_message(x):
    """Sends a line that means nothing."""
    send(b"hello\n")


@case(example=ones)
def floods(x):
    """Sends without end."""
    while True:
        os.write(in_run_task("link")._socket.fileno(), b"phase call\n" * 1000)


@case(example=ones)
def closes(x):
    """Closes the descriptor on which its process reports."""
    os.close(in_run_task("link")._socket.fileno())
    return x + 1


@case(example=ones)
def replaces(x):
    """Puts a file in the place of the descriptor on which its process reports."""
    with open("file", "wb") as file:
        os.dup2(file.fileno(), in_run_task("link")._socket.fileno())
    return x + 1


@case(example=ones)
def right_with_differences(x):
    """Reports what no cell gives: it passed, and there is a difference."""
    send_result(b'{"verdict": "pass", "differences": [{"input": "example", "where": "result", "kind": "value"}]}')


@case(example=ones)
def wrong_without_differences(x):
    """Reports what no cell gives: it is wrong in nothing."""
    send_result(b'{"verdict": "wrong", "input": "example"}')


@case(example=ones)
def negative_graphs(x):
    """Reports what no cell gives: fewer graphs than none."""
    send_result(b'{"verdict": "pass", "graphs": -1}')


@case(example=ones)
def long_notes(x):
    """Reports notes of two megabytes."""
    send_result(b'{"verdict": "pass", "notes": ["%b"]}' % (b"x" * (2 << 20)))


def replace_by_fifos():
    for name in ("stdout", "stderr"):
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
    for name in ("stdout", "stderr"):
        (scratch() / name).unlink(missing_ok=True)
        (scratch() / name).symlink_to("/dev/zero")
    os._exit(0)


@case(example=ones)
def an_unknown_phase(x):
    """Names a phase that does not exist, and dies."""
    send(b"phase " + b"holiday" * 30 + b"\n")


@case(example=ones)
def buried(x):
    """Leaves directories that are nested deeper than Python can remove, and one that is closed."""
    for _ in range(1500):
        os.mkdir("d")
        os.chdir("d")
    os.mkdir("closed", 0)
    return x + 1
