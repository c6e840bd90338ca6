"""What a check advises: it follows from the record and from what is known about the target."""

import pytest

from recapture.records.difference import Difference
from recapture.records.record import ErrorInfo, Record
from recapture.records.verdicts import Verdict
from recapture.tools.check.answers import CheckReport, Circumstances, failing_families, row_of

INPUTS = ("batch=1", "batch=0")
BATCHES = Circumstances(inputs=INPUTS)


def recorded(compiler, verdict, *, kind="value", message=None, **fields):
    if verdict in (Verdict.WRONG, Verdict.SPECIALIZED):
        difference = Difference(input=fields.get("input", "held_out[0]"), where="result", kind=kind)
        fields = {"input": difference.input, "differences": (difference,), **fields}
    if message is not None:
        fields["error"] = ErrorInfo(type="RuntimeError", message=message, fingerprint="0")
    return Record(case="check::f", device="cpu", case_hash="0", compiler=compiler, verdict=verdict, **fields)


def advice(record, **circumstances):
    return row_of(record, Circumstances(inputs=INPUTS, **circumstances)).advice


@pytest.mark.parametrize(
    ("kind", "begins"),
    [
        ("torch._inductor.exc.InductorError", "torch.export accepts the program, and Inductor cannot compile it"),
        ("torch._dynamo.exc.Unsupported", "it needs a program that torch.export accepts"),
    ],
)
def test_an_export_that_fails_is_told_from_a_compilation_that_does(kind, begins):
    error = ErrorInfo(type=kind, message="NotImplementedError: Cannot access storage", fingerprint="0")
    record = recorded("aoti", Verdict.ERROR, phase="capture", error=error)
    assert advice(record).startswith(begins)


def refused_call(compiler):
    return recorded(compiler, Verdict.ERROR, phase="call", input="held_out[0]", message="Guard failed")


def refused_capture(compiler, message):
    return recorded(compiler, Verdict.ERROR, phase="capture", message=message)


def test_a_size_of_one_is_what_an_export_with_dynamic_sizes_takes_as_fixed():
    assert advice(refused_call("export:dynamic"), size_of_one=True).endswith("takes as fixed: use 2 or more")
    assert "size of 1" not in advice(refused_call("export:dynamic"))
    assert "export with dynamic shapes" not in advice(refused_call("export:dynamic"))
    assert "export with dynamic shapes" in advice(refused_call("export"), size_of_one=True)


@pytest.mark.parametrize(
    ("compiler", "facts", "helps"),
    [
        ("compile", {"random": True}, True),
        ("compile", {"random": True, "sets_fallback_random": True}, False),
        ("compile:eager", {"random": True}, False),
        ("compile", {"random": True, "depends_on_calls": True}, False),
        ("compile", {}, False),
    ],
)
def test_inductor_s_option_for_random_numbers_is_named_where_it_helps(compiler, facts, helps):
    assert ("fallback_random" in advice(recorded(compiler, Verdict.WRONG, input="example"), **facts)) == helps


EFFECT = Difference(input="example", where="state.calls", kind="mutation")
VALUE = Difference(input="held_out[0]", where="result", kind="value")


def test_a_wrong_value_behind_a_lost_side_effect_is_shown_and_has_its_advice():
    effect_and_value = row_of(
        recorded("jit.trace", Verdict.WRONG, input="example", differences=(EFFECT, VALUE)), BATCHES
    )
    assert effect_and_value.reason == "state.calls: mutation (and 1 more, also value); on batch=1, result: value"
    assert effect_and_value.advice.startswith("a side effect is lost or done at capture: return the new value")
    assert "; it recorded the path and sizes of the example, and batch=1 needs others" in effect_and_value.advice
    effect_alone = row_of(recorded("jit.trace", Verdict.WRONG, input="example", differences=(EFFECT,)), BATCHES)
    assert (effect_alone.reason, effect_alone.advice) == (
        "state.calls: mutation",
        effect_and_value.advice.partition("; it recorded")[0],
    )


def test_a_call_that_leaves_arguments_to_their_defaults_is_told_to_give_them():
    message = "Tracing expected 2 arguments but got 1 concrete arguments"
    assert advice(refused_capture("make_fx", message)).startswith("it does not fill in defaults: give every argument")


