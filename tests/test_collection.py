"""Which suites arguments select, and what collecting a suite finds out about its cases."""

import subprocess
import sys
from pathlib import Path

import pytest

from recapture.base.errors import UsageError
from recapture.cases.case import CASES_ATTRIBUTE
from recapture.cases.collection import SuiteFile, collect_suite, execute, find_suites, shipped_suites
from recapture.cases.requirements import absent_modules
from recapture.command.main import _run

HEAD = "import torch\nfrom recapture import case\n\n"
GOOD = (
    HEAD
    + '@case(example=lambda: (torch.ones(1),), claims={"fx": ("T1", "pass")})\ndef f(x):\n    """Adds.\n\n    More."""\n    return x\n'
)


@pytest.fixture(autouse=True)
def _clean_paths(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


@pytest.fixture
def suite(tmp_path):
    def write(text, name="mine.py"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def collected(path):
    return collect_suite(path.stem, path)


# --- which suites --------------------------------------------------------------------------------------------------


def test_nothing_named_is_every_shipped_suite():
    selection = find_suites(())
    assert selection.suites == tuple(shipped_suites())
    assert "basic_use" in [selected.name for selected in selection.suites]
    assert selection.admits("basic_use", "any", "compile")
    assert not selection.named


@pytest.mark.parametrize("argument", ["", "::f"])
def test_an_empty_name_is_not_the_current_directory(suite, monkeypatch, tmp_path, argument):
    suite(GOOD)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="an empty name is not a suite, file or folder"):
        find_suites((argument,))


def test_a_file_whose_name_is_no_utf8_is_refused(suite, tmp_path):
    suite(GOOD, "a\udce9.py")
    with pytest.raises(UsageError, match=r"a\\udce9.py' is not UTF-8"):
        find_suites((str(tmp_path),))


@pytest.mark.parametrize("arguments", [["list", "a\udce9.py"], ["list", "-k", "\udce9"]])
def test_an_argument_that_is_no_utf8_is_refused_in_one_line(capsys, arguments):
    assert _run(arguments) == 2
    assert capsys.readouterr().err == f"recapture: the argument {arguments[-1]!r} is not UTF-8\n"


def test_a_file_a_folder_and_a_name_are_suites(suite, tmp_path):
    path = suite(GOOD)
    suite(GOOD, "_hidden.py")
    suite(GOOD, "other.py")
    assert find_suites((str(path),)).suites == (SuiteFile("mine", path),)
    assert [entry.name for entry in find_suites((str(tmp_path),)).suites] == ["mine", "other"]
    assert find_suites(("basic_use",)).suites[0].path.name == "basic_use.py"


def test_an_address_admits_what_it_names(suite):
    place = str(suite(GOOD))
    whole, single_case, cell = (find_suites((place + suffix,)) for suffix in ("", "::f", "::f::compile:eager"))
    assert whole.admits("mine", "f", "fx")
    assert whole.admits("mine", "g", "fx")
    assert not whole.admits("other", "f", "fx")
    assert single_case.admits("mine", "f", "fx")
    assert not single_case.admits("mine", "g", "fx")
    assert cell.admits("mine", "f", "compile:eager")
    assert not cell.admits("mine", "f", "compile")
    two_cases = find_suites((place + "::f", place + "::g"))
    assert two_cases.admits("mine", "g", "fx")
    assert len(two_cases.suites) == 1
    assert two_cases.named == {"mine"}


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("basic_usee", "unknown suite 'basic_usee'; did you mean 'basic_use'"),
        ("qqqq", "unknown suite 'qqqq'$"),
        ("missing.py", "no such suite file: missing.py"),
        ("no/such", "no such suite file: no/such"),
    ],
)
def test_what_is_unknown_is_named_with_what_is_near(argument, says):
    with pytest.raises(UsageError, match=says):
        find_suites((argument,))


