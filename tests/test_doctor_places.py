"""The doctor on directories, file systems and users: each fault is planted."""

from __future__ import annotations

import shutil

import pytest
from planted_machine import NAMES, faults, needs_mounts

from recapture.machine.doctor import storage_checks as places


def test_a_user_id_without_a_name_is_a_fault_unless_the_cache_is_named(planted, tmp_path):
    for name in NAMES:
        planted.env.pop(name, None)
    planted.become_unnamed_user()
    assert planted.check("user-name").status == "ok"
    del planted.env["TORCHINDUCTOR_CACHE_DIR"]
    checks = planted.examine()
    assert faults(checks) == {"user-name"}
    assert "12345" in checks["user-name"].found
    planted.env["USER"] = "somebody"
    assert planted.check("user-name").status == "ok"


@needs_mounts
def test_a_cache_mounted_noexec_is_a_fault(planted, tmp_path):
    planted.mount = f"mount -t tmpfs -o noexec tmpfs {tmp_path}"
    checks = planted.examine()
    assert faults(checks) == {"executable-caches"}
    assert "Inductor's cache" in checks["executable-caches"].found


@needs_mounts
def test_a_temporary_directory_mounted_noexec_is_a_fault(planted, tmp_path):
    planted.env["TMPDIR"] = str(tmp_path / "noexec")
    (tmp_path / "noexec").mkdir()
    planted.mount = f"mount -t tmpfs -o noexec tmpfs {tmp_path}/noexec"
    check = planted.check("executable-caches")
    assert check.status == "fault"
    assert "the temporary directory" in check.found


def test_loading_a_library_really_loads_one(tmp_path):
    sample = places._a_shared_library()
    assert sample is not None
    assert not places._refuses_to_load(sample, tmp_path)
    assert not list(tmp_path.iterdir()), "what was planted to be loaded is removed"


@needs_mounts
def test_loading_a_library_fails_where_it_must(planted, tmp_path):
    planted.mount = f"mount -t tmpfs -o noexec tmpfs {tmp_path}"
    program = f"""
from pathlib import Path
from recapture.machine.doctor import storage_checks as places
print(places._refuses_to_load(places._a_shared_library(), Path({str(tmp_path)!r})))
"""
    assert planted.run(program).strip() == "True"


@needs_mounts
def test_a_read_only_cache_is_a_fault(planted, tmp_path):
    planted.mount = f"mount -t tmpfs -o ro tmpfs {tmp_path}"
    checks = planted.examine()
    assert faults(checks) == {"writable-caches"}
    assert "Read-only file system" in checks["writable-caches"].found


def test_a_cache_that_is_a_file_is_a_fault(planted, tmp_path):
    (tmp_path / "inductor").touch()
    assert "is not a directory" in planted.check("writable-caches").found


@needs_mounts
def test_a_read_only_home_is_a_warning_on_the_cpu_and_a_fault_where_triton_keeps_its_cache_there(planted, tmp_path):
    (tmp_path / "home").mkdir()
    planted.env["HOME"] = str(tmp_path / "home")
    planted.mount = f"mount -t tmpfs -o ro tmpfs {tmp_path}/home"
    assert planted.check("writable-home").status == "warning"
    assert {"writable-home", "writable-caches"} <= faults(planted.examine("cuda", "writable-home", "writable-caches"))
    planted.env["TRITON_CACHE_DIR"] = str(tmp_path / "triton")
    checks = planted.examine("cuda", "writable-home", "writable-caches")
    assert checks["writable-home"].status == "warning"
    assert checks["writable-caches"].status == "ok"


@needs_mounts
def test_no_writable_temporary_directory_is_a_fault(planted, tmp_path):
    planted.env.pop("TMPDIR", None)
    planted.mount = "for d in /var/tmp /tmp; do mount -t tmpfs -o ro tmpfs $d; done; cd /tmp"
    check = planted.check("temporary-directory")
    assert check.status == "fault"


@needs_mounts
def test_a_small_dev_shm_is_a_warning(planted):
    planted.mount = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
    check = planted.check("shared-memory")
    assert (check.status, check.found) == ("warning", "0.1 GiB in /dev/shm")


@needs_mounts
@pytest.mark.parametrize(("size", "status"), [("1g", "fault"), ("3g", "warning"), ("6g", "ok")])
def test_little_free_space_is_a_warning_and_too_little_a_fault(planted, tmp_path, size, status):
    planted.mount = f"mount -t tmpfs -o size={size} tmpfs {tmp_path}"
    if status != "fault" and shutil.disk_usage("/tmp").free < 5 * places.GIB:
        pytest.skip("this machine itself has little disk left")
    assert planted.check("disk-space").status == status


@needs_mounts
@pytest.mark.parametrize(
    ("limit", "used", "cache", "status"), [(2, 1.9, 0.2, "fault"), (3, 1, 0.5, "warning"), (2, 1.9, 1.8, "warning")]
)
def test_a_containers_memory_limit_counts(planted, limit, used, cache, status):
    gib = places.GIB
    group = "/sys/fs/cgroup"
    planted.mount = f"""mount -t tmpfs tmpfs {group}
echo {int(limit * gib)} > {group}/memory.max
echo {int(used * gib)} > {group}/memory.current
echo inactive_file {int(cache * gib)} > {group}/memory.stat"""
    assert planted.check("memory").status == status


@needs_mounts
def test_the_file_system_of_a_cache_is_reported(planted, tmp_path):
    planted.mount = f"mount -t tmpfs tmpfs {tmp_path}"
    assert planted.check("cache-on-network").found == "Inductor's cache is on tmpfs"
    planted.first = (
        "from recapture.machine.doctor import storage_checks as places; places.NETWORK_FILESYSTEMS |= {'tmpfs'}\n"
    )
    assert planted.check("cache-on-network").status == "warning"


def test_network_file_systems_are_known_by_the_kernels_names():
    assert {"nfs", "nfs4", "cifs", "lustre", "fuse.sshfs"} <= places.NETWORK_FILESYSTEMS


def test_a_temporary_directory_with_a_blank_is_reported(planted, tmp_path):
    place = tmp_path / "a b"
    place.mkdir()
    planted.env["TMPDIR"] = str(place)
    check = planted.check("temporary-directory")
    assert check.status == "warning"
    assert f"{place} has a blank in its path" in check.found
