"""Environments of images: complete or absent, never removed while used, within their limits."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from planted_images import PYTHON, PlantedImages

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.option_fields import GIB
from recapture.command.main import _run
from recapture.images import environments as module
from recapture.images.environments import Environments, environments_folder, size_limit
from recapture.images.uv import find_python, find_uv
from recapture.machine.pins import find_image


@pytest.fixture
def planted(tmp_path, monkeypatch):
    images = PlantedImages(tmp_path)
    images.use(monkeypatch)
    monkeypatch.setattr(module, "EXPECTED_BYTES", 1 << 20)
    return images


@pytest.fixture
def environments(planted):
    messages = []
    planted_environments = Environments(root=planted.root, show=messages.append)
    object.__setattr__(planted_environments, "said", messages)
    return planted_environments


def make(environments, *names):
    for name in names:
        with environments.use(find_image(name)):
            pass


def stored(environments):
    return [environment.image for environment in environments.stored()]


def visible(root):
    return sorted(path.name.rpartition("-")[0] for path in root.iterdir() if path.is_dir())


def test_an_environment_is_made_once_and_used_again(planted, environments):
    with environments.use(find_image("a")) as interpreter:
        process = subprocess.run(
            [interpreter.python, "-c", "import importlib.metadata as m; print(m.version('marker'))"],
            env=interpreter.variables,
            capture_output=True,
            text=True,
            check=True,
        )
    make(environments, "a")
    assert (process.stdout.strip(), planted.installed()) == ("1", 1)
    assert environments.said[0].startswith("making the environment of a")
    assert visible(planted.root) == ["a"]


def test_another_lock_of_an_image_is_another_environment(planted, environments):
    make(environments, "a")
    lock = planted.docker / "locks" / "a.txt"
    lock.write_text(lock.read_text() + "more==1\n")
    make(environments, "a")
    assert planted.installed() == 2
    assert stored(environments) == ["a", "a"]


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("old", r"not the environment of a \(nearest image: a, marker 0, locked 1\)"),
        ("broken", r"does not work \(ImportError: libtorch is broken\)"),
        ("say error sending request for a wheel", "uv cannot reach the package index"),
        ("say hash mismatch for marker", "uv failed: hash mismatch for marker"),
        ("say write failed: No space left on device (os error 28)", "no space left"),
    ],
)
def test_an_environment_that_fails_is_absent_and_the_next_try_makes_it(
    planted, environments, monkeypatch, mode, message
):
    monkeypatch.setenv("PLANTED_UV", mode)
    with pytest.raises(EnvironmentUnfitError, match=message):
        make(environments, "a")
    assert visible(planted.root) == []
    monkeypatch.delenv("PLANTED_UV")
    make(environments, "a")
    assert visible(planted.root) == ["a"]


def test_what_a_killed_process_left_is_not_taken_for_an_environment(planted, environments):
    with planted.start("with environments.use(image): pass", PLANTED_UV="die") as process:
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert [path for path in planted.root.iterdir() if path.name.endswith(".partial")]
    assert environments.stored() == []
    make(environments, "a")
    assert environments.said[0] == "another run is making an environment: waiting for it"  # its uv still runs
    assert visible(planted.root) == ["a"]
    assert not list(planted.root.glob("a-*/lib/*/site-packages/late"))
    assert not [path for path in planted.root.iterdir() if path.name.endswith(".partial")]


def test_two_runs_that_want_the_same_environment_make_it_once(planted):
    code = "with environments.use(image) as interpreter: print(interpreter.python.exists())"
    processes = [planted.start(code, PLANTED_UV="slow") for _ in range(2)]
    for process in processes:
        with process:
            out, err = process.communicate(timeout=60)
        assert (process.returncode, out.strip()) == (0, "True"), err
    assert planted.installed() == 1


def test_an_environment_in_use_is_kept(planted, environments):
    with environments.use(find_image("a")):
        assert environments.clean() == []
    assert environments.said[-1] == "a is in use and was kept"
    assert [environment.image for environment in environments.clean()] == ["a"]
    assert visible(planted.root) == []


def test_an_environment_is_in_use_as_long_as_a_process_that_was_given_it(planted, environments):
    with environments.use(find_image("a")) as interpreter:
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=interpreter.keep_open
        )
    with child:
        assert environments.clean() == []
        child.communicate(b"\n")
    assert [environment.image for environment in environments.clean()] == ["a"]


def test_only_the_named_environments_are_removed(environments):
    make(environments, "a", "b", "a-drifted")
    assert [environment.image for environment in environments.clean(("a",))] == ["a"]
    assert sorted(stored(environments)) == ["a-drifted", "b"]


def test_no_more_environments_are_kept_than_asked_for_and_the_oldest_go_first(planted, environments):
    make(environments, "a", "b")
    for name, used in (("a", 2000), ("b", 1000)):
        (lock,) = planted.root.glob(f"{name}-*.lock")
        os.utime(lock, (used, used))
    make(Environments(root=planted.root, keep=2), "a-drifted")
    assert sorted(stored(environments)) == ["a", "a-drifted"]


def test_environments_in_use_leave_no_room(planted, environments):
    with environments.use(find_image("a")):
        with pytest.raises(EnvironmentUnfitError, match=r"no room .*: 1 are in use, and --keep allows 1"):
            make(Environments(root=planted.root, keep=1), "b")
        with pytest.raises(EnvironmentUnfitError, match=r"no room .*RECAPTURE_CACHE_GIB allows"):
            make(Environments(root=planted.root, limit=1), "b")
        assert stored(environments) == ["a"]


def test_a_full_disk_is_noticed_before_anything_is_installed(planted, environments, monkeypatch):
    make(environments, "a")
    real = shutil.disk_usage
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: real(path)._replace(free=1000))
    with pytest.raises(EnvironmentUnfitError, match=r"the disk has 0\.0 GB free"):
        make(environments, "b")
    assert planted.installed() == 1


def test_an_environment_that_was_changed_is_refused(planted, environments):
    make(environments, "a")
    for info in planted.root.glob("a-*/lib/*/site-packages/marker-*"):
        shutil.rmtree(info)
    with pytest.raises(EnvironmentUnfitError, match=r"marker not installed.*recapture images clean a"):
        make(environments, "a")


def test_an_environment_whose_python_is_gone_is_refused(planted, environments):
    make(environments, "a")
    for python in planted.root.glob("a-*/bin/python"):
        python.unlink()
    with pytest.raises(EnvironmentUnfitError, match=r"does not start.*recapture images clean a"):
        make(environments, "a")


def test_a_caller_s_packages_are_not_mixed_in(environments, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    with environments.use(find_image("a")) as interpreter:
        assert "PYTHONPATH" not in interpreter.variables
        assert interpreter.variables["PATH"].startswith(str(interpreter.python.parent))


def test_a_python_that_is_not_installed_is_named(planted, monkeypatch):
    monkeypatch.setenv("PYENV_ROOT", str(planted.root))
    with pytest.raises(EnvironmentUnfitError, match=r"no Python 3\.99 found .*`uv python install 3\.99`"):
        find_python("3.99")


def test_pyenv_s_newest_python_is_found_where_uv_finds_none(planted, tmp_path, monkeypatch):
    (planted.binaries / "uv").write_text("#!/bin/sh\nexit 2\n")
    for patch in ("2", "10"):
        folder = tmp_path / "pyenv" / "versions" / f"{PYTHON}.{patch}" / "bin"
        folder.mkdir(parents=True)
        (folder / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert find_python(PYTHON).parents[1].name == f"{PYTHON}.10"


def test_without_uv_no_environment_is_made(tmp_path, planted, environments, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "uv", None)
    with pytest.raises(EnvironmentUnfitError, match="uv is not installed"):
        make(environments, "a")


def test_the_uv_of_this_python_needs_no_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    path = Path(find_uv("test"))
    assert path.name == "uv"
    assert os.access(path, os.X_OK)


def test_the_folder_is_in_the_cache_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RECAPTURE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert environments_folder() == tmp_path / ".cache" / "recapture" / "environments"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "shared"))
    assert environments_folder() == tmp_path / "shared" / "recapture" / "environments"
    monkeypatch.setenv("RECAPTURE_CACHE", str(tmp_path / "own"))
    assert environments_folder() == tmp_path / "own" / "environments"


def test_a_cache_that_cannot_be_written_is_named(planted, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("RECAPTURE_CACHE", str(tmp_path / "file"))
    assert _run(["doctor", "--image", "a"]) == 2
    assert capsys.readouterr().err == f"recapture: {tmp_path}/file/environments: Not a directory\n"


def test_the_limit_is_a_number_of_gib(monkeypatch):
    monkeypatch.setenv("RECAPTURE_CACHE_GIB", "7.5")
    assert size_limit() == int(7.5 * GIB)
    for text in ("nan", "many", "-1", "0"):
        monkeypatch.setenv("RECAPTURE_CACHE_GIB", text)
        with pytest.raises(UsageError, match="a number of GiB"):
            size_limit()


def test_images_clean_removes_and_says_what(environments, capsys):
    make(environments, "a", "b")
    assert _run(["images", "clean", "b"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("removed b, 0.0 GB\n1 environment removed from ")
    assert stored(environments) == ["a"]
    assert _run(["images", "clean", "c"]) == 2


def folder_of(environments, name):
    """The folder of an image's environment, which is there."""
    (folder,) = (path for path in environments.root.iterdir() if path.name.startswith(f"{name}-") and path.is_dir())
    return folder


