"""Operators whose result's shape or path depends on the values: sizes that are known only when the code runs."""

import torch

from recapture import case


@case(
    example=lambda: (torch.tensor([1.0, 0.0, 2.0]),),
    held_out=[lambda: (torch.tensor([0.0, 0.0, 0.0]),), lambda: (torch.tensor([1.0, 2.0, 3.0]),)],
)
def places_of_nonzero(x):
    """Returns where values are not zero: one row for each, and none at all for zeros."""
    return torch.nonzero(x)


@case(
    example=lambda: (torch.tensor([1.0, -1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([-1.0, -1.0, -2.0]),), lambda: (torch.tensor([1.0, 5.0, 2.0]),)],
)
def mean_of_the_positive(x):
    """Selects by a mask and takes the mean: of nothing it is NaN."""
    return x[x > 0].mean()


@case(
    example=lambda: (torch.tensor([1.0, -1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([-1.0, -1.0, -2.0]),), lambda: (torch.tensor([1.0, 5.0, 2.0]),)],
    rewrite_of=mean_of_the_positive,
)
def mean_of_the_positive_by_weights(x):
    """The same without a shape that depends on the data: the mask becomes a weight."""
    mask = (x > 0).to(x.dtype)
    return (x * mask).sum() / mask.sum()


@case(
    example=lambda: (torch.tensor([3, 1, 3, 2]),),
    held_out=[lambda: (torch.tensor([5, 5, 5, 5]),), lambda: (torch.tensor([1, 2, 3, 4]),)],
)
def unique_with_counts(x):
    """Returns the different values, with their places in the argument and how often each occurs."""
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    return values * counts, inverse


@case(
    example=lambda: (torch.ones(3), torch.tensor(2)),
    held_out=[lambda: (torch.ones(3), torch.tensor(5)), lambda: (torch.ones(3), torch.tensor(0))],
)
def size_from_data(x, count):
    """Makes a tensor whose length is a value of another one."""
    return torch.zeros(int(count), device=x.device) + x.sum()


@case(
    example=lambda: (torch.arange(6.0), torch.tensor([2, 4])),
    held_out=[lambda: (torch.arange(6.0), torch.tensor([1, 5])), lambda: (torch.arange(6.0), torch.tensor([6, 0]))],
)
def splits_by_data(x, sizes):
    """Splits at places that come out of a tensor."""
    first, second = torch.split(x, sizes.tolist())
    return first.sum(), second * 2


@case(
    example=lambda: (torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1, 0, 2])),
    held_out=[lambda: (torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2, 2, 2]))],
)
def repeats_by_data(x, counts):
    """Repeats each value as often as another tensor says."""
    return torch.repeat_interleave(x, counts)


@case(
    example=lambda: (torch.arange(5.0), torch.tensor(1)),
    held_out=[lambda: (torch.arange(5.0), torch.tensor(3)), lambda: (torch.arange(5.0), torch.tensor(-2))],
)
def slice_from_data(x, start):
    """Slices from a place that a tensor contains, also one that counts from the end."""
    return x[int(start) :] + 1


@case(
    example=lambda: (torch.tensor([0, 1, 1]),),
    held_out=[lambda: (torch.tensor([0, 4, 4]),), lambda: (torch.tensor([0, 0, 0]),)],
)
def histogram_of_integers(x):
    """Counts how often each integer occurs: the length is one more than the largest."""
    return torch.bincount(x)


@case(
    example=lambda: (torch.tensor([4.0, 1.0, 3.0]), torch.tensor(1)),
    held_out=[lambda: (torch.tensor([4.0, 1.0, 3.0]), torch.tensor(2))],
)
def largest_by_data(x, count):
    """Takes the k largest values, where k is a tensor."""
    return torch.topk(x, int(count)).values


@case(
    example=lambda: (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0])),
    held_out=[lambda: (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0]))],
)
def branch_on_equality(x, y):
    """Asks `torch.equal` for a Python bool and branches on it."""
    return x * 2 if torch.equal(x, y) else x - y


@case(
    example=lambda: (torch.tensor([[0.0, 1.0], [0.2, 1.2], [5.0, 6.0]]),),
    held_out=[lambda: (torch.tensor([[0.0, 1.0], [2.0, 3.0], [5.0, 6.0]]),)],
)
def greedy_selection(spans):
    """Keeps spans that overlap none kept before: a Python loop that decides by values."""
    kept = []
    for i in range(spans.shape[0]):
        if all(bool(spans[i, 0] >= spans[j, 1]) for j in kept):
            kept.append(i)
    return spans[kept]


@case(
    example=lambda: (torch.tensor([1.0, 5.0, 2.0]),),
    held_out=[lambda: (torch.tensor([7.0, 5.0, 2.0]),), lambda: (torch.tensor([1.0, 5.0, 9.0]),)],
)
def indexes_a_list_by_data(x):
    """Takes a Python number from a list at the place of the largest value."""
    return x * [10.0, 20.0, 30.0][int(x.argmax())]


@case(
    example=lambda: (torch.zeros(4, 64), torch.tensor([1, 1, 1, 2]), torch.ones(4, 64)),
    held_out=[
        lambda: (torch.ones(4, 64), torch.tensor([3, 0, 3, 3]), torch.full((4, 64), 2.0)),
        lambda: (torch.zeros(4, 64), torch.tensor([0, 1, 2, 3]), torch.ones(4, 64)),
    ],
)
def adds_rows_at_places(rows, places, added):
    """Adds rows at places that occur several times, with `index_add`."""
    return rows.index_add(0, places, added)
