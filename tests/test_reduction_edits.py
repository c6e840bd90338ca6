"""The edits of a reduction, what must stay the same, and the program's text: nothing here runs a program."""

import ast

import pytest
from planted_records import difference

from recapture.records.record import ErrorInfo
from recapture.records.verdicts import Verdict
from recapture.run.cell import CellResult
from recapture.tools.explain.reduce.edits import (
    definition_edits,
    deletions,
    hoists,
    inlinings,
    input_edits,
    item_drops,
    number_edits,
    parts,
    without_unused_imports,
)
from recapture.tools.explain.reduce.faults import fault_of, same_fault
from recapture.tools.explain.reduce.program import case_program, copied, text_of, unbound, weight, whole_program


def results(edits, source, name="f"):
    """Return the texts that a kind of edits makes of a source."""
    tree = ast.parse(source)
    programs = [copied(tree, edit) for edit in edits(tree, name)]
    return [text_of(program) for program in programs if program is not None]


def test_runs_of_statements_are_deleted_longest_first():
    programs = results(deletions, "def f(x):\n    a = 1\n    b = 2\n    return x\n")
    assert programs[0] == "def f(x):\n    pass\n"
    assert "def f(x):\n    return x\n" not in programs[:1]
    assert "def f(x):\n    a = 1\n    return x\n" in programs


def test_neither_the_case_nor_imports_are_deleted():
    programs = results(deletions, "import torch\nimport math\n\ndef g():\n    return 1\n\ndef f(x):\n    return g()\n")
    assert all("def f" in program and "import torch" in program and "import math" in program for program in programs)
    assert any("def g" not in program for program in programs)


def test_a_compound_statement_becomes_one_of_its_bodies():
    programs = results(hoists, "def f(x):\n    if x:\n        return 1\n    else:\n        return 2\n")
    assert programs == ["def f(x):\n    return 1\n", "def f(x):\n    return 2\n"]


def test_a_variable_that_is_used_once_gives_way_to_its_value():
    source = "def f(x):\n    y = x * 2 + x.sum() * x.mean()\n    return y + 1\n"
    assert results(inlinings, source) == ["def f(x):\n    return x * 2 + x.sum() * x.mean() + 1\n"]
    assert results(inlinings, source.replace("y + 1", "y + y")) == []  # a long value would stand there twice


def test_a_helper_that_only_returns_is_put_in_place_of_its_calls():
    source = "def g(a, b):\n    return a - b\n\ndef f(x):\n    return g(x + 1, 2)\n"
    assert "def f(x):\n    return x + 1 - 2\n" in results(inlinings, source)


def test_an_expression_becomes_a_part_of_itself():
    programs = results(parts, "def f(x, y):\n    return torch.add(x.sin(), y)\n")
    assert "def f(x, y):\n    return x.sin()\n" in programs
    assert "def f(x, y):\n    return torch.add(x, y)\n" in programs
    assert "def f(x, y):\n    return y\n" in programs


def test_arguments_and_items_are_dropped():
    programs = results(item_drops, "def f(x):\n    return (x.sum(dim=0, keepdim=True), {'a': x, 'b': 2})\n")
    assert "def f(x):\n    return (x.sum(), {'a': x, 'b': 2})\n" in programs
    assert "def f(x):\n    return (x.sum(dim=0, keepdim=True), {'b': 2})\n" in programs
    assert "def f(x):\n    return ({'a': x, 'b': 2},)\n" in programs


def test_equal_numbers_shrink_together_and_alone():
    programs = results(number_edits, "def f(x):\n    return torch.rand(8, 8)\n")
    assert programs[0] == "def f(x):\n    return torch.rand(1, 1)\n"
    assert "def f(x):\n    return torch.rand(2, 8)\n" in programs
    assert "def f(x):\n    return torch.ones(8, 8)\n" in programs


CASE = """\
@case(example=lambda: (a(1), b(2)), held_out=[lambda: (a(3), b(4))], watch=look)
def f(x, y):
    return x
"""


def test_a_parameter_goes_with_its_argument_in_every_input():
    assert any(
        "example=lambda: (a(1),), held_out=[lambda: (a(3),)]" in program and "def f(x):" in program
        for program in results(input_edits, CASE)
    )
    assert any("watch" not in program for program in results(input_edits, CASE))


def test_a_parameter_of_a_helper_goes_with_its_argument():
    source = "def g(a, unused=1):\n    return a\n\ndef f(x):\n    return g(x, 2)\n"
    assert "def g(a):\n    return a\n\n\ndef f(x):\n    return g(x)\n" in results(definition_edits, source)


def test_a_module_whose_forward_does_not_use_it_becomes_a_function():
    source = "@case(example=e)\nclass f(Module):\n\n    def forward(self, x):\n        return x + 1\n"
    assert "@case(example=e)\ndef f(x):\n    return x + 1\n" in results(definition_edits, source)
    assert not any("def f(" in program for program in results(definition_edits, source.replace("x + 1", "self.w")))


def test_unused_imports_are_cleaned_at_the_end():
    tree = ast.parse("import math, torch\nimport numpy as np\n\ndef f(x):\n    import os\n    return torch.sin(x)\n")
    cleaned = copied(tree, without_unused_imports(tree))
    assert text_of(cleaned) == "import torch\n\n\ndef f(x):\n    return torch.sin(x)\n"


