"""Lists, tuples, dicts and other containers as arguments and results: what a tracer flattens may change its form."""

import inspect
from collections import OrderedDict, defaultdict, deque

import torch
from torch.utils import _pytree as pytree

from recapture import case


@case(
    example=lambda: ([torch.ones(2), torch.rand(2)],),
    held_out=[lambda: ([torch.rand(2), torch.ones(2), torch.rand(2)],), lambda: ([torch.rand(2)],)],
)
def list_of_any_length(tensors: list[torch.Tensor]):
    """Averages a list of tensors: its length belongs to the call and not to the program."""
    return torch.stack(tensors).mean(0)


@case(
    example=lambda: (torch.ones(2), torch.full((2,), 2.0)),
    held_out=[lambda: (torch.ones(2),), lambda: (torch.ones(2), torch.zeros(2), torch.full((2,), 5.0))],
)
def any_number_of_arguments(*tensors):
    """Takes any number of positional arguments and weights each with its position."""
    total = torch.zeros_like(tensors[0])
    for i, one in enumerate(tensors):
        total = total + one * (i + 1)
    return total


@case(
    example=lambda: ({"a": torch.ones(2), "bb": torch.ones(2)},),
    held_out=[
        lambda: ({"a": torch.ones(2), "ccc": torch.ones(2)},),
        lambda: ({"a": torch.ones(2), "bb": torch.ones(2), "dddd": torch.ones(2)},),
    ],
)
def weights_by_the_key(batch: dict[str, torch.Tensor]):
    """Weights the values of a dict with the length of their keys: other keys, or one more, change the result."""
    total = torch.zeros(2, device=batch["a"].device)
    for key, value in batch.items():
        total = total + value * len(key)
    return total


@case(
    example=lambda: ({"b": torch.ones(2), "a": torch.zeros(2)},),
    held_out=[lambda: ({"a": torch.zeros(2), "b": torch.ones(2)},)],
    strict=("order",),
)
def keeps_the_order_of_keys(batch: dict[str, torch.Tensor]):
    """Returns a dict in its argument's order of keys, which is not alphabetical: flattening often sorts them."""
    return {key: value * 2 for key, value in batch.items()}


@case(
    example=lambda: (OrderedDict(a=torch.ones(2), b=torch.zeros(2)),),
    held_out=[lambda: (OrderedDict(b=torch.zeros(2), c=torch.ones(2), a=torch.ones(2)),)],
    strict=("order",),
)
def moves_a_key_to_the_end(batch):
    """Moves the first key of an OrderedDict to its end, in place, and returns a second OrderedDict."""
    first = next(iter(batch))
    batch.move_to_end(first)
    return OrderedDict((key, value + i) for i, (key, value) in enumerate(batch.items()))


@case(
    example=lambda: ([("x", torch.ones(2)), ("y", torch.zeros(2))],),
    held_out=[lambda: ([("x", torch.ones(2)), ("y", torch.zeros(2)), ("x", torch.full((2,), 3.0))],)],
    strict=("order",),
)
def groups_into_a_defaultdict(pairs):
    """Groups tensors by name in a `defaultdict(list)` and returns it: its type and factory belong to the result."""
    groups = defaultdict(list)
    for name, value in pairs:
        groups[name].append(value * 2)
    return groups


@case(
    example=lambda: (torch.ones(2), deque([torch.zeros(2)], maxlen=2)),
    held_out=[
        lambda: (torch.ones(2), deque([torch.zeros(2), torch.full((2,), 4.0)], maxlen=2)),
        lambda: (torch.ones(2), deque([torch.zeros(2), torch.full((2,), 4.0)], maxlen=3)),
    ],
)
def window_in_a_deque(x, window):
    """Appends to a deque that drops its oldest item when it is full, then sums the window."""
    window.append(x)
    return torch.stack(list(window)).sum(0)


