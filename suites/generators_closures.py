"""Generators, closures and comprehensions: code that runs later, in pieces, or over a list of unknown length."""

import torch

from recapture import case


def powers(x, count):
    """Yield the first powers of a tensor."""
    power = torch.ones_like(x)
    for _ in range(count):
        power = power * x
        yield power


@case(
    example=lambda: (torch.tensor([1.0, 2.0]), 2),
    held_out=[lambda: (torch.tensor([1.0, 2.0]), 4), lambda: (torch.tensor([3.0, 2.0]), 1)],
)
def sums_a_generator(x, count: int):
    """Adds up what a generator yields: how often is an argument."""
    total = torch.zeros_like(x)
    for power in powers(x, count):
        total = total + power
    return total


def running_average():
    """Receive tensors with `send` and yield their average so far."""
    total, count, average = 0, 0, None
    while True:
        value = yield average
        total, count = total + value, count + 1
        average = total / count


@case(
    example=lambda: ([torch.ones(2), torch.zeros(2)],),
    held_out=[lambda: ([torch.ones(2), torch.zeros(2), torch.full((2,), 5.0)],)],
)
def sends_to_a_generator(values):
    """Sends tensors to a generator and takes back an average so far, a coroutine in the old style."""
    averages = running_average()
    next(averages)
    return [averages.send(value) for value in values]


def largest_of(x):
    """Yield the halves of a tensor and return the largest of their sums."""
    first, second = x.chunk(2)
    yield first * 2
    yield second * 3
    return torch.maximum(first.sum(), second.sum())


def with_result(x, results):
    """Delegate to another generator and keep what it returns."""
    results.append((yield from largest_of(x)))


@case(
    example=lambda: (torch.tensor([1.0, 2.0, 3.0, 4.0]),),
    held_out=[lambda: (torch.tensor([9.0, 8.0, 3.0, 4.0]),), lambda: (torch.tensor([1.0, 2.0, 3.0]),)],
)
def value_of_yield_from(x):
    """Delegates with `yield from`, whose value is what the inner generator returns."""
    results = []
    yielded = list(with_result(x, results))
    return yielded, results[0]


CLOSED = []


def scaled_until_closed(x):
    """Yield multiples; note in a global list how often it ran when it is closed."""
    i = 0
    try:
        while True:
            i += 1
            yield x * i
    finally:
        CLOSED.append(i)


# Torch 2.0 to 2.2 hangs here with nine compilers; no other release takes more than a minute, also on a busy machine
@case(
    example=lambda: (torch.ones(2), 2), held_out=[lambda: (torch.ones(2), 3), lambda: (torch.ones(2), 1)], seconds=120
)
def closes_an_endless_generator(x, limit: int):
    """Takes some values of an endless generator and closes it: its `finally` block runs then."""
    values = scaled_until_closed(x)
    total = next(values)
    for _ in range(limit):
        total = total + next(values)
    values.close()
    return total, len(CLOSED)


def make_counter():
    """Make a function that counts its calls in a closure."""
    count = 0

    def step():
        nonlocal count
        count += 1
        return count

    return step


STEP = make_counter()


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.ones(2),), lambda: (torch.full((2,), 3.0),)],
)
def counts_in_a_closure(x):
    """Counts its calls with `nonlocal` in the closure of another function."""
    return x * STEP()


@case(
    example=lambda: (torch.ones(2), 2),
    held_out=[lambda: (torch.ones(2), 4), lambda: (torch.zeros(2), 3)],
)
def closures_bind_late(x, count: int):
    """Makes lambdas in a comprehension and calls them after it: all of them see the last value of its variable."""
    functions = [lambda t: t * 10 + i for i in range(count)]  # noqa: B023 - the late binding is the point
    return [function(x) for function in functions]


@case(
    example=lambda: (torch.ones(2), 1),
    held_out=[lambda: (torch.ones(2), 5), lambda: (torch.zeros(2), -2)],
)
def closure_sees_the_later_value(x, n: int):
    """Defines a function before the variable that it reads gets its value, and changes the variable between calls."""

    def scaled():
        return x * factor

    factor = n
    first = scaled()
    factor = n + 10
    return first, scaled()


def make_polynomial(coefficients):
    """Make a function from a list of numbers."""

    def polynomial(x):
        total = torch.zeros_like(x)
        for one in coefficients:
            total = total * x + one
        return total

    return polynomial


@case(
    example=lambda: (torch.tensor([1.0, 2.0]), [1.0, 2.0]),
    held_out=[lambda: (torch.tensor([1.0, 2.0]), [1.0, 3.0]), lambda: (torch.tensor([1.0, 2.0]), [2.0, 0.0, 1.0])],
)
def function_made_at_each_call(x, coefficients: list[float]):
    """Makes a new function from the caller's numbers at each call: a capture may keep the first one's closure."""
    return make_polynomial(coefficients)(x)


@case(
    example=lambda: ([torch.ones(2), torch.ones(3)],),
    held_out=[lambda: ([torch.ones(4), torch.ones(1)],), lambda: ([torch.ones(3), torch.ones(3)],)],
)
def comprehension_with_a_condition(items: list[torch.Tensor]):
    """Filters a list of tensors by length in a comprehension: the number of results depends on the sizes."""
    return [one * 2 for one in items if one.shape[0] > 2]


