"""Checks of a user's own code: targets, derived inputs, verdicts by name, and bad input."""

import dataclasses
import enum
import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch
from conftest import share

import recapture
from recapture.api import CheckFailedError, run_check
from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.cli.main import _run
from recapture.conformance.own_code import session
from recapture.conformance.own_code.session import CheckOptions, compilers_of_check
from recapture.declare.own_code.request import CheckRequest, Given, parse_input, parse_target
from recapture.declare.own_code.variants import derive, variants
from recapture.report.check import check_line, check_markdown

USER = Path(__file__).parent / "resources" / "own_code.py"


@pytest.fixture
def served(warm, monkeypatch):
    """Checks of this process use the shared server."""
    monkeypatch.setattr(session, "WorkerPool", lambda **_: warm)
    return warm


def checked(name, *given, compilers=("jit.trace",), **options):
    request = CheckRequest(place=str(USER), name=name, given=tuple(map(parse_input, given)), **options)
    return run_check(request, CheckOptions(compilers=compilers), scripts=options.get("scripts", False))


@pytest.fixture(scope="module")
def small_batches(pool):
    """A check of code that refuses small batches, by three compilers."""
    with pytest.MonkeyPatch.context() as patch:
        share(pool, patch)
        return checked("refuses_small", "4x3", compilers=("jit.trace", "jit.script", "compile:eager"))


@pytest.fixture(scope="module")
def product(pool):
    """A check of a product of matrices, by two compilers that record a program."""
    with pytest.MonkeyPatch.context() as patch:
        share(pool, patch)
        return checked("plain", "4x3", "3x2", compilers=("fx", "make_fx"))


