"""Prints one cell as a script that needs only torch: the case, its inputs, the compiler, and the comparison."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.exceptions import qualified, safe_text
from recapture.base.text import one_line
from recapture.cases.case import CASES_ATTRIBUTE, REFUSED_ATTRIBUTE, Case, RefusedCase
from recapture.cases.collection import SuiteFile, case_hash, execute
from recapture.cases.compilers import builtin_compilers, compilers_of
from recapture.cases.source import closure, defined_names
from recapture.records.directories import find_results, read_results
from recapture.tools.explain.script.excerpts import excerpts, project_imports
from recapture.tools.explain.script.replay import Script

if TYPE_CHECKING:
    from collections.abc import Callable

    from recapture.cases.compiler import Compiler
    from recapture.cases.source import Closure
    from recapture.records.record import Record

BEGIN = """\
{future}# --- the case, as its file declares it ------------------------------------------------------------------------

{cases} = {{}}


def {declare}(*_, **options):
    \"""Stands in for the decorators of recapture: keeps what a case is declared with.\"""

    def register(decorated):
        if "example" in options:
            {cases}[decorated.__name__] = {{"target": decorated, **options}}
        return decorated

    return register


{case}

# --- the compiler: {describe}

{compiler}

# --- recapture's own comparison, as text by module; what it decides is what a recorded run decides ------------------

{sources} = {{
"""

END = """\
}}

if __name__ == "__main__":
    import sys
    import types

    for name, text in {sources}.items():
        module = sys.modules[name] = types.ModuleType(name)
        module.__file__ = f"/{{name.replace('.', '/')}}.py"  # a place that does not exist
        exec(compile(text, f"<{{name}}>", "exec", dont_inherit=True), vars(module))
    replay = sys.modules["recapture.tools.explain.script.replay"]
    replay.replay(
        __file__,
        replay.Script(
{script}        ),
    )
"""


class CellToPrint(msgspec.Struct, frozen=True):
    """The cell to print; `results` is the absolute path of the folder in which records are searched."""

    suite: str
    path: str
    case: str
    compiler: str
    device: str
    results: str


class Printed(msgspec.Struct, frozen=True):
    """A script, or a one-line message that says why there is none."""

    text: str = ""
    error: str | None = None


class _Parts(NamedTuple):
    """The parts shared by all scripts of one case."""

    case: Case
    code: Closure


def print_cell(cell: CellToPrint) -> Printed:
    """Execute the suite in this process and return the script of one cell, or the reason why there is none."""
    try:
        printer = SuitePrinter(SuiteFile(cell.suite, Path(cell.path)))
        printer.check(cell.case, cell.compiler)
        lines = _recorded(cell, printer.case_hash(cell.case))
        return Printed(printer.script(cell.case, cell.compiler, cell.device, lines))
    except UsageError as error:
        return Printed(error=one_line(str(error)))


def print_task(payload: bytes, _enter: Callable[[str], None]) -> bytes:
    """Print one cell as a script in a child of the pool: `CellToPrint` → `Printed`."""
    return msgspec.json.encode(print_cell(msgspec.json.decode(payload, type=CellToPrint)))


