"""Sizes and numbers behind arithmetic in a comparison of the source: inputs on both sides of it are derived."""

import importlib.util

import pytest
import torch
from planted_own_code import checked

from recapture.cases.target import parse_input
from recapture.tools.check.comparisons import compared
from recapture.tools.check.input_changes import LARGEST_SIZE
from recapture.tools.check.request import CheckOptions, CheckRequest
from recapture.tools.check.session import prepare
from recapture.tools.check.source_facts import codes_of, mined
from recapture.tools.check.variants import variants

OF_A_SIZE = [
    "n + 3 == 12",
    "3 + n == 12",
    "n - 3 == 6",
    "10 - n == 3",
    "-n == -9",
    "n * 2 == 18",
    "2 * n > 17",
    "n * -2 < -17",
    "n // 3 == 4",
    "n // 3 != 4",
    "n // -3 == -4",
    "n % 3 == 0",
    "n % 3 == 2",
    "n % 7 < 3",
    "n % 7 >= 3",
    "(n - 1) % 4 == 0",
    "n // 2 % 3 == 0",
    "(n + 1) // 2 - 1 > 5",
    "n - 1 <= 5",
    "5 < n - 1",
    "2 < n - 1 < 8",
    "n > 20",
]


@pytest.fixture
def write_function(tmp_path):
    """Return a function that writes a module with a function `f`, and returns its path and the function."""

    def write(text):
        path = tmp_path / "theirs.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location("theirs", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return path, module.f

    return write


def derived(function, *args):
    """Return the arguments of all variants, by name."""
    codes, keys = codes_of(function)
    sizes, numbers = compared(codes)
    makers = variants(args, constants=mined(codes, keys, numbers), compared=sizes)
    return {name: make() for name, make in makers.items() if name.startswith(("batch=", "dimension", "args"))}


@pytest.mark.parametrize("condition", OF_A_SIZE)
def test_a_size_that_satisfies_a_comparison_and_one_that_does_not_are_tried(condition, write_function):
    _, function = write_function(f"def f(x):\n    n = x.shape[1]\n    return x + 1 if {condition} else x - 1\n")
    inputs = derived(function, torch.ones(2, 25, 3))
    tried = {args[0].shape[1] for name, args in inputs.items() if name.startswith("dimension 1=")}
    assert {eval(condition, {"n": size}) for size in tried - {50}} == {True, False}, tried  # 50 is always tried
    assert max(tried) <= LARGEST_SIZE


@pytest.mark.parametrize(
    "variable", ["x.shape[1]", "x.size(1)", "x.size()[1]", "x.shape[-2]", "h", "width"], ids=lambda text: text
)
def test_sizes_of_tensors_are_known_by_how_they_are_written(variable, write_function):
    _, function = write_function(
        f"def f(x):\n    _, h, _ = x.shape\n    width = x.size(1)\n    return x if {variable} // 3 == 4 else x + 1\n"
    )
    assert compared(codes_of(function)[0]).sizes in (((1, 14),), ((-2, 14),))
    inputs = derived(function, torch.ones(2, 5, 3))
    assert inputs["dimension 1=14"][0].shape == (2, 14, 3)
    assert inputs["dimension 1=15"][0].shape == (2, 15, 3)


def test_a_list_gets_the_lengths_that_its_length_is_compared_with(write_function):
    _, function = write_function("def f(xs):\n    return xs[0] if len(xs) - 1 > 5 else xs[-1]\n")
    inputs = derived(function, [torch.ones(1), torch.zeros(1)])
    assert [len(inputs[f"args[0] with {length} items"][0]) for length in (6, 7)] == [6, 7]


@pytest.mark.parametrize("condition", ["n % 7 == 0", "n * 20 == 1000", "n - 100 > 20", "n // 30 == 4", "30 + n < 99"])
def test_a_number_that_satisfies_a_comparison_and_one_that_does_not_are_tried(condition, write_function):
    _, function = write_function(f"def f(x, n):\n    return x + 1 if {condition} else x - 1\n")
    whole = [args[1] for args in derived(function, torch.ones(2), 1).values() if type(args[1]) is int]
    numbers = compared(codes_of(function)[0]).numbers
    assert {eval(condition, {"n": number}) for number in whole if number - 1 in numbers or number in numbers} == {
        True,
        False,
    }


@pytest.mark.parametrize(
    "condition",
    [
        "n % 0 == 0",
        "n // 0 == 0",
        "n * 0 == 0",
        "n % 3 == 5",
        "n % -3 == 0",
        "9 // n == 3",
        "9 % n == 3",
        "n ** 2 == 9",
        "n + n == 4",
        "n - 10**6 == 10**6",
        "1 + 1 == 2",
        "n * 2 == 3.0",
        "n + 1 in (3, 4)",
        "n - 9999999 == 1",
    ],
)
def test_what_cannot_be_solved_adds_nothing(condition, write_function):
    _, function = write_function(f"def f(x):\n    n = x.shape[1]\n    return x + 1 if {condition} else x - 1\n")
    assert compared(codes_of(function)[0]) == ((), ())


def test_no_size_is_above_the_limit(write_function):
    _, function = write_function(
        "def f(x):\n    return x if x.shape[0] - 60 > 10 or x.shape[1] // 1000 == 1 else x + 1\n"
    )
    inputs = derived(function, torch.ones(2, 5))
    assert max(max(x.shape) for (x,) in inputs.values() if x is not None) <= LARGEST_SIZE


def test_code_whose_source_is_gone_compares_nothing():
    namespace = {}
    exec("def f(x):\n    return x if x.shape[0] // 3 == 4 else x + 1\n", namespace)
    assert compared(codes_of(namespace["f"])[0]) == ((), ())


def test_a_check_tries_sizes_behind_arithmetic(served, write_function):
    path, _ = write_function("def f(x):\n    return x + 1 if x.shape[1] // 3 == 4 else x - 1\n")
    request = CheckRequest(place=str(path), name="f", inputs=(parse_input("2x5"),))
    prepared = prepare(served, request, CheckOptions(timeout=100.0))
    assert {"dimension 1=14", "dimension 1=15"} <= set(prepared.inputs)
    row = checked("f", "2x5", place=path)["jit.trace"]
    assert row.verdict == "specialized"
    assert row.wrong_on[0] == "dimension 1=14"
