"""itertools, functools and builtins: the small tools of Python around tensors."""

import functools
import itertools
import operator

import torch

from recapture import case


@case(
    example=lambda: ([torch.ones(2), torch.zeros(2)], [1.0, 2.0, 3.0]),
    held_out=[lambda: ([torch.ones(2), torch.ones(2), torch.ones(2)], [4.0])],
)
def zip_longest_with_a_fill(tensors, scales):
    """Pairs two lists of different lengths and fills the shorter one."""
    return sum(
        (0 if tensor is None else tensor) * scale + scale
        for tensor, scale in itertools.zip_longest(tensors, scales, fillvalue=2)
    )


@case(
    example=lambda: (torch.ones(2), 3),
    held_out=[lambda: (torch.ones(2), 5), lambda: (torch.ones(2), 0)],
)
def islice_of_an_endless_count(x, n: int):
    """Takes the first n of an endless count."""
    for value in itertools.islice(itertools.count(1, 2), n):
        x = x * 2 + value
    return x


@case(
    example=lambda: (torch.arange(3.0), [1, 2]),
    held_out=[lambda: (torch.arange(3.0), [3]), lambda: (torch.arange(3.0), [2, 2, 1])],
)
def product_of_lists(x, sizes: list[int]):
    """Loops over all pairs of two lists."""
    return torch.stack([x * a + b for a, b in itertools.product(sizes, (0, 10))])


@case(
    example=lambda: (torch.arange(4.0),),
    held_out=[lambda: (torch.arange(3.0),)],
)
def combinations_of_rows(x):
    """Multiplies all pairs of values: how many there are depends on the length."""
    return torch.stack([a * b for a, b in itertools.combinations(x, 2)])


@case(
    example=lambda: (torch.ones(2), [1, 2, 3]),
    held_out=[lambda: (torch.ones(2), [4, -1]), lambda: (torch.ones(2), [7])],
)
def accumulates_python_numbers(x, numbers: list[int]):
    """Runs `itertools.accumulate` over Python numbers with a function of its own."""
    return [x * value for value in itertools.accumulate(numbers, lambda a, b: a * 2 + b)]


@case(
    example=lambda: (torch.ones(2), [1, 1, 2, 2, 1]),
    held_out=[lambda: (torch.ones(2), [3, 3]), lambda: (torch.ones(2), [1, 2, 3])],
)
def groups_equal_neighbours(x, keys: list[int]):
    """Groups equal neighbours: a key that comes back later begins a new group."""
    return x + sum(key * len(list(group)) ** 2 for key, group in itertools.groupby(keys))


@case(
    example=lambda: ([torch.ones(2), torch.zeros(2)], [torch.ones(2)]),
    held_out=[lambda: ([torch.ones(2)], [torch.zeros(2), torch.ones(2), torch.ones(2)])],
)
def chains_two_lists(first, second):
    """Chains two lists and stacks what comes out."""
    return torch.stack(list(itertools.chain(first, second)))


@case(
    example=lambda: ([torch.ones(2), torch.full((2,), 3.0)],),
    held_out=[lambda: ([torch.ones(2), torch.full((2,), 3.0), torch.full((2,), 5.0)],)],
)
def reduces_with_an_operator(tensors):
    """Folds a list with `functools.reduce` from the left: subtraction shows the order."""
    return functools.reduce(operator.sub, tensors)


def affine(x, scale, offset=0.0):
    """Scale and shift."""
    return x * scale + offset


@case(
    example=lambda: (torch.ones(2), 2.0),
    held_out=[lambda: (torch.ones(2), 3.0)],
)
def partial_function(x, offset: float):
    """Binds arguments with `functools.partial`, and overrides one of them in the call."""
    bound = functools.partial(affine, scale=3.0, offset=offset)
    return bound(x), bound(x, scale=10.0)


def twice(function):
    """Wrap a function so that it is applied two times."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(function(*args, **kwargs), **kwargs)

    return wrapper


@twice
def shifted(x, by=1.0):
    """Shift the values."""
    return x + by


@case(
    example=lambda: (torch.ones(2), 1.0),
    held_out=[lambda: (torch.ones(2), 4.0)],
)
def decorated_function(x, by: float):
    """Calls a function behind a decorator with `functools.wraps`, and reads its name."""
    return shifted(x, by=by) * len(shifted.__name__)


@functools.singledispatch
def doubled(value):
    """Double a value in the way that its type asks for."""
    return value * 2


@doubled.register
def _(value: list):
    return [doubled(one) for one in value]


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: ([torch.ones(2), torch.zeros(3)],)],
)
def dispatches_on_the_type(value):
    """Calls a `functools.singledispatch` function: a list takes another implementation."""
    return doubled(value)


@case(
    example=lambda: (torch.ones(2), [3, 1, 2]),
    held_out=[lambda: (torch.ones(2), [1, 1, -5]), lambda: (torch.ones(2), [2])],
)
def sorts_with_a_key(x, values: list[int]):
    """Sorts Python numbers by a key, from large to small: equal keys keep their order."""
    ordered = sorted(values, key=lambda one: one % 3, reverse=True)
    return [x * one for one in ordered]


@case(
    example=lambda: (torch.ones(2), [1.0, 0.0]),
    held_out=[lambda: (torch.ones(2), [1.0, 2.0]), lambda: (torch.ones(2), [0.0, 0.0])],
)
def any_and_all(x, values: list[float]):
    """Asks whether any and whether all numbers of a list are true."""
    return x + 10 * any(values) + all(values)


@case(
    example=lambda: (torch.ones(2), 7, 3),
    held_out=[lambda: (torch.ones(2), -7, 3), lambda: (torch.ones(2), 7, -3)],
)
def divmod_of_negatives(x, a: int, b: int):
    """Divides Python numbers with remainder: Python rounds down where C rounds towards zero."""
    quotient, rest = divmod(a, b)
    return x * quotient + rest


@case(
    example=lambda: (torch.arange(6.0), slice(1, 4)),
    held_out=[lambda: (torch.arange(6.0), slice(None, None, 2)), lambda: (torch.arange(6.0), slice(-2, None))],
)
def slice_object(x, part):
    """Indexes with a slice object that the caller makes."""
    return x[part] * 2


@case(
    example=lambda: (torch.ones(2), {"b": 1.0, "a": 2.0}),
    held_out=[lambda: (torch.ones(2), {"a": 2.0, "b": 1.0}), lambda: (torch.ones(2), {"c": 5.0})],
)
def enumerates_a_dict(x, table):
    """Numbers the entries of a dict: the order of insertion decides."""
    for position, (name, value) in enumerate(table.items(), start=1):
        x = x + position * value * len(name)
    return x


@case(
    example=lambda: (torch.ones(2), [1, 2, 3, 4]),
    held_out=[lambda: (torch.ones(2), [5, 6]), lambda: (torch.ones(2), [-1, 0, 2])],
)
def filter_and_map(x, numbers: list[int]):
    """Filters a list and maps a function over the rest, lazily."""
    return sum(map(lambda one: x * one, filter(lambda one: one % 2 == 0, numbers)))  # noqa: C417 - the point


@case(
    example=lambda: (torch.ones(2), "relu"),
    held_out=[lambda: (-torch.ones(2), "neg"), lambda: (-torch.ones(2), "relu")],
)
def function_by_name(x, name: str):
    """Looks up a function of torch by its name with `getattr`."""
    return getattr(torch, name)(x) + 1
