"""Requirements files of a user's code: read, compared with an image's lock, and what uv says about them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from planted_images import TORCH, PlantedImages

from recapture.base.errors import UsageError
from recapture.images.environments import UnpinnedRelease, _unpinned_name
from recapture.images.interpreter import Interpreter
from recapture.images.overlay import make_overlay
from recapture.images.requirements import (
    Requirements,
    _conflict,
    beyond_lock,
    build_layer,
    check_against,
    to_install,
)
from recapture.images.uv import find_uv
from recapture.machine import pins
from recapture.machine.pins import find_image, find_release, lock_path

IMAGE = "torch2.6.0-cu124"


def requirements_in(folder, text, name="requirements.txt"):
    path = folder / name
    path.write_text(text)
    return Requirements.read([path])


def test_comments_options_and_named_files_are_read(tmp_path):
    (tmp_path / "more.txt").write_text("timm>=1.0\n")
    requirements = requirements_in(
        tmp_path, "# a comment\neinops>=0.7  # why\n--index-url https://example.org/simple\n-r more.txt\n-e ./local\n"
    )
    assert [str(requirement) for _, requirement in requirements.named()] == ["einops>=0.7", "timm>=1.0"]


def test_a_file_that_names_itself_is_read_once(tmp_path):
    assert [
        str(requirement) for _, requirement in requirements_in(tmp_path, "-r requirements.txt\neinops\n").named()
    ] == ["einops"]


def test_files_that_name_one_another_many_times_are_read_once_each(tmp_path):
    for number in range(12):
        others = f"-r {number + 1}.txt\n" * 8 if number < 11 else "-c 0.txt\n"
        (tmp_path / f"{number}.txt").write_text(f"{others}package-{number}\n")
    names = [str(requirement) for _, requirement in Requirements.read([tmp_path / "0.txt"]).named()]
    assert sorted(names) == sorted(f"package-{number}" for number in range(12))


def test_the_contents_decide_the_layer_and_not_the_name_of_the_file(tmp_path):
    lock = tmp_path / "lock.txt"
    lock.write_text("torch==2.6.0\n")
    first, second = (
        requirements_in(tmp_path, "einops\n", "a.txt"),
        requirements_in(tmp_path, "# said\neinops\n", "b.txt"),
    )
    changed = requirements_in(tmp_path, "einops>0.5\n", "c.txt")
    assert first.digest(lock) == second.digest(lock) != changed.digest(lock)
    before = first.digest(lock)
    lock.write_text("torch==2.7.0\n")
    assert first.digest(lock) != before


def test_a_requirement_that_excludes_the_pinned_version_is_named_with_it(tmp_path):
    requirements = requirements_in(tmp_path, "einops\nnumpy<1.20\n")
    with pytest.raises(UsageError) as caught:
        check_against(find_image(IMAGE), requirements)
    numpy = find_image(IMAGE).numpy
    assert str(caught.value) == f"requirements.txt asks for numpy<1.20, and {IMAGE} pins numpy=={numpy}"


@pytest.mark.parametrize("text", ["numpy>=1.20\n", 'numpy<1.20; python_version < "3.8"\n', "einops\n", "Torch>=2.0\n"])
def test_requirements_that_fit_are_accepted(tmp_path, text):
    check_against(find_image(IMAGE), requirements_in(tmp_path, text))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"not a requirement!\n", "is not a requirement"),
        (b"\xff\xfe", "not a text file"),
        (b"-r a\0b.txt\n", "not a text file"),
        (b"-r " + b"x" * 5000, "cannot read "),
        (b"a\n" * 600_000, "1200000 bytes, more than the"),
        (b"-r https://example.org/more.txt\n", "-r and -c take a file, and not the address"),
    ],
)
def test_a_file_that_is_no_list_of_requirements_is_one_line(tmp_path, content, complaint):
    path = tmp_path / "requirements.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=complaint) as caught:
        Requirements.read([path])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    with pytest.raises(UsageError, match="No such file"):
        Requirements.read([tmp_path / "absent.txt"])


@pytest.mark.parametrize("marker", ["python_version ~= 'abc'", "'a' < 'b'", "'x' in dependency_groups"])
def test_a_marker_that_means_nothing_is_one_line(tmp_path, marker):
    with pytest.raises(UsageError) as caught:
        check_against(find_image(IMAGE), requirements_in(tmp_path, f"numpy; {marker}\n"))
    assert re.fullmatch(
        r"requirements\.txt: (the marker of 'numpy; .*' means nothing|'numpy; .*' is not a requirement): .*",
        str(caught.value),
    )


def test_files_that_name_each_other_are_read_up_to_a_depth(tmp_path):
    for number in range(1500):
        (tmp_path / f"{number}.txt").write_text(f"-r {number + 1}.txt\n")
    (tmp_path / "1500.txt").write_text("numpy\n")
    with pytest.raises(UsageError, match="more than 50 files name each other with -r in a row"):
        Requirements.read([tmp_path / "0.txt"])
    assert len(Requirements.read([tmp_path / "1460.txt"]).lines) == 1


def test_a_mark_of_the_encoding_is_no_part_of_the_first_name(tmp_path):
    path = tmp_path / "requirements.txt"
    path.write_bytes(b"\xef\xbb\xbfnumpy\n")
    assert [requirement.name for _, requirement in Requirements.read([path]).named()] == ["numpy"]


def test_what_uv_says_about_a_dependency_names_both_sides():
    message = (
        "uv failed: × No solution found when resolving dependencies: ╰─▶ Because torchaudio==2.5.0 depends on "
        "torch==2.5.0 and you require torch==2.6.0, we can conclude that your requirements are unsatisfiable."
    )
    conflict = _conflict(message, {"torch": "2.6.0"}, find_image(IMAGE))
    assert conflict == f"torchaudio==2.5.0 depends on torch==2.5.0, and {IMAGE} pins torch==2.6.0"
    assert _conflict("uv failed: Permission denied", {"torch": "2.6.0"}, find_image(IMAGE)) == ""
    unparsed = _conflict("No solution found: ╰─▶ Because there is no version of x", {}, find_image(IMAGE))
    assert unparsed == "Because there is no version of x"


def test_packages_of_the_image_are_not_installed_again(tmp_path):
    resolved = (
        "einops==0.8.1 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
        "numpy==2.1.2 \\\n    --hash=sha256:cc\n"
        "timm @ https://example.org/timm.whl \\\n    --hash=sha256:dd\ntorch==2.6.0\n-e ./local\n"
    )
    hashed, others = to_install(beyond_lock(resolved, lock_path(IMAGE)), requirements_in(tmp_path, "einops\n"))
    assert hashed == (
        "einops==0.8.1 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
        "timm @ https://example.org/timm.whl \\\n    --hash=sha256:dd\n"
    )
    assert others == "-e ./local\n"


class Wheels:
    """Wheels of two packages in two folders, of which one stands for a private index; both have the same version."""

    def __init__(self, root):
        self.root = root
        self.hashes = {
            (kind, name): self._wheel(kind, name) for kind in ("private", "public") for name in ("acme", "dep")
        }

    def _wheel(self, kind, name):
        needs = {"acme": "Requires-Dist: dep\n", "strict": "Requires-Dist: dep==2.0\n"}.get(name, "")
        info = f"{name}-1.0.dist-info"
        files = {
            f"{name}.py": f"origin = {kind!r}\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: planted\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in files)
        path = self.root / kind / f"{name}-1.0-py3-none-any.whl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as archive:
            for file, text in files.items():
                archive.writestr(file, text)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def installed(self, text, mixed=None):
        """What is installed for a requirements file in this folder: the origin of each package."""
        requirements = requirements_in(self.root, text)
        image = find_image("a")
        check_against(image, requirements, mixed)
        layer = self.root / "layer"
        variables = {**os.environ, "UV_CACHE_DIR": str(self.root / "cache"), "UV_LINK_MODE": "copy"}
        build_layer(image, Interpreter(Path(sys.executable), variables), requirements, layer, variables, mixed)
        (packages,) = layer.glob("lib/python*/site-packages")
        return {
            path.stem: path.read_text().split("'")[1] for path in packages.glob("*.py") if path.stem in ("acme", "dep")
        }


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """Wheels, and an image whose environment is this one; what the user did not name is an index with public ones."""
    find_uv("run these tests")
    planted = PlantedImages(tmp_path / "planted" if (tmp_path / "planted").mkdir() is None else tmp_path)
    monkeypatch.setattr(pins, "docker_directory", lambda: planted.docker)
    planted_wheels = Wheels(tmp_path / "wheels")
    monkeypatch.setenv("UV_FIND_LINKS", str(planted_wheels.root / "public"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    return planted_wheels


def test_packages_of_two_releases_that_exclude_each_other_are_taken_as_they_are(wheels):
    digest = wheels._wheel("public", "strict")  # needs dep 2.0, as a torch needs its own Triton
    mixed = wheels.root / "mixed.txt"
    pinned = {"dep": wheels.hashes["public", "dep"], "strict": digest}
    mixed.write_text("".join(f"{name}==1.0 \\\n    --hash=sha256:{value}\n" for name, value in pinned.items()))
    assert wheels.installed("strict\nacme\n", mixed) == {"acme": "public"}
    lock = lock_path("a")
    lock.write_text(lock.read_text() + mixed.read_text())
    shutil.rmtree(wheels.root / "layer")
    with pytest.raises(UsageError, match="does not fit a: "):
        wheels.installed("strict\nacme\n")


@pytest.mark.hostile
class TestProtectionsOfAnInstallation:
    """Each is of the user's own files, and would be lost if the resolved list alone were installed."""

    def test_the_folders_that_the_file_names_are_those_that_are_installed_from(self, wheels, monkeypatch):
        monkeypatch.delenv("UV_FIND_LINKS")
        monkeypatch.chdir("/")
        monkeypatch.setenv("PRIVATE_WHEELS", str(wheels.root / "private"))
        assert wheels.installed("--no-index\n--find-links ${PRIVATE_WHEELS}\nacme\n")["acme"] == "private"
        shutil.rmtree(wheels.root / "layer")
        options = "--no-index\n--find-links ./private\n"
        assert wheels.installed(f"{options}acme\n") == {"acme": "private", "dep": "private"}

    @pytest.mark.parametrize("option", ["--index-url", "--extra-index-url"])
    def test_the_index_that_the_file_names_is_the_one_that_is_installed_from(
        self, wheels, tmp_path, monkeypatch, option
    ):
        addresses = {}
        for kind in ("private", "public"):
            for name in ("acme", "dep"):
                page = tmp_path / "index" / kind / name / "index.html"
                page.parent.mkdir(parents=True)
                wheel = wheels.root / kind / f"{name}-1.0-py3-none-any.whl"
                page.write_text(f'<a href="{wheel.as_uri()}">{wheel.name}</a>')
            addresses[kind] = page.parent.parent.as_uri()
        monkeypatch.delenv("UV_FIND_LINKS")
        if option == "--extra-index-url":  # an --index-url would give way to this variable
            monkeypatch.setenv("UV_DEFAULT_INDEX", addresses["public"])
        assert wheels.installed(f"{option} {addresses['private']}\nacme\n") == {"acme": "private", "dep": "private"}

    def test_a_wrong_hash_is_refused(self, wheels):
        with pytest.raises(UsageError, match=r"(?i)hash mismatch"):
            wheels.installed(f"acme==1.0 --hash=sha256:{'0' * 64}\n")

    @pytest.mark.parametrize(
        "line",
        [
            "./private/{acme}",
            "{root}/private/{acme}",
            "file://{root}/private/{acme}",
            "acme @ file://{root}/private/{acme}",
            "./private/{acme}; python_version>'3'",
            "./private/{acme} ; python_version > '3'",
            "./private/{acme}[x]",
            "file://{root}/private/{acme}[x]",
            "acme[x] @ file://{root}/private/{acme} ; python_version > '3'",
            "{acme}",
            "./with a blank/{acme}",
        ],
    )
    def test_a_wrong_hash_of_a_file_is_refused(self, wheels, monkeypatch, line):
        acme = "acme-1.0-py3-none-any.whl"
        (wheels.root / "with a blank").mkdir()
        for place in (wheels.root / acme, wheels.root / "with a blank" / acme):
            shutil.copy(wheels.root / "private" / acme, place)
        monkeypatch.chdir(wheels.root)
        line = f"{line.format(root=wheels.root, acme=acme)} --hash=sha256:"
        with pytest.raises(UsageError, match=r"(?i)hash mismatch"):
            wheels.installed(f"{line}{'0' * 64}\n")
        shutil.rmtree(wheels.root / "layer")
        assert wheels.installed(f"{line}{wheels.hashes['private', 'acme']}\n")["acme"] == "private"

    def test_packages_that_replace_those_of_an_environment_are_protected_too(self, wheels):
        def overlay(text):
            folder = wheels.root / "overlay"
            shutil.rmtree(folder, ignore_errors=True)
            variables = {**os.environ, "UV_CACHE_DIR": str(wheels.root / "cache"), "UV_LINK_MODE": "copy"}
            make_overlay(Interpreter(Path(sys.executable), variables), requirements_in(wheels.root, text), folder)
            return (folder / "acme.py").read_text()

        right = f"acme==1.0 --hash=sha256:{wheels.hashes['public', 'acme']}\n"
        assert overlay(right) == "origin = 'public'\n"
        assert overlay("--no-index\n--find-links private\nacme\n") == "origin = 'private'\n"
        with pytest.raises(UsageError, match=r"(?i)hash mismatch"):
            overlay(f"acme==1.0 --hash=sha256:{wheels.hashes['private', 'acme']}\n")
        with pytest.raises(UsageError, match="demands hashes, and has none for dep"):
            overlay(f"--require-hashes\n{right}")

    def test_one_of_several_allowed_files_is_installed(self, wheels):
        public_hash, private_hash = (wheels.hashes[kind, "acme"] for kind in ("public", "private"))
        assert (
            wheels.installed(f"acme==1.0 --hash=sha256:{public_hash} \\\n  --hash=sha256:{private_hash}\n")["acme"]
            == "public"
        )

    def test_a_file_that_changes_after_the_resolution_is_refused(self, wheels, monkeypatch):
        from recapture.images import requirements

        resolve = requirements._resolve

        def resolve_and_exchange(*arguments, **options):
            resolved = resolve(*arguments, **options)
            for name in ("acme", "dep"):
                file = f"{name}-1.0-py3-none-any.whl"
                shutil.copy(wheels.root / "private" / file, wheels.root / "public" / file)
            shutil.rmtree(wheels.root / "cache")
            return resolved

        monkeypatch.setattr(requirements, "_resolve", resolve_and_exchange)
        with pytest.raises(UsageError, match=r"(?i)hash mismatch"):
            wheels.installed("acme\n")

    def test_demanded_hashes_are_demanded_of_dependencies_too(self, wheels):
        text = f"--require-hashes\nacme==1.0 --hash=sha256:{wheels.hashes['public', 'acme']}\n"
        with pytest.raises(UsageError, match=r"requirements\.txt demands hashes, and has none for dep"):
            wheels.installed(text)
        text += f"dep==1.0 --hash=sha256:{wheels.hashes['public', 'dep']}\n"
        shutil.rmtree(wheels.root / "layer")
        assert wheels.installed(text) == {"acme": "public", "dep": "public"}

    def test_options_that_share_a_line_are_those_of_the_installation(self, wheels, monkeypatch):
        monkeypatch.delenv("UV_FIND_LINKS", raising=False)
        with pytest.raises(UsageError, match=r"requirements\.txt demands hashes, and has none for acme"):
            wheels.installed("--require-hashes --no-index -f ./public\nacme==1.0\n")
        shutil.rmtree(wheels.root / "layer")
        installed = wheels.installed("--no-index --find-links ./private\nacme\n")
        assert installed == {"acme": "private", "dep": "private"}

    def test_a_hash_that_belongs_to_no_known_package_is_refused(self, wheels):
        entries = {"acme": "acme @ file:///elsewhere/other.whl\n"}
        line = f"./private/acme-1.0-py3-none-any.whl --hash=sha256:{'0' * 64}\n"
        with pytest.raises(UsageError, match=r"has a hash for acme-1\.0-py3-none-any\.whl, and whether that is acme"):
            to_install(entries, requirements_in(wheels.root, line))

    def test_a_hash_of_a_package_of_the_image_is_compared_with_its_lock(self, wheels):
        from recapture.machine.pins import lock_path

        lock_path("a").write_text(f"torch=={TORCH}\nmarker==1 \\\n    --hash=sha256:{'1' * 64}\n")
        check_against(find_image("a"), requirements_in(wheels.root, f"marker==1 --hash=sha256:{'1' * 64}\n"))
        with pytest.raises(UsageError, match="allows no file of marker 1 that a pins: the hashes differ"):
            check_against(find_image("a"), requirements_in(wheels.root, f"marker==1 --hash=sha256:{'2' * 64}\n"))


