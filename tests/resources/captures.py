"""What torch tells about captures, printed as one JSON object of name → facts.

Run with the Python of any image and the project on its path: ``python captures.py``.
"""

import json
import logging
import sys
import warnings

import torch

from recapture.torch_api.compat import is_capture_error, is_out_of_memory, reset_dynamo
from recapture.torch_api.watch import watch_dynamo


def f1(x, y):
    """The branch of the tutorial."""
    if x.sum() < 0:
        return -y
    return y


def bar(a, b):
    """The other one, with work on both sides."""
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def loop(x):
    """A branch inside a loop: the frame is skipped."""
    for _ in range(3):
        if x.sum() > 0:
            x = x + 1
    return x


def guarded_print(x):
    """A break inside try and finally."""
    try:
        x = x + 1
        print("seen", end="", file=sys.stderr)
        x = x * 2
    finally:
        x = x - 1
    return x


def item(x):
    """Reads a number out of a tensor."""
    n = x.sum().item()
    return x + n


def straight(x):
    """Nothing to break."""
    return x.sin() + 1


def watched(function, *calls, **options):
    """Facts about a compiled function after some calls."""
    reset_dynamo()
    with watch_dynamo() as log:
        compiled = torch.compile(function, backend="eager", **options)
        error = None
        for call in calls:
            try:
                result, expected = compiled(*call), function(*call)
                if not torch.equal(result, expected):
                    raise AssertionError(f"{function.__name__} gives {result}, not {expected}")
            except AssertionError:
                raise
            except Exception as raised:
                error = raised
    return {
        "graphs": log.graphs,
        "breaks": log.graph_breaks,
        "recompiles": log.recompiles,
        "reasons": list(dict.fromkeys(log.break_reasons)),
        "error": error and [type(error).__name__, is_capture_error(error), is_out_of_memory(error)],
    }


def wrong_shapes(x):
    """A mistake of the user's own."""
    return x @ torch.ones(7, 5)


def main():
    """Everything, by name."""
    first, second = torch.ones(3), torch.ones(3)
    return {
        "version": torch.__version__,
        "straight": watched(straight, (first,)),
        "f1 positive": watched(f1, (first, second)),
        "f1 both": watched(f1, (first, second), (-first, second)),
        "bar": watched(bar, (first, second), (first, -second)),
        "loop": watched(loop, (first,)),
        "print": watched(guarded_print, (first,)),
        "item": watched(item, (first,)),
        "sizes": watched(straight, (torch.ones(3),), (torch.ones(4),), (torch.ones(5),)),
        "fullgraph": watched(f1, (first, second), fullgraph=True),
        "user error": watched(wrong_shapes, (first,)),
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    json.dump(main(), sys.stdout)
