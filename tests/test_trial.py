"""What a trial does around the calls: seeds, resets, the effects of capturing, and the original callable afterwards."""

import logging
import warnings
from types import SimpleNamespace

import pytest
import torch

from recapture.conformance.trial import carry_out
from recapture.conformance.verdict import decide
from recapture.declare.compiler import Compiler

CALLS = []
SETTINGS = {"scale": 2.0}


def ones():
    return (torch.ones(3),)


def a_case(target, **more):
    """A case with one held-out input; every load shares the namespace of this file."""
    options = {"watch": None, "rewrite_of": None, "reset": None, "backward": None, "strict": (), "concrete_args": None}
    options["train_step"] = None
    make = more.pop("make", ones)
    return SimpleNamespace(
        target=target,
        is_module=isinstance(target, type),
        refused_inputs=more.pop("refused_inputs", frozenset()),
        other_rank_inputs=more.pop("other_rank_inputs", frozenset()),
        inputs=lambda: [("example", make), ("held_out[0]", make)],
        **(options | more),
    )


def a_compiler(function, **more):
    options = {"since": None, "requires": (), "unavailable": None, "uses_dynamo": False, "generates_code": False}
    options |= {"shares_state": True, "checks_inputs": True, "inference_only": False, "optional": False}
    return Compiler(name="planted", function=function, **(options | more))


def ruling(target, function, *, compiler=None, phases=None, **more):
    enter = (lambda _: None) if phases is None else phases.append
    trial = carry_out(lambda: a_case(target, **more), a_compiler(function, **(compiler or {})), "cpu", enter)
    return decide(trial)


def found(differences):
    return [(one.input, one.where, one.kind) for one in differences]


def same(fn, example):
    return fn


def plus_one(x):
    return x + 1


def test_a_compiler_that_does_nothing_passes_without_a_note():
    one = ruling(plus_one, same)
    assert (str(one.verdict), one.differences, one.noted) == ("pass", (), ())


def test_every_input_is_announced_before_its_call():
    phases = []
    ruling(plus_one, same, phases=phases)
    assert phases == ["capture", "call example", "call held_out[0]"]


# --- refusals -------------------------------------------------------------------------------------------------------


def refuses_all_but_the_first(fn, example):
    calls = []

    def call(*args):
        calls.append(args)
        if len(calls) > 1:
            raise AssertionError("Guard failed: x.ndim == 1")
        return fn(*args)

    return call


HELD_OUT = frozenset({"held_out[0]"})


def test_an_exporter_may_refuse_an_input_of_another_rank():
    one = ruling(plus_one, refuses_all_but_the_first, compiler={"fixed_ranks": True}, other_rank_inputs=HELD_OUT)
    assert (str(one.verdict), one.raised) == ("pass", None)
    assert [(refusal.input, refusal.raised.type) for refusal in one.refusals] == [("held_out[0]", "AssertionError")]


def test_no_other_compiler_and_no_other_input_may_be_refused():
    for compiler, inputs in (({}, HELD_OUT), ({"fixed_ranks": True}, frozenset())):
        one = ruling(plus_one, refuses_all_but_the_first, compiler=compiler, other_rank_inputs=inputs)
        assert (str(one.verdict), one.input, one.refusals) == ("error", "held_out[0]", ())


def test_a_wrong_value_for_another_rank_is_silently_wrong_under_an_exporter_too():
    def bakes_in(fn, example):
        kept = fn(*example)
        return lambda x: kept.clone()

    inputs = [("example", ones), ("held_out[0]", lambda: (torch.ones(1, 3) * 2,))]
    case = a_case(plus_one, other_rank_inputs=HELD_OUT)
    case.inputs = lambda: inputs
    one = decide(carry_out(lambda: case, a_compiler(bakes_in, fixed_ranks=True), "cpu", lambda _: None))
    assert (str(one.verdict), one.input, one.refusals) == ("specialized", "held_out[0]", ())


def test_memory_that_runs_out_is_no_refusal():
    def runs_out(fn, example):
        calls = []

        def call(x):
            calls.append(x)
            if len(calls) > 1:
                raise MemoryError
            return fn(x)

        return call

    one = ruling(plus_one, runs_out, compiler={"fixed_ranks": True}, other_rank_inputs=HELD_OUT)
    assert (str(one.verdict), one.refusals) == ("oom", ())


# --- random numbers -------------------------------------------------------------------------------------------------


def noisy(x):
    return x + torch.rand(3)


def test_random_numbers_kept_from_the_capture_are_wrong():
    def bakes_in(fn, example):
        kept = fn(*example) - example[0]
        return lambda x: x + kept

    assert ruling(noisy, same).differences == ()
    assert found(ruling(noisy, bakes_in).differences)[0] == ("example", "result", "value")