@pytest.fixture(scope="module")
def user():
    spec = importlib.util.spec_from_file_location("own_code", USER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- derived inputs -------------------------------------------------------------------------------------------------


def test_the_variants_of_one_tensor_have_names_and_differ():
    x = torch.arange(12.0).reshape(3, 4) - 5
    found = {name: make()[0] for name, make in variants((x,)).items()}
    assert found["batch=1"].shape == (1, 4)
    assert found["batch=4"].shape == (4, 4)
    assert found["last dimension=5"].shape == (3, 5)
    assert found["negated"].equal(-x)
    assert found["zeros"].equal(torch.zeros(3, 4))
    assert found["large"].equal(x * 1e4)
    assert not found["non-contiguous"].is_contiguous()
    assert found["non-contiguous"].equal(x)
    assert found["requires_grad flipped"].requires_grad
    assert "nan" not in found
    asked = variants((x,), nonfinite=True, dtypes=("float64",))
    assert asked["nan"]()[0].isnan().sum() == 1
    assert asked["dtype=float64"]()[0].dtype == torch.float64
    assert not torch.is_grad_enabled() or not x.requires_grad


def test_an_image_has_a_variant_in_channels_last():
    (made,) = derive("channels-last", (torch.rand(2, 3, 4, 5),))
    assert made.is_contiguous(memory_format=torch.channels_last)


def test_scalars_flags_strings_and_lists_have_variants():
    found = variants((2, True, 0.5, "mean", [torch.ones(2)]), constants=(7, "sum"))
    assert derive("args[0]=3", (2, True)) == (3, True)
    assert {"args[0]=0", "args[0]=7", "args[0]=8", "args[1]=False", "args[2]=-0.5", "args[3]='sum'"} <= found.keys()
    assert len(found["args[4] with 2 items"]()[4]) == 2


def test_equal_numbers_of_other_types_and_signs_are_variants():
    found = variants((2, 0.0, None, torch.ones(3)))
    assert {
        "args[0]=2.0",
        "args[1]=-0.0",
        "args[1]=0",
        "args[2]=True",
        "args[2] a tensor",
        "args[3]=None",
    } <= found.keys()
    assert str(found["args[1]=-0.0"]()[1]) == "-0.0"
    assert type(found["args[0]=2.0"]()[0]) is float


def test_members_of_an_enum_and_the_fields_of_a_dataclass_are_varied():
    @dataclasses.dataclass
    class Settings:
        scale: float
        kind: enum.Enum
        weights: torch.Tensor

    kinds = enum.Enum("kinds", "low high")
    found = variants((Settings(1.5, kinds.low, torch.ones(2)),))
    (made,) = found[f"args[0].kind={kinds.high!r}"]()
    assert (made.kind, made.scale) == (kinds.high, 1.5)
    assert found["args[0].scale=-1.5"]()[0].scale == -1.5
    assert found["zeros"]()[0].weights.tolist() == [0, 0]


def test_ranks_dtypes_and_memory_are_varied():
    x = torch.arange(6.0).reshape(2, 3) + 1
    found = {name: make()[0] for name, make in variants((x,)).items() if not name.startswith("args")}
    assert found["another dimension"].shape == (2, 2, 3)
    assert found["first row alone"].shape == (3,)
    assert found["batch=0"].shape == (0, 3)
    assert found["dtype=float64"].dtype == torch.float64
    assert found["floats as integers"].dtype == torch.int64
    assert found["expanded"].stride(0) == 0
    assert found["part of a larger tensor"].storage_offset() == 6
    assert found["part of a larger tensor"].equal(x)
    assert found["first value negated"].tolist() == [[-1, 2, 3], [4, 5, 6]]


def test_values_on_both_sides_of_a_number_of_the_source_are_tried():
    found = variants((torch.ones(3), torch.tensor(5)), constants=(10,))
    for name, below in (("values beyond 10", False), ("values below 10", True)):
        made = found[name]()
        assert [bool(one.max() < 10) for one in made] == [below, below]
    assert found["values of 10"]()[1].item() == 10


def test_what_code_looks_up_is_tried():
    """The keys of a dict that a function makes, and of one beside it."""
    from recapture.conformance.own_code.mining import codes_of, mined

    table = {"relu": torch.relu, "negate": torch.neg}
    namespace = {"TABLE": table, "__name__": "theirs"}
    exec(
        "def f(x, name):\n    return {'one': 1, 'two': 2}[name] if name in ('three', 7) else TABLE[name](x)\n",
        namespace,
    )
    assert {"one", "two", "three", "relu", "negate", 7} <= set(mined(*codes_of(namespace["f"])))


def test_functions_slices_and_sets_are_varied():
    found = variants((torch.relu, slice(0, 2), {1, 2}, [1], (2, 3)))
    assert found["args[0]=torch.neg"]()[0] is torch.neg
    assert found["args[1]=slice(1, None, None)"]()[1] == slice(1, None)
    assert found["args[2] with one more"]()[2] == {1, 2, 3}
    assert found["args[3] as a tuple"]()[3] == (1,)
    assert found["every list longer"]()[3:] == ([1, 1], (2, 3, 3))
    assert not any("0x" in name for name in found)


def test_bytes_get_as_large_as_they_can():
    (made,) = derive("large", (torch.tensor([1, 2], dtype=torch.uint8),))
    assert made.tolist() == [200, 254]


def test_lists_dicts_and_aliases_are_varied():
    x, y = torch.ones(2), torch.zeros(2)
    found = variants(([x, y], {"a": x, "b": 2}, y))
    assert len(found["args[0] empty"]()[0]) == 0
    assert found["args[0] reversed"]()[0][0] is y
    assert list(found["args[1] without 'a'"]()[1]) == ["b"]
    assert list(found["args[1] with another key"]()[1]) == ["a", "b", "another"]
    aliased = found["args[0][1] is args[0][0]"]()
    assert aliased[0][1] is aliased[0][0]


def test_a_leaf_that_requires_grad_stays_one():
    x = torch.ones(2, 2, requires_grad=True)
    made = derive("negated", (x,))[0]
    assert made.requires_grad
    assert made.is_leaf
    parameter = derive("negated", (torch.nn.Parameter(torch.ones(2)),))[0]
    assert isinstance(parameter, torch.nn.Parameter)


def test_integers_on_a_gpu_only_get_values_that_the_example_has():
    x = torch.tensor([1, 2, 3])
    assert derive("negated", (x,))[0].tolist() == [-1, -2, -3]
    assert derive("negated", (x,), careful=True)[0] is x


# --- verdicts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "on"),
    [
        ("OneRowIsOther", ["8x4"], "batch=1"),
        ("wide", ["4x3"], "batch=7"),
        ("positive", ["4:float64"], "negated"),
    ],
)
def test_a_planted_branch_is_found_by_name(served, name, given, on):
    row = checked(name, *given)["jit.trace"]
    assert row.verdict == "specialized"
    assert on in row.wrong_on
    assert row.words.startswith("specialized: wrong on ")
    assert "held_out" not in row.reason + "".join(row.differences)
    assert row.advice


