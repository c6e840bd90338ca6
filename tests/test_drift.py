"""Whether two sides of a user's code give the same numbers, where they first differ, and whether rounding explains it."""

import json

import pytest
from planted_diffs import recapture

from benchmarks.drift import PLANTS, compared
from recapture.tools.drift.alignment import aligned, differing_places
from recapture.tools.drift.facts import Operator, Step
from recapture.tools.drift.report import to_markdown, to_page
from recapture.tools.drift.training_steps import first_step_that_differs

NET = """
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
        assert report.place.explains in ("same bits", "form")
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
        (("--train", 2, "--optimizer", "lion", "--save", "a"), "it is sgd or adamw"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(words, line, net, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert recapture("drift", f"{net}:Net", "--input", "2x8", *words) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert line in said
