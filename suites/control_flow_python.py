"""More of Python's control flow: ways out of loops, matching, dispatch, and conditions that a rewrite must keep."""

import torch

from recapture import case


@case(
    example=lambda: (torch.tensor([1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([20.0, 20.0]),), lambda: (torch.tensor([0.1, 0.1]),)],
)
def breaks_out_of_a_loop(x):
    """Doubles its argument at most six times and breaks once the sum exceeds 30."""
    for _ in range(6):
        if x.sum() > 30:
            break
        x = x * 2
    return x + 1


@case(
    example=lambda: (torch.tensor([1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([20.0, 20.0]),), lambda: (torch.tensor([0.1, 0.1]),)],
    rewrite_of=breaks_out_of_a_loop,
)
def masks_instead_of_breaking(x):
    """The form without a break: every step runs and `torch.where` keeps the old value once the sum exceeds 30."""
    for _ in range(6):
        x = torch.where(x.sum() > 30, x, x * 2)
    return x + 1


@case(
    example=lambda: (torch.tensor([[1.0, 2.0], [3.0, -1.0]]),),
    held_out=[lambda: (torch.tensor([[1.0, -2.0], [3.0, 1.0], [-5.0, 2.0]]),)],
)
def continues_at_negative_rows(x):
    """Skips rows with a negative sum with `continue`."""
    total = torch.zeros_like(x[0])
    for row in x:
        if row.sum() < 0:
            continue
        total = total + row
    return total


@case(
    example=lambda: (torch.tensor([-1.0, 2.0, 3.0]),),
    held_out=[lambda: (torch.tensor([-1.0, -2.0, -3.0]),), lambda: (torch.tensor([-1.0, -2.0, 5.0]),)],
)
def else_of_a_loop(x):
    """Searches the first positive element; the loop's `else` runs where there is none."""
    for i in range(x.shape[0]):
        if x[i] > 0:
            found = x[i] * (i + 1)
            break
    else:
        found = x.sum()
    return found


@case(
    example=lambda: (torch.tensor(5.0),),
    held_out=[lambda: (torch.tensor(-5.0),), lambda: (torch.tensor(50.0),)],
)
def chained_comparison(x):
    """Writes `0 < x < 10`, which Python reads as two comparisons joined by `and`."""
    if 0 < x < 10:
        return x * 2
    return x - 1


@case(
    example=lambda: (torch.tensor([1.0, 5.0]),),
    held_out=[lambda: (torch.tensor([1.0, 0.5]),)],
)
def conditional_expression_on_an_item(x):
    """Chooses a Python factor with `a if … else b` by the largest element."""
    return x * (2 if x.max().item() > 3 else 0.5)


@case(
    example=lambda: (torch.arange(6.0).reshape(2, 3),),
    held_out=[lambda: (torch.arange(6.0).reshape(3, 2).t(),)],
)
def branch_on_contiguity(x):
    """Asks whether its argument is contiguous: the same shape and values in another layout take the other path."""
    if x.is_contiguous():
        return x * 2
    return x - 1


@case(
    example=lambda: (torch.ones(2, 3), "sum"),
    held_out=[lambda: (torch.ones(2, 3), "mean"), lambda: (torch.ones(2, 3), "none")],
)
def reduction_by_name(x, reduction: str):
    """Chooses a reduction by name, as loss functions do: "none" gives a result of another rank."""
    if reduction == "sum":
        return x.sum()
    if reduction == "mean":
        return x.mean()
    return x * 1


@case(
    example=lambda: ((torch.ones(2), torch.ones(2)),),
    held_out=[lambda: ({"x": torch.ones(2)},), lambda: ((torch.ones(2), torch.ones(2), torch.zeros(2)),)],
)
def match_on_structure(data):
    """Matches the structure of its argument: a pair, a longer tuple with its rest, or a mapping with a key."""
    match data:
        case (x, y):
            return x + y
        case (x, *rest):
            return x * len(rest)
        case {"x": x}:
            return -x
    return data


@case(
    example=lambda: (torch.tensor([1.0, -2.0]), "relu"),
    held_out=[lambda: (torch.tensor([1.0, -2.0]), "neg"), lambda: (torch.tensor([3.0, -4.0]), "exp")],
)
def dispatch_table(x, name: str):
    """Looks a function up in a dict by its name and calls it."""
    table = {"relu": torch.relu, "neg": torch.neg, "exp": torch.exp}
    return table[name](x)


@case(
    example=lambda: (torch.tensor([1.0, -2.0]), torch.relu),
    held_out=[lambda: (torch.tensor([1.0, -2.0]), torch.neg), lambda: (torch.tensor([3.0, -4.0]), torch.exp)],
)
def function_as_argument(x, activation):
    """Takes the activation as an argument: another function is another program."""
    return activation(x) + 1


@case(
    example=lambda: (torch.tensor(1.0), torch.tensor(1.0)),
    held_out=[
        lambda: (torch.tensor(-1.0), torch.tensor(1.0)),
        lambda: (torch.tensor(1.0), torch.tensor(-1.0)),
        lambda: (torch.tensor(-1.0), torch.tensor(-1.0)),
    ],
)
def nested_branches(x, y):
    """Branches on one value inside a branch on another: four paths, of which the example takes one."""
    if x > 0:
        if y > 0:
            return x + y
        return x - y
    if y > 0:
        return x * y + 5
    return x / y - 5


def trains_or_not(x):
    """Do something else while gradients are recorded."""
    if torch.is_grad_enabled():
        return x * 2
    return x - 1


@case(
    example=lambda: (torch.ones(2), True),
    held_out=[lambda: (torch.ones(2), False), lambda: (torch.zeros(2), True)],
)
def branch_on_the_gradient_mode(x, train: bool):
    """Branches on `torch.is_grad_enabled()` in a helper, under a mode that the argument sets."""
    with torch.set_grad_enabled(train):
        return trains_or_not(x)


@case(
    example=lambda: (torch.tensor([5.0, -7.0]), 2),
    held_out=[lambda: (torch.tensor([5.0, -7.0]), 2.0), lambda: (torch.tensor([5.0, -7.0]), 3)],
)
def branch_on_the_type_of_a_number(x, divisor):
    """Divides with floor by an int and exactly by a float: 2 and 2.0 are equal and take different paths."""
    if isinstance(divisor, int):
        return x // divisor
    return x / divisor


@case(
    example=lambda: (torch.ones(2), 1.0),
    held_out=[lambda: (torch.ones(2), float("nan")), lambda: (torch.ones(2), 2.0)],
)
def branch_on_nan(x, scale: float):
    """Takes NaN for "not given": it is the one number that is unequal to itself."""
    if scale != scale:
        return x - 1
    return x * scale


def even_steps(x, n: int):
    """Double in even steps."""
    return x if n == 0 else odd_steps(x * 2, n - 1)


def odd_steps(x, n: int):
    """Add in odd steps."""
    return x if n == 0 else even_steps(x + 1, n - 1)


@case(
    example=lambda: (torch.ones(2), 2),
    held_out=[lambda: (torch.ones(2), 5), lambda: (torch.ones(2), 0)],
)
def mutual_recursion(x, n: int):
    """Calls two functions that call each other: how deep an argument says."""
    return even_steps(x, n)


@case(
    example=lambda: (torch.arange(4.0), 2),
    held_out=[lambda: (torch.arange(4.0), 7), lambda: (torch.arange(4.0), -1)],
)
def index_within_bounds(x, i: int):
    """Reads an element only if the index is within bounds: `and` must not compute its right side otherwise."""
    if i < x.shape[0] and x[i] > 1:
        return x[i] * 10
    return x.sum()


@case(
    example=lambda: (torch.ones(2), torch.tensor(3.0)),
    held_out=[lambda: (torch.ones(2), 3.0), lambda: (torch.ones(2), torch.tensor([1.0, 2.0]))],
)
def number_or_tensor(x, scale):
    """Takes a tensor or a plain number, told apart with `torch.is_tensor`."""
    if torch.is_tensor(scale):
        return x * scale.sum()
    return x + scale


@case(
    example=lambda: (torch.tensor([1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([-1.0, -2.0]),), lambda: (torch.tensor([3.0, -4.0]),)],
)
def chooses_a_function_by_value(x):
    """Binds a name to one of two functions by the sign of a sum and calls it afterwards."""
    function = torch.sin if x.sum() > 0 else torch.cos
    return function(x) * 2


@case(
    example=lambda: (torch.tensor([1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([-1.0, -2.0]),), lambda: (torch.tensor([3.0, -4.0]),)],
    rewrite_of=chooses_a_function_by_value,
)
def both_paths_and_a_choice(x):
    """The form for any release: both paths are computed and `torch.where` chooses."""
    return torch.where(x.sum() > 0, torch.sin(x), torch.cos(x)) * 2


@case(
    example=lambda: (torch.tensor([1, 2, 3]), 2),
    held_out=[lambda: (torch.tensor([1, 2, 3]), 7), lambda: (torch.tensor([4, 5, 6]), 2)],
)
def membership_in_a_tensor(x, value: int):
    """Asks with `in` whether a tensor holds a value, which compares all elements."""
    if value in x:
        return x * 2
    return x - value


@case(
    example=lambda: (torch.tensor(6.0),),
    held_out=[lambda: (torch.tensor(100.0),), lambda: (torch.tensor(1.0),)],
)
def while_with_a_counter(x):
    """Halves until the value is at most one and returns the Python count of the steps beside it."""
    steps = 0
    while (x := x / 2) > 1:
        steps += 1
    return x, steps
