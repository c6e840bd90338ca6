"""What `recapture diff` prints, its exit statuses, and the directories that it compares."""

import json
import re
import shutil

import msgspec
import pytest
from command_lines import recapture
from planted_diffs import GPU, IMAGES, NEW, OLD, RESOURCES, record
from planted_records import evidence

from recapture.base.errors import UsageError
from recapture.machine.environment import ENVIRONMENT, read_environment, write_environment
from recapture.records.directories import read_results
from recapture.records.verdicts import Verdict
from recapture.tools.compare.cell_changes import diff, locate
from recapture.tools.compare.changes import CATEGORIES, Diff, diff_schema
from recapture.tools.compare.diff_report import to_json, to_markdown


@pytest.fixture
def changes():
    return diff(read_results(OLD), read_results(NEW))


# Output


def test_json_is_what_the_schema_type_reads_back(changes):
    text = to_json(changes)
    assert msgspec.json.decode(text, type=Diff) == changes
    assert json.loads(text)["schema"] == 5


def test_the_schema_names_every_category():
    properties = diff_schema()["$defs"]["Diff"]["properties"]
    assert properties.keys() >= CATEGORIES.keys()


def test_markdown_tables_are_whole(changes):
    markdown = to_markdown(changes)
    blocks = re.findall(r"(?:^\|.*\|$\n?)+", markdown, re.MULTILINE)
    summaries = 2  # by suite and by compiler
    assert len(blocks) == 2 + summaries + len(CATEGORIES) - 2  # all but `noted_differently` and `judged_differently`
    for block in blocks:
        widths = {len(re.sub(r"\\.", "", row).strip("|").split("|")) for row in block.splitlines()}
        assert len(widths) == 1


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_output_is_the_same_twice_and_names_every_changed_case(form, capsys, changes):
    assert recapture("diff", OLD, NEW, "--format", form) == 0
    once = capsys.readouterr().out
    assert recapture("diff", OLD, NEW, "--format", form) == 0
    assert capsys.readouterr().out == once
    for _, members in changes.categories():
        for change in members:
            assert change.case in once


def test_text_through_a_pipe_has_no_control_codes_and_one_line_a_change(capsys):
    recapture("diff", OLD, NEW)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "    aoti  pass → crash  call on held_out[0]: died of SIGSEGV\n" in out
    assert "    make_fx  pass → timeout  possibly noise; still running after 60 s\n" in out
    assert "Removed: 2, 1 of them a regression (no longer there)\n" in out
    assert out.splitlines()[-1].startswith("7 regressions, 2 newly wrong, ")
    assert out.index("numpy  2.1.2 → 2.3.5") < out.index("Newly wrong")


# Exit statuses


@pytest.fixture
def better(tmp_path):
    """Two results directories; the second is right where the first was not."""
    for name, verdict in (("old", Verdict.ERROR), ("new", Verdict.PASS)):
        directory = tmp_path / name / "cpu"
        directory.mkdir(parents=True)
        (directory / "conformance.jsonl").write_bytes(msgspec.json.encode(record(verdict, **evidence(verdict))) + b"\n")
    return tmp_path / "old" / "cpu", tmp_path / "new" / "cpu"


@pytest.mark.parametrize("name", ["regression", "wrong", "failing", "any"])
def test_fail_on_exits_with_1_when_it_finds_what_it_names(name):
    assert recapture("diff", OLD, NEW, "--fail-on", name) == 1
    assert recapture("diff", OLD, OLD, "--fail-on", name) == 0


def test_fail_on_takes_an_improvement_for_a_change_and_for_nothing_else(better):
    assert recapture("diff", *better, "--fail-on", "regression", "--fail-on", "wrong", "--fail-on", "failing") == 0
    assert recapture("diff", *better, "--fail-on", "regression", "--fail-on", "any") == 1


def test_without_fail_on_changes_are_no_failure():
    assert recapture("diff", OLD, NEW) == 0


# Which directories


def test_images_with_one_capability_in_common_name_their_results():
    assert locate(OLD.parent, NEW.parent) == (OLD, NEW)
    assert locate(OLD, NEW.parent) == (OLD, NEW)
    assert locate(OLD, GPU) == (OLD, GPU)
    assert locate(OLD, GPU.parent) == (OLD, GPU)


def test_a_common_capability_is_found_among_several_and_asked_for_when_there_are_two(tmp_path):
    for image, capabilities in (("a", ["cpu", "sm_90"]), ("b", ["cpu", "sm_80"]), ("c", ["cpu", "sm_90"])):
        for capability in capabilities:
            shutil.copytree(OLD, tmp_path / image / capability)
    assert locate(tmp_path / "a", tmp_path / "b") == (tmp_path / "a" / "cpu", tmp_path / "b" / "cpu")
    assert locate(tmp_path / "a" / "sm_90", tmp_path / "c") == (tmp_path / "a" / "sm_90", tmp_path / "c" / "sm_90")
    with pytest.raises(UsageError, match="both hold cpu, sm_90: say which"):
        locate(tmp_path / "a", tmp_path / "c")


def test_a_directory_with_one_image_can_replace_it(tmp_path):
    shutil.copytree(OLD, tmp_path / "mine" / "a" / "cpu")
    mine = tmp_path / "mine"
    assert locate(mine, NEW) == (mine / "a" / "cpu", NEW)
    assert locate(mine, mine) == (mine / "a" / "cpu", mine / "a" / "cpu")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (IMAGES / "torch2.6.0-cu12", NEW, "torch2.6.0-cu12 does not exist; did you mean 'torch2.6.0-cu124'?"),
        (RESOURCES / "empty" / "torch2.6.0-cu124", NEW, "no conformance.jsonl in"),
        (OLD / "conformance.jsonl", NEW, "conformance.jsonl is not a directory"),
        (RESOURCES / "future" / "torch9.0.0-cu990", NEW, "record schema 99 is not understood by this version"),
        (IMAGES, NEW, "holds several images' results, name one: bare-torch2.11.0-cu130,"),
        (NEW.parent, GPU.parent, "have no capability in common"),
    ],
)
def test_bad_directories_are_one_clear_line_and_exit_status_2(old, new, message, capsys):
    assert recapture("diff", old, new) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_an_interrupted_run_is_named_as_such(tmp_path, capsys):
    (tmp_path / "conformance.partial.jsonl").write_text("")
    assert recapture("diff", tmp_path, NEW) == 2
    assert "finish it with --resume" in capsys.readouterr().err


@pytest.mark.parametrize(("form", "whole"), [("text", False), ("markdown", False), ("json", True)])
def test_a_digest_is_short_where_people_read_it(tmp_path, form, whole, capfd):
    filed = tmp_path / "torch2.6.0-cu124" / "cpu"
    shutil.copytree(OLD, filed)
    locked = msgspec.structs.replace(read_environment(filed), lock_hash=f"sha256:{'0123456789abcdef' * 4}")
    write_environment(filed / ENVIRONMENT, locked)
    assert recapture("diff", OLD, filed, "--format", form) == 0
    out = capfd.readouterr().out
    assert "sha256:0123456789ab" in out
    assert ("0123456789abcdef" in out) is whole


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_an_environment_of_another_image_is_a_note(tmp_path, form, capfd):
    filed = tmp_path / "torch2.5.1-cu124" / "cpu"
    shutil.copytree(OLD, filed)
    assert recapture("diff", OLD, filed, "--format", form) == 0
    expected = "NEW: environment.json is of torch2.6.0-cu124/cpu, and is filed as torch2.5.1-cu124/cpu"
    assert expected in " ".join(capfd.readouterr().out.split())
