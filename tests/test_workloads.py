import sys

import pytest

from recapture.cases.workload import SpeedClaim, WorkloadError, workload
from recapture.cases.workload_sources import ModelSpec, collect_workloads


@pytest.mark.parametrize(
    ("expected", "low", "high", "holds"),
    [
        (">=1.5", 1.5, 1.9, True),
        (">=1.5", 1.2, 1.4, False),
        (">=1.5", 1.4, 1.6, None),
        ("<0.1", 0.01, 0.02, True),
        ("<0.1", 0.1, 0.2, False),
        (">1", 0.9, 1.1, None),
        ("<=2", 1.0, 2.0, True),
    ],
)
def test_a_claim_holds_where_the_whole_interval_satisfies_it(expected, low, high, holds):
    assert SpeedClaim("X", expected, "1x").holds(low, high) is holds


def inputs():
    return (1,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": 3}, "workload 'model': inputs is not a callable but 3"),
        ({"loss": print}, "a training step needs both loss and optimizer"),
        ({"targets": inputs}, "targets are given, and no loss that takes them"),
        ({"dtype": "fp8"}, "dtype is not one of fp32, fp32-strict, tf32, bf16, amp but 'fp8'"),
        ({"devices": "cuda"}, "devices is not a list of names but 'cuda'"),
        ({"requires": "transformers"}, "requires is not a list of names but 'transformers'"),
        ({"claims": {"compile": ("T7", ">1", "2x")}}, "a claim of 'compile' is not"),
        ({"claims": {"compile": [("T7", "2.9", "2x")]}}, "claim T7: a bound is written as '>=1.5' or '<1', not '2.9'"),
    ],
)
def test_a_wrong_declaration_is_refused_in_one_line_that_names_the_workload(arguments, message):
    def model():
        pass

    with pytest.raises(WorkloadError) as refused:
        workload(**{"inputs": inputs, **arguments})(model)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_two_workloads_of_one_name_are_refused():
    def twice():
        """Builds nothing."""

    workload(inputs=inputs)(twice)
    with pytest.raises(WorkloadError, match="two workloads are named 'twice'"):
        workload(inputs=inputs)(twice)


MODELS = """
from torch import nn
from recapture import workload


def net():
    return nn.Linear(4, 4)


@workload(inputs=lambda: ())
def declared():
    return nn.Linear(4, 4)
"""


@pytest.mark.parametrize(
    ("factory", "more", "ending"),
    [
        ("net", {}, "its_models:net 8x3x224x224"),
        ("net", {"shapes": ((2, 4), (3,)), "train": True}, "its_models:net 2x4 3 train"),
        ("declared", {}, "its_models:declared"),
        ("declared", {"shapes": ((2, 4),)}, "--input is not for it"),
        ("declared", {"train": True}, "--train is not for it"),
    ],
)
def test_the_workload_of_a_named_model_is_named_by_what_is_measured(factory, more, ending, tmp_path, monkeypatch):
    (tmp_path / "its_models.py").write_text(MODELS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "its_models", raising=False)
    name = f"its_models:{factory}"
    [info] = collect_workloads(ModelSpec(name=name, model=name, **more))
    assert (info.error or info.spec.name).endswith(ending)
    assert (info.hash is None) == (info.error is not None)


DECLARED = """
from torch import nn
from recapture import workload

SIZE = 4


@workload(inputs=lambda: (SIZE,))
def one():
    return nn.Linear(4, 4)


@workload(inputs=lambda: ())
def other():
    return nn.Linear(8, 8)


def declare(width):
    @workload(inputs=lambda: (), name="third")
    def build():
        return nn.Linear(width, width)


declare(4)
"""


@pytest.mark.parametrize(
    ("before", "after", "edited"),
    [
        ("SIZE = 4", "SIZE = 5", {"one", "third"}),
        ("Linear(8, 8)", "Linear(8, 16)", {"other", "third"}),
        ("lambda: (SIZE,)", "lambda: (2 * SIZE,)", {"one", "third"}),
        ("def one", "# A remark.\ndef one", {"third"}),  # of which there is no more to hash than the file
    ],
)
def test_the_hash_of_a_workload_shows_whether_it_was_edited(before, after, edited, tmp_path):
    hashes = []
    for number, text in enumerate((DECLARED, DECLARED.replace(before, after))):
        path = tmp_path / f"declared_{number}.py"
        path.write_text(text)
        hashes.append({info.spec.name: info.hash for info in collect_workloads(ModelSpec(name="", path=str(path)))})
    assert {name for name, hashed in hashes[0].items() if hashed != hashes[1][name]} == edited
