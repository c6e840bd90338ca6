"""Programs of operators and Python that nobody wrote, each in two spellings that must not differ.

A program is a function of two tensors of integers, so that eager's results are exact, and of a Python number. It is a
sequence of steps. Each step uses one construct of Python or one way to write into a tensor, and has a second spelling
that means the same: a loop unrolled, a helper inlined, a list for a tuple, `torch.add` for `+`. The first spelling is
one case; the second is another, which `eager` compares with the first.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from textwrap import indent

import msgspec

from recapture.tools.generate.suite_files import GeneratedSuite, MadeProgram, refusal, suite_text

STEPS_OF_A_PROGRAM = (3, 6)
"""The fewest and the most steps of a program."""

OPERATORS = (
    "{0} + {1}",
    "{0} - {1}",
    "{0} * 3 + {1}",
    "torch.maximum({0}, {1})",
    "torch.where({0} > {1}, {0}, {1} + 1)",
    "{0}.roll(1, 0) + {1}",
    "{0}.flip(1) - {1}",
    "{0}.cumsum(0) + {1}",
    "{0}.sort(1).values + {1}",
    "{0} + {1}.sum(0)",
    "{0} + {1}[:, :1]",
    "({0}.t() + {1}.t()).t()",
    "{0}.clamp(-3, 3) + {1}.abs()",
)
"""Expressions of two tensors of one shape that have this shape."""


class PythonRequest(msgspec.Struct, frozen=True):
    """Some programs of one file."""

    number: int
    seed: int
    programs: int

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

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.tensors = ["x", "y"]
        self.lines: tuple[list[str], list[str]] = ([], [])
        self.numbered = 0

    def one(self) -> str:
        """Return the name of a tensor that there is."""
        return self.chance.choice(self.tensors)

    def number(self, low: int, high: int) -> int:
        """Return a number between two others."""
        return self.chance.randint(low, high)

    def new(self) -> str:
        """Return a name for another tensor."""
        self.numbered += 1
        return f"v{self.numbered}"

    def expression(self) -> str:
        """Return an expression of two tensors."""
        return self.chance.choice(OPERATORS).format(self.one(), self.one())

    def write(self, plain: str, rewritten: str | None = None) -> None:
        """Write a step; the second spelling is that of the first where there is no other."""
        self.lines[0].extend(plain.split("\n"))
        self.lines[1].extend((plain if rewritten is None else rewritten).split("\n"))

    def value(self, name: str, plain: str, rewritten: str | None = None) -> None:
        """Write a step that makes the tensor `name`."""
        self.write(plain, rewritten)
        self.tensors.append(name)


def assignment(w: Writer) -> None:
    """An expression."""
    name, left, right = w.new(), w.one(), w.one()
    w.value(name, f"{name} = {left} + {right}", f"{name} = torch.add({left}, {right}).expand_as(x)")


def branch_on_shape(w: Writer) -> None:
    """A branch on a size."""
    name, yes, no, size = w.new(), w.expression(), w.expression(), w.number(2, 4)
    plain = f"if x.shape[0] > {size}:\n    {name} = {yes}\nelse:\n    {name} = {no}"
    w.value(name, plain, f"{name} = ({yes}) if not x.size(0) <= {size} else ({no})")


def branch_on_number(w: Writer) -> None:
    """A branch on a Python number."""
    name, yes, no = w.new(), w.expression(), w.expression()
    plain = f"if n > 2:\n    {name} = {yes}\nelse:\n    {name} = {no}"
    w.value(name, plain, f"{name} = [{no}, {yes}][n > 2]")


def branch_on_value(w: Writer) -> None:
    """A branch on a tensor's content."""
    name, asked, yes, no = w.new(), w.one(), w.expression(), w.expression()
    plain = f"if {asked}.sum() > 0:\n    {name} = {yes}\nelse:\n    {name} = {no}"
    w.value(name, plain, f"{name} = ({yes}) if int({asked}.sum()) >= 1 else ({no})")


def loop(w: Writer) -> None:
    """A loop over numbers."""
    name, start, added, times = w.new(), w.one(), w.one(), w.number(2, 3)
    plain = f"{name} = {start}\nfor index in range({times}):\n    {name} = {name} * 2 + {added} * index"
    unrolled = "\n".join(f"{name} = {name} * 2 + {added} * {index}" for index in range(times))
    w.value(name, plain, f"{name} = {start}\n{unrolled}")


def loop_over_rows(w: Writer) -> None:
    """A loop over a tensor."""
    name, rows = w.new(), w.one()
    plain = f"rows = []\nfor row in {rows}:\n    rows.append(row * len(rows))\n{name} = torch.stack(rows)"
    w.value(name, plain, f"{name} = torch.stack([row * index for index, row in enumerate({rows}.unbind(0))])")


