"""A command line that cannot be meant: one line that names the cause, before anything starts."""

from __future__ import annotations

import errno
import json
import re
import shutil

import click
import pytest
from command_lines import VERDICTS
from conftest import REPOSITORY

from recapture.base.errors import did_you_mean
from recapture.command.main import _run


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["runn"], "no such command 'runn'; did you mean 'run'?"),
        (["run", "basic_uze"], "unknown suite 'basic_uze'; did you mean 'basic_use'?"),
        (["run", "nowhere/my_cases.py"], "no such suite file: nowhere/my_cases.py"),
        (["run", "--device", "cude"], "unknown device 'cude': it is cpu or cuda"),
        (["run", "--device", "gpu"], "unknown device 'gpu': it is cpu or cuda"),
        (["bench", "--device", "gpu"], "unknown device 'gpu': it is cpu or cuda"),
        (["run", "--compiler", "jit.trce"], "unknown compiler 'jit.trce'; did you mean 'jit.trace'?"),
        (["run", "--compiler", "fx,jit.trce"], "unknown compiler 'jit.trce'; did you mean 'jit.trace'?"),
        (["run", "--compiler", "fx, "], "unknown compiler ''"),
        (["bench", "--compiler", "fx,jit.trce"], "unknown compiler 'jit.trce'; did you mean 'jit.trace'?"),
        (["run", "basic_use::x::jit.trce"], "unknown compiler 'jit.trce'; did you mean 'jit.trace'?"),
        (["report", str(VERDICTS)], f"{VERDICTS} is not a directory"),
        (["run", "-k", "and or"], "-k 'and or' is not an expression of words, and, or, not and parentheses"),
        (["run", "-k", "one two"], "-k 'one two' is not an expression of words, and, or, not and parentheses"),
        (
            ["plan", "--format", "kubernetes", "--registry", "https://user:word@host/"],
            "--registry is the beginning of an image's name, such as registry.example/team/",
        ),
        (["run", "--jobs", "0"], "Invalid value for '--jobs': 0 is not in the range x>=1."),
        (["run", "--timeout", "soon"], "Invalid value for '--timeout': 'soon' is not a valid float range."),
    ],
)
def test_bad_usage_is_refused_before_anything_starts(refused, arguments, line):
    assert refused(*arguments) == line


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", ""],
        ["report", ""],
        ["report", "--output", ""],
        ["diff", "", ""],
        ["history", "--results="],
        ["run", "--results", ""],
        ["bench", "--results", ""],
    ],
    ids=" ".join,
)
def test_an_empty_path_is_not_the_current_directory(refused, arguments, tmp_path, monkeypatch):
    shutil.copytree(REPOSITORY / "tests" / "resources" / "results" / "images", tmp_path / "here")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    monkeypatch.chdir(tmp_path)
    assert "an empty " in refused(*arguments)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(
    ("number", "complaint"),
    [
        ("inf", "inf is not in the range "),
        ("nan", "'nan' is not a number"),
        ("1e10", "10000000000.0 is not in the range "),
    ],
)
@pytest.mark.parametrize(
    ("command", "option"),
    [("run", "--timeout"), ("run", "--memory"), ("bench", "--timeout"), ("bench", "--memory"), ("bench", "--seconds")],
)
def test_a_limit_that_is_none_is_refused(refused, command, option, number, complaint):
    assert refused(command, option, number).startswith(f"Invalid value for '{option}': {complaint}")


def test_what_was_typed_is_never_suggested():
    assert did_you_mean("mine", ["mine"]) == ""
    assert did_you_mean("mine", ["mine", "mines"]) == "; did you mean 'mines'?"


@pytest.mark.parametrize("arguments", [[], ["images"]])
def test_without_a_subcommand_the_help_is_shown_as_it_is(arguments, capfd):
    _run(arguments)
    captured = capfd.readouterr()
    assert captured.err.startswith("Usage: recapture") or captured.out.startswith(
        "Usage: recapture"
    )  # by click's release
    assert "\n  run  " in captured.out + captured.err


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("run", "recapture: interrupted; finished work is kept, continue with --resume\n"),
        ("bench", "recapture: interrupted; finished work is kept, continue with --resume\n"),
        ("list", "recapture: interrupted\n"),
    ],
)
def test_an_interrupted_command_says_what_it_leaves(command, line, monkeypatch, capfd):
    def interrupt(**_):
        raise click.Abort

    monkeypatch.setattr("recapture.command.main.cli.main", interrupt)
    assert _run([command]) == 130
    assert capfd.readouterr().err == line


@pytest.mark.parametrize("command", ["run", "bench"])
def test_the_help_of_a_command_names_the_value_of_a_number_n(command, capfd):
    assert _run([command, "--help"]) == 0
    help_text = capfd.readouterr().out
    assert re.search(r"--timeout N +Seconds", help_text)
    assert "RANGE" not in help_text


@pytest.mark.parametrize("command", ["run", "bench"])
def test_the_help_of_a_command_speaks_of_the_arguments_by_their_names(command, capfd):
    assert _run([command, "--help"]) == 0
    assert "WHAT" not in capfd.readouterr().out


