"""What outsiders met: each of their small files with the right answer, and further code of each kind."""

import importlib.util
from pathlib import Path

import pytest
import torch
from planted_own_code import checked

from recapture.base.errors import UsageError
from recapture.cases.own_code import OwnCode, TargetError, order_of_names
from recapture.cases.target import parse_input
from recapture.tools.check.examine_cell import with_last_line
from recapture.tools.check.report import check_details, check_line
from recapture.tools.check.request import CheckOptions, CheckRequest
from recapture.tools.check.session import prepare
from recapture.tools.check.source_facts import codes_of, mined
from recapture.tools.check.torchscript_message import OF_THE_INTERPRETER, cause
from recapture.tools.check.variants import variants

FILES = Path(__file__).parent / "resources" / "outsiders"
FURTHER = FILES / "further.py"


@pytest.fixture(scope="module")
def further():
    spec = importlib.util.spec_from_file_location("further", FURTHER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outsider(file, name, *inputs, example=None, **fields):
    place = FILES / file
    fields |= (
        {}
        if example is None
        else {"inputs_from": (str(place if example[0] is None else FILES / example[0]), example[1])}
    )
    return checked(name, *inputs, place=place, **fields)


def examined(pool, name, *inputs, **fields):
    request = CheckRequest(place=str(FURTHER), name=name, inputs=tuple(map(parse_input, inputs)), **fields)
    return prepare(pool, request, CheckOptions(timeout=100.0))


# --- code that refers to itself ---------------------------------------------------------------------------------------


def test_an_own_autograd_function_ends(served):
    result = outsider("own_autograd_function.py", "quantise", "4", compilers=("jit.trace", "compile:eager"))
    assert [row.verdict for row in result.rows] == ["pass", "pass"]


@pytest.mark.parametrize(
    ("name", "number"),
    [
        *(("left", 18), ("right", 19), ("of_meta", 20), ("nested", 21), ("even", 23)),
        *(
            ("with_a_cached_property", None),
            ("rounded", None),
            ("of_an_enum", None),
            ("of_a_tuple", None),
            ("itself", 26),
        ),
    ],
)
def test_reading_source_that_refers_to_itself_ends(further, name, number):
    numbers = mined(*codes_of(getattr(further, name)))
    assert number is None or number in numbers


def test_an_object_that_holds_all_of_torch_ends(served, tmp_path):
    path = tmp_path / "holder.py"
    path.write_text(
        "import sys\nimport torch\n\n\nclass Backend:\n    def __init__(self):\n        self.torch = torch\n"
        "        self.sys = sys\n\n\nBACKENDS = {'torch': Backend()}\n\n\n"
        "def f(x):\n    return BACKENDS['torch'].torch.relu(x)\n"
    )
    assert checked("f", "3", place=path, most_inputs=2, timeout=100.0)["jit.trace"].verdict == "pass"


def test_a_cache_of_a_package_in_another_folder_is_not_the_user_s_state(served, tmp_path):
    packages = tmp_path / "packages"
    (packages / "cached-1.0.dist-info").mkdir(parents=True)
    (packages / "cached.py").write_text(
        "CALLS = {}\n\n\ndef doubled(x):\n    CALLS[len(CALLS)] = 1\n    return x * 2\n"
    )
    path = tmp_path / "theirs.py"
    path.write_text(
        f"import sys\nsys.path.append({str(packages)!r})\nimport cached\n\n\ndef f(x):\n    return cached.doubled(x)\n"
    )
    assert checked("f", "3", place=path, most_inputs=2)["jit.trace"].verdict == "pass"
    (packages / "cached-1.0.dist-info").rmdir()
    assert checked("f", "3", place=path, most_inputs=2)["jit.trace"].verdict == "wrong"


@pytest.mark.parametrize("name", ["Strict", "make"])
def test_a_class_may_raise_anything_for_an_attribute_that_it_does_not_have(served, tmp_path, name):
    path = tmp_path / "theirs.py"
    path.write_text(
        "import torch\n\n\nclass Strict(torch.nn.Module):\n    def __getattr__(self, name):\n"
        "        raise RuntimeError(f'no {name}')\n\n    def forward(self, x):\n        return x * 2\n\n\n"
        "def make():\n    return Strict()\n"
    )
    result = checked(name, "3", place=path, compilers=("fx", "compile:eager"), most_inputs=3)
    assert result["fx"].verdict == "pass"
    # Torch's own: `torch.compile` asks for `_torchdynamo_orig_callable`, and raises what the class does.
    assert result["compile:eager"].verdict == "error"
    assert "no _torchdynamo_orig_callable" in result["compile:eager"].reason


def test_a_message_of_20_million_characters_is_cut(served, tmp_path):
    path = tmp_path / "theirs.py"
    path.write_text("def f(x):\n    raise ValueError('a b ' * 5_000_000)\n")
    with pytest.raises(UsageError, match=r"raises ValueError on its input \(line 2 of theirs.py\): a b a b .*…$"):
        checked("f", "3", place=path, timeout=50.0)


def test_a_long_traceback_of_torchscript_leaves_the_cause(served):
    """An attribute that nobody reads is not refreshed, which is no wrong value; the trace is of one rank."""
    row = outsider("refreshed_attribute.py", "audio_block", "1x2x8", most_inputs=60)["jit.trace"]
    assert row.words == "right on the example, fails loudly on first row alone"
    assert row.reason.startswith("call on first row alone: RuntimeError: ")
    assert "interpreter" not in row.reason


STACK = "torch/nn/modules/conv.py(370): forward\n"


@pytest.mark.parametrize(
    ("message", "whole", "said"),
    [
        (f"{STACK}RuntimeError: no room", f"{STACK}RuntimeError: no room", "no room"),
        (f"{STACK}more\n…", f"{STACK * 20}RuntimeError: no room\n", "no room"),
        (f"{STACK}mo…", f"{STACK * 20}RuntimeError: no room at /home/me/x.py", "no room at x.py"),
        (f"{STACK}…", f"{STACK * 20}RuntimeError: {'long ' * 200}", f"{('long ' * 57).rstrip()}…"),
        (f"{STACK}mo…", "another message", "another message"),
    ],
)
def test_the_last_line_of_a_message_that_was_cut_is_the_cause(message, whole, said):
    first = f"{OF_THE_INTERPRETER}\n"
    assert cause(with_last_line(first + message, first + whole), "RuntimeError") == said


def test_a_cause_that_no_record_has_is_not_made_of_the_end_of_a_frame():
    frame = "fails in the TorchScript interpreter, in torch/nn/modules/conv.py(370): forward"
    assert cause(f"{OF_THE_INTERPRETER}\n{STACK}torch/nn/mod…", "RuntimeError") == frame
    assert with_last_line("another message …", "another message that is long") == "another message …"


# --- arguments by name ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Net", "build", "minus"])
@pytest.mark.parametrize("inputs", ["named", "ordered"])
def test_a_dict_of_names_is_for_classes_and_factories_too(served, name, inputs):
    result = outsider("inputs_by_name.py", name, example=(None, inputs), compilers=("jit.trace", "jit.script"))
    assert [row.verdict for row in result.rows] == ["pass", "pass"]


@pytest.mark.parametrize(
    ("name", "inputs", "value", "by_name"),
    [
        ("KeywordOnly", "x_and_scale", 3.0, True),
        ("make_keyword_only", "x_and_scale", 3.0, True),
        ("WithDefaults", "a_and_c", 4.0, True),
        ("AN_INSTANCE", "a_and_c", 4.0, True),
        ("scaled", "x_and_shift", 4.0, True),
        ("make_function", "x_and_shift", 4.0, True),
        ("collects", "x_and_more", 5.0, True),
        ("scaled", "x_and_scale", 1.0, False),
    ],
)
def test_names_become_positions_or_stay_names(name, inputs, value, by_name):
    own = OwnCode(place=str(FURTHER), name=name, inputs_from=(str(FURTHER), inputs))
    own.names, own.by_name = order_of_names(own.load(), own.given())
    assert own.by_name is by_name
    target, example = own.load(), own.example()
    assert target(*example).tolist() == [value, value]
    if by_name:  # a tracer sees the names of the example alone, as every compiler does
        assert torch.fx.symbolic_trace(target)(*example).tolist() == [value, value]


@pytest.mark.parametrize("inputs", ["unknown_name", "missing_name"])
def test_names_that_do_not_fit_are_the_target_s_fault(served, inputs):
    own = OwnCode(place=str(FURTHER), name="KeywordOnly", inputs_from=(str(FURTHER), inputs))
    with pytest.raises(TargetError, match="the inputs do not fit: "):
        order_of_names(own.load(), own.given())
    with pytest.raises(UsageError, match="the inputs do not fit: "):
        checked("KeywordOnly", place=FURTHER, inputs_from=(str(FURTHER), inputs))


@pytest.mark.parametrize("inputs", ["x_and_scale", "of_a_tokenizer"])
def test_a_forward_with_names_alone_is_checked(served, inputs):
    result = checked("KeywordOnly", place=FURTHER, inputs_from=(str(FURTHER), inputs), compilers=("jit.trace", "fx"))
    assert [row.verdict for row in result.rows] == ["pass", "pass"]


# --- numbers that are sizes -------------------------------------------------------------------------------------------


def test_an_input_that_eager_cannot_afford_decides_nothing(served):
    result = outsider("huge_integer.py", "fill_last", "2", "=3", compilers=("compile:eager",))
    assert result["compile:eager"].verdict == "pass"
    assert "args[1]=1099511627776" in dict(result.report.unaffordable)
    assert "left out because eager needs too much time or memory" in result.report.inputs_in_words


@pytest.mark.parametrize(
    "name",
    ["zeros", "ones_of_a_list", "repeated", "expanded", "power", "arange", "filled_with_ones", "text", "padded"],
)
def test_a_size_without_bounds_is_left_out(served, name):
    prepared = examined(served, name, "2", "=3", most_inputs=60)
    unusable = {*dict(prepared.unaffordable), *dict(prepared.refused)}
    assert "args[1]=1099511627776" in unusable
    assert not {"args[1]=1099511627776"} & {*prepared.inputs, *prepared.other_ranks, *prepared.must_raise}


# --- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "example", "inputs"),
    [
        ("squared", None, ("4",)),
        ("two", ("same_tensor_twice.py", "same"), ()),
        ("two", ("same_tensor_twice.py", "same_grad"), ()),
    ],
)
def test_gradients_of_a_function_are_compared(served, name, example, inputs):
    row = outsider("function_gradients.py", name, *inputs, example=example, train=True, compilers=("compile:eager",))[
        "compile:eager"
    ]
    assert row.verdict == "wrong"
    assert "gradients.args[0] (gradient)" in row.differences[0]