def test_each_call_of_a_sequence_has_random_numbers_of_its_own():
    def repeats(fn, example):
        kept = []

        def call(x):
            kept.append(fn(x))
            return kept[0].clone()

        return call

    assert found(ruling(noisy, repeats).differences) == [("held_out[0]", "result", "value")]


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
    one = ruling(raises_the_level, runs_once)
    assert str(one.verdict) == "wrong"
    assert found(one.differences)[0] == ("example", "globals['LOG'].level", "mutation")
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

    one = ruling(Counts, runs_once)
    assert str(one.verdict) == "pass"
    assert found(one.noted) == [("capture", "state['total']", "mutation"), ("capture", "state.calls", "mutation")]
    assert {note.detail for note in one.noted} == {"capturing changes it, as a call does"}


def test_an_attribute_that_a_captured_module_no_longer_counts_is_wrong():
    def forgets(fn, example):
        def call(x):
            fn.total += x.sum()
            return x * 2

        return call

    assert found(ruling(Counts, forgets).differences) == [
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
    assert found(differences)[0] == ("example", "state['total']", "mutation")


def test_an_example_or_a_global_that_only_capturing_changes_is_wrong():
    def spoils(fn, example):
        example[0].zero_()
        return fn

    one = ruling(plus_one, spoils)
    assert (str(one.verdict), one.input) == ("wrong", "capture")
    assert found(one.differences) == [("capture", "args[0]", "mutation")]


def test_a_compiler_is_given_iterators_that_nothing_has_read():
    given = []

    def reads(fn, example):
        given.append(list(example[1]))
        return fn

    one = ruling(lambda x, rest: x * next(rest), reads, make=lambda: (torch.ones(3), iter([2.0, 3.0])))
    assert (str(one.verdict), one.differences, one.noted) == ("pass", (), ())
    assert given == [[2.0, 3.0]]


def scaled(x):
    return x * SETTINGS["scale"]


def test_a_global_that_capturing_changes_is_wrong_and_is_set_back():
    def changes(fn, example):
        SETTINGS["scale"] = 3.0
        return fn

    one = ruling(scaled, changes)
    assert found(one.differences) == [("capture", "globals['SETTINGS']['scale']", "mutation")]
    assert SETTINGS["scale"] == 2.0


def test_settings_that_capturing_leaves_are_wrong_and_are_set_back():
    def leaves(fn, example):
        torch.set_default_device("meta")
        return fn

    assert found(ruling(plus_one, leaves).differences) == [("capture", "torch.default_device", "state")]
    assert torch.ones(1).device.type == "cpu"


def appends(x):
    CALLS.append(1)
    return x + len(CALLS)


def test_a_reset_is_called_before_every_sequence_of_calls():
    CALLS.extend([1, 1])
    one = ruling(appends, same, reset=CALLS.clear)
    assert str(one.verdict) == "pass"
    CALLS.clear()


# --- the original ---------------------------------------------------------------------------------------------------


def test_an_original_that_no_longer_works_is_wrong():
    def breaks(fn, example):
        kept = torch.Tensor.sum

        def call(x):
            result = fn(x)
            torch.Tensor.sum = lambda *_: kept(torch.zeros(1))
            return result

        return call

    def total(x):
        return x * x.sum()

    before = torch.Tensor.sum
    try:
        one = ruling(total, breaks)
    finally:
        torch.Tensor.sum = before
    assert ("original", "result", "state") in found(one.differences)


def test_a_call_after_which_nothing_can_be_read_is_a_failure(monkeypatch):
    def dead():
        raise RuntimeError("device-side assert triggered")

    def breaks(fn, example):
        def call(x):
            monkeypatch.setattr("recapture.conformance.observe.random_states", dead)
            raise RuntimeError("values must be positive")

        return call

    one = ruling(plus_one, breaks)
    assert (str(one.verdict), one.phase, one.input) == ("error", "call", "example")
    assert one.raised.message == "values must be positive"


# --- exceptions -----------------------------------------------------------------------------------------------------


def refuses(x):
    raise LookupError("no")


def test_a_subclass_of_the_exception_of_eager_is_a_note():
    def narrower(fn, example):
        def call(x):
            raise KeyError("no")

        return call

    one = ruling(refuses, narrower)
    assert str(one.verdict) == "pass"
    assert one.noted[0].detail == "eager raises LookupError, this its subclass KeyError"


def test_a_wider_exception_is_a_failure():
    def wider(fn, example):
        def call(x):
            raise Exception("no")  # noqa: TRY002

        return call

    assert str(ruling(refuses, wider).verdict) == "error"


# --- gradients ------------------------------------------------------------------------------------------------------


def leaf():
    return (torch.arange(1.0, 4, requires_grad=True),)


def test_a_backward_that_fails_is_an_error_of_its_own_phase():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x + 1

        @staticmethod
        def backward(ctx, gradient):
            raise NotImplementedError("no backward")

    one = ruling(plus_one, lambda fn, example: Fails.apply, make=leaf)
    assert (str(one.verdict), one.phase, one.input, one.raised.type) == (
        "error",
        "backward",
        "example",
        "NotImplementedError",
    )


@pytest.mark.parametrize(("compiler", "verdict"), [({}, "wrong"), ({"inference_only": True}, "pass")])
def test_gradients_decide_unless_a_compiler_is_for_inference_only(compiler, verdict):
    def detaches(fn, example):
        return lambda x: fn(x).detach()

    assert str(ruling(plus_one, detaches, make=leaf, compiler=compiler).verdict) == verdict


def test_a_parameter_that_begins_to_need_a_gradient_keeps_none_of_the_comparison():
    class Thaws(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3), requires_grad=False)

        def forward(self, x):
            self.weight.requires_grad_(not self.weight.requires_grad)
            return x * self.weight

    def detaches(fn, example):
        return lambda x: fn(x).detach()

    assert str(ruling(Thaws, detaches, compiler={"inference_only": True}).verdict) == "pass"
    differences = found(ruling(Thaws, detaches).differences)
    assert ("example", "gradients.state['weight']", "gradient") in differences
    assert not any(where.endswith(".grad") for _, where, _ in differences)


