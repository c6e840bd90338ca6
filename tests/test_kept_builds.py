"""Builds that are kept from run to run: found only where everything is the same, and never another user's."""

import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from recapture.base import cache_folder
from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.pool import kept_folder as folders
from recapture.pool.client import Client
from recapture.torch_api import kept_builds
from recapture.torch_api.kept_builds import VARIABLE, KeptBuilds, prune


class Run:
    """A run with a folder of its own, whose compiler notes what it builds."""

    def __init__(self, folder, store):
        self.home, self.built = folder, 0
        (folder / "cache").mkdir(parents=True)
        self.kept = KeptBuilds(store, folder)

    def write(self, name, text):
        path = self.home / "cache" / name
        path.write_text(text.replace("HOME", str(self.home)))
        return path

    def build(self, source, *options, content=None):
        """Build an object of a source; returns whether it was kept, and what the target holds."""
        target = source.with_suffix(".o")

        def compile_it():
            self.built += 1
            target.write_text(content or f"object of {source.read_text()}")

        command = " ".join(["g++", "-c", *options, str(source), "-o", str(target)])
        return self.kept.build(command, compile_it), target.read_text()


@pytest.fixture
def store(tmp_path):
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def runs(tmp_path, store):
    return [Run(tmp_path / f"recapture-{number}", store) for number in range(2)]


def test_what_one_run_built_serves_the_next_one_whose_folder_has_another_name(runs):
    text = '#include "HOME/cache/prefix.h"\nint f() { return 1; }\n'
    for run in runs:
        run.write("prefix.h", "#include <vector>\n")
        reused, _ = run.build(run.write("kernel.cpp", text), "-O3")
        assert reused is (run is runs[1])
    assert [run.built for run in runs] == [1, 0]


@pytest.mark.parametrize(
    "change", ["source", "included header", "option", "other path outside", "compiler", "processor"]
)
def test_whatever_a_build_depends_on_makes_it_another_build(runs, store, monkeypatch, change):
    first, second = runs
    outside = "/usr/include"
    for run in runs:
        run.write("prefix.h", "#define A 1\n")
        source = run.write("kernel.cpp", '#include "HOME/cache/prefix.h"\nint f();\n')
    first.build(first.home / "cache" / "kernel.cpp", "-O3", f"-I{outside}")
    options = ["-O3", f"-I{outside}"]
    if change == "source":
        second.write("kernel.cpp", '#include "HOME/cache/prefix.h"\nint g();\n')
    elif change == "included header":
        second.write("prefix.h", "#define A 2\n")
    elif change == "option":
        options[0] = "-O0"
    elif change == "other path outside":
        options[1] = "-I/opt/include"
    else:
        kept_builds._environment.cache_clear()
        if change == "compiler":
            monkeypatch.setattr(kept_builds, "_identity", lambda path: (path, 1, 1))
        else:
            monkeypatch.setattr(kept_builds, "_processor", lambda: ["another processor"])
        second.kept = KeptBuilds(store, second.home)
        kept_builds._environment.cache_clear()
    assert second.build(source, *options)[0] is False
    assert second.built == 1


def test_a_kept_library_names_the_folder_of_the_run_that_uses_it(runs):
    for run in runs:
        source = run.write("kernel.cpp", "int f();")
        _, content = run.build(source, content=f"check failed in {source}")
        assert content == f"check failed in {source}"
    assert runs[1].built == 0


def test_a_source_that_reads_unknown_files_is_built_anew_each_time(runs):
    for run in runs:
        assert not run.build(run.write("data.cpp", 'asm(".incbin \\"HOME/data\\"");'))[0]
    assert [run.built for run in runs] == [1, 1]


def test_a_build_that_failed_is_not_kept(runs):
    def fail():
        raise subprocess.CalledProcessError(1, "g++")

    for run in runs:
        source = run.write("kernel.cpp", "int f(")
        with pytest.raises(subprocess.CalledProcessError):
            run.kept.build(f"g++ -c {source} -o {source}.o", fail)
    assert not [path for path in runs[0].kept.folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: data[:40] + b"\0" + data[41:], lambda _: b""])
def test_a_damaged_build_is_never_used(runs, damage):
    first, second = runs
    first.build(first.write("kernel.cpp", "int f();"))
    [path] = [path for path in first.kept.folder.rglob("*") if path.is_file()]
    path.write_bytes(damage(path.read_bytes()))
    reused, content = second.build(second.write("kernel.cpp", "int f();"))
    assert not reused
    assert content == "object of int f();"


