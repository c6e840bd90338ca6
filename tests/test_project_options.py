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
        with pytest.raises(Asked) as asked:
            _run(["upgrade", *words])
        return asked.value.args[0]

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
    asked = []
    monkeypatch.setattr(bisect_command, "bisect_words", lambda words, *rest, **more: asked.append(words))
    assert _run(["bisect", "types::c::fx", "--no-run"]) in (0, 2)
    assert asked == []
    assert _run(["bisect"]) == 0
    assert asked == [("pytest", "-q")]


def test_arguments_flags_and_lists_are_set_as_well(project, capsys):
    project('[tool.recapture.list]\nwhat = ["control_flow"]\njson = true\n')
    assert _run(["list"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["case"].partition("::")[0] for row in rows} == {"control_flow"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[tool.recapture.upgrade]\nacros = "2.6.0"\n',
            "recapture upgrade has no option 'acros'; did you mean 'across'?",
        ),
        ("[tool.recapture.upgrade]\nacross = 'here'\ncommand = 3\n", "command is neither text nor a list of texts"),
        ("[tool.recapture.upgrade]\nacross = 'here'\ncommand = ['a', 3]\n", "is neither text nor a list of texts"),
        ('[tool.recapture.upgrade]\ncommand = "a \'b"\n', "cannot be split into words: No closing quotation"),
        ("[tool.recapture]\nupgrade = 3\n", "[tool.recapture.upgrade] is not a table"),
        ("[tool.recapture.upgrade]\nruns = { a = 1 }\n", "tool.recapture.upgrade.runs is neither text"),
        ("[tool.recapture.upgrade]\nacross = \n", "pyproject.toml: "),
        ('[tool.recapture.upgrade]\nacross = "here"\nruns = "many"\n', "'many' is not a valid integer"),
        ('[tool.recapture.upgrade]\nacross = "here"\nbaseline = 3\n', "cannot read 3"),
        ("[tool.recapture.upgarde]\nruns = 3\n", "recapture has no command 'upgarde'; did you mean 'upgrade'?"),
    ],
)
def test_a_mistake_is_one_line(project, capsys, text, message):
    project(text)
    assert _run(["upgrade", "--", "true"]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("text", ["[broken", "[tool.other]\nx = 1\n", ""])
def test_a_project_without_options_is_not_read(project, text):
    project(text)
    assert _run(["list", "control_flow", "--json"]) == 0
