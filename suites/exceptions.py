"""Exceptions and context managers: what is raised, caught, cleaned up and left behind."""

import contextlib

import torch

from recapture import case

LOG = []


def entries():
    """Give what the functions below have logged."""
    return list(LOG)


@case(
    example=lambda: (torch.ones(2), 1),
    held_out=[lambda: (torch.ones(2), 0), lambda: (torch.ones(2), 4)],
)
def catches_division_by_zero(x, n: int):
    """Divides two Python numbers and catches ZeroDivisionError: an exception is the other path."""
    try:
        return x * (1 / n)
    except ZeroDivisionError:
        return x * 0


@case(
    example=lambda: (torch.ones(2), {"scale": 2.0}),
    held_out=[lambda: (torch.ones(2), {}), lambda: (torch.ones(2), {"scale": 3.0})],
)
def missing_key(x, options):
    """Looks up a key and catches KeyError: a dict without the key takes the other path."""
    try:
        return x * options["scale"]
    except KeyError:
        return x - 1


@case(
    example=lambda: (torch.ones(2, 3), torch.ones(2, 3)),
    held_out=[lambda: (torch.ones(2, 3), torch.ones(2, 4))],
)
def catches_a_shape_error(x, y):
    """Adds two tensors and catches the RuntimeError that shapes which do not match raise."""
    try:
        return x + y
    except RuntimeError:
        return x * 10


@case(
    example=lambda: (torch.ones(2, 3),),
    held_out=[lambda: (torch.ones(3, 3),), lambda: (torch.ones(2),)],
)
def raises_on_rank(x):
    """Raises ValueError unless there are two dimensions: the check must survive the capture."""
    if x.dim() != 2:
        raise ValueError(f"expected two dimensions, got {x.dim()}")
    return x.sum(0)


class TooLarge(ValueError):
    """An exception with an attribute, as libraries define them."""

    def __init__(self, size):
        super().__init__(f"{size} is too large")
        self.size = size


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.ones(6),), lambda: (torch.ones(3),)],
)
def reads_an_attribute_of_the_exception(x):
    """Raises an exception of its own, catches it and uses the number that it carries."""
    try:
        if x.shape[0] > 4:
            raise TooLarge(x.shape[0])
    except TooLarge as error:
        return x / error.size
    return x + 1


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.ones(2),), lambda: (torch.zeros(2),)],
    watch=entries,
    reset=LOG.clear,
)
def finally_runs(x):
    """Returns from inside `try`; the `finally` block logs the call nevertheless."""
    try:
        return x + len(LOG)
    finally:
        LOG.append("done")


@case(
    example=lambda: (torch.ones(3), 1),
    held_out=[lambda: (torch.ones(3), -1), lambda: (torch.ones(3), 2)],
)
def else_and_finally(x, n: int):
    """Uses all four blocks of a `try`: which of them run depends on a number."""
    steps = []
    try:
        if n < 0:
            raise ValueError("negative")
    except ValueError:
        steps.append(10)
    else:
        steps.append(20)
    finally:
        steps.append(n)
    return x * sum(steps)


@case(
    example=lambda: (torch.ones(2), [1.0, 2.0]),
    held_out=[lambda: (torch.ones(2), [1.0]), lambda: (torch.ones(2), [])],
)
def suppresses_an_index_error(x, values: list[float]):
    """Reads the second entry of a list under `contextlib.suppress`: the rest of the block is skipped."""
    with contextlib.suppress(IndexError):
        x = x + values[1]
        x = x * 3
    return x


@contextlib.contextmanager
def logged(name):
    """Log the start and the end of a block, also where it raises."""
    LOG.append(f"enter {name}")
    try:
        yield len(LOG)
    finally:
        LOG.append(f"exit {name}")


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.zeros(2),)],
    watch=entries,
    reset=LOG.clear,
)
def context_manager_from_a_generator(x):
    """Nests two context managers made from a generator: they end in the reverse order."""
    with logged("outer") as number, logged("inner"):
        return x + number


class Swallows:
    """A context manager that swallows ValueError."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        return kind is ValueError


@case(
    example=lambda: (torch.ones(2), 1),
    held_out=[lambda: (torch.ones(2), -1)],
)
def exit_swallows_the_exception(x, n: int):
    """Raises inside a context manager whose `__exit__` returns true: the function goes on after the block."""
    y = x
    with Swallows():
        y = x + 1
        if n < 0:
            raise ValueError("swallowed")
        y = x + 2
    return y


@case(
    example=lambda: (torch.ones(2), 3),
    held_out=[lambda: (torch.ones(2), -3)],
)
def raises_from_a_cause(x, n: int):
    """Turns a KeyError into a TypeError with `raise … from …`: the caller sees the TypeError."""
    table = {3: 0.5}
    try:
        factor = table[n]
    except KeyError as error:
        raise TypeError("no such entry") from error
    return x * factor


@case(
    example=lambda: (torch.ones(3), torch.zeros(3)),
    held_out=[lambda: (torch.ones(3), torch.zeros(4))],
)
def changes_then_raises(x, y):
    """Changes its argument and then raises because of another: the change stays."""
    x.add_(1)
    if x.shape != y.shape:
        raise ValueError("shapes differ")
    return x + y


@case(
    example=lambda: (torch.ones(3), 1.0),
    held_out=[lambda: (torch.ones(3), 2.0), lambda: (torch.ones(3), -1.0)],
)
def exit_stack(x, scale: float):
    """Enters a context manager only where a number is positive, through an ExitStack."""
    with contextlib.ExitStack() as stack:
        if scale > 0:
            stack.enter_context(torch.no_grad())
        return x * scale, torch.is_grad_enabled()


@case(
    example=lambda: (torch.tensor([3, 1]), torch.tensor([0, 1])),
    held_out=[
        lambda: (torch.tensor([3, 1]), torch.tensor([0, 2])),
        lambda: (torch.tensor([3, 1]), torch.tensor([1, -1])),
    ],
)
def index_from_data(x, places):
    """Indexes by values: one that is too large raises IndexError, a negative one counts from the end."""
    return x[places] * 2


@case(
    example=lambda: (torch.ones(4), 4),
    held_out=[lambda: (torch.ones(4), 3)],
)
def asserts_its_argument(x, expected: int):
    """Asserts a size with a message: AssertionError is right where it does not hold."""
    assert x.shape[0] == expected, f"{x.shape[0]} is not {expected}"
    return x.cumsum(0)
