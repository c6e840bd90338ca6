"""The shipped suites: every published claim has its case, and every case shows what it says."""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from recapture.cases.case import CASES_ATTRIBUTE, REFUSED_ATTRIBUTE, Case
from recapture.cases.collection import execute
from recapture.judge.compare import compare
from recapture.judge.observe import Observation, Surroundings, observe_call
from recapture.judge.reachable import Reachable
from recapture.known.claims import CLAIMS
from recapture.torch_api.compat import seed_everything

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, ModuleType

torch = pytest.importorskip("torch")

SUITES = sorted((Path(__file__).parent.parent / "suites").glob("*.py"))

ONE_PATH = {
    "bar_once": "a claim about one input alone",
    "asks_whether_compiling": "eager never takes the other path: that is what it shows",
    "finally_runs": "`finally` runs on every path",
    "python_random_branch": "the path is drawn, from one seed here",
    "list_grows_while_iterated": "the program of a known issue",
    "map_is_no_tuple": "eager never takes the other path: that is the known issue",
    "items_are_no_tuple": "eager never takes the other path: that is the known issue",
    "generator_leaves_the_function": "the program of a known issue",
    "chained_modulated_norms": "a loop of fixed length: the known issue is about gradients",
    "masks_instead_of_breaking": "a rewrite that runs every step: that there is one path is the point",
}

RAISES_ON_EXAMPLE = frozenset({"select_outside_a_new_dimension"})
"""Cases that raise on every input: the known issue is that a compiler returns."""

MAKES_ITS_OWN = {
    "hessian_of_a_cube": "a transform of torch.func refuses a mode of the default device around it",
    "seeds_inside": "the state of the generator is a tensor on the CPU",
    "own_generator": "the state of the generator is a tensor on the CPU",
    "state_saved_and_restored": "the state of the generator is a tensor on the CPU",
}
"""Cases that cannot run under another default device, each with the reason."""

BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.BoolOp, ast.Match, ast.Try, ast.Assert)


@pytest.fixture(autouse=True, scope="module")
def quickly() -> Iterator[None]:
    """Run on one thread, for threads only wait for each other here, and seed without describing the stack.

    Where no GPU is in use, `torch.manual_seed` formats the stack three times, for messages of a later initialization.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traceback, "format_stack", lambda *_, **__: [])
        yield
    torch.set_num_threads(before)


def load(path: Path) -> ModuleType:
    """Execute a suite file as a new module."""
    module = execute(path.stem, path)
    assert not getattr(module, REFUSED_ATTRIBUTE)
    return module


def cases_of(path: Path) -> list[Case]:
    return list(getattr(load(path), CASES_ATTRIBUTE))


def fresh(path: Path, name: str) -> tuple[Case, Any]:
    """Give a case of a fresh execution and its callable, a module built under the seed."""
    case = next(declared for declared in cases_of(path) if declared.name == name)
    seed_everything()
    return case, case.target() if case.is_module else case.target


ALL = [(path, case) for path in SUITES for case in cases_of(path)]
SLOW = {"DecoratorForm", "DenseNet121"}  # the one compiles C++ when it is called, the other is a whole network


def every_case(*, without: frozenset[str] | set[str] = frozenset()) -> pytest.MarkDecorator:
    marks = {name: [pytest.mark.slow] for name in SLOW}
    chosen = [
        pytest.param(path, case.name, id=f"{path.stem}::{case.name}", marks=marks.get(case.name, []))
        for path, case in ALL
        if case.name not in without and all(importlib.util.find_spec(module) for module in case.requires)
    ]
    return pytest.mark.parametrize(("path", "name"), chosen)


def observe(path: Path, name: str) -> list[Observation]:
    case, target = fresh(path, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            observe_call(target, label, make, Surroundings(reachable=Reachable(target), watch=case.watch))
            for label, make in case.inputs()
        ]


def equal(first: Observation, second: Observation) -> bool:
    if (first.raised is None) != (second.raised is None):
        return False
    if first.raised is not None and second.raised is not None and first.raised.type != second.raised.type:
        return False
    return not compare(first, second).differences


def claims(case: Case, compiler: str, outcome: str) -> bool:
    return any(claim.expected.startswith(outcome) for claim in case.claims.get(compiler, ()))


def claimed(compiler: str, outcome: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("path", "name"),
        [
            pytest.param(path, case.name, id=case.name)
            for path, case in ALL
            if claims(case, compiler, outcome) and all(importlib.util.find_spec(module) for module in case.requires)
        ],
    )


def test_the_cases_that_name_a_claim_are_those_that_are_listed_as_showing_it() -> None:
    named = {
        (claim.id, f"{path.stem}::{case.name}") for path, case in ALL for row in case.claims.values() for claim in row
    }
    listed = {
        (claim.id, evidence.name)
        for claim in CLAIMS.shipped.values()
        for evidence in claim.shown_by
        if evidence.kind == "case"
    }
    assert named == listed


def test_names_are_unique_over_all_suites() -> None:
    assert [name for name, count in Counter(case.name for _, case in ALL).items() if count > 1] == []


@pytest.mark.parametrize(("path", "case"), [pytest.param(path, case, id=case.name) for path, case in ALL])
def test_every_case_says_what_it_shows_in_its_first_sentence(path: Path, case: Case) -> None:
    first = (case.target.__doc__ or "").strip().split("\n")[0]
    assert first.endswith(".")
    assert len(first) > 20


@pytest.mark.parametrize(("path", "case"), [pytest.param(path, case, id=case.name) for path, case in ALL])
def test_every_factory_gives_arguments_that_the_target_takes(path: Path, case: Case) -> None:
    forward = case.target.forward if case.is_module else case.target  # type: ignore[attr-defined]
    for _, make in case.inputs():
        seed_everything()
        arguments = make()
        assert isinstance(arguments, tuple)
        inspect.signature(forward).bind(*((None, *arguments) if case.is_module else arguments))


@every_case()
def test_eager_agrees_with_itself_on_every_input(path: Path, name: str) -> None:
    example, *_ = first = observe(path, name)
    assert example.raised is None or name in RAISES_ON_EXAMPLE
    for earlier, later in zip(first, observe(path, name), strict=True):
        assert equal(earlier, later), earlier.input


@every_case(without=SLOW)
def test_no_tensor_is_made_on_the_default_device(path: Path, name: str) -> None:
    """With another default device a tensor made without `device=` would meet the arguments' and fail or show."""
    if name in MAKES_ITS_OWN:
        pytest.skip(MAKES_ITS_OWN[name])
    case, target = fresh(path, name)
    for plain, (label, make) in zip(observe(path, name), case.inputs(), strict=True):

        def elsewhere(*args: Any) -> Any:
            with torch.device("meta"):
                return target(*args)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a case may warn; elsewhere that is an error of the tests
            observation = observe_call(
                elsewhere, label, make, Surroundings(reachable=Reachable(target), watch=case.watch)
            )
        assert (observation.raised is None) == (plain.raised is None), observation.raised
        assert not [difference for difference in compare(plain, observation).differences if difference.kind != "output"]


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def branches(path: Path, name: str) -> bool:
    body = next(node for node in parsed(path).body if getattr(node, "name", None) == name)
    return any(isinstance(node, BRANCHES) for node in ast.walk(body))


