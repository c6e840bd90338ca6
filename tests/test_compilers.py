"""Every compiler that ships: it captures functions and modules, says what it is, and prints itself."""

import importlib.util
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

from recapture.cases import compilers
from recapture.cases.compiler import COMPILERS_ATTRIBUTE, OTHER_STAGE, Family, compiler
from recapture.cases.compilers import EAGER, builtin_compilers, compiler_facts, compilers_of, plain_name
from recapture.cases.compilers.export import as_module
from recapture.torch_api.compat import release, reset_dynamo

NAMES = [
    "eager", "compile", "compile:fullgraph", "compile:dynamic", "compile:reduce-overhead", "compile:max-autotune",
    "compile:max-autotune-no-cudagraphs", "compile:eager", "compile:aot_eager", "jit.trace", "jit.script",
    "jit.trace:frozen", "jit.script:frozen", "fx", "fx:concrete_args", "make_fx", "export", "export:strict",
    "export:nonstrict", "export:dynamic", "aoti", "aoti:dynamic", "aoti:checked", "onnx",
]  # fmt: skip

ROOT = Path(__file__).resolve().parents[1]
COMPILERS = builtin_compilers()
EXTRA = ("onnx", "onnxscript", "onnxruntime")
ONNX_PYTHON = os.environ.get("RECAPTURE_ONNX_PYTHON")
HAS_ONNX = all(importlib.util.find_spec(name) for name in EXTRA)

pytestmark = pytest.mark.filterwarnings("ignore")


def each(names=NAMES):
    """Every compiler once: those that generate code are slow, one of them needs the extra."""
    for name in names:
        marks = [pytest.mark.slow] if COMPILERS[name].generates_code else []
        if name == "onnx":
            marks.append(pytest.mark.skipif(not HAS_ONNX, reason="the onnx extra is not installed here"))
        yield pytest.param(name, marks=marks)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    reset_dynamo()
    yield
    reset_dynamo()


def sine(x, y):
    return torch.sin(x) + torch.cos(y), {"sum": x.sum()}


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, x):
        return torch.relu(self.linear(x))


def scaled(x, scale, flag):
    return x * scale if flag else x


def test_the_names_are_these_in_this_order():
    assert list(COMPILERS) == NAMES


def test_some_run_only_when_they_are_named():
    optional = {"compile:max-autotune-no-cudagraphs", "jit.trace:frozen", "jit.script:frozen"}
    optional |= {"aoti:dynamic", "aoti:checked"}
    assert {name for name, declared in COMPILERS.items() if declared.optional} == optional
    assert COMPILERS["onnx"].requires == EXTRA


def test_what_is_known_of_each_is_right():
    dynamo = {name for name in NAMES if name.split(":")[0] == "compile"} | {"export:strict"}
    assert {name for name, declared in COMPILERS.items() if declared.uses_dynamo} == dynamo
    assert [name for name, declared in COMPILERS.items() if not declared.checks_inputs] == [
        "aoti",
        "aoti:dynamic",
        "aoti:checked",
    ]
    assert [name for name, declared in COMPILERS.items() if declared.sees_held_out] == [
        "export:dynamic",
        "aoti:dynamic",
    ]
    own_copy = {name for name in NAMES if name.split(":")[0] in ("export", "aoti", "onnx")}
    own_copy |= {"jit.trace:frozen", "jit.script:frozen"}
    assert {name for name, declared in COMPILERS.items() if not declared.shares_state} == own_copy


def test_results_of_onnx_are_on_the_devices_that_the_exported_program_names(monkeypatch):
    def f(x):
        return x + 1, torch.zeros(2, device="meta"), 3

    class Program:
        """Computes on the CPU, as ONNX Runtime does."""

        exported_program = torch.export.export(as_module(f), (torch.ones(2),))

        def __call__(self, x):
            return x + 1, torch.zeros(2)

    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: Program())
    first, second, third = COMPILERS["onnx"].function(f, (torch.ones(2),))(torch.ones(2))
    assert (first.tolist(), first.device.type, second.device.type, third) == ([2.0, 2.0], "cpu", "meta", 3)


def test_every_file_declares_some():
    files = [path.stem for path in Path(compilers.__file__).parent.glob("*.py") if path.stem != "__init__"]
    for name in files:
        assert getattr(importlib.import_module(f"recapture.cases.compilers.{name}"), COMPILERS_ATTRIBUTE)
    assert len(files) == 5


def test_every_family_has_a_compiler_and_the_reference_is_eager():
    assert {declared.family for declared in COMPILERS.values()} == set(Family)
    assert [name for name, declared in COMPILERS.items() if declared.is_reference] == [EAGER]


