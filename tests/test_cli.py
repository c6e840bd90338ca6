"""Bad input from the command line: one line that names the cause, the exit status, and no loss of records."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys

import click
import pytest
from conftest import REPOSITORY, SUITES, records_below, results_below, run_in_process

from recapture.base.errors import did_you_mean
from recapture.cli.main import _run

BROKEN = SUITES / "broken"
VERDICTS = SUITES / "planted" / "verdicts.py"


@pytest.fixture
def refused(capfd):
    """Run the command line, check that there is no traceback, and return the last line of the error output."""

    def run(*arguments: object, status: int = 2) -> str:
        capfd.readouterr()
        got = _run([str(argument) for argument in arguments])
        err = capfd.readouterr().err
        assert got == status, err
        assert "Traceback" not in err
        assert " cells in " not in err
        line = err.strip().splitlines()[-1]
        assert line.startswith("recapture: ")
        return line.removeprefix("recapture: ")

    return run


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
        (["run", "basic_use::x::jit.trce"], "unknown compiler 'jit.trce'; did you mean 'jit.trace'?"),
        (["report", str(VERDICTS)], f"{VERDICTS} is not a directory"),
        (["run", "-k", "and or"], "-k 'and or' is not an expression of words, and, or, not and parentheses"),
        (["run", "-k", "one two"], "-k 'one two' is not an expression of words, and, or, not and parentheses"),
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
    said = capfd.readouterr()
    assert said.err.startswith("Usage: recapture") or said.out.startswith("Usage: recapture")  # by click's release
    assert "\n  run  " in said.out + said.err


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

    monkeypatch.setattr("recapture.cli.main.cli.main", interrupt)
    assert _run([command]) == 130
    assert capfd.readouterr().err == line


@pytest.mark.parametrize("command", ["run", "bench"])
def test_the_help_of_a_command_names_the_value_of_a_number_n(command, capfd):
    assert _run([command, "--help"]) == 0
    shown = capfd.readouterr().out
    assert re.search(r"--timeout N +Seconds", shown)
    assert "RANGE" not in shown


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


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ([f"{VERDICTS}::neighbor"], "unknown case 'verdicts::neighbor'; did you mean 'verdicts::neighbour'?"),
        (
            [f"{VERDICTS}::neighbour::jit.tracer"],
            "unknown compiler 'jit.tracer'; did you mean 'jit.trace'?",
        ),
        ([VERDICTS, "--compiler", "of-by-one"], "unknown compiler 'of-by-one'; did you mean 'off-by-one'?"),
        ([VERDICTS, "-k", "no_such_case"], "nothing to run: no case matches the selection"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(warm, refused, tmp_path, what, line):
    assert refused("run", *what, "--results", tmp_path) == line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("suite", "error"),
    [
        ("syntax_error", "syntax error in line 3: invalid syntax"),
        ("raises_on_import", "raised RuntimeError on import (line 1): this file"),
        ("exits_on_import", "raised SystemExit on import (line 1): bye"),
        ("dies_on_import", "died on import: exited with status 0 and without a result"),
        ("segfaults_on_import", "died on import: died of SIGSEGV"),
        ("no_example", "case 'lonely' has no example: write @case(example=lambda: (...,)) (line 4)"),
        ("no_parentheses", "case 'bare' has no example: write @case(example=...) (line 4)"),
        ("same_name_twice", "two cases are named 'twin' (line 11)"),
        ("not_callable", "case 'gave_values': example is not a callable without arguments but (1, 2) (line 6)"),
        ("no_case", "no case is declared in it (decorate one with @case)"),
        ("claim_of_unknown_verdict", "case 'claimed': claim X1: unknown outcome 'passes' (line 6)"),
    ],
)
def test_a_broken_suite_is_refused_by_name(warm, refused, tmp_path, suite, error):
    line = refused("run", BROKEN / f"{suite}.py", "--results", tmp_path)
    assert line == f"suite {suite!r} cannot be collected: {error}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("suite", "case", "error"),
    [
        (
            "wrong_arity",
            "adds",
            "recapture.declare.inputs.InputsError: held_out[0] gives 1 arguments, but adds(x, y) says: missing a required argument: 'y'",
        ),
        (
            "no_tuple",
            "forgot_the_comma",
            "recapture.declare.inputs.InputsError: example gives Tensor, not a tuple of arguments",
        ),
        (
            "factory_raises",
            "unreachable",
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x2 and 1x2)",
        ),
    ],
)
def test_inputs_that_cannot_be_made_are_recorded_and_reported(warm, capfd, tmp_path, suite, case, error):
    compilers = ["--compiler", "eager", "--compiler", "fx"]
    assert run_in_process(BROKEN / f"{suite}.py", *compilers, "--results", tmp_path) == 2
    line = capfd.readouterr().err.splitlines()[-1]
    assert line == f"recapture: case '{suite}::{case}' cannot run in eager: {error}"
    rows = records_below(tmp_path)
    assert set(rows) == {f"{suite}::{case}::eager", f"{suite}::{case}::fx"}
    for row in rows.values():
        assert (row.verdict, row.phase, f"{row.error.type}: {row.error.message}") == ("error", "reference", error)


MIXED = """\
import os

