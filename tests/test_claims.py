"""Whether records bear out the outcome that a claim expects, and which expectations are refused."""

import pytest

from recapture.cases.claim import Claim, ClaimSyntaxError, SpeedClaim, parse_claims
from recapture.records.record import ErrorInfo, Record
from recapture.records.verdicts import Verdict


def record(verdict, **more):
    return Record(case="s::a", compiler="c", device="cpu", case_hash="0", verdict=Verdict(verdict), **more)


ERROR = record("error", phase="capture", error=ErrorInfo("torch.fx.proxy.TraceError", "symbolically traced", "0"))
BROKEN = record("pass_with_breaks", graphs=3, graph_breaks=1, break_reasons=("attempted to jump at f.py:3",))


@pytest.mark.parametrize(
    ("expected", "row", "holds"),
    [
        ("pass", record("pass"), True),
        ("pass", record("pass_with_breaks"), False),
        ("pass|pass_with_breaks", record("pass_with_breaks"), True),
        ("right", record("pass_with_breaks"), True),
        ("right", record("wrong"), False),
        ("silently_wrong", record("specialized"), True),
        ("silently_wrong", record("wrong"), True),
        ("silently_wrong", record("error"), False),
        ("failing", record("crash"), True),
        ("failing|specialized", record("specialized"), True),
        ("pass", record("timeout"), False),
        ("error", ERROR, True),
        ("error:TraceError", ERROR, True),
        ("error(capture)", ERROR, True),
        ("error(capture):TraceError", ERROR, True),
        ("error(call):TraceError", ERROR, False),
        ("error:RuntimeError", ERROR, False),
        ("error:TraceError", record("error"), False),
        ("error", record("crash"), False),
        ("error:TraceError|pass", record("pass"), True),
        ("error message~symbolically", ERROR, True),
        ("error message~dynamic", ERROR, False),
        ("right graphs=3 graph_breaks=1", BROKEN, True),
        ("right graphs=3 graph_breaks=2", BROKEN, False),
        ("right graphs=3 reason~jump", BROKEN, True),
        ("right reason~print", BROKEN, False),
        ("pass graphs=3", BROKEN, False),  # the verdict decides before the conditions
        # What a cell says nothing about:
        ("right graphs=1", record("pass"), None),
        ("right graphs=1 graph_breaks=0", record("pass", graph_breaks=1), False),
        ("right recompiles=0", record("pass", recompiles=None), None),
        ("pass", record("not_applicable"), None),
        ("silently_wrong", record("environment"), None),
        ("pass", record("unstable"), None),
        ("unstable", record("unstable"), True),
        ("not_applicable|pass", record("not_applicable"), True),
    ],
)
def test_a_record_bears_a_claim_out_or_not(expected, row, holds):
    assert Claim("T1", expected).holds(row) is holds


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_can_be_claimed(verdict):
    assert Claim("T1", str(verdict)).holds(record(verdict)) is True


@pytest.mark.parametrize(
    "expected",
    ["", "   ", "passes", "pass|", "PASS", "error(later)", "error:", "error()", "pass graphs", "pass graphs=", "pass graphs=x",
     "pass graphs~1", "pass colour=3", "pass reason=x", "graphs=3", "pass graphs=-1"],
)  # fmt: skip
def test_what_is_not_in_the_grammar_is_refused_with_its_id(expected):
    with pytest.raises(ClaimSyntaxError, match="claim T9: unknown"):
        Claim("T9", expected)


def test_claims_are_one_pair_or_several():
    parsed = parse_claims({"compile": ("T1", "pass"), "fx": [("T2", "error"), ("T3", "failing")], "aoti": []})
    assert parsed == {
        "compile": (Claim("T1", "pass"),),
        "fx": (Claim("T2", "error"), Claim("T3", "failing")),
        "aoti": (),
    }
    assert parse_claims(None) == {}


@pytest.mark.parametrize(
    "claims",
    [
        {"c": "pass"},
        {"c": ("T1",)},
        {"c": ("T1", "pass", "x")},
        {"c": [("T1", 3)]},
        {"c": None},
        {3: ("T1", "pass")},
        ["c"],
        "c",
    ],
)
def test_what_is_no_pair_is_refused(claims):
    with pytest.raises(ClaimSyntaxError, match="claim"):
        parse_claims(claims)


RANGE = "error:InternalTorchDynamoError torch>=2.2,<2.10"


@pytest.mark.parametrize(
    ("torch", "holds"),
    [
        ("2.1.2+cu121", None),
        ("2.2.2+cu121", True),
        ("2.9.1", True),
        ("2.10.0+cu128", None),
        ("2.10.0.dev20251101", None),
        ("2.3.0a0+git1234", True),
    ],
)
def test_a_claim_does_not_apply_to_a_release_outside_its_range(torch, holds):
    row = record("error", error=ErrorInfo("torch._dynamo.exc.InternalTorchDynamoError", "x", "0"))
    assert Claim("S5", RANGE).holds(row, torch) is holds
    if holds is not None:
        assert Claim("S5", RANGE).holds(record("pass"), torch) is False
    assert SpeedClaim("L1", ">=1.5 torch>=2.2,<2.10", "2x").holds(1.6, 1.7, torch) is holds


def test_the_installed_torch_counts_where_no_version_is_given():
    assert Claim("T1", "pass torch>=2").holds(record("pass")) is True
    assert Claim("T1", "pass torch<2").holds(record("pass")) is None
    assert SpeedClaim("L1", "<1 torch<2", "0.5x").holds(0.5, 0.6) is None


@pytest.mark.parametrize("expected", ["pass torch>=2.x", "pass torch=2", "pass torch>=2 torch<3", "pass numpy>=2"])
def test_a_range_that_cannot_be_read_is_refused_with_its_id(expected):
    with pytest.raises(ClaimSyntaxError, match="claim T9: unknown"):
        Claim("T9", expected)


@pytest.mark.parametrize("expected", ["", "2.9", ">=", ">=1.5 graphs=1", "pass", ">=1.5|<2", ">=1.5 torch>=x"])
def test_what_is_no_bound_is_refused_with_its_id(expected):
    with pytest.raises(ClaimSyntaxError, match="claim L1: "):
        SpeedClaim("L1", expected, "2x")


def test_a_recorded_claim_about_a_range_stays_as_it_was_judged_where_it_was_measured():
    from recapture.tools.speed.figures import _claimed
    from recapture.tools.speed.speedups import Claimed

    recorded = Claimed(id="L1", expected=">=1.5 torch<2", published="2x", holds=True)
    assert _claimed(recorded, None, ()) is recorded