def path_taken(path: Path, target: Any, arguments: tuple[Any, ...]) -> list[tuple[str, int]]:
    """Give the sequence of bytecode positions that a call runs through in the suite's own functions."""
    steps: list[tuple[str, int]] = []

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != str(path):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            steps.append((frame.f_code.co_name, frame.f_lasti))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        target(*arguments)
    except Exception as error:
        steps.append((type(error).__name__, -1))
    finally:
        sys.settrace(before)
    return steps


@pytest.mark.parametrize(
    ("path", "name"),
    [
        pytest.param(path, case.name, id=case.name)
        for path, case in ALL
        if branches(path, case.name) and case.name not in ONE_PATH
    ],
)
def test_a_held_out_input_takes_another_path_than_the_example(path: Path, name: str) -> None:
    case, target = fresh(path, name)
    seed_everything()
    taken = [path_taken(path, target, make()) for _, make in case.inputs()]
    assert taken[0]
    assert any(path_of_input != taken[0] for path_of_input in taken[1:])


def test_the_path_of_a_call_is_seen() -> None:
    path = next(path for path in SUITES if path.stem == "control_flow")
    _, target = fresh(path, "flag_argument")
    x = torch.ones(2)
    assert path_taken(path, target, (x, True)) == path_taken(path, target, (x + 1, True))
    assert path_taken(path, target, (x, True)) != path_taken(path, target, (x, False))


def right_on(path: Path, name: str, capture: Any) -> list[bool]:
    """Capture with the example, then say for every input whether the result is eager's."""
    case, target = fresh(path, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seed_everything()
        captured = capture(target, case.example())
        observations = [observe_call(captured, label, make) for label, make in case.inputs()]
    return [equal(eager, observation) for eager, observation in zip(observe(path, name), observations, strict=True)]


@claimed("jit.trace", "specialized")
def test_jit_trace_is_right_on_the_example_alone(path: Path, name: str) -> None:
    on_example, *elsewhere = right_on(path, name, torch.jit.trace)
    assert on_example
    assert not all(elsewhere)


@claimed("fx:concrete_args", "specialized")
def test_fx_with_concrete_arguments_is_right_on_the_example_alone(path: Path, name: str) -> None:
    case, _ = fresh(path, name)

    def capture(target: Any, example: tuple[Any, ...]) -> Any:
        bound = inspect.signature(target).bind(*example).arguments
        concrete = {argument: bound[argument] for argument in case.concrete_args or ()}
        return torch.fx.symbolic_trace(target, concrete_args=concrete)

    on_example, *elsewhere = right_on(path, name, capture)
    assert on_example
    assert not all(elsewhere)


@pytest.mark.parametrize(("name", "graphs"), [("bar", 3), ("bar_once", 2), ("where_instead_of_item", 1)])
def test_a_backend_receives_as_many_graphs_as_claimed(name: str, graphs: int) -> None:
    path = next(path for path in SUITES if path.stem == "graphs")
    received = []

    def backend(graph: Any, _: Any) -> Any:
        received.append(graph)
        return graph.forward

    def capture(target: Any, _: Any) -> Any:
        torch._dynamo.reset()
        return torch.compile(target, backend=backend)

    assert all(right_on(path, name, capture))
    assert len(received) == graphs


def test_the_complex_example_has_the_published_magnitudes() -> None:
    path = next(path for path in SUITES if path.stem == "basic_use")
    case, target = fresh(path, "DisabledInside")
    assert [f"{value:.4f}" for value in target(*case.example()).tolist()] == ["4.4721", "5.8310"]


@pytest.mark.parametrize(
    ("path", "name"),
    [pytest.param(path, case.name, id=case.name) for path, case in ALL if case.name.startswith("where_")],
)
def test_the_offered_fix_differs_from_the_original_where_signs_are_mixed(path: Path, name: str) -> None:
    case, target = fresh(path, name)
    original = case.rewrite_of
    assert original is not None
    same = [torch.equal(target(*make()), original(*make())) for _, make in case.inputs()]
    assert same == [True, False, True]
