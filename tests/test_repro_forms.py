"""Scripts of cases, in whatever form they are declared."""

import pytest
from planted_scripts import in_process

from recapture.cases.collection import find_suites
from recapture.tools.explain.script.repro import SuitePrinter

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("restored")]

FORMS = """\
import functools
from functools import partial

import torch
import recapture
import recapture as rc
import recapture.cases.case
from recapture import case
from recapture import case as c


def ones():
    return (torch.ones(2),)


@case(example=ones)
def neighbour(x):
    return x + 1


def called(x):
    return x * 2


case(example=ones)(called)


def assigned(x):
    return x - 1


kept = case(example=ones)(assigned)


def in_a_loop(x):
    return x * 3


def second_in_a_loop(x):
    return x * 4


for one in (in_a_loop, second_in_a_loop):
    case(example=ones)(one)


def in_a_list(x):
    return x * 5


declared = [case(example=ones)(one) for one in (in_a_list,)]

tiny = partial(case, example=ones)


@tiny(held_out=[lambda: (torch.zeros(3),)])
def by_partial(x):
    return x + 5


def small(function):
    return case(example=ones)(function)


@small
def by_own_decorator(x):
    return x + 6


def sized(n):
    return case(example=lambda: (torch.ones(n),), held_out=[lambda: (torch.ones(n + 1),)])


@sized(3)
def by_own_factory(x):
    return x + 7


def plus_one(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args) + 1

    return wrapper


@case(example=ones)
@plus_one
def above_another_decorator(x):
    return x


@plus_one
@case(example=ones)
def below_another_decorator(x):
    return x


def wrapped(x):
    return x


case(example=ones)(plus_one(wrapped))


@recapture.case(example=ones)
def by_package(x):
    return x


@rc.case(example=ones)
def by_alias_of_the_package(x):
    return x


@recapture.cases.case.case(example=ones)
def by_module(x):
    return x


@c(example=ones)
def by_alias(x):
    return x


other_name = recapture.case


@other_name(example=ones)
def by_another_name(x):
    return x


if hasattr(torch, "ones"):

    @case(example=ones)
    def inside_if(x):
        return x + 8


OPTIONS = {"example": ones}


@case(**OPTIONS)
def by_dict(x):
    return x + 9


@case(example=ones, **{"held_out": [lambda: (torch.zeros(3),)]})
def partly_by_dict(x):
    return x + 10


@case(example=ones)
class Layer(torch.nn.Module):
    def forward(self, x):
        return x
"""


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    path = tmp_path_factory.mktemp("forms") / "forms.py"
    path.write_text(FORMS)
    return path


FORMS_OF_CASES = [
    ("neighbour", 2.0),
    ("called", 2.0),
    ("assigned", 0.0),
    ("in_a_loop", 3.0),
    ("second_in_a_loop", 4.0),
    ("in_a_list", 5.0),
    ("by_partial", 6.0),
    ("by_own_decorator", 7.0),
    ("by_own_factory", 8.0),
    ("above_another_decorator", 2.0),
    ("below_another_decorator", 1.0),  # the case is what its decorator was given
    ("wrapped", 2.0),
    ("by_package", 1.0),
    ("by_alias_of_the_package", 1.0),
    ("by_module", 1.0),
    ("by_alias", 1.0),
    ("by_another_name", 1.0),
    ("inside_if", 9.0),
    ("by_dict", 10.0),
    ("partly_by_dict", 11.0),
    ("Layer", 1.0),
]


def test_every_form_of_declaration_is_tried(forms):
    (forms_suite,) = find_suites((str(forms),)).suites
    assert {case.name for case in SuitePrinter(forms_suite).cases} == {name for name, _ in FORMS_OF_CASES}


@pytest.mark.parametrize(("case", "first"), FORMS_OF_CASES)
def test_a_case_is_printed_however_it_is_declared(forms, run_script, case, first):
    output = run_script(in_process(f"{forms}::{case}::eager"))
    assert f"again:    tensor([{first:g}.," in output.split("== held_out")[0]
    assert ("held_out[0]" in output) == (case in ("by_partial", "by_own_factory", "partly_by_dict"))
    assert "== verdict: pass\n" in output
