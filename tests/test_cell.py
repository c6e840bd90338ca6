"""One cell, run in this process: which verdict it ends with, and what it tells beside it."""

import sys

import msgspec
import pytest
import torch

from recapture.base.torch_compat import reset_dynamo
from recapture.conformance.cell import CellSpec, Findings, examine

pytestmark = pytest.mark.filterwarnings("ignore")

SUITE = '''
import sys

import torch
from recapture import case, compiler

CALLS = []


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (-torch.ones(3),)])
def plain(x):
    return x + 1


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (-torch.ones(3),)])
def branch(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


@case(example=lambda: (torch.ones(3),))
def leaves_another_dtype(x):
    torch.set_default_dtype(torch.float64)
    return x + 1


@compiler("cannot-say", unavailable=lambda: 1 / 0)
def cannot_say(fn, example):
    return fn


@case(example=lambda: (torch.ones(3), 1), held_out=[lambda: (torch.ones(3), 2)])
def scalar(x, n):
    return x * n


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (torch.ones(3),)])
def counts(x):
    CALLS.append(1)
    return x + len(CALLS)


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (torch.ones(3),)], watch=lambda: len(CALLS))
def watched(x):
    CALLS.append(1)
    return x + 1


@case(example=lambda: ([torch.ones(3)],))
def appends(xs):
    xs.append(xs[0] + 1)
    return xs[0]


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (torch.ones(4),)])
def raises_for_four(x):
    if x.shape[0] == 4:
        raise ValueError("four")
    return x


@case(example=lambda: (torch.ones(3),))
def always_raises(x):
    raise ValueError("always")


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (torch.ones(2),)])
def unstable(x):
    import os
    return x + int.from_bytes(os.urandom(4), "little")


@case(example=lambda: (torch.ones(3),))
def sometimes(x):
    import os
    key = "RECAPTURE_TEST_SOMETIMES"
    if os.environ.pop(key, None):
        raise ValueError("now and then")
    os.environ[key] = "1"
    return x


@case(example=lambda: (torch.ones(3),))
def memory(x):
    raise MemoryError("no more")


@case(example=lambda: (torch.ones(3),), since="99.0")
def newer(x):
    return x


@case(example=lambda: (torch.ones(3),), requires=["no_such_module.inner"])
def needs(x):
    return x


@case(example=lambda: (1 / 0,))
def no_inputs(x):
    return x


@case(example=lambda: (torch.ones(3),))
class NoModule(torch.nn.Module):
    def __init__(self):
        raise RuntimeError("cannot be built at /some/where/file.py")


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (torch.ones(3),), lambda: (torch.ones(3) * 2,)])
class Total(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(3))
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total += x
        return self.total * self.weight


@case(
    example=lambda: (torch.ones(3),),
    held_out=[lambda: (torch.ones(4),), lambda: (torch.ones(3),)],
)
class Resumes(torch.nn.Module):
    """After a loud failure the next result is right, seen from a program that caught it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x + self.calls


def original(x):
    return x * 2


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (-torch.ones(3),)], rewrite_of=original)
def good_rewrite(x):
    return x + x


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (-torch.ones(3),)], rewrite_of=original)
def bad_rewrite(x):
    return (x + x).abs()


@case(example=lambda: (torch.ones(3), 2, True), held_out=[lambda: (torch.ones(3) * 3, 2, True)], concrete_args=["flag"])
def chosen(x, n, flag):
    return x * n if flag else x


@case(example=lambda: (torch.ones(3),), compare_output=True)
def prints(x):
    print("hello")
    return x


@case(example=lambda: (torch.ones(3).half(),) , held_out=[lambda: (torch.rand(3).half(),)])
def leaks(x):
    torch.set_grad_enabled(False)
    return x


@case(example=lambda: (lambda t: (t, t))(torch.ones(3)))
def same(x, y):
    return x + 1 if x is y else x - 1


@compiler("identity")
def identity(fn, example):
    """Changes nothing."""
    return fn


@compiler("raises-on-example")
def raises_on_example(fn, example):
    """Fails on the example, returns nonsense elsewhere."""
    def call(x):
        if x.sum() == example[0].sum():
            raise KeyError("example")
        return x * 100
    return call


@compiler("wrong-then-raises")
def wrong_then_raises(fn, example):
    """Returns nonsense on the first other input."""
    def call(x):
        if x.sum() == example[0].sum():
            return fn(x)
        if x.shape[0] == 4:
            raise KeyError("four")
        return fn(x) * 100
    return call


@compiler("not-utf-8")
def not_utf_8(fn, example):
    """Fails with a file's name that is no UTF-8."""
    def call(*args):
        raise ValueError("cannot open caf\\udce9.txt")
    return call


@compiler("loses-memory")
def loses_memory(fn, example):
    """Runs out of memory when called."""
    def call(*args):
        raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has 3 MiB free.")
    return call


@compiler("not-here", unavailable=lambda: "there is no such thing here")
def not_here(fn, example):
    """Never available."""


@compiler("exits")
def exits(fn, example):
    """Leaves."""
    sys.exit(3)


@case(example=lambda: (torch.ones(4),), held_out=[lambda: (torch.ones(2),)])
def summed(x):
    return (x + 1).sum()


@compiler("unchecked", checks_inputs=False)
def unchecked(fn, example):
    """Reads what it is given."""
    return lambda x: fn(x) + (0 if x.sum() == example[0].sum() else 123)


@compiler("reads-past-the-end", checks_inputs=False)
def reads_past_the_end(fn, example):
    """Takes every input to be as large as the example."""
    return lambda x: fn(x.as_strided(example[0].shape, example[0].stride()))


@compiler("wrong")
def wrong(fn, example):
    """Always off by one."""
    return lambda *args: fn(*args) + 1


@compiler("strict-size", shares_state=False)
def strict_size(fn, example):
    """Refuses another size, loudly."""
    def call(x):
        if x.shape != example[0].shape:
            raise AssertionError("Guard failed")
        return fn(x)
    return call


@compiler("forgets", shares_state=False)
def forgets(fn, example):
    """Works on a new copy of the module in each call."""
    import copy
    kept = copy.deepcopy(fn)
    return lambda *args: copy.deepcopy(kept)(*args)


@compiler("warns")
def warns(fn, example):
    """Warns as a tracer does."""
    import warnings
    warnings.warn("maybe", torch.jit.TracerWarning)
    return lambda *args: fn(*args) + 1


@case(example=lambda: (torch.full((4,), 1e6),), held_out=[lambda: (torch.linspace(-1e6, -9e5, 4),)])
def branch_small(x):
    p = torch.full((1,), 0.9) if x.sum() > 0 else torch.full((1,), 0.85)
    return torch.cat([x * 1.1, p])


@case(example=lambda: (torch.nn.BatchNorm1d(1), torch.ones(3)))
def mutates_module(module, x):
    module.running_mean += 1
    return x


@compiler("untouched")
def untouched(fn, example):
    """Works on a copy of the module that it is given."""
    import copy
    return lambda module, x: fn(copy.deepcopy(module), x)


@case(example=lambda: (torch.ones(1),), held_out=[lambda: (torch.ones(4),), lambda: (torch.ones(2),)])
def three(x):
    return x + 1


@case(example=lambda: (torch.ones(3, 4).t(),), held_out=[lambda: (torch.ones(2, 2),)])
def smaller(x):
    return x + 1
'''


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "verdicts.py"
    path.write_text(SUITE)
    return path