def test_an_unknown_option_is_refused_by_name(refused):
    assert "--no-such-option" in refused("run", "--no-such-option")


def test_an_empty_folder_is_no_folder_of_cases(refused, tmp_path):
    assert refused("run", tmp_path) == f"no .py files in the folder {tmp_path}"


def test_two_suites_of_one_name_are_refused(refused, tmp_path):
    twin = tmp_path / "verdicts.py"
    twin.touch()
    assert refused("run", VERDICTS, twin) == f"two suites are named 'verdicts': {VERDICTS} and {twin}"


def test_a_disk_without_room_is_one_line(monkeypatch, capsys):
    def full(*_args, **_more):
        raise OSError(errno.ENOSPC, "No space left on device", "results/x")

    monkeypatch.setattr("recapture.records.directories.find_results", full)
    assert _run(["report", "results"]) == 3
    assert capsys.readouterr().err == "recapture: results/x: No space left on device\n"


def test_what_can_be_no_path_is_bad_input(refused):
    assert "File name too long" in refused("history", "x", "--results", 300 * "a")


def test_list_names_the_compilers_and_those_that_run_only_when_named(capfd):
    assert _run(["list", "--compilers"]) == 0
    listed, _, named = capfd.readouterr().out.rpartition("\n\nrun only when named: ")
    names = [line.split()[0] for line in listed.splitlines()]
    assert names[0] == "eager"
    assert {"compile", "jit.trace", "jit.script", "fx", "make_fx", "export", "aoti", "onnx"} <= set(names)
    alone = [entry.split()[0] for entry in re.sub(r"\(.*?\)", "", named).split(",")]
    assert {"aoti:dynamic", "aoti:checked", "jit.trace:frozen"} <= set(alone) < set(names)
    assert not {"eager", "compile", "aoti", "export:dynamic"} & set(alone)
    assert _run(["list", "--compilers", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capfd.readouterr().out)}
    assert [name for name, row in rows.items() if row["only_when_named"]] == alone
    assert rows["aoti:dynamic"]["since"] == "2.6"
    assert "onnxruntime" in rows["onnx"]["requires"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "model.py:f", "--input", "2", "--save", "model.py"],
        ["check", "model:f", "--input", "2", "--save", "model.py"],
        ["check", "--html", "./model.py", "model.py:f", "--input", "2"],
        ["check", "model.py:f", "--inputs", "inputs.py:make", "--junit", "inputs.py"],
        ["check", "model.py:f", "--input", "2", "--html", "new", "--junit", "new"],
        ["check", "model.py:f", "--input", "2", "--across", "2.6.0", "--with", "inputs.py", "--html", "inputs.py"],
        ["run", "model.py", "--junit", "link.py"],
        ["run", "other.py", "--junit", "results/conformance.jsonl"],
        ["check", "other.py:f", "--input", "2", "--html", "model.py"],
        ["check", "other.py:f", "--input", "2", "--save", "results/conformance.jsonl"],
        ["run", "model.py::f::fx", "--junit", "model.py"],
        ["drift", "model.py:f", "--input", "2", "--across", "2.6.0,2.11.0", "--html", "model.py"],
        ["upgrade", "--across", "2.6.0,2.11.0", "--junit", "model.py", "--", "pytest", "model.py::test_f"],
        ["reduce", "model.py::f::fx", "--output", "model.py"],
    ],
    ids=" ".join,
)
def test_an_output_never_replaces_a_file_that_the_command_names_elsewhere(refused, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("model.py", "inputs.py"):
        (tmp_path / name).write_text("def f(x):\n    return x\n")
    (tmp_path / "link.py").symlink_to("model.py")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "conformance.jsonl").write_text("{}\n")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    assert re.search(
        r"would replace a (file that the command names elsewhere|file of records|program)$",
        refused(*arguments),
    )
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before


def test_a_device_takes_two_outputs_and_a_baseline_may_be_written_anew(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.json").write_text("{}")
    line = refused("check", "none.py:f", "--html", "/dev/null", "--junit", "/dev/null")
    assert line == "no such file: none.py"
    words = ["upgrade", "--across", "2.6.0", "--baseline", "base.json", "--write-baseline", "base.json", "--", "true"]
    assert "replace" not in refused(*words)


def test_an_error_is_printed_without_secrets(refused):
    line = refused("run", "https://someone:hunter2222@host/suite.py")
    assert "hunter2222" not in line
    assert "…@host" in line


def test_the_middle_of_a_very_long_word_is_left_out(refused):
    line = refused("run", "--compiler", "a" * 100_000 + "b")
    assert len(line) < 600
    assert re.search(r"a…a+b", line)


@pytest.mark.parametrize("words", [("run",), ("check", "none.py:f"), ("drift", "none.py:f", "--against")])
def test_a_compiler_s_name_of_300_letters_fits_a_line(refused, words):
    option = () if words[0] == "drift" else ("--compiler",)
    line = refused(*words, *option, "a" * 300)
    assert len(line) < 140
    assert "a" * 60 not in line