def test_a_cell_that_changes_its_copy_changes_no_other(runs):
    first, second = runs
    source = first.write("kernel.cpp", "int f();")
    first.build(source)
    source.with_suffix(".o").write_text("changed by the cell")
    assert second.build(second.write("kernel.cpp", "int f();")) == (True, "object of int f();")


def test_what_was_not_used_for_the_longest_time_is_removed_first(runs, store):
    run = runs[0]
    for number in range(4):
        run.build(run.write(f"kernel{number}.cpp", f"int f{number}();"), content="x" * 1000)
    paths = [path for path in store.rglob("*") if path.is_file()]
    for number, path in enumerate(paths):
        os.utime(path, (number, number))
    prune(store, 2500)
    assert [path for path in paths if path.exists()] == paths[2:]
    prune(store, 0)
    assert not [path for path in store.rglob("*") if path.is_file()]


def test_the_answer_yes_is_kept_and_no_is_asked_again(runs, monkeypatch):
    probed = []

    def check(isa, code):
        probed.append(isa.name)
        return isa.name == "avx2"

    monkeypatch.setattr(kept_builds, "_kept", runs[0].kept)
    kept_check = kept_builds._answered(check)
    for name in ("avx2", "avx512", "avx2", "avx512"):
        isa = SimpleNamespace(name=name, build_arch_flags=lambda name=name: f"-m{name}", build_macro=list)
        assert kept_check(isa, "code") is (name == "avx2")
    assert probed == ["avx2", "avx512", "avx512"]


def test_a_probe_loads_its_library_in_a_fork_and_not_in_a_new_python(tmp_path):
    good, bad, deadly = (tmp_path / f"{name}.so" for name in ("good", "bad", "deadly"))
    bad.write_text("no library")
    for path, code in (
        (good, "int one = 1;"),
        (deadly, "__attribute__((constructor)) void run() { __builtin_trap(); }"),
    ):
        subprocess.run(["g++", "-x", "c++", "-", "-shared", "-fPIC", "-o", path], input=code.encode(), check=True)

    def load(path):
        # A Python without the first line's module would fail.
        program = f'import no_such_module\nfrom ctypes import cdll\ncdll.LoadLibrary("{path}")\n'
        return subprocess.check_call([sys.executable, "-c", program], stderr=subprocess.DEVNULL)

    with kept_builds._loading_in_forks():
        assert load(good) == 0
        for path in (bad, deadly, tmp_path / "absent.so"):
            with pytest.raises(subprocess.CalledProcessError):
                load(path)
        assert subprocess.check_call([sys.executable, "-c", "pass"]) == 0
    with pytest.raises(subprocess.CalledProcessError):  # a new Python again
        load(good)


# --- Whose folder it is -----------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("RECAPTURE_CACHE", str(folder))
    monkeypatch.delenv(folders.LIMIT, raising=False)
    return folder


def test_the_folder_is_this_users_alone(cache):
    folder, refused = folders.kept_folder()
    assert folder == cache / "compiled"
    assert refused == ""
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_can_write_is_refused(cache):
    folders.kept_folder()
    (cache / "compiled").chmod(0o770)
    folder, refused = folders.kept_folder()
    assert folder is None
    assert "other users can write to" in refused


def test_a_cache_that_others_can_write_is_refused(cache):
    cache.mkdir()
    cache.chmod(0o777)
    folder, refused = folders.kept_folder()
    assert folder is None
    assert "other users can write to" in refused


def test_a_link_in_its_place_is_refused(cache, tmp_path):
    cache.mkdir(mode=0o755)
    (tmp_path / "theirs").mkdir(mode=0o700)
    (cache / "compiled").symlink_to(tmp_path / "theirs")
    folder, refused = folders.kept_folder()
    assert folder is None
    assert "a symbolic link" in refused


def test_the_folder_of_another_user_is_refused(cache, monkeypatch):
    folders.kept_folder()
    own = os.getuid()
    monkeypatch.setattr(cache_folder.os, "getuid", lambda: own + 1)
    monkeypatch.setattr(folders, "private_folder", cache_folder.private_folder)
    with pytest.raises(EnvironmentUnfitError, match="belongs to another user"):
        cache_folder.check_trusted(cache / "compiled", owners=(own + 1,))
    folder, refused = folders.kept_folder()
    assert folder is None
    assert "belongs to another user" in refused or "other" in refused