@pytest.mark.hostile
class TestAFolderThatOthersControl:
    """Its programs would be executed, and its name can be predicted."""

    @pytest.mark.parametrize("mode", [0o777, 0o775, 0o757, 0o1777])
    def test_an_environment_that_others_can_write_is_refused(self, planted, environments, mode):
        make(environments, "a")
        folder_of(environments, "a").chmod(mode)
        with pytest.raises(EnvironmentUnfitError, match="other users can write to"):
            make(environments, "a")
        assert planted.installed() == 1

    def test_a_folder_of_environments_that_others_can_write_is_refused_unless_it_is_sticky(self, planted, environments):
        environments.root.mkdir()
        environments.root.chmod(0o777)
        with pytest.raises(EnvironmentUnfitError, match="other users can write to"):
            make(environments, "a")
        assert planted.installed() == 0
        environments.root.chmod(0o1777)
        make(environments, "a")

    @pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
    def test_an_environment_of_another_user_is_refused(self, environments):
        make(environments, "a")
        os.chown(folder_of(environments, "a"), 12345, 12345)
        with pytest.raises(EnvironmentUnfitError, match=r"belongs to another user \(id 12345\)"):
            make(environments, "a")

    @pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
    def test_a_folder_of_environments_of_another_user_is_refused(self, environments):
        environments.root.mkdir()
        os.chown(environments.root, 12345, 12345)
        with pytest.raises(EnvironmentUnfitError, match=r"belongs to another user \(id 12345\)"):
            make(environments, "a")

    @pytest.mark.parametrize("leads", ["to a folder", "nowhere"])
    def test_a_link_in_the_place_of_an_environment_is_refused_and_can_be_removed(
        self, planted, environments, tmp_path, leads
    ):
        elsewhere = tmp_path / "elsewhere"
        make(environments, "a")
        link = folder_of(environments, "a")
        link.rename(elsewhere)
        link.symlink_to(elsewhere if leads == "to a folder" else tmp_path / "absent")
        with pytest.raises(EnvironmentUnfitError, match="is a symbolic link: remove it with `recapture images clean`"):
            make(environments, "a")
        assert [environment.image for environment in environments.clean()] == ["a"]
        assert not os.path.lexists(link)
        assert (elsewhere / "bin").is_dir(), "what the link leads to is not touched"
        make(environments, "a")
        assert planted.installed() == 2

    @pytest.mark.parametrize("kind", ["file", "FIFO"])
    def test_what_is_no_folder_is_refused_and_can_be_removed(self, environments, kind):
        make(environments, "a")
        place = folder_of(environments, "a")
        shutil.rmtree(place)
        if kind == "file":
            place.touch()
        else:
            os.mkfifo(place)
        with pytest.raises(EnvironmentUnfitError, match="is no folder: remove it with `recapture images clean`"):
            make(environments, "a")
        assert [stored.image for stored in environments.clean()] == ["a"]
        make(environments, "a")

    @pytest.mark.parametrize("kind", ["link", "FIFO", "folder", "nothing"])
    @pytest.mark.parametrize("whose", ["environment", "whole"])
    def test_what_is_in_the_place_of_a_lock_keeps_no_environment(self, environments, tmp_path, kind, whose):
        make(environments, "a", "b")
        folder = folder_of(environments, "a")
        lock = folder.with_name(f"{folder.name}.lock" if whose == "environment" else ".lock")
        elsewhere = tmp_path / "elsewhere"
        elsewhere.write_text("precious")
        lock.unlink()
        if kind == "link":
            lock.symlink_to(elsewhere)
        elif kind == "FIFO":
            os.mkfifo(lock)
        elif kind == "folder":
            lock.mkdir()
        assert sorted(stored.image for stored in environments.clean()) == ["a", "b"]
        assert elsewhere.read_text() == "precious"
        make(environments, "a")

    def test_a_link_that_was_left_under_a_temporary_name_blocks_no_later_run(self, environments, tmp_path):
        environments.root.mkdir()
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "file").touch()
        (environments.root / ".a-0123456789ab.partial").symlink_to(elsewhere)
        make(environments, "a")
        assert environments.clean() != []
        assert [path.name for path in environments.root.glob(".*.partial")] == []
        assert (elsewhere / "file").exists()

    def test_what_cannot_be_removed_does_not_keep_the_others(self, environments, monkeypatch):
        make(environments, "a", "b")
        folder = folder_of(environments, "a")
        rename = type(folder).rename

        def refuse(path, target):
            if path == folder:
                raise PermissionError(1, "Operation not permitted", str(path))
            return rename(path, target)

        monkeypatch.setattr(type(folder), "rename", refuse)
        assert [environment.image for environment in environments.clean()] == ["b"]
        assert f"a was kept: {folder}: Operation not permitted" in environments.said

    def test_an_environment_is_the_users_alone_whatever_the_umask_is(self, environments):
        before = os.umask(0)
        try:
            make(environments, "a")
            make(environments, "a")
        finally:
            os.umask(before)
        # What an import adds later may be open to all: nobody else gets through the folder itself.
        assert folder_of(environments, "a").stat().st_mode & 0o777 == 0o700
