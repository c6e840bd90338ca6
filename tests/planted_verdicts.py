"""A suite whose cells end with every verdict, with compilers of its own."""

SUITE = '''
import sys

import torch
from recapture import case, compiler

CALLS = []


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (-torch.ones(3),)])
def plain(x):
    return x + 1


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (-torch.ones(3),)])
def branch(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


@case(example=lambda: (torch.ones(3),))
def leaves_another_dtype(x):
    torch.set_default_dtype(torch.float64)
    return x + 1


@compiler("cannot-say", unavailable=lambda: 1 / 0)
def cannot_say(fn, example):
    return fn


@case(example=lambda: (torch.ones(3), 1), held_out=[lambda: (torch.ones(3), 2)])
def scalar(x, n):
    return x * n


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (torch.ones(3),)])
def counts(x):
    CALLS.append(1)
    return x + len(CALLS)


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (torch.ones(3),)], watch=lambda: len(CALLS))
def watched(x):
    CALLS.append(1)
    return x + 1


@case(example=lambda: ([torch.ones(3)],))
def appends(xs):
    xs.append(xs[0] + 1)
    return xs[0]


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (torch.ones(4),)])
def raises_for_four(x):
    if x.shape[0] == 4:
        raise ValueError("four")
    return x


@case(example=lambda: (torch.ones(3),))
def always_raises(x):
    raise ValueError("always")


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (torch.ones(2),)])
def unstable(x):
    import os
    return x + int.from_bytes(os.urandom(4), "little")


@case(example=lambda: (torch.ones(3),))
def sometimes(x):
    import os
    import tempfile
    mark = os.path.join(tempfile.gettempdir(), f"recapture-test-sometimes-{os.getpid()}")
    if os.path.exists(mark):
        os.remove(mark)
        raise ValueError("now and then")
    open(mark, "x").close()
    return x


@case(example=lambda: (torch.ones(3),))
def memory(x):
    raise MemoryError("no more")


@case(example=lambda: (torch.ones(3),), since="99.0")
def newer(x):
    return x


@case(example=lambda: (torch.ones(3),), requires=["no_such_module.inner"])
def needs(x):
    return x


@case(example=lambda: (1 / 0,))
def no_inputs(x):
    return x


@case(example=lambda: (torch.ones(3),))
class NoModule(torch.nn.Module):
    def __init__(self):
        raise RuntimeError("cannot be built at /some/where/file.py")


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (torch.ones(3),), lambda: (torch.ones(3) * 2,)])
class Total(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(3))
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total += x
        return self.total * self.weight


@case(
    example=lambda: (torch.ones(3),),
    held_out=[lambda: (torch.ones(4),), lambda: (torch.ones(3),)],
)
class Resumes(torch.nn.Module):
    """After a loud failure the next result is right, seen from a program that caught it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x + self.calls


def original(x):
    return x * 2


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (-torch.ones(3),)], rewrite_of=original)
def good_rewrite(x):
    return x + x


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (-torch.ones(3),)], rewrite_of=original)
def bad_rewrite(x):
    return (x + x).abs()


@case(example=lambda: (torch.ones(3), 2, True), held_out=[lambda: (torch.ones(3) * 3, 2, True)], concrete_args=["flag"])
def chosen(x, n, flag):
    return x * n if flag else x


@case(example=lambda: (torch.ones(3),), compare_output=True)
def prints(x):
    print("hello")
    return x


@case(example=lambda: (torch.ones(3).half(),) , held_out=[lambda: (torch.rand(3).half(),)])
def leaks(x):
    torch.set_grad_enabled(False)
    return x


@case(example=lambda: (lambda t: (t, t))(torch.ones(3)))
def same(x, y):
    return x + 1 if x is y else x - 1


@compiler("identity")
def identity(fn, example):
    """Changes nothing."""
    return fn


@compiler("raises-on-example")
def raises_on_example(fn, example):
    """Fails on the example, returns nonsense elsewhere."""
    def call(x):
        if x.sum() == example[0].sum():
            raise KeyError("example")
        return x * 100
    return call


@compiler("wrong-then-raises")
def wrong_then_raises(fn, example):
    """Returns nonsense on the first other input."""
    def call(x):
        if x.sum() == example[0].sum():
            return fn(x)
        if x.shape[0] == 4:
            raise KeyError("four")
        return fn(x) * 100
    return call


@compiler("not-utf-8")
def not_utf_8(fn, example):
    """Fails with a file's name that is not UTF-8."""
    def call(*args):
        raise ValueError("cannot open caf\\udce9.txt")
    return call


@compiler("loses-memory")
def loses_memory(fn, example):
    """Runs out of memory when called."""
    def call(*args):
        raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has 3 MiB free.")
    return call


@compiler("not-here", unavailable=lambda: "there is no such thing here")
def not_here(fn, example):
    """Never available."""


@compiler("exits")
def exits(fn, example):
    """Leaves."""
    sys.exit(3)


@case(example=lambda: (torch.ones(4),), held_out=[lambda: (torch.ones(2),)])
def summed(x):
    return (x + 1).sum()


@compiler("unchecked", checks_inputs=False)
def unchecked(fn, example):
    """Reads what it is given."""
    return lambda x: fn(x) + (0 if x.sum() == example[0].sum() else 123)


@compiler("reads-past-the-end", checks_inputs=False)
def reads_past_the_end(fn, example):
    """Takes every input to be as large as the example."""
    return lambda x: fn(x.as_strided(example[0].shape, example[0].stride()))


@compiler("wrong")
def wrong(fn, example):
    """Always off by one."""
    return lambda *args: fn(*args) + 1


@compiler("strict-size", shares_state=False)
def strict_size(fn, example):
    """Refuses another size, loudly."""
    def call(x):
        if x.shape != example[0].shape:
            raise AssertionError("Guard failed")
        return fn(x)
    return call


@compiler("forgets", shares_state=False)
def forgets(fn, example):
    """Works on a new copy of the module in each call."""
    import copy
    kept = copy.deepcopy(fn)
    return lambda *args: copy.deepcopy(kept)(*args)


@compiler("warns")
def warns(fn, example):
    """Warns as a tracer does."""
    import warnings
    warnings.warn("maybe", torch.jit.TracerWarning)
    return lambda *args: fn(*args) + 1


@case(example=lambda: (torch.full((4,), 1e6),), held_out=[lambda: (torch.linspace(-1e6, -9e5, 4),)])
def branch_small(x):
    p = torch.full((1,), 0.9) if x.sum() > 0 else torch.full((1,), 0.85)
    return torch.cat([x * 1.1, p])


@case(example=lambda: (torch.nn.BatchNorm1d(1), torch.ones(3)))
def mutates_module(module, x):
    module.running_mean += 1
    return x


@compiler("untouched")
def untouched(fn, example):
    """Works on a copy of the module that it is given."""
    import copy
    return lambda module, x: fn(copy.deepcopy(module), x)


@case(example=lambda: (torch.ones(1),), held_out=[lambda: (torch.ones(4),), lambda: (torch.ones(2),)])
def three(x):
    return x + 1


@case(example=lambda: (torch.ones(3, 4).t(),), held_out=[lambda: (torch.ones(2, 2),)])
def smaller(x):
    return x + 1
'''

OWN = {"identity", "raises-on-example", "wrong-then-raises", "loses-memory", "not-here", "exits", "unchecked", "wrong",
       "strict-size", "warns", "forgets", "reads-past-the-end", "not-utf-8",
       "untouched", "cannot-say"}  # fmt: skip
"""Names of the compilers of the suite."""
