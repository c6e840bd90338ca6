"""Zero padding behind tensors."""

import torch

from recapture.conformance.padding import with_room


def test_an_input_that_is_read_unchecked_has_room_behind_it_and_is_otherwise_the_same():
    base = torch.arange(12.0).reshape(3, 4)
    rooms = {}
    views = [with_room(one, rooms) for one in (base, base.t(), base[1:, :2], base)]
    for one, two in zip(views, (base, base.t(), base[1:, :2], base), strict=True):
        assert torch.equal(one, two)
        assert (one.stride(), one.storage_offset()) == (two.stride(), two.storage_offset())
    assert len({one.untyped_storage().data_ptr() for one in views}) == 1 == len(rooms)
    assert views[0].as_strided((16,), (1,)).tolist() == [*range(12), 0, 0, 0, 0]
    views[0].mul_(2)
    assert base[0, 1] == 1
    assert with_room(torch.ones(2, requires_grad=True), {}).requires_grad
