"""Options of a project: ``[tool.recapture.COMMAND]`` in the pyproject.toml of the current folder."""

from __future__ import annotations

import json

import pytest

from recapture.command.main import _run
from recapture.tools.upgrade import bisect_command, upgrade_command

pytestmark = pytest.mark.quick


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(text):
        (tmp_path / "pyproject.toml").write_text(text)

    return write


class Asked(Exception):
    """What `upgrade` was asked to do, instead of doing it."""


@pytest.fixture
def upgrade(monkeypatch):
    """Run `upgrade` up to the place where it would make environments; return what it was asked to do."""

    def plan(**fields):
        raise Asked(fields)

    monkeypatch.setattr(upgrade_command, "Upgrade", plan)

    def run(*words):
        with pytest.raises(Asked) as caught:
            _run(["upgrade", *words])
        return caught.value.args[0]

    return run


UPGRADE = (
    '[tool.recapture.upgrade]\nacross = ["2.6.0", "2.11.0"]\nruns = 2\ncommand = "pytest -q \'a b\'"\nwith = "r.txt"\n'
)


def test_a_project_says_once_what_its_commands_repeat(project, upgrade, tmp_path):
    project(UPGRADE)
    (tmp_path / "r.txt").write_text("einops\n")
    fields = upgrade()
    assert [place.name for place in fields["chosen"]] == ["2.6.0", "2.11.0"]
    assert (fields["runs"], fields["rounds"].words) == (2, ("pytest", "-q", "a b"))
    assert [path.name for path in fields["rounds"].places.requirements.files] == ["r.txt", "project.txt"]


def test_what_is_typed_takes_the_place_of_what_the_project_says(project, upgrade, tmp_path):
    project(UPGRADE)
    (tmp_path / "r.txt").write_text("")
    fields = upgrade("--across", "2.7.0,2.8.0", "--", "true")
    assert [place.name for place in fields["chosen"]] == ["2.7.0", "2.8.0"]
    assert (fields["runs"], fields["rounds"].words) == (2, ("true",))


def test_the_command_of_a_project_is_not_for_a_cell(project, monkeypatch):
    project('[tool.recapture.bisect]\ncommand = ["pytest", "-q"]\n')
    commands = []
    monkeypatch.setattr(bisect_command, "bisect_words", lambda words, *arguments, **more: commands.append(words))
    assert _run(["bisect", "types::c::fx", "--no-run"]) in (0, 2)
    assert commands == []
    assert _run(["bisect"]) == 0
    assert commands == [("pytest", "-q")]


def test_arguments_flags_and_lists_are_set_as_well(project, capsys):
    project('[tool.recapture.list]\nwhat = ["control_flow"]\njson = true\n')
    assert _run(["list"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["case"].partition("::")[0] for row in rows} == {"control_flow"}


FILE = "pyproject.toml: tool.recapture"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('acros = "2.6.0"', f"{FILE}.upgrade.acros: recapture upgrade has no option 'acros'; did you mean 'across'?"),
        ("across = 3", f"{FILE}.upgrade.across: found 3, expected text or a list of these"),
        ("across = [2.6, '2.11']", f'{FILE}.upgrade.across: found [2.6, "2.11"], expected text or a list of these'),
        ("with = [['a']]", f'{FILE}.upgrade.with: found [["a"]], expected text or a list of these'),
        ("with = 1979-05-27", f'{FILE}.upgrade.with: found "1979-05-27", expected text or a list of these'),
        ("command = 3", f"{FILE}.upgrade.command: found 3, expected text or a list of texts"),
        ("command = ['a', 3]", f'{FILE}.upgrade.command: found ["a", 3], expected text or a list of texts'),
        ('command = "a \'b"', f'{FILE}.upgrade.command: "a \'b" cannot be split into words: No closing quotation'),
        ("runs = { a = 1 }", f"{FILE}.upgrade.runs: found a table, expected a whole number of at least 1"),
        ('runs = "many"', f'{FILE}.upgrade.runs: found "many", expected a whole number of at least 1'),
        ('runs = "3"', f'{FILE}.upgrade.runs: found "3", expected a whole number of at least 1'),
        ("runs = true", f"{FILE}.upgrade.runs: found true, expected a whole number of at least 1"),
        ("runs = 2.5", f"{FILE}.upgrade.runs: found 2.5, expected a whole number of at least 1"),
        ("runs = [3]", f"{FILE}.upgrade.runs: found [3], expected a whole number of at least 1"),
        ("runs = 0", f"{FILE}.upgrade.runs: found 0, expected a whole number of at least 1"),
        ("timeout = nan", f"{FILE}.upgrade.timeout: found NaN, expected a number of at least 0.1"),
        ('frames = "yes"', f'{FILE}.upgrade.frames: found "yes", expected true or false'),
        ("frames = 1", f"{FILE}.upgrade.frames: found 1, expected true or false"),
        ('via = "podman"', f'{FILE}.upgrade.via: found "podman", expected "venv" or "docker"'),
        ("baseline = 3", f"{FILE}.upgrade.baseline: found 3, expected text"),
        ("baseline = ['a', 'b']", f'{FILE}.upgrade.baseline: found ["a", "b"], expected text'),
        ("across = ", "pyproject.toml: "),
    ],
)
def test_a_value_that_does_not_fit_says_where_it_is_what_is_there_and_what_is_taken(project, capsys, text, message):
    project(f"[tool.recapture.upgrade]\n{text}\n")
    assert _run(["upgrade", "--across", "here", "--", "true"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"recapture: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.recapture]\nupgrade = 3", f"{FILE}.upgrade: found 3, expected a table"),
        ("[tool]\nrecapture = 3", f"{FILE}: found 3, expected a table"),
        ("tool = 3 # recapture\nrecapture = 4", f"{FILE}: found 3, expected a table"),
        ("[tool.recapture.upgarde]", f"{FILE}.upgarde: recapture has no command 'upgarde'; did you mean 'upgrade'?"),
        ("tool.recapture.upgrade.acros = 'a'", f"{FILE}.upgrade.acros: recapture upgrade has no option 'acros'"),
    ],
)
def test_a_mistake_is_one_line(project, capsys, text, message):
    project(text)
    assert _run(["upgrade", "--", "true"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"recapture: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("text", ["# [tool.recapture.list", "[broken", "[tool.other]\nx = 1\n", ""])
def test_a_project_without_options_is_not_read(project, text):
    project(text)
    assert _run(["list", "control_flow", "--json"]) == 0
