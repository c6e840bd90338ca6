"""Finds suites by name or file, and collects their cases."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import marshal
import re
import sys
import tokenize
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.exceptions import SUITE_MODULES, safe_text
from recapture.base.paths import data_folder
from recapture.cases.case import CASES_ATTRIBUTE, LACKING_ATTRIBUTE, REFUSED_ATTRIBUTE, Case, CaseError, RefusedCase
from recapture.cases.compilers import compilers_of
from recapture.cases.requirements import is_installed
from recapture.cases.source import Closure, closure
from recapture.torch_api.libraries import release_libraries

DYNAMO = "torch._dynamo"
"""Entry in a suite's imports that means that the suite itself compiles code."""

COMPILING = frozenset({"compile", "compiler", "export", "_dynamo"})

GROUPS = ("exportdb", "zoo")
"""Names of the folders of suites that run only when they are named."""

COMPILES = re.compile(r"\btorch\.compile\b")
"""Pattern in the source of cases that generate code with every compiler."""


@dataclass(frozen=True)
class SuiteFile:
    """One suite: its name (the file's stem) and its file."""

    name: str
    path: Path


@dataclass(frozen=True)
class Selection:
    """What the command line selected: suites and, for addresses, a case or compiler in a suite."""

    suites: tuple[SuiteFile, ...]
    addresses: tuple[tuple[str, str | None, str | None], ...]
    """(suite, case or None for all, compiler or None for all) for each argument; empty to select everything."""
    named: frozenset[str]
    """Suites that were selected by name, so that an error in one must be reported."""

    def admits(self, suite: str, case: str, compiler: str) -> bool:
        """Whether a cell was selected."""
        return not self.addresses or any(
            suite == selected and name in (None, case) and how in (None, compiler)
            for selected, name, how in self.addresses
        )

    def names_cell(self, suite: str, case: str, compiler: str) -> bool:
        """Whether an address names this very cell, ``suite::case::compiler``."""
        return (suite, case, compiler) in self.addresses

    def admits_case(self, suite: str, case: str) -> bool:
        """Whether any cell of a case was selected."""
        return not self.addresses or any(
            suite == selected and name in (None, case) for selected, name, _ in self.addresses
        )


class CaseInfo(msgspec.Struct, frozen=True):
    """The facts about a case that the host can use without importing torch."""

    name: str
    hash: str
    summary: str
    claims: dict[str, list[tuple[str, str]]]
    compiles: bool = False
    """Whether the case's own source calls `torch.compile`."""
    options: dict[str, str] = {}
    """The options that the case was declared with, by `Case.options`."""
    compilers: list[str] | None = None
    """The compilers that the case is about; None for all."""


class SuiteInfo(msgspec.Struct, frozen=True):
    """A collected suite, or the reason why it could not be collected."""

    name: str
    path: str
    cases: list[CaseInfo] = []
    refused: list[RefusedCase] = []
    compilers: list[str] = []
    imports: list[str] = []
    error: str | None = None
    lacking: bool = False
    """Whether the only fault is that this installation lacks something: a package, or a newer torch."""


def shipped_suites() -> list[SuiteFile]:
    """Return the suites that ship with recapture, from the checkout or the installed package."""
    return _folder(data_folder("suites"))


def shipped_groups() -> dict[str, list[SuiteFile]]:
    """Return the groups of suites that ship with recapture and run only when they are named, by the group's name.

    Each is a folder in the folder of suites: ``exportdb``, ``zoo``. Their cases are made from what is installed.
    """
    groups = {name: _folder(data_folder("suites") / name) for name in GROUPS}
    return {name: suites for name, suites in groups.items() if suites}


