"""Whether two sides of a user's code give the same numbers, where they first differ, and whether rounding explains it."""

import json

import pytest
import torch
from command_lines import recapture

from benchmarks.drift import PLANTS, compared
from benchmarks.drift_training import FAULTS, Fault, at_call, is_placed, trained
from recapture.base.errors import UsageError
from recapture.machine.pins import find_release
from recapture.tools.drift import recording
from recapture.tools.drift.alignment import aligned, differing_places
from recapture.tools.drift.answer import DriftReport
from recapture.tools.drift.causes import Trial, find_first_release, settings_to_try
from recapture.tools.drift.drift_command import SideOptions, TrainingOptions, parse_setting, two_sides
from recapture.tools.drift.facts import Operator, Part, Raised, SideReport, Step
from recapture.tools.drift.report import to_markdown, to_page
from recapture.tools.drift.side import SWITCHES, switched_off
from recapture.tools.drift.training_steps import first_step_that_differs

NET = """
import os
import random
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.tanh(self.first(x))

class Other(Net):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 9)

def fails(x):
    raise RuntimeError("never")

def in_any_order(x):
    columns = list(range(x.shape[1]))
    random.SystemRandom().shuffle(columns)
    return x[:, columns].sum(1)

class AddsInAnyOrder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(64, 64)) for _ in range(8)])

    def forward(self, x):
        for weight in self.weights:
            terms = x[:, :, None] * weight
            order = list(range(64))
            random.SystemRandom().shuffle(order)
            total = torch.zeros_like(x)
            for index in order:
                total = total + terms[:, index]
            x = (total - total.mean(0)) / total.std(0)
        return x

def with_one_thread(x):
    if torch.get_num_threads() > 1:
        raise RuntimeError("too many threads")
    return x

def with_a_fault_if_compiled(x):
    is_wrong = torch.compiler.is_compiling() and os.environ["FAULT"] == "yes"
    return x * 3 if is_wrong else x * 2

def in_bfloat16(x):
    return torch.tanh(x.bfloat16() @ x.bfloat16().T)
"""


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(NET)
    return path


# --- planted changes, in this process --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "gelu: tanh approximation",
        "gelu: float64",
        "layer norm backward",
        "convolution: bias",
        "rsqrt: formula",
        "sum: promotion",
        "random stream",
    ],
)
def test_a_planted_change_is_placed_at_its_operator_and_called_by_its_kind(name, capsys):
    plant = PLANTS[name]
    report = compared(plant.target, name)
    assert report.verdict == plant.kind
    assert plant.operator in report.place.name
    assert report.place.name in report.sentence
    if name != "convolution: bias":  # the model has two convolutions, so that no place alone explains its end
        # A result of another dtype cannot be put in.
        assert report.place.explains == (None if plant.kind == "form" else "same bits")
    page = to_page(report)
    assert "<svg" in page
    assert "## First place" in to_markdown(report)


@pytest.mark.parametrize("target", ["Attention", "Convolutions", "Words", "Dropping"])
def test_a_pair_without_a_change_has_the_same_bits(target):
    report = compared(target)
    assert report.verdict == "same bits"
    assert not report.streams
    assert not report.initial


# --- the alignment ---------------------------------------------------------------------------------------------------


def call(name, takes, gives, form="float32[2]"):
    return Operator(name=name, takes=tuple(takes), gives=tuple(gives), forms=(form,))


def test_the_first_place_is_where_inputs_agree_and_results_do_not():
    old = [call("a", "x", "1"), call("b", "1", "2"), call("c", "2", "3")]
    new = [call("a", "x", "1"), call("b", "1", "9"), call("c", "9", "8")]
    assert [(place.old, place.new) for place in differing_places(old, new)] == [((1,), (1,))]


def test_operators_that_stand_for_one_are_compared_as_a_group():
    old = [call("a", "x", "1"), call("addmm", "1w", "2"), call("c", "2", "3")]
    new = [call("a", "x", "1"), call("mm", "1w", "7"), call("add", "7", "2"), call("c", "2", "3")]
    assert list(differing_places(old, new)) == []
    new[2], new[3] = call("add", "7", "9"), call("c", "9", "8")
    assert [(place.old, place.new) for place in differing_places(old, new)] == [((1,), (1, 2))]


