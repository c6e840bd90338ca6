"""Functions like those that outsiders met, one or more for each kind of mistake."""

import collections
import enum
import functools

import torch

# --- code that refers to itself --------------------------------------------------------------------------------------


class Rounded(torch.autograd.Function):
    limit = 17

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


class Left:
    @staticmethod
    def value(x):
        return x + 18


class Right:
    other = Left

    @staticmethod
    def value(x):
        return x + 19


Left.other = Right
Left.own = Left


class Meta(type):
    pass


class OfMeta(metaclass=Meta):
    made_by = Meta

    def value(self, x):
        return x + 20


Meta.makes = OfMeta


class Nested:
    class Inner:
        pass

    def value(self, x):
        return x + 21


Nested.Inner.outer = Nested


class Kind(enum.Enum):
    LOW = 1

    def value_of(self, x):
        return x + 22


def even(x, n=4):
    return x if n == 0 else odd(x, n - 1)


def odd(x, n=3):
    return x + 23 if n == 0 else even(x, n - 1)


def with_a_cached_property(x):
    return Cached().value + x


class Cached:
    @functools.cached_property
    def value(self):
        return 24


Point = collections.namedtuple("Point", "x y")
Point.origin = Point(25, 0)


def rounded(x):
    return Rounded.apply(x)


def left(x):
    return Left.value(x)


def right(x):
    return Right.value(Right.other.value(x))


def of_meta(x):
    return OfMeta().value(x)


def nested(x):
    return Nested().value(x)


def of_an_enum(x):
    return Kind.LOW.value_of(x)


def of_a_tuple(x):
    return Point(x, x).x + Point.origin.x


def itself(x):
    itself.calls = itself
    return x + 26


# --- numbers that are sizes ------------------------------------------------------------------------------------------


def zeros(x, n):
    return torch.zeros(n) + x.sum()


def ones_of_a_list(x, n):
    return x + len([0] * n)


def repeated(x, n):
    return x.repeat(n)


def expanded(x, n):
    return x.sum().expand(n) + 0


def power(x, n):
    return x + float(len(str(2**n))) if n < 10 else x + float(2**n % 7)


def counts(x, n):
    total = 0
    for step in range(n):
        total += step
    return x + total


def arange(x, n):
    return x.sum() + torch.arange(n)


def filled_with_ones(x, n):
    return torch.ones(n) * x.sum()


def text(x, n):
    return x + len("a" * n)


def padded(x, n):
    return torch.nn.functional.pad(x, (0, n))


# --- gradients -------------------------------------------------------------------------------------------------------


class NoParameters(torch.nn.Module):
    def forward(self, x):
        return x * 2


class Frozen(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 4)
        self.requires_grad_(False)


class OneParameter(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 4)


def doubled(x):
    return x * 2


def in_a_list(tensors):
    return tensors[0] * tensors[1]


def in_a_dict(tensors):
    return tensors["a"] * 2


def written(x):
    return x.mul_(2)


def detached(x):
    return x.detach() * 2


def counted(x):
    return (x > 0).sum()


def of_integers(x):
    return x + 1


def pair_of_tensors():
    return ([torch.rand(4), torch.rand(4)],)


def dict_of_tensors():
    return ({"a": torch.rand(4)}, )


# --- memory that nothing was written to ------------------------------------------------------------------------------


def empty(x):
    return torch.empty(x.shape)


def empty_like(x):
    return torch.empty_like(x)


def new_empty(x):
    return x.new_empty(x.shape)


def empty_strided(x):
    return torch.empty_strided(x.shape, x.stride())


def two_empties(x):
    return torch.empty(x.shape), torch.empty(x.shape)


def half_written(x):
    result = torch.empty(2 * x.numel())
    result[: x.numel()] = x.reshape(-1)
    return result


def resized(x):
    return torch.zeros(1).resize_(x.numel() * 64)


def filled(x):
    return torch.empty(x.shape).fill_(3) + x


def copied(x):
    return torch.empty(x.shape).copy_(x)


def as_a_shape(x):
    return x * torch.empty(3, 4).shape[0]


# --- arguments by name -----------------------------------------------------------------------------------------------


class KeywordOnly(torch.nn.Module):
    def forward(self, x, *, scale, shift=None):
        return x * scale if shift is None else x * scale + shift


class WithDefaults(torch.nn.Module):
    def forward(self, a=None, b=None, c=None):
        return a + c if b is None else a * b + c


def scaled(x, scale=None, shift=None):
    return x if shift is None else x + shift


def collects(x, **more):
    return x + sum(more.values())


def make_keyword_only():
    return KeywordOnly()


def make_function():
    return scaled


AN_INSTANCE = WithDefaults()


def x_and_scale():
    return {"scale": torch.full((2,), 3.0), "x": torch.ones(2)}


def of_a_tokenizer():
    return collections.UserDict(x_and_scale())


def a_and_c():
    return {"c": torch.full((2,), 3.0), "a": torch.ones(2)}


def x_and_shift():
    return {"x": torch.ones(2), "shift": torch.full((2,), 3.0)}


def x_and_more():
    return {"x": torch.ones(2), "one": torch.ones(2), "two": torch.full((2,), 3.0)}


def unknown_name():
    return {"x": torch.ones(2), "scales": torch.ones(2)}


def missing_name():
    return {"scale": torch.ones(2)}


def of_at_most_eight_rows(x):
    rows, columns = x.shape
    assert rows <= 8
    return x.view(rows * columns) * 2


def of_another_size_than_ten(x):
    return x * 3 if x.shape[1] == 10 else x * 2


def with_a_second_tensor(x, y):
    return x if y is None else x + y.relu()


class KeepsItsActivation(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.last = None

    def forward(self, x):
        self.last = self.linear(x)
        return self.last.relu()


class WithWeightNorm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.utils.weight_norm(torch.nn.Linear(4, 4))

    def forward(self, x):
        return self.linear(x)


# --- examples that allocate nothing ----------------------------------------------------------------------------------


def doubled(x):
    return x * 2


def hundred_gigabytes():
    return (torch.empty(25, 10**9, device="meta"),)