@pytest.fixture
def cell(path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delenv("RECAPTURE_TEST_SOMETIMES", raising=False)
    # An export that fails leaves a hook behind for the rest of its process; cells have processes of their own.
    torch.nn.modules.module._global_buffer_registration_hooks.clear()
    reset_dynamo()

    def run(case, compiler, phases=None):
        builtin = compiler not in OWN
        spec = CellSpec(
            suite="verdicts",
            path=str(path),
            case=case,
            compiler=compiler,
            device="cpu",
            compiler_suite=None if builtin else "verdicts",
            compiler_file=None if builtin else str(path),
        )
        found = examine(spec, (phases if phases is not None else []).append)
        assert msgspec.json.decode(msgspec.json.encode(found), type=Findings) == found
        return found

    return run


OWN = {"identity", "raises-on-example", "wrong-then-raises", "loses-memory", "not-here", "exits", "unchecked", "wrong",
       "strict-size", "warns", "forgets", "reads-past-the-end", "not-utf-8",
       "untouched", "cannot-say"}  # fmt: skip


def brief(found):
    return (str(found.verdict), found.phase, found.input, found.error and found.error.type)


@pytest.mark.parametrize(
    ("case", "compiler", "expected"),
    [
        # right
        ("plain", "eager", ("pass", None, None, None)),
        ("plain", "identity", ("pass", None, None, None)),
        ("plain", "compile:eager", ("pass", None, None, None)),
        ("plain", "fx", ("pass", None, None, None)),
        ("plain", "make_fx", ("pass", None, None, None)),
        ("plain", "jit.trace", ("pass", None, None, None)),
        ("plain", "export:nonstrict", ("pass", None, None, None)),
        ("branch", "jit.script", ("pass", None, None, None)),
        ("appends", "fx", ("pass", None, None, None)),
        ("branch", "compile:eager", ("pass_with_breaks", None, None, None)),
        ("raises_for_four", "compile:eager", ("pass", None, None, None)),  # it raises what eager raises
        ("always_raises", "identity", ("pass", None, None, None)),
        ("Total", "identity", ("pass", None, None, None)),
        ("Total", "compile:eager", ("pass", None, None, None)),
        ("counts", "identity", ("pass", None, None, None)),  # each side has globals of its own
        ("same", "identity", ("pass", None, None, None)),
        ("good_rewrite", "eager", ("pass", None, None, None)),
        # silently wrong
        ("branch", "jit.trace", ("specialized", None, "held_out[0]", None)),
        ("scalar", "make_fx", ("specialized", None, "held_out[0]", None)),
        ("raises_for_four", "jit.trace", ("specialized", None, "held_out[0]", None)),
        ("bad_rewrite", "eager", ("specialized", None, "held_out[0]", None)),
        ("smaller", "reads-past-the-end", ("specialized", None, "held_out[0]", None)),  # and not whatever lay there
        ("appends", "make_fx", ("wrong", None, "example", None)),
        ("watched", "jit.trace", ("wrong", None, "example", None)),
        ("prints", "jit.trace", ("wrong", None, "example", None)),
        ("same", "jit.trace", ("wrong", None, "example", None)),
        ("plain", "wrong", ("wrong", None, "example", None)),
        ("leaves_another_dtype", "fx", ("wrong", None, "example", None)),  # what capturing left is put back
        ("leaves_another_dtype", "jit.trace", ("wrong", None, "example", None)),
        ("branch_small", "jit.trace", ("specialized", None, "held_out[0]", None)),
        ("mutates_module", "untouched", ("wrong", None, "example", None)),
        # loudly wrong
        ("branch", "fx", ("error", "capture", "example", "torch.fx.proxy.TraceError")),
        ("branch", "compile:fullgraph", ("error", "capture", "example", "torch._dynamo.exc.Unsupported")),
        ("branch", "export", ("error", "capture", "example", "torch._dynamo.exc.Unsupported")),
        ("plain", "cannot-say", ("error", "capture", None, "ZeroDivisionError")),
        ("plain", "exits", ("error", "capture", "example", "SystemExit")),
        ("plain", "raises-on-example", ("error", "call", "example", "KeyError")),
        ("plain", "not-utf-8", ("error", "call", "example", "ValueError")),
        ("three", "wrong-then-raises", ("specialized", None, "held_out[1]", None)),
        ("no_inputs", "eager", ("error", "reference", None, "ZeroDivisionError")),
        ("NoModule", "fx", ("error", "reference", None, "RuntimeError")),
        ("plain", "loses-memory", ("oom", "call", "example", "RuntimeError")),
        ("memory", "fx", ("oom", "reference", "example", "MemoryError")),
        # nothing is said
        ("unstable", "compile:eager", ("unstable", None, "example", None)),
        ("sometimes", "fx", ("unstable", None, "example", None)),
        ("newer", "fx", ("not_applicable", None, None, None)),
        ("needs", "fx", ("not_applicable", None, None, None)),
        ("plain", "not-here", ("not_applicable", None, None, None)),
    ],
)  # fmt: skip
def test_verdicts(cell, case, compiler, expected):
    assert brief(cell(case, compiler)) == expected


def test_reasons_are_reported(cell):
    assert cell("newer", "fx").reason == "the case needs torch 99.0 or newer"
    assert cell("needs", "fx").reason == "the case needs no_such_module.inner"
    assert cell("plain", "not-here").reason == "there is no such thing here"
    assert cell("unstable", "fx").reason == "eager disagrees with itself: result (value)"
    assert cell("sometimes", "fx").reason == "eager raises on one of two runs"


def test_the_phases_are_announced_as_they_are_entered(cell):
    phases = []
    cell("plain", "fx", phases)
    assert phases == ["reference", "capture", "call example", "call held_out[0]"]
    phases = []
    cell("branch", "fx", phases)
    assert phases == ["reference", "capture"]
    phases = []
    cell("plain", "eager", phases)
    assert phases == ["reference"]


def test_breaks_are_counted_over_all_inputs(cell):
    found = cell("branch", "compile:eager")
    assert (found.graphs, found.graph_breaks, found.recompiles) == (3, 1, 0)
    (reason,) = found.break_reasons
    assert "jump" in reason
    assert "verdicts.py" in reason
    assert "/" not in reason


def test_compilers_without_graphs_report_none(cell):
    found = cell("plain", "jit.trace")
    assert (found.graphs, found.graph_breaks, found.recompiles, found.break_reasons) == (None, None, None, ())


def test_an_error_on_the_example_outranks_differences_elsewhere_and_keeps_them(cell):
    found = cell("plain", "raises-on-example")
    assert brief(found) == ("error", "call", "example", "KeyError")
    assert [one.input for one in found.differences] == ["held_out[0]"]


def test_one_silent_difference_outranks_an_error_elsewhere(cell):
    found = cell("three", "wrong-then-raises")
    assert str(found.verdict) == "specialized"
    assert [one.input for one in found.differences] == ["held_out[1]"]


def test_a_loud_failure_does_not_make_later_calls_silently_wrong(cell):
    found = cell("Resumes", "strict-size")
    assert brief(found) == ("error", "call", "held_out[0]", "AssertionError")
    assert found.differences == ()


def test_errors_are_scrubbed(cell):
    assert cell("NoModule", "fx").error.message == "cannot be built at file.py"
    assert cell("plain", "loses-memory").error.message == "CUDA out of memory. Tried to allocate 20.00 GiB"
    assert len(cell("NoModule", "fx").error.fingerprint) == 10


def test_one_module_serves_every_input(cell):
    assert brief(cell("Total", "identity"))[0] == "pass"
    # Its buffer adds up: a callable that works on copies does not change it, and is right on the first input alone.
    found = cell("Total", "forgets")
    assert brief(found)[:3] == ("wrong", None, "example")
    wrong = [(one.input, one.where) for one in found.differences if one.kind in ("value", "mutation")]
    assert wrong[:3] == [("example", "state['total']"), ("held_out[0]", "result"), ("held_out[0]", "state['total']")]


def test_concrete_arguments_reach_the_compiler(cell):
    found = cell("chosen", "fx:concrete_args")
    assert brief(found) == ("pass", None, None, None)  # n stays an argument, flag is burnt in
    assert brief(cell("chosen", "fx"))[:2] == ("error", "capture")


def test_figures_of_memory_behind_the_inputs_stay_out(cell):
    (difference,) = cell("plain", "unchecked").differences
    assert (difference.input, difference.detail) == ("held_out[0]", "3 of 3 elements differ: eager 0, this 123 at [0]")
    (difference,) = cell("summed", "reads-past-the-end").differences
    assert difference.detail == "value differs; args[0] has shape (2,), the example's (4,)"
    (first, second) = cell("plain", "wrong").differences
    assert "3 of 3 elements differ" in first.detail
    assert "3 of 3 elements differ" in second.detail


def test_warnings_that_only_torch_gives_are_noted(cell):
    assert cell("plain", "warns").notes == ("warned: TracerWarning",)
    assert "warned: TracerWarning" in cell("branch", "jit.trace").notes


def test_global_state_is_as_it_was(cell):
    cell("leaks", "identity")
    assert torch.is_grad_enabled()


def test_what_failed_is_on_stderr_with_its_traceback(cell, capsys):
    cell("plain", "raises-on-example")
    assert "in call" in capsys.readouterr().err
