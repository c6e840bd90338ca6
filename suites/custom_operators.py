"""Operators of one's own, registered with `torch.library`: what a compiler knows of them is what was declared."""

import torch

from recapture import case

LIBRARY = torch.library.Library("recapture_cases", "DEF")
LIBRARY.define("double(Tensor x) -> Tensor")
LIBRARY.define("half_of_each(Tensor x, Tensor y) -> (Tensor, Tensor)")
LIBRARY.define("add_in_place(Tensor(a!) x, float amount) -> ()")
LIBRARY.define("scale(Tensor x, float factor=3.0) -> Tensor")
LIBRARY.define("keep_positive(Tensor x) -> Tensor")
LIBRARY.define("row_sums(Tensor x) -> Tensor")
LIBRARY.define("many(Tensor[] xs, int? dim=None) -> Tensor")
LIBRARY.define("without_description(Tensor x) -> Tensor")


@torch.library.impl(LIBRARY, "double", "CompositeExplicitAutograd")
def double(x):
    """Double the values."""
    return x * 2


@torch.library.impl(LIBRARY, "double", "Meta")
def double_like(x):
    """Describe the result."""
    return torch.empty_like(x)


@case(
    example=lambda: (torch.ones(3),),
    held_out=[lambda: (torch.zeros(3),), lambda: (torch.ones(2, 2, dtype=torch.float64),)],
)
def operator_with_a_description(x):
    """Calls an operator that has an implementation and a description for compilers."""
    return torch.ops.recapture_cases.double(x) + 1


@torch.library.impl(LIBRARY, "half_of_each", "CompositeExplicitAutograd")
def half_of_each(x, y):
    """Halve two tensors."""
    return x / 2, y / 2


@torch.library.impl(LIBRARY, "half_of_each", "Meta")
def half_of_each_like(x, y):
    """Describe the results."""
    return torch.empty_like(x), torch.empty_like(y)


@case(
    example=lambda: (torch.ones(3), torch.ones(2)),
    held_out=[lambda: (torch.zeros(2), torch.ones(3))],
)
def operator_with_two_results(x, y):
    """Calls an operator that returns two tensors, and uses one of them."""
    first, _ = torch.ops.recapture_cases.half_of_each(x, y)
    return first


@torch.library.impl(LIBRARY, "add_in_place", "CompositeExplicitAutograd")
def add_in_place(x, amount):
    """Add a number to a tensor."""
    x.add_(amount)


@torch.library.impl(LIBRARY, "add_in_place", "Meta")
def add_in_place_like(x, amount):
    """Describe that nothing is returned."""


@case(
    example=lambda: (torch.ones(3), 1.0),
    held_out=[lambda: (torch.zeros(3), 2.0)],
)
def operator_that_changes_its_argument(x, amount: float):
    """Calls an operator that returns nothing and declares that it changes its argument: it must not be removed."""
    before = x * 1
    torch.ops.recapture_cases.add_in_place(x, amount)
    return x - before


@case(
    example=lambda: (torch.arange(4.0), 1.0),
    held_out=[lambda: (torch.arange(4.0) * 2, 5.0)],
)
def operator_that_changes_a_view(x, amount: float):
    """Lets an operator change a slice of the argument: the whole argument shows it."""
    torch.ops.recapture_cases.add_in_place(x[1:3], amount)
    return x * 2


@torch.library.impl(LIBRARY, "scale", "CompositeExplicitAutograd")
def scale(x, factor=3.0):
    """Scale the values."""
    return x * factor


@torch.library.impl(LIBRARY, "scale", "Meta")
def scale_like(x, factor=3.0):
    """Describe the result."""
    return torch.empty_like(x)


@case(
    example=lambda: (torch.ones(3), 2.0),
    held_out=[lambda: (torch.ones(3), 4.0)],
)
def operator_with_a_default(x, factor: float):
    """Calls an operator with and without its optional number."""
    return torch.ops.recapture_cases.scale(x) + torch.ops.recapture_cases.scale(x, factor)


@torch.library.impl(LIBRARY, "row_sums", "CompositeExplicitAutograd")
def row_sums(x):
    """Sum the rows."""
    return x.sum(1)


@torch.library.impl(LIBRARY, "row_sums", "Meta")
def row_sums_like(x):
    """Describe a result of another shape."""
    return x.new_empty(x.shape[0])


@case(
    example=lambda: (torch.ones(2, 3),),
    held_out=[lambda: (torch.ones(4, 3),), lambda: (torch.ones(2, 5),)],
)
def operator_of_another_shape(x):
    """Calls an operator whose result has another shape than its argument, and uses that shape."""
    y = torch.ops.recapture_cases.row_sums(x)
    return y / y.shape[0]


@torch.library.impl(LIBRARY, "many", "CompositeExplicitAutograd")
def many(xs, dim=None):
    """Concatenate flat tensors, or along a dimension."""
    return torch.cat([x.reshape(-1) for x in xs]) if dim is None else torch.cat(xs, dim)


@torch.library.impl(LIBRARY, "many", "Meta")
def many_like(xs, dim=None):
    """Describe the result."""
    if dim is None:
        return xs[0].new_empty(sum(x.numel() for x in xs))
    return torch.cat(xs, dim)


@case(
    example=lambda: ([torch.ones(2, 2), torch.zeros(2, 2)], None),
    held_out=[lambda: ([torch.ones(2, 2), torch.zeros(2, 2)], 1), lambda: ([torch.ones(2, 2)], None)],
)
def operator_of_a_list(xs, dim):
    """Calls an operator on a list of tensors, with an optional dimension that is None first."""
    return torch.ops.recapture_cases.many(xs, dim) + 1


@torch.library.impl(LIBRARY, "without_description", "CPU")
def without_description(x):
    """Triple the values; there is an implementation for the CPU, and no description for compilers."""
    return x * 3


@case(
    example=lambda: (torch.ones(3),),
    held_out=[lambda: (torch.zeros(3),)],
)
def operator_without_a_description(x):
    """Calls an operator that no compiler can describe: refusing is right, and a wrong shape would be silent."""
    return torch.ops.recapture_cases.without_description(x.cpu()).to(x.device) + 1


@torch.library.impl(LIBRARY, "keep_positive", "CompositeImplicitAutograd")
def keep_positive(x):
    """Replace negative values by zero, made of operators that have gradients."""
    return torch.where(x > 0, x, torch.zeros_like(x))


@case(
    example=lambda: (torch.tensor([1.0, -2.0], requires_grad=True),),
    held_out=[lambda: (torch.tensor([-1.0, 3.0], requires_grad=True),)],
)
def operator_made_of_others(x):
    """Calls an operator that is made of others: gradients flow through it without a formula of its own."""
    return torch.ops.recapture_cases.keep_positive(x * 2)
