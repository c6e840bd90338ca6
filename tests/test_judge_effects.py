"""Exceptions, mutations, output and settings: what a call does beside returning."""

import logging
import os
import random
import sys
import warnings

import numpy as np
import pytest
import torch
from observed_calls import Plain, altered, observed, strict, texts

from recapture.judge.compare import compare
from recapture.judge.observe import observe_call
from recapture.judge.reachable import Reachable
from recapture.judge.recorded_output import folder_of_torch


def fails(*_):
    raise ValueError("x")


def test_returning_where_eager_raises_is_a_difference():
    comparison = compare(observed(fails), observed(lambda: 1))
    assert [(difference.where, difference.kind, difference.detail) for difference in comparison.differences] == [
        ("result", "exception", "eager raises ValueError, this returned")
    ]


def test_exceptions_on_both_sides_are_for_the_caller_to_weigh():
    assert compare(observed(fails), observed(fails)).differences == []
    assert compare(observed(lambda: 1), observed(fails)).differences == []


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: [1], lambda x: x.append(2)),
        (lambda: {"a": [1]}, lambda x: x["a"].append(2)),
        (lambda: {"a": 1}, lambda x: x.update(b=1)),
        (lambda: torch.ones(2), lambda x: x.add_(1)),
        (lambda: [torch.ones(2)], lambda x: x[0].zero_()),
        (lambda: torch.ones(2), lambda x: x.resize_(3)),
        (lambda: Plain(a=1), lambda x: setattr(x, "a", 2)),
        (lambda: torch.nn.BatchNorm1d(1), altered),
        (lambda: np.ones(2), lambda x: x.fill(3)),
        (lambda: torch.ones(2, requires_grad=True), lambda x: x.sum().backward()),
    ],
)
def test_a_mutation_of_an_argument_is_a_difference(make, change):
    def mutates(x):
        change(x)

    def forgets(x):
        pass

    eager, other = (
        observe_call(mutates, "example", lambda: (make(),)),
        observe_call(forgets, "example", lambda: (make(),)),
    )
    for comparison in (compare(eager, other), compare(other, eager)):
        kinds = [difference.kind for difference in comparison.differences]
        assert kinds[0] == "mutation"
        assert kinds[1:] in ([], ["alias"])  # what grows also moves to other storage
        assert comparison.differences[0].where.startswith("args[0]")
    assert compare(eager, eager).differences == []


def test_the_state_of_a_module_is_compared():
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.zeros(1))
            self.register_buffer("cache", torch.zeros(1), persistent=False)
            self.weight = torch.nn.Parameter(torch.ones(1))
            self.calls = 0

    def run(change):
        module = Counts()
        return observed(lambda: change(module), reachable=Reachable(module))

    still = run(lambda module: None)
    assert compare(still, run(lambda module: None)).differences == []
    for change, where in (
        (lambda module: module.kept.add_(1) and None, "state['kept']"),
        (lambda module: module.cache.add_(1) and None, "state['cache']"),
        (lambda module: (module.weight * 2).backward(), "state['weight'].grad"),
        (lambda module: setattr(module, "calls", 1), "state.calls"),
        (lambda module: setattr(module, "last", 1), "state.last"),
        (lambda module: delattr(module, "calls"), "state.calls"),
        (lambda module: module.eval() and None, "state.training"),
    ):
        (difference,) = compare(run(change), still).differences
        assert (difference.where, difference.kind) == (where, "mutation")


def test_what_is_watched_is_compared():
    eager, other = observed(lambda: 0, watch=lambda: [1]), observed(lambda: 0, watch=lambda: [2])
    assert [(difference.where, difference.kind) for difference in compare(eager, other).differences] == [
        ("watched[0]", "mutation")
    ]
    assert compare(eager, eager).differences == []


def test_a_watch_may_take_the_target_and_the_result():
    eager, other = (
        observed(lambda: 3, target=number, watch=lambda target, result: target + result) for number in (1, 2)
    )
    assert texts(compare(eager, other).differences) == ["watched mutation: eager 4, this 5"]


def test_what_is_printed_is_noted_and_a_case_may_be_strict_about_it():
    eager, other = observed(lambda: print("a")), observed(lambda: print("b"))
    expected = ["output output: eager printed 'a\\n', this printed 'b\\n'"]
    assert texts(compare(eager, other).notes) == expected
    assert texts(compare(eager, other, rules=strict("output")).differences) == expected


def test_warnings_and_log_messages_are_output_where_a_case_is_strict_about_it():
    def speaks(order):
        for speak in order:
            speak()

    torchs = compile('warnings.warn("torch\'s own", stacklevel=1)', str(folder_of_torch() / "module.py"), "exec")
    speeches = [
        lambda: warnings.warn("w", UserWarning, stacklevel=1),
        lambda: logging.getLogger("x").warning("l"),
        lambda: print("e", file=sys.stderr),
        lambda: exec(torchs, {"warnings": warnings, "__name__": "torch.module"}),
    ]
    warnings.simplefilter("always")
    eager, other = (
        observed(lambda order=order: speaks(order), all_output=True) for order in (speeches, speeches[::-1])
    )
    assert eager.output == "UserWarning: w\nWARNING x: l\ne\n"
    assert [difference.kind for difference in compare(eager, other, rules=strict("output")).differences] == ["output"]


