"""Sizes that change between calls: what a graph computes from them, and what it froze instead.

A held-out input has other sizes than the example, as the last batch of an epoch has.
"""

import math

import torch
from torch.nn import functional

from recapture import case


@case(
    example=lambda: (torch.randn(4, 2, 3),),
    held_out=[lambda: (torch.randn(7, 2, 3),), lambda: (torch.randn(1, 3, 3),)],
)
def flattens_all_but_the_batch(x):
    """Flattens everything but the first dimension: `x.view(x.size(0), -1)`, the line before a classifier."""
    return x.view(x.size(0), -1) * 2


@case(
    example=lambda: (torch.randn(4, 2),),
    held_out=[lambda: (torch.randn(6, 2),), lambda: (torch.randn(2, 2),)],
)
def adds_positions(x):
    """Numbers the rows with `torch.arange`: captured once, the numbers may end at the example's length."""
    return x + torch.arange(x.shape[0], device=x.device).unsqueeze(1)


@case(
    example=lambda: (torch.randn(4), torch.randn(4)),
    held_out=[lambda: (torch.randn(1), torch.randn(4)), lambda: (torch.randn(5), torch.randn(1))],
)
def size_one_broadcasts(x, y):
    """Adds two vectors of one length, later with a length of one on either side, which broadcasts."""
    return x + y


@case(
    example=lambda: (torch.randn(1, 3),),
    held_out=[lambda: (torch.randn(5, 3),), lambda: (torch.randn(2, 3),)],
)
def batch_of_one_first(x):
    """Is captured with a batch of one and called with more: sizes 0 and 1 are the ones that compilers fix."""
    return x.softmax(0) * x.shape[0]


@case(
    example=lambda: (torch.randn(3, 8),),
    held_out=[lambda: (torch.randn(3, 6),), lambda: (torch.randn(3, 9),)],
)
def pads_to_a_multiple(x):
    """Pads the last dimension to a multiple of four: how much is missing is a remainder of the size."""
    return functional.pad(x, (0, -x.shape[-1] % 4))


@case(
    example=lambda: (torch.ones(4),),
    held_out=[lambda: (torch.ones(6),), lambda: (torch.ones(2),)],
)
def mean_by_hand(x):
    """Divides a sum by the number of elements, a Python int from `numel`."""
    return x.sum() / x.numel()


@case(
    example=lambda: (torch.randn(3, 4),),
    held_out=[lambda: (torch.randn(3, 9),), lambda: (torch.randn(2, 2),)],
)
def scales_by_the_root_of_the_width(x):
    """Divides scores by `math.sqrt` of the width, as attention does: a Python float from a size."""
    return (x @ x.t()) / math.sqrt(x.shape[-1])


@case(
    example=lambda: (torch.arange(6.0),),
    held_out=[lambda: (torch.arange(8.0),), lambda: (torch.arange(5.0),)],
)
def halves_of_unequal_length(x):
    """Splits in the middle with `n // 2`: an odd length gives halves of unequal length."""
    middle = x.shape[0] // 2
    return x[:middle], x[middle:]


