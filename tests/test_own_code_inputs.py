"""Inputs that are derived from the example of a user's own code: their names, and how they differ."""

import dataclasses
import enum

import torch

from recapture.judge.snapshot import snapshot_of
from recapture.tools.check.same_arguments import same_arguments, same_ranks
from recapture.tools.check.variants import derive, variants


def test_the_variants_of_one_tensor_have_names_and_differ():
    x = torch.arange(12.0).reshape(3, 4) - 5
    derived = {name: make()[0] for name, make in variants((x,)).items()}
    assert derived["batch=1"].shape == (1, 4)
    assert derived["batch=4"].shape == (4, 4)
    assert derived["last dimension=5"].shape == (3, 5)
    assert derived["negated"].equal(-x)
    assert derived["zeros"].equal(torch.zeros(3, 4))
    assert derived["large"].equal(x * 1e4)
    assert not derived["non-contiguous"].is_contiguous()
    assert derived["non-contiguous"].equal(x)
    assert derived["requires_grad flipped"].requires_grad
    assert "nan" not in derived
    requested = variants((x,), nonfinite=True, dtypes=("float64",))
    assert requested["nan"]()[0].isnan().sum() == 1
    assert requested["dtype=float64"]()[0].dtype == torch.float64
    assert not torch.is_grad_enabled() or not x.requires_grad


def test_an_image_has_a_variant_in_channels_last():
    (variant,) = derive("channels-last", (torch.rand(2, 3, 4, 5),))
    assert variant.is_contiguous(memory_format=torch.channels_last)


def test_scalars_flags_strings_and_lists_have_variants():
    makers = variants((2, True, 0.5, "mean", [torch.ones(2)]), constants=(7, "sum"))
    assert derive("args[0]=3", (2, True)) == (3, True)
    assert {"args[0]=0", "args[0]=7", "args[0]=8", "args[1]=False", "args[2]=-0.5", "args[3]='sum'"} <= makers.keys()
    assert len(makers["args[4] with 2 items"]()[4]) == 2


def test_equal_numbers_of_other_types_and_signs_are_variants():
    makers = variants((2, 0.0, None, torch.ones(3)))
    assert {
        "args[0]=2.0",
        "args[1]=-0.0",
        "args[1]=0",
        "args[2]=True",
        "args[2] a tensor",
        "args[3]=None",
    } <= makers.keys()
    assert str(makers["args[1]=-0.0"]()[1]) == "-0.0"
    assert type(makers["args[0]=2.0"]()[0]) is float


def test_members_of_an_enum_and_the_fields_of_a_dataclass_are_varied():
    @dataclasses.dataclass
    class Settings:
        scale: float
        kind: enum.Enum
        weights: torch.Tensor

    kinds = enum.Enum("kinds", "low high")
    makers = variants((Settings(1.5, kinds.low, torch.ones(2)),))
    (variant,) = makers[f"args[0].kind={kinds.high!r}"]()
    assert (variant.kind, variant.scale) == (kinds.high, 1.5)
    assert makers["args[0].scale=-1.5"]()[0].scale == -1.5
    assert makers["zeros"]()[0].weights.tolist() == [0, 0]


def test_ranks_dtypes_and_memory_are_varied():
    x = torch.arange(6.0).reshape(2, 3) + 1
    derived = {name: make()[0] for name, make in variants((x,)).items() if not name.startswith("args")}
    assert derived["another dimension"].shape == (2, 2, 3)
    assert derived["first row alone"].shape == (3,)
    assert derived["batch=0"].shape == (0, 3)
    assert derived["dtype=float64"].dtype == torch.float64
    assert derived["floats as integers"].dtype == torch.int64
    assert derived["expanded"].stride(0) == 0
    assert derived["part of a larger tensor"].storage_offset() == 6
    assert derived["part of a larger tensor"].equal(x)
    assert derived["first value negated"].tolist() == [[-1, 2, 3], [4, 5, 6]]


