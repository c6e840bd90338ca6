"""Writing in place, views and shared memory: what a functional graph must put back as it found it."""

import torch

from recapture import case


def twice(tensor):
    """Give one tensor as both arguments."""
    return tensor, tensor


def overlapping(base):
    """Give two views of one tensor that share their middle."""
    return base[:-2], base[2:]


@case(
    example=lambda: (torch.ones(3), torch.full((3,), 5.0)),
    held_out=[lambda: twice(torch.ones(3))],
)
def one_tensor_given_twice(x, y):
    """Writes into one argument and reads the other, which is the same tensor later."""
    x.add_(1)
    return y * 2


@case(
    example=lambda: (torch.arange(4.0), torch.arange(2.0, 6.0)),
    held_out=[lambda: overlapping(torch.arange(6.0))],
)
def arguments_that_overlap(x, y):
    """Writes into one argument and reads the other: later both are views that overlap in part."""
    x.mul_(10)
    return y + 1


@case(
    example=lambda: (torch.ones(3), torch.ones(3)),
    held_out=[lambda: twice(torch.ones(3))],
)
def asks_for_identity(x, y):
    """Asks with `is` whether two arguments are one object; equal values do not count."""
    if x is y:
        return x * 10
    return x + y


@case(
    example=lambda: (torch.arange(6.0).reshape(2, 3),),
    held_out=[lambda: (torch.arange(6.0).reshape(3, 2).t(),)],
)
def contiguous_copies_or_not(x):
    """Writes into `x.contiguous()`, which is the argument itself or a copy, by its layout."""
    y = x.contiguous()
    y.add_(1)
    return y.sum(0)


@case(
    example=lambda: (torch.ones(3),),
    held_out=[lambda: (torch.ones(3, dtype=torch.float64),)],
)
def conversion_copies_or_not(x):
    """Writes into `x.to(torch.float32)`, which is the argument itself or a copy, by its dtype."""
    y = x.to(torch.float32)
    y.add_(1)
    return y * 2


@case(
    example=lambda: (torch.ones(3, 3),),
    held_out=[lambda: (torch.ones(3, 1),)],
)
def writes_into_an_expanded_view(x):
    """Writes into `x.expand(3, 3)`: where elements share memory, that is a RuntimeError."""
    x.expand(3, 3).add_(1)
    return x * 2


@case(
    example=lambda: (torch.ones(4, 2), 2),
    held_out=[lambda: (torch.ones(4, 2), 3), lambda: (torch.ones(4, 2), -1)],
)
def zeroes_the_first_rows(x, n: int):
    """Assigns to a slice of the argument whose end is a Python int."""
    x[:n] = 0
    return x.sum()


@case(
    example=lambda: (torch.tensor([1.0, -2.0, 3.0]),),
    held_out=[lambda: (torch.tensor([-1.0, -2.0, -3.0]),), lambda: (torch.tensor([1.0, 2.0, 0.0]),)],
)
def assigns_through_a_mask(x):
    """Assigns through a boolean mask, in place in a copy: how many elements are hit depends on the values."""
    y = x.clone()
    y[x < 0] = 0
    return y


@case(
    example=lambda: (torch.tensor([1.0, -2.0, 3.0]),),
    held_out=[lambda: (torch.tensor([-1.0, -2.0, -3.0]),), lambda: (torch.tensor([1.0, 2.0, 0.0]),)],
    rewrite_of=assigns_through_a_mask,
)
def selects_by_a_mask(x):
    """The functional form of an assignment through a mask: `torch.where`."""
    return torch.where(x < 0, torch.zeros_like(x), x)


@case(
    example=lambda: (torch.zeros(4), torch.tensor([0, 2])),
    held_out=[lambda: (torch.zeros(4), torch.tensor([1, 1])), lambda: (torch.zeros(4), torch.tensor([3, 3]))],
)
def adds_at_repeated_indices(x, index):
    """Adds at indices in two ways: `x[index] += 1` counts a repeated index once, `index_add` every time."""
    every = x.index_add(0, index, torch.ones_like(index, dtype=x.dtype))
    x[index] += 1
    return every


@case(
    example=lambda: (torch.ones(2, 3), torch.zeros(2, 3)),
    held_out=[lambda: (torch.ones(2, 3), torch.zeros(3, 2).t())],
    strict=("stride",),
)
def writes_into_out(x, buffer):
    """Writes a sum into `out=`, the caller's buffer, and returns it; later the buffer is a view of another layout."""
    return torch.add(x, 1, out=buffer)


@case(
    example=lambda: (torch.randn(3, 2),),
    held_out=[lambda: (torch.rand(3, 2),)],
    strict=("stride",),
)
def results_share_memory(x):
    """Returns an intermediate and two views of it: whoever writes to one must see it in the others."""
    y = x * 2
    return y, y[1:], y.t()


