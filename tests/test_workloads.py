import pytest

from recapture.workloads import SpeedClaim, WorkloadError, workload


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
