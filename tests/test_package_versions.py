"""`bisect` over the versions of one package within an image: the versions that uv finds, and the search among them."""

import hashlib
import zipfile

import msgspec
import pytest
from planted_images import PlantedImages, plant_runs

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.command.main import _run
from recapture.images import environments
from recapture.machine.pins import find_image
from recapture.records.record import ErrorInfo, Record, write_jsonl
from recapture.records.verdicts import Verdict
from recapture.tools.upgrade import bisect_command, package_versions
from recapture.tools.upgrade.package_versions import releases_from


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """Images whose package ``demo`` has version 2, and an index in a folder that has it from 1.0 to 4.0rc1."""
    images = PlantedImages(tmp_path)
    monkeypatch.setattr("recapture.machine.pins.docker_directory", lambda: images.docker)
    lock = images.docker / "locks" / "a.txt"
    lock.write_text(lock.read_text() + "demo==2.0\n")
    folder = tmp_path / "index" / "demo"
    folder.mkdir(parents=True)
    wheels = [wheel(folder, "demo", version) for version in ("1.0", "1.5", "2.0", "2.1", "2.10", "3.0", "4.0rc1")]
    hashes = [hashlib.sha256(wheel_path.read_bytes()).hexdigest() for wheel_path in wheels]
    links = [
        f'<a href="{wheel_path.name}#sha256={digest}">{wheel_path.name}</a>'
        for wheel_path, digest in zip(wheels, hashes, strict=True)
    ]
    (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>{' '.join(links)}</body></html>")
    settings = tmp_path / "uv.toml"
    settings.write_text(f'[[index]]\nurl = "{folder.parent.as_uri()}"\ndefault = true\n')
    monkeypatch.setenv("UV_CONFIG_FILE", str(settings))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    return images


def wheel(folder, name, version):
    info, path = f"{name}-{version}.dist-info", folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    return path


def versions(wanted):
    return [release.version for release in releases_from(find_image("a"), wanted)]


def test_the_versions_go_from_the_one_after_the_images_own_to_the_one_named(planted):
    assert versions("demo") == ["2.1", "2.10", "3.0"]
    assert versions("demo==2.10") == ["2.1", "2.10"]
    assert versions("demo==1.0") == ["1.5", "1.0"]
    (first, *_) = releases_from(find_image("a"), "demo")
    assert first.name == "demo"
    assert first.entry.startswith("demo==2.1 \\\n    --hash=sha256:")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("demo>=2", "is not NAME or NAME=="),
        ("demo==2.*", "is not NAME or NAME=="),
        ("demo[x]==3", "is not NAME or NAME=="),
        ("", "is not NAME or NAME=="),
        ("none", "the lock of a has no none"),
        ("demo==2", "a has demo 2.0 itself"),
        ("demo==9", "no demo 9 with a wheel"),
        ("demo==2.5", "no demo 2.5 with a wheel"),
        ("marker", "no marker newer than 1 with a wheel"),
        ("torch", "needs packages of its own"),
    ],
)
def test_a_package_or_version_that_cannot_be_tried_is_bad_input(planted, wanted, message):
    with pytest.raises(UsageError, match=message):
        versions(wanted)


def test_an_index_that_does_not_answer_is_named(planted, monkeypatch):
    planted.use(monkeypatch)  # a uv that says what this variable holds
    monkeypatch.setenv("PLANTED_UV_COMPILE", "error: Request failed: error sending request")
    with pytest.raises(EnvironmentUnfitError, match="cannot reach the package index"):
        versions("demo")


class Search:
    """Runs `bisect` over scipy 1 to 7 in planted environments; the cell fails from 4 on, and cannot run in `broken`."""

    def __init__(self, folder, monkeypatch, capsys):
        self.folder, self.capsys = folder, capsys
        self.ran: list[int] = []
        self.broken: set[int] = set()
        releases = [
            package_versions.PackageRelease("scipy", str(number), f"scipy=={number}\n") for number in range(1, 8)
        ]
        monkeypatch.setattr(bisect_command, "releases_from", lambda image, wanted: releases)
        plant_runs(monkeypatch, self.run)

    def run(self, interpreter, words, stderr):
        """What `recapture run` does in an environment."""
        site = next(interpreter.python.parent.parent.glob("lib/*/site-packages"))
        (version,) = (int(path.name.split("-")[1].split(".")[0]) for path in site.glob("scipy-*"))
        self.ran.append(version)
        if version in self.broken:
            stderr.write(b"1 cell\nrecapture: the disk is full\n")
            stderr.flush()
            return 3
        results = self.folder / words[words.index("--results") + 1] / "a" / "cpu"
        results.mkdir(parents=True)
        row = Record(case="types::c", compiler="fx", device="cpu", verdict=Verdict.PASS, case_hash="")
        if version >= 4:
            row = msgspec.structs.replace(row, verdict=Verdict.ERROR, error=ErrorInfo("ValueError", "no", "0"))
        write_jsonl(results / "conformance.jsonl", [row])
        return 0

    def output(self):
        """What `bisect` prints."""
        words = [
            "bisect",
            "--yes",
            "types::c::fx",
            "--image",
            "a",
            "--package",
            "scipy",
            "--results",
            str(self.folder / "none"),
        ]
        assert _run(words) == 0
        return self.capsys.readouterr().out


@pytest.fixture
def search(tmp_path, monkeypatch, capsys):
    images = PlantedImages(tmp_path)
    images.use(monkeypatch)
    monkeypatch.setattr(environments, "EXPECTED_BYTES", 1 << 20)
    lock = images.docker / "locks" / "a.txt"
    lock.write_text(f"{lock.read_text()}scipy==0\n")
    return Search(tmp_path, monkeypatch, capsys)


def test_the_first_bad_version_is_found_by_halving(search):
    out = search.output()
    assert "first bad in scipy 4: error:ValueError; before, in scipy 3: pass" in out
    assert "sure: none lies between the two" in out
    assert "changed: scipy 3 → 4" in out
    assert search.ran == [0, 7, 4, 2, 3]


def test_a_version_that_cannot_run_leaves_the_boundary_open(search):
    search.broken.update({3})
    out = search.output()
    assert "first bad in scipy 4: error:ValueError; before, in scipy 2: pass" in out
    assert "not sure: between the two lie scipy 3, without a record that decides" in out
    assert "not decided in scipy 3: the run ended with status 3 and without a record: the disk is full" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--image", "a"], "--image and --package belong together"),
        (["--package", "scipy"], "--image and --package belong together"),
        (["--image", "a", "--package", "scipy", "--good", "a", "--bad", "b"], "or --image and --package"),
        (["--image", "a", "--package", "scipy", "--no-run"], "no records of other versions"),
    ],
)
def test_bad_input_is_one_line(planted, capsys, words, message):
    assert _run(["bisect", "types::c::fx", *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
