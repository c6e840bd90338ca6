"""Arguments on a device as they were made.

Another device has other storages. Room behind the storages makes new storages too, so most of this is tested on the CPU
with roomy arguments, and runs on a GPU as well where there is one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from typing import NamedTuple

import numpy as np
import pytest
import torch

from recapture.judge import placement
from recapture.judge.placement import map_tensors
from recapture.torch_api.compat import ignoring_subclasses

pytestmark = pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors", "ignore:Named tensors", "ignore:Sparse CSR"
)

no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(
    params=[("cpu", True), pytest.param(("cuda", False), marks=no_gpu), pytest.param(("cuda", True), marks=no_gpu)]
)
def placed(request):
    device, roomy = request.param

    def run(make):
        args = placement.arguments(make, device, roomy=roomy)
        with ignoring_subclasses():
            assert all(tensor.device.type == device for tensor in args)
        return args

    return run


def address(tensor):
    return tensor.untyped_storage().data_ptr()


def test_without_a_move_the_arguments_are_those_of_the_factory():
    arguments = ([torch.ones(2)], {"a": torch.ones(3)})
    assert placement.arguments(lambda: arguments, "cpu") is arguments


def test_views_of_one_storage_stay_views_of_one_storage(placed):
    def make():
        base = torch.arange(12.0).reshape(3, 4)
        return base, base.t(), base[1:, :2], base[2], base

    args = placed(make)
    for moved, original in zip(args, make(), strict=True):
        assert torch.equal(moved.cpu(), original)
        assert (moved.stride(), moved.storage_offset()) == (original.stride(), original.storage_offset())
    assert len({address(tensor) for tensor in args}) == 1
    assert args[0] is args[4]
    assert args[1]._base is args[2]._base is args[0]._base
    args[0].mul_(2)
    assert args[2][0, 0].item() == 8


def test_a_view_whose_base_is_no_argument_keeps_its_offset_and_what_is_around_it(placed):
    (view,) = placed(lambda: (torch.arange(6.0)[2:4],))
    assert view.storage_offset() == 2
    assert view._is_view()
    assert view.as_strided((6,), (1,), 0).tolist() == [0, 1, 2, 3, 4, 5]


def test_views_of_another_dtype_share_memory(placed):
    def make():
        whole = torch.zeros(4)
        pairs = torch.zeros(3, dtype=torch.complex64)
        return whole, whole.view(torch.int32), pairs, torch.view_as_real(pairs)

    whole, bits, pairs, parts = placed(make)
    whole.fill_(1.0)
    assert bits.tolist() == [0x3F800000] * 4
    parts.fill_(1.0)
    assert pairs[0].item() == 1 + 1j


def test_expanded_and_overlapping_tensors_keep_their_strides(placed):
    expanded, windows = placed(lambda: (torch.ones(1).expand(4), torch.arange(5.0).unfold(0, 3, 1)))
    assert (expanded.stride(), windows.stride()) == ((0,), (1, 1))
    windows[0, 1] = 9
    assert windows[1, 0].item() == 9


def test_memory_formats_and_empty_tensors_are_kept(placed):
    image, empty = placed(lambda: (torch.ones(1, 2, 3, 3).to(memory_format=torch.channels_last), torch.empty(0, 3)))
    assert image.is_contiguous(memory_format=torch.channels_last)
    assert empty.shape == (0, 3)


def test_conjugate_and_negative_bits_are_kept(placed):
    def make():
        number = torch.tensor([1 + 2j])
        return number, number.conj(), number.conj().imag, torch.tensor([3 + 4j]).conj()

    number, conjugate, imaginary, alone = placed(make)
    assert [tensor.is_conj() for tensor in (number, conjugate, alone)] == [False, True, True]
    assert imaginary.is_neg()
    assert (conjugate.item(), imaginary.item(), alone.item()) == (1 - 2j, -2, 3 - 4j)
    number.fill_(5 + 6j)
    assert (conjugate.item(), imaginary.item()) == (5 - 6j, -6)


def test_leaves_and_parameters_stay_what_they_are(placed):
    leaf, parameter, frozen = placed(
        lambda: (
            torch.ones(2, requires_grad=True),
            torch.nn.Parameter(torch.ones(2)),
            torch.nn.Parameter(torch.ones(2), requires_grad=False),
        )
    )
    assert (leaf.is_leaf, leaf.requires_grad, type(leaf)) == (True, True, torch.Tensor)
    assert (parameter.is_leaf, parameter.requires_grad, type(parameter)) == (True, True, torch.nn.Parameter)
    assert (frozen.requires_grad, type(frozen)) == (False, torch.nn.Parameter)


def test_a_gradient_flows_through_a_view_of_a_leaf(placed):
    def make():
        leaf = torch.ones(4, requires_grad=True)
        with torch.no_grad():
            unrecorded = leaf[2:]
        return leaf, leaf[:2], leaf.detach(), unrecorded

    leaf, view, detached, unrecorded = placed(make)
    assert not view.is_leaf
    assert view._base is leaf
    assert len({address(tensor) for tensor in (leaf, view, detached, unrecorded)}) == 1
    for moved, original in zip((leaf, view, detached, unrecorded), make(), strict=True):
        assert (moved.is_leaf, moved.requires_grad, moved._is_view()) == (
            original.is_leaf,
            original.requires_grad,
            original._is_view(),
        )
    assert unrecorded._base is leaf
    (view * 3).sum().backward()
    assert leaf.grad.tolist() == [3, 3, 0, 0]


def test_a_view_that_is_a_leaf_stays_one(placed):
    def make():
        base = torch.ones(3)
        return base[1:].requires_grad_(), base

    view, tensor = placed(make)
    assert (view.is_leaf, view.requires_grad, tensor.requires_grad) == (True, True, False)
    assert view._base is tensor


def test_a_computed_argument_has_a_gradient_function_that_reaches_the_leaf(placed):
    def make():
        leaf = torch.tensor([1.0, 2.0], requires_grad=True)
        return leaf, leaf.exp() * leaf

    leaf, computed = placed(make)
    assert not computed.is_leaf
    assert computed.grad_fn is not None
    computed.retain_grad()
    (computed * 2 + leaf).sum().backward()
    assert computed.grad.tolist() == [2, 2]
    value = torch.tensor([1.0, 2.0])
    torch.testing.assert_close(leaf.grad.cpu(), 2 * (value.exp() * value + value.exp()) + 1)


def test_gradients_of_computed_arguments_can_be_asked_for_one_by_one(placed):
    def make():
        leaf, factor = torch.ones(2, requires_grad=True), torch.full((2,), 5.0, requires_grad=True)
        return leaf, leaf * factor, (leaf * 7)[:1]

    leaf, product, view = placed(make)
    assert not view.is_leaf
    grads = torch.autograd.grad((product.sum() * 2 + view.sum()), [leaf, product, view])
    assert [gradient.tolist() for gradient in grads] == [[17, 10], [2, 2], [1]]


def test_a_computed_argument_whose_leaf_is_no_argument_has_a_gradient(placed):
    (computed,) = placed(lambda: (torch.ones(3, requires_grad=True) * 2,))
    computed.retain_grad()
    assert computed._is_view() is False
    for _ in range(2):
        computed.sum().backward()
    assert computed.grad.tolist() == [2, 2, 2]


def test_gradients_and_hooks_are_kept(placed):
    called = []

    def make():
        leaf = torch.ones(2, requires_grad=True)
        leaf.grad = torch.full((2,), 4.0)
        leaf.register_hook(called.append)
        product = leaf * 2
        product.retain_grad()
        return leaf, product

    leaf, product = placed(make)
    assert leaf.grad.device == leaf.device
    assert product.retains_grad
    leaf.sum().backward()
    assert leaf.grad.tolist() == [5, 5]
    assert len(called) == 1


def test_inference_tensors_stay_inference_tensors(placed):
    def make():
        with torch.inference_mode():
            unrecorded = torch.ones(3)
            return torch.ones(3), unrecorded, unrecorded[1:], torch.ones(2).as_subclass(Named)

    args = placed(make)
    with ignoring_subclasses():
        assert all(tensor.is_inference() for tensor in args)
    assert address(args[1]) == address(args[2])
    assert not placed(lambda: (torch.ones(3),))[0].is_inference()


class Named(torch.Tensor):
    """A subclass that refuses every operation that it hears of."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(func)


