"""State outside the arguments: globals, defaults, environment variables, text, settings.

A program changes such state between two calls. Here the factories of the inputs do: `after(…)` sets what the next call
will find.
"""

import logging
import os
import types
import warnings
from collections import deque

import torch

from recapture import case


def after(change, *arguments):
    """Change something as a program does before its next call, then give that call's arguments."""
    change()
    return arguments


SETTINGS = {"mode": "double", "offset": 1.0}


@case(
    example=lambda: after(lambda: SETTINGS.update(mode="double"), torch.ones(2)),
    held_out=[lambda: after(lambda: SETTINGS.update(mode="negate"), torch.ones(2))],
)
def mode_in_a_global_dict(x):
    """Branches on a string in a global dict that the program changes between the calls."""
    return x * 2 if SETTINGS["mode"] == "double" else -x


@case(
    example=lambda: after(lambda: SETTINGS.update(offset=1.0), torch.ones(2)),
    held_out=[
        lambda: after(lambda: SETTINGS.update(offset=2.5), torch.ones(2)),
        lambda: after(lambda: SETTINGS.update(offset=4), torch.ones(2, dtype=torch.int64)),
    ],
)
def number_in_a_global_dict(x):
    """Adds a number from a global dict, a float and then an int."""
    return x + SETTINGS["offset"]


TABLES = types.SimpleNamespace(weight=torch.ones(2))


@case(
    example=lambda: after(lambda: setattr(TABLES, "weight", torch.ones(2)), torch.ones(2)),
    held_out=[
        lambda: after(lambda: setattr(TABLES, "weight", torch.full((2,), 3.0)), torch.ones(2)),
        lambda: after(lambda: setattr(TABLES, "weight", torch.full((2, 2), 4.0)), torch.ones(2)),
    ],
)
def replaced_global_tensor(x):
    """Multiplies by a global tensor that is replaced by another one, later of another shape."""
    return x * TABLES.weight.to(x.device)


@case(
    example=lambda: (torch.ones(2), torch.ones(2)),
    held_out=[lambda: (torch.ones(2), torch.full((2,), 3.0)), lambda: (torch.zeros(2), torch.full((2,), 4.0))],
)
def tensor_passed_instead(x, weight):
    """The supported form of a global tensor that changes: it is an argument."""
    return x * weight


def triple(x):
    """Stand for a function that a program replaces."""
    return x * 3


LIBRARY = types.SimpleNamespace(activation=triple)


@case(
    example=lambda: after(lambda: setattr(LIBRARY, "activation", triple), torch.ones(2)),
    held_out=[lambda: after(lambda: setattr(LIBRARY, "activation", torch.neg), torch.ones(2))],
)
def replaced_function(x):
    """Calls a function by its name in a namespace: the program puts another one there, as tests and plugins do."""
    return LIBRARY.activation(x) + 1


VARIABLE = "RECAPTURE_CASE_SCALE"


def forget_variable():
    """Remove the environment variable of these cases."""
    os.environ.pop(VARIABLE, None)


@case(
    example=lambda: after(lambda: os.environ.update({VARIABLE: "2"}), torch.ones(2)),
    held_out=[
        lambda: after(lambda: os.environ.update({VARIABLE: "5"}), torch.ones(2)),
        lambda: after(forget_variable, torch.ones(2)),
    ],
    reset=forget_variable,
)
def reads_the_environment(x):
    """Reads an environment variable at each call: a switch as many libraries have one."""
    return x * int(os.environ.get(VARIABLE, "1"))


@case(
    example=lambda: (torch.ones(2), 1),
    held_out=[lambda: (torch.ones(2), 2), lambda: (torch.ones(2), 3)],
    strict=("environment",),
    reset=forget_variable,
)
def sets_the_environment(x, n: int):
    """Sets an environment variable to a number that the caller gives."""
    os.environ[VARIABLE] = str(n)
    return x + n


@case(
    example=lambda: (torch.tensor([1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([3.0, 4.0]),)],
    strict=("output",),
)
def prints_a_value(x):
    """Prints the sum of a tensor: the number of this call, and not the one of the example."""
    print("sum", int(x.sum().item()))
    return x * 2


@case(
    example=lambda: (torch.ones(2), 1),
    held_out=[lambda: (torch.ones(2), 2)],
    strict=("output",),
)
def warns_at_every_call(x, n: int):
    """Issues a warning with a number of the call in it."""
    warnings.warn(f"step {n}", UserWarning, stacklevel=2)
    return x + n


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.ones(3),), lambda: (torch.ones(4),)],
    strict=("output",),
)
def logs_the_length(x):
    """Writes a log message with the length of its argument."""
    logging.getLogger("recapture-case").warning("length %d", x.shape[0])
    return x + 1


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.ones(2),), lambda: (torch.full((2,), 3.0),)],
)
def counts_on_itself(x):
    """Counts its calls in an attribute of the function itself."""
    counts_on_itself.calls = getattr(counts_on_itself, "calls", 0) + 1
    return x * counts_on_itself.calls


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.zeros(2),), lambda: (torch.full((2,), 3.0),)],
)
def remembers_in_its_default(x, seen=[]):  # noqa: B006 - the shared default is the point
    """Appends to its default argument, a list that lives as long as the function."""
    seen.append(x.shape[0])
    return x + len(seen)


