"""Small cases and compilers for trials in the test's own process, and how they are judged."""

from types import SimpleNamespace

import torch

from recapture.cases.compiler import Compiler
from recapture.judge.steps import carry_out
from recapture.judge.verdict import decide


def ones():
    return (torch.ones(3),)


def a_case(target, **more):
    """A case, with one held-out input unless it has its own; every load shares the namespace of the target."""
    options = {"watch": None, "rewrite_of": None, "reset": None, "backward": None, "strict": (), "concrete_args": None}
    options |= {"train_step": None, "made_by": None}
    make = more.pop("make", ones)
    held_out = more.pop("held_out", [make])
    return SimpleNamespace(
        target=target,
        is_module=isinstance(target, type),
        refused_inputs=more.pop("refused_inputs", frozenset()),
        other_rank_inputs=more.pop("other_rank_inputs", frozenset()),
        inputs=lambda: [
            ("example", make),
            *((f"held_out[{number}]", inputs) for number, inputs in enumerate(held_out)),
        ],
        **(options | more),
    )


def a_compiler(function, **more):
    options = {
        "family": "planted",
        "since": None,
        "requires": (),
        "unavailable": None,
        "uses_dynamo": False,
        "generates_code": False,
    }
    options |= {"shares_state": True, "checks_inputs": True, "inference_only": False, "optional": False}
    return Compiler(name="planted", function=function, **(options | more))


def ruling(target, function, *, compiler=None, phases=None, **more):
    enter = (lambda _: None) if phases is None else phases.append
    trial = carry_out(lambda: a_case(target, **more), a_compiler(function, **(compiler or {})), "cpu", enter)
    return decide(trial)


def places_and_kinds(differences):
    return [(difference.input, difference.where, difference.kind) for difference in differences]


def same(fn, example):
    return fn


def plus_one(x):
    return x + 1
