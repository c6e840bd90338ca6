"""Inductor with a planted fault: two wrong versions of `neg` in its C++ code generator, each a compiler of its own."""

import torch

from recapture import case, compiler


@case(
    example=lambda: (torch.randint(256, (1, 8), dtype=torch.uint8), torch.randint(256, (8390, 8), dtype=torch.uint8)),
)
def of_bytes(x, y):
    """Negates bytes, takes a maximum with broadcasting and concatenates."""
    return torch.cat([torch.maximum(y, torch.neg(x))], dim=0)


@case(example=lambda: (torch.randn(1, 8), torch.randn(8390, 8)))
def of_floats(x, y):
    """The same on floating-point numbers."""
    return torch.cat([torch.maximum(y, torch.neg(x))], dim=0)


def with_neg(text, fn):
    """Compile with `text` as the code of the operator; one element at a time, where its scalar version is used."""
    from torch._inductor import config
    from torch._inductor.codegen.cpp import CppOverrides

    CppOverrides.neg = staticmethod(text)
    config.cpp.simdlen = 1
    return torch.compile(fn)


@compiler("neg-right")
def neg_right(fn, example):
    """The code generator's own version, by the same route: what fails below fails because of the planted fault."""
    return with_neg(lambda x: f"decltype({x})(-{x})", fn)


@compiler("neg-without-cast")
def neg_without_cast(fn, example):
    """Drops the cast, so that the negative of a byte is an int."""
    return with_neg(lambda x: f"-{x}", fn)


@compiler("neg-doubled")
def neg_doubled(fn, example):
    """Doubles its operand instead."""
    return with_neg(lambda x: f"decltype({x})(2 * {x})", fn)
