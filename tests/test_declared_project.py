"""The project of a user as its pyproject.toml declares it: a mistake is one line, before anything is installed."""

from __future__ import annotations

import os
import tarfile

import pytest
from planted_releases import PlantedReleases

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.command.main import _run
from recapture.images.uv import find_uv, run_uv

NAMED = '[project]\nname = "m"\n'
WHOLE = f'{NAMED}version = "1"\n'


@pytest.fixture
def project(tmp_path, monkeypatch):
    releases = PlantedReleases(tmp_path, ("2.6.0", "2.9.1"))
    releases.use(monkeypatch)
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[project]\nname = "my model!"\nversion = "1"', "project.name: 'my model!' is not a name of a package"),
        ('[project]\nversion = "1"', "missing required field `name` - at `$.project`"),
        (NAMED, "project.version: it is missing, and project.dynamic does not have it"),
        (f'{NAMED}version = "one"', "project.version: 'one' is not a version"),
        (f"{NAMED}version = 1", "got `int` - at `$.project.version`"),
        (f'{WHOLE}requires-python = "three"', "project.requires-python: 'three' is not a set of versions"),
        (f'{WHOLE}dependencies = "numpy"', "got `str` - at `$.project.dependencies`"),
        (f'{WHOLE}dependencies = ["numpy >> 1"]', "project.dependencies: 'numpy >> 1' is not a requirement"),
        (f'{WHOLE}dependencies = ["{"(" * 50}"]', "project.dependencies: "),
        (
            f'{WHOLE}[project.optional-dependencies]\ntest = ["a b"]',
            "project.optional-dependencies.test: 'a b' is not a requirement",
        ),
        ('[build-system]\nrequires = ["a b"]', "build-system.requires: 'a b' is not a requirement"),
        ("[build-system]", "missing required field `requires` - at `$.build-system`"),
        ('project = "m"', "got `str` - at `$.project`"),
        ("[project", "pyproject.toml: Expected ']'"),
    ],
)
def test_a_mistake_of_the_project_is_one_line_with_its_field(project, capsys, text, message):
    (project / "pyproject.toml").write_text(text)
    assert _run(["upgrade", "--across", "2.6.0,2.9.1", "--", "true"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"recapture: {project / 'pyproject.toml'}: ")
    assert message in line


def test_a_project_that_is_not_installed_may_have_mistakes(project, capsys):
    (project / "pyproject.toml").write_text(NAMED)
    assert _run(["upgrade", "--across", "2.6.0,2.9.1", "--install", "no", "--runs", "1", "--", "true"]) == 0


def test_an_extra_that_the_project_has_not_is_named(project, capsys):
    (project / "pyproject.toml").write_text(f'{WHOLE}[project.optional-dependencies]\n"Tests.All" = []')
    words = ("upgrade", "--across", "2.6.0,2.9.1", "--runs", "1", "--extra")
    assert _run([*words, "test-al", "--", "true"]) == 2
    assert "pyproject.toml has no extra 'test-al'; did you mean 'Tests.All'?" in capsys.readouterr().err
    assert _run([*words, "tests-all", "--", "true"]) == 0  # names are compared as installers do


def test_a_requirement_of_an_extra_that_excludes_the_release_is_refused(project, capsys):
    (project / "pyproject.toml").write_text(f'{WHOLE}[project.optional-dependencies]\ntest = ["torch<2"]')
    assert _run(["upgrade", "--across", "2.6.0", "--write-baseline", "x", "--extra", "test", "--", "true"]) == 2
    assert "pyproject.toml asks for torch<2, and torch2.6.0 pins torch==2.6.0" in capsys.readouterr().err


BACKEND = "def get_requires_for_build_wheel(settings=None):\n    raise OSError('planted')\n"
BUILD = '[build-system]\nrequires = []\nbuild-backend = "broken"\nbackend-path = ["."]\n'


def plant_project(folder):
    folder.mkdir()
    (folder / "pyproject.toml").write_text(f'{BUILD}{NAMED}dynamic = ["version", "dependencies"]\n')
    (folder / "broken.py").write_text(f"{BACKEND}get_requires_for_build_editable = get_requires_for_build_wheel\n")


def resolve(folder, line, *words):
    (folder / "r.txt").write_text(line)
    uv = (find_uv("test"), "pip", "compile", "--quiet", "--offline", "--no-index", *words, "r.txt")
    run_uv(uv, folder=folder, environment={**os.environ, "UV_CACHE_DIR": str(folder / "cache")})


@pytest.mark.parametrize("option", ["-e ", ""])
def test_a_project_that_cannot_be_built_is_the_fault_of_the_user(tmp_path, option):
    plant_project(tmp_path / "own")
    with pytest.raises(UsageError, match=r"own cannot be built: OSError: planted$"):
        resolve(tmp_path, f"{option}{tmp_path / 'own'}")


def test_a_project_that_cannot_be_made_a_wheel_says_why(tmp_path):
    plant_project(tmp_path / "own")
    with pytest.raises(UsageError, match=r"own cannot be built: OSError: planted$"):
        run_uv((find_uv("test"), "build", "--wheel", "own"), folder=tmp_path, environment=os.environ)


def test_a_package_of_others_that_cannot_be_built_is_no_fault_of_the_user(tmp_path):
    plant_project(tmp_path / "m-1")
    with tarfile.open(tmp_path / "m-1.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "m-1", "m-1")
    with pytest.raises(EnvironmentUnfitError, match=r"^m==1 cannot be built: OSError: planted$"):
        resolve(tmp_path, "m==1", "--find-links", str(tmp_path))


def test_a_build_that_needs_what_no_index_has_says_which(tmp_path):
    plant_project(tmp_path / "own")
    text = (tmp_path / "own" / "pyproject.toml").read_text()
    (tmp_path / "own" / "pyproject.toml").write_text(text.replace("requires = []", 'requires = ["planted-nothing"]'))
    with pytest.raises(UsageError, match=r"own cannot be built: Because planted-nothing was not found"):
        resolve(tmp_path, str(tmp_path / "own"))