@pytest.mark.parametrize("name", [name for name, declared in COMPILERS.items() if declared.arguments])
def test_the_arguments_in_a_declaration_are_those_of_the_call(name, monkeypatch):
    calls = []

    class Program:
        def module(self):
            return None

    def capture(*_, **arguments):
        calls.append({key: value for key, value in arguments.items() if key != "dynamic_shapes"})
        return Program()

    monkeypatch.setattr(torch, "compile", capture)
    monkeypatch.setattr(torch.export, "export", capture)
    COMPILERS[name].capture(lambda x: x, (torch.ones(2),))
    assert calls == [COMPILERS[name].arguments]


def test_a_variant_without_declared_arguments_passes_none(monkeypatch):
    calls = []
    monkeypatch.setattr(torch, "compile", lambda *_, **arguments: calls.append(arguments))
    for declared in COMPILERS.values():
        if declared.family == Family.DYNAMO and not declared.arguments:
            declared.capture(len, ())
    assert calls == [{}]


@pytest.mark.parametrize("name", ["export", "export:dynamic", "aoti", "aoti:dynamic", "aoti:checked"])
def test_what_names_no_mode_exports_as_the_release_does_by_default(name, monkeypatch):
    calls = []

    class Program:
        def module(self):
            return None

    def exporting(*_, **arguments):
        calls.append(arguments.keys() - {"dynamic_shapes"})
        return Program()

    monkeypatch.setattr(torch.export, "export", exporting)
    inductor = types.SimpleNamespace(
        aoti_compile_and_package=lambda program: program, aoti_load_package=lambda package: package
    )
    monkeypatch.setattr(torch, "_inductor", inductor, raising=False)
    COMPILERS[name].capture(sine, (torch.ones(2), torch.ones(2)))
    assert calls == [set()]


class BreaksTheGraph(torch.nn.Module):
    """The strict call has Dynamo read this and refuses it; the other call runs it."""

    def forward(self, x):
        torch._dynamo.graph_break()
        return x + 1


def test_export_is_strict_exactly_on_releases_whose_default_is():
    strict = release() < (2, 8)

    def outcome(name):
        try:
            COMPILERS[name].capture(BreaksTheGraph(), (torch.ones(2),))
        except Exception as error:
            return type(error).__name__
        return "captured"

    assert outcome("export:strict") != outcome("export:nonstrict") == "captured"
    assert outcome("export") == outcome("export:strict" if strict else "export:nonstrict")


def test_a_compiler_of_a_user_has_the_family_that_it_declares():
    def own(fn, example):
        return fn

    module = types.SimpleNamespace()
    namespace = sys.modules[__name__].__dict__
    try:
        compiler("mine", family="dynamo", last_stage="aot_autograd")(own)
        compiler("with-a-backend", family="dynamo", last_stage=OTHER_STAGE)(own)
        compiler("compile:mine")(own)
        compiler("elsewhere", family="tvm")(own)
        setattr(module, COMPILERS_ATTRIBUTE, namespace.pop(COMPILERS_ATTRIBUTE))
    finally:
        namespace.pop(COMPILERS_ATTRIBUTE, None)
    declared = compilers_of(module)
    assert [(candidate.family, candidate.last_stage, candidate.frontend) for candidate in declared.values()] == [
        (Family.DYNAMO, "aot_autograd", "torch.compile"),
        (Family.DYNAMO, "other", "torch.compile"),
        (Family.DYNAMO, "inductor", "torch.compile"),
        ("tvm", None, "tvm"),
    ]


def test_of_a_compiler_whose_file_is_gone_the_name_tells_the_family():
    assert compiler_facts("compile:mine").family is Family.DYNAMO
    assert compiler_facts("aoti:mine").records_a_run
    assert compiler_facts("mine:fast").family == compiler_facts("mine").family == "mine"
    assert [plain_name(name) for name in ("compile:eager", "aoti:dynamic", "compile:mine", "mine:fast", "mine")] == [
        "compile", "aoti", "compile", "mine", "mine"
    ]  # fmt: skip
    facts = compiler_facts("mine")
    assert (facts.records_a_run, facts.torch_alone, facts.is_reference, facts.last_stage) == (False, False, False, None)


def test_facts_need_no_torch():
    code = "from recapture.cases.compilers import compiler_facts as f; f('aoti'); import sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_case_and_a_compiler_need_the_standard_library_alone():
    code = """
import sys
import recapture.cases.case, recapture.cases.compilers, recapture.records.kinds, recapture.records.verdicts
recapture.cases.compilers.builtin_compilers()
names = {name.partition(".")[0] for name in sys.modules} - {"recapture", *sys.stdlib_module_names}
print(*sorted(name for name in names if not name.startswith("_")))
"""
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], check=False, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", NAMES)
def test_each_describes_itself_in_one_sentence(name):
    text = COMPILERS[name].describe()
    assert text == text.strip()
    assert text.endswith(".")
    assert "\n" not in text
    assert 10 < len(text) < 120