def test_local_packages_of_two_folders_are_two_layers(tmp_path, monkeypatch):
    lock = tmp_path / "lock.txt"
    lock.write_text("torch==2.6.0\n")
    requirements = requirements_in(tmp_path, "-e ./local\n")
    digests = set()
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        digests.add(requirements.digest(lock))
        digests.add(requirements_in(tmp_path / name, "-f wheels\n").digest(lock))
        digests.add(_unpinned_name(UnpinnedRelease("2.6.0", "", "3.11"), requirements))
    assert len(digests) == 6


@pytest.mark.parametrize(
    "text",
    ["acme-1.0.whl", "acme @ file:./acme-1.0.whl", "--index-url simple\nacme", "-f wheels\nacme", "-e pkg", ".", "./x"],
)
def test_a_relative_path_means_another_package_in_another_folder(tmp_path, monkeypatch, text):
    lock = tmp_path / "lock.txt"
    lock.write_text("torch==2.6.0\n")
    digests = set()
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        digests.add(requirements_in(tmp_path / name, f"{text}\n").digest(lock))
    assert len(digests) == 2


@pytest.mark.parametrize(
    "text", ["--index-url ${PLACE}\nacme", "-f ${PLACE}\nacme", "${PLACE}/acme-1.0.whl", "acme @ file://${PLACE}/a.whl"]
)
def test_a_variable_means_another_package_with_another_value(tmp_path, monkeypatch, text):
    lock = tmp_path / "lock.txt"
    lock.write_text("torch==2.6.0\n")
    digests = set()
    for value in ("/one", "/other", "/other"):
        monkeypatch.setenv("PLACE", value)
        digests.add(requirements_in(tmp_path, f"{text}\n").digest(lock))
    assert len(digests) == 2