@pytest.mark.parametrize(
    ("name", "given", "on"),
    [("drops", ["4", "=False"], "args[1]=True"), ("reduced", ["4", "='mean'"], "args[1]='sum'")],
)
def test_a_flag_and_a_word_of_the_source_are_varied(served, name, given, on):
    row = checked(name, *given, compilers=("make_fx",))["make_fx"]
    assert row.verdict == "specialized"
    assert row.wrong_on[0] == on


def test_code_without_a_branch_is_right(served):
    result = checked("plain", "4x3", "3x2", compilers=("jit.trace", "fx", "jit.script"))
    assert {row.compiler: row.verdict for row in result.rows} == dict.fromkeys(
        ("jit.trace", "jit.script", "fx"), "pass"
    )
    assert result.raise_if("any") is result


def test_a_compiler_that_refuses_other_inputs_loudly_is_told_from_one_that_cannot_be_used(product):
    """The program that make_fx records multiplies matrices; with another dimension, eager multiplies batches."""
    assert product["make_fx"].words.startswith("right on the example, fails loudly on ")
    assert product.report.sentence.endswith(
        "right under fx; right on the example, but refuses other inputs loudly under make_fx"
    )
    assert [row.compiler for row in product.rows if row.is_narrow] == ["make_fx"]


def test_another_rank_does_not_count_against_an_exported_program(served):
    """Eager takes any number of dimensions here; nobody expects that of a program that was exported for two."""
    result = checked("scored", "4x3", compilers=("export:dynamic", "export:nonstrict", "compile:eager"))
    dynamic = result["export:dynamic"]
    assert {"another dimension", "first row alone"} <= set(result.report.inputs)
    assert (dynamic.verdict, dynamic.words) == ("pass", "right")
    assert set(dynamic.other_ranks) == {"another dimension", "first row alone"}
    assert check_line(dynamic).endswith("refuses other ranks loudly: another dimension, first row alone")
    static = result["export:nonstrict"]
    assert static.words == "right on the example, fails loudly on batch=1"
    assert static.note == ""
    assert result["compile:eager"].other_ranks == ()
    assert "right under compile:eager, export:dynamic" in result.report.sentence
    assert "refuses other ranks loudly" in check_markdown(result.report)


def test_graph_breaks_where_eager_raises_are_not_counted(small_batches):
    row = small_batches["compile:eager"]
    assert (row.verdict, row.break_reasons) == ("pass", ())


def test_what_eager_refuses_is_dropped_and_counted(small_batches):
    report = small_batches.report
    assert ("batch=1", "ValueError: too few rows") in report.refused
    assert "batch=1" not in report.inputs
    assert f"{len(report.refused)} refused by eager" in report.inputs_in_words


def test_a_value_where_eager_raises_is_silently_wrong(small_batches):
    """A tracer records the path on which nothing was refused."""
    assert "batch=1" in small_batches.report.must_raise
    assert len(small_batches.report.must_raise) <= 6
    assert "of them tried: they must raise" in small_batches.report.inputs_in_words
    traced = small_batches["jit.trace"]
    assert traced.verdict == "specialized"
    assert "batch=1 (eager raises)" in traced.wrong_on
    assert "held_out" not in traced.reason + "".join(traced.differences)


def test_another_exception_than_eager_s_is_no_alarm(served):
    """Where eager says ValueError before it halves the batch, a tracer says that a view does not fit."""
    result = checked("refuses_odd", "4x3", compilers=("jit.trace",))
    assert {"batch=1", "batch=5"} & set(result.report.must_raise)
    assert result["jit.trace"].verdict == "pass"


def test_one_tensor_given_twice_is_another_input_than_two_equal_ones(served):
    row = checked("asks_for_identity", inputs=(str(USER), "equal_tensors"))["jit.trace"]
    assert row.wrong_on == ("args[1] is args[0]",)


def test_an_argument_of_a_wrong_type_is_not_tried(small_batches):
    """`None.shape` is an AttributeError that nobody raised on purpose, and no compiler needs to raise it, too."""
    report = small_batches.report
    refused = dict(report.refused)
    assert "AttributeError" in refused["args[0]=None"]
    assert "args[0]=None" not in report.must_raise