def test_a_kernel_in_place_of_many_operators_is_the_first_place_if_all_before_it_agrees():
    old = [call("mm", "x", "1"), call("bmm", "view", "2"), call("softmax", "2", "3"), call("out", "3", "4")]
    new = [call("mm", "x", "1"), call("attention", "1", ("7", "8")), call("out", "7", "9")]
    assert [(place.old, place.new) for place in differing_places(old, new)] == [((1, 2), (1,))]
    new[2] = call("out", "3", "4")  # the same numbers in another layout
    assert list(differing_places(old, new)) == []


def test_equal_sequences_are_aligned_one_by_one():
    calls = [call("a", "x", "1") for _ in range(1000)]
    assert aligned(calls, calls)[-1] == (range(999, 1000), range(999, 1000))


# --- training --------------------------------------------------------------------------------------------------------


def step(bits, number, spread=0.0):
    return Step(loss="1", tensors={"gradient of w": (bits, (number,))}, spread={"gradient of w": spread})


def test_a_training_step_beyond_the_spread_is_named_and_one_within_is_rounding():
    old = [step("a", 1.0), step("b", 2.0), step("c", 3.0)]
    within = [step("a", 1.0), step("x", 2.0 + 1e-5, 1e-5), step("y", 3.0 + 1e-4, 1e-4)]
    difference = first_step_that_differs(old, within)
    assert (difference.step, difference.beyond) == (2, False)
    within[2] = step("y", 3.1, 1e-4)
    difference = first_step_that_differs(old, within)
    assert (difference.step, difference.name, difference.beyond) == (3, "gradient of w", True)
    assert first_step_that_differs(old, old) is None


@pytest.mark.parametrize("name", ["NaN at step 7", "stale buffer", "epsilon of AdamW"])
def test_a_planted_fault_of_a_training_is_placed_at_its_step_and_tensor(name):
    assert is_placed(name, trained(name))


def test_a_training_that_raises_is_told_with_its_step_and_the_exception(monkeypatch):
    def stop(module):
        raise ValueError(f"no batch for {type(module).__name__}")

    monkeypatch.setitem(FAULTS, "broken", Fault(3, "", module=at_call(3, stop)))
    report = trained("broken")
    assert report.verdict == "changed"
    assert report.sentence.endswith("; broken raises ValueError in step 3")
    assert "- broken, step 3: ValueError: no batch for Trained" in to_markdown(report)


def test_trainings_that_raise_alike_are_compared_up_to_there():
    raised = SideReport(raised=Raised("ValueError", "no batch", step=3))
    report = DriftReport(target="f.py:Net", sides=("old", "new"), about=(raised, raised), steps=9)
    assert report.sentence == (
        "f.py:Net, old → new: the same bits over 2 training steps; old raises ValueError in step 3; new raises ValueError "
        "in step 3"
    )
    assert "- new, step 3: ValueError: no batch" in to_markdown(report)


def test_a_training_in_another_order_of_sums_is_rounding_and_names_the_operator():
    report = trained(operator="tanh: formula")
    assert report.verdict == "rounding"
    assert "tanh" in report.place.name


# --- because of what -------------------------------------------------------------------------------------------------


def test_the_first_release_is_found_by_bisection_and_what_cannot_be_tried_is_named():
    releases = {version: find_release(version) for version in ("2.6.0", "2.7.1", "2.8.0", "2.9.0", "2.9.1", "2.11.0")}
    old, new = releases["2.6.0"], releases["2.11.0"]
    tried = []

    def differs(image):
        tried.append(image)
        return image in (releases["2.9.1"], new)

    present = [releases[version] for version in ("2.7.1", "2.8.0", "2.9.0", "2.9.1")]
    result = find_first_release(old, new, present, differs)
    assert (result.last, result.first, result.untried) == ("2.9.0", "2.9.1", ())
    assert len(tried) == 2
    result = find_first_release(old, new, [], differs)
    assert (result.last, result.first) == ("2.6.0", "2.11.0")
    assert "2.8.0" in result.untried


def test_a_release_that_cannot_run_the_target_is_left_out_of_the_bisection():
    def differs(image):
        raise UsageError("no such operator")

    old, new = find_release("2.6.0"), find_release("2.8.0")
    result = find_first_release(old, new, [find_release("2.7.1")], differs)
    assert (result.last, result.first) == ("2.6.0", "2.8.0")
    assert "2.7.1" in result.untried


def test_a_setting_has_a_value_for_both_sides_or_one_for_each():
    assert parse_setting("threads=1,4") == ("threads", ("1", "4"))
    assert parse_setting("ATEN_CPU_CAPABILITY=default") == ("ATEN_CPU_CAPABILITY", ("default",))
    for text in ("threads=many", "onednn=perhaps", "lower=1", "A=1,2,3", "threads"):
        with pytest.raises(UsageError, match="--setting"):
            parse_setting(text)