@case(
    example=lambda: (torch.arange(4.0).reshape(2, 2),),
    held_out=[lambda: (torch.arange(6.0).reshape(3, 2),), lambda: (torch.arange(3.0).reshape(1, 3),)],
)
def nested_dict_comprehension(x):
    """Builds a dict with tuples of indices as keys in a nested comprehension over two sizes."""
    return {(i, j): x[i, j] * 2 for i in range(x.shape[0]) for j in range(i + 1) if j < x.shape[1]}


@case(
    example=lambda: ([torch.ones(2), torch.ones(2), torch.ones(3)],),
    held_out=[lambda: ([torch.ones(5), torch.ones(4), torch.ones(3)],)],
)
def set_comprehension_of_sizes(items: list[torch.Tensor]):
    """Collects the distinct lengths in a set comprehension and returns them sorted, beside a tensor."""
    return items[0].sum() * 2, sorted({one.shape[0] for one in items})


@case(
    example=lambda: (torch.ones(2), (i for i in (1, 2))),
    held_out=[lambda: (torch.ones(2), (i for i in (3, 4, 5))), lambda: (torch.ones(2), (i for i in ()))],
)
def generator_as_argument(x, factors):
    """Takes a generator as an argument and consumes it: it can be run through only once."""
    for factor in factors:
        x = x * factor
    return x


@case(
    example=lambda: (torch.ones(2), iter([1.0, 2.0, 3.0])),
    held_out=[lambda: (torch.ones(2), iter([5.0, 6.0])), lambda: (torch.ones(2), iter([7.0]))],
)
def takes_one_from_an_iterator(x, numbers):
    """Takes one number from the caller's iterator and returns what is left beside its result."""
    first = next(numbers)
    return x * first, list(numbers)


@case(
    example=lambda: ([torch.ones(2), torch.zeros(2)],),
    held_out=[lambda: ([torch.ones(2), torch.full((2,), 4.0), torch.ones(2)],)],
)
def assignment_in_a_comprehension(items: list[torch.Tensor]):
    """Keeps a running sum with `:=` inside a comprehension, which assigns to the function's own variable."""
    total = torch.zeros_like(items[0])
    sums = [total := total * 2 + one for one in items]
    return sums, total


def under_no_grad(x):
    """Yield inside `no_grad`: the mode stays off while the generator is suspended."""
    with torch.no_grad():
        yield x * 2


@case(
    example=lambda: (torch.tensor([1.0, 2.0], requires_grad=True),),
    held_out=[lambda: (torch.tensor([3.0], requires_grad=True),)],
)
def no_grad_leaks_from_a_generator(x):
    """Works on while a generator is suspended inside `no_grad`: its mode holds there too, until it is closed."""
    values = under_no_grad(x)
    doubled = next(values)
    during = x * 3
    values.close()
    return doubled, during, x * 4


def leaves(tree):
    """Yield the tensors of nested lists, depth first."""
    for one in tree:
        if isinstance(one, list):
            yield from leaves(one)
        else:
            yield one


@case(
    example=lambda: ([torch.ones(2), [torch.zeros(2)]],),
    held_out=[lambda: ([[[torch.zeros(2)], torch.ones(2)], torch.full((2,), 3.0)],)],
)
def recursive_generator(tree):
    """Walks nested lists with a generator that calls itself."""
    return [one * (i + 1) for i, one in enumerate(leaves(tree))]


COMPUTED = []


def noting(items):
    """Note how many items were computed, and yield them."""
    for one in items:
        COMPUTED.append(one.shape[0])
        yield one * 2


@case(
    example=lambda: ([torch.ones(2), torch.ones(2)], [1.0, 2.0]),
    held_out=[lambda: ([torch.ones(2), torch.ones(2), torch.ones(2)], [1.0]), lambda: ([torch.ones(3)], [])],
)
def zip_takes_one_too_many(items, numbers):
    """Pairs a generator with a shorter list: `zip` takes one more from the generator before it stops."""
    pairs = [one + number for one, number in zip(noting(items), numbers)]  # noqa: B905 - uneven on purpose
    return pairs, len(COMPUTED)


@case(
    example=lambda: (torch.ones(2), 2),
    held_out=[lambda: (torch.ones(2), 4), lambda: (torch.ones(2), 1)],
)
def unpacks_a_generator(x, count: int):
    """Unpacks a generator expression into a first item and a list of the rest."""
    first, *rest = (x * (i + 1) for i in range(count))
    return first, rest


@case(
    example=lambda: ([torch.ones(2), torch.zeros(2)],),
    held_out=[lambda: ([torch.full((2,), -1.0), torch.ones(2)],), lambda: ([torch.zeros(2), torch.zeros(2)],)],
)
def stops_at_the_first_match(items):
    """Searches with `next(… for … if …, default)` by value: the rest is not looked at."""
    return next((one * 2 for one in items if one.sum() > 0), items[0] - 5)


def powers_of_two():
    """Give 1, 2, 4, and so on."""
    power = 1.0
    while True:
        yield power
        power *= 2


POWERS = powers_of_two()


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.ones(2),), lambda: (torch.zeros(2),)],
)
def takes_from_a_global_generator(x):
    """Takes the next number from a generator that a global holds: the second call gets another one."""
    return x + next(POWERS)