@pytest.mark.parametrize("made", [{"train": True}, {"device": "cuda"}])
def test_no_refused_input_is_tried_in_training_and_on_a_gpu(made):
    from types import SimpleNamespace

    from recapture.conformance.own_code.derivation import _Examination

    one = object.__new__(_Examination)
    one.request, one.built = CheckRequest(**made), lambda x: x
    raised = SimpleNamespace(raised=SimpleNamespace(error=ValueError("x")))
    assert not one._may_be_refused(lambda: (1,), raised)
    one.request = CheckRequest()
    assert one._may_be_refused(lambda: (1,), raised)
    for error in (KeyboardInterrupt(), MemoryError(), TypeError("an operand")):
        assert not one._may_be_refused(lambda: (1,), SimpleNamespace(raised=SimpleNamespace(error=error)))
    assert not one._may_be_refused(lambda: (1, 2), raised)


def test_an_input_that_kills_eager_is_dropped(served):
    report = checked("dies", "4").report
    assert ("zeros", "the process died") in report.refused
    assert report.rows[0].verdict == "pass"


def test_inputs_come_from_a_function_by_name(served):
    assert checked("plain", inputs=(str(USER), "inputs"), compilers=("fx",)).rows[0].verdict == "pass"


def test_a_factory_makes_the_module(served):
    assert checked("make_linear", "3x4", compilers=("fx",)).rows[0].verdict == "pass"


def test_random_numbers_are_told(served):
    assert checked("drawn", "4", compilers=("fx",)).report.random


def test_training_compares_three_steps(served):
    wrong = checked("Regression", "4", train=True)["jit.trace"]
    assert wrong.verdict in ("specialized", "wrong")
    assert {"step 2", "step 3"} <= set(wrong.wrong_on)
    right = checked("Linear", "3x4", train=True)
    assert right.report.inputs[:2] == ("step 2", "step 3")
    assert right.rows[0].verdict == "pass"


def test_no_compiler_without_gradients_takes_part_in_training():
    assert "aoti" not in compilers_of_check((), CheckRequest(train=True))
    assert "aoti" in compilers_of_check((), CheckRequest())


# --- Python ---------------------------------------------------------------------------------------------------------


def test_a_function_without_a_file_is_checked(served):
    pytest.importorskip("cloudpickle")
    namespace = {"__name__": "__main__"}
    exec("def sign(x):\n    return x if x.sum() > 0 else -x\n", namespace)
    before = torch.random.get_rng_state()
    result = recapture.check(namespace["sign"], torch.ones(3), compilers=["jit.trace"])
    assert torch.random.get_rng_state().equal(before)
    assert result["jit.trace"].verdict == "specialized"
    with pytest.raises(CheckFailedError, match=r"jit\.trace +specialized: wrong on negated"):
        result.raise_if("silently_wrong")
    with pytest.raises(UsageError, match="did you mean 'failing'"):
        result.raise_if("fialing")
    with pytest.raises(KeyError, match="was not checked"):
        result["fx"]
    assert "specialized" in result._repr_html_()
    assert json.dumps(result.to_dict())
    assert "unpacked(" in result.repro("jit.trace")


def test_own_held_out_inputs_keep_their_names(served, user):
    result = recapture.check(
        user.positive,
        lambda: (torch.ones(2),),
        held_out={"all below": -torch.ones(2)},
        derive=False,
        compilers=["jit.trace"],
    )
    assert result["jit.trace"].wrong_on == ("all below",)


def test_a_module_with_weights_is_checked_as_it_is(served):
    pytest.importorskip("cloudpickle")
    model = torch.nn.Sequential(torch.nn.Linear(4, 300), torch.nn.ReLU(), torch.nn.Linear(300, 1000))
    before = [one.clone() for one in model.parameters()]
    assert recapture.check(model, torch.ones(2, 4), compilers=["fx"])["fx"].verdict == "pass"
    assert model.training
    assert all(map(torch.equal, before, model.parameters()))