def test_subclasses_keep_their_type_and_attributes(placed):
    def make():
        tensor = torch.ones(2).as_subclass(Named)
        vars(tensor)["label"] = "a"
        vars(tensor)["other"] = [torch.zeros(1)]
        return (tensor, torch.nn.Buffer(torch.ones(1)) if hasattr(torch.nn, "Buffer") else torch.ones(1))

    with ignoring_subclasses():
        tensor, buffer = placed(make)
        assert type(tensor) is Named
        assert vars(tensor)["label"] == "a"
        assert vars(tensor)["other"][0].device == tensor.device
        assert hasattr(buffer, "persistent") == hasattr(torch.nn, "Buffer")


def test_attributes_of_tensors_are_kept(placed):
    def make():
        tensor = torch.ones(2)
        tensor.scale = torch.full((1,), 3.0)
        tensor.itself = tensor
        tensor.note = {"unit": "m"}
        view = tensor[1:]
        view.scale = tensor.scale
        return tensor, view

    tensor, view = placed(make)
    assert tensor.itself is tensor
    assert tensor.note == {"unit": "m"}
    assert tensor.scale is view.scale
    assert tensor.scale.device == tensor.device


def test_names_are_kept(placed):
    (tensor,) = placed(lambda: (torch.ones(2, 3, names=("rows", "columns")),))
    assert tensor.names == ("rows", "columns")


def test_a_release_without_named_tensors_places_the_others():
    def gone(_):
        raise AttributeError

    class Nameless(torch.Tensor):
        has_names = property(gone)

    (tensor,) = placement.arguments(lambda: (torch.ones(2).as_subclass(Nameless),), "cpu", roomy=True)
    assert type(tensor) is Nameless


