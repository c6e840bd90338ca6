"""The source of a case: what its hash depends on, and the text that runs alone."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from recapture.cases import source, syntax
from recapture.cases.source import closure

SUITE = '''\
"""A suite."""

import torch
from recapture import case

SCALE = 2
UNUSED = 5


def helper(x):
    return x * SCALE


def made():
    return (torch.ones(3),)


@case(
    example=made,
    held_out=[lambda: (torch.ones(4),)],
    claims={"compile": ("T1", "pass")},
)
def f(x):
    """Doc."""
    return helper(x)  # comment


@case(example=lambda: (torch.zeros(1),))
def g(x):
    return x
'''


@pytest.fixture
def hash_of(tmp_path):
    count = 0

    def compute(text, name="f"):
        nonlocal count
        count += 1
        path = tmp_path / f"suite{count}.py"
        path.write_text(text, encoding="utf-8")
        return closure(path, name).hash

    return compute


@pytest.fixture
def text_of(tmp_path):
    def compute(text, name="f"):
        path = tmp_path / "suite.py"
        path.write_text(text, encoding="utf-8")
        source._parsed.cache_clear()
        return closure(path, name).text

    return compute


DESCRIPTIVE = {
    "a comment after code": ("# comment", "# something else"),
    "no comment": ("  # comment", ""),
    "a comment of its own": ("    return helper(x)", "    # why\n    return helper(x)"),
    "a blank line": ("    return helper(x)", "\n    return helper(x)"),
    "the docstring": ('"""Doc."""', '"""Another\n\n    text, with a # in it,\n    """'),
    "no docstring": ('    """Doc."""\n', ""),
    "another claim": ('("T1", "pass")', '[("T1", "pass"), ("T2", "right")]'),
    "no claim": ('    claims={"compile": ("T1", "pass")},\n', ""),
    "a trailing comma": (
        "    held_out=[lambda: (torch.ones(4),)],",
        "    held_out=[\n        lambda: (torch.ones(4),),\n    ],",
    ),
    "the decorator on one line": (
        'case(\n    example=made,\n    held_out=[lambda: (torch.ones(4),)],\n    claims={"compile": ("T1", "pass")},\n)',
        "case(held_out=[lambda: (torch.ones(4),)], claims=None, example=made)",
    ),
    "quotes": ('{"compile"', "{'compile'"),
    "another case": ("def g(x):\n    return x", "def g(x):\n    return x + 1"),
    "what it does not use": ("UNUSED = 5", "UNUSED = 6"),
    "the suite's docstring": ('"""A suite."""', '"""Another suite with a made helper."""'),
    "what the file does when run": ("UNUSED = 5", 'UNUSED = 5\nif __name__ == "__main__":\n    helper(3)'),
    "a registration for another": (
        "UNUSED = 5",
        'torch.fx.wrap("elsewhere_defined")\n\n\ndef elsewhere_defined(x): ...\n',
    ),
}


@pytest.mark.parametrize("change", DESCRIPTIVE)
def test_what_does_not_change_the_outcome_does_not_change_the_hash(hash_of, change):
    old, new = DESCRIPTIVE[change]
    assert SUITE.count(old) >= 1
    assert hash_of(SUITE.replace(old, new, 1)) == hash_of(SUITE)


DECISIVE = {
    "a helper": ("return x * SCALE", "return x + SCALE"),
    "a global constant": ("SCALE = 2", "SCALE = 2.0"),
    "a constant's item": ("UNUSED = 5", "helper.table = {}\nUNUSED = 5"),
    "the example's factory": ("(torch.ones(3),)", "(torch.ones(5),)"),
    "the example": ("example=made", "example=lambda: (torch.ones(3),)"),
    "a held-out input": ("torch.ones(4)", "torch.zeros(4)"),
    "no held-out input": ("    held_out=[lambda: (torch.ones(4),)],\n", ""),
    "another option": ("    example=made,", "    example=made,\n    compare_output=True,"),
    "the body": ("    return helper(x)", "    return -helper(x)"),
    "an import": ("import torch\n", "import torch.nn as torch\n"),
    "a decorator": ("def helper", "@torch.no_grad()\ndef helper"),
    "one that changes everything": ("UNUSED = 5", "torch.set_default_dtype(torch.float64)"),
    "a comma that makes a tuple": ("SCALE = 2", "SCALE = 2,"),
    "a string like a comment": ("SCALE = 2", 'SCALE = "#2"'),
}


