"""The successor: a second server that gets ready beside the first and takes over; the run goes on where it fails."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from recapture.base.errors import EnvironmentUnfitError
from recapture.pool import client as starting
from recapture.pool.client import Client, ServerDiedError, SlowStartError
from recapture.pool.processes import cpu_seconds
from recapture.pool.worker_pool import WorkerPool

BARE = "bare"
"""The level that imports torch alone."""

NO_TORCH = Path(__file__).parent / "resources" / "no_torch"
"""Folder with a stand-in for torch, and with what these servers run."""

FOUR = "four:answer"
GPUS = "four:gpus"


def import_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let servers find the modules in a folder before all others."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])))


@pytest.fixture
def no_torch(monkeypatch):
    """Makes servers start without torch, so that each is ready in a tenth of a second."""
    import_from(NO_TORCH, monkeypatch)


@pytest.fixture
def pool(monkeypatch):
    import_from(NO_TORCH, monkeypatch)
    with WorkerPool(device="cpu", jobs=1) as pool:
        yield pool


@pytest.fixture
def impatient(monkeypatch):
    """Gives a server up after two seconds in which it does next to nothing; a starved one still does more."""
    monkeypatch.setattr(starting, "STILL_SECONDS", 2.0)
    monkeypatch.setattr(starting, "WORK_SECONDS", 0.02)


TWO_LINES = "Traceback (most recent call last):\n  File\n    f()\na.b.MyError: two\n  lines\n"


def works(pool: WorkerPool) -> bool:
    return pool.client.run(FOUR, None, float, timeout=60) == 4.0


@pytest.mark.usefixtures("no_torch")
@pytest.mark.parametrize(("device", "expected"), [("cpu", ""), ("cuda", "0,3")])
def test_work_on_the_cpu_sees_no_gpu(monkeypatch, device, expected):
    """Where Dynamo sees a GPU, a first capture in the server would make capture fail in every cell."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,3")
    with WorkerPool(device=device, jobs=1) as pool:
        assert pool.client.run(GPUS, None, str, timeout=60) == expected


def servers(home: str) -> set[int]:
    """Processes that belong to servers below a home: their environment names it."""
    process_ids = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"RECAPTURE_TASKS={home}/".encode() in (process / "environ").read_bytes():
                process_ids.add(int(process.name))
        except OSError:
            continue
    return process_ids


def test_the_successor_takes_over_and_the_first_server_goes(pool):
    first = pool.client.process.pid
    pool.launch_successor(BARE, ["json"])
    assert pool.client.process.pid == first
    assert works(pool)  # while the other gets ready
    pool.hand_over(BARE, ["json"])
    assert pool.client.process.pid != first
    assert works(pool)
    assert servers(pool.home.name) == {pool.client.process.pid}
    assert pool.modules == ["json"]


def test_the_first_server_continues_if_the_successor_dies(pool):
    first = pool.client.process.pid
    pool.launch_successor(BARE, [])
    os.kill(pool.successor.process.pid, signal.SIGKILL)
    pool.hand_over(BARE, [])
    assert pool.client.process.pid == first
    assert works(pool)
    assert servers(pool.home.name) == {first}


def test_without_a_successor_the_first_server_gets_ready_itself(pool):
    first = pool.client.process.pid
    pool.hand_over(BARE, [])
    assert pool.client.process.pid == first
    assert works(pool)


def test_a_server_that_dies_does_not_take_the_successor_with_it(pool):
    pool.launch_successor(BARE, [])
    successor = pool.successor.process.pid
    os.kill(pool.client.process.pid, signal.SIGKILL)
    pool.restart()
    assert works(pool)
    pool.hand_over(BARE, [])
    assert pool.client.process.pid == successor
    assert works(pool)


@pytest.mark.usefixtures("no_torch")
def test_a_module_that_kills_the_server_on_import_is_not_preloaded(tmp_path, monkeypatch):
    (tmp_path / "killer.py").write_text("import os\n\nos._exit(7)\n")
    import_from(tmp_path, monkeypatch)
    with WorkerPool(device="cpu", jobs=1) as pool:
        pool.launch_successor(BARE, ["killer"])
        pool.prepare(BARE, ["killer"])
        assert works(pool)
        pool.hand_over(BARE, ["killer"])
        assert pool.modules == []
        assert works(pool)


@pytest.mark.usefixtures("no_torch")
def test_leaving_does_not_wait_for_a_successor_that_is_not_ready():
    with WorkerPool(device="cpu", jobs=1) as pool:
        pool.launch_successor(BARE, ["imports_slowly"])
        home, begin = pool.home.name, time.monotonic()
    assert time.monotonic() - begin < 5
    assert servers(home) == set()
    assert not Path(home).exists()


@pytest.mark.usefixtures("impatient")
def test_a_run_goes_on_with_the_first_server_if_the_second_stands_still(pool):
    first = pool.client.process.pid
    pool.launch_successor(BARE, ["imports_slowly"])
    pool.hand_over("aoti", ["imports_slowly"])
    assert pool.client.process.pid == first
    assert works(pool)
    assert servers(pool.home.name) == {first}


