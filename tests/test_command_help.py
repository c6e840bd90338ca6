"""Every command has an example that it accepts, JSON for programs, and completes what it names."""

import json
import os
import re
import shlex

import click
import pytest
from click.shell_completion import ShellComplete

from recapture.command.command_table import COMMANDS
from recapture.command.completion import Completed
from recapture.command.examples import EXAMPLES
from recapture.command.main import cli, main


def leaves(command=cli, path=""):
    """Every command that does something, by its words."""
    context = click.Context(command, info_name="recapture")
    for name in command.list_commands(context):
        subcommand = command.get_command(context, name)
        subpath = f"{path} {name}".strip()
        if isinstance(subcommand, click.Group):
            yield from leaves(subcommand, subpath)
        else:
            yield subpath, subcommand


LEAVES = dict(leaves())


def completed(words, incomplete):
    return {
        completion.value for completion in ShellComplete(cli, {}, "recapture", "_X").get_completions(words, incomplete)
    }


def test_every_command_has_an_example():
    assert sorted(EXAMPLES) == sorted({*LEAVES, *COMMANDS})


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_an_example_is_accepted_as_it_stands(line, tmp_path, monkeypatch):
    """Its options and values are parsed; nothing runs."""
    words = shlex.split(line.partition(">")[0])
    assert words.pop(0) == "recapture"
    path = [words.pop(0)]
    command = cli.get_command(click.Context(cli), path[0])
    if isinstance(command, click.Group):
        path.append(words.pop(0))
        command = command.get_command(click.Context(command), path[1])
    context = command.make_context(" ".join(path), words)
    assert context.args == []


def test_help_lists_every_command_once_under_the_heading_of_its_group(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    listed: dict[str, list[str]] = {}
    heading: list[str] = []  # the lines before the first heading describe the program
    for line in capsys.readouterr().out.splitlines():
        if re.fullmatch(r"[A-Z][^:]+:", line):
            heading = listed.setdefault(line.removesuffix(":"), [])
        elif re.match(r"  [a-z]", line):
            heading.append(line.split()[0])
    expected: dict[str, list[str]] = {}
    for name, command in COMMANDS.items():
        expected.setdefault(command.group, []).append(name)
    assert len(expected) > 2
    del listed["Options"]
    assert listed == expected


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_prints_json(path):
    names = {name for parameter in LEAVES[path].params for name in parameter.opts}
    # What `images run` does not know goes to `recapture run`.
    assert "--json" in names or path == "images run"


@pytest.mark.parametrize("path", [*LEAVES, "images", "results", ""])
def test_no_help_has_a_name_of_click_an_empty_default_or_half_a_sentence(path, capsys):
    with pytest.raises(SystemExit):
        main([*path.split(), "--help"])
    text = capsys.readouterr().out
    assert " RANGE" not in text
    assert 'default: ""' not in text
    assert [line for line in text.splitlines() if line.endswith("...") and not line.startswith("Usage: ")] == []


@pytest.mark.parametrize("path", ["check", "diff", "images list"])
def test_the_help_ends_with_the_examples(path, capsys):
    with pytest.raises(SystemExit) as left:
        main([*path.split(), "--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert all(f"    {line}\n" in text for line in EXAMPLES[path])
    assert "\b" not in text
    assert "\\b" not in text


@pytest.mark.parametrize(
    ("words", "incomplete", "expected"),
    [
        ([], "ch", {"check"}),
        (["run"], "control_fl", {"control_flow", "control_flow_python"}),
        (["run"], "control_flow::branch_on_s", {"control_flow::branch_on_sum"}),
        (["repro"], "control_flow::branch_on_sum::jit.s", {"control_flow::branch_on_sum::jit.script"}),
        (["list"], "control_flow::branch_on_s", {"control_flow::branch_on_sum"}),
        (["check", "x.py:f", "--compiler"], "jit.tr", {"jit.trace", "jit.trace:frozen"}),
        (["run", "--image"], "torch2.11", {"torch2.11.0-cu130"}),
        (["run", "--image"], "torch2.11.0-cu130,torch2.6.0-cu124-d", {"torch2.11.0-cu130,torch2.6.0-cu124-drifted"}),
        (["images", "build"], "torch2.11", {"torch2.11.0-cu130"}),
        (["report", "--suite"], "control_flow_", {"control_flow_python"}),
        (["run", "--device"], "cu", {"cuda"}),
        (["run"], "no_such_suite::", set()),
    ],
)
def test_the_shell_completes_names(words, incomplete, expected):
    completions = completed(words, incomplete)
    # An image's name may get a longer sibling at any time.
    assert expected <= completions
    assert all(completion.startswith(incomplete) for completion in completions)
    assert expected or not completions


def test_results_are_completed_from_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for image in ("one", "two"):
        (tmp_path / "results" / image / "cpu").mkdir(parents=True)
        (tmp_path / "results" / image / "cpu" / "conformance.jsonl").touch()
    assert completed(["diff"], "results/o") == {"results/one/cpu"}


def test_a_broken_source_of_names_completes_nothing(monkeypatch):
    from recapture.command import completion

    monkeypatch.setitem(completion._SOURCES, "compilers", lambda _: 1 / 0)
    assert completed(["run", "--compiler"], "jit") == set()


def test_completion_is_on_for_what_names_something():
    kinds = {
        (path, parameter.name): parameter.type.kind
        for path, leaf in LEAVES.items()
        for parameter in leaf.params
        if isinstance(parameter.type, Completed)
    }
    assert kinds[("run", "selection")] == "cells"
    assert kinds[("bench", "compilers")] == "compilers"
    assert kinds[("images run", "name")] == "images"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_gets_its_script(shell, monkeypatch, capsys):
    """The documented line, for each shell of click."""
    if shell == "bash":
        monkeypatch.setattr("click.shell_completion.BashComplete._check_version", staticmethod(lambda: None))
    monkeypatch.setitem(os.environ, "_RECAPTURE_COMPLETE", f"{shell}_source")
    with pytest.raises(SystemExit) as left:
        main([])
    assert left.value.code == 0
    assert "recapture" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["images", "list", "--json"],
        ["list", "--compilers", "--json"],
        ["list", "--claims", "--json"],
        ["history", "control_flow::branch_on_sum", "--json"],
        ["history", "--json"],
        ["diff", "results/torch2.6.0-cu124/cpu", "results/torch2.11.0-cu130/cpu", "--json"],
        ["bisect", "control_flow::branch_on_sum::jit.trace", "--no-run", "--json"],
        ["doctor", "--json"],
        ["plan", "--image", "torch2.11.0-cu130", "--json"],
    ],
)
def test_json_is_one_document_on_standard_output(words, capsys, request):
    request.node.add_marker(pytest.mark.timeout(60))
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code in (0, 1)
    json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "status"), [(["merge", "nowhere", "--json"], 2), (["report", "nowhere", "--json"], 2)]
)
def test_bad_input_prints_no_json(words, status, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
