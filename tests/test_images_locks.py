"""Every lock is complete and made from today's images.toml and pyproject.toml; nothing is installed to tell."""

import re
import shutil
import sys

import pytest

from recapture.base.errors import EnvironmentUnfitError, RecaptureError
from recapture.base.toml_file import read_toml
from recapture.images.lock_files import LockPlan, build_plan, image_plan, read_inputs_digest, write_lock
from recapture.machine.pins import docker_directory, load_images, load_pins, lock_path, normalise, read_lock

IMAGES = list(load_images())
BUILD = docker_directory() / "build-requirements.txt"
LOCKS = [lock_path(name) for name in IMAGES] + [BUILD]
REQUIREMENT = re.compile(r"[a-z0-9][\w.-]*==\S+(?: ; [\w<>='. ]+)? \\")


def entries(path):
    """Group a lock's lines: one list for every requirement, its hashes after it."""
    groups = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or not line:
            continue
        if line.startswith(" "):
            groups[-1].append(line.strip())
        else:
            groups.append([line])
    return groups


def test_there_is_one_lock_for_every_image_and_none_besides():
    assert sorted(path.stem for path in (docker_directory() / "locks").iterdir()) == sorted(IMAGES)


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_every_requirement_is_pinned_exactly_and_hashed(path):
    listed = entries(path)
    assert len(listed) >= 7
    for first, *hashes in listed:
        assert REQUIREMENT.fullmatch(first), first
        assert hashes, first
        for line in hashes:
            assert re.fullmatch(r"--hash=sha256:[0-9a-f]{64}(?: \\)?", line), first
        assert [line.endswith("\\") for line in hashes] == [True] * (len(hashes) - 1) + [False], first


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_a_lock_names_no_package_index(path):
    assert not re.search(r"://|index-url|find-links", path.read_text(encoding="utf-8"))


needs_uv = pytest.mark.skipif(shutil.which("uv") is None, reason="uv writes the locks")


@pytest.mark.parametrize("name", IMAGES)
def test_a_lock_holds_what_its_image_pins(name):
    image, locked = load_images()[name], read_lock(lock_path(name))
    assert {package: locked[package] for package in image.pinned} == image.pinned
    assert {version for package, version in locked.items() if package.startswith("nvidia-cudnn")} == {image.cudnn}
    (runtime,) = [version for package, version in locked.items() if package.startswith("nvidia-cuda-runtime")]
    assert runtime.split(".")[:2] == image.cuda.split(".")


@pytest.mark.parametrize("name", IMAGES)
def test_a_lock_holds_recaptures_own_dependencies(name):
    locked = read_lock(lock_path(name))
    own = read_toml(docker_directory().parent / "pyproject.toml")["project"]["dependencies"]
    outside = load_pins().tools.outside_images
    assert not set(outside) & locked.keys()
    for requirement in own:
        if requirement.startswith(outside):
            continue
        if "python_version < '3.11'" in requirement and load_images()[name].python != "3.10":
            continue
        package, least = re.match(r"([\w.-]+)>=([\d.]+)", requirement).groups()
        parts = [[int(part) for part in re.findall(r"\d+", version)] for version in (locked[normalise(package)], least)]
        assert parts[0] >= parts[1], requirement


@pytest.mark.parametrize("name", IMAGES)
def test_a_lock_was_made_from_what_the_pins_say_now(name):
    plan = image_plan(load_images()[name], load_pins().tools)
    assert read_inputs_digest(plan.path) == plan.inputs_digest, f"run `recapture images lock {name}`"
    assert plan.path.read_text(encoding="utf-8").startswith(plan.header)


def test_the_lock_of_the_build_was_made_from_what_pyproject_says_now():
    plan = build_plan(load_pins().tools)
    assert read_inputs_digest(BUILD) == plan.inputs_digest, "run `recapture images lock`"


@pytest.mark.parametrize("field", ["numpy", "python", "cutoff"])
def test_a_changed_pin_makes_its_lock_out_of_date(field):
    import msgspec

    pins = load_pins()
    image = pins.images["torch2.6.0-cu124"]
    changed = msgspec.structs.replace(image, **{field: pins.tools.cutoff if field == "cutoff" else "1.0"})
    assert read_inputs_digest(lock_path(image.name)) != image_plan(changed, pins.tools).inputs_digest


def test_the_header_records_image_python_and_cut_offs():
    text = lock_path("torch2.6.0-cu124-drifted").read_text(encoding="utf-8")
    assert text.startswith("# The lock of image torch2.6.0-cu124-drifted,")
    for line in ("# python: 3.11", "# cut-off: 2025-02-05", "# cut-off of scipy: 2026-11-01"):
        assert f"{line}\n" in text


def test_a_file_without_a_digest_has_none(tmp_path):
    path = tmp_path / "requirements.txt"
    path.write_text("torch==2.6.0\n", encoding="utf-8")
    assert read_inputs_digest(path) is None


def test_without_uv_a_lock_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "uv", None)
    plan = LockPlan(tmp_path / "lock.txt", "A lock", ("numpy",), (), ())
    with pytest.raises(EnvironmentUnfitError, match="uv is not installed"):
        write_lock(plan)


@needs_uv
def test_what_does_not_resolve_leaves_the_old_lock_alone(tmp_path):
    path = tmp_path / "lock.txt"
    path.write_text("old\n", encoding="utf-8")
    options = ("--no-index", "--generate-hashes")
    with pytest.raises(RecaptureError, match=r"lock\.txt: nothing resolves: .*no-such-package"):
        write_lock(LockPlan(path, "A lock", ("no-such-package-at-all==1",), options, ()))
    assert path.read_text(encoding="utf-8") == "old\n"


@needs_uv
def test_an_unreachable_index_is_the_machines_fault(tmp_path, monkeypatch):
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    options = ("--default-index", "http://127.0.0.1:9", "--generate-hashes")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(EnvironmentUnfitError, match="cannot reach the package index"):
        write_lock(LockPlan(tmp_path / "lock.txt", "A lock", ("numpy",), options, ()))
    assert not (tmp_path / "lock.txt").exists()


@needs_uv
def test_a_local_index_gives_a_lock_with_header_and_hashes(tmp_path):
    import zipfile

    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "thing-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("thing.py", "")
        wheel.writestr("thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
        wheel.writestr("thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("thing-1.0.dist-info/RECORD", "")
    plan = LockPlan(
        tmp_path / "new" / "lock.txt",
        "A lock",
        ("thing",),
        ("--no-index", "--find-links", str(wheels), "--generate-hashes", "--no-header", "--no-annotate"),
        ("cut-off: never",),
    )
    assert write_lock(plan) == 1
    assert read_lock(plan.path) == {"thing": "1.0"}
    assert read_inputs_digest(plan.path) == plan.inputs_digest
    assert "# cut-off: never\n" in plan.path.read_text(encoding="utf-8")