def check_capture(name, capture):
    torch.manual_seed(0)
    inputs = torch.rand(4, 3), torch.rand(4, 3)
    function = one_tensor if name.startswith("jit") else sine  # TorchScript has no tuple of a tensor and a dict
    expected = function(*inputs)
    result = capture(function, tuple(tensor.clone() for tensor in inputs))(*inputs)
    assert type(result) is type(expected)
    torch.testing.assert_close(result, expected)
    module = Linear().eval()  # nothing else can be frozen
    torch.testing.assert_close(capture(module, (inputs[0],))(inputs[0]), module(inputs[0]))


def one_tensor(x, y):
    return torch.sin(x) + torch.cos(y)


@pytest.mark.parametrize("name", list(each()))
def test_each_captures_a_function_and_a_module(name):
    check_capture(name, COMPILERS[name].capture)


@pytest.mark.parametrize("name", list(each()))
def test_each_prints_source_that_captures(name):
    source = COMPILERS[name].to_source()
    assert "recapture" not in source
    assert "@compiler" not in source
    names = {"__name__": "bare"}
    exec(compile(source, "bare", "exec", dont_inherit=True), names)
    check_capture(name, names[COMPILERS[name].function_name])


@pytest.mark.parametrize("name", NAMES)
def test_the_printed_source_ends_with_the_capture_function(name):
    last = COMPILERS[name].to_source().rstrip().split("\ndef ")[-1]
    assert last.startswith(COMPILERS[name].function_name + "(")


def test_concrete_arguments_are_those_that_are_named_or_hold_no_tensor():
    x = torch.ones(3)
    capture = COMPILERS["fx:concrete_args"].capture
    everything = capture(scaled, (x, 2.0, True))
    assert torch.equal(everything(x, 2.0, True), x * 2)
    assert not [
        node
        for node in everything.graph.nodes  # type: ignore[attr-defined]
        if node.op == "placeholder" and node.target == "scale" and node.users
    ]
    named = capture(scaled, (x, 2.0, True), concrete_args=("flag",))
    assert torch.equal(named(x, 5.0, True), x * 5)
    module = capture(Linear(), (torch.ones(1, 3),))
    assert module(torch.ones(1, 3)).shape == (1, 2)


NESTED = {"dim": 0, "deep": [1, (2.0, None)], "kind": "sum"}


def reduced(x, pair, options, dtype):
    return (x.sum(options["dim"]) + pair[1] + options["deep"][1][0]).to(dtype)


def test_arguments_of_nested_plain_values_are_concrete_and_checked_at_each_call():
    example = (torch.ones(3), (0, 1), NESTED, torch.float64)
    captured = COMPILERS["fx:concrete_args"].capture(reduced, example)
    assert torch.equal(captured(torch.ones(4), *example[1:]), torch.tensor(7.0, dtype=torch.float64))
    for changed_inputs in (
        (torch.ones(3), (0, 2), NESTED, torch.float64),
        (torch.ones(3), (0, 1), {**NESTED, "deep": [1, (3.0, None)]}, torch.float64),
        (torch.ones(3), (0, 1), NESTED, torch.float32),
    ):
        with pytest.raises(AssertionError, match="has been specialized to have value"):
            captured(*changed_inputs)


@pytest.mark.parametrize(
    ("value", "chosen"),
    [
        (1, True),
        (1j, True),
        ("a", True),
        (None, True),
        (torch.float64, True),
        ([1, {"a": (None, "b")}], True),
        (torch.ones(1), False),
        ([1, torch.ones(1)], False),
        ([], False),  # torch.fx has nothing to check
        ({}, False),
        ({1}, False),  # torch.fx does not check it
        (len, False),
    ],
)
def test_an_argument_is_concrete_where_torch_checks_it(value, chosen):
    def first(x, y):
        return x + 1

    captured = COMPILERS["fx:concrete_args"].capture(first, (torch.ones(1), value))
    checks = [node for node in captured.graph.nodes if node.op == "call_function" and "assert" in node.target.__name__]  # type: ignore[attr-defined]
    assert bool(checks) == chosen


def test_a_concrete_argument_that_the_example_leaves_out_has_its_default():
    def added(x, n=2):
        return x + n if n else x

    captured = COMPILERS["fx:concrete_args"].capture(added, (torch.ones(1),), concrete_args=("n",))
    assert torch.equal(captured(torch.ones(1)), torch.tensor([3.0]))