def test_two_tensors_become_one_under_train(served):
    """The gradient is right for two tensors, and wrong where both are one."""
    result = outsider("function_gradients.py", "two", "4", "4", train=True, compilers=("compile:eager",))
    assert result["compile:eager"].wrong_on == ("args[1] is args[0]",)


@pytest.mark.parametrize(
    ("name", "inputs", "example", "gradients", "compared"),
    [
        ("doubled", ("4",), None, True, True),
        ("NoParameters", ("4",), None, True, True),
        ("Frozen", ("4",), None, True, True),
        ("OneParameter", ("4",), None, None, True),
        ("in_a_list", (), "pair_of_tensors", True, True),
        ("in_a_dict", (), "dict_of_tensors", True, True),
        ("doubled", ("4:complex64",), None, True, True),
        ("written", ("4",), None, False, False),
        ("detached", ("4",), None, True, False),
        ("counted", ("4",), None, True, False),
        ("of_integers", ("4:int64",), None, True, False),
    ],
)
def test_inputs_ask_for_gradients_and_it_is_said_where_none_are_compared(
    served, name, inputs, example, gradients, compared
):
    fields = {} if example is None else {"inputs_from": (str(FURTHER), example)}
    prepared = examined(served, name, *inputs, train=True, derive=False, **fields)
    assert prepared.calling.get("gradients") is gradients
    assert (not prepared.remarks) is compared
    assert compared or "--train compares no gradients" in prepared.remarks[0]