def test_sparse_quantized_and_nested_tensors_arrive(placed):
    sparse, rows, quantized, leaf = placed(
        lambda: (
            torch.eye(3).to_sparse(),
            torch.eye(3).to_sparse_csr(),
            torch.quantize_per_tensor(torch.ones(3), 0.5, 1, torch.qint8),
            torch.eye(2).to_sparse().requires_grad_(),
        )
    )
    assert (sparse.layout, rows.layout, sparse.is_coalesced()) == (torch.sparse_coo, torch.sparse_csr, True)
    assert (quantized.q_scale(), quantized.q_zero_point()) == (0.5, 1)
    assert quantized.dequantize().tolist() == [1, 1, 1]
    assert (leaf.is_leaf, leaf.requires_grad) == (True, True)
    (values,) = placed(lambda: (torch.eye(3).to_sparse().values(),))  # a view of something that has no strides
    assert values.tolist() == [1, 1, 1]
    (nested,) = placed(lambda: (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),))
    assert [part.shape[0] for part in nested.unbind()] == [2, 3]


def test_tensors_of_another_device_and_arrays_are_left_alone():
    array = np.ones(3)
    elsewhere, same = placement.arguments(lambda: (torch.empty(3, device="meta"), array), "cpu", roomy=True)
    assert elsewhere.device.type == "meta"
    assert same is array


def test_the_placed_tensors_have_no_values_of_the_cpu_where_the_device_has_none():
    """A device other than the CPU, without a GPU: the structure arrives on it."""

    def make():
        leaf = torch.ones(4, requires_grad=True)
        return leaf, leaf[1:], leaf * 2, [torch.nn.Linear(2, 2)]

    leaf, view, computed, (module,) = placement.arguments(make, "meta")
    assert {tensor.device.type for tensor in (leaf, view, computed, *module.parameters())} == {"meta"}
    assert (leaf.is_leaf, view._base is leaf, computed.is_leaf) == (True, True, False)
    assert list(map(type, module.parameters())) == [torch.nn.Parameter] * 2
    assert [tensor.requires_grad for tensor in (leaf, view, computed)] == [True] * 3


def test_an_input_that_is_read_unchecked_has_room_behind_it():
    (tensor,) = placement.arguments(lambda: (torch.arange(3.0),), "cpu", roomy=True)
    assert tensor.untyped_storage().nbytes() == 12 + placement.ROOM_BYTES
    assert tensor.as_strided((5,), (1,)).tolist() == [0, 1, 2, 0, 0]


class Pair(NamedTuple):
    a: object
    b: object


@dataclasses.dataclass(frozen=True)
class Box:
    inner: object


class Slotted:
    __slots__ = ("empty", "inner")

    def __init__(self, inner):
        self.inner = inner

    def method(self):
        return self.inner


def doubled(value):
    return map_tensors(value, lambda tensor: tensor * 2)


def test_tensors_are_replaced_wherever_they_are():
    tensor = torch.ones(1)
    slotted = Slotted(tensor)
    value = (
        tensor,
        [tensor, {"k": (tensor, 3)}],
        Pair(tensor, "s"),
        Box(tensor),
        slotted,
        {tensor},
        deque([tensor]),
        frozenset([tensor]),
    )
    changed = doubled(value)
    two = changed[0]
    assert two.item() == 2
    assert changed[1][0] is changed[1][1]["k"][0] is changed[2].a is changed[3].inner is slotted.inner is two
    assert type(changed[2]) is Pair
    assert changed[5] == changed[7] == {two}
    assert changed[6][0] is two
    assert (changed[1], changed[3], changed[5]) == (value[1], value[3], value[5])  # the same objects


def test_tensors_in_functions_are_replaced():
    tensor = torch.ones(1)

    def nested():
        return tensor

    inner, method, partial = doubled((nested, Slotted(torch.ones(1)).method, functools.partial(max, torch.ones(1))))
    assert inner is nested
    assert nested().item() == method().item() == partial.args[0].item() == 2


def test_an_object_without_tensors_is_the_same_object():
    sentinel = object()
    value = (sentinel, (1, "a"), Pair(1, 2), frozenset([1]), functools.partial(max, 1), Slotted(1).method)
    assert doubled(value) is value


def test_what_is_given_twice_or_contains_itself_stays_so():
    cyclic = [torch.ones(1)]
    cyclic.append(cyclic)
    first, second, nested = doubled((cyclic, cyclic, {"again": cyclic}))
    assert first is second is nested["again"] is cyclic
    assert cyclic[1] is cyclic
    assert cyclic[0].item() == 2


def test_a_packed_sequence_keeps_its_sizes():
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2, 1), torch.ones(1, 1)])
    changed = doubled((packed,))[0]
    assert type(changed) is type(packed)
    assert changed.batch_sizes is packed.batch_sizes
    assert changed.data.sum().item() == 6


def test_a_result_of_torch_with_named_fields_stays_one():
    changed = doubled(torch.ones(2, 2).max(0))
    assert type(changed) is torch.return_types.max
    assert changed.values.tolist() == [2, 2]
