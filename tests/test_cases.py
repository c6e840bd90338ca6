"""The declaration of a case: what it keeps, what it may ask for, and which mistakes it refuses."""

import re
import sys
import types

import pytest
import torch

from recapture import case
from recapture.cases.case import CASES_ATTRIBUTE, CaseError, InputsError
from recapture.cases.claim import Claim
from recapture.records.kinds import STRICT


@pytest.fixture
def declare():
    """Execute the source of a suite in a module of its own and return its cases."""
    module_names = []

    def execute(text, **names):
        module = types.ModuleType(f"a_suite_{len(module_names)}")
        vars(module).update(case=case, torch=torch, **names)
        sys.modules[module.__name__] = module
        module_names.append(module.__name__)
        exec(text, vars(module))
        return getattr(module, CASES_ATTRIBUTE, [])

    yield execute
    for name in module_names:
        del sys.modules[name]


def test_a_case_keeps_what_it_was_declared_with(declare):
    (declared,) = declare(
        """
def other(x): ...
def watch(): ...
@case(
    example=lambda: (1,), held_out=[lambda: (2,), lambda: (3,)], claims={"compile": ("T1", "pass")},
    concrete_args=["x"], rewrite_of=other, watch=watch, compare_output=True, since="2.4", requires=["numpy"],
    backward=False, strict=["stride", "output"], reset=other,
)
def f(x): ...
"""
    )
    assert declared.name == "f"
    assert not declared.is_module
    assert [(label, make()) for label, make in declared.inputs()] == [
        ("example", (1,)),
        ("held_out[0]", (2,)),
        ("held_out[1]", (3,)),
    ]
    assert declared.claims == {"compile": (Claim("T1", "pass"),)}
    assert declared.rewrite_of.__name__ == "other"
    assert declared.watch.__name__ == "watch"
    assert (declared.backward, declared.strict, declared.reset.__name__) == (False, ("stride", "output"), "other")
    assert declared.options == {
        "backward": "False",
        "since": "2.4",
        "strict": "stride, output",
        "concrete_args": "x",
        "requires": "numpy",
        "watch": "watch",
        "reset": "other",
        "rewrite_of": "other",
    }
    assert (declared.concrete_args, declared.since, declared.requires) == (("x",), "2.4", ("numpy",))


def test_the_decorated_object_is_returned_unchanged(declare):
    names = {}
    declare("@case(example=tuple)\ndef f(): ...\nkeep['f'] = f", keep=names)
    assert isinstance(names["f"], types.FunctionType)


def test_a_module_class_is_a_module_case(declare):
    (declared,) = declare("@case(example=tuple)\nclass M(torch.nn.Module): ...")
    assert declared.is_module


def test_the_least_a_case_needs_is_an_example(declare):
    (declared,) = declare("@case(example=tuple)\ndef f(): ...")
    assert (declared.held_out, dict(declared.claims), declared.concrete_args, declared.watch, declared.requires) == (
        (),
        {},
        None,
        None,
        (),
    )
    assert (declared.backward, declared.strict, declared.reset, declared.options) == (None, (), None, {})


def test_compare_output_is_another_spelling_of_a_strict_difference(declare):
    (declared,) = declare("@case(example=tuple, compare_output=True, strict=('order',))\ndef f(): ...")
    assert declared.strict == ("order", "output")


@pytest.mark.parametrize(
    "options",
    [
        *(f"strict=[{name!r}]" for name in STRICT),
        "watch=lambda: 1",
        "watch=lambda target: 1",
        "watch=lambda target, result: 1",
        "watch=lambda *args: 1",
        "watch=lambda target, result, more=None: 1",
        "watch=len",
        "watch=torch.is_grad_enabled",
        "reset=lambda: 1",
        "reset=torch.nn.Module.eval",
        "backward=True",
    ],
)
def test_what_a_case_may_ask(declare, options):
    assert len(declare(f"@case(example=tuple, {options})\ndef f(): ...")) == 1


