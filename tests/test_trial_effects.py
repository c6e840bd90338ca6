"""What a trial does about random numbers, loggers, state and the original callable."""

import logging
import sys
import types

import pytest
import torch
from planted_trials import places_and_kinds, plus_one, ruling, same

CALLS = []
SETTINGS = {"scale": 2.0}


# --- random numbers -------------------------------------------------------------------------------------------------


def noisy(x):
    return x + torch.rand(3)


def test_random_numbers_kept_from_the_capture_are_wrong():
    def bakes_in(fn, example):
        noise = fn(*example) - example[0]
        return lambda x: x + noise

    assert ruling(noisy, same).differences == ()
    assert places_and_kinds(ruling(noisy, bakes_in).differences)[0] == ("example", "result", "value")


def test_each_call_of_a_sequence_has_random_numbers_of_its_own():
    def repeats(fn, example):
        results = []

        def call(x):
            results.append(fn(x))
            return results[0].clone()

        return call

    assert places_and_kinds(ruling(noisy, repeats).differences) == [("held_out[0]", "result", "value")]


# --- loggers --------------------------------------------------------------------------------------------------------

LOG = logging.getLogger("recapture-test.of-a-case")


def raises_the_level(x):
    LOG.setLevel(logging.ERROR)
    return x + 1


def test_a_level_that_only_the_capture_sets_is_silently_lost():
    def runs_once(fn, example):
        fn(*example)
        return plus_one

    assert str(ruling(raises_the_level, same).verdict) == "pass"
    result = ruling(raises_the_level, runs_once)
    assert str(result.verdict) == "wrong"
    assert places_and_kinds(result.differences)[0] == ("example", "globals['LOG'].level", "mutation")
    assert LOG.level == logging.NOTSET


# --- state ----------------------------------------------------------------------------------------------------------


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(1))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        self.total += x.sum()
        return x * 2


def test_what_tracing_runs_once_is_undone_before_the_calls_and_noted():
    def runs_once(fn, example):
        fn(*example)
        return fn

    result = ruling(Counts, runs_once)
    assert str(result.verdict) == "pass"
    assert places_and_kinds(result.noted) == [
        ("capture", "state['total']", "mutation"),
        ("capture", "state.calls", "mutation"),
    ]
    assert {note.detail for note in result.noted} == {"capturing changes it, as a call does"}


def test_an_attribute_that_a_captured_module_no_longer_counts_is_wrong():
    def forgets(fn, example):
        def call(x):
            fn.total += x.sum()
            return x * 2

        return call

    assert places_and_kinds(ruling(Counts, forgets).differences) == [
        ("example", "state.calls", "mutation"),
        ("held_out[0]", "state.calls", "mutation"),
    ]


def test_a_buffer_that_a_compiler_with_its_own_state_does_not_update_is_wrong():
    def copies(fn, example):
        class Copy(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("total", fn.total.clone())

            def forward(self, x):
                fn.calls += 1
                return x * 2

        return Copy()

    differences = ruling(Counts, copies, compiler={"shares_state": False}).differences
    assert places_and_kinds(differences)[0] == ("example", "state['total']", "mutation")


def test_an_example_or_a_global_that_only_capturing_changes_is_wrong():
    def spoils(fn, example):
        example[0].zero_()
        return fn

    result = ruling(plus_one, spoils)
    assert (str(result.verdict), result.input) == ("wrong", "capture")
    assert places_and_kinds(result.differences) == [("capture", "args[0]", "mutation")]


def test_a_compiler_is_given_iterators_that_nothing_has_read():
    values_read = []

    def reads(fn, example):
        values_read.append(list(example[1]))
        return fn

    result = ruling(lambda x, numbers: x * next(numbers), reads, make=lambda: (torch.ones(3), iter([2.0, 3.0])))
    assert (str(result.verdict), result.differences, result.noted) == ("pass", (), ())
    assert values_read == [[2.0, 3.0]]


def scaled(x):
    return x * SETTINGS["scale"]


def test_a_global_that_capturing_changes_is_wrong_and_is_set_back():
    def changes(fn, example):
        SETTINGS["scale"] = 3.0
        return fn

    result = ruling(scaled, changes)
    assert places_and_kinds(result.differences) == [("capture", "globals['SETTINGS']['scale']", "mutation")]
    assert SETTINGS["scale"] == 2.0


def test_settings_that_capturing_leaves_are_wrong_and_are_set_back():
    def leaves(fn, example):
        torch.set_default_device("meta")
        return fn

    assert places_and_kinds(ruling(plus_one, leaves).differences) == [("capture", "torch.default_device", "state")]
    assert torch.ones(1).device.type == "cpu"


def appends(x):
    CALLS.append(1)
    return x + len(CALLS)


def test_a_reset_is_called_before_every_sequence_of_calls():
    CALLS.extend([1, 1])
    result = ruling(appends, same, reset=CALLS.clear)
    assert str(result.verdict) == "pass"
    CALLS.clear()


# --- the original ---------------------------------------------------------------------------------------------------


@pytest.fixture
def backend(monkeypatch):
    """A module that code finds when it is called: what is replaced in it is not put back after the call."""
    module = types.ModuleType("planted_backend")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_an_original_that_no_longer_works_is_wrong(backend):
    def breaks(fn, example):
        def call(x):
            result = fn(x)
            backend.product = lambda *_: torch.zeros(1)
            return result

        return call

    def total(x):
        return sys.modules["planted_backend"].product(x, x.sum())

    backend.product = torch.mul
    outcome = ruling(total, breaks)
    assert ("original", "result", "state") in places_and_kinds(outcome.differences)


def test_an_original_that_raises_another_exception_after_the_capture_is_wrong(backend):
    def refuse(*_):
        raise KeyError("planted")

    def breaks(fn, example):
        backend.element = refuse

        def call(x):
            raise IndexError("no such dimension")

        return call

    def no_such_dimension(x):
        return sys.modules["planted_backend"].element(x, (7, 7, 7, 7))

    backend.element = torch.Tensor.__getitem__
    result = ruling(no_such_dimension, breaks)
    details = {each.input: each.detail for each in result.differences}
    assert details["original"] == "the original raises KeyError after the capture"


def test_a_call_after_which_nothing_can_be_read_is_a_failure(monkeypatch):
    def dead():
        raise RuntimeError("device-side assert triggered")

    def breaks(fn, example):
        def call(x):
            monkeypatch.setattr("recapture.judge.observe.random_states", dead)
            raise RuntimeError("values must be positive")

        return call

    result = ruling(plus_one, breaks)
    assert (str(result.verdict), result.phase, result.input) == ("error", "call", "example")
    assert result.raised.message == "values must be positive"
