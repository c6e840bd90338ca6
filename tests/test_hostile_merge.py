"""`recapture merge` takes only parts that belong together, and writes nowhere but below its results."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import msgspec
import pytest
from conftest import REPOSITORY
from planted_images import PlantedImages

from recapture.base.errors import UsageError
from recapture.command.main import _run
from recapture.machine.environment import Origin, read_environment, write_environment
from recapture.records.record import CONFORMANCE, TIMINGS, Record, Timing, read_jsonl, write_jsonl
from recapture.records.shard_files import ShardCell, ShardPlan, read_shard, write_shard
from recapture.records.verdicts import Verdict

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(60)]

CELLS = 6


class Parts:
    """The two shards of a planted run, in the folders ``parts/1`` and ``parts/2``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = msgspec.structs.replace(
            read_environment(REPOSITORY / "results" / "torch2.6.0-cu124" / "cpu"),
            image="a",
            suites=[],
            selection=["--shard"],
            doctor=[],
            origins={},
            planned=CELLS // 2,
            recorded=CELLS // 2,
        )
        self.cells = [ShardCell("s::c" + str(number), "fx", "cpu", "h", number % 2 + 1) for number in range(CELLS)]
        self.write(1)
        self.write(2)

    def folder(self, number: int) -> Path:
        return self.root / "parts" / str(number) / "a" / "cpu"

    def write(self, number: int, *, cells=None, case_hash="h", **changes: object) -> None:
        """Write a shard, with these changes of its environment."""
        folder = self.folder(number)
        folder.mkdir(parents=True, exist_ok=True)
        write_environment(folder / "environment.json", msgspec.structs.replace(self.environment, **changes))
        write_shard(folder, ShardPlan(number=number, count=2, selection=[], cells=cells or self.cells))
        rows = [
            Record(case=row.case, compiler="fx", device="cpu", case_hash=case_hash, verdict=Verdict.PASS)
            for row in self.cells
            if row.shard == number
        ]
        write_jsonl(folder / CONFORMANCE, rows)

    def merge(self, *folders: object) -> int:
        folders = folders or (self.root / "parts",)
        return _run(["merge", *map(str, folders), "--results", str(self.root / "merged")])


@pytest.fixture
def parts(tmp_path):
    return Parts(tmp_path)


def refused(parts, capsys, *folders):
    """The one line with which a merge is refused, before anything is written."""
    before = {path for path in parts.root.parent.rglob("*") if parts.root / "parts" not in path.parents}
    assert parts.merge(*folders) == 2
    assert {path for path in parts.root.parent.rglob("*") if parts.root / "parts" not in path.parents} == before
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.rstrip("\n").isprintable()
    return err


def test_the_planted_parts_are_merged(parts, capsys):
    assert parts.merge() == 0
    assert capsys.readouterr().out == f"{parts.root / 'merged' / 'a' / 'cpu'}: {CELLS} planned, {CELLS} recorded\n"


@pytest.mark.parametrize("field", ["image", "capability"])
@pytest.mark.parametrize(
    "text", ["../../escape", "/tmp/escape", "..", ".", "", "-rf", ".lock", "a/b", "a\nb", "a\x1b[2J", "x" * 300]
)
def test_a_name_that_is_no_plain_part_of_a_path_is_refused_when_it_is_read(parts, capsys, field, text):
    path = parts.folder(2) / "environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: text}))
    assert f"environment.json: `{field}` is '" in refused(parts, capsys)


def test_a_record_of_another_source_than_planned_is_refused(parts, capsys):
    parts.write(2, case_hash="other")
    assert "was recorded from another source than planned: case_hash other, planned h" in refused(parts, capsys)


def test_a_plan_that_names_a_cell_twice_is_refused(parts, capsys):
    cells = [*parts.cells, *parts.cells]
    for number in (1, 2):
        folder = parts.folder(number)
        (folder / "shard.json").write_bytes(
            msgspec.json.encode(ShardPlan(number=number, count=2, selection=[], cells=cells))
        )
    with pytest.raises(UsageError, match="`cells` has s::c0::fx on cpu twice"):
        read_shard(parts.folder(1))
    assert "`cells` has s::c0::fx on cpu twice" in refused(parts, capsys)


