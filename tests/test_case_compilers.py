"""Cases that are about some compilers alone, runs of known issues, and files that register operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from recapture.base.errors import UsageError
from recapture.cases.collection import CaseInfo, Selection, SuiteInfo, execute, find_suites
from recapture.cases.compilers import builtin_compilers
from recapture.run.plan import RunOptions, plan_cells
from recapture.tools.upgrade.cell_bisect import UNKNOWN

if TYPE_CHECKING:
    from pathlib import Path

LIBRARY = """
import torch
LIBRARY = torch.library.Library("recapture_test_ops", "DEF")
LIBRARY.define("plus_one(Tensor x) -> Tensor")

@torch.library.impl(LIBRARY, "plus_one", "CompositeExplicitAutograd")
def plus_one(x):
    return x + AMOUNT

AMOUNT = 1
"""


def suite(*cases: CaseInfo) -> SuiteInfo:
    return SuiteInfo("known_autograd", "known_autograd.py", list(cases))


def planned(case: CaseInfo, **options: object) -> list[str]:
    chosen = RunOptions(**{"selection": Selection((), (), frozenset()), **options})  # type: ignore[arg-type]
    return [cell.spec.compiler for cell in plan_cells(chosen, [suite(case)], [])]


def case_about(*compilers: str, name: str = "c") -> CaseInfo:
    return CaseInfo(name, "0", "", {}, compilers=list(compilers))


def test_a_case_about_some_compilers_plans_these_and_eager() -> None:
    assert planned(case_about("export", "fx")) == ["eager", "fx", "export"]
    assert planned(case_about()) == ["eager"]
    assert len(planned(CaseInfo("c", "0", "", {}))) > 10


def test_a_compiler_that_the_case_is_not_about_is_planned_where_an_address_names_it() -> None:
    with pytest.raises(UsageError, match="no case matches the selection"):
        planned(case_about("export"), compilers=("fx",))
    named = Selection((), (("known_autograd", "c", "fx"),), frozenset())
    assert planned(case_about("export"), selection=named) == ["fx"]


@pytest.mark.parametrize(
    ("wanted", "compilers"),
    [((("known_autograd", "d", None),), ()), ((("known_autograd", "c", "compil"),), ()), ((), ("compil",))],
)
def test_what_no_file_declares_is_said_as_bisect_expects_it(wanted, compilers) -> None:
    selection = Selection((), wanted, frozenset())
    with pytest.raises(UsageError) as raised:
        planned(CaseInfo("c", "0", "", {}), selection=selection, compilers=compilers)
    assert str(raised.value).startswith(UNKNOWN)


def test_an_unknown_compiler_of_a_case_is_named_with_the_most_similar() -> None:
    with pytest.raises(UsageError, match=r"compilers names the unknown compiler 'exprt'.*export"):
        planned(case_about("exprt"))


def test_a_run_of_an_issue_plans_the_cases_that_try_it() -> None:
    tried = case_about("compile", name="gradient_of_diagonal_scatter")
    assert planned(tried, issues=("183602",)) == ["eager", "compile"]
    with pytest.raises(UsageError, match="no case matches the selection"):
        planned(case_about("compile", name="another"), issues=("183602",))
    with pytest.raises(UsageError, match="no known issue '1836021'"):
        planned(tried, issues=("1836021",))


def test_the_restriction_is_no_part_of_what_identifies_a_case(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from recapture.cases.source import closure

    text = "from recapture import case\n@case(example=lambda: (1,){})\ndef f(x):\n    return x\n"
    for name, option in (("plain", ""), ("restricted", ", compilers=('fx',)")):
        (tmp_path / f"{name}.py").write_text(text.format(option))
    assert closure(tmp_path / "plain.py", "f").hash == closure(tmp_path / "restricted.py", "f").hash


def test_a_file_that_registers_operators_is_executed_again_with_its_new_functions(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "operators.py"
    path.write_text(LIBRARY)
    for amount in (1, 5):
        module = execute("operators", path)
        vars(module)["AMOUNT"] = amount
        assert torch.ops.recapture_test_ops.plus_one(torch.zeros(2)).tolist() == [amount, amount]


def test_every_shipped_restriction_names_compilers_that_exist() -> None:
    pytest.importorskip("torch")
    from recapture.cases.collection import collect_suite

    for shipped in find_suites(()).suites:
        for case in collect_suite(shipped.name, shipped.path).cases:
            assert set(case.compilers or ()) <= set(builtin_compilers()), case.name
