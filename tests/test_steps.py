"""What the steps of a cell do about refusals, exceptions, gradients and a GPU that eager itself ends."""

import warnings

import pytest
import torch
from planted_trials import a_case, a_compiler, ones, places_and_kinds, plus_one, ruling, same

from recapture.judge import steps
from recapture.judge.steps import carry_out
from recapture.judge.verdict import decide


def test_a_compiler_that_does_nothing_passes_without_a_note():
    result = ruling(plus_one, same)
    assert (str(result.verdict), result.differences, result.noted) == ("pass", (), ())


def test_every_input_is_announced_before_its_call():
    phases = []
    ruling(plus_one, same, phases=phases)
    assert phases == ["capture", "call example", "call held_out[0]"]


def test_no_function_of_an_earlier_execution_is_called():
    """Executing a file again ends the operators that it registered: a function that keeps one would read freed memory."""
    executions = []
    number = executions.__len__  # builtin methods, because other values are restored and compared

    def load():
        executions.append(None)
        is_mine = number().__eq__

        def target(x):
            assert is_mine(number()), "the file was executed again"
            return torch.sin(x).sum(0)

        return a_case(target)

    def rounds_otherwise(fn, example):
        return lambda x: torch.sin(x).flip(0).sum(0) * 1.01

    result = decide(carry_out(load, a_compiler(rounds_otherwise), "cpu", lambda _: None))
    assert len(executions) > 3  # with noise too
    assert "original" not in {difference.input for difference in result.differences}


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
    result = ruling(plus_one, refuses_all_but_the_first, compiler={"fixed_ranks": True}, other_rank_inputs=HELD_OUT)
    assert (str(result.verdict), result.raised) == ("pass", None)
    assert [(refusal.input, refusal.raised.type) for refusal in result.refusals] == [("held_out[0]", "AssertionError")]


def test_no_other_compiler_and_no_other_input_may_be_refused():
    for compiler, inputs in (({}, HELD_OUT), ({"fixed_ranks": True}, frozenset())):
        result = ruling(plus_one, refuses_all_but_the_first, compiler=compiler, other_rank_inputs=inputs)
        assert (str(result.verdict), result.input, result.refusals) == ("error", "held_out[0]", ())


def test_a_wrong_value_for_another_rank_is_silently_wrong_under_an_exporter_too():
    def bakes_in(fn, example):
        example_result = fn(*example)
        return lambda x: example_result.clone()

    inputs = [("example", ones), ("held_out[0]", lambda: (torch.ones(1, 3) * 2,))]
    case = a_case(plus_one, other_rank_inputs=HELD_OUT)
    case.inputs = lambda: inputs
    result = decide(carry_out(lambda: case, a_compiler(bakes_in, fixed_ranks=True), "cpu", lambda _: None))
    assert (str(result.verdict), result.input, result.refusals) == ("specialized", "held_out[0]", ())


def test_memory_that_runs_out_is_no_refusal():
    def runs_out(fn, example):
        calls = []

        def call(x):
            calls.append(x)
            if len(calls) > 1:
                raise MemoryError
            return fn(x)

        return call

    result = ruling(plus_one, runs_out, compiler={"fixed_ranks": True}, other_rank_inputs=HELD_OUT)
    assert (str(result.verdict), result.refusals) == ("oom", ())


# --- exceptions -----------------------------------------------------------------------------------------------------


def refuses(x):
    raise LookupError("no")


def test_a_subclass_of_the_exception_of_eager_is_a_note():
    def narrower(fn, example):
        def call(x):
            raise KeyError("no")

        return call

    result = ruling(refuses, narrower)
    assert str(result.verdict) == "pass"
    assert result.noted[0].detail == "eager raises LookupError, this its subclass KeyError"


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

    result = ruling(plus_one, lambda fn, example: Fails.apply, make=leaf)
    assert (str(result.verdict), result.phase, result.input, result.raised.type) == (
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
    differences = places_and_kinds(ruling(Thaws, detaches).differences)
    assert ("example", "gradients.state['weight']", "gradient") in differences
    assert not any(where.endswith(".grad") for _, where, _ in differences)


def test_a_case_can_do_without_a_backward():
    def doubles_gradient(fn, example):
        return lambda x: (x * 2 - x.detach()) + 1

    assert places_and_kinds(ruling(plus_one, doubles_gradient, make=leaf).differences)[0][1:] == (
        "gradients.args[0]",
        "gradient",
    )
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

    result = ruling(fails_on_the_second, same, make=make)
    assert (str(result.verdict), result.phase, result.raised) == ("not_applicable", "reference", None)
    assert "eager fails an assertion on the GPU" in result.reason


def test_the_same_where_no_input_needs_the_gpu():
    def always_fails(x):
        raise RuntimeError(ASSERTED)

    result = ruling(always_fails, same)
    assert (str(result.verdict), result.phase, result.input) == ("not_applicable", "reference", "example")


@pytest.mark.parametrize(
    "text", ["device-side assert triggered", "CUDA error: an illegal memory access was encountered"]
)
def test_inputs_that_cannot_be_made_for_another_reason_remain_an_error(text):
    def make():
        raise RuntimeError(text)

    result = ruling(plus_one, same, make=make)
    assert (str(result.verdict), result.phase, result.raised.message) == ("error", "reference", text)


def test_a_compiler_that_fails_an_assertion_on_the_gpu_is_at_fault():
    def breaks(fn, example):
        def call(x):
            raise RuntimeError(ASSERTED)

        return call

    result = ruling(plus_one, breaks)
    assert (str(result.verdict), result.phase, result.input) == ("error", "call", "example")


def test_a_call_that_leaves_an_unusable_gpu_ends_the_trial_and_is_at_fault(monkeypatch):
    """Afterwards no input can be made, and so neither the other inputs nor eager can be called."""
    died = []

    def reads_past_the_end(fn, example):
        def call(x):
            if len(x) != len(example[0]):
                died.append(True)
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            return fn(x)

        return call

    def make_another():
        if died:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return (torch.ones(5),)

    monkeypatch.setattr(steps, "device_works", lambda _device: not died)
    phases = []
    result = ruling(plus_one, reads_past_the_end, held_out=[make_another, make_another], phases=phases)
    assert (str(result.verdict), result.phase, result.input) == ("error", "call", "held_out[0]")
    assert result.raised.message == "CUDA error: an illegal memory access was encountered"
    assert phases[-1] == "call held_out[0]"