def test_a_case_can_do_without_a_backward():
    def doubles_gradient(fn, example):
        return lambda x: (x * 2 - x.detach()) + 1

    assert found(ruling(plus_one, doubles_gradient, make=leaf).differences)[0][1:] == ("gradients.args[0]", "gradient")
    assert str(ruling(plus_one, doubles_gradient, make=leaf, backward=False).verdict) == "pass"


# --- a case that asks for more --------------------------------------------------------------------------------------


TORCH_CALLS = """
import warnings

def calling(fn, example):
    def call(x):
        warnings.warn("torch's own", stacklevel=2)
        return fn(x)
    return call
"""


@pytest.mark.filterwarnings("always")
def test_a_warning_is_that_of_the_code_that_issues_it_whatever_file_it_names():
    def warns(x):
        warnings.warn("of the case", stacklevel=2)
        return x + 1

    space = {}
    exec(compile(TORCH_CALLS, torch.__file__.replace("__init__", "planted"), "exec"), space)
    assert str(ruling(warns, space["calling"], strict=("output",)).verdict) == "pass"

    def silences(fn, example):
        return lambda x: x + 1

    assert str(ruling(warns, silences, strict=("output",)).verdict) == "wrong"


def test_what_is_only_noted_decides_where_the_case_is_strict():
    def transposes(fn, example):
        return lambda x: fn(x).t().contiguous().t()

    def make():
        return (torch.ones(2, 3),)

    assert str(ruling(plus_one, transposes, make=make).verdict) == "pass"
    assert str(ruling(plus_one, transposes, make=make, strict=("stride",)).verdict) == "wrong"


# --- a GPU that eager's own run ends ----------------------------------------------------------------------------------

ASSERTED = (
    "CUDA error: device-side assert triggered\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
)


def test_a_case_whose_eager_run_ends_the_use_of_the_gpu_is_not_applicable():
    """The first run of eager notes the exception, and then the inputs of the second run cannot be made."""
    calls = []

    def make():
        if len(calls) >= 2:
            raise RuntimeError(ASSERTED)
        return ones()

    def fails_on_the_second(x):
        calls.append(x)
        if len(calls) == 2:
            raise RuntimeError(ASSERTED)
        return x

    one = ruling(fails_on_the_second, same, make=make)
    assert (str(one.verdict), one.phase, one.raised) == ("not_applicable", "reference", None)
    assert "eager fails an assertion on the GPU" in one.reason


def test_the_same_where_no_input_needs_the_gpu():
    def always_fails(x):
        raise RuntimeError(ASSERTED)

    one = ruling(always_fails, same)
    assert (str(one.verdict), one.phase, one.input) == ("not_applicable", "reference", "example")


@pytest.mark.parametrize(
    "text", ["device-side assert triggered", "CUDA error: an illegal memory access was encountered"]
)
def test_inputs_that_cannot_be_made_for_another_reason_remain_an_error(text):
    def make():
        raise RuntimeError(text)

    one = ruling(plus_one, same, make=make)
    assert (str(one.verdict), one.phase, one.raised.message) == ("error", "reference", text)


def test_a_compiler_that_fails_an_assertion_on_the_gpu_is_at_fault():
    def breaks(fn, example):
        def call(x):
            raise RuntimeError(ASSERTED)

        return call

    one = ruling(plus_one, breaks)
    assert (str(one.verdict), one.phase, one.input) == ("error", "call", "example")
