"""The temporary directory of a run: made again when a case removes it, and removed when its owner was killed."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import SUITES

from recapture.pool.folders import CACHE, OWNER, TEMPORARY, Home, remove_dead_homes

pytestmark = pytest.mark.hostile

HOLDS_A_HOME = """
import sys, time
from recapture.pool.folders import Home
print(Home().path, flush=True)
time.sleep(600)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def holder(place):
    """A process that owns a home, and the home."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS_A_HOME],
        env={**os.environ, "TMPDIR": str(place)},
        stdout=subprocess.PIPE,
        text=True,
    )
    return process, Path(process.stdout.readline().strip())


def test_a_home_is_closed_to_others_and_goes_with_all_that_is_in_it(place):
    home = Home()
    assert home.path.parent == place
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700
    (home.path / "closed").mkdir()
    (home.path / "closed" / "file").write_text("x")
    (home.path / "closed").chmod(0)
    home.cleanup()
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("damage", ["removed", "emptied", "replaced", "moved", "cache moved", "closed"])
def test_a_damaged_home_is_made_again_in_its_place(place, tmp_path_factory, damage):
    home = Home()
    assert home.is_whole()
    precious = tmp_path_factory.mktemp("precious")
    for name in (CACHE, TEMPORARY):
        (precious / name).mkdir()
    if damage == "moved":
        home.path.rename(place / "moved")
    elif damage == "cache moved":
        (home.path / CACHE).rename(place / "moved")
    elif damage == "closed":
        home.path.chmod(0)
    else:
        shutil.rmtree(home.path)
    if damage == "emptied":
        home.path.mkdir(mode=0o700)
    elif damage == "replaced":
        home.path.symlink_to(precious)
    assert home.is_whole() == (damage == "closed" and os.getuid() == 0)
    home.renew()
    assert home.is_whole()
    assert stat.S_IMODE(home.path.lstat().st_mode) == 0o700
    home.cleanup()
    home.cleanup()  # as after a directory that could not be made again
    assert list(place.iterdir()) == []
    assert sorted(path.name for path in precious.iterdir()) == [CACHE, TEMPORARY]


def test_a_home_whose_owner_was_killed_is_removed_and_one_in_use_is_not(place):
    dead, dead_home = holder(place)
    live, live_home = holder(place)
    with dead, live:
        dead.kill()
        dead.wait()
        assert (dead_home / CACHE).is_dir()
        mine = Home()
        assert not dead_home.exists()
        assert live_home.is_dir()
        assert mine.path.is_dir()
        assert remove_dead_homes(place) == []
        mine.cleanup()
        live.kill()
        live.wait()
        assert remove_dead_homes(place) == [live_home]


def test_the_lock_of_an_owner_counts_in_another_pid_namespace(place):
    live, live_home = holder(place)
    script = f"from pathlib import Path; from recapture.pool.folders import remove_dead_homes; print(remove_dead_homes(Path({str(place)!r})))"
    with live:
        done = subprocess.run(
            ["unshare", "--user", "--map-root-user", "--pid", "--fork", sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=False,
        )
        live.kill()
    if "unshare failed" in done.stderr:
        pytest.skip("this machine does not allow namespaces")
    assert done.stdout.strip() == "[]", done.stderr
    assert live_home.is_dir()


def link(path, tmp_path):
    target = tmp_path / "elsewhere"
    target.mkdir(mode=0o700)
    (target / OWNER).touch()
    path.symlink_to(target)


def readable_to_others(path, tmp_path):
    path.mkdir()
    path.chmod(0o755)
    (path / OWNER).touch()


def without_an_owners_file(path, tmp_path):
    path.mkdir(mode=0o700)
    (path / "results").touch()


def with_a_fifo(path, tmp_path):
    path.mkdir(mode=0o700)
    os.mkfifo(path / OWNER)


def with_a_link_for_a_file(path, tmp_path):
    path.mkdir(mode=0o700)
    (tmp_path / "file").touch()
    (path / OWNER).symlink_to(tmp_path / "file")


def of_another_user(path, tmp_path):
    path.mkdir(mode=0o700)
    (path / OWNER).touch()
    os.chown(path, 12345, 12345)


@pytest.mark.parametrize(
    "plant",
    [
        link,
        readable_to_others,
        without_an_owners_file,
        with_a_fifo,
        with_a_link_for_a_file,
        pytest.param(of_another_user, marks=pytest.mark.skipif(os.getuid() != 0, reason="only root can give it away")),
    ],
)
def test_what_only_looks_like_a_home_stays(tmp_path, plant):
    path = tmp_path / "recapture-abcdefgh"
    plant(path, tmp_path)
    assert remove_dead_homes(tmp_path) == []
    assert os.path.lexists(path)
    assert len(list(path.iterdir())) == 1


@pytest.mark.slow  # `.ci/run user` runs it
@pytest.mark.parametrize("first", ["host", "server"])
def test_a_killed_runs_directory_is_removed_by_the_next_run(command, first):
    """Its server is killed with it, as the end of a container does."""
    suite = command.directory / "sleeps.py"
    suite.write_text(
        "import time\nimport torch\nfrom recapture import case\n\n\n"
        "@case(example=lambda: (torch.ones(2),))\ndef sleeps(x):\n    time.sleep(60)\n    return x\n"
    )
    with command.start("run", suite, "--compiler", "eager", "--results", "one") as process:
        deadline = time.monotonic() + 60
        while not (tasks := list(command.temporary.glob("recapture-*/tasks-*/*/cwd"))) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert tasks
        server = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
        for pid in (process.pid, server) if first == "host" else (server, process.pid):
            os.kill(pid, signal.SIGSTOP)
        for pid in (process.pid, server):
            os.kill(pid, signal.SIGKILL)
    assert len(list(command.temporary.glob("recapture-*"))) == 1
    planted = f"{SUITES / 'planted' / 'leaving.py'}::neighbour::eager"
    assert command("run", planted, "--results", "two").returncode == 0
    assert command.leftovers(10) == []