def test_edits_leave_the_original_as_it_was():
    tree = ast.parse(CASE)
    before = ast.dump(tree)
    for kind in (deletions, hoists, inlinings, parts, item_drops, number_edits, input_edits, definition_edits):
        for edit in kind(tree, "f"):
            copied(tree, edit)
    assert ast.dump(tree) == before


def test_a_name_without_a_binding_is_known_before_a_program_runs():
    assert unbound(ast.parse("def f(x):\n    return y + len(x)\n")) == {"y"}
    assert not unbound(ast.parse("import a.b\nfor i in a.b.c:\n    print(i)\n"))


def test_simpler_numbers_and_fewer_nodes_weigh_less():
    def heavy(text):
        return weight(ast.parse(text))

    assert heavy("f(1)") < heavy("f(2)") < heavy("f(2, 1)")
    assert heavy("torch.ones(2)") < heavy("torch.rand(2)")
    assert heavy("f(float)") < heavy("f(float('nan'))")


FILE = '''\
"""A suite."""
import math
import torch
from recapture import case

def helper(x):
    """Help."""
    return x * 2

@case(example=lambda: (torch.ones(2),), claims={"jit.trace": ("T1", "wrong")}, compilers=["jit.trace"])
def one(x):
    """One."""
    return helper(x)

@case(example=lambda: (torch.ones(2),))
def two(x):
    return x
'''


def test_a_program_begins_with_the_case_alone(tmp_path):
    path = tmp_path / "suite.py"
    path.write_text(FILE)
    text = case_program(path, "one").text
    assert "def two" not in text
    assert "claims" not in text
    assert "One." not in text
    assert "import math" not in text
    assert "from recapture import case" in text
    assert "def helper" in text
    assert "def two" in whole_program(path, "one").text
    with pytest.raises(KeyError):
        case_program(path, "three")


def wrong(*differences, verdict=Verdict.WRONG, on="example"):
    """Return findings with these differences."""
    return CellResult(verdict=verdict, input=on, differences=differences)


def value(where, detail="1 of 1 elements differ: eager 3, this 2 at [0]", kind="value", on="example"):
    """Return a difference."""
    return difference(on, where, kind, detail, bits="value" if kind == "value" else None)


def test_the_same_fault_may_move_to_a_place_that_contains_it_and_nowhere_else():
    wanted = fault_of(wrong(value("result['a'][3]")))
    assert same_fault(wanted, fault_of(wrong(value("result['a'][1]"))))
    assert same_fault(wanted, fault_of(wrong(value("result[0]"))))
    assert same_fault(wanted, fault_of(wrong(value("result"))))
    assert not same_fault(wanted, fault_of(wrong(value("result['b']"))))
    assert not same_fault(wanted, fault_of(wrong(value("args[0]"))))
    assert not same_fault(fault_of(wrong(value("result"))), fault_of(wrong(value("result[0]"))))


def test_another_kind_or_another_sort_of_number_is_another_fault():
    wanted = fault_of(wrong(value("result")))
    assert same_fault(
        wanted, fault_of(wrong(value("result", "value differs: eager 5, this -1e-3; args[0] is 2, the example's 3")))
    )
    assert not same_fault(wanted, fault_of(wrong(value("result", "value differs: eager 5, this nan"))))
    assert not same_fault(wanted, fault_of(wrong(value("result", "eager (3,), this (2,)", "shape"))))
    assert not same_fault(wanted, fault_of(wrong(value("result"), value("args[0]", "eager 1, this 2", "mutation"))))
    assert not same_fault(wanted, fault_of(wrong(value("result", on="held_out[0]"), on="held_out[0]")))


def test_fewer_kinds_of_differences_are_the_same_fault():
    wanted = fault_of(wrong(value("result"), value("args[0]", "eager 1, this 2", "mutation")))
    assert same_fault(wanted, fault_of(wrong(value("result"))))
    assert not same_fault(wanted, fault_of(wrong(value("args[0]", "eager 1, this 2", "mutation"))))


def failed(message, kind="RuntimeError", phase="capture"):
    """Return findings of an exception."""
    return CellResult(verdict=Verdict.ERROR, phase=phase, input="example", error=ErrorInfo(kind, message, "0"))


def test_an_exception_keeps_its_class_phase_and_first_words():
    wanted = fault_of(failed("Guard failed: args_1.size()[0] == 10\nmore"))
    assert same_fault(wanted, fault_of(failed("Guard failed: args_0.size()[0] == 2")))
    assert not same_fault(wanted, fault_of(failed("Guard failed: args_0.size()[0] == 2", "AssertionError")))
    assert not same_fault(wanted, fault_of(failed("Guard failed: args_0.size()[0] == 2", phase="call")))
    assert not same_fault(wanted, fault_of(failed("something else")))


def test_the_second_line_of_a_dynamo_error_counts_because_the_first_is_a_title():
    kind = "torch._dynamo.exc.Unsupported"
    first = fault_of(failed("Failed to trace builtin operator\n  Explanation: operator `int`", kind))
    second = fault_of(failed("Failed to trace builtin operator\n  Explanation: operator `map`", kind))
    assert not same_fault(first, second)


def test_a_crash_keeps_the_way_in_which_the_process_died():
    def died(reason):
        return fault_of(CellResult(verdict=Verdict.CRASH, phase="call", reason=reason))

    assert same_fault(died("died of SIGSEGV"), died("died of SIGSEGV"))
    assert not same_fault(died("died of SIGSEGV"), died("exited with status 70 and without a result"))
