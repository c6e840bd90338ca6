"""Runs of eager with noise: only the inputs that are asked for are called, with the same numbers as in a whole run."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recapture.cases.collection import suite_loader
from recapture.judge.observe import Observation
from recapture.judge.reference import Eager
from recapture.judge.rounding import same_bits

CALLS = []


def third(x):
    return x / 3


def argument(value):
    CALLS.append(value)
    return (torch.tensor([value, 2.0]),)


def eager():
    """Eager on three inputs, after its first run."""
    inputs = [(label, partial(argument, value)) for label, value in (("a", 1.0), ("b", 5.0), ("c", 7.0))]
    case: Any = SimpleNamespace(
        target=third,
        is_module=False,
        inputs=lambda: inputs,
        watch=None,
        rewrite_of=None,
        reset=None,
        backward=None,
        strict=(),
        train_step=None,
    )
    reference = Eager(lambda: case, "cpu")
    reference.observe()
    reference.sample("a", 0)  # also looks once more at what eager does without noise
    reference._samples.clear()
    CALLS.clear()
    return reference


def values(reference, label, run):
    return reference.sample(label, run).result


OTHER = Observation("any")
"""What is compared with eager; it has no tensor that eager has too."""


@pytest.mark.parametrize(("last", "calls"), [("a", 1), ("b", 2), ("c", 3), (None, 3)])
def test_no_input_after_the_last_that_is_needed_is_called(last, calls):
    reference = eager()
    reference.needed = lambda: None if last is None else {last: OTHER}
    assert reference.sample(last or "a", 0) is not None
    assert len(CALLS) == calls
    reference.sample(last or "a", 0)
    assert len(CALLS) == calls


def test_the_noise_of_an_input_does_not_depend_on_what_follows():
    whole, part = eager(), eager()
    part.needed = lambda: {"a": OTHER, "b": OTHER}
    for label in "ab":
        for run in range(8):
            assert same_bits(values(whole, label, run), values(part, label, run))
    assert any(not same_bits(values(whole, "b", 0), values(whole, "b", run)) for run in range(1, 8))


def test_an_input_that_was_not_expected_is_called_too():
    whole, part = eager(), eager()
    part.needed = lambda: {"a": OTHER}
    assert same_bits(values(whole, "a", 3), values(part, "a", 3))
    assert same_bits(values(whole, "c", 3), values(part, "c", 3))
    assert same_bits(values(whole, "a", 4), values(part, "a", 4))


def test_a_suite_file_is_compiled_again_when_it_changed(tmp_path):
    path = tmp_path / "mine.py"
    loaded = []
    for text in ("A = 1\n", "A = 1\n", "A = 22\n"):
        path.write_text(text)
        namespace = {}
        loader = suite_loader("mine", path)
        code = loader.source_to_code(path.read_bytes(), str(path))
        exec(code, namespace)
        loaded.append((code, namespace["A"]))
    assert [value for _, value in loaded] == [1, 1, 22]
    assert loaded[0][0] is not loaded[1][0]


def test_only_python_files_have_a_loader(tmp_path):
    assert suite_loader("mine", tmp_path / "mine.txt") is None