def test_the_page_escapes_what_it_shows(product):
    from msgspec.structs import replace

    from recapture.report.check import check_html

    hostile = replace(product.report, target="<script>x</script>", inputs=("<b>",))
    assert "<script>" not in check_html(hostile)
    assert "<b>" not in check_html(hostile).replace("<p><b>", "")
    assert "<script>" not in check_markdown(hostile)


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["nothing"], "a target is written as"),
        (["absent.py:f"], "no such file: absent.py"),
        ([f"{USER}:plain", "--input", "3y"], "an input is written as"),
        ([f"{USER}:plain", "--input", "3:float31"], "unknown dtype 'float31'; did you mean 'float32'?"),
        ([f"{USER}:plain", "--input", "=3+"], "comes a Python value"),
        ([f"{USER}:plain", "--input", "99999999999x9"], "are too many"),
        ([f"{USER}:plain", "--compiler", "jit.trac"], "did you mean 'jit.trace'?"),
        ([f"{USER}:plain", "--input", "3", "--inputs", f"{USER}:inputs"], "use one of them"),
        ([f"{USER}:plain", "--inputs", f"{USER}"], "it is written as FILE:FUNCTION"),
        ([f"{USER}:plain", "--dtype", "int64"], "only floating-point"),
        ([f"{USER}:plain", "--device", "tpu"], "unknown device"),
    ],
)
def test_bad_usage_is_one_line(words, complaint, capsys):
    assert _run(["check", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


@pytest.mark.parametrize(
    ("target", "given", "complaint"),
    [
        ("plane", ["3"], "has no 'plane'; did you mean 'plain'?"),
        (
            "plain",
            ["3"],
            "takes (x, y), and 1 input given: missing a required argument: 'y'; give each argument once with --input",
        ),
        ("plain", ["2x3", "4x5"], "raises RuntimeError on its input: mat1 and mat2 shapes"),
        ("NeedsSize", ["3"], "NeedsSize needs arguments (size)"),
        ("number", ["3"], "is no function and no torch.nn.Module but int"),
    ],
)
def test_a_target_that_cannot_be_checked_is_one_line(served, target, given, complaint):
    with pytest.raises(UsageError) as caught:
        checked(target, *given, compilers=("fx",))
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_class_or_factory_that_raises_is_one_line(served, tmp_path):
    for text, kind, complaint in (
        (
            "def f():\n    import no_such_package_here\n",
            EnvironmentUnfitError,
            "'no_such_package_here' is not installed",
        ),
        ("def f():\n    1 / 0\n", UsageError, "theirs.py:f cannot be made: ZeroDivisionError: division by zero"),
    ):
        path = tmp_path / "theirs.py"
        path.write_text(text)
        with pytest.raises(kind) as caught:
            run_check(CheckRequest(place=str(path), name="f"), CheckOptions(compilers=("fx",)))
        assert complaint in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_result_of_an_own_class_is_told_with_what_to_return_instead(served, tmp_path):
    path = tmp_path / "theirs.py"
    path.write_text(
        "import collections\n\n\nclass Output(collections.OrderedDict):\n    pass\n\n\n"
        "def f(x):\n    return Output(y=x + 1)\n"
    )
    result = run_check(
        CheckRequest(place=str(path), name="f", given=(Given((2,)),)), CheckOptions(compilers=("jit.trace", "make_fx"))
    )
    assert result["make_fx"].words.startswith("wrong: wrong on example")
    assert "return a tensor, tuple or dict" in result["make_fx"].advice
    assert "cannot record a result of this type" in result["jit.trace"].advice


def test_the_packages_that_a_target_asks_for_are_imported_before_a_fork(served, tmp_path):
    path = tmp_path / "theirs.py"
    path.write_text("def f(x):\n    return x\n\n\ndef make():\n    import yaml\n\n    return f\n\n\nmake()\n")
    kept = []
    run_check(
        CheckRequest(place=str(path), name="f", given=(Given((2,)),)), CheckOptions(compilers=("fx",)), keep=kept.append
    )
    assert [line.strip() for line in kept[0].splitlines() if "yaml" in line] == ["import yaml  # noqa: F401"]


def test_what_is_no_function_of_its_inputs_is_one_line(served, tmp_path):
    path = tmp_path / "theirs.py"
    path.write_text(
        "import torch\n\n\ndef sized(size):\n    return torch.nn.Linear(2, 2)\n\n\nasync def later(x):\n    return x\n"
    )
    for name, complaint in (
        ("sized", "theirs.py:sized needs arguments, and returns a torch.nn.Module"),
        ("later", "later is an async function"),
    ):
        with pytest.raises(UsageError, match=complaint):
            run_check(CheckRequest(place=str(path), name=name, given=(Given((2,)),)), CheckOptions(compilers=("fx",)))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_an_absent_gpu_is_the_machine_s_fault_in_one_line(served):
    with pytest.raises(EnvironmentUnfitError, match=r"^--device cuda: torch finds no GPU"):
        checked("plain", "2x3", "4x3", compilers=("fx",), device="cuda")


def test_a_file_that_cannot_be_imported_is_named(served, tmp_path):
    for text, kind, complaint in (
        ("1 / 0\n", UsageError, "ZeroDivisionError: division by zero"),
        ("def f(\n", UsageError, "SyntaxError"),
        ("import no_such_package_here\n", EnvironmentUnfitError, "'no_such_package_here' is not installed"),
    ):
        path = tmp_path / "theirs.py"
        path.write_text(text)
        with pytest.raises(kind, match="cannot be imported") as caught:
            run_check(CheckRequest(place=str(path), name="f"), CheckOptions(compilers=("fx",)))
        assert complaint in str(caught.value)


def test_targets_and_inputs_are_parsed():
    assert parse_target("torchvision:resnet18") == ("torchvision", "resnet18")
    assert parse_target(f"{USER}:plain") == (str(USER), "plain")
    assert parse_input("8x128:int64") == Given((8, 128), "int64")
    assert parse_input("=True") == Given(literal="True")
    assert parse_input(":float64") == Given((), "float64")


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_command_streams_lines_and_keeps_the_case(served, tmp_path, capsys):
    kept, page = tmp_path / "kept.py", tmp_path / "page.html"
    words = [f"{USER}:positive", "--input", "3", "--compiler", "jit.trace", "--compiler", "fx"]
    assert _run(["check", *words, "--fail-on", "silently_wrong", "--save", str(kept), "--html", str(page)]) == 1
    out = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[0] for line in out[:2]) == ["fx", "jit.trace"]
    assert out[3].startswith("own_code.py:positive on torch ")
    assert "silently wrong under jit.trace; not usable under fx" in out[3]
    assert page.read_text().startswith("<!doctype html>")
    again = _run(["run", str(kept), "--compiler", "jit.trace", "--results", str(tmp_path / "results")])
    assert again == 0
    assert "1 specialized" in capsys.readouterr().out


def test_json_has_the_same_facts(served, capsys):
    assert _run(["check", f"{USER}:plain", "--input", "4x3", "--input", "3x2", "--compiler", "fx", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"][0]["verdict"] == "pass"
    assert found["version"] == 1
    assert found["sentence"].endswith("right under fx")


def test_the_speed_is_said_with_its_interval_and_may_be_inconclusive(served, monkeypatch, capsys):
    from recapture.bench import own_code

    def measured(path, compilers, device, show):
        assert path.read_text().count("@workload") == 1
        show("recapture: fx was not timed: it is late")
        figures = {"eager": own_code.Timed((1.0, 0.9, 1.1), "no difference shown")}
        return figures | {"jit.trace": own_code.Timed((1.5, 1.4, 1.6), "faster")}

    monkeypatch.setattr(own_code, "speedups_of", measured)
    words = [f"{USER}:plain", "--input", "4x3", "--input", "3x2", "--compiler", "jit.trace", "--compiler", "eager"]
    assert _run(["check", *words, "--compiler", "fx", "--time"]) == 0
    shown = capsys.readouterr()
    assert "jit.trace          1.50× as fast as eager [1.40, 1.60]\n" in shown.out
    assert "eager              inconclusive: 1.00× as fast as eager [0.90, 1.10], no difference shown\n" in shown.out
    assert "fx was not timed: it is late" in shown.err


@pytest.mark.serial
@pytest.mark.slow
def test_a_check_measures_what_is_right(tmp_path, capsys):
    words = [
        f"{USER}:plain",
        "--input",
        "40x30",
        "--input",
        "30x20",
        "--compiler",
        "jit.trace",
        "--compiler",
        "eager",
    ]
    assert _run(["check", *words, "--time", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    for row in rows:
        ratio, low, high = row["speedup"]
        assert 0 < low <= ratio <= high
        assert row["finding"]


@pytest.mark.slow
def test_a_program_from_standard_input_can_check_its_function(tmp_path):
    """As in a prompt: the function is in no file."""
    pytest.importorskip("cloudpickle")
    import subprocess

    program = (
        "import torch, recapture\n"
        "def f(x):\n    return x if x.sum() > 0 else -x\n"
        "print(recapture.check(f, torch.ones(3), compilers=['jit.trace'])['jit.trace'].words)\n"
    )
    done = subprocess.run(
        [sys.executable, "-"], input=program, capture_output=True, text=True, timeout=500, cwd=tmp_path, check=False
    )
    assert done.stdout.startswith("specialized: wrong on "), done.stderr