@case(
    example=lambda: (torch.randn(3, 3),),
    held_out=[lambda: (torch.randn(5, 5),), lambda: (torch.randn(2, 2),)],
)
def masks_the_future(scores):
    """Builds a triangular mask of the size of its argument: attention to the past alone."""
    n = scores.shape[0]
    mask = torch.ones(n, n, dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(mask, float("-inf")).softmax(-1)


@case(
    example=lambda: (torch.arange(6.0),),
    held_out=[lambda: (torch.arange(9.0),), lambda: (torch.arange(2.0),)],
)
def chunks_of_three(x):
    """Splits into chunks of three: how many results come out depends on the length."""
    return [chunk * 2 for chunk in x.split(3)]


@case(
    example=lambda: (torch.ones(2, 3),),
    held_out=[lambda: (torch.ones(2, 3, 4),), lambda: (torch.ones(4, 1, 2, 2),)],
)
def sums_all_but_the_batch(x):
    """Sums over all dimensions but the first: which ones these are depends on the rank."""
    return x.sum(dim=tuple(range(1, x.dim())))


@case(
    example=lambda: (torch.ones(3, 3),),
    held_out=[lambda: (torch.ones(3, 4),), lambda: (torch.ones(2, 2),)],
)
def square_or_not(x):
    """Compares two sizes of one tensor: a square is transposed, everything else is summed."""
    if x.shape[0] == x.shape[1]:
        return x.t() * 2
    return x.sum(1)


@case(
    example=lambda: (torch.randn(3), torch.randn(3)),
    held_out=[lambda: (torch.randn(3), torch.randn(5)), lambda: (torch.randn(4), torch.randn(2))],
)
def equal_by_chance(x, y):
    """Takes two vectors that are equally long in the example by chance: a compiler may take them for one size."""
    return torch.cat([x, y]) * (x.shape[0] + 10 * y.shape[0])


@case(
    example=lambda: (torch.randn(1, 2, 4),),
    held_out=[lambda: (torch.randn(1, 2, 6),), lambda: (torch.randn(2, 2, 3),)],
)
def interpolates_by_a_factor(x):
    """Scales the last dimension by 1.5: the new size is a product that is rounded down."""
    return functional.interpolate(x, scale_factor=1.5, mode="nearest")


@case(
    example=lambda: (torch.arange(6.0),),
    held_out=[lambda: (torch.arange(8.0),), lambda: (torch.arange(7.0),)],
)
def pairs_of_elements(x):
    """Reshapes into pairs: an odd number of elements is a RuntimeError."""
    return x.reshape(-1, 2).sum(1)


@case(
    example=lambda: (torch.randn(4, 3), torch.randn(3, 2)),
    held_out=[lambda: (torch.randn(0, 3), torch.randn(3, 2)), lambda: (torch.randn(1, 3), torch.randn(3, 2))],
)
def empty_batch(x, weight):
    """Multiplies a batch with a matrix: a batch of nothing gives a result of nothing."""
    return (x @ weight).relu()


@case(
    example=lambda: (torch.randn(3),),
    held_out=[lambda: (torch.randn(0),), lambda: (torch.randn(1),)],
)
def maximum_of_nothing(x):
    """Takes the maximum of all elements: of none there is no maximum, and that is a RuntimeError."""
    return x.max() * 2


@case(
    example=lambda: (torch.tensor([3.0, 1.0, 2.0, 5.0]),),
    held_out=[lambda: (torch.tensor([3.0, 1.0]),), lambda: (torch.tensor([1.0, 9.0, 2.0, 7.0, 8.0]),)],
)
def three_largest_at_most(x):
    """Asks `topk` for three elements, or for all if there are fewer."""
    return x.topk(min(3, x.shape[0])).values


@case(
    example=lambda: (torch.randn(4, 2),),
    held_out=[lambda: (torch.randn(6, 2),), lambda: (torch.randn(3, 2),)],
    since="2.1",
)
def checks_its_size(x):
    """States with `torch._check` that a size is even, as the documentation advises: an odd one is a RuntimeError."""
    torch._check(x.shape[0] % 2 == 0)  # noqa: SLF001 - public under this name
    return x.view(-1, 4) * 2


@case(
    example=lambda: (torch.randn(2, 3),),
    held_out=[lambda: (torch.randn(4, 1),), lambda: (torch.randn(3, 2),)],
)
def shape_as_a_tensor(x):
    """Makes a tensor of its sizes: data that comes from the shape."""
    return torch.tensor([x.shape[0], x.shape[1]], device=x.device) * 2


WEIGHTS = {2: 0.5, 3: 2.0, 4: 8.0}


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.ones(3),), lambda: (torch.ones(7),)],
)
def looks_up_its_size(x):
    """Looks up a size in a dict, with a default for those that are missing."""
    return x * WEIGHTS.get(x.shape[0], 1.0)