@pytest.mark.parametrize(
    ("make", "says"),
    [
        ("lambda: 3", "held_out[0] gives int, not a tuple of arguments"),
        ("lambda: torch.ones(2)", "held_out[0] gives Tensor, not a tuple of arguments"),
        ("lambda: (1, 2)", "held_out[0] gives 2 arguments, but f(x) says: too many positional arguments"),
        ("lambda: ()", "held_out[0] gives 0 arguments, but f(x) says: missing a required argument: 'x'"),
    ],
)
def test_a_factory_whose_result_is_no_arguments_is_named(declare, make, says):
    function, module = declare(
        f"@case(example=lambda: (1,), held_out=[{make}])\ndef f(x): ...\n"
        f"@case(example=lambda: (1,), held_out=[{make}])\nclass M(torch.nn.Module):\n    def forward(self, x): ..."
    )
    for declared, text in ((function, says), (module, says.replace("f(x)", "M(self, x)"))):
        (_, example), (_, held_out) = declared.inputs()
        assert example() == (1,)
        with pytest.raises(InputsError, match=f"^{re.escape(text)}$"):
            held_out()


def test_an_error_of_a_factory_stays_what_it_is(declare):
    (declared,) = declare("@case(example=lambda: (1 / 0,))\ndef f(x): ...")
    with pytest.raises(ZeroDivisionError):
        declared.inputs()[0][1]()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("", "case 'f' has no example"),
        ("example=(1,)", r"case 'f': example is not a callable without arguments but \(1,\)"),
        ("example=tuple, held_out=[tuple, 3]", r"case 'f': held_out\[1\] is not a callable"),
        ("example=tuple, held_out=tuple", "case 'f': held_out is not a list of callables"),
        ("example=tuple, claims={'compile': 'pass'}", r"case 'f': claim of 'compile' is not an \(id, expected\) pair"),
        ("example=tuple, claims={'compile': ('T1', 'good')}", "case 'f': claim T1: unknown outcome 'good'"),
        ("example=tuple, claims=['x']", "case 'f': claims"),
        ("example=tuple, requires='numpy'", "case 'f': requires is not a list of names but 'numpy'"),
        ("example=tuple, concrete_args='flag'", "case 'f': concrete_args is not a list of names but 'flag'"),
        ("example=tuple, concrete_args=['flag']", "case 'f': concrete_args names 'flag', which is not an argument$"),
        ("example=tuple, codegen_on='cpu'", "case 'f': codegen_on is not a list of names but 'cpu'"),
        ("example=tuple, codegen_on=['gpu']", "case 'f': codegen_on names 'gpu', which is neither cpu nor cuda"),
        ("example=tuple, claims={'compile': ('T1', 'right graphs=²')}", "unknown condition 'graphs=²'"),
        ("example=tuple, since=2.6", "case 'f': since is not a release such as '2.6' but 2.6"),
        ("example=tuple, since='new'", "case 'f': since is not a release such as '2.6' but 'new'"),
        ("example=tuple, watch=3", "case 'f': watch is not a callable but 3"),
        ("example=tuple, watch=lambda a, b, c: 1", "case 'f': watch is called with at most 2 arguments"),
        ("example=tuple, reset=3", "case 'f': reset is not a callable but 3"),
        ("example=tuple, reset=lambda a, b: 1", "case 'f': reset is called with at most 1 argument$"),
        ("example=tuple, backward=1", "case 'f': backward is not True, False or None but 1"),
        ("example=tuple, strict='order'", "case 'f': strict is not a list of names but 'order'"),
        ("example=tuple, strict=[1]", r"case 'f': strict is not a list of names but \[1\]"),
        (
            "example=tuple, strict=['ordr']",
            "case 'f': strict names the unknown difference 'ordr'; did you mean 'order'",
        ),
        ("example=tuple, strict=['zz']", "strict names the unknown difference 'zz'; known are stride, order, message,"),
        ("exampel=tuple", "case 'f': unknown option 'exampel'; did you mean 'example'"),
        ("lambda: (1,)", "case 'f': options have names: write @case"),
        ("example=tuple, rewrite_of='g'", "case 'f': rewrite_of is not a callable but 'g'"),
    ],
)
def test_a_wrong_declaration_names_the_case(declare, arguments, says):
    with pytest.raises(CaseError, match=says):
        declare(f"@case({arguments})\ndef f(): ...")


def test_a_bare_decorator_is_explained(declare):
    with pytest.raises(CaseError, match=r"case 'f' has no example: write @case\(example=...\)"):
        declare("@case\ndef f(): ...")


def test_two_cases_of_one_name_are_refused(declare):
    with pytest.raises(CaseError, match="two cases are named 'f'"):
        declare("@case(example=tuple)\ndef f(): ...\n@case(example=tuple)\ndef f(): ...")


def test_something_without_a_name_is_refused(declare):
    with pytest.raises(CaseError, match="no name"):
        declare("import functools\nf = case(example=tuple)(functools.partial(print))")