HISTORY = []


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.full((2,), 2.0),), lambda: (torch.full((2,), 4.0),)],
)
def keeps_every_result(x):
    """Keeps its results in a global list and returns their sum so far."""
    HISTORY.append(x * 2)
    return torch.stack(HISTORY).sum(0)


PREVIOUS = None


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.full((2,), 5.0),), lambda: (torch.full((2,), 7.0),)],
)
def difference_to_the_last_call(x):
    """Rebinds a global name with `global` and subtracts what the call before has left there."""
    global PREVIOUS
    before, PREVIOUS = PREVIOUS, x.clone()
    return x if before is None else x - before


WAITING = deque([1.0, 2.0, 4.0, 8.0, 16.0])


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.ones(2),), lambda: (torch.zeros(2),)],
)
def takes_from_a_global_queue(x):
    """Takes the next number from a global queue: the second call finds another one."""
    return x + WAITING.popleft()


EVENTS = []


def noted(x, name):
    """Note that an operand was computed."""
    EVENTS.append(name)
    return x


@case(
    example=lambda: (torch.ones(2), "left"),
    held_out=[lambda: (torch.ones(2), "right")],
)
def order_of_operands(x, first: str):
    """Notes in a global list in which order operands are computed: Python goes from left to right."""
    if first == "left":
        return noted(x, "a") + noted(x, "b") * noted(x, "c")
    return noted(x, "c") * noted(x, "b") - noted(x, "a")


@case(
    example=lambda: (torch.tensor([1.0, 2.0]),),
    held_out=[lambda: (torch.tensor([-1.0, -2.0]),)],
)
def effects_around_a_break(x):
    """Notes events before, inside and after a branch on values, where the graph breaks: each exactly once."""
    EVENTS.append("before")
    y = torch.sin(x)
    if y.sum() < 0:
        EVENTS.append("negative")
        y = -y
    EVENTS.append(len(EVENTS))
    return y + 1


@case(
    example=lambda: (torch.ones(2), True),
    held_out=[lambda: (torch.ones(2), False), lambda: (torch.zeros(2), True)],
)
def leaves_gradients_off(x, on: bool):
    """Switches gradients on or off and leaves it so: the setting belongs to what the call does."""
    torch.set_grad_enabled(on)
    return x * 2


COUNTERS = types.SimpleNamespace(calls=0)


def calls_counted():
    """Give the number of calls that the namespace holds."""
    return COUNTERS.calls


def count_from_zero():
    """Start the counter again."""
    COUNTERS.calls = 0


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.ones(2),), lambda: (torch.zeros(2),)],
    watch=calls_counted,
    reset=count_from_zero,
)
def counts_on_an_object(x):
    """Counts its calls in an attribute of an object and does not use the count: the effect alone must remain."""
    COUNTERS.calls += 1
    return x + 1


@case(
    example=lambda: (torch.ones(2), torch.tensor(0)),
    held_out=[lambda: (torch.ones(2), torch.tensor(1)), lambda: (torch.zeros(2), torch.tensor(2))],
)
def state_in_and_out(x, calls):
    """The supported form of a counter: the state is a tensor that comes in as an argument and goes out as a result."""
    calls = calls + 1
    return x * calls, calls


TRIED = 0


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.ones(2),), lambda: (torch.full((2,), 3.0),)],
)
def counts_in_a_global_by_its_name(x):
    """Adds one to a global through `globals()`, then reads the global."""
    globals()["TRIED"] += 1
    return x * TRIED


RECENT = deque([1.0, 2.0], maxlen=2)


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.ones(2),), lambda: (torch.full((2,), 3.0),)],
)
def drops_from_a_full_global_queue(x):
    """Appends to a global deque that is full, so that it drops its oldest number, and adds the oldest that is left."""
    RECENT.append(4.0)
    return x + RECENT[0]


def visited():
    """Carry a mark."""


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.ones(2),), lambda: (torch.full((2,), 3.0),)],
)
def marks_a_function(x):
    """Asks whether another function has an attribute, and sets it: only the first call finds none."""
    before = hasattr(visited, "mark")
    visited.mark = True
    return x + before


def scaled(x, factor=1.0):
    return x * factor


@case(
    example=lambda: (torch.ones(2),),
    held_out=[lambda: (torch.zeros(2),), lambda: (torch.full((2,), 3.0),)],
)
def replaces_a_default(x):
    """Gives another function a new default, then calls it without that argument."""
    scaled.__defaults__ = (2.0,)
    return scaled(x)
