"""Cases whose results share memory with arguments, buffers or each other, or are copies of them."""

import torch
from torch import nn

from recapture import case


@case(example=lambda: (torch.arange(6.0),), held_out=[lambda: (torch.arange(4.0),)])
def returns_its_argument(x):
    """Returns its argument."""
    return x


@case(example=lambda: (torch.arange(6.0),), held_out=[lambda: (torch.arange(4.0) + 1,)])
def returns_a_copy(x):
    """Returns a copy of its argument."""
    return x.clone()


@case(example=lambda: (torch.arange(6.0).view(2, 3),), held_out=[lambda: (torch.arange(12.0).view(4, 3),)])
def returns_a_view(x):
    """Returns its argument transposed."""
    return x.t()


@case(example=lambda: (torch.arange(6.0),), held_out=[lambda: (torch.arange(8.0),)])
def two_views(x):
    """Returns two views of its argument that overlap."""
    return x[:4], x[2:]


@case(example=lambda: (torch.arange(6.0),), held_out=[lambda: (torch.ones(6),)])
def one_result_twice(x):
    """Returns one new tensor twice."""
    y = x + 1
    return y, y


@case(example=lambda: (torch.arange(6.0),), held_out=[lambda: (torch.ones(6),)])
def two_equal_results(x):
    """Returns two equal tensors in two memories."""
    return [x + 1, x + 1]


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (torch.zeros(3),), lambda: (torch.ones(3),)])
def fresh_every_time(x):
    """Returns a new tensor of the same size at every call."""
    return x + 1


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (torch.ones(3),), lambda: (torch.ones(3),)])
def equal_every_time(x):
    """Returns a new tensor with the same elements at every call."""
    return x * 2


@case(example=lambda: (torch.zeros(4),), held_out=[lambda: (torch.ones(4),)])
def adds_in_place(x):
    """Adds to its argument in place and returns it."""
    return x.add_(1)


@case(example=lambda: (torch.zeros(8)[::2],), held_out=[lambda: (torch.ones(9)[1:5],)])
def view_of_more(x):
    """Gets a view of a longer tensor, and writes into it."""
    x.mul_(2)
    return x.sum()


def overlapping():
    whole = torch.arange(6.0)
    return whole[:4], whole[2:]


@case(example=overlapping, held_out=[lambda: (torch.zeros(4), torch.ones(4))])
def arguments_overlap(x, y):
    """Writes into one argument, and reads the other, which may lie in the same memory."""
    x.add_(1)
    return y * 2


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.zeros(2),)])
class ReturnsItsBuffer(nn.Module):
    """Adds to a buffer and returns the buffer itself."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x):
        self.total.add_(x)
        return self.total


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.zeros(2),)])
class CopiesItsBuffer(nn.Module):
    """Adds to a buffer and returns a copy of it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x):
        self.total.add_(x)
        return self.total.clone()


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (torch.zeros(3),)])
class ReturnsItsParameter(nn.Module):
    """Returns a parameter beside a result."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(3.0))

    def forward(self, x):
        return x * 2, self.weight


@case(
    example=lambda: ([torch.ones(2)], {"a": torch.zeros(2)}),
    held_out=[lambda: ([torch.zeros(2)], {"a": torch.ones(2)})],
)
def through_containers(items, named):
    """Returns tensors out of a list and a dict, and one that is new."""
    return [items[0], named["a"], items[0] + named["a"]]


@case(example=lambda: (torch.ones(3, 4, 2, 2),), held_out=[lambda: (torch.randn(1, 4, 3, 3),)])
def images(x):
    """Returns new images."""
    return x + 1


@case(example=lambda: (torch.ones(3, 4),), held_out=[lambda: (torch.randn(2, 5),)])
def not_contiguous(x):
    """Returns a new tensor that is not contiguous."""
    return (x + 1).t()