@pytest.mark.slow
def test_vector_kernels_are_named_as_the_cause_of_other_bits(net, capsys):
    setting = "ATEN_CPU_CAPABILITY=default,avx2"
    net.write_text(NET.replace("torch.tanh(self.first(x))", "torch.nn.functional.layer_norm(self.first(x), (8,))"))
    assert recapture("drift", f"{net}:Net", "--input", "64x8", "--setting", setting, "--why", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "rounding"
    assert document["causes"] == ["vectorised kernels of ATen"]


NUMPY = """
import numpy as np
import torch

def scale(x):
    return x * float((np.float32(0.1) * 3.0 - 0.3) * 1e8)  # float64 before numpy 2, float32 since
"""


@pytest.mark.slow
def test_a_side_that_rounds_otherwise_in_each_call_is_compared_and_named(net, capsys):
    words = ("--input", "64x4096", "--setting", "threads=1,2")
    assert recapture("drift", f"{net}:in_any_order", *words) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "threads=1 gives other bits in each call, within rounding." in text
    assert "nothing can be compared" not in text


@pytest.mark.slow
def test_what_one_layer_adds_in_another_order_and_the_next_make_larger_is_rounding(net, capsys):
    words = ("--input", "32x64", "--setting", "threads=1,2")
    assert recapture("drift", f"{net}:AddsInAnyOrder", *words) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "threads=2 gives other bits in each call, within rounding." in text
    assert "10 of 18 rounding" in text


@pytest.mark.slow
def test_of_two_compiled_sides_the_one_that_differs_from_its_own_eager_mode_is_named(net, capsys):
    sides = ("--setting", "FAULT=no,yes", "--compiler", "compile:aot_eager", "--json")
    assert recapture("drift", f"{net}:with_a_fault_if_compiled", "--input", "4", *sides) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "changed"
    assert document["against_eager"] == ["same bits", "changed"]
    assert document["causes"] == ["the compiled code of FAULT=yes"]
    assert document["sentence"].endswith("because of the compiled code of FAULT=yes")


@pytest.mark.slow
def test_an_exception_of_one_side_is_told_with_its_message(net, capsys):
    assert recapture("drift", f"{net}:with_one_thread", "--input", "4", "--setting", "threads=1,2") == 0
    assert "threads=2: RuntimeError: too many threads" in capsys.readouterr().out


@pytest.mark.slow
def test_a_first_place_that_computes_in_few_bits_is_told_with_its_dtype(net, capsys):
    settings = ("--setting", "onednn=on,off", "--why", "--json")
    assert recapture("drift", f"{net}:in_bfloat16", "--input", "64x512", *settings) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "rounding"
    assert document["causes"] == ["oneDNN"]
    assert ", in bfloat16, because of oneDNN" in document["sentence"]


def sides_on(old, new, digits, *trials):
    """Return a report of two devices whose only part agrees to some digits, with trials: a name and its digits."""
    about = tuple(SideReport(torch="2.11.0", settings={"device": device}) for device in (old, new))
    return DriftReport(
        target="net.py:Net",
        sides=("cpu", "cuda"),
        about=about,
        parts=(Part(name="result", verdict="rounding", digits=digits),),
        trials=tuple(Trial(name=name, kind="setting", verdict="rounding", digits=more) for name, more in trials),
    )


def test_what_makes_most_of_the_difference_is_named_though_rounding_is_left_without_it():
    report = sides_on("cpu", "NVIDIA H200", 2.1, ("TF32", 5.8), ("cuDNN", 2.4))
    assert report.causes == ("TF32",)
    assert "without TF32: rounding, 5.8 digits agree" in to_markdown(report)
    alike = sides_on("cpu", "NVIDIA H200", 5.5, ("TF32", 5.8), ("cuDNN", 5.4))
    assert alike.causes == ("the device (cpu → NVIDIA H200)",)


def test_a_gpu_is_tried_without_tf32_cudnn_and_short_sums_and_a_cpu_without_its_own_kernels():
    names = [name for name, _, _ in settings_to_try({"cpu", "cuda"})]
    assert names == ["TF32", "cuDNN", "sums of bfloat16 and float16 in fewer bits"]
    assert "oneDNN" in [name for name, _, _ in settings_to_try({"cpu"})]
    for _, _, without in (*settings_to_try({"cuda"}), *settings_to_try({"cpu"})):
        assert set(without) <= set(SWITCHES)


def test_libraries_are_switched_off_until_the_context_ends():
    before = torch.backends.cudnn.enabled, torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    with switched_off(("cuDNN", "reduced sums", "oneDNN")):
        assert not torch.backends.cudnn.enabled
        assert not torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
        assert not torch.backends.mkldnn.enabled
    after = torch.backends.cudnn.enabled, torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    assert before == after
    assert torch.backends.mkldnn.enabled


def test_tf32_is_switched_off_by_a_variable_that_a_target_cannot_change():
    options = SideOptions(settings=("tf32=on,off", "cudnn=off"), devices="cuda")
    old, new = two_sides(options, TrainingOptions())
    assert (old.name, new.name) == ("tf32=on", "tf32=off")
    assert (old.variables, new.variables) == ({}, {"NVIDIA_TF32_OVERRIDE": "0"})
    assert old.without == new.without == ("cuDNN",)


@pytest.mark.slow
def test_of_two_sets_of_packages_the_one_that_changes_the_numbers_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scale.py").write_text(NUMPY)
    (tmp_path / "a.txt").write_text("numpy==1.26.4\n")
    (tmp_path / "b.txt").write_text("numpy==2.2.6\n")
    words = ("drift", "scale.py:scale", "--input", "4x8", "--with", "a.txt", "--with", "b.txt", "--why", "--json")
    assert recapture(*words, "--fail-on", "changed") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["causes"] == ["numpy 1.26.4 → 2.2.6"]


# --- the command -----------------------------------------------------------------------------------------------------


def test_a_saved_side_is_compared_with_another_run_and_with_other_weights_in_one_line(net, tmp_path, capsys):
    saved = tmp_path / "saved"
    assert recapture("drift", f"{net}:Net", "--input", "2x8", "--save", saved) == 0
    assert recapture("drift", f"{net}:Net", "--input", "2x8", "--against", saved, "--json") == 0
    document = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert document["verdict"] == "same bits"
    assert document["about"][0]["torch"] == document["about"][1]["torch"]
    assert recapture("drift", f"{net}:Other", "--input", "2x8", "--against", saved) == 2
    assert "is a side of net.py:Net, not of net.py:Other" in capsys.readouterr().err
    net.write_text(NET.replace("Linear(8, 8)", "Linear(8, 7)"))
    assert recapture("drift", f"{net}:Net", "--input", "2x8", "--against", saved) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "the weights do not fit: 'first.weight' is float32[8, 8] on one side and float32[7, 8] on the other" in line


@pytest.mark.slow
def test_training_on_two_sides_has_the_same_bits(net, tmp_path, capsys):
    saved = tmp_path / "saved"
    words = ("drift", f"{net}:Net", "--input", "2x8", "--train", 3, "--optimizer", "adamw")
    assert recapture(*words, "--save", saved) == 0
    assert recapture(*words, "--against", saved) == 0
    assert "the same bits over 3 training steps" in capsys.readouterr().out


OWN_TRAINING = """
import torch

def optimizer(model):
    made = torch.optim.AdamW(model.parameters(), lr=0.01)
    return made, torch.optim.lr_scheduler.StepLR(made, 2, 0.5)

def loss(result, x):
    return torch.nn.functional.mse_loss(result, x)

def nothing(model):
    return 3
"""


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_processes_train_as_one_and_compiled_as_eager(parallel, net, tmp_path, capsys):
    own = tmp_path / "own.py"
    own.write_text(OWN_TRAINING)
    words = (
        *("drift", f"{net}:Net", "--input", "8x8", "--train", 4, "--optimizer", f"{own}:optimizer"),
        *("--loss", f"{own}:loss", "--parallel", parallel, "--json"),
    )
    assert recapture(*words, "--ranks", "1,2") == 0
    assert json.loads(capsys.readouterr().out)["verdict"] in ("same bits", "rounding")
    two_ranks = ("--ranks", 2, "--compiler", "eager", "--compiler", "compile:aot_eager")
    assert recapture(*words, *two_ranks) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] in ("same bits", "rounding")