def test_a_warning_of_a_logger_without_handlers_is_output_but_not_one_of_torch(capsys):
    def speaks():
        for name in ("torch._inductor.compile_fx.__perf_hints", "torchmetrics"):
            logger = logging.getLogger(name)
            before, logger.propagate = logger.propagate, False
            logger.warning("skipping")
            logger.propagate = before

    last = logging.lastResort
    assert observed(speaks, all_output=True).output == "skipping\n"
    assert capsys.readouterr().err == "skipping\n"
    assert logging.lastResort is last


def test_what_torch_logs_to_the_present_stderr_is_no_output(capsys):
    """The handlers of torch 2.15 write to what `sys.stderr` is when they are called."""

    class Following(logging.Handler):
        @property
        def stream(self):
            return sys.stderr

        def emit(self, record):
            self.stream.write(self.format(record) + "\n")

    def speaks():
        for name in names:
            logging.getLogger(name).warning("%s breaks a graph", name)

    names = ("torch.planted", "torchplanted")
    handlers = {name: Following() for name in names}
    for name, handler in handlers.items():
        handler.setFormatter(logging.Formatter("said: %(message)s"))
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).propagate = False
    try:
        assert observed(speaks, all_output=True).output == "said: torchplanted breaks a graph\n"
        assert capsys.readouterr().err == "said: torch.planted breaks a graph\n"
        assert {name: logging.getLogger(name).handlers for name in names} == {name: [handlers[name]] for name in names}
    finally:
        for name, handler in handlers.items():
            logging.getLogger(name).removeHandler(handler)


def test_a_grad_mode_or_default_dtype_left_behind_is_a_difference():
    def leaks():
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)

    comparison = compare(observed(lambda: None), observed(leaks))
    assert [(difference.where, difference.kind) for difference in comparison.differences] == [
        ("torch.grad_enabled", "state"),
        ("torch.default_dtype", "state"),
    ]
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize(
    ("name", "leak", "undone"),
    [
        ("default_device", lambda: torch.set_default_device("meta"), lambda: torch.ones(1).device.type == "cpu"),
        (
            "deterministic_algorithms",
            lambda: torch.use_deterministic_algorithms(True),
            lambda: not torch.are_deterministic_algorithms_enabled(),
        ),
        (
            "float32_matmul_precision",
            lambda: torch.set_float32_matmul_precision("medium"),
            lambda: torch.get_float32_matmul_precision() == "highest",
        ),
        (
            "autocast_cpu",
            lambda: torch.set_autocast_enabled("cpu", True),
            lambda: not torch.is_autocast_enabled("cpu"),
        ),
    ],
)
def test_a_setting_left_behind_is_a_difference_and_is_set_back(name, leak, undone):
    comparison = compare(observed(lambda: None), observed(lambda: leak() and None))
    assert [(difference.where, difference.kind) for difference in comparison.differences] == [
        (f"torch.{name}", "state")
    ]
    assert undone()


def test_the_state_of_random_generators_and_the_environment_are_noted():
    def draws():
        torch.rand(1)
        random.random()
        np.random.rand()  # noqa: NPY002
        os.environ["RECAPTURE_PLANTED"] = "1"
        os.environ["TRITON_PTXAS_PATH"] = "/planted"  # Inductor sets it when it first compiles for a GPU

    try:
        comparison = compare(observed(lambda: None), observed(draws))
    finally:
        os.environ.pop("RECAPTURE_PLANTED", None)
        os.environ.pop("TRITON_PTXAS_PATH", None)
    assert comparison.differences == []
    assert [(note.where, note.kind) for note in comparison.notes] == [
        ("random_state.torch", "state"),
        ("random_state.random", "state"),
        ("random_state.numpy.random", "state"),
        ("environ['RECAPTURE_PLANTED']", "state"),
    ]
    assert len(compare(observed(lambda: None), observed(draws), rules=strict("random_state")).differences) == 3


def test_an_exception_of_a_subclass_and_another_message_are_noted():
    def raises(error):
        def fails():
            raise error

        return observed(fails)

    comparison = compare(raises(LookupError("a")), raises(KeyError("b")))
    assert comparison.differences == []
    assert texts(comparison.notes) == [
        "result exception: eager raises LookupError, this its subclass KeyError",
        "result exception: eager's message 'a', this \"'b'\"",
    ]
    comparison = compare(raises(ValueError("a")), raises(ValueError("b")), rules=strict("message"))
    assert [difference.kind for difference in comparison.differences] == ["exception"]
