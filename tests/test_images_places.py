"""Results copied from an engine and to it: local results are not lost, and stale files do not stay."""

import io
import tarfile
from types import SimpleNamespace

import pytest

from recapture.images.container import RESULTS, Copied, _give_cases, fetch_results
from recapture.images.engine import is_local
from recapture.records.directories import PARTIALS


def holding(files):
    """A container whose results folder has these files."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{RESULTS.strip('/')}/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return SimpleNamespace(get_archive=lambda _: ([archive.getvalue()], {}))


def test_a_finished_run_tidies_up_what_the_interrupted_one_left_here(tmp_path):
    finished_folder, other_folder = tmp_path / "image" / "cpu", tmp_path / "other" / "cpu"
    for folder in (finished_folder, other_folder):
        folder.mkdir(parents=True)
        for name in PARTIALS:
            (folder / name).write_text("stale")
    fetch_results(holding({"image/cpu/conformance.jsonl": "new", "image/cpu/environment.json": "{}"}), tmp_path)
    assert sorted(path.name for path in finished_folder.iterdir()) == ["conformance.jsonl", "environment.json"]
    assert {path.name for path in other_folder.iterdir()} == set(PARTIALS)


def test_an_interrupted_run_keeps_what_it_has(tmp_path):
    fetch_results(holding({f"image/cpu/{name}": "half" for name in PARTIALS}), tmp_path)
    assert {path.name for path in (tmp_path / "image" / "cpu").iterdir()} == set(PARTIALS)
    finished = {"image/cpu/conformance.jsonl": "old", f"image/cpu/{PARTIALS[0]}": "more"}
    fetch_results(holding(finished), tmp_path)
    assert {path.name for path in (tmp_path / "image" / "cpu").iterdir()} == {"conformance.jsonl", PARTIALS[0]}


@pytest.mark.hostile
def test_links_that_a_case_planted_are_not_written_through(tmp_path):
    outside, results = tmp_path / "outside", tmp_path / "results"
    outside.write_text("precious")
    folder = results / "image" / "cpu"
    folder.mkdir(parents=True)
    for name in (".conformance.jsonl.fetched", "conformance.jsonl", "environment.json"):
        (folder / name).symlink_to(outside)
    fetch_results(holding({"image/cpu/conformance.jsonl": "new"}), results)
    assert outside.read_text() == "precious"
    assert (folder / "conformance.jsonl").read_text() == "new"
    assert not (folder / "conformance.jsonl").is_symlink()
    assert (folder / "conformance.jsonl").stat().st_mode & 0o600 == 0o600


@pytest.mark.hostile
@pytest.mark.parametrize(
    "name", ["results/../../escaped", "/escaped", "elsewhere/escaped", "results/image/../../../escaped"]
)
def test_what_an_archive_has_outside_the_results_is_left_out(tmp_path, name):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path in (name, "results/image/kept"):
            tar.addfile(tarfile.TarInfo(path))
        (tmp_path / "link").symlink_to("absent")
        tar.add(tmp_path / "link", arcname="results/image/link")
    container = SimpleNamespace(get_archive=lambda _: ([archive.getvalue()], {}))
    fetch_results(container, tmp_path / "there" / "results")
    paths = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if not path.is_dir()]
    assert sorted(paths) == ["link", "there/results/image/kept"]


def test_a_run_of_a_selection_finds_the_rows_that_are_there(tmp_path):
    pytest.importorskip("docker")
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "conformance.jsonl").write_text("rows")
    put = []
    place = Copied(None, tmp_path)
    place.prepare(SimpleNamespace(put_archive=lambda folder, data: put.append((folder, data))))
    [(folder, data)] = put
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert "image/conformance.jsonl" in tar.getnames()
    assert folder == RESULTS


@pytest.mark.parametrize(
    ("options", "local"),
    [([], True), (["name=seccomp,profile=builtin"], True), (["name=rootless"], False), (["name=userns"], False)],
)
def test_an_engine_that_maps_user_ids_is_not_written_to_as_the_caller(options, local):
    client = SimpleNamespace(
        info=lambda: {"SecurityOptions": options}, api=SimpleNamespace(base_url="http+docker://localhost")
    )
    assert is_local(client) is local


def test_a_target_is_given_with_the_modules_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").touch()
    transfers = []
    place = SimpleNamespace(give=lambda outside, inside: transfers.append((outside, inside)))
    command = _give_cases(("model.py:Net", "--inputs", "model.py:make", "absent.py:f"), place)
    inside = [f"/cases/{number}/{tmp_path.name}" for number in (0, 2)]
    assert transfers == [(tmp_path, path) for path in inside]
    assert command == [f"{inside[0]}/model.py:Net", "--inputs", f"{inside[1]}/model.py:make", "absent.py:f"]


def test_files_and_folders_of_cases_are_given_to_the_container_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("mine", "types", "compile"):
        (tmp_path / folder).mkdir()
    (tmp_path / "one.py").touch()
    transfers = []
    place = SimpleNamespace(give=lambda outside, inside: transfers.append((outside.name, inside)))
    words = ("mine", "one.py::f::fx", "types", "--compiler", "compile", "-k", "mine")
    command = _give_cases(words, place)
    assert transfers == [("mine", "/cases/0/mine"), ("one.py", "/cases/1/one.py")]
    assert command == ["/cases/0/mine", "/cases/1/one.py::f::fx", *words[2:]]
