"""Prints one cell as a script that needs only torch: the case, its inputs, the compiler, and the judge, packed."""

from __future__ import annotations

import ast
import base64
import io
import sys
import zipfile
import zlib
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.exceptions import qualified, safe_text
from recapture.base.paths import PACKAGE
from recapture.base.text import one_line
from recapture.cases.case import CASES_ATTRIBUTE, REFUSED_ATTRIBUTE, Case, RefusedCase
from recapture.cases.collection import SuiteFile, case_hash, execute
from recapture.cases.compilers import builtin_compilers, compilers_of
from recapture.cases.own_code import BESIDE, OwnCode
from recapture.cases.source import Closure, closure, defined_names
from recapture.cases.syntax import PROJECT
from recapture.judge.packing import BEGIN, packed
from recapture.records.directories import find_results, read_results
from recapture.tools.explain.script.header import HOOK, STATUS, docstring, printable_line
from recapture.tools.explain.script.replay import Script, compiler_fields, fault
from recapture.tools.explain.script.user_code import LoadedCode, UserCode, exercise, neighbours, user_code

if TYPE_CHECKING:
    from recapture.cases.compiler import Compiler
    from recapture.records.record import Record

SCRIPT = """\
{future}{hook}{unpack_first}{files}
# --- the case, as its file declares it ------------------------------------------------------------------------------

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

# --- the comparison: recapture's own, which decides as a recorded run does ------------------------------------------

if __name__ == "__main__":
{unpack_last}    from recapture.tools.explain.script.replay import Script, replay

    script = Script(
{script}    )
    sys.exit(replay(__file__, script))

# The modules of the comparison{carried} as a zip archive, compressed by zlib, in base64:
"""
"""The text of a script, up to its archive."""

UNPACK = """\
    import atexit, base64, os, shutil, sys, tempfile, zlib

    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with open(__file__, encoding="utf-8") as script, open(os.path.join(folder, "recapture.zip"), "wb") as archive:
        archive.write(zlib.decompress(base64.b64decode(script.read().rpartition("in base64:\\n")[2])))
    sys.path.insert(0, archive.name)
"""
"""What makes the modules of the archive importable: before the case, if that imports one of them."""

FILES = """\
from recapture.tools.explain.script.user_files import placed

FILES = placed(__file__, {beside!a})
"""
"""What names the folder of the user's files that a script carries."""

REPLAY = "recapture.tools.explain.script.replay"
"""The module that a script runs."""

USER_FILES = "recapture.tools.explain.script.user_files"
"""The module with which a script finds the files of the user that it carries."""

WIDTH = 116
"""Characters of the archive on one line."""


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


class Recorded(NamedTuple):
    """A record of the cell: in a line, and the fault that it shows, if any."""

    line: str
    fault: str = ""


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
        self._loaded = LoadedCode()
        try:
            with self._loaded:
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
        names = [case_.name for case_ in self.cases]
        for refused in self._refused:
            if refused.name == case and case not in names:
                raise UsageError(str(refused))
        if case not in names:
            raise UsageError(f"unknown case {case!r}{did_you_mean(case, names)}")
        if compiler not in self.compilers:
            raise UsageError(f"unknown compiler {compiler!r}{did_you_mean(compiler, self.compilers)}")

    def case_hash(self, case: str) -> str:
        """Return the hash of a case, as in records."""
        parts = self._parts(case)
        return case_hash(parts.case, parts.code)

    def script(self, name: str, compiler_name: str, device: str, recorded: Sequence[Recorded] = ()) -> str:
        """Return the script of one cell; `recorded` is what is recorded about it.

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
        source = _closure_of(compiler.function.__code__.co_filename, compiler.function_name)
        if not own:
            defined_twice = sorted(_defined(parts.code.body, imports=False) & _defined(source.body, imports=False))
            if defined_twice:
                raise UsageError(
                    f"{address!r} cannot be printed: its case and its compiler both define {defined_twice[0]!r}"
                )
        taken = _defined(parts.code.body) | _defined(source.body)
        title = ": ".join(filter(None, [f"{address} on {device}", _summary(parts.case)]))
        try:
            user = self._user_code(parts)
        except UsageError as error:
            raise UsageError(f"{address!r} cannot be printed: {error}") from None
        header = _header(title, parts.case.requires, user, recorded)
        faults = tuple(dict.fromkeys(record.fault for record in recorded if record.fault))
        program = _program(parts, user, compiler, None if own else source, taken, self.suite.name, device, faults)
        try:
            _check_syntax(header)
            _check_syntax(program)
        except (SyntaxError, ValueError) as error:
            raise UsageError(f"{address!r} cannot be printed: its script does not compile: {error}") from None
        modules = (*project_imports(parts.code.body), *project_imports(source.body))
        return header + program + (_archive_with(modules, user.files) if user.placed else _archive(modules))

    def _user_code(self, parts: _Parts) -> UserCode:
        """Return what the case needs of the user's code; its target and example are made to know that."""
        own = [value for value in vars(self.module).values() if isinstance(value, OwnCode)]
        if not own:
            return neighbours(parts.code.declared, self.module, self._loaded)
        with self._loaded:
            for code in own:
                exercise(code)
        return user_code(parts.code.declared, self.module, self._loaded)

    def _is_own(self, compiler: Compiler) -> bool:
        """Whether a compiler is declared in the suite's own file."""
        return self.suite.path.samefile(compiler.function.__code__.co_filename)

    def _parts(self, name: str, *more: str) -> _Parts:
        key = (name, *more)
        if key not in self._known:
            case = next(case_ for case_ in self.cases if case_.name == name)
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
def _closure_of(path: str, function: str) -> Closure:
    return closure(Path(path), function)


