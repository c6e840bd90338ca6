"""Cases that are generated from what is installed: declared, hashed, collected, run, printed; exportdb and the zoo."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from recapture.cases.case import CASES_ATTRIBUTE
from recapture.cases.collection import (
    SuiteFile,
    collect_suite,
    execute,
    find_suites,
    shipped_groups,
    shipped_suites,
)
from recapture.cases.compilers import builtin_compilers
from recapture.judge.steps import carry_out
from recapture.judge.verdict import decide
from recapture.records.verdicts import Verdict
from recapture.tools.explain.script.printing import CellToPrint
from recapture.tools.explain.script.repro import print_cell

ROOT = Path(__file__).parents[1]
EXPORTDB = ROOT / "suites" / "exportdb" / "exportdb.py"
ZOO = ROOT / "suites" / "zoo"

pytestmark = pytest.mark.filterwarnings("ignore")

SUITE = '''
"""Generated."""

import torch

from recapture import case_for_each

OFFSETS = {"one": 1, "two": 2}


def offset(name):
    return OFFSETS[name]


@case_for_each(names=lambda: list(OFFSETS))
def added(name):
    """Return a case."""

    def target(x):
        return x + offset(name) if x.sum() > 0 else x

    target.__name__, target.__doc__ = name, f"Adds {name}."
    return {"target": target, "example": lambda: (torch.ones(2),), "held_out": [lambda: (-torch.ones(2),)]}
'''


@pytest.fixture
def suite(tmp_path):
    path = tmp_path / "made.py"
    path.write_text(SUITE)
    return path


def cases_of(name, path):
    return {case.name: case for case in getattr(execute(name, path), CASES_ATTRIBUTE)}


def verdict(path, case, compiler):
    load = lambda: cases_of(path.stem, path)[case]  # noqa: E731 - as a cell has it
    result = decide(carry_out(load, builtin_compilers()[compiler], "cpu", lambda _: None))
    assert result is not None
    return str(result.verdict), result.input


def test_a_case_whose_example_eager_cannot_run_says_nothing_about_a_compiler(suite):
    code = suite.read_text()
    suite.write_text(code.replace("return x + offset(name) if", "return x.no_such_method() if"))
    for compiler in ("eager", "jit.trace", "fx"):
        load = lambda: cases_of("made", suite)["one"]  # noqa: E731 - as a cell has it
        result = decide(carry_out(load, builtin_compilers()[compiler], "cpu", lambda _: None))
        assert (result.verdict, result.phase) == (Verdict.NOT_APPLICABLE, None)
        assert result.reason.startswith(
            "eager cannot run the example: AttributeError: 'Tensor' object has no attribute"
        )
    suite.write_text(code.replace("else x", "else x.no_such_method()"))  # a held-out input, which eager may refuse
    assert verdict(suite, "one", "eager") == ("pass", None)


def test_there_is_a_case_for_each_name_with_a_hash_of_its_own(suite):
    collected = collect_suite("made", suite)
    assert (collected.error, collected.refused) == (None, [])
    assert [(case.name, case.summary) for case in collected.cases] == [("one", "Adds one."), ("two", "Adds two.")]
    assert len({case.hash for case in collected.cases}) == 2


def test_the_hash_is_of_the_function_that_makes_the_case_and_of_its_source(suite):
    def hashes(old="", new=""):
        suite.write_text(SUITE.replace(old, new))
        return {case.name: case.hash for case in collect_suite("made", suite).cases}

    before = hashes()
    assert hashes('"""Generated."""', '"""Made."""') == before
    assert hashes("lambda: list(OFFSETS)", 'lambda: ["one"]') == {"one": before["one"]}  # which names there are
    assert hashes("return OFFSETS", "return 1 * OFFSETS") != before
    assert hashes('return {"target"', 'return {"source": "torch 2", "target"') != before
    assert hashes() == before


def test_a_generated_case_runs_like_any_other(suite):
    assert verdict(suite, "one", "jit.trace") == ("specialized", "held_out[0]")
    assert verdict(suite, "two", "eager") == ("pass", None)


def test_a_generated_case_is_printed_as_a_script_that_finds_the_same(suite, tmp_path):
    printed = print_cell(CellToPrint("made", str(suite), "two", "jit.trace", "cpu", str(tmp_path)))
    assert printed.error is None
    assert "CASES['two'] = added('two')" in printed.text
    script = tmp_path / "cell.py"
    script.write_text(printed.text)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script], capture_output=True, text=True, check=False, cwd=tmp_path, env=BARE
    )
    assert "== verdict: specialized on held_out[0]" in done.stdout, done.stderr


BARE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("return OFFSETS[name]", "raise ValueError('no\\nmore')", None),
        (
            'target.__name__, target.__doc__ = name, f"Adds {name}."',
            "OFFSETS[name + name]",
            "raised KeyError: 'oneone'",
        ),
        ("target.__name__, target.__doc__", "_, target.__doc__", "case 'one': added gives no target of this name"),
        ('{"target": target, ', "{", "case 'one': added gives no target of this name but None"),
        ('"example": lambda: (torch.ones(2),), ', "", "case 'one' has no example"),
        ('{"target": target', '{"claim": 1, "target": target', "unknown option 'claim'; did you mean 'claims'"),
    ],
)
def test_a_case_that_cannot_be_made_is_refused_alone(suite, old, new, says):
    assert old in SUITE
    suite.write_text(SUITE.replace(old, new))
    collected = collect_suite("made", suite)
    if says is None:  # a fault when it is called is the case's own
        assert (len(collected.cases), collected.error) == (2, None)
    else:
        assert says in (collected.error or "".join(map(str, collected.refused)))


def test_one_bad_name_leaves_the_others(suite):
    suite.write_text(SUITE.replace("    def target", "    assert name != 'one', 'not this'\n\n    def target"))
    collected = collect_suite("made", suite)
    assert [case.name for case in collected.cases] == ["two"]
    assert [str(refusal) for refusal in collected.refused] == ["case 'one': added raised AssertionError: not this"]


@pytest.mark.parametrize(
    ("needs", "says"),
    [('requires=("no_such_module",)', "it needs no_such_module"), ('since="99"', "it needs torch 99 or newer")],
)
def test_a_suite_that_lacks_something_says_so_in_one_line(suite, needs, says):
    suite.write_text(SUITE.replace("names=lambda: list(OFFSETS)", f"names=lambda: list(OFFSETS), {needs}"))
    collected = collect_suite("made", suite)
    assert (collected.error, collected.lacking, collected.cases) == (says, True, [])


# --- groups that run only when they are named -----------------------------------------------------------------------


def test_groups_are_selected_by_their_name_or_by_that_of_a_suite_and_not_by_default():
    zoo = {"zoo_timm", "zoo_torchvision", "zoo_transformers"}
    assert {name: {info.name for info in group} for name, group in shipped_groups().items()} == {
        "exportdb": {"exportdb"},
        "zoo": zoo,
    }
    assert not {info.name for info in shipped_suites()} & {"exportdb", *zoo}
    assert {info.name for info in find_suites(()).suites} == {info.name for info in shipped_suites()}
    assert {info.name for info in find_suites(("zoo",)).suites} == zoo
    assert find_suites(("zoo_timm::vit",)).addresses == (("zoo_timm", "vit", None),)
    assert find_suites(("exportdb",)).suites == (SuiteFile("exportdb", EXPORTDB),)


def test_onnx_runs_by_default_where_its_packages_are_installed(monkeypatch):
    onnx = builtin_compilers()["onnx"]
    real = importlib.util.find_spec
    for installed in (True, False):
        spec = SimpleNamespace() if installed else None
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, spec=spec: spec if name in onnx.requires else real(name)
        )
        assert onnx.only_when_named is not installed
    assert builtin_compilers()["jit.trace:frozen"].only_when_named
    assert not builtin_compilers()["export"].only_when_named


# --- exportdb -------------------------------------------------------------------------------------------------------


def test_every_example_of_this_torch_is_a_case_that_eager_runs():
    from torch._export.db.examples import all_examples

    cases = cases_of("exportdb", EXPORTDB)
    assert set(cases) == set(all_examples())
    for name, case in cases.items():
        target = case.target() if case.is_module else case.target
        for label, make in case.inputs():
            args = make()
            assert isinstance(args, tuple), (name, label)
            if label == "example":
                target(*args)
    assert len(cases) > 20


def test_examples_have_held_out_inputs_of_other_values_and_sizes():
    example, values, sizes = (
        make() for _, make in cases_of("exportdb", EXPORTDB)["dynamic_shape_slicing"].inputs()[:3]
    )
    assert torch.equal(values[0], -example[0])
    assert tuple(sizes[0].shape) == tuple(size + 1 for size in example[0].shape)


def test_an_example_with_keywords_takes_them_by_position():
    case = cases_of("exportdb", EXPORTDB)["fn_with_kwargs"]
    assert verdict(EXPORTDB, "fn_with_kwargs", "eager") == ("pass", None)
    (_, make), *_ = case.inputs()
    assert case.target()(*make()).shape


def test_the_source_of_an_example_counts_and_what_describes_it_does_not():
    module = execute("exportdb", EXPORTDB)
    text = 'import torch\n\n@decorated(tags=1)\ndef f(x):\n    """Says."""\n    return x\n\nexample_args = (1,)\n'
    assert module.definitions(text) == module.definitions("\n\ndef f(x):\n    return x\nexample_inputs = (1,)\n")
    assert module.definitions(text) != module.definitions(text.replace("return x", "return -x"))


def test_a_branch_on_a_size_is_found_in_an_example():
    assert verdict(EXPORTDB, "dynamic_shape_if_guard", "make_fx")[0] in ("pass", "specialized")
    assert verdict(EXPORTDB, "static_if", "fx")[0] == "error"


# --- the zoo --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed here")
class TestTorchvision:
    @pytest.fixture(scope="class")
    def cases(self):
        return cases_of("zoo_torchvision", ZOO / "zoo_torchvision.py")

    def test_every_model_is_a_case(self, cases):
        import torchvision

        assert set(cases) == set(torchvision.models.list_models())
        kinds = {case.target.__doc__ for case in cases.values()}
        assert len(kinds) == 6

    @pytest.mark.parametrize(
        "name", ["mobilenet_v3_small", "lraspp_mobilenet_v3_large", "quantized_resnet18", "raft_small"]
    )
    def test_a_model_of_each_kind_takes_its_inputs(self, cases, name):
        model = cases[name].target()
        assert not model.training
        assert not any(parameter.requires_grad for parameter in model.parameters())
        with torch.no_grad():
            for _, make in cases[name].inputs()[:1]:
                assert model(*make()) is not None

    def test_a_detector_takes_images_of_several_sizes(self, cases):
        ((images,), *_) = (make() for _, make in cases["fasterrcnn_mobilenet_v3_large_320_fpn"].inputs())
        assert [tuple(image.shape) for image in images] == [(3, 64, 64), (3, 64, 80)]


@pytest.mark.parametrize("library", ["timm", "transformers"])
def test_a_library_that_is_not_installed_is_named(library):
    if importlib.util.find_spec(library) is not None:
        pytest.skip(f"{library} is installed here")
    collected = collect_suite(f"zoo_{library}", ZOO / f"zoo_{library}.py")
    assert (collected.error, collected.lacking) == (f"it needs {library}", True)