def while_loop(w: Writer) -> None:
    """A loop until a number is reached."""
    name, start = w.new(), w.one()
    plain = f"{name}, left = {start}, n\nwhile left > 0:\n    {name} = {name} + left\n    left -= 2"
    w.value(name, plain, f"{name} = {start} + sum(range(n, 0, -2))")


def containers(w: Writer) -> None:
    """A dict of a list and a tuple."""
    name, first, second = w.new(), w.expression(), w.one()
    plain = f"held = {{'all': [{first}, {second}]}}\nheld['all'].append({second})\n{name} = sum(held['all'])"
    w.value(name, plain, f"parts = ({first}, {second}) + ({second},)\n{name} = parts[0] + parts[1] + parts[2]")


def closure(w: Writer) -> None:
    """A function inside that changes a variable outside."""
    name, given, held = w.new(), w.one(), w.one()
    plain = (
        f"count = 0\ndef inner(value):\n    nonlocal count\n    count += 1\n    return value * count + {held}\n"
        f"{name} = inner({given}) + inner({given})"
    )
    w.value(name, plain, f"{name} = {given} * 1 + {held} + ({given} * 2 + {held})")


def generator(w: Writer) -> None:
    """A generator that is read in part."""
    name, given = w.new(), w.one()
    plain = (
        f"def parts():\n    for factor in range(1, 9):\n        yield {given} * factor\n"
        f"made = parts()\n{name} = next(made) + next(made)\nmade.close()"
    )
    w.value(name, plain, f"{name} = {given} * 1 + {given} * 2")


def caught_exception(w: Writer) -> None:
    """An exception that is caught after something was changed."""
    name, given = w.new(), w.one()
    plain = (
        f"{name} = {given}.clone()\ntry:\n    {name}.add_(n)\n"
        f"    if n > 2:\n        raise ValueError(n)\n    {name}.mul_(2)\n"
        f"except ValueError as error:\n    {name} = {name} + error.args[0]\nfinally:\n    {name} = {name} - 1"
    )
    w.value(name, plain, f"{name} = {given} + n\n{name} = ({name} + n if n > 2 else {name} * 2) - 1")


def context_manager(w: Writer) -> None:
    """A context manager that changes something when it is left."""
    name, given = w.new(), w.one()
    plain = (
        f"entered = []\nwith noted(entered, n):\n    {name} = {given} + len(entered)\n{name} = {name} * len(entered)"
    )
    w.value(name, plain, f"{name} = ({given} + 1) * 2")


def object_with_property(w: Writer) -> None:
    """A dataclass with a property."""
    name, given, other = w.new(), w.one(), w.one()
    plain = f"pair = Pair({given}, n)\npair.factor += 1\n{name} = pair.scaled + {other}"
    w.value(name, plain, f"{name} = {given} * (n + 1) + {other}")


def state_between_calls(w: Writer) -> None:
    """A global that counts the calls."""
    name, given = w.new(), w.one()
    plain = f"STATE['calls'] = STATE.get('calls', 0) + 1\n{name} = {given} + STATE['calls']"
    w.value(name, plain, f"calls = STATE.get('calls', 0)\nSTATE['calls'] = calls + 1\n{name} = {given} + calls + 1")


def tensor_kept_between_calls(w: Writer) -> None:
    """A global that keeps a tensor of the last call."""
    name, given = w.new(), w.one()
    plain = (
        f"last = STATE.get('last')\n{name} = {given} if last is None else {given} + last.sum()\n"
        f"STATE['last'] = {given}.clone()"
    )
    w.value(name, plain)


def in_place(w: Writer) -> None:
    """A write into a tensor that others may be views of."""
    target, source = w.one(), w.one()
    w.write(f"{target}.add_({source})", f"torch.add({target}, {source}, out={target})")


def write_through_view(w: Writer) -> None:
    """A write into a view."""
    target, source, number = w.one(), w.one(), w.number(1, 3)
    w.write(f"{target}[0] = {source}[1] * {number}", f"{target}.select(0, 0).copy_({source}.select(0, 1) * {number})")


def write_through_transposed(w: Writer) -> None:
    """A write into a view of a view."""
    target, number = w.one(), w.number(2, 3)
    w.write(f"{target}.t()[1].mul_({number})", f"{target}[:, 1] *= {number}")


def view_kept(w: Writer) -> None:
    """A view that sees a later write."""
    name, base, number = w.new(), w.one(), w.number(1, 3)
    plain = f"{name} = {base}.expand_as(x)\n{base}.sub_({number})"
    w.value(name, plain, f"{name} = {base}[:]\n{base} -= {number}" if base not in ("x", "y") else None)