def test_a_limit_of_nothing_keeps_nothing_and_a_bad_one_is_bad_input(cache, monkeypatch):
    monkeypatch.setenv(folders.LIMIT, "0")
    assert folders.kept_folder() == (None, "")
    assert not cache.exists()
    monkeypatch.setenv(folders.LIMIT, "much")
    with pytest.raises(UsageError, match="RECAPTURE_COMPILED_GIB is 'much'"):
        folders.kept_folder()


def test_a_server_is_told_of_the_folder_and_a_users_variable_is_not_passed_on(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "/elsewhere")
    for folder, expected in ((None, None), (tmp_path, str(tmp_path))):
        client = Client(home=tmp_path, jobs=1, kept=folder)
        client.cache = client.temporary = client.tasks = tmp_path
        assert client._environment().get(VARIABLE) == expected


def test_a_server_takes_the_folder_out_of_its_environment(monkeypatch):
    monkeypatch.setenv(VARIABLE, "/somewhere")
    monkeypatch.setattr(kept_builds, "_folder", None)
    kept_builds.take_folder()
    assert VARIABLE not in os.environ
    assert kept_builds._folder == "/somewhere"


# --- With a compiler --------------------------------------------------------------------------------------------------

SELECTION = ("control_flow::branch_on_sum", "control_flow::loop_over_rows")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_records_have_the_same_bytes_without_kept_builds_with_the_first_and_with_the_second_run(command, tmp_path):
    compilers = ("compile", "compile:dynamic", "aoti")
    words = [word for name in compilers for word in ("--compiler", name)]
    records = []
    for number, limit in enumerate(("0", "8", "8")):
        results = tmp_path / str(number)
        ended = command(
            "run", *SELECTION, *words, "--results", results, "--jobs", "1",
            RECAPTURE_CACHE=str(tmp_path / "kept"), RECAPTURE_COMPILED_GIB=limit,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        [path] = results.rglob("conformance.jsonl")
        records.append(path.read_bytes())
    assert records[0] == records[1] == records[2]
    assert records[0].count(b"\n") == len(SELECTION) * len(compilers)
    assert list((tmp_path / "kept" / "compiled").iterdir())
    shutil.rmtree(tmp_path / "kept")


HEADER = """
#pragma once
#include <algorithm>
#include <vector>
inline int twice(int x) { return 2 * x; }
"""

KERNEL = '\n#include "HOME/cache/prefix.h"\nint kernel(int x) { std::vector<int> v(x); return twice(v.size()); }\n'


def compiled(run, *options):
    """Build a kernel with the compiler; return its bytes, without the folder of the run."""
    run.write("prefix.h", HEADER)
    source = run.write("kernel.cpp", KERNEL)
    target = source.with_suffix(".so")
    command = ["g++", str(source), "-shared", "-fPIC", "-O2", *options, "-lgomp", "-o", str(target)]
    run.kept.build(" ".join(command), lambda: subprocess.run(command, check=True))
    return target.read_bytes().replace(str(run.home).encode(), b"")


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_the_header_with_which_a_source_begins_is_precompiled_once_and_changes_no_byte(runs, tmp_path):
    first, second = runs
    with_header = compiled(first)
    precompiled = first.home / "cache" / "prefix.h.gch"
    assert precompiled.stat().st_size > 100_000
    moment = precompiled.stat().st_mtime_ns
    first.write("kernel.cpp", KERNEL + "int other();\n")
    compiled(first, "-DMORE")
    assert precompiled.stat().st_mtime_ns == moment
    assert compiled(second, "-DOTHER") == with_header.replace(b"recapture-0", b"recapture-1")
    plain = tmp_path / "plain" / "cache"
    plain.mkdir(parents=True)
    (plain / "prefix.h").write_text(HEADER)
    (plain / "kernel.cpp").write_text(KERNEL.replace("HOME", str(plain.parent)))
    command = ["g++", plain / "kernel.cpp", "-shared", "-fPIC", "-O2", "-lgomp", "-o", plain / "kernel.so"]
    subprocess.run(command, check=True)
    assert (plain / "kernel.so").read_bytes().replace(str(plain.parent).encode(), b"") == with_header


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_a_header_that_cannot_be_precompiled_is_tried_once_and_the_build_goes_on(runs):
    run = runs[0]
    run.write("prefix.h", "#error never\n")
    reused, text = run.build(run.write("kernel.cpp", '#include "HOME/cache/prefix.h"\n'))
    assert not reused
    assert text.startswith("object of")
    assert not list((run.home / "cache").glob("*.gch"))