def test_an_empty_folder_and_two_suites_of_one_name_are_refused(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(UsageError, match=r"no \.py files"):
        find_suites((str(tmp_path / "a"),))
    (tmp_path / "b").mkdir()
    for folder in "ab":
        (tmp_path / folder / "same.py").write_text(GOOD)
    with pytest.raises(UsageError, match="two suites are named 'same'"):
        find_suites((str(tmp_path / "a" / "same.py"), str(tmp_path / "b" / "same.py")))


# --- executing and describing --------------------------------------------------------------------------------------


def test_each_execution_is_fresh(suite):
    path = suite(
        HEAD + "COUNT = []\n\n\n@case(example=lambda: (1,))\ndef f(x):\n    COUNT.append(x)\n    return len(COUNT)\n"
    )
    first, second = execute("mine", path), execute("mine", path)
    assert first is not second
    assert first.f(1) == 1
    assert first.f(1) == 2
    assert second.f(1) == 1
    assert len(getattr(second, CASES_ATTRIBUTE)) == 1
    assert first.f.__code__ is not second.f.__code__


def test_a_suite_may_import_its_neighbours(suite):
    suite("VALUE = 3\n", "neighbour_of_mine.py")
    path = suite("import json\nimport neighbour_of_mine\n" + GOOD)
    info = collected(path)
    assert info.error is None
    assert info.imports == ["json", "torch"]
    del sys.modules["neighbour_of_mine"]


def test_what_a_suite_imported_inside_a_try_or_a_with_is_preloaded_and_what_it_did_not_import_is_not(suite):
    text = (
        "import contextlib\n\nwith contextlib.suppress(ImportError):\n    import xml.dom\n    import no_such_module\n"
        "try:\n    from json import decoder\nexcept ImportError:\n    import no_such_module_either\n"
    )
    assert collected(suite(text + GOOD)).imports == ["contextlib", "torch", "xml.dom", "json", "json.decoder"]


def test_what_a_case_requires_is_preloaded_where_it_is_installed(suite):
    text = "@case(example=lambda: (1,), requires=['wave', 'no_such_module'])\ndef f(x):\n    return x\n"
    assert collected(suite(HEAD + text)).imports == ["torch", "wave"]


def test_a_case_that_compiles_by_itself_is_known_for_it(suite):
    text = (
        "def inner(x):\n    return torch.compile(abs)(x)\n\n\n"
        "@case(example=lambda: (1,))\ndef compiles(x):\n    return inner(x)\n\n\n"
        "@case(example=lambda: (1,))\ndef does_not(x):\n    return x\n"
    )
    assert {case.name: case.compiles for case in collected(suite(HEAD + text)).cases} == {
        "compiles": True,
        "does_not": False,
    }


def test_a_case_is_described(suite):
    info = collected(suite(GOOD))
    (case,) = info.cases
    assert (case.name, case.summary, case.claims) == ("f", "Adds.", {"fx": [("T1", "pass")]})
    assert len(case.hash) == 12
    assert info.compilers == []


def test_a_suite_of_compilers_alone_is_a_suite(suite):
    text = "from recapture import compiler\n\n\n@compiler('mine')\ndef mine(fn, example):\n    return fn\n"
    info = collected(suite(text))
    assert (info.error, info.compilers, info.cases) == (None, ["mine"], [])
    info = collected(suite(text + text.replace("def mine", "def again")))
    assert info.error == "two compilers are named 'mine'"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no case is declared in it"),
        ("x = (", "syntax error in line 1"),
        ("import no_such_module_here", "raised ModuleNotFoundError on import (line 1): No module named 'no_such_module_here'"),
        ("\n\nraise ValueError('odd\\nodder')", "raised ValueError on import (line 3): odd"),
        ("import sys\nsys.exit(3)", "raised SystemExit on import (line 2): 3"),
        ("class E(Exception):\n    def __str__(self): raise E\nraise E", "raised E on import (line 3): <the exception's own"),
        (HEAD + "@case\ndef f(): ...", "case 'f' has no example"),
        (
            HEAD + "def make():\n    def inner(x): ...\n    return inner\ncase(example=lambda: (1,))(make())",
            "case 'inner' is not defined under this name at the top level of its file",
        ),
    ],
)  # fmt: skip
def test_every_mistake_in_a_suite_is_one_line(suite, text, says):
    error = collected(suite(text)).error
    assert error.startswith(says)
    assert "\n" not in error