# --- tensors that share memory, sizes, pairs of numbers, subclasses -----------------------------------------------------


@pytest.mark.parametrize("name", ["KeepsItsActivation", "WithWeightNorm"])
def test_what_a_call_computes_and_keeps_has_no_gradient(served, name):
    result = outsider("further.py", name, "3x4", compilers=("compile:aot_eager",), train=True, most_inputs=2)
    assert not [text for text in result["compile:aot_eager"].differences if "gradient" in text]
    assert result["compile:aot_eager"].verdict == "pass"


def test_overlapping_arguments_are_tried(served):
    row = outsider("overlapping_views.py", "shift", example=(None, "apart"), compilers=("compile:aot_eager",))[
        "compile:aot_eager"
    ]
    assert row.wrong_on == ("args[1] overlaps args[0]",)
    assert row.advice.startswith("tensors that share memory")


def test_one_tensor_given_twice_stays_one():
    x = torch.rand(3)
    makers = variants((x, x))
    for name in ("negated", "batch=1", "zeros", "large"):
        first, second = makers[name]()
        assert first is second, name
    first, second = makers["args[0] negated"]()
    assert first is not second


def test_arguments_overlap_where_they_can():
    for shapes, overlapping in (
        (((4,), (4,)), True),
        (((2, 3), (3,)), True),
        (((4,), (2, 2)), True),
        (((1,), (4,)), False),
        (((), (4,)), False),
    ):
        args = tuple(torch.rand(shape) for shape in shapes)
        makers = variants(args)
        assert ("args[1] overlaps args[0]" in makers) is overlapping
        if overlapping:
            first, second = makers["args[1] overlaps args[0]"]()
            assert [tuple(first.shape), tuple(second.shape)] == list(shapes)
            before = second.clone()
            first.fill_(9)
            assert not second.equal(before)
    assert "args[1] overlaps args[0]" not in variants((torch.rand(4), torch.rand(4).double()))


