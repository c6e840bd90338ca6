"""What a reason consists of, the kinds of reasons, and rules that turn messages of torch into one."""

from __future__ import annotations

import re
from typing import NamedTuple

from recapture.base.source_lines import SourceLine
from recapture.base.text import one_line, shorten
from recapture.cases.compilers import compiler_facts

MOST = 300
"""Characters of a sentence."""

KINDS_OF_REASONS: dict[str, str] = {
    "recorded path": "The path, sizes or numbers of the example are fixed in the graph, and nothing checks them.",
    "unchecked input": "A library of AOTInductor takes another input for one like the example.",
    "lost effect": "A change that eager makes outside the graph happens at capture, or not at all.",
    "lost exception": "Eager raises; the graph has no such check and returns.",
    "other type": "The compiler cannot return the type that eager returns.",
    "shared memory": "A result shares memory with something else on one side only.",
    "Dynamo": "The fault is in Dynamo's capture: the backend that runs its graphs eagerly is wrong too.",
    "AOTAutograd": "The fault is in AOTAutograd: right with Dynamo alone, wrong with AOTAutograd.",
    "Inductor": "The fault is in the code that Inductor generates: right with everything before it.",
    "capture changes it": "Already the captured program computes something else, on the example too.",
    "own language": "TorchScript has types and arithmetic of its own.",
    "rewrite": "A rewrite of a function is not equivalent to it.",
    "compiled": "The compiled code differs; the records do not say in which stage.",
    "data-dependent": "The code needs the value of a tensor, which is unknown at capture.",
    "static size": "The program holds for the sizes of the example alone, and says so.",
    "fixed value": "A Python value of the example is a constant of the program, which checks it.",
    "other arguments": "The program takes arguments in the number and structure of the example alone.",
    "recorded step fails": "A step that was recorded for the example fails on another input.",
    "unsupported code": "The compiler does not know a construct, a function or a type of the code.",
    "two devices": "The code combines tensors of two devices.",
    "needs tensors": "The compiler takes and returns tensors and containers of tensors alone.",
    "numpy": "The code goes through numpy or scipy, where the compiler cannot follow.",
    "already compiled": "The code is compiled or excluded from compilation already.",
    "not repeatable": "Capturing twice gives two different graphs.",
    "other exception": "The call raises an exception that an `except` for eager's does not catch.",
    "compiler fault": "An internal error of the compiler, or generated code that does not compile.",
    "no backward": "The backward of the compiled call fails, where eager's works.",
    "not possible in eager": "The case cannot run in eager: nothing is compared.",
    "died": "The process died.",
    "limit": "The cell passed its deadline or its memory.",
    "unstable": "Eager disagrees with itself.",
    "not here": "The cell does not apply to this release or this machine, or the machine is at fault.",
    "graph break": "Right on every input, in several graphs.",
    "message": "No rule knows the message; it is quoted.",
}
"""Every kind of reason, with its meaning."""


class Reason(NamedTuple):
    """Why a cell has its verdict: a kind of `KINDS_OF_REASONS`, a sentence, the line of code if known."""

    kind: str
    text: str
    line: SourceLine | None = None

    def __str__(self) -> str:
        text = shorten(one_line(self.text), MOST)
        return f"{text} (at {self.line})" if self.line else text


def family(compiler: str) -> str:
    """Return the family of a compiler; those of users may have families of their own."""
    return compiler_facts(compiler).family


class MessageRule(NamedTuple):
    """Which messages a rule is for, and its sentence.

    `pattern` is searched in ``TYPE: MESSAGE``. `families` and `phase` restrict the cells; empty means all. The sentence
    may name groups of the pattern, and ``input``, ``during``, ``compiler``, ``type``, ``first`` (the first line of the
    message), ``explanation`` (torch's own) and ``advice`` (what to do about a size that is not dynamic).
    """

    kind: str
    pattern: re.Pattern[str]
    text: str
    families: tuple[str, ...] = ()
    phase: str = ""


def rule(kind: str, pattern: str, text: str, families: tuple[str, ...] = (), phase: str = "") -> MessageRule:
    """Return a rule whose pattern also matches across lines."""
    return MessageRule(kind, re.compile(pattern, re.DOTALL), text, families, phase)