class SuitePrinter:
    """Prints the cells of one suite, whose file it executes once. Raises UsageError if that fails."""

    def __init__(self, suite: SuiteFile) -> None:
        self.suite = suite
        try:
            self.module = execute(suite.name, suite.path)
        except BaseException as error:  # a suite may raise anything on import
            why = f"{qualified(type(error))}: {safe_text(error)}"
            raise UsageError(f"suite {suite.name!r} cannot be imported: {why}") from None
        self.cases: list[Case] = getattr(self.module, CASES_ATTRIBUTE, [])
        self._refused: list[RefusedCase] = getattr(self.module, REFUSED_ATTRIBUTE)
        try:
            self.compilers = builtin_compilers() | compilers_of(self.module)
        except ValueError as error:  # two compilers with the same name
            raise UsageError(f"{suite.path.name}: {error}") from None
        self._known: dict[tuple[str, ...], _Parts] = {}

    def check(self, case: str, compiler: str) -> None:
        """Raise UsageError, with the most similar name, for an unknown case or compiler."""
        names = [one.name for one in self.cases]
        for one in self._refused:
            if one.name == case and case not in names:
                raise UsageError(str(one))
        if case not in names:
            raise UsageError(f"unknown case {case!r}{did_you_mean(case, names)}")
        if compiler not in self.compilers:
            raise UsageError(f"unknown compiler {compiler!r}{did_you_mean(compiler, self.compilers)}")

    def case_hash(self, case: str) -> str:
        """Return the hash of a case, as in records."""
        parts = self._parts(case)
        return case_hash(parts.case, parts.code)

    def script(self, name: str, compiler_name: str, device: str, recorded: list[str]) -> str:
        """Return the script of one cell; `recorded` are lines about its records.

        Raises UsageError if no script can be made.
        """
        address = f"{self.suite.name}::{name}::{compiler_name}"
        compiler = self.compilers[compiler_name]
        if vars(sys.modules[compiler.function.__module__]).get(compiler.function_name) is not compiler.function:
            raise UsageError(
                f"compiler {compiler_name!r} cannot be printed: {compiler.function_name} at the top level of its file "
                "is another function, or none"
            )
        own = self._is_own(compiler)
        parts = self._parts(name, *([compiler.function_name] if own else []))
        source = _closure_of(compiler)
        if not own:
            both = sorted(_defined(parts.code.body, imports=False) & _defined(source.body, imports=False))
            if both:
                raise UsageError(f"{address!r} cannot be printed: its case and its compiler both define {both[0]!r}")
        taken = _defined(parts.code.body) | _defined(source.body)
        header = _header(": ".join(filter(None, [f"{address} on {device}", _summary(parts.case)])), recorded)
        begin, end = _fill(parts, compiler, None if own else source, taken, self.suite.name, device)
        try:
            _check_syntax(header)
            _check_syntax(begin + end)
        except (SyntaxError, ValueError) as error:
            raise UsageError(f"{address!r} cannot be printed: its script does not compile: {error}") from None
        return header + begin + _modules(project_imports(source.body)) + end

    def _is_own(self, compiler: Compiler) -> bool:
        """Whether a compiler is declared in the suite's own file."""
        return self.suite.path.samefile(compiler.function.__code__.co_filename)

    def _parts(self, name: str, *more: str) -> _Parts:
        key = (name, *more)
        if key not in self._known:
            case = next(one for one in self.cases if one.name == name)
            try:
                code = closure(self.suite.path, case.made_by or name, *more)
            except KeyError:
                raise UsageError(f"case {name!r} is not defined at the top level of {self.suite.path.name}") from None
            self._known[key] = _Parts(case, code)
        return self._known[key]


@lru_cache
def _defined(text: str, *, imports: bool = True) -> set[str]:
    return defined_names(text, imports=imports)


@lru_cache
def _closure_of(compiler: Compiler) -> Closure:
    return closure(Path(compiler.function.__code__.co_filename), compiler.function_name)


def _recorded(cell: CellToPrint, case_hash: str) -> list[str]:
    """Return a line for each record of this exact case with this torch release."""
    import torch

    lines: list[str] = []
    address, root = f"{cell.suite}::{cell.case}::{cell.compiler}", Path(cell.results)
    for directory in find_results(root, needed=False) if root.is_dir() else []:
        try:
            found = read_results(directory)
        except UsageError:  # no results are needed to print a cell
            continue
        if found.environment is None or found.environment.torch.version != str(torch.__version__):
            continue
        lines += [
            f"Recorded with {found.image} on {found.capability}: {recorded_line(one)}"
            for one in found.records
            if (one.cell, one.case_hash, one.device) == (address, case_hash, cell.device)
        ]
    return lines


def recorded_line(record: Record) -> str:
    """Return a record as one line: its verdict, and its first difference, error or reason."""
    if record.differences:
        first = record.differences[0]
        text = f"{record.verdict}; {first.input}, {first.where} ({first.kind}): {first.detail}"
    elif record.error is not None:
        where = f"{record.phase} of {record.input}" if record.input else record.phase
        message = next(iter(record.error.message.splitlines()), "")
        text = f"{record.verdict} in {where}: {record.error.type}: {message}"
    else:
        text = f"{record.verdict}; {record.reason}" if record.reason else str(record.verdict)
    return one_line(text)