@case(
    example=lambda: (torch.ones(3),),
    held_out=[lambda: (torch.full((3,), 2.0),), lambda: (torch.ones(3, requires_grad=True),)],
)
def writes_through_detach(x):
    """Writes into `x.detach()`, which shares the argument's memory."""
    x.detach().mul_(3)
    return x + 1


@case(
    example=lambda: (torch.arange(4.0),),
    held_out=[lambda: (torch.arange(6.0),), lambda: (torch.arange(5.0),)],
)
def adds_one_half_to_the_other(x):
    """Splits its argument into two views and adds one to the other; an odd length makes them of two sizes."""
    first, second = x.chunk(2)
    second.add_(first[: second.shape[0]])
    return first.sum()


@case(
    example=lambda: (torch.tensor([[1.0, 2.0], [3.0, 4.0]]),),
    held_out=[lambda: (torch.tensor([[5.0, 6.0], [7.0, 8.0]]),)],
)
def swaps_rows_without_a_copy(x):
    """Swaps two rows as if they were Python values: they are views, so that both become the second row."""
    x[0], x[1] = x[1], x[0]
    return x * 1


@case(
    example=lambda: (torch.ones(2, 3),),
    held_out=[lambda: (torch.ones(3, 1),), lambda: (torch.ones(1, 4),)],
)
def transposes_its_argument(x):
    """Transposes its argument with `t_`: the caller's tensor has another shape afterwards."""
    x.t_()
    return x + 1


@case(
    example=lambda: (torch.arange(6.0),),
    held_out=[lambda: (torch.arange(100.0, 112.0)[::2],), lambda: (torch.arange(100.0, 108.0)[2:],)],
)
def reads_the_storage(x):
    """Reads three pairs with `as_strided`, which ignores the strides of its argument and goes to its storage."""
    return x.as_strided((3, 2), (2, 1)) + 0


@case(
    example=lambda: (torch.tensor([1 + 2j, 3 - 4j]),),
    held_out=[lambda: (torch.tensor([5 - 6j, 0.5j]),)],
)
def writes_the_real_part(z):
    """Writes into the real part of a complex tensor, which is a view of every second number."""
    torch.view_as_real(z)[..., 0].neg_()
    return z.abs()


@case(
    example=lambda: (torch.tensor([1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([-1.0, 2.0]),), lambda: (torch.tensor([-3.0, float("-inf")]),)],
)
def clears_the_sign_bit(x):
    """Writes through a view as int32 of a float tensor: it clears the bit that holds the sign."""
    x.view(torch.int32).bitwise_and_(0x7FFFFFFF)
    return x * 2


@case(
    example=lambda: (torch.ones(3, 2),),
    held_out=[lambda: (torch.zeros(3, 2),), lambda: (torch.full((3, 2), 4.0),)],
)
def writes_the_diagonal(x):
    """Fills the diagonal of a copy through the view that `diagonal` gives."""
    y = x.clone()
    y.diagonal().fill_(7)
    return y


@case(
    example=lambda: (torch.ones(3, 2),),
    held_out=[lambda: (torch.zeros(3, 2),), lambda: (torch.full((3, 2), 4.0),)],
    rewrite_of=writes_the_diagonal,
)
def scatters_the_diagonal(x):
    """The functional form of a write through a view: `diagonal_scatter`."""
    return torch.diagonal_scatter(x, torch.full_like(x.diagonal(), 7))


@case(
    example=lambda: (torch.tensor([[1.0, 3.0], [2.0, 2.0]]),),
    held_out=[lambda: (torch.tensor([[1.0, 1.0], [4.0, 4.0], [1.0, 7.0]]),)],
)
def normalises_rows_in_place(x):
    """Divides each row by its sum, in place, in a loop over the rows as views."""
    for row in x.unbind(0):
        row.div_(row.sum())
    return x.sum(0)


@case(
    example=lambda: (torch.ones(3), slice(0, 2)),
    held_out=[lambda: (torch.ones(3), [0, 1]), lambda: (torch.ones(3), slice(1, 3))],
)
def view_or_copy_by_the_index(x, index):
    """Writes into `x[index]`: a slice gives a view, so that the argument changes, a list gives a copy."""
    x[index].mul_(5)
    return x.sum()


@case(
    example=lambda: (torch.ones(2, 2),),
    held_out=[lambda: (torch.full((2, 2), 2.0),)],
)
def base_written_after_its_view(x):
    """Takes a view of an intermediate, then writes into the intermediate: the view must show it."""
    y = x * 2
    view = y[0]
    y.add_(100)
    return view


@case(
    example=lambda: (torch.tensor([1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([-1.0, -2.0]),)],
)
def writes_on_one_path_only(x):
    """Negates its argument in place if its sum is negative: on the other path it must stay as it was."""
    if x.sum() < 0:
        x.neg_()
    return x + 1