@pytest.mark.slow
def test_clipping_accumulation_and_autocast_have_the_same_bits_twice(net, tmp_path, capsys):
    saved = tmp_path / "saved"
    training = ("--train", 3, "--clip", 1, "--accumulate", 2, "--autocast", "bfloat16")
    words = ("drift", f"{net}:Net", "--input", "4x8", *training)
    assert recapture(*words, "--save", saved) == 0
    assert recapture(*words, "--against", saved) == 0
    assert "the same bits over 3 training steps" in capsys.readouterr().out


@pytest.mark.slow
def test_what_a_side_cannot_run_is_one_line_and_exit_status_2(net, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN_TRAINING)
    (tmp_path / "broken.py").write_text("import nowhere_to_be_found\n\ndef f(x):\n    return x\n")
    training = (f"{net}:Net", "--input", "3x8", "--train", 2, "--save", "saved")
    for words, line in (
        (("broken.py:f", "--input", "2", "--save", "saved"), "nowhere_to_be_found"),
        ((*training, "--optimizer", "own.py:nothing"), "nothing returns no optimizer, but int"),
        ((*training, "--accumulate", 2), "a batch of 3 cannot be divided by 2"),
        ((*training, "--compiler", "export"), "it does not train the module itself"),
    ):
        assert recapture("drift", *words) == 2, words
        (error_line,) = capsys.readouterr().err.splitlines()
        assert line in error_line


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "name what the two sides differ in"),
        (("--device", "cpu,cuda,cpu"), "two releases, devices, compilers or files of packages at most"),
        (("--compiler", "compile", "--compiler", "compil"), "unknown compiler 'compil'; did you mean 'compile'?"),
        (("--against", "nowhere"), "holds no saved side"),
        (("--save", "a", "--against", "b"), "use one of them"),
        (("--across", "2.6.0,2.11.0", "--save", "a"), "are for one side: --across names two"),
        (("--with", "x.txt"), "cannot read"),
        (("--train", 2, "--optimizer", "lion", "--save", "a"), "it is sgd, adamw or FILE:FUNCTION"),
        (("--train", 2, "--autocast", "int8", "--save", "a"), "it is bfloat16 or float16"),
        (("--train", 2, "--ranks", "one", "--save", "a"), "it is written as 2, or 1,2"),
        (("--ranks", "1,2"), "--ranks is for --train"),
        (("--train", 2, "--ranks", "2", "--parallel", "ring", "--save", "a"), "it is ddp or fsdp"),
        (("--setting", "threads=0,1"), "its values are numbers"),
        (("--why", "--against", "nowhere"), "--why runs both sides again"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(words, line, net, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert recapture("drift", f"{net}:Net", "--input", "2x8", *words) == 2
    (error_line,) = capsys.readouterr().err.splitlines()
    assert line in error_line


def checksum(tensor):
    """Return the checksum that the recording of operators takes of a tensor."""
    return recording.Watch().hash_of(tensor)


@pytest.mark.parametrize("elements", [1000, 200_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex64])
def test_a_checksum_sees_a_change_at_each_place(elements, dtype):
    torch.manual_seed(0)
    tensor = torch.randn(elements * 8 // dtype.itemsize).to(dtype)
    checksums = {checksum(tensor.clone())}
    places = range(0, len(tensor), len(tensor) // 50)
    for place in (*places, len(tensor) - 1):
        changed = tensor.clone()
        changed[place] = ~changed[place] if dtype == torch.bool else changed[place] * 1.01
        checksums.add(checksum(changed))
    assert len(checksums) == 1 + len(places) + 1


def test_a_checksum_sees_elements_that_were_exchanged():
    torch.manual_seed(0)
    tensor = torch.randn(1 << 18)
    one_hot = torch.eye(1024)
    for base, order in ((tensor, torch.randperm(1 << 18)), (one_hot, torch.randperm(1024)), (tensor, [1, 0])):
        exchanged = base.clone()
        exchanged[: len(order)] = base[order]
        assert checksum(exchanged) != checksum(base)
    for first, second in ((0, 2), (5, 9), (17, 1023)):  # two rows of a one-hot matrix
        exchanged = one_hot.clone()
        exchanged[[first, second]] = one_hot[[second, first]]
        assert checksum(exchanged) != checksum(one_hot)


def test_a_checksum_is_of_elements_dtype_and_shape_and_not_of_the_place_in_memory():
    tensor = torch.randn((1 << 18) + 3)
    for start in range(3):
        part = tensor[start : start + (1 << 18)]
        assert checksum(part) == checksum(part.clone())
    square = torch.randn(600, 600)
    assert checksum(square.T) == checksum(square.T.contiguous()) != checksum(square)
    assert checksum(square) != checksum(square.view(360_000)) != checksum(square.view(torch.int32).view(360_000))
    assert checksum(torch.eye(4).to_sparse()) == checksum(torch.ones(4, 4).to_sparse())  # no dense elements: its form