import torch
from recapture import case


@case(example=lambda: (torch.ones(2),))
def good(x):
    return x + 1


@case(example=(1,))
def values(x):
    return x


@case(exmaple=lambda: (1,))
def misspelt(x):
    return x


@case(example=lambda: (1 / 0,))
def divides(x):
    return x


@case(example=lambda: os._exit(3))
def exits(x):
    return x
"""


@pytest.fixture
def mixed(tmp_path):
    path = tmp_path / "mixed.py"
    path.write_text(MIXED)
    return path


VALUES = "in suite 'mixed', case 'values': example is not a callable without arguments but (1,) (line 12)"
MISSPELT = "in suite 'mixed', case 'misspelt': unknown option 'exmaple'; did you mean 'example'? (line 17)"


def test_a_broken_case_costs_itself_alone(warm, mixed, tmp_path, capfd):
    assert run_in_process(mixed, "--compiler", "eager", "--results", tmp_path / "results") == 2
    out, err = capfd.readouterr()
    assert "3 planned = 3 recorded: 1 pass, 1 error, 1 crash" in out
    assert {name: str(row.verdict) for name, row in records_below(tmp_path / "results").items()} == {
        "mixed::good::eager": "pass",
        "mixed::divides::eager": "error",
        "mixed::exits::eager": "crash",
    }
    assert err.splitlines()[-3:] == [
        f"recapture: a case was not run: {VALUES}",
        f"recapture: a case was not run: {MISSPELT}",
        "recapture: case 'mixed::divides' cannot run in eager: ZeroDivisionError: division by zero",
    ]
    environment = json.loads((results_below(tmp_path / "results") / "environment.json").read_text())
    (suite,) = environment["suites"]
    assert suite["cases"] == 3
    assert suite["error"].startswith("2 of 5 cases: case 'values': example is not a callable")


@pytest.mark.parametrize(
    ("what", "status", "line"),
    [
        (["::good"], 0, ""),
        (["", "-k", "good"], 0, ""),
        (["::values"], 2, f"recapture: nothing to run: {VALUES}"),
        (["", "-k", "values or misspelt"], 2, f"recapture: nothing to run: {VALUES}; {MISSPELT}"),
        (["::valuse"], 2, "recapture: unknown case 'mixed::valuse'; did you mean 'mixed::values'?"),
    ],
)
def test_a_broken_case_matters_where_it_is_selected(warm, mixed, tmp_path, capfd, what, status, line):
    place, *more = what
    assert run_in_process(f"{mixed}{place}", *more, "--compiler", "eager", "--results", tmp_path / "results") == status
    err = capfd.readouterr().err
    assert "Traceback" not in err
    if status:
        assert err.strip().splitlines()[-1] == line
    else:
        assert "values" not in err


def test_a_case_that_breaks_keeps_its_older_rows(warm, mixed, tmp_path):
    mixed.write_text(MIXED.replace("example=(1,)", "example=lambda: (1,)"))
    results = tmp_path / "results"
    assert run_in_process(f"{mixed}::values", "--compiler", "eager", "--results", results) == 0
    mixed.write_text(MIXED)
    assert run_in_process(mixed, "--compiler", "eager", "--results", results) == 2
    assert "mixed::values::eager" in records_below(results)


def test_list_and_repro_name_a_broken_case(warm, mixed, capfd):
    capfd.readouterr()
    assert _run(["list", str(mixed)]) == 2
    said = capfd.readouterr()
    lines = [line.split()[0] for line in said.out.splitlines()]
    assert lines == ["mixed:", "mixed::good", "mixed::divides", "mixed::exits"]
    assert said.err.splitlines() == [f"recapture: {VALUES}", f"recapture: {MISSPELT}"]
    assert _run(["repro", f"{mixed}::values::eager"]) == 2
    assert capfd.readouterr().err.splitlines() == [f"recapture: {VALUES.partition(', ')[2]}"]


def test_list_shows_the_options_of_a_case(warm, capfd, tmp_path):
    path = tmp_path / "options.py"
    path.write_text(
        "from recapture import case\n\n\ndef count(module, result): ...\n\n\n"
        "@case(example=lambda: (1,), backward=False, strict=('order', 'stride'), watch=count)\ndef f(x):\n    'Adds.'\n"
    )
    capfd.readouterr()
    assert _run(["list", str(path)]) == 0
    told = "  options::f  Adds. [backward: False; strict: order, stride; watch: count]"
    assert capfd.readouterr().out.splitlines() == ["options: 1 case", told]
    assert _run(["list", str(path), "--json"]) == 0
    options = {"backward": "False", "strict": "order, stride", "watch": "count"}
    assert json.loads(capfd.readouterr().out)[0]["options"] == options


def test_a_file_that_is_not_text_is_refused_by_name(warm, refused, tmp_path):
    line = refused("run", BROKEN / "not_utf8.py", "--results", tmp_path)
    assert line.startswith("suite 'not_utf8' cannot be collected: syntax error")


def test_a_claim_of_an_unknown_compiler_is_refused(warm, refused, tmp_path):
    line = refused("run", BROKEN / "claim_of_unknown_compiler.py", "--results", tmp_path)
    assert line == (
        "case 'claim_of_unknown_compiler::claimed': claim of unknown compiler 'jit.tracer'; did you mean 'jit.trace'?"
    )


def test_a_compiler_whose_name_is_taken_is_refused(warm, refused, tmp_path):
    line = refused("run", BROKEN / "compiler_name_taken.py", "--results", tmp_path)
    assert line == "compiler_name_taken.py: compiler 'jit.trace' exists already; choose another name"


def test_one_name_for_two_compilers_of_two_files_is_refused(warm, refused, tmp_path):
    text = (
        "import torch\nfrom recapture import case, compiler\n\n\n@compiler('mine')\ndef mine(fn, example):\n    return fn\n"
        "\n\n@case(example=lambda: (torch.ones(1),))\ndef f(x):\n    return x\n"
    )
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(text)
    line = refused("run", tmp_path / "one.py", tmp_path / "two.py", "--results", tmp_path / "results")
    assert line == "one.py and two.py both declare a compiler 'mine'; choose another name in one of them"


def test_a_broken_file_is_reported_before_its_missing_compilers(warm, refused, tmp_path):
    (tmp_path / "broken.py").write_text("def f(:\n")
    line = refused("run", tmp_path / "broken.py", "--compiler", "mine", "--results", tmp_path / "results")
    assert line.startswith("suite 'broken' cannot be collected: syntax error")


def test_a_file_of_another_encoding_or_with_a_mark_of_its_byte_order_is_a_suite(warm, tmp_path):
    text = "import torch\nfrom recapture import case\n\n\n@case(example=lambda: (torch.ones(1),))\ndef f(x):\n    'é'\n    return x\n"
    (tmp_path / "marked.py").write_bytes(text.encode("utf-8-sig"))
    (tmp_path / "latin.py").write_bytes(b"# coding: latin-1\n" + text.encode("latin-1"))
    files = [tmp_path / f"{name}.py" for name in ("marked", "latin")]
    assert run_in_process(*files, "--compiler", "fx", "--results", tmp_path / "results") == 0
    assert {str(one.verdict) for one in records_below(tmp_path / "results").values()} == {"pass"}


def test_a_disk_without_room_is_one_line(monkeypatch, capsys):
    def full(*_args, **_more):
        raise OSError(errno.ENOSPC, "No space left on device", "results/x")

    monkeypatch.setattr("recapture.results.directories.find_results", full)
    assert _run(["report", "results"]) == 3
    assert capsys.readouterr().err == "recapture: results/x: No space left on device\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_an_encoding_lacks_is_a_question_mark(encoding):
    results = REPOSITORY / "results" / "torch2.11.0-cu130" / "cpu"
    for words in (
        ["diff", str(results), str(results)],
        ["history", "branch_on_sum", "--results", str(REPOSITORY / "results")],
    ):
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        ended = subprocess.run(
            [sys.executable, "-m", "recapture", *words], env=environment, capture_output=True, timeout=120, check=False
        )
        assert (ended.returncode, ended.stderr) == (0, b"")
        assert b" ? " in ended.stdout


def test_what_can_be_no_path_is_bad_input(refused):
    assert "File name too long" in refused("history", "x", "--results", 300 * "a")


def test_an_import_that_hangs_is_ended(warm, refused, tmp_path, monkeypatch):
    monkeypatch.setattr("recapture.conformance.preparation.COLLECT_SECONDS", 2.0)
    line = refused("run", BROKEN / "hangs_on_import.py", "--results", tmp_path)
    assert line == "suite 'hangs_on_import' cannot be collected: died on import: passed its deadline"


@pytest.mark.slow
def test_every_broken_suite_at_once_stops_no_good_one(command):
    """The whole folder, with the one that kills the worker server: the good suite runs, the others are named."""
    folder = command.directory / "cases"
    folder.mkdir()
    skipped = {"hangs_on_import", "claim_of_unknown_compiler", "compiler_name_taken"}
    broken = [path for path in sorted(BROKEN.glob("*.py")) if path.stem not in skipped]
    for path in broken:
        shutil.copy(path, folder)
    shutil.copy(SUITES / "readme_example.py", folder / "z_good.py")
    done = command("run", folder, "--compiler", "eager", "--results", "results")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "4 planned = 4 recorded: 1 pass, 3 error" in done.stdout
    directory = results_below(command.directory / "results")
    report = (directory / "conformance.md").read_text()
    for path in broken:
        if path.stem in ("wrong_arity", "no_tuple", "factory_raises"):
            assert f"recapture: case '{path.stem}::" in done.stderr
            continue
        assert f"recapture: suite {path.stem!r} was not run: " in done.stderr
        assert f"- `{path.stem}`: `" in report
    assert "killed the worker server on import" in report
    assert command.leftovers() == []


@pytest.fixture
def recorded(warm, tmp_path):
    """A results root with one run in it, and the options that made it."""
    options = ["run", f"{VERDICTS}::branches", "--compiler", "eager", "--compiler", "fx", "--results", str(tmp_path)]
    assert _run(options) == 0
    return tmp_path, options


@pytest.mark.parametrize("resume", [[], ["--resume"]])
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (
            lambda text: text.replace('"schema":2', '"schema":3', 1),
            ":1: record schema 3 is not understood by this version, which reads 1 and 2",
        ),
        (lambda text: text.replace("eager", "ea\nger", 1), ":1: not a JSON record: "),
        (lambda text: text[:-5], ": the last line is cut off; the run that wrote it was interrupted"),
        (
            lambda text: text.replace('"verdict":"pass"', '"verdict":"passed"', 1),
            ":1: Invalid enum value 'passed' - at `$.verdict`",
        ),
    ],
)
def test_results_that_cannot_be_understood_are_refused_and_left_alone(recorded, refused, damage, complaint, resume):
    root, options = recorded
    path = results_below(root) / "conformance.jsonl"
    damaged = damage(path.read_text())
    path.write_text(damaged)
    assert f"{path}{complaint}" in refused(*options, *resume)
    assert path.read_text() == damaged


def test_a_results_directory_below_a_file_is_refused(warm, refused, tmp_path):
    (tmp_path / "file").touch()
    line = refused("run", f"{VERDICTS}::neighbour::eager", "--results", tmp_path / "file" / "results")
    assert line.startswith(f"cannot write results to {tmp_path / 'file' / 'results'}")
    assert line.endswith(": Not a directory")


def test_a_results_directory_that_cannot_exist_is_refused(warm, refused):
    assert refused("run", f"{VERDICTS}::neighbour::eager", "--results", "/proc/results").startswith(
        "cannot write results to /proc/results"
    )


def test_a_results_file_that_cannot_be_written_is_refused(recorded, refused):
    root, options = recorded
    (results_below(root) / "conformance.partial.jsonl").mkdir()
    before = (results_below(root) / "conformance.jsonl").read_bytes()
    assert "conformance.partial.jsonl" in refused(*options)
    assert (results_below(root) / "conformance.jsonl").read_bytes() == before


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="plants the absence of a GPU")  # noqa: PTH110
def test_no_gpu_is_the_machines_fault_in_one_line(command):
    done = command("run", f"{VERDICTS}::neighbour::eager", "--device", "cuda", "--results", "results")
    assert done.returncode == 3
    assert done.stderr.strip().splitlines()[-1] == (
        "recapture: no CUDA device is visible to torch here; run with --device cpu"
    )
    assert "Traceback" not in done.stderr
    assert not (command.directory / "results").exists()
    assert command.leftovers() == []


def test_list_names_cases_and_survives_a_suite_that_exits(command):
    folder = command.directory / "cases"
    folder.mkdir()
    shutil.copy(BROKEN / "dies_on_import.py", folder)
    shutil.copy(SUITES / "readme_example.py", folder)
    done = command("list", folder)
    assert done.returncode == 2
    assert done.stdout.splitlines()[0] == "readme_example: 1 case"
    assert done.stdout.splitlines()[1].split()[0] == "readme_example::clip_by_sign"
    assert "suite 'dies_on_import' cannot be collected: died on import" in done.stderr
    assert command.leftovers() == []


def test_list_names_the_compilers(capfd):
    assert _run(["list", "--compilers"]) == 0
    names = [line.split()[0] for line in capfd.readouterr().out.splitlines()]
    assert names[0] == "eager"
    assert {"compile", "jit.trace", "jit.script", "fx", "make_fx", "export", "aoti", "onnx"} <= set(names)


def test_a_selective_run_shows_what_was_run_and_where_the_rest_is(recorded, capfd):
    root, _ = recorded
    capfd.readouterr()
    assert _run(["run", f"{VERDICTS}::neighbour::eager", "--results", str(root)]) == 0
    directory = results_below(root)
    out = capfd.readouterr().out
    assert "\n1 planned = 1 recorded: 1 pass\n" in out
    assert "branches" not in out
    assert out.endswith(f"results: {directory}\n3 records in all: recapture report {directory} shows them\n")


def test_the_environment_of_a_run_says_what_was_asked(recorded):
    root, _ = recorded
    environment = json.loads((results_below(root) / "environment.json").read_text())
    assert environment["selection"] == ["<path>::branches --compiler eager --compiler fx"]  # results are published
    assert environment["worker"] == "fork"