def test_multiples_of_the_size_are_tried(served):
    row = outsider("patch_counts.py", "TinyPatches", "1x3x16x16")["jit.trace"]
    assert row.words.startswith("right on the example, fails loudly on last dimensions=32x32")


@pytest.mark.parametrize(
    ("shape", "name", "expected"),
    [
        ((2, 8), "dimension 1=16", (2, 16)),
        ((2, 8), "dimension 0=4", (4, 8)),
        ((2, 8), "last dimension=4", (2, 4)),
        ((2, 3, 5), "last dimensions=6x10", (2, 6, 10)),
        ((2, 3, 5), "dimension 2=10", (2, 3, 10)),
        ((2, 3, 5), "dimension 1=6", (2, 6, 5)),
        ((1, 3, 4, 6), "last dimensions=8x12", (1, 3, 8, 12)),
        ((1, 3, 4, 6), "last dimensions=12x18", (1, 3, 12, 18)),
        ((1, 3, 4, 6), "dimension 1=6", (1, 6, 4, 6)),
        ((5,), "dimension 0=10", (10,)),
    ],
)
def test_every_dimension_is_doubled(shape, name, expected):
    (variant,) = variants((torch.rand(shape),))[name]()
    assert tuple(variant.shape) == expected


def test_two_numbers_are_changed_together(served):
    row = outsider("two_numbers.py", "power", "3", "=2.0", "=2.0", compilers=("jit.script",))["jit.script"]
    assert "args[1]=-8.0, args[2]=0.5" in row.wrong_on


def test_a_process_that_ends_where_eager_raises_hides_no_other_input(served):
    """TorchScript divides by zero, which ends the process; it also refuses numbers of another type, loudly."""
    row = outsider("two_numbers.py", "remainder", "3", "=5", "=3", compilers=("jit.script",))["jit.script"]
    assert row.words.startswith("right on the example, fails loudly on args[")
    assert row.accepts_refused == ("args[2]=0 (eager raises): the process ends",)


