"""Cases that are read from the syntax tree of a suite: the same as those that its execution declares, or none."""

from __future__ import annotations

import pytest

from recapture.cases.collection import collect_suite, shipped_suites
from recapture.cases.declarations import declared_cases

CASE = "@case(example=lambda: (1,))\ndef plain(x):\n    return x\n"


def suite(tmp_path, text):
    path = tmp_path / "mine.py"
    path.write_text(f"import operator\nfrom recapture import case, case_for_each\nimport recapture as rc\n{text}")
    return path


@pytest.mark.parametrize("file", shipped_suites(), ids=lambda file: file.name)
def test_a_shipped_suite_is_read_as_it_is_executed(file):
    collected = collect_suite(file.name, file.path)
    assert collected.error is None
    assert declared_cases(file.path) == collected.cases
    assert collected.refused == []


DECIDED = {
    "plain": CASE,
    "no docstring of a class": "@case(example=lambda: ())\nclass Net:\n    def forward(self): ...\n",
    "a docstring of several lines": '@case(example=lambda: ())\ndef f():\n    """One.\n\n    Two."""\n',
    "another name": "@rc.case(example=lambda: (), claims={'jit.trace': [('T1', 'right'), ('T2', 'wrong')]})\ndef f(): ...\n",
    "every option": """
def other(): ...

SEEN = []

@case(
    example=lambda: (1,), held_out=[lambda: (2,)], other_ranks=[lambda: (3,)], refused=[lambda: (4,)],
    claims={"fx": ("S1", "error(capture):TraceError")}, concrete_args=["x"], rewrite_of=other, backward=False,
    train_step=1e-3, strict=("order",), watch=lambda: SEEN, reset=SEEN.clear, compare_output=True, since="2.1",
    requires=("scipy",), codegen_on=["cuda"], compilers=("jit.trace",),
)
def f(x):
    'Says what it does.'
    return other(x)
""",
}


@pytest.mark.parametrize("name", DECIDED)
def test_what_the_syntax_tree_says_is_what_execution_declares(name, tmp_path):
    path = suite(tmp_path, DECIDED[name])
    cases = declared_cases(path)
    assert cases == collect_suite("mine", path).cases
    assert len(cases) == 1


UNDECIDED = {
    "no case": "def f(x): ...\n",
    "a syntax error": "def f(:\n",
    "a case within a condition": "if operator:\n    @case(example=lambda: ())\n    def f(): ...\n",
    "a case in a loop": "for one in range(2):\n    case(example=lambda: ())(operator.neg)\n",
    "a case declared by a call": CASE + "case(example=lambda: (1,))(operator.neg)\n",
    "a case under another name": CASE + "again = case\n",
    "cases that a function makes": "@case_for_each(names=lambda: ['f'])\ndef build(name): ...\n",
    "a computed option": "@case(example=lambda: (), compilers=tuple(['fx']))\ndef f(): ...\n",
    "options from a dict": "MORE = {'since': '2.1'}\n@case(example=lambda: (), **MORE)\ndef f(): ...\n",
    "an unknown option": "@case(example=lambda: (), exmaple=1)\ndef f(): ...\n",
    "no example": "@case()\ndef f(): ...\n",
    "another decorator": "@case(example=lambda: ())\n@operator.itemgetter(0)\ndef f(): ...\n",
    "two definitions of one name": CASE + CASE,
    "a claim that cannot be parsed": "@case(example=lambda: (), claims={'fx': 'right'})\ndef f(): ...\n",
}


@pytest.mark.parametrize("name", UNDECIDED)
def test_what_the_syntax_tree_cannot_say_is_left_to_execution(name, tmp_path):
    assert declared_cases(suite(tmp_path, UNDECIDED[name])) is None


def test_a_file_that_cannot_be_read_is_left_to_execution(tmp_path):
    assert declared_cases(tmp_path / "absent.py") is None