@pytest.mark.parametrize(
    "example", ["lambda: 3", "lambda: (1, 2)", "lambda: (1 / 0,)", "lambda: __import__('os')._exit(1)", "functools.partial(divmod, 1, 0)"]
)  # fmt: skip
def test_collection_calls_no_factory(suite, example):
    info = collected(suite(HEAD + f"import functools\n\n\n@case(example={example})\ndef f(x): ..."))
    assert (info.error, info.refused, [case.name for case in info.cases]) == (None, [], ["f"])


def test_an_invalid_case_is_refused_by_line_and_the_others_are_collected(suite):
    text = (
        "import functools\n\n\n@case(example=lambda: (1,))\ndef good(x): ...\n\n\n@case(\n    example=(1,),\n)\ndef bad(x): ...\n\n\n"
        "@case(exmaple=lambda: (1,))\ndef misspelt(x): ...\n\n\n@case\ndef bare(x):\n    return x\n\n\nassert bare(3) == 3\n\n\n"
        "@case(lambda: (1,))\ndef positional(x): ...\n\n\ncase(example=lambda: (1,))(functools.partial(print))\n\n\n"
        "@case(example=lambda: (1,))\nclass Plain: ...\n\n\n@case(example=lambda: (1,), strict=['strides'])\ndef strict(x): ...\n\n\n"
        "@case(example=lambda: (1,), claims={'fx': 'pass'})\ndef claimed(x): ...\n\n\n"
        "@case(example=lambda: (1,))\ndef twin(x): ...\n\n\n@case(example=lambda: (1,))\ndef twin(x): ...\n\n\n"
        "def make():\n    def inner(x): ...\n    return inner\n\n\ncase(example=lambda: (1,))(make())\n\n\n"
        "@case(example=lambda: (1,))\ndef last(x): ...\n"
    )
    info = collected(suite(HEAD + text))
    assert info.error is None
    assert [case.name for case in info.cases] == ["good", "last"]
    assert [str(refusal).partition("functools.partial(")[0] for refusal in info.refused] == [
        "case 'bad': example is not a callable without arguments but (1,) (line 11)",
        "case 'misspelt': unknown option 'exmaple'; did you mean 'example'? (line 17)",
        "case 'bare' has no example: write @case(example=...) (line 21)",
        "case 'positional': options have names: write @case(example=...) (line 29)",
        "a case has no name: ",
        "case 'Plain' is a class, but not an nn.Module with a forward method (line 36)",
        "case 'strict': strict names the unknown difference 'strides'; did you mean 'stride'? (line 40)",
        "case 'claimed': claim of 'fx' is not an (id, expected) pair: 'pass' (line 44)",
        "two cases are named 'twin' (line 52)",
        "case 'inner' is not defined under this name at the top level of its file (line 61)",
    ]


def test_a_syntax_error_of_a_neighbour_is_not_blamed_on_the_suite(suite):
    suite("x = (\n", "broken_neighbour.py")
    error = collected(suite("import broken_neighbour\n")).error
    assert error.startswith("syntax error in broken_neighbour.py, line 1")


def test_modules_are_looked_for_without_raising():
    assert absent_modules(["json", "no_such_module_here", "no_such.inner", "json.no_such", "torch.nn", "sys"]) == [
        "no_such_module_here",
        "no_such.inner",
        "json.no_such",
    ]
    assert absent_modules(["json.decoder.x"]) == ["json.decoder.x"]


def test_importing_the_project_does_not_import_torch():
    program = "import sys, recapture, recapture.cases.collection, recapture.run.cell, recapture.command.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, cwd=Path(__file__).parents[1]).returncode == 0
