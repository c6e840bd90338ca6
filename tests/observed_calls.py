"""Two observations of calls, compared by the judge: what the tests of the judge share."""

from recapture.judge.compare import Rules, compare
from recapture.judge.observe import Surroundings, observe_call


def observed(function, *args, label="example", **around):
    """What the judge observes of a call of a function with these arguments."""
    return observe_call(function, label, lambda: args, Surroundings(**around))


def strict(*names):
    return Rules(strict=frozenset(names))


def texts(differences):
    return [f"{difference.where} {difference.kind}: {difference.detail}" for difference in differences]


def compare_values(eager, other, **more):
    """The comparison of two values, each returned by a call."""
    return compare(observed(lambda: eager), observed(lambda: other), **more)


def kinds(eager, other, **more):
    return [(difference.where, difference.kind) for difference in compare_values(eager, other, **more).differences]


class Plain:
    def __init__(self, **attributes):
        vars(self).update(attributes)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


def altered(module):
    module.running_mean.add_(1)
    return module