def test_those_for_inference_alone_say_so():
    alone = {name for name, declared in COMPILERS.items() if declared.inference_only}
    assert alone == {"aoti", "aoti:dynamic", "aoti:checked", "onnx", "jit.trace:frozen", "jit.script:frozen"}


@pytest.mark.parametrize("name", ["export", "export:strict", "export:nonstrict"])
def test_what_is_exported_keeps_containers_and_refuses_other_sizes(name):
    captured = COMPILERS[name].capture(sine, (torch.ones(2), torch.ones(2)))
    assert set(captured(torch.zeros(2), torch.zeros(2))[1]) == {"sum"}
    with pytest.raises(Exception, match=r"(?i)guard|expected|size|shape"):
        captured(torch.zeros(3), torch.zeros(3))


ONNX_PROGRAM = """
import collections, json, logging, sys, warnings
import torch
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
from recapture.cases.compilers import builtin_compilers

Pair = collections.namedtuple("Pair", "a b")
x = torch.rand(4, 3)

def nested(x):
    return {"a": x + 1, "none": None, "list": [x.sum(), (x > 0.5, x.long())]}

def named(x):
    return Pair(x * 2, x - 1)

def several(xs, n):
    return [one * n for one in xs.values()]

def in_place(x):
    x.add_(1)
    return x * 2

capture = builtin_compilers()["onnx"].capture
for function, inputs in ((nested, (x,)), (named, (x,)), (several, ({"k": x, "l": x + 1}, 3)), (lambda x: x, (x,))):
    expected, result = function(*inputs), capture(function, inputs)(*inputs)
    assert type(result) is type(expected), (result, expected)
    assert result.keys() == expected.keys() and result["none"] is None if function is nested else True
    torch.testing.assert_close(result, expected)
module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
torch.testing.assert_close(capture(module, (x,))(x), module(x))
captured = capture(several, ({"k": x}, 3))
torch.testing.assert_close(captured({"k": x}, 5), [x * 3])  # the number is burnt in, silently
try:
    captured({"k": torch.ones(5, 5)}, 3)
except Exception as error:
    print(type(error).__name__)
given = torch.zeros(2)
assert torch.equal(capture(in_place, (torch.zeros(2),))(given), torch.full((2,), 2.0)) and given.sum() == 0
"""


def test_onnx_gives_results_in_eagers_containers():
    python = sys.executable if HAS_ONNX else ONNX_PYTHON
    if python is None:
        pytest.skip("the onnx extra is not installed here, and RECAPTURE_ONNX_PYTHON names no interpreter that has it")
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [python, "-c", ONNX_PROGRAM],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["InvalidArgument"]


# --- compilers of one's own ----------------------------------------------------------------------------------------


def test_a_compiler_of_ones_own_needs_a_name_and_a_function():
    module = types.ModuleType("own_compilers")
    sys.modules[module.__name__] = module
    try:
        exec(
            "from recapture import compiler\n\n\n@compiler('mine', since='2.2', optional=True)\ndef capture(fn, example):\n"
            '    """Mine."""\n    return fn\n',
            vars(module),
        )
    finally:
        del sys.modules[module.__name__]
    (declared,) = compilers_of(module).values()
    assert (declared.name, declared.since, declared.optional, declared.describe(), declared.function_name) == (
        "mine",
        "2.2",
        True,
        "Mine.",
        "capture",
    )
    assert declared.capture(len, ()) is len
    module.__dict__[COMPILERS_ATTRIBUTE].append(declared)
    with pytest.raises(ValueError, match="two compilers are named 'mine'"):
        compilers_of(module)


def test_the_list_of_compilers_needs_no_torch():
    program = "import sys\nfrom recapture.cases.compilers import builtin_compilers\nassert len(builtin_compilers()) == 24\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, cwd=Path(__file__).parents[1]).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("",), "a compiler's name is not text"),
        ((3,), "a compiler's name is not text but 3"),
        (("a" * 300,), "compiler 'aaaaaaaaaaaaaaaaaaaa…': its name has 300 characters, and 100 are allowed"),
        (("a,b",), "compiler 'a,b': its name has a comma"),
        (("a::b",), "compiler 'a::b': its name has a comma, two colons"),
        ((" a",), "compiler ' a': its name has .* outer blanks"),
        (("mine", "since"), "compiler 'mine': since is not a release such as '2.6' but 2.6"),
        (("mine", "requires"), "compiler 'mine': requires is not a list of names but 'onnx'"),
        (("mine", "unavailable"), "compiler 'mine': unavailable is not a callable but 3"),
    ],
)
def test_a_wrong_declaration_names_the_compiler(arguments, says):
    wrong = {"since": 2.6, "requires": "onnx", "unavailable": 3}
    name, *keys = arguments
    with pytest.raises(TypeError, match=says):
        compiler(name, **{key: wrong[key] for key in keys})