@pytest.mark.usefixtures("impatient")
def test_a_preload_that_stands_still_is_given_up_and_tasks_import_what_they_need(pool):
    pool.prepare(BARE, [])
    pool.prepare(BARE, ["imports_slowly"])
    assert (pool.level, pool.modules) == (BARE, [])
    assert works(pool)


@pytest.mark.usefixtures("impatient")
def test_the_message_says_what_a_server_that_stands_still_was_doing(pool):
    with pytest.raises(SlowStartError, match=r"the worker server stood still for \d+ s while it imported modules"):
        pool.client.preload(BARE, ["imports_slowly"])


@pytest.mark.usefixtures("impatient")
def test_a_server_that_works_is_awaited_however_slow_the_machine_is(pool):
    began = time.monotonic()
    pool.client.preload(BARE, ["imports_busily"])
    assert time.monotonic() - began > 2.5
    assert works(pool)


def test_no_server_is_awaited_forever(pool, monkeypatch):
    monkeypatch.setattr(starting, "MOST_SECONDS", 1.0)
    monkeypatch.setattr(starting, "LOOK_SECONDS", 0.2)
    with pytest.raises(SlowStartError, match=r"not ready after \d+ s; at the end, it imported modules"):
        pool.client.preload(BARE, ["imports_busily"])


def test_processor_time_includes_that_of_ended_children():
    before = cpu_seconds(os.getpid())
    busy = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", busy], check=True)
    assert cpu_seconds(os.getpid()) >= before + 0.25
    assert cpu_seconds(1 << 30) == 0.0


def test_a_server_for_cuda_or_without_forks_has_no_successor(pool):
    with WorkerPool(device="cpu", jobs=1, worker="fresh") as fresh:
        fresh.launch_successor(BARE, [])
        assert fresh.successor is None
    pool.device = "cuda"
    pool.launch_successor(BARE, [])
    assert pool.successor is None


def test_what_was_asked_for_early_is_answered_also_by_another_server(pool):
    pool.ask(FOUR, None, timeout=60)
    assert works(pool)  # another task of the same server meanwhile
    assert pool.answer(FOUR, None, float, timeout=60) == 4.0
    pool.ask(FOUR, None, timeout=60)
    pool.restart()
    assert pool.answer(FOUR, None, float, timeout=60) == 4.0
    assert pool.answer(FOUR, None, float, timeout=60) == 4.0  # nobody asked


def test_a_home_that_was_removed_is_made_again_for_the_next_server(pool):
    pool.launch_successor(BARE, [])
    shutil.rmtree(pool.home.path)
    with pytest.raises(ServerDiedError):
        works(pool)
    pool.restart()
    assert pool.successor is None  # it remembers files of the home that was removed
    assert works(pool)
    assert pool.home.is_whole()


def test_a_server_that_is_silent_past_the_deadline_counts_as_dead(pool, monkeypatch):
    monkeypatch.setattr("recapture.pool.client.SILENCE_SECONDS", 0.1)
    with pytest.raises(ServerDiedError):
        pool.client.message(0.1)


def test_a_server_that_is_stopped_only_for_a_moment_goes_on(pool):
    os.kill(pool.client.process.pid, signal.SIGSTOP)
    resume = threading.Timer(1.4, os.kill, (pool.client.process.pid, signal.SIGCONT))
    resume.start()
    assert works(pool)
    resume.join()


def test_a_server_that_cannot_start_says_which_exception_it_raised(monkeypatch):
    monkeypatch.setenv("TORCH_LOGS", "nonsense")
    with pytest.raises(EnvironmentUnfitError) as caught, WorkerPool(device="cpu", jobs=1):
        pass
    message = str(caught.value)
    assert message.startswith("the worker server cannot start: ValueError: Invalid log settings: nonsense")
    assert "\n" not in message
    assert len(message) < 400


@pytest.mark.parametrize(
    ("log_text", "words"),
    [
        ("", "no message"),
        ("a warning\nFatal Python error: Segmentation fault\n", "Fatal Python error: Segmentation fault"),
        ("Traceback (most recent call last):\n  File\n    x: int\nKeyError: 'a'\n", "KeyError: 'a'"),
        (
            "Traceback (most recent call last):\n  File\nKeyError: 1\n\nDuring it\n\n" + TWO_LINES,
            "a.b.MyError: two lines",
        ),
        ("Traceback (most recent call last):\n  File\nKeyboardInterrupt\n", "KeyboardInterrupt"),
    ],
)
def test_the_last_words_of_a_server_name_the_exception(log_text, words, tmp_path):
    client = Client(home=tmp_path, jobs=1)
    with tempfile.TemporaryFile() as client.log:
        client.log.write(log_text.encode())
        assert client.last_words() == words