def masked_write(w: Writer) -> None:
    """A write where a condition holds."""
    target, asked = w.one(), w.one()
    w.write(f"{target}.masked_fill_({asked} > 1, n)", f"{target}[{asked} > 1] = n")


def out_argument(w: Writer) -> None:
    """A result that is written into another tensor."""
    name, left, right = w.new(), w.one(), w.one()
    plain = f"{name} = torch.zeros_like({left})\ntorch.sub({left}, {right}, out={name})"
    w.value(name, plain, f"{name} = {left} - {right}")


def split_and_joined(w: Writer) -> None:
    """Parts of a tensor, one changed, joined again."""
    name, given = w.new(), w.one()
    plain = f"head, tail = {given}[:1], {given}[1:]\n{name} = torch.cat([tail, head.mul(2)])"
    w.value(name, plain, f"{name} = torch.cat(({given}.narrow(0, 1, x.shape[0] - 1), {given}.narrow(0, 0, 1) * 2))")


CONSTRUCTS: dict[str, Callable[[Writer], None]] = {
    step.__name__: step
    for step in (
        assignment,
        branch_on_shape,
        branch_on_number,
        branch_on_value,
        loop,
        loop_over_rows,
        while_loop,
        containers,
        closure,
        generator,
        caught_exception,
        context_manager,
        object_with_property,
        state_between_calls,
        tensor_kept_between_calls,
        in_place,
        write_through_view,
        write_through_transposed,
        view_kept,
        masked_write,
        out_argument,
        split_and_joined,
    )
}
"""The constructs by name: functions that write one step."""

HEAD = '''import contextlib
import dataclasses

import torch

from recapture import case

STATE = {}


@contextlib.contextmanager
def noted(entered, value):
    """Note that a block is entered, and that it is left."""
    entered.append(value)
    yield
    entered.append(-value)


@dataclasses.dataclass
class Pair:
    """A tensor and a factor."""

    tensor: torch.Tensor
    factor: int

    @property
    def scaled(self):
        """The product."""
        return self.tensor * self.factor


def inputs(seed, rows, n):
    """Return the arguments of a program."""
    draws = torch.Generator().manual_seed(seed)
    return *(torch.randint(-4, 5, (rows, 4), generator=draws) for _ in range(2)), n
'''


def make_python_suite(request: PythonRequest) -> GeneratedSuite:
    """Return some programs, each in two spellings."""
    programs: list[MadeProgram] = []
    parts: list[str] = []
    for index in range(request.programs):
        chance = random.Random(f"{request.seed}/{request.number}/{index}")  # noqa: S311 - no secret
        constructs = chance.choices(list(CONSTRUCTS), k=chance.randint(*STEPS_OF_A_PROGRAM))
        writer = Writer(chance)
        for construct in constructs:
            CONSTRUCTS[construct](writer)
        writer.write(_result(writer))
        name = f"program_{index}"
        seed = chance.randint(0, 999)
        texts = [_case(name, writer.lines[0], seed, ""), _case(f"{name}_again", writer.lines[1], seed, name)]
        why = refusal(suite_text(HEAD, texts))
        programs += [MadeProgram(name, "program", why, tuple(constructs))]
        programs += [MadeProgram(f"{name}_again", "rewritten", why, tuple(constructs))]
        parts += texts if why is None else []
    head = f'"""Programs of operators and Python, seed {request.seed}, part {request.number}."""\n\n{HEAD}'
    text = suite_text(head, parts) if parts else ""
    return GeneratedSuite(request.subject, request.name, "int64", text, tuple(programs))


def _result(w: Writer) -> str:
    """Return the last line: some of the tensors, or a view of one."""
    chosen = [w.tensors[-1], *w.chance.sample(w.tensors, k=min(2, len(w.tensors)))]
    return f"return {', '.join(chosen)}, {w.one()}[1:]"


def _case(name: str, lines: list[str], seed: int, original: str) -> str:
    """Return a program as a case: the example, other values, another number, and another size."""
    arguments = ((seed, 3, 2), (seed + 1, 3, 2), (seed + 2, 3, 3), (seed + 3, 4, 2))
    example, *held_out = [f"lambda: inputs({first}, {rows}, {n})" for first, rows, n in arguments]
    rewrite = f", rewrite_of={original}" if original else ""
    body = indent("\n".join(lines), "    ")
    return (
        f"@case(\n    example={example},\n    held_out=[{', '.join(held_out)}]{rewrite},\n)\n"
        f"def {name}(x, y, n):\n{body}"
    )