def tree_sum(tree):
    """Sum the tensors of nested dicts and lists."""
    if isinstance(tree, torch.Tensor):
        return tree.sum()
    if isinstance(tree, dict):
        return sum(tree_sum(tree[key]) for key in sorted(tree))
    return sum(tree_sum(one) for one in tree) * 2


@case(
    example=lambda: ({"a": torch.ones(2), "b": [torch.ones(2), torch.zeros(1)]},),
    held_out=[lambda: ([[torch.ones(2)], {"c": torch.ones(3)}],), lambda: (torch.ones(4),)],
)
def walks_nested_containers(tree):
    """Walks nested dicts and lists with `isinstance` and recursion: each nesting is another program."""
    return tree_sum(tree)


@case(
    example=lambda: ({"a": torch.ones(2), "b": (torch.ones(1),)},),
    held_out=[lambda: ([torch.ones(2), {"z": torch.zeros(1)}],), lambda: ({"b": torch.ones(2), "a": ()},)],
)
def maps_over_a_tree(tree):
    """Doubles every tensor of a nested container with `tree_map`, which must give the same container back."""
    return pytree.tree_map(lambda leaf: leaf * 2, tree)


class Interval:
    """A lower and an upper bound, and a unit as text."""

    def __init__(self, low, high, unit):
        self.low = low
        self.high = high
        self.unit = unit


if hasattr(pytree, "register_pytree_node"):
    by_name = {  # asked for by export in newer releases, unknown to older ones
        "flatten_with_keys_fn": lambda interval: (
            [(pytree.GetAttrKey(name), getattr(interval, name)) for name in ("low", "high")],
            interval.unit,
        )
    }
    known = inspect.signature(pytree.register_pytree_node).parameters
    pytree.register_pytree_node(
        Interval,
        lambda interval: ([interval.low, interval.high], interval.unit),
        lambda bounds, unit: Interval(*bounds, unit),
        **{name: function for name, function in by_name.items() if name in known},
    )


@case(
    example=lambda: (Interval(torch.zeros(2), torch.ones(2), "m"),),
    held_out=[
        lambda: (Interval(torch.ones(2), torch.ones(2), "m"),),
        lambda: (Interval(torch.ones(2), torch.full((2,), 3.0), "km"),),
    ],
    since="2.2",
)
def registered_pytree_class(interval):
    """Takes a class that is registered as a pytree node; its text is no leaf, and other text is another program."""
    width = interval.high - interval.low
    return width * 1000 if interval.unit == "km" else width


@case(
    example=lambda: ([torch.zeros(2), torch.ones(2)],),
    held_out=[lambda: ([torch.zeros(2), torch.ones(2), torch.full((2,), 5.0)],)],
)
def reverses_its_argument(items: list[torch.Tensor]):
    """Reverses a list that belongs to the caller, replaces its first item, and returns the last."""
    items.reverse()
    items[0] = items[0] + 10
    return items[-1] + len(items)


@case(
    example=lambda: ({"x": torch.ones(2)},),
    held_out=[lambda: ({"x": torch.ones(2), "scale": torch.full((2,), 3.0)},)],
)
def takes_and_adds_keys(batch: dict[str, torch.Tensor]):
    """Removes an optional key from the caller's dict and adds another one."""
    scale = batch.pop("scale") if "scale" in batch else torch.ones_like(batch["x"])
    batch["y"] = batch["x"] * scale
    return batch["y"].sum()


@case(
    example=lambda: ([torch.ones(2), torch.zeros(2)],),
    held_out=[lambda: ((torch.ones(2), torch.zeros(2)),), lambda: ([torch.ones(2)],)],
)
def list_or_tuple(items):
    """Returns the type of container that it was given: a list for a list, a tuple for a tuple."""
    return type(items)(one + 1 for one in items)


@case(
    example=lambda: (torch.ones(2), {"double", "clip"}),
    held_out=[lambda: (torch.ones(2), {"clip"}), lambda: (torch.ones(2), {"double", "shift"})],
)
def set_argument(x, options):
    """Counts what a set of options shares with those that are known."""
    return x * len(options & {"double", "shift"}) + len(options - {"double"})