def find_suites(arguments: tuple[str, ...]) -> Selection:
    """Resolve suite names, files, folders and ``suite::case::compiler`` addresses; no argument selects every suite.

    Suites of `shipped_groups` are selected by their own names or by their group's. Raises UsageError for an unknown
    name, with the most similar known name.
    """
    shipped = {suite.name: suite for suite in shipped_suites()}
    if not arguments:
        if not shipped:
            raise UsageError("no suites are installed; name a file of cases")
        return Selection(tuple(shipped.values()), (), frozenset())
    groups = shipped_groups()
    known = {suite.name: [suite] for suites in groups.values() for suite in suites} | groups
    known |= {name: [suite] for name, suite in shipped.items()}
    selected: dict[str, SuiteFile] = {}
    addresses: list[tuple[str, str | None, str | None]] = []
    for argument in arguments:
        place, case, how = ([*argument.split("::", 2), None, None])[:3]
        for suite in _resolve(str(place), known):
            same_named = selected.setdefault(suite.name, suite)
            if same_named.path != suite.path:
                raise UsageError(f"two suites are named {suite.name!r}: {same_named.path} and {suite.path}")
            try:
                str(suite.path).encode()
            except UnicodeEncodeError:
                raise UsageError(f"the path {str(suite.path)!r} is not UTF-8") from None
            addresses.append((suite.name, case, how))
    return Selection(tuple(selected.values()), tuple(addresses), frozenset(selected))


def _resolve(place: str, shipped: dict[str, list[SuiteFile]]) -> list[SuiteFile]:
    if not place:  # from an unset shell variable; do not take it as the current directory
        raise UsageError("an empty name is not a suite, file or folder")
    path = Path(place)
    if place in shipped and not path.suffix:
        return shipped[place]
    if path.is_dir():
        suites = _folder(path.resolve())
        if not suites:
            raise UsageError(f"no .py files in the folder {place}")
        return suites
    if path.is_file():
        return [SuiteFile(path.stem, path.resolve())]
    if path.suffix == ".py" or "/" in place:
        raise UsageError(f"no such suite file: {place}")
    raise UsageError(f"unknown suite {place!r}{did_you_mean(place, shipped)}")


def _folder(folder: Path) -> list[SuiteFile]:
    return [SuiteFile(path.stem, path) for path in sorted(folder.glob("*.py")) if not path.name.startswith("_")]


_COMPILED: dict[str, tuple[bytes, bytes]] = {}
"""The last source of each file in this process, by path, and what it was compiled to."""


class _SuiteLoader(SourceFileLoader):
    """Gives each execution of a file new code objects, because Dynamo keeps what it compiled beside them."""

    def source_to_code(self, data: Any, path: Any = "<string>", **options: Any) -> Any:  # type: ignore[override]
        """Return the code of a module's source."""
        known, compiled = _COMPILED.get(str(path), (None, b""))
        if known != data:
            compiled = marshal.dumps(super().source_to_code(data, path, **options))
            _COMPILED[str(path)] = (bytes(data), compiled)
        return marshal.loads(compiled)  # noqa: S302 - written above


def compile_ahead(suites: list[SuiteFile]) -> None:
    """Compile suites that this process, and those that it forks, will execute; errors are left to the execution."""
    for suite in suites:
        try:
            name = _module_name(suite.name)
            _SuiteLoader(name, str(suite.path)).get_code(name)
        except (OSError, SyntaxError, ValueError):
            continue


def suite_loader(name: str, path: Path) -> SourceFileLoader | None:
    """Return the loader of a Python file as the module `name`; None for a file of another kind."""
    return _SuiteLoader(name, str(path)) if path.suffix == ".py" else None


_EXECUTED: dict[str, ModuleType] = {}
"""The last execution of each suite file, by the name of its module, also where `sys.modules` no longer has it."""


def make_neighbours_importable(path: Path) -> None:
    """Let a suite file import modules from its own folder."""
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)


def execute(suite: str, path: Path) -> ModuleType:
    """Execute a suite file as a new module, with new globals, functions and code objects.

    Raises ImportError for a file that is not Python, and whatever the file raises.
    """
    name = _module_name(suite)
    spec = importlib.util.spec_from_file_location(name, path, loader=suite_loader(name, path))
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    make_neighbours_importable(path)
    if name in _EXECUTED:
        release_libraries(vars(_EXECUTED[name]))  # this execution defines the file's operators again
    sys.modules[name] = _EXECUTED[name] = module
    vars(module)[REFUSED_ATTRIBUTE] = []  # an invalid case is refused alone, and the rest of the file is executed
    spec.loader.exec_module(module)
    return module


def executed(suite: str) -> ModuleType:
    """Return the last execution of a suite file in this process; raises KeyError if there was none."""
    return _EXECUTED[_module_name(suite)]


def _module_name(suite: str) -> str:
    return SUITE_MODULES + re.sub(r"\W", "_", suite)