@pytest.mark.parametrize(
    ("field", "value"), [("lock_hash", "sha256:other"), ("image_digest", "sha256:other"), ("device", "cuda")]
)
def test_shards_of_another_lock_image_or_device_are_refused(parts, capsys, field, value):
    parts.write(2, **{field: value})
    assert f"are of different installations: {field} " in refused(parts, capsys)


def test_a_record_of_another_device_than_its_part_is_refused(parts, capsys):
    path = parts.folder(2) / CONFORMANCE
    path.write_text(path.read_text().replace('"device":"cpu"', '"device":"cuda"'))
    assert "s::c1::fx is of device cuda, and the part of cpu" in refused(parts, capsys)


def test_an_origin_that_two_parts_describe_in_two_ways_is_refused(parts, capsys):
    for number, cpu in ((1, "Xeon"), (2, "EPYC")):
        origin = Origin(cpu=cpu, instructions="AVX2", gpu=None, platform="Linux", cxx=None, suite_commit=None)
        parts.write(number, origins={"aaaaaaaa": origin})
    assert "describe the origin aaaaaaaa in two ways" in refused(parts, capsys)


def test_a_part_says_nothing_about_the_cells_of_another_one(parts):
    cells = [row.key for row in parts.cells]
    for number, seconds in ((1, 777.0), (2, 1.0)):
        rows = [Timing(case=case, compiler=how, device=device, seconds=seconds) for case, how, device in cells]
        write_jsonl(parts.folder(number) / TIMINGS, rows)
    assert parts.merge() == 0
    merged = read_jsonl(parts.root / "merged" / "a" / "cpu" / TIMINGS, Timing)
    expected = {row.key: 777.0 if row.shard == 1 else 1.0 for row in parts.cells}
    assert {timing.key: timing.seconds for timing in merged} == expected


def test_folders_that_are_nested_too_deeply_are_one_line(parts, capsys):
    folder = parts.root / "parts" / "1"
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(1_400):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    try:
        assert parts.merge() in (0, 2)  # from Python 3.12 on, folders of any depth are read
        assert "Traceback" not in capsys.readouterr().err
    finally:
        subprocess.run(["rm", "-rf", str(folder / "d")], check=True)  # pytest cannot remove it


def test_shards_of_different_gpus_are_merged_with_a_warning(parts, capsys):
    from recapture.machine.hardware import GpuInfo

    for number, name in ((1, "NVIDIA A100-SXM4-40GB"), (2, "NVIDIA A100-SXM4-80GB")):
        parts.write(number, gpu=GpuInfo(name=name))
    assert parts.merge() == 0
    err = capsys.readouterr().err
    assert "warning: a/cpu: the parts ran on different GPUs: NVIDIA A100-SXM4-40GB, NVIDIA A100-SXM4-80GB" in err


@pytest.mark.parametrize("place", ["parts/2", "parts/2/a", "parts/2/a/cpu", "parts"])
def test_a_linked_folder_is_refused_as_a_linked_file_is(parts, capsys, place):
    path = parts.root / place
    path.rename(parts.root / "elsewhere")
    path.symlink_to(parts.root / "elsewhere")
    assert parts.merge() == 2
    assert f"{path} is a symbolic link, not a folder" in capsys.readouterr().err
    assert not (parts.root / "merged").exists()


@pytest.mark.parametrize("place", ["merged/a", "merged/a/cpu"])
def test_nothing_is_written_through_a_link_in_the_results(parts, capsys, place):
    elsewhere = parts.root / "elsewhere"
    elsewhere.mkdir()
    path = parts.root / place
    path.parent.mkdir(parents=True)
    path.symlink_to(elsewhere)
    assert parts.merge() == 2
    assert f"{path} is a symbolic link, not a folder" in capsys.readouterr().err
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("name", ["logs", "cpu", "."])
@pytest.mark.parametrize("command", ["plan", "matrix"])
def test_a_matrix_is_not_written_through_a_link(tmp_path, monkeypatch, capsys, command, name):
    planted = PlantedImages(tmp_path)
    planted.use(monkeypatch)
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "work"
    elsewhere.mkdir()
    path = Path(os.path.normpath(folder / name))
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(elsewhere)
    form = ("--format", "slurm") if command == "plan" else ("--via", "slurm")
    assert _run([command, *form, "--folder", str(folder), "--image", "a"]) == 2
    assert f"{path} is a symbolic link, not a folder" in capsys.readouterr().err
    assert list(elsewhere.iterdir()) == []
