"""The main program of scripts printed by `recapture repro`: judges the cell and shows both sides of every call.

A script contains this module and all that it imports, packed, so that it applies the same rules as a run.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from recapture.base.text import printable
from recapture.cases.case import Case
from recapture.cases.compiler import Compiler
from recapture.cases.requirements import unmet
from recapture.judge.steps import carry_out
from recapture.judge.verdict import Call, Ruling, decide, failed_loudly
from recapture.records.kinds import KINDS
from recapture.records.verdicts import FAILING, RIGHT, SILENTLY_WRONG, Verdict
from recapture.torch_api.libraries import release_libraries

if TYPE_CHECKING:
    from recapture.judge.compare import Comparison
    from recapture.judge.observe import Observation
    from recapture.judge.snapshot import Snapshot

BRACKETS = {"list": ("[", "]"), "dict": ("{", "}")}
"""Brackets by container type; other containers are shown in parentheses."""

FAULT_SHOWS, NO_FAULT, UNKNOWN = 1, 0, 2
"""Exit statuses of a script."""

UNSAID = "whether the fault shows is unknown"

_EXECUTED: list[ModuleType] = []
"""The modules that the script was executed as."""


@dataclass(frozen=True)
class Script:
    """A script's facts about its cell.

    `cases` is the script's name for the dict of what cases are declared with, `function` its name for the compiler's
    function, and `compiler` has the compiler's other fields. `faults` are those recorded with this torch, as `fault`
    names them.
    """

    suite: str
    case: str
    cases: str
    backward: bool | None
    train_step: float | None
    strict: tuple[str, ...]
    concrete_args: tuple[str, ...] | None
    since: str | None
    requires: tuple[str, ...]
    function: str
    compiler: dict[str, Any]
    device: str
    faults: tuple[str, ...]


def compiler_fields(compiler: Compiler) -> dict[str, Any]:
    """Return the fields of a compiler that the judge reads, without those that have their default."""
    fields: dict[str, Any] = {
        field.name: getattr(compiler, field.name)
        for field in dataclasses.fields(compiler)
        if isinstance(field.default, bool) and getattr(compiler, field.name) is not field.default
    }
    return {
        "name": compiler.name,
        "family": str(compiler.family),
        "since": compiler.since,
        "requires": compiler.requires,
        **fields,
    }


def fault(verdict: Verdict, error: str) -> str:
    """Return a name for the fault that a verdict shows, given the type of its error; ``""`` if it shows none."""
    if verdict not in SILENTLY_WRONG | FAILING:
        return ""
    return f"{verdict} {error}".rstrip()


def replay(path: str, script: Script) -> int:
    """Judge the cell in the script at `path`, print what was observed and the verdict, and return the exit status.

    The fault shows if the compiler is at fault, and if this is a fault that was recorded, where one was.
    """
    import torch

    _show("torch", torch.__version__)
    torch.set_num_threads(1)  # as in a recorded run
    function = getattr(_execute(path, f"compilers_of_{script.suite}"), script.function)
    compiler = Compiler(function=function, unavailable=None, **script.compiler)
    lacking = unmet("the case", script.since, script.requires) or unmet(
        compiler.name, compiler.since, compiler.requires
    )
    if lacking is not None:
        _show(f"{lacking}: {UNSAID}")
        return UNKNOWN
    with _named_exits():
        events = carry_out(lambda: _load(path, script), compiler, script.device, lambda _: None)
    ruling = decide(events)
    torch.set_printoptions(precision=8)
    sides = ("eager:    ", "captured: ") if events.calls else ("eager:    ", "again:    ")
    _show_comparison("capture", events.capture)
    for call in events.calls or events.repeated:
        _show_call(call, sides)
    _show_comparison("the original, after the capture", events.original)
    for reason in dict.fromkeys(events.log.break_reasons if events.log else ()):
        _show("graph break:", reason)
    for text in events.warnings:
        _show("note:", text)
    if ruling is None:
        raise RuntimeError("a cell whose steps were carried out has a verdict")
    _show_ruling(ruling)
    return _status(ruling, script)


@contextmanager
def _named_exits() -> Iterator[None]:
    """While the code runs, `os._exit` says which line calls it, and ends the script with the status UNKNOWN.

    The status that the code gives would say that the fault shows, or that it does not. Children that the code forked
    end as they ask.
    """
    end, owner, output = os._exit, os.getpid(), os.dup(1)  # what the code prints is compared, and not shown

    def named(status: int) -> NoReturn:
        if os.getpid() == owner:
            caller = traceback.extract_stack(limit=2)[0]
            place = f"line {caller.lineno} of {Path(caller.filename).name}"
            os.write(output, f"the code ends its process with os._exit({status}) ({place}): {UNSAID}\n".encode())
            end(UNKNOWN)
        end(status)

    os._exit = named
    try:
        yield
    finally:
        os._exit = end
        os.close(output)


def _status(ruling: Ruling, script: Script) -> int:
    """Return the exit status, and say why it remains unknown whether the fault shows."""
    if ruling.verdict in RIGHT:
        return NO_FAULT
    name = "" if ruling.phase == "reference" else fault(ruling.verdict, ruling.raised.type if ruling.raised else "")
    if not name:
        _show(f"eager itself cannot be judged: {UNSAID}")
        return UNKNOWN
    if script.faults and name not in script.faults:
        _show(f"recorded is another fault, {' and '.join(script.faults)}: {UNSAID}")
        return UNKNOWN
    return FAULT_SHOWS


def _execute(path: str, suite: str) -> ModuleType:
    """Execute the script as a new module, independent of other executions."""
    name = f"recapture_suite_{suite}"
    for earlier in (sys.modules["__main__"], *_EXECUTED):
        release_libraries(vars(earlier))  # this execution defines the file's operators again
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = path
    _EXECUTED.append(module)
    exec(compile(Path(path).read_bytes(), path, "exec", dont_inherit=True), vars(module))  # noqa: S102
    return module


def _load(path: str, script: Script) -> Case:
    """Execute the script and return its case."""
    options = vars(_execute(path, script.suite))[script.cases][script.case]
    return Case(
        name=script.case,
        line=None,
        target=options["target"],
        example=options["example"],
        held_out=tuple(options.get("held_out", ())),
        other_ranks=tuple(options.get("other_ranks", ())),
        refused=tuple(options.get("refused", ())),
        watch=options.get("watch"),
        reset=options.get("reset"),
        rewrite_of=options.get("rewrite_of"),
        backward=script.backward,
        train_step=script.train_step,
        strict=script.strict,
        concrete_args=script.concrete_args,
        claims={},
        since=script.since,
        requires=script.requires,
        codegen_on=None,
        made_by=None,  # a generated case that eager cannot run was not judged, and has no script
    )


def _show(*parts: object) -> None:
    """Print one text, in which no character controls the terminal: exceptions and values may hold any."""
    print(printable(" ".join(map(str, parts)), keep="\n\t"))


def _show_call(call: Call, sides: tuple[str, str]) -> None:
    _show("==", call.eager.input)
    for side, observation in zip(sides, (call.eager, call.other), strict=True):
        _show(f"{side}{_outcome(observation)}")
    if failed_loudly(call.eager, call.other):  # missing side effects of a failed call are not separate differences
        _show("FAILED: eager does not raise this")
        return
    _show_differences(call.comparison)
    if not call.comparison.differences:
        _show("same")


def _show_comparison(label: str, comparison: Comparison | None) -> None:
    """Print what differs outside the calls, if anything does."""
    if comparison is not None and comparison.differences:
        _show("==", label)
        _show_differences(comparison)


def _show_differences(comparison: Comparison) -> None:
    """Print what differs in one call, what matters most first, as in a record."""
    for difference in sorted(comparison.differences, key=lambda difference: KINDS[difference.kind].rank):
        _show(f"DIFFERENT: {difference.where} ({difference.kind}): {difference.detail}")


def _outcome(observation: Observation) -> str:
    if observation.raised is not None:
        return f"raised {observation.raised.type}: {observation.raised.message}"
    return "nothing" if observation.result is None else _text(observation.result)


def _text(value: Snapshot) -> str:
    """Return a described value as text: its type's name, unless builtin, and its content."""
    name = "" if value.type == "torch.Tensor" or "." not in value.type else f"{value.type} "
    if value.tensor is not None:
        elements = value.tensor.data
        text = f"{value.tensor.dtype} {value.tensor.shape}" if elements is None else repr(elements)
        return f"{name}{text}" + "".join(f" with {label} {_text(child)}" for label, child in value.children or ())
    if value.children is not None:
        plain = value.type in ("list", "tuple")
        inner = ", ".join(_text(child) if plain else f"{label}: {_text(child)}" for label, child in value.children)
        opening, closing = BRACKETS.get(value.type, ("(", ")"))
        return f"{name}{opening}{inner}{closing}"
    if value.scalar is None:
        return "None" if value.type == "NoneType" else value.type
    described = isinstance(value.scalar, str) and value.type != "str"  # a repr, not a plain scalar
    return f"{name}{value.scalar if described else repr(value.scalar)}"


def _show_ruling(ruling: Ruling) -> None:
    for note in ruling.noted:
        _show(f"note: {note.input}: {note.where} ({note.kind}): {note.detail}")
    where = f" in {ruling.phase}" if ruling.phase else ""
    where += f" on {ruling.input}" if ruling.input else ""
    why = f": {ruling.reason}" if ruling.reason else ""
    if ruling.raised is not None:
        why = f": {ruling.raised.type}: {ruling.raised.message}"
    _show(f"== verdict: {ruling.verdict}{where}{why}")
