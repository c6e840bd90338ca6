"""Suite files, compilers and names that cannot be used: refused by name, and nothing is written."""

from __future__ import annotations

import json
import shutil

import pytest
from command_lines import BROKEN, VERDICTS
from conftest import SUITES, records_below, run_in_process

from recapture.command.main import _run


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


def test_list_shows_the_options_of_a_case(warm, capfd, tmp_path):
    path = tmp_path / "options.py"
    path.write_text(
        "from recapture import case\n\n\ndef count(module, result): ...\n\n\n"
        "@case(example=lambda: (1,), backward=False, strict=('order', 'stride'), watch=count)\ndef f(x):\n    'Adds.'\n"
    )
    capfd.readouterr()
    assert _run(["list", str(path)]) == 0
    expected_line = "  options::f  Adds. [backward: False; strict: order, stride; watch: count]"
    assert capfd.readouterr().out.splitlines() == ["options: 1 case", expected_line]
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
    assert {str(record.verdict) for record in records_below(tmp_path / "results").values()} == {"pass"}


def test_an_import_that_hangs_is_ended(warm, refused, tmp_path, monkeypatch):
    monkeypatch.setattr("recapture.run.preparation.COLLECT_SECONDS", 2.0)
    line = refused("run", BROKEN / "hangs_on_import.py", "--results", tmp_path)
    assert line == "suite 'hangs_on_import' cannot be collected: died on import: passed its deadline"


def test_list_names_cases_and_survives_a_suite_that_exits(warm, tmp_path, capfd):
    shutil.copy(BROKEN / "dies_on_import.py", tmp_path)
    shutil.copy(SUITES / "readme_example.py", tmp_path)
    capfd.readouterr()
    assert _run(["list", str(tmp_path)]) == 2
    captured = capfd.readouterr()
    assert captured.out.splitlines()[0] == "readme_example: 1 case"
    assert captured.out.splitlines()[1].split()[0] == "readme_example::clip_by_sign"
    assert "suite 'dies_on_import' cannot be collected: died on import" in captured.err