@pytest.mark.parametrize(
    ("refused", "tried", "text"),
    [
        (0, 0, "the example and 2 held-out inputs"),
        (1, 0, "the example and 2 held-out inputs; eager refuses 1 other"),
        (1, 1, "the example and 2 held-out inputs; eager refuses 1 other, which was tried as well and must raise"),
        (
            3,
            1,
            "the example and 2 held-out inputs; eager refuses 3 others, 1 of which was tried as well and must raise",
        ),
    ],
)
def test_the_inputs_in_words(refused, tried, text):
    names = [f"batch={number}" for number in range(refused)]
    report = CheckReport(
        target="f",
        torch="2.11.0",
        device="cpu",
        inputs=INPUTS,
        refused=tuple((name, "ValueError") for name in names),
        must_raise=tuple(names[:tried]),
    )
    assert report.inputs_in_words == text


@pytest.mark.parametrize(
    ("compilers", "text"),
    [
        ((), "report it upstream"),
        (("compile",), "report it upstream"),
        (("compile", "compile:eager"), "compare compile:eager above to find the layer, and report it upstream"),
        (
            ("compile:eager", "compile:aot_eager", "compile"),
            "compare compile:eager and compile:aot_eager above to find the layer, and report it upstream",
        ),
    ],
)
def test_only_compilers_that_ran_are_compared(compilers, text):
    assert advice(recorded("compile", Verdict.WRONG, input="example"), compilers=compilers) == text


@pytest.mark.parametrize(
    ("message", "branch"),
    [
        ("Data-dependent branching", True),
        ("symbolically traced variables cannot be used as inputs to control flow", False),  # a size may decide, too
        ("Converting a tensor to a Python boolean might cause the trace to be incorrect", True),
        ("Could not guard on data-dependent expression Eq(u0, 4) (unhinted: Eq(u0, 4))", False),
        ("Dynamic shape operator aten.nonzero.default", False),
        ("'Tensor' object has no attribute or method 'numpy'", False),
    ],
)
@pytest.mark.parametrize("compiler", ["export", "compile:fullgraph", "fx", "jit.script"])
def test_an_operator_for_branches_is_for_a_branch(compiler, message, branch):
    assert ("torch.cond" in advice(refused_capture(compiler, message))) == branch


@pytest.mark.parametrize("depends_on_calls", [True, False])
def test_a_trace_whose_check_fails_is_of_earlier_calls_where_the_result_is(depends_on_calls):
    record = refused_capture("jit.trace", "Tracing failed sanity checks!\nGraphs differed across invocations!")
    begins = "the result depends on earlier calls" if depends_on_calls else "it cannot record this call"
    assert advice(record, depends_on_calls=depends_on_calls).startswith(begins)


@pytest.mark.parametrize(("verdict", "word"), [(Verdict.CRASH, "crash"), (Verdict.TIMEOUT, "timeout")])
def test_a_process_that_ends_on_an_empty_batch_alone_is_usable_on_others(verdict, word):
    around = Circumstances(inputs=INPUTS)
    on_empty = row_of(recorded("compile", verdict, input="held_out[1]"), around)
    at_once = row_of(recorded("export", verdict, input="example"), around)
    report = CheckReport(target="f", torch="2.11.0", device="cpu", rows=(on_empty, at_once))
    assert on_empty.words == f"{word} on batch=0"
    assert on_empty.advice.startswith("do not use it on inputs like batch=0")
    assert "ends on another input than the example under compile; not usable under export" in report.sentence


RIGHT = recorded("compile:eager", Verdict.PASS)
BROKEN = recorded("compile:fullgraph", Verdict.ERROR, phase="capture", message="Unsupported")
WRONG = recorded("compile:aot_eager", Verdict.SPECIALIZED)


@pytest.mark.parametrize(
    ("others", "ends"),
    [
        ((), "needs others: use torch.compile or torch.export"),
        ((refused_capture("export", "no"),), "needs others: use torch.compile"),
        ((refused_call("export"),), "needs others: use torch.compile or torch.export"),
        ((refused_call("export:dynamic"), BROKEN, RIGHT), "needs others: use torch.compile"),
        ((refused_call("export"), BROKEN, WRONG), "needs others: use torch.export"),
        ((refused_capture("export", "no"), refused_call("export:dynamic"), BROKEN), "needs others"),
    ],
)
def test_what_the_same_check_shows_to_fail_is_not_recommended(others, ends):
    around = Circumstances(inputs=INPUTS)
    rows = [row_of(record, around) for record in (recorded("jit.trace", Verdict.SPECIALIZED), *others)]
    assert advice(recorded("jit.trace", Verdict.SPECIALIZED), failing=failing_families(rows)).endswith(ends)
