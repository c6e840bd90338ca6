"""Finds what of the user's a script needs where it is run: files that it carries, files that it cannot, packages."""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import os
import pickletools
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import Any

from recapture.base.errors import UsageError
from recapture.base.paths import PACKAGE
from recapture.cases.own_code import OwnCode
from recapture.tools.explain.script.user_files import CARRIED

MOST_PACKED = 32 << 20
"""Bytes of the largest packed object that a script carries: a text of more than 40 MB is passed on by nobody."""

WITH_TORCH = ("torch", "numpy", "cloudpickle")
"""Packages that are not named: torch has its own line, numpy comes with it, and cloudpickle is carried."""

_LIBRARIES = tuple({Path(sysconfig.get_paths()[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_SYSTEM = tuple(map(Path, ("/proc", "/sys", "/dev", "/etc", "/usr")))
_CACHES = ("XDG_CACHE_HOME", "TORCH_HOME", "HF_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
"""Variables with the folders of what libraries download or compile, and would again elsewhere."""

_OPENED: list[str] = []
_WATCHING: list[bool] = []


@dataclass
class UserCode:
    """What a script needs besides torch.

    `text` is the case, whose paths are those of the script. `files` are carried, by their names in the archive.
    `beside` are files that the case reads and that are too private or large to carry, relative to the script.
    `packages` are installed, and `python` is the only release of Python that can run the code of a packed object.
    `moved` says that the text names the script's folder.
    """

    text: str
    files: dict[str, bytes] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    python: str = ""
    moved: bool = False

    @property
    def placed(self) -> bool:
        """Whether the script needs a folder of files."""
        return bool(self.moved or self.files or self.beside)


class LoadedCode:
    """The modules and files that executing a case, its target and its example asked for. To be entered around that."""

    def __init__(self) -> None:
        self.modules: dict[str, ModuleType] = {}
        self.opened: tuple[Path, ...] = ()

    def __enter__(self) -> LoadedCode:
        if not _WATCHING:
            sys.addaudithook(_note)  # it stays as long as the process
        _WATCHING[:] = [True]
        _OPENED.clear()
        self._before = dict(sys.modules)
        return self

    def __exit__(self, *_: object) -> None:
        _WATCHING[:] = [False]
        new = {name: module for name, module in sys.modules.items() if self._before.get(name) is not module}
        self.modules |= new
        opened = (Path(name) for name in dict.fromkeys(_OPENED))
        users_files = (
            path for path in opened if path.is_file() and _is_users(path) and path.suffix not in (".py", ".pyc")
        )
        self.opened = tuple(dict.fromkeys((*self.opened, *users_files)))

    def sources(self, own: Iterable[OwnCode]) -> dict[str, Path]:
        """Return the files of the user's modules, by the modules' names; a file that a target names is the user's."""
        named = {place for code in own for place in (code.place, *(code.inputs_from or ())[:1])}
        files = {name: getattr(module, "__file__", None) for name, module in self.modules.items()}
        return {
            name: Path(file)
            for name, file in files.items()
            if isinstance(file, str) and file.endswith(".py") and Path(file).is_file()
            if file in named or _is_users(Path(file))
        }

    def extensions(self) -> Iterator[Path]:
        """Yield the files of the user's compiled modules, which a script cannot carry to another release of Python."""
        for module in self.modules.values():
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and file.endswith(tuple(EXTENSION_SUFFIXES)) and _is_users(Path(file)):
                yield Path(file)


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    """Note a file that is opened to be read."""
    if event == "open" and _WATCHING[0] and isinstance(arguments[0], (str, os.PathLike)):
        flags = arguments[2] if len(arguments) > 2 and isinstance(arguments[2], int) else 0
        if not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            _OPENED.append(os.path.abspath(os.fspath(arguments[0])))  # noqa: PTH100 - the folder may change


def _is_users(path: Path) -> bool:
    installed = any(part.endswith("-packages") for part in path.parts)
    caches = (Path.home() / ".cache", *(Path(os.environ[name]) for name in _CACHES if os.environ.get(name)))
    return not installed and not any(place in path.parents for place in (*_LIBRARIES, *_SYSTEM, *caches, PACKAGE))


def exercise(own: OwnCode) -> None:
    """Do what a script will do with a target, so that what it imports and reads is known."""
    with contextlib.suppress(Exception):  # eager has run before: what fails here is for the script to say
        target, example = own.load(), own.example()
        target(*example)


def user_code(text: str, module: ModuleType, loaded: LoadedCode) -> UserCode:
    """Return what the script of a case needs; `text` is its source, as `loaded` executed it in `module`.

    Raises UsageError if it cannot travel.
    """
    own = [value for value in vars(module).values() if isinstance(value, OwnCode)]
    suite = str(getattr(module, "__file__", None))
    places: dict[str, str] = {}
    files: dict[str, bytes] = {}
    for name, source in loaded.sources(own).items():
        if str(source) == suite:
            continue
        place = places.setdefault(str(source), _place(name, source))
        content = source.read_bytes()
        if files.setdefault(CARRIED + place, content) != content:
            raise UsageError(f"two different files would be {place} in its script")
    rewriting = _Rewriting(text, places)
    result = UserCode(rewriting.text, files | rewriting.files, moved=rewriting.text != text)
    result.python = next(iter(rewriting.pythons), "")
    if result.python:
        result.files |= _cloudpickle()
    sources = [text, *(content.decode("utf-8", "replace") for name, content in files.items())]
    result.packages = tuple(sorted(_packages(sources, rewriting.strings)))
    roots = [Path(code.folder) for code in own if code.folder] or [Path(suite or ".").parent]
    packed = {Path(name) for name in rewriting.read}
    read = [path for path in loaded.opened if path not in packed]
    result.beside = tuple(sorted({_relative(path, roots) for path in (*read, *loaded.extensions())}))
    return result


def neighbours(text: str, module: ModuleType, loaded: LoadedCode) -> UserCode:
    """Return what the script of a case that a suite file declares needs: modules of the user that the file imports."""
    imported = set(_imported([text]))
    if any(name in imported for name in loaded.sources(())):
        return user_code(text, module, loaded)
    return UserCode(text)


def _place(name: str, file: Path) -> str:
    """Return where the file of a module is put, below a folder from which it is imported by the same name."""
    parts = name.split(".")
    if parts[0].startswith("own_code_"):  # a name that `recapture.cases.own_code` gave it
        parts = parts[1:]
    if file.name == "__init__.py":
        return "/".join((*parts, file.name))
    return "/".join((*parts[:-1], file.name))


def _relative(path: Path, roots: list[Path]) -> str:
    for root in roots:
        with contextlib.suppress(ValueError):
            return path.relative_to(root.resolve()).as_posix()
    return path.name


def _packages(sources: Iterable[str], strings: set[str]) -> Iterator[str]:
    """Yield the installed packages that sources import, and pickled objects name."""
    needed = strings | set(_imported(sources))
    for top in {name.partition(".")[0] for name in needed if name in sys.modules} - set(WITH_TORCH):
        file = getattr(sys.modules.get(top), "__file__", None)
        if file is not None and any(part.endswith("-packages") for part in Path(file).parts):
            yield top


def _imported(sources: Iterable[str]) -> Iterator[str]:
    """Yield the names of the modules that sources import, but for relative ones."""
    for source in sources:
        with contextlib.suppress(SyntaxError, ValueError):
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Import):
                    yield from (alias.name for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    yield str(node.module)
                    yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _cloudpickle() -> dict[str, bytes]:
    """Return the modules of cloudpickle: another release has other helpers, and cannot read what this one packed."""
    import cloudpickle

    folder = Path(cloudpickle.__file__).parent
    return {f"cloudpickle/{file.name}": file.read_bytes() for file in sorted(folder.glob("*.py"))}


class _Rewriting:
    """The text of a case in which places of this machine are those of a script's folder, which it calls ``FILES``."""

    def __init__(self, text: str, places: dict[str, str]) -> None:
        self.places = places
        self.files: dict[str, bytes] = {}
        self.pythons: set[str] = set()
        self.strings: set[str] = set()
        self.read: set[str] = set()
        self._changes: list[tuple[ast.expr, str]] = []
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id == "OwnCode":
                    self._own_code(node)
                elif node.func.id == "unpacked":
                    packed = self._packed([ast.literal_eval(argument) for argument in node.args])
                    self._changes += zip(node.args, packed, strict=False)
        lines = [line.encode() for line in text.split("\n")]
        # From the end of the text, so that the places of the others stay.
        by_place = sorted(self._changes, key=lambda change: (change[0].lineno, change[0].col_offset), reverse=True)
        for node, value in by_place:
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            changed = lines[first][: node.col_offset] + value.encode() + lines[last][node.end_col_offset :]
            lines[first : last + 1] = [changed]
        self.text = b"\n".join(lines).decode()

    def _own_code(self, call: ast.Call) -> None:
        for keyword in call.keywords:
            with contextlib.suppress(ValueError):  # no literal: the user edited it
                value = ast.literal_eval(keyword.value)
                if keyword.arg == "place":
                    self._changes.append((keyword.value, self._moved(value)))
                elif keyword.arg == "inputs_from":
                    self._changes.append((keyword.value, f"({self._moved(value[0])}, {value[1]!a})"))
                elif keyword.arg == "paths":
                    self._changes.append((keyword.value, "(FILES,)"))
                elif keyword.arg == "folder":
                    self._changes.append((keyword.value, "FILES"))
                elif keyword.arg in ("packed", "packed_inputs"):
                    self._changes.append((keyword.value, f"({', '.join(self._packed(value))})"))

    def _moved(self, place: str) -> str:
        """Return the source of a place in a script: a file of its folder, or the same module as here."""
        moved = self.places.get(str(Path(place).absolute()))
        return ascii(place) if moved is None else f"FILES + {'/' + moved!a}"

    def _packed(self, values: Iterable[Any]) -> Iterator[str]:
        """Yield the source of the arguments of `unpacked` in a script."""
        text, sources, _, python = (*values, "")[:4]
        content = Path(text[1:]).read_bytes() if text.startswith("@") else base64.b64decode(text)
        if len(content) > MOST_PACKED:
            raise UsageError(
                f"it holds an object of {len(content) >> 20} MiB: a script carries {MOST_PACKED >> 20}; name the file "
                "of its code instead, as model.py:Net"
            )
        self.strings |= set(_strings(content))
        self.pythons |= {python} - {""}
        if text.startswith("@"):
            name = f"{len(self.files)}.packed"
            self.files[CARRIED + name] = content
            self.read.add(text[1:])
            yield f'f"@{{FILES}}/{name}"'
        else:
            yield ascii(text)
        yield from (ascii(sources), "(FILES,)", ascii(python))


def _strings(content: bytes) -> Iterator[str]:
    """Yield the texts in what `torch.save` wrote, the names of modules among them."""
    with contextlib.suppress(zipfile.BadZipFile, ValueError), zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in archive.namelist():
            if name.endswith("data.pkl"):
                for _, argument, _ in pickletools.genops(archive.read(name)):
                    if isinstance(argument, str):
                        yield from argument.split(" ")[:1]