def collect_suite(suite: str, path: Path) -> SuiteInfo:
    """Execute one suite file and describe its cases; any failure becomes the one-line `error`."""
    try:
        module = execute(suite, path)
        compilers = _compilers(module)
        infos, refused = _described(module, path)
        lacking = list(dict.fromkeys(getattr(module, LACKING_ATTRIBUTE, [])))  # each reason once
        if lacking and not (infos or refused or compilers):
            return SuiteInfo(suite, str(path), error="; ".join(lacking), lacking=True)
        if not infos and not compilers:
            raise CaseError("; ".join(map(str, refused)) or "no case is declared in it (decorate one with @case)")
        imports = _imports(path, getattr(module, CASES_ATTRIBUTE, []))
    except SyntaxError as error:
        place = "" if error.filename in (None, str(path)) else f"{Path(str(error.filename)).name}, "
        return SuiteInfo(suite, str(path), error=f"syntax error in {place}line {error.lineno}: {error.msg}")
    except CaseError as error:
        return SuiteInfo(suite, str(path), error=_one_line(error))
    except BaseException as error:  # a suite may raise anything on import
        where = _line_in(error, path)
        return SuiteInfo(suite, str(path), error=f"raised {type(error).__name__} on import{where}: {_one_line(error)}")
    return SuiteInfo(suite, str(path), infos, refused, compilers, imports)


def case_hash(case: Case, code: Closure) -> str:
    """Return the hash of a case, given the closure of its definition, or of the function that makes it."""
    if case.made_by is None:
        return code.hash
    return hashlib.sha256(f"{code.hash}\n{case.name}\n{case.source}".encode()).hexdigest()[:12]


def _compilers(module: ModuleType) -> list[str]:
    try:
        return list(compilers_of(module))
    except ValueError as error:
        raise CaseError(str(error)) from None


def _described(module: ModuleType, path: Path) -> tuple[list[CaseInfo], list[RefusedCase]]:
    """Return the cases of a file, and those that cannot be cases. No factory of inputs is called."""
    infos: list[CaseInfo] = []
    refused: list[RefusedCase] = list(getattr(module, REFUSED_ATTRIBUTE))
    for case in getattr(module, CASES_ATTRIBUTE, []):
        try:
            code = closure(path, case.made_by or case.name)
        except KeyError:
            why = f"case {case.name!r} is not defined under this name at the top level of its file"
            refused.append(RefusedCase(case.name, case.line, why))
            continue
        summary = (inspect.getdoc(case.target) or "").split("\n")[0] if case.target.__doc__ else ""
        infos.append(case_info(case, code, summary))
    return infos, refused


def case_info(case: Case, code: Closure, summary: str) -> CaseInfo:
    """Return the facts about a case that the host uses."""
    return CaseInfo(
        name=case.name,
        hash=case_hash(case, code),
        summary=summary,
        claims={how: [(claim.id, claim.expected) for claim in claims] for how, claims in case.claims.items()},
        compiles=COMPILES.search(code.text) is not None,
        options=case.options,
        compilers=None if case.compilers is None else list(case.compilers),
    )


def _imports(path: Path, cases: list[Case]) -> list[str]:
    """Return the modules to import before forking: a suite's imports, its cases' `requires`, Dynamo if it compiles."""
    names: list[str] = []
    required = [module for case in cases for module in case.requires if is_installed(module)]
    with tokenize.open(path) as file:  # uses the file's declared encoding
        tree = ast.parse(file.read())
    for node in ast.walk(tree):  # also inside try and with; modules that were not imported are dropped below
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    neighbours = {file.stem for file in path.parent.iterdir()}
    others = {*neighbours, "recapture", "__future__"}
    roots = dict.fromkeys(name for name in names if name in sys.modules and name.split(".")[0] not in others)
    compiles = any(
        isinstance(node, ast.Attribute) and node.attr in COMPILING and ast.unparse(node.value) == "torch"
        for node in ast.walk(tree)
    )
    return list(dict.fromkeys([*roots, *required, *([DYNAMO] if compiles else [])]))


def _line_in(error: BaseException, path: Path) -> str:
    lines = [entry.tb_lineno for entry in _walk(error.__traceback__) if entry.tb_frame.f_code.co_filename == str(path)]
    return f" (line {lines[-1]})" if lines else ""


def _walk(entry: Any) -> list[Any]:
    entries = []
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    return entries


def _one_line(error: BaseException) -> str:
    return (safe_text(error).strip() or type(error).__name__).splitlines()[0][:300]