def _fill(
    parts: _Parts,
    compiler: Compiler,
    source: Closure | None,
    taken: set[str],
    suite: str,
    device: str,
) -> tuple[str, str]:
    """Return a script's text before and after the comparison's source.

    `source` is the compiler's source, None if it is in the case's file.
    """
    case = parts.case
    cases, declare, sources = (_free(name, taken) for name in ("CASES", "declare", "SOURCES"))
    script = Script(
        suite=suite,
        case=case.name,
        cases=cases,
        backward=case.backward,
        train_step=case.train_step,
        strict=case.strict,
        concrete_args=None if case.concrete_args is None else tuple(map(str, case.concrete_args)),
        compiler=compiler.name,
        function=compiler.function_name,
        uses_dynamo=bool(compiler.uses_dynamo),
        shares_state=bool(compiler.shares_state),
        checks_inputs=bool(compiler.checks_inputs),
        inference_only=bool(compiler.inference_only),
        sees_held_out=bool(compiler.sees_held_out),
        fixed_ranks=bool(compiler.fixed_ranks),
        device=device,
    )
    begin = BEGIN.format(
        future=f"from __future__ import {', '.join(parts.code.futures)}\n\n" if parts.code.futures else "",
        cases=cases,
        declare=declare,
        case=_stand_ins(parts.code.called, declare) + parts.code.declared.strip() + _generated(case, cases),
        describe=_printable(compiler.describe()),
        compiler="# It is declared beside the case." if source is None else source.body.strip(),
        sources=sources,
    )
    lines = "".join(f"            {name}={value!a},\n" for name, value in vars(script).items())
    return begin, END.format(sources=sources, script=lines)


def _generated(case: Case, cases: str) -> str:
    """Return the statement that makes a generated case; empty for any other."""
    return "" if case.made_by is None else f"\n\n\n{cases}[{case.name!a}] = {case.made_by}({case.name!a})"


def _summary(case: Case) -> str:
    return (case.target.__doc__ or "").strip().split("\n")[0]


def _header(title: str, recorded: list[str]) -> str:
    """Return the docstring of a script."""
    lines = [
        title,
        "",
        "Compares eager with what the compiler makes of it, on the example and on every held-out input.",
    ]
    lines += ["", *recorded] if recorded else []
    return '"""' + "".join(f"{_in_docstring(line)}\n" for line in lines) + '"""\n\n'


@lru_cache(maxsize=4096)
def _check_syntax(text: str) -> None:
    compile(text, "script", "exec", dont_inherit=True)


@lru_cache
def _modules(more: tuple[tuple[str, str], ...]) -> str:
    """Return the items of the dict with the source of the comparison, and of what else a compiler imports."""
    replay = "recapture.tools.explain.script.replay"
    found = excerpts((replay, "replay"), (replay, "Script"), *more)
    if any("'''" in text for text in found.values()):
        raise AssertionError("the source of the comparison cannot be quoted")
    return "".join(f"    {name!r}: r'''\n{text}''',\n" for name, text in found.items())


def _stand_ins(called: tuple[str, ...], declare: str) -> str:
    """Return assignments that give the stand-in the names by which a suite calls this project's decorators."""
    roots = dict.fromkeys(name.split(".")[0] for name in called)
    attributes = dict.fromkeys(part for name in called for part in name.split(".")[1:])
    lines = [f"{root} = {declare}\n" for root in roots]
    lines += [f"{declare}.{attribute} = {declare}\n" for attribute in attributes]  # for recapture.case
    return f"{''.join(lines)}\n\n" if lines else ""


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _printable(text: str) -> str:
    """Return a line of text with unprintable characters, including lone surrogates, as escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _in_docstring(line: str) -> str:
    return _printable(line).replace("\\", "\\\\").replace('"""', "'''")
