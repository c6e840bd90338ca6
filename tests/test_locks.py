"""Locks, files opened for appending, and files set aside: irregular files in their place are never written to."""

from __future__ import annotations

import os
import socket
import threading

import pytest
from test_result_files import fill, result_files

from recapture.base.errors import UsageError
from recapture.base.locks import locked, open_to_append
from recapture.records.directories import FINISHED, LOCK, PARTIALS, set_aside
from recapture.run.result_files import settle
from recapture.tools.speed.results_file import LOCK as SPEEDUPS_LOCK
from recapture.tools.speed.results_file import writing

pytestmark = pytest.mark.hostile


def plant(path, kind, treasure):
    """Put something other than a regular file at a path; a link points to a file with content."""
    if kind == "a symbolic link":
        path.symlink_to(treasure)
    elif kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a directory":
        path.mkdir()
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.path.relpath(path))


KINDS = ("a symbolic link", "a FIFO", "a directory", "a socket")


@pytest.fixture
def treasure(tmp_path):
    path = tmp_path / "treasure"
    path.write_text("precious, and without a newline")
    return path


@pytest.fixture
def results(tmp_path, monkeypatch):
    directory = tmp_path / "image" / "cpu"
    directory.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    return directory


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [LOCK, *PARTIALS, *FINISHED])
def test_a_run_refuses_what_is_planted_in_its_directory(results, treasure, name, kind):
    plant(results / name, kind, treasure)
    with pytest.raises(UsageError, match=rf"{name} is {kind}, not a regular file") as error:
        fill(result_files(results, "ab"))
    assert error.value.exit_status == 2
    assert treasure.read_text() == "precious, and without a newline"


@pytest.mark.parametrize("kind", KINDS)
def test_closing_an_interrupted_run_refuses_what_is_planted(results, treasure, kind):
    fill(result_files(results, "ab"), most=1)
    (results / LOCK).unlink()
    plant(results / LOCK, kind, treasure)
    with pytest.raises(UsageError, match="not a regular file"):
        settle(results)
    assert treasure.read_text() == "precious, and without a newline"


@pytest.mark.parametrize("kind", KINDS)
def test_a_benchmark_refuses_a_planted_lock(results, treasure, kind):
    plant(results / SPEEDUPS_LOCK, kind, treasure)
    with pytest.raises(UsageError, match=f"{SPEEDUPS_LOCK} is {kind}"), writing(results / "speedups-cpu.json"):
        pass
    assert treasure.read_text() == "precious, and without a newline"


def test_a_lock_that_is_a_file_keeps_its_content(tmp_path):
    (tmp_path / "lock").write_text("content")
    with locked(tmp_path / "lock", wait=False):
        pass
    assert (tmp_path / "lock").read_text() == "content"


def test_a_lock_is_refused_or_waited_for_while_it_is_held(tmp_path):
    path = tmp_path / "folder" / "lock"
    entered = threading.Event()

    def wait():
        with locked(path, wait=True):
            entered.set()

    with locked(path, wait=False):
        with pytest.raises(UsageError, match="another run is writing to"), locked(path, wait=False):
            pass
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not entered.wait(0.2)
    assert entered.wait(10)
    waiting.join()


def test_a_lock_in_a_place_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write results to"), locked(tmp_path / "file" / "lock", wait=False):
        pass


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b"new\n"),
        (b"whole\n", b"whole\nnew\n"),
        (b"whole\ntorn", b"whole\nnew\n"),
        (b"torn" * 50_000, b"new\n"),
        (b"whole\n" + b"torn" * 50_000, b"whole\nnew\n"),
    ],
)
def test_a_torn_last_line_is_dropped_before_another_is_appended(tmp_path, before, after):
    path = tmp_path / "rows"
    path.write_bytes(before)
    handle = open_to_append(path)
    os.write(handle, b"new\n")
    os.close(handle)
    assert path.read_bytes() == after


def test_files_are_set_aside_in_the_next_free_folder(tmp_path, treasure):
    (tmp_path / "before-1").mkdir()
    (tmp_path / "before-2").symlink_to("nowhere")
    (tmp_path / "a").write_text("a")
    folder = set_aside(tmp_path, ("a", "b"))
    assert folder == tmp_path / "before-3"
    assert [path.name for path in folder.iterdir()] == ["a"]
    assert not (tmp_path / "a").exists()