def _recorded(cell: CellToPrint, case_hash: str) -> list[Recorded]:
    """Return what is recorded about this exact case with this torch release."""
    import torch

    recorded: list[Recorded] = []
    address, root = f"{cell.suite}::{cell.case}::{cell.compiler}", Path(cell.results)
    for directory in find_results(root, needed=False) if root.is_dir() else []:
        try:
            results = read_results(directory)
        except UsageError:  # no results are needed to print a cell
            continue
        if results.environment is None or results.environment.torch.version != str(torch.__version__):
            continue
        recorded += [
            Recorded(
                f"Recorded with {results.image} on {results.capability}: {recorded_line(record)}", fault_in(record)
            )
            for record in results.records
            if (record.cell, record.case_hash, record.device) == (address, case_hash, cell.device)
        ]
    return recorded


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


def fault_in(record: Record) -> str:
    """Return the fault that a record shows, as `recapture.tools.explain.script.replay.fault` names it, or ``""``."""
    return fault(record.verdict, "" if record.error is None else record.error.type)


def _program(
    parts: _Parts,
    user: UserCode,
    compiler: Compiler,
    source: Closure | None,
    taken: set[str],
    suite: str,
    device: str,
    faults: tuple[str, ...],
) -> str:
    """Return a script's text between its docstring and its archive.

    `source` is the compiler's source, None if it is in the case's file.
    """
    case = parts.case
    cases, declare = (_free(name, taken) for name in ("CASES", "declare"))
    script = Script(
        suite=suite,
        case=case.name,
        cases=cases,
        backward=case.backward,
        train_step=case.train_step,
        strict=case.strict,
        concrete_args=None if case.concrete_args is None else tuple(map(str, case.concrete_args)),
        since=case.since,
        requires=case.requires,
        function=compiler.function_name,
        compiler=compiler_fields(compiler),
        device=device,
        faults=faults,
    )
    needed_first = bool(user.placed or project_imports(parts.code.body))
    return SCRIPT.format(
        future=f"from __future__ import {', '.join(parts.code.futures)}\n\n" if parts.code.futures else "",
        hook=HOOK,
        unpack_first=f"{UNPACK}\n" if needed_first else "",
        unpack_last="" if needed_first else f"{UNPACK}\n",
        files=f"{FILES.format(beside=user.beside)}\n" if user.placed else "",
        carried=" and the user's own" if user.files else "",
        cases=cases,
        declare=declare,
        case=_stand_ins(parts.code.called, declare) + user.text.strip() + _generated(case, cases),
        describe=printable_line(compiler.describe()),
        compiler="# It is declared beside the case." if source is None else source.body.strip(),
        script="".join(f"        {name}={value!a},\n" for name, value in vars(script).items()),
    )


def _generated(case: Case, cases: str) -> str:
    """Return the statement that makes a generated case; empty for any other."""
    return "" if case.made_by is None else f"\n\n\n{cases}[{case.name!a}] = {case.made_by}({case.name!a})"


def _summary(case: Case) -> str:
    return (case.target.__doc__ or "").strip().split("\n")[0]


def _header(title: str, requires: tuple[str, ...], user: UserCode, recorded: Sequence[Recorded]) -> str:
    """Return the docstring of a script; `requires` are the modules that the case needs besides torch."""
    python = (f"Python {user.python}",) if user.python else ()
    # What the code itself imports of recapture is in the script.
    packages = [name for name in (*requires, *user.packages) if name != PACKAGE.name]
    needed = (*python, "torch", *dict.fromkeys(packages))
    lines = [
        title,
        "",
        "Compares eager with what the compiler makes of it, on the example and on every held-out input.",
        f"{STATUS} Needs {' and '.join(needed)}.",
        *([BESIDE + ", ".join(user.beside)] if user.beside else []),
    ]
    return docstring([*lines, *(["", *(record.line for record in recorded)] if recorded else [])])


@lru_cache(maxsize=4096)
def _check_syntax(text: str) -> None:
    compile(text, "script", "exec", dont_inherit=True)


@lru_cache
def _archive(more: tuple[str, ...]) -> str:
    """Return the modules of the comparison, and others, as lines of comment."""
    return _comment(packed(REPLAY, *sorted(set(more))))


def _archive_with(modules: tuple[str, ...], files: dict[str, bytes]) -> str:
    """Return `_archive` with files of the user."""
    archive = io.BytesIO(packed(REPLAY, USER_FILES, *sorted(set(modules))))
    with zipfile.ZipFile(archive, "a") as file:
        for name, content in sorted(files.items()):
            file.writestr(zipfile.ZipInfo(name, BEGIN), content)
    return _comment(archive.getvalue())


def _comment(archive: bytes) -> str:
    text = base64.b64encode(zlib.compress(archive, 9)).decode()
    return "".join(f"# {text[start : start + WIDTH]}\n" for start in range(0, len(text), WIDTH))


@cache
def project_imports(text: str) -> tuple[str, ...]:
    """Return the modules of this project from which some source imports names."""
    modules = (str(node.module) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom))
    return tuple(module for module in modules if module.split(".")[0] == PROJECT)


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