@case(
    example=lambda: (torch.arange(5.0),),
    held_out=[lambda: (torch.arange(7.0),), lambda: (torch.arange(3.0),)],
)
def moving_average(x):
    """Averages over windows of three with `unfold`: a view whose number of windows depends on the length."""
    return x.unfold(0, 3, 1).mean(-1)


@case(
    example=lambda: (torch.randn(3, 2), torch.randn(1, 2)),
    held_out=[lambda: (torch.randn(5, 2), torch.randn(1, 2)), lambda: (torch.randn(1, 2), torch.randn(1, 2))],
)
def expands_to_the_batch(x, token):
    """Expands a token to the batch and puts it in front of every row, as transformers do."""
    return torch.cat([token.expand(x.shape[0], -1), x], dim=1)


@case(
    example=lambda: (torch.randn(1, 4, 4),),
    held_out=[lambda: (torch.randn(2, 6, 4),), lambda: (torch.randn(1, 2, 8),)],
)
def cuts_into_patches(x):
    """Cuts an image into patches of two by two: views and permutations with sizes that are quotients."""
    n, h, w = x.shape
    return x.view(n, h // 2, 2, w // 2, 2).permute(0, 1, 3, 2, 4).reshape(n, -1, 4)


@case(
    example=lambda: (torch.arange(12.0).reshape(3, 4),),
    held_out=[lambda: (torch.arange(24.0).reshape(2, 3, 4),), lambda: (torch.arange(4.0),)],
)
def first_feature_of_any_rank(x):
    """Takes the first feature with `x[..., 0]`: which dimension that is depends on how many there are."""
    return x[..., 0] * 2


@case(
    example=lambda: (torch.arange(12.0).reshape(3, 4),),
    held_out=[lambda: (torch.arange(24.0).reshape(2, 3, 4),), lambda: (torch.arange(4.0),)],
)
def first_feature_by_select(x):
    """Takes the first feature with `select(-1, 0)`, which counts dimensions from the end in the graph, too."""
    return x.select(-1, 0) * 2


@case(
    example=lambda: (torch.arange(12.0).reshape(3, 4),),
    held_out=[lambda: (torch.arange(24.0).reshape(2, 3, 4),), lambda: (torch.arange(4.0),)],
)
def rotates_pairs_of_features(x):
    """Rotates pairs of features, as rotary embeddings do: `x[..., 1::2]` in front of `x[..., ::2]`."""
    return torch.cat((-x[..., 1::2], x[..., ::2]), dim=-1)


@case(
    example=lambda: (torch.arange(12.0).reshape(3, 4), torch.ones(3)),
    held_out=[
        lambda: (torch.arange(36.0).reshape(3, 3, 4), torch.ones(3, 3)),
        lambda: (torch.arange(4.0), torch.tensor(2.0)),
    ],
)
def scales_by_one_number_a_row(x, scale):
    """Gives a scale a new last dimension with `scale[..., None]`, as weights of a loss get one."""
    return x * scale[..., None]


@case(
    example=lambda: (torch.arange(12.0).reshape(3, 4),),
    held_out=[lambda: (torch.arange(24.0).reshape(2, 3, 4),), lambda: (torch.arange(24.0).reshape(1, 3, 2, 4),)],
)
def zeros_for_each_row(x):
    """Makes zeros in the shape of everything but the last dimension: `x.new_zeros(x.shape[:-1])`."""
    return x.new_zeros(x.shape[:-1]) + 1


@case(
    example=lambda: (torch.arange(24.0).reshape(2, 3, 4),),
    held_out=[lambda: (torch.arange(48.0).reshape(2, 2, 3, 4),), lambda: (torch.arange(12.0).reshape(3, 4),)],
)
def rows_of_any_rank(x):
    """Puts all rows below one another with `x.flatten(0, -2)`, as a layer does that takes two dimensions."""
    return x.flatten(0, -2) * 2
