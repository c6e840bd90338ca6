"""What the judge says of a difference: its place, its figures, and what is noted alone."""

import torch
from observed_calls import Plain, compare_values, strict, texts

from recapture.judge.compare import Rules


def test_the_place_shown_is_one_where_the_difference_matters():
    eager = torch.zeros(1000) + 1
    other = eager + 1e-7  # rounding everywhere
    other[7] = 3
    (difference,) = compare_values(eager, other).differences
    assert difference.detail == "1 of 1000 elements differ: eager 1, this 3 at [7]"


def test_figures_have_the_digits_that_distinguish_them():
    (difference,) = compare_values(torch.tensor(1.0), torch.tensor(1.00002)).differences
    assert difference.detail == "value differs: eager 1, this 1.00002"
    (difference,) = compare_values("a" * 90 + "b", "a" * 90 + "c").differences
    assert difference.detail.endswith("c'")


def test_the_number_of_differing_elements_is_reported_for_types_without_arithmetic():
    eager, other = (torch.tensor([1, 2, last], dtype=torch.int16).view(torch.bits16) for last in (3, 4))
    assert [difference.detail for difference in compare_values(eager, other).differences] == ["1 of 3 elements differ"]


def test_names_that_are_not_utf_8_are_reported_as_escapes():
    comparison = compare_values(Plain(**{"a\udce9": 1}), Plain(**{"a\udce9": 2}))
    assert [difference.where for difference in comparison.differences] == ["result.a\\udce9"]
    comparison = compare_values(Plain(**{"a\udce9": torch.ones(2, 2)}), Plain(**{"a\udce9": torch.ones(2, 2).t()}))
    assert texts(comparison.notes) == ["result.a\\udce9 metadata: stride (2, 1) in eager, (1, 2) here"]


def test_figures_can_be_left_out():
    for eager, other in [(torch.ones(2), torch.zeros(2)), (1.5, 2.5), ("a", "b")]:
        (difference,) = compare_values(eager, other, rules=Rules(show_values=False)).differences
        assert difference.detail == "value differs"


def test_strides_are_noted_and_a_case_may_be_strict_about_them():
    eager, other = torch.ones(2, 3).t(), torch.ones(3, 2)
    expected = ["result metadata: stride (1, 3) in eager, (2, 1) here"]
    assert texts(compare_values(eager, other).notes) == expected
    assert texts(compare_values(eager, other, rules=strict("stride")).differences) == expected


def test_the_sign_of_zero_and_the_bits_of_nan_are_noted():
    nans = [torch.tensor([bits], dtype=torch.int32).view(torch.float32) for bits in (0x7FC00000, 0x7FC00001)]
    for eager, other, name in [(0.0, -0.0, "signed-zero"), (*nans, "nan-payload")]:
        (note,) = compare_values(eager, other).notes
        assert (note.kind, note.bits) == ("value", name)
        assert compare_values(eager, other).differences == []
        assert compare_values(eager, other, rules=strict(name.replace("-", "_"))).differences == [note]


def test_how_far_values_are_apart_is_recorded():
    (difference,) = compare_values(
        torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 3.0 + 3 * 2**-15])
    ).differences
    assert (difference.bits, difference.ulps, difference.elements) == ("value", 380, (1, 3))


def test_metadata_of_a_result_is_compared():
    quantized = [torch.quantize_per_tensor(torch.zeros(2), scale, 0, torch.qint8) for scale in (0.1, 0.2)]
    named = [torch.ones(1), torch.ones(1)]
    named[0].label = "a"
    complex_numbers = torch.ones(2, dtype=torch.complex64)
    with torch.inference_mode():
        inference_tensor = torch.ones(1)
    for eager, other, where in [
        (torch.ones(1, requires_grad=True) * 1, torch.ones(1), "result"),
        (*quantized, "result.q_scale()"),
        (*named, "result.label"),
        (complex_numbers, complex_numbers.conj(), "result"),
        (torch.ones(1), inference_tensor, "result"),
        (torch.ones(1, requires_grad=True) * 1, torch.ones(1, requires_grad=True), "result"),
    ]:
        assert [
            (difference.where, difference.kind)
            for difference in compare_values(eager, other).differences
            if difference.kind != "gradient"
        ] == [(where, "metadata")]