def test_a_file_that_is_built_anew_is_another_package(tmp_path):
    lock, wheel = tmp_path / "lock.txt", tmp_path / "acme-1.0.whl"
    lock.write_text("torch==2.6.0\n")
    requirements = requirements_in(tmp_path, f"{wheel}\n")
    digests = [requirements.digest(lock)]
    for content in ("first", "second one"):
        wheel.write_text(content)
        digests.append(requirements.digest(lock))
    assert len(set(digests)) == 3


def test_a_package_of_an_index_is_the_same_in_every_folder(tmp_path, monkeypatch):
    lock = tmp_path / "lock.txt"
    lock.write_text("torch==2.6.0\n")
    text = "einops>=0.7\ntimm[x]==1.0 ; python_version > '3'\n--index-url https://example.org/simple\n--pre\n"
    requirements = requirements_in(tmp_path, text + "clip @ git+https://example.org/clip.git\n")
    before = requirements.digest(lock)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert requirements.digest(lock) == before


def test_a_release_is_found_by_its_number_or_its_beginning():
    assert find_release("2.6.0").name == IMAGE
    assert find_release("2.6").name == IMAGE
    assert find_release("torch2.6.0-cu124-drifted").name == "torch2.6.0-cu124-drifted"
    for text in ("2.6.9", "2", ""):
        if text != "2":
            with pytest.raises(UsageError, match=r"no image has torch '.*\(`recapture images list` names them all\)"):
                find_release(text)
    with pytest.raises(UsageError, match=r"did you mean '2\.6\.0'\? \("):
        find_release("2.6.9")
    assert find_release("2").torch.startswith("2.15")