@pytest.mark.parametrize(
    ("args", "pairs"),
    [
        ((2.0, 2.0), {"args[0]=-8.0, args[1]=0.5", "args[0]=-7.0, args[1]=3.0", "args[0]=7.0, args[1]=-3.0"}),
        ((2, 3), {"args[0]=-7, args[1]=3", "args[0]=7, args[1]=-3"}),
        ((2, 0.5), {"args[0]=-8, args[1]=0.5", "args[0]=-7, args[1]=3.0"}),
        (([2, 3],), {"args[0][0]=-7, args[0][1]=3"}),
        (({"a": 2, "b": 3.0},), {"args[0]['a']=-8, args[0]['b']=0.5"}),
        ((2, True), set()),
        ((2, "mean"), set()),
        ((2,), set()),
    ],
)
def test_pairs_of_numbers(args, pairs):
    names = {name for name in variants((torch.ones(1), *args)) if ", args" in name}
    shifted = {name.replace("args[1]", "args[2]").replace("args[0]", "args[1]") for name in pairs}
    assert shifted <= names
    assert bool(shifted) == bool(names)


class Tagged(torch.Tensor):
    """A subclass that leaves operators to torch."""


def test_tensors_of_a_subclass_are_derived():
    x = torch.arange(6.0).reshape(2, 3).as_subclass(Tagged)
    x.tag = "mine"
    makers = variants((x,))
    assert {"batch=1", "negated", "zeros", "last dimension=4", "non-contiguous"} <= makers.keys()
    (negated,) = makers["negated"]()
    assert type(negated) is Tagged
    assert negated.tag == "mine"
    assert negated.tolist() == (-x).tolist()


def test_it_is_said_of_which_tensors_nothing_is_derived(served, tmp_path):
    path = tmp_path / "theirs.py"
    path.write_text(
        "import torch\n\n\ndef f(x):\n    return x.sum()\n\n\n"
        "def sparse():\n    return (torch.eye(3).to_sparse(),)\n\n\n"
        "def wrapper():\n    from torch.testing._internal.two_tensor import TwoTensor\n\n"
        "    return (TwoTensor(torch.ones(2), torch.ones(2)),)\n"
    )
    for example, what in (("sparse", "torch.sparse_coo tensor"), ("wrapper", "TwoTensor")):
        request = CheckRequest(place=str(path), name="f", inputs_from=(str(path), example))
        prepared = prepare(served, request, CheckOptions())
        assert prepared.remarks == (f"args[0] is a {what}, of which no other inputs are derived",)


# --- memory that nothing was written to -----------------------------------------------------------------------------------


def test_uninitialised_memory_is_judged_by_its_shape(served):
    result = outsider("uninitialised.py", "raw", "2x4", compilers=("jit.trace", "compile:eager", "compile:dynamic"))
    assert "shapes and dtypes alone are judged" in result.report.remarks[0]
    assert len(result.report.inputs) > 10
    assert result["compile:eager"].differences[0].startswith("example: result (shape): eager (2, 4), this (2,)")
    right = outsider("uninitialised.py", "noise_like", "2x4", compilers=("jit.trace",))
    assert not right.report.remarks


@pytest.mark.parametrize(
    ("name", "form"),
    [
        *(
            (name, "tensor")
            for name in ("empty", "empty_like", "new_empty", "empty_strided", "half_written", "resized")
        ),
        ("two_empties", "2"),
        *((name, None) for name in ("filled", "copied", "as_a_shape")),
    ],
)
def test_memory_that_nothing_was_written_to_is_found(served, name, form):
    prepared = examined(served, name, "16x16", most_inputs=8)
    assert prepared.calling.get("form") == form
    assert len(prepared.inputs) + len(prepared.other_ranks) == 8


def test_an_example_of_100_gigabytes_without_memory_allocates_nothing(served):
    """The limit of 16 GiB for each process would end an attempt to allocate it."""
    result = checked("doubled", place=FURTHER, inputs_from=(str(FURTHER), "hundred_gigabytes"))
    assert [row.verdict for row in result.rows] == ["pass"]
    assert len(result.report.inputs) > 10
    assert not result.report.unaffordable


# --- what is said -----------------------------------------------------------------------------------------------------


