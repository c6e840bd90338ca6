"""Programs of operators and Python that nobody wrote, each in two spellings that must not differ.

A program is a function of two tensors and of a Python number: a sequence of steps, each one construct of Python or one
write into a tensor. The first spelling is one case. The second means the same, and is another case, which is compared
with eager on the first: so both spellings run, in eager and compiled, and all four must agree.
"""

from __future__ import annotations

import random
import re
from string import Template

import msgspec

from recapture.tools.generate.constructs import CONSTRUCTS, HELPERS, Construct
from recapture.tools.generate.operands import EXPRESSIONS, Operands
from recapture.tools.generate.suite_files import GeneratedSuite, MadeProgram, refusal, suite_text

STEPS_OF_A_PROGRAM = (2, 5)
"""The fewest and the most steps of a program."""

ORIGINAL = "program"
"""The form of the first spelling."""

REWRITTEN = "rewritten"
"""The form of the second spelling."""

SECOND = "_again"
"""What the name of a case ends with that is the second spelling of another."""


class PythonRequest(msgspec.Struct, frozen=True):
    """Some programs of one file, of any steps but those `without`."""

    number: int
    seed: int
    programs: int
    without: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """What the file is called in reports."""
        return f"python {self.number:04}"

    @property
    def name(self) -> str:
        """The name of its suite."""
        return f"python_{self.number:04}"


class Writer:
    """Writes a program, in both spellings, from random choices."""

    def __init__(self, chance: random.Random, operands: Operands) -> None:
        self.chance = chance
        self.tensors = ["x", "y"]
        self.lines: tuple[list[str], list[str]] = ([], [])
        self.rewrites: list[str] = []
        self.used: list[str] = []
        self._expressions = [expression for expression in EXPRESSIONS if operands in expression.operands]

    def write(self, construct: Construct) -> None:
        """Write one step."""
        expressions = [
            self._expression() if f"${name}" in construct.plain + construct.rewritten else ("", "") for name in "ef"
        ]
        new = f"v{len(self.tensors) - 1}"
        values = {"new": new, "a": self._tensor(), "b": self._tensor(), "k": str(self.chance.randint(1, 3))}
        texts = (construct.plain, construct.rewritten or construct.plain)
        for spelling, text in enumerate(texts):
            names = values | {name: pair[spelling] for name, pair in zip("ef", expressions, strict=True)}
            self.lines[spelling].extend(Template(text).substitute(names).split("\n"))
        self.used.append(construct.name)
        if construct.rewrite:
            self.rewrites.append(construct.rewrite)
        if construct.makes_tensor:
            self.tensors.append(new)

    def finish(self) -> None:
        """Write the last line, and what changes the second spelling as a whole."""
        chosen = [self.tensors[-1], *self.chance.sample(self.tensors, k=min(2, len(self.tensors)))]
        result = f"return {', '.join(chosen)}, {self._tensor()}[1:]"
        if self.chance.random() < 1 / 2:
            self.lines[1].append(f"unused = {self._tensor()}.sum() + {self._tensor()}.sum()")
            self.rewrites.append("dead code")
        for lines in self.lines:
            lines.append(result)
        if self.chance.random() < 1 / 2:
            self.lines[1][:] = [re.sub(r"\bv(\d+)\b", r"renamed_\1", line) for line in self.lines[1]]
            self.rewrites.append("variables renamed")

    def _tensor(self) -> str:
        """Return the name of a tensor that there is; recent ones are likelier, so that steps build on each other."""
        return self.chance.choice([*self.tensors, *self.tensors[-2:]])

    def _expression(self) -> tuple[str, str]:
        """Return an expression of two tensors, in both spellings."""
        expression = self.chance.choice(self._expressions)
        self.used.append(expression.name)
        first, second = self._tensor(), self._tensor()
        again = first
        if self.chance.random() < 1 / 4:
            again = f"{first}.view_as({first})"
            self.rewrites.append("a no-op view")
        if expression.rewritten:
            self.rewrites.append("a function for an operator")
        return expression.plain.format(first, second), (expression.rewritten or expression.plain).format(again, second)


HEAD = """import collections
import contextlib
import dataclasses
import sys

import torch

from recapture import case

STATE = {}
LATEST = 0
"""


def make_python_suite(request: PythonRequest) -> GeneratedSuite:
    """Return some programs, each in two spellings."""
    programs: list[MadeProgram] = []
    parts: list[str] = []
    for index in range(request.programs):
        chance = random.Random(f"{request.seed}/{request.number}/{index}")  # noqa: S311 - no secret
        operands = chance.choice(list(Operands))
        rows = [
            construct
            for construct in CONSTRUCTS
            if operands in construct.operands and construct.name not in request.without
        ]
        steps = chance.choices(rows, k=chance.randint(*STEPS_OF_A_PROGRAM))
        writer = Writer(chance, operands)
        for construct in steps:
            writer.write(construct)
        writer.finish()
        name, inputs = f"{ORIGINAL}_{index}", _inputs(chance)
        spellings = [(name, ORIGINAL, ""), (f"{name}{SECOND}", REWRITTEN, name)]
        texts = [
            _case(case, lines, inputs, operands, original)
            for (case, _, original), lines in zip(spellings, writer.lines, strict=True)
        ]
        why = refusal(_file(texts))
        programs += [
            MadeProgram(case, form, why, tuple(writer.used), tuple(writer.rewrites) if form == REWRITTEN else ())
            for case, form, _ in spellings
        ]
        parts += texts if why is None else []
    head = f'"""Programs of operators and Python, seed {request.seed}, part {request.number}."""\n\n'
    return GeneratedSuite(request.subject, request.name, "", _file(parts, head) if parts else "", tuple(programs))


def _inputs(chance: random.Random) -> list[tuple[int, int, int]]:
    """Return the example and two held-out inputs: other values, then another size, another number or both.

    More inputs that differ would find little more, and each costs another compilation.
    """
    seed, change = chance.randint(0, 400), chance.choice([(4, 2), (3, 3), (4, 3)])
    return [(seed, 3, 2), (seed + 1, 3, 2), (seed + 2, *change)]


def _file(parts: list[str], head: str = "") -> str:
    """Return the source of a file of programs, with the helpers that they use."""
    words = frozenset(re.findall(r"\w+", "\n".join(parts)))
    used = [text for name, text in HELPERS.items() if name in words]
    return suite_text(head + HEAD, [*used, *parts])


def _case(name: str, lines: list[str], inputs: list[tuple[int, int, int]], operands: Operands, original: str) -> str:
    """Return a program as a case; each input is a seed, a number of rows and a Python number."""
    arguments = [
        ", ".join([*(operands.source.format(seed=seed + place, rows=rows) for place in (0, 500)), str(number)])
        for seed, rows, number in inputs
    ]
    example, *held_out = [f"lambda: ({text})" for text in arguments]
    head = ["@case(", f"    example={example},", "    held_out=[", *(f"        {make}," for make in held_out), "    ],"]
    if original:
        head.append(f"    rewrite_of={original},")
    return "\n".join([*head, ")", f"def {name}(x, y, n):", *(f"    {line}" for line in lines)])