def test_values_on_both_sides_of_a_number_of_the_source_are_tried():
    makers = variants((torch.ones(3), torch.tensor(5)), constants=(10,))
    for name, below in (("values beyond 10", False), ("values below 10", True)):
        tensors = makers[name]()
        assert [bool(tensor.max() < 10) for tensor in tensors] == [below, below]
    assert makers["values of 10"]()[1].item() == 10


def test_what_code_looks_up_is_tried():
    """The keys of a dict that a function makes, and of one beside it."""
    from recapture.tools.check.source_facts import codes_of, mined

    table = {"relu": torch.relu, "negate": torch.neg}
    namespace = {"TABLE": table, "__name__": "theirs"}
    exec(
        "def f(x, name):\n    return {'one': 1, 'two': 2}[name] if name in ('three', 7) else TABLE[name](x)\n",
        namespace,
    )
    assert {"one", "two", "three", "relu", "negate", 7} <= set(mined(*codes_of(namespace["f"])))


def test_functions_slices_and_sets_are_varied():
    makers = variants((torch.relu, slice(0, 2), {1, 2}, [1], (2, 3)))
    assert makers["args[0]=torch.neg"]()[0] is torch.neg
    assert makers["args[1]=slice(1, None, None)"]()[1] == slice(1, None)
    assert makers["args[2] with one more"]()[2] == {1, 2, 3}
    assert makers["args[3] as a tuple"]()[3] == (1,)
    assert makers["every list longer"]()[3:] == ([1, 1], (2, 3, 3))
    assert not any("0x" in name for name in makers)


def test_bytes_get_as_large_as_they_can():
    (variant,) = derive("large", (torch.tensor([1, 2], dtype=torch.uint8),))
    assert variant.tolist() == [200, 254]


def test_lists_dicts_and_aliases_are_varied():
    x, y = torch.ones(2), torch.zeros(2)
    makers = variants(([x, y], {"a": x, "b": 2}, y))
    assert len(makers["args[0] empty"]()[0]) == 0
    assert makers["args[0] reversed"]()[0][0] is y
    assert list(makers["args[1] without 'a'"]()[1]) == ["b"]
    assert list(makers["args[1] with another key"]()[1]) == ["a", "b", "another"]
    aliased = makers["args[0][1] is args[0][0]"]()
    assert aliased[0][1] is aliased[0][0]


def test_a_leaf_that_requires_grad_stays_one():
    x = torch.ones(2, 2, requires_grad=True)
    variant = derive("negated", (x,))[0]
    assert variant.requires_grad
    assert variant.is_leaf
    parameter = derive("negated", (torch.nn.Parameter(torch.ones(2)),))[0]
    assert isinstance(parameter, torch.nn.Parameter)


def test_integers_on_a_gpu_only_get_values_that_the_example_has():
    x = torch.tensor([1, 2, 3])
    assert derive("negated", (x,))[0].tolist() == [-1, -2, -3]
    assert derive("negated", (x,), careful=True)[0] is x


def test_arguments_are_the_same_bit_by_bit_and_with_the_same_strides():
    ones = torch.ones(2, 2)

    def same(left, right):
        return same_arguments(snapshot_of(left), snapshot_of(right))

    assert same((ones, [1, {"a": ones}]), (ones.clone(), [1, {"a": ones.clone()}]))
    others = (ones * 2, ones.double(), torch.ones(2, 3), ones.as_strided((2, 2), (1, 2)), ones.clone().requires_grad_())
    assert not any(same((ones,), (different,)) for different in (*others, 1, None))
    assert not same((1, 2), (1, 3))
    assert not same({"a": ones}, {"b": ones})


def test_ranks_are_compared_at_the_places_that_both_arguments_have():
    flat, square = torch.ones(2), torch.ones(2, 2)
    assert same_ranks(snapshot_of((flat, {"a": square})), snapshot_of((torch.ones(9), {"a": square.double()})))
    assert not same_ranks(snapshot_of((flat, {"a": square})), snapshot_of((flat, {"a": flat})))
    assert same_ranks(snapshot_of({"a": flat}), snapshot_of({"b": square}))