def test_code_that_depends_on_earlier_calls_is_not_called_random(served):
    result = outsider("depends_on_calls.py", "Flip", "4", compilers=("compile:eager", "jit.trace"))
    row = result["compile:eager"]
    assert row.verdict == "specialized"
    assert (result["jit.trace"].verdict, result["jit.trace"].phase) == ("error", "capture")
    assert row.advice == result["jit.trace"].advice
    assert row.advice.startswith("the result depends on earlier calls")
    assert not result.report.random


def test_a_setting_that_an_exception_leaves_changed_is_found(served):
    result = outsider("autocast_after_error.py", "gather", example=(None, "example"), compilers=("compile:eager",))
    row = result["compile:eager"]
    assert "torch.autocast_cpu (state): eager leaves False, this leaves True" in row.differences[0]
    assert row.advice.startswith("a setting differs after the call")


def test_a_spread_that_being_watched_makes_excuses_nothing(served):
    """Under a mode that sees operators, the pseudoinverse of a complex matrix is another one, even without noise."""
    row = outsider("complex_pinv.py", "pseudo", example=(None, "example"), compilers=("compile:aot_eager",))[
        "compile:aot_eager"
    ]
    assert row.verdict == "wrong"
    assert "example" in row.wrong_on


def test_fx_knows_no_size_and_a_recording_keeps_that_of_its_example(served):
    result = outsider("further.py", "of_at_most_eight_rows", "4x3", compilers=("fx", "make_fx"))
    assert result["fx"].advice.startswith("a branch needs a value, size or device, which fx does not know")
    assert result["make_fx"].words.startswith("right on the example, fails loudly on batch=1")
    assert result["make_fx"].advice.startswith(
        "it recorded the path and sizes of the example, and batch=1 needs others"
    )


def test_a_condition_of_an_exported_program_is_told_from_another_kind_of_input(served):
    result = outsider("further.py", "of_another_size_than_ten", "4x5", compilers=("export:dynamic",))
    assert "!= 10" in result["export:dynamic"].reason
    assert result["export:dynamic"].advice.endswith("the program holds under the condition that the message names")
    result = outsider("further.py", "with_a_second_tensor", "4x5", "4x5", compilers=("export:dynamic",))
    assert result["export:dynamic"].input == "args[1]=None"
    assert result["export:dynamic"].advice.endswith("export once for each kind of input")


def test_the_cause_within_the_interpreter_of_torchscript_is_said(served):
    row = outsider("further.py", "with_a_second_tensor", "4x5", "4x5", compilers=("jit.trace",))["jit.trace"]
    assert row.words == "right on the example, fails loudly on args[1]=None"
    assert row.reason.startswith("call on args[1]=None: RuntimeError: Expected a proper Tensor but got None")


def test_lines_fit_a_terminal(served):
    result = outsider("two_numbers.py", "power", "3", "=2.0", "=2.0", compilers=("jit.script", "fx", "make_fx"))
    lines = [*map(check_line, result.rows), *check_details(result.report, verbose=True).splitlines()]
    assert len(lines) > 6
    assert max(map(len, lines)) <= 80


# --- what is called like a function -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["partial", "anonymous", "called", "method", "of_class", "decorated", "with_defaults", "case"],
)
def test_what_is_called_like_a_function_is_captured_as_one(served, name):
    """`torch.fx` sees the branch, and no arguments of a function around the target; a trace loses it."""
    result = outsider("callables.py", name, "3", compilers=("jit.trace", "fx"), most_inputs=8)
    assert result["jit.trace"].verdict == "specialized"
    assert "control flow" in result["fx"].reason


@pytest.mark.parametrize("name", ["builtin", "operator", "overload", "sequential", "forward"])
def test_operators_and_modules_that_a_file_makes_are_right(served, name):
    result = outsider("callables.py", name, "3", compilers=("jit.trace", "fx"), most_inputs=8)
    assert [row.verdict for row in result.rows] == ["pass", "pass"]


@pytest.mark.parametrize(("function", "what"), [("yields", "yields its values"), ("nothing", "returns None")])
def test_a_function_of_inputs_that_returns_none_is_one_line(served, function, what):
    with pytest.raises(UsageError, match=f"--inputs: {function} {what}: return the arguments as a tuple"):
        outsider("callables.py", "builtin", example=(None, function))