@case(
    example=lambda: ([torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]), torch.tensor([5.0, 6.0])],),
    held_out=[
        lambda: ([torch.tensor([5.0, 6.0]), torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])],),
        lambda: ([torch.tensor([0.0, 1.0]), torch.tensor([-9.0, 2.0]), torch.tensor([-4.0, 0.0])],),
    ],
)
def sorts_tensors_by_value(items: list[torch.Tensor]):
    """Sorts a list of tensors by their first element with `sorted(key=…)`: the order depends on values."""
    return torch.stack(sorted(items, key=lambda one: one[0].item()))


@case(
    example=lambda: ([torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]), torch.tensor([5.0, 6.0])],),
    held_out=[
        lambda: ([torch.tensor([5.0, 6.0]), torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])],),
        lambda: ([torch.tensor([0.0, 1.0]), torch.tensor([-9.0, 2.0]), torch.tensor([-4.0, 0.0])],),
    ],
    rewrite_of=sorts_tensors_by_value,
)
def sorts_rows_by_value(items: list[torch.Tensor]):
    """The supported form of sorting by value: the tensors are stacked and indexed with `argsort`."""
    rows = torch.stack(items)
    return rows[torch.argsort(rows[:, 0])]


@case(
    example=lambda: ([torch.ones(2), torch.zeros(2)], [torch.ones(2), torch.ones(2)]),
    held_out=[
        lambda: ([torch.ones(2), torch.zeros(2)], [torch.full((2,), 3.0)]),
        lambda: ([torch.ones(2)] * 3, [torch.zeros(2)] * 4),
    ],
)
def zips_uneven_lists(xs: list[torch.Tensor], ys: list[torch.Tensor]):
    """Pairs two lists with `zip`, which stops at the end of the shorter one."""
    return [x + y for x, y in zip(xs, ys)]  # noqa: B905 - uneven lists are the point


@case(
    example=lambda: ([torch.ones(2), None, torch.zeros(2)],),
    held_out=[lambda: ([None, torch.ones(2), torch.zeros(2)],), lambda: ([torch.ones(2)] * 3,)],
)
def none_among_tensors(items):
    """Keeps the places of None in a list of tensors: which items are None is part of the structure."""
    return [None if one is None else one * 2 for one in items]


@case(
    example=lambda: ({0: torch.ones(2), "one": torch.zeros(2), (1, 2): torch.full((2,), 2.0)},),
    held_out=[lambda: ({(1, 2): torch.ones(2), 0: torch.zeros(2), "one": torch.full((2,), 7.0)},)],
)
def keys_of_mixed_types(table):
    """Takes a dict whose keys are an int, a string and a tuple: they cannot be sorted."""
    return {(1, 2): table[0] - table["one"], "one": table[1, 2]}


@case(
    example=lambda: (torch.ones(2), 3),
    held_out=[lambda: (torch.ones(2), 5), lambda: (torch.ones(3), -1)],
)
def numbers_and_text_in_the_result(x, step: int):
    """Returns tensors beside an int, a float, a bool and a string that depend on the call."""
    return {"loss": x.sum(), "step": step + 1, "rate": 1 / (step + 2), "done": step > 4, "name": f"step{step}"}


@case(
    example=lambda: (torch.ones(2, 3),),
    held_out=[lambda: (torch.ones(4, 1),), lambda: (torch.ones(2),)],
)
def returns_a_torch_size(x):
    """Returns the shape as it is, a `torch.Size`, beside the tensor."""
    return x + 1, x.shape


@case(
    example=lambda: ([[torch.ones(2)], [torch.zeros(2), torch.ones(2)]],),
    held_out=[lambda: ([[torch.zeros(2), torch.ones(2)], [torch.full((2,), 7.0)]],)],
)
def ragged_lists(rows: list[list[torch.Tensor]]):
    """Takes lists of lists: the same number of tensors, grouped in another way, is another argument."""
    return [torch.stack(row).sum(0) * len(row) for row in rows]