@pytest.mark.parametrize("change", DECISIVE)
def test_what_can_change_the_outcome_changes_the_hash(hash_of, change):
    old, new = DECISIVE[change]
    assert SUITE.count(old) >= 1
    assert hash_of(SUITE.replace(old, new, 1)) != hash_of(SUITE)


def test_strings_count_to_the_letter(hash_of):
    text = 'def f(x):\n    return """a,\n  b # c\n\nd"""\n'
    others = [text.replace(*change) for change in ((",\n", "\n"), ("# c", "#c"), ("\n\n", "\n"), ("  b", " b"))]
    assert len({hash_of(variant) for variant in [text, *others]}) == 5


VERSIONS = {
    version: Path(f"/root/.pyenv/versions/{version}/bin/python")
    for version in ("3.10.13", "3.11.7", "3.12.1", "3.13.0")
}

HARD = '''\
# -*- coding: utf-8 -*-
import torch
from recapture import case

TEXT = "größer ␤ \\u2028"; OTHER = 'a' "b" f"{TEXT!r:>{10}}c" f"d{OTHER_TEXT if False else 1}"
NUMBERS = (1e300, -0.0, 1j, 0x10, 1_000, ..., None, b"\\xff", True)


@case(
    example=lambda: (torch.tensor([1, 2, 3]),),
    # comment
    claims={"compile": ("T", "pass")},
)
class Größe(torch.nn.Module):
    """Docstring
        with indentation."""

    x: int = 3

    async def other(self):
        """Only a docstring."""

    def forward(self, x, *args, k=None, **more):
        try:
            y = [a for a in (1, 2) if a]
        except (ValueError, TypeError) as error:
            raise error from None
        match y:
            case [1, *rest] if rest:
                return {**more, "a": TEXT, None: lambda q, /, *, r=1: q}
            case {"k": v} | [v] | None as v:
                return OTHER, NUMBERS[1:2, ...]
        with open(x) as a, open(y) as b:
            return f"{x=} {y!s:{k}} text {'nested'}" rb"" if False else x
'''.replace(' rb""', "")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_hash_is_the_same_on_every_python(tmp_path, version):
    if not VERSIONS[version].is_file():
        pytest.skip(f"no Python {version} here")
    suite = tmp_path / "hard.py"
    suite.write_text(HARD, encoding="utf-8")
    basic = tmp_path / "suite.py"
    basic.write_text(SUITE)
    places = [(str(suite), "Größe"), (str(basic), "f"), (source.__file__, "closure")]
    program = (
        # The project's other dependencies are not installed for that Python: only these two modules are loaded.
        "import importlib.util, json, pathlib, sys\n"
        "for name, path in zip(('recapture.cases.syntax', 'recapture.cases.source'), sys.argv[2:]):\n"
        "    spec = importlib.util.spec_from_file_location(name, path)\n"
        "    module = importlib.util.module_from_spec(spec)\n"
        "    sys.modules[name] = module\n"
        "    spec.loader.exec_module(module)\n"
        "print(json.dumps([module.closure(pathlib.Path(p), n).hash for p, n in json.loads(sys.argv[1])]))\n"
    )
    done = subprocess.run(
        [VERSIONS[version], "-I", "-B", "-c", program, json.dumps(places), syntax.__file__, source.__file__],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUTF8": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [closure(Path(path), name).hash for path, name in places]


def test_the_text_runs_alone_and_holds_only_what_is_needed(text_of):
    text = text_of(SUITE)
    assert "case" not in text
    assert "UNUSED" not in text
    assert "def g" not in text
    import torch

    names = {}
    exec(text, names)
    assert torch.equal(names["f"](torch.ones(2)), torch.full((2,), 2.0))
    assert torch.equal(names["made"]()[0], torch.ones(3))


@pytest.mark.parametrize(
    ("imported", "decorator"),
    [
        ("from recapture import case as c", "c"),
        ("import recapture", "recapture.case"),
        ("import recapture as rc", "rc.case"),
        ("import recapture.cases.case", "recapture.cases.case.case"),
        ("from recapture import cases", "cases.case"),
        ("from recapture.cases.case import case", "case"),
        ("from recapture import *", "case"),
    ],
)
def test_the_decorator_is_known_by_any_name(hash_of, text_of, imported, decorator):
    text = SUITE.replace("from recapture import case", imported).replace("@case", f"@{decorator}")
    assert hash_of(text) == hash_of(SUITE)
    assert "recapture" not in text_of(text)
    assert text_of(text) == text_of(SUITE)


def test_a_decorator_of_ones_own_named_case_stays(text_of):
    text = "def case(f):\n    return f\n\n\n@case\ndef f(x):\n    return x\n"
    assert text_of(text) == text


def test_nested_decorators_stay_and_ours_goes_wherever_it_stands(text_of):
    text = (
        "import functools\nimport torch\nfrom recapture import case\n\n\n"
        "def twice(f):\n    @functools.wraps(f)\n    def g(x):\n        return f(f(x))\n    return g\n\n\n"
        "@twice\n@case(\n    example=lambda: (1,),\n)\n@torch.no_grad()\ndef f(x):\n    return x * 3\n"
    )
    bare = text_of(text)
    assert "@case" not in bare
    names = {}
    exec(bare, names)
    assert names["f"](1) == 9


def test_a_case_inside_an_if_is_found(tmp_path):
    path = tmp_path / "suite.py"
    path.write_text(
        "import sys\nfrom recapture import case\n\n"
        "if sys.version_info >= (3,):\n\n    @case(example=lambda: (2,))\n    def f(x):\n        return x\n"
    )
    names = {}
    exec(closure(path, "f").text, names)
    assert names["f"](1) == 1
    assert closure(path, "f").declared == (
        "import sys\n\nif sys.version_info >= (3,):\n\n    @case(example=lambda: (2,))\n    def f(x):\n        return x\n"
    )


def test_an_async_function_and_its_async_helper(text_of):
    text = "import asyncio\n\n\nasync def helper(x):\n    return x\n\n\nasync def f(x):\n    return await helper(x)\n"
    names = {}
    exec(text_of(text), names)
    import asyncio

    assert asyncio.run(names["f"](3)) == 3


def test_statements_that_share_a_line_come_apart(text_of):
    text = "a = []; b = a.append(1); c = 3  # end\n\n\ndef f():\n    return a\n"
    assert text_of(text) == "a = []\n\n\ndef f():\n    return a\n"
    text = "a = []; c = 3  # end\n\n\ndef f():\n    return c\n"
    assert text_of(text) == "c = 3  # end\n\n\ndef f():\n    return c\n"


def test_only_a_newline_ends_a_line(text_of):
    text = 'é = "ü\x0c\u2028\x85"; ä = 1\n\n\ndef f():\n    return é, ä\n'
    names = {}
    exec(text_of(text), names)
    assert names["f"]() == ("ü\x0c\u2028\x85", 1)


def test_what_changes_a_name_at_top_level_comes_along(text_of):
    text = (
        "import os\nfrom math import *\nTABLE = {}\nTABLE['a'] = 1\nOTHER = {}\nOTHER['b'] = 2\n"
        "for key in 'xy':\n    TABLE[key] = sqrt(4)\ntry:\n    FLAG = os.missing\nexcept AttributeError:\n    FLAG = False\n"
        "class Box: pass\nBox.size = 3\n\n\ndef f():\n    return TABLE, FLAG, Box.size\n"
    )
    bare = text_of(text)
    names = {}
    exec(bare, names)
    assert names["f"]() == ({"a": 1, "x": 2.0, "y": 2.0}, False, 3)
    assert "OTHER" not in bare


OPERATORS = """\
import torch

LIBRARY = torch.library.Library("recapture_one", "DEF")
LIBRARY.define("double(Tensor x) -> Tensor")


@torch.library.impl(LIBRARY, "double", "CompositeExplicitAutograd")
def double(x):
    return x * 2


@torch.library.custom_op("recapture_two::triple", mutates_args=())
def triple(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@triple.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("recapture_three::other", mutates_args=())
def other(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def f(x):
    return torch.ops.recapture_one.double(x)


def g(x):
    return torch.ops.recapture_two.triple.default(x)


def h(x):
    return triple(x)
"""


def test_operators_that_a_case_calls_by_name_come_along(text_of):
    assert all(part in text_of(OPERATORS) for part in ("def double", "LIBRARY.define", "LIBRARY ="))
    for name in "gh":
        bare = text_of(OPERATORS, name)
        assert "def triple" in bare
        assert "register_fake" in bare
        assert "recapture_one" not in bare
        assert "recapture_three" not in bare
    names = {}
    exec(text_of(OPERATORS), names)
    assert names["f"](names["torch"].ones(1)).item() == 2


def test_a_wrapped_helper_stays_wrapped(text_of):
    text = 'import torch\n\ntorch.fx.wrap("helper")\n\n\ndef helper(x):\n    return x\n\n\ndef f(x):\n    return helper(x)\n'
    assert 'torch.fx.wrap("helper")' in text_of(text)


def test_a_declaration_keeps_what_decides_and_its_layout(tmp_path):
    path = tmp_path / "suite.py"
    decorator = "@c(example=lambda: ('ü', 'ß'),\n   held_out=[\n       lambda: (1, 2),  # why\n   ], claims={'fx': CLAIM}, **MORE)\n"
    path.write_text(
        f"from recapture import case as c\n\nCLAIM = ('T1', 'pass')\nMORE = {{}}\n\n\n{decorator}def f(x, y):\n    return x\n",
        encoding="utf-8",
    )
    definition = closure(path, "f")
    assert definition.called == ("c",)
    assert definition.declared == (
        "MORE = {}\n\n\n@c(\n    example=lambda: ('ü', 'ß'),\n    held_out=[\n       lambda: (1, 2),  # why\n   ],\n    **MORE,\n)\n"
        "def f(x, y):\n    return x\n"
    )
    assert definition.body == "MORE = {}\n\n\ndef f(x, y):\n    return x\n"


@pytest.mark.parametrize(
    "statement",
    [
        "case(example=made)(f)",
        "again = case(example=made)(f)",
        "tiny = functools.partial(case, example=made)\nagain = tiny()(f)",
        "def small(function):\n    return case(example=made)(function)\n\n\nagain = small(f)",
        "again = [case(example=made)(one) for one in (f,)]",
        "for one in (f,):\n    again = case(example=made)(one)",
    ],
)
def test_a_statement_that_declares_a_definition_belongs_to_it_and_not_to_its_neighbours(tmp_path, statement):
    path = tmp_path / "suite.py"
    text = "import functools\nfrom recapture import case\n\n\ndef made():\n    return (1,)\n\n\n"
    text += f"def f(x):\n    return x\n\n\ndef g(x):\n    return made()\n\n\n{statement}\n"
    path.write_text(text)
    definition = closure(path, "f")
    assert definition.text.rstrip().endswith(statement.splitlines()[-1])
    assert definition.called == ("case",)
    if "for" not in statement:  # its variable may be any definition
        assert "f(" not in closure(path, "g").text
    path.write_text(text.replace("(1,)", "(2,)"))
    os.utime(path, ns=(1, 2))
    assert closure(path, "f").hash != definition.hash


def test_an_unknown_name_is_a_key_error(tmp_path):
    path = tmp_path / "suite.py"
    path.write_text(SUITE)
    with pytest.raises(KeyError, match="nothing_here"):
        closure(path, "nothing_here")


def test_a_changed_file_is_read_again(tmp_path):
    path = tmp_path / "suite.py"
    path.write_text(SUITE)
    before = closure(path, "f").hash
    path.write_text(SUITE.replace("x * SCALE", "x - SCALE"))
    os.utime(path, ns=(1, 2))
    assert closure(path, "f").hash != before


@pytest.mark.parametrize(
    "setting",
    [
        "from torch._dynamo import config\n\nconfig.capture_scalar_outputs = True\n",
        "import os\n\nos.environ['A'] = '1'\n",
        "import os\n\ndel os.environ['A']\n",
        "import os\n\nif os.name:\n    os.environ['A'], B = '1', 2\n",
        "import sys\n\nsys.modules['a'].b.c += 1\n",
        "__import__('a').b = 1\n",
        "import a\n\nconfig = a.b.config\n\nconfig.c = True\n",
        "import a\n\nb = c = a\n\nd = c.d\n\nd['e'] = 1\n",
        "import os\n\nenv: object = os.environ\n\nenv.update(A='1')\n",
        "import a\n\nconfig = a.config\n\nsetattr(config, 'b', True)\n",
        "from a import config\n\nfor name in ('a', 'b'):\n    setattr(config, name, True)\n",
        "from a import config\n\nwith open('a') as file:\n    config.load(file)\n",
    ],
)
def test_a_setting_comes_along_though_the_case_names_nothing_of_it(hash_of, text_of, setting):
    assert setting.split("\n\n")[-1] in text_of(f"{setting}\n\ndef f(x):\n    return x\n")
    assert hash_of(f"{setting}\n\n{SUITE}") != hash_of(SUITE)


def test_what_a_file_assigns_to_names_of_its_own_stays_with_them(hash_of):
    text = "TABLE = {}\nTABLE['a'], (B, *C) = 1, (2, 3)\nfor D in C:\n    TABLE[D] = D\n"
    text += "import os\nCOPY = dict(os.environ)\nCOPY['a'] = 1\ndef e():\n    TABLE = os.environ\n    return TABLE\n"
    assert hash_of(f"{text}\n\n{SUITE}") == hash_of(SUITE)
