"""What the C++ compiler built for Inductor, kept from run to run: kernels, wrappers, precompiled headers, and probes.

A build is kept under a hash of everything that it depends on: the command, the content of every file of the run that it
reads, torch, the compiler, the C library and the processor. The same build gives the same bytes, so that a cell whose
build is found here ends as it does without. Only builds that succeeded are kept; what is read back is checked against
its own hash, and copied, so that a cell can change only its own copy.

The folder belongs to this user alone (`recapture.base.cache_folder`), because what is in it is executed.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import hashlib
import importlib
import logging
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

VARIABLE = "RECAPTURE_KEPT_BUILDS"
"""Environment variable with the folder of kept builds, for a server; its tasks do not see it."""

SEARCHED = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "GCC_EXEC_PREFIX", "COMPILER_PATH")
"""Environment variables that change what a compiler reads."""

INCLUDE = re.compile(rb'^\s*#\s*include\s*[<"](/[^>"\n]+)[>"]', re.MULTILINE)
"""An include of a file by its whole path: the run's own headers are included in this way on older releases."""

FIRST_INCLUDE = re.compile(rb'\A\s*#\s*include\s*"(/[^"\n]+\.h)"')
"""The include with which a source begins: a compiler looks for a precompiled header there alone."""

OTHER_FILES = re.compile(rb"\bincbin\b|#\s*embed\b")
"""What makes a source read files that are not among the known ones."""

DIGEST = 32
"""Bytes of the hash before the content of a kept file."""

STAND_IN = b"/the-folder-of-a-run-of-recapture"
"""What stands for the folder of a run in a kept file, repeated and cut to the same length."""

PRECOMPILING = 120.0
"""Seconds in which a header is precompiled, or is not."""

MARK = b"\0the folder of this run\0"
"""What stands for the folder of a run, which has another name in each run, in a hash."""


class KeptBuilds:
    """The builds in `folder`; `home` is the folder of this run, whose files are identified by their content."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder / _environment()
        self.home = str(home)
        self._home = self.home.encode()
        self._stand_in = (STAND_IN * len(self._home))[: len(self._home)]
        self.folder.mkdir(mode=0o700, exist_ok=True)

    def build(self, command: str, usual: Callable[[], Any]) -> bool:
        """Provide what a command builds, from a kept build or with `usual`; return whether it was kept."""
        words = shlex.split(command)
        target = _target(words)
        key = None
        try:
            key = None if target is None else self.key(words, target)
            if key is not None and target is not None and self._restore(key, target):
                return True
            if key is not None:
                self._precompile(words)
        except Exception as error:  # the compiler itself shows what is wrong
            logging.getLogger(__name__).debug("kept build: %r", error)
            key = None
        usual()
        if key is not None and target is not None:
            with contextlib.suppress(OSError):  # a full disk
                content = target.read_bytes()
                self._keep(key, content.replace(self._home, self._stand_in) if _has_texts(target) else content)
        return False

    def has_answer(self, question: str) -> bool:
        """Whether `keep_answer` was called with the same question."""
        return self._read(_hash([question.encode()])) is not None

    def keep_answer(self, question: str) -> None:
        """Note that the answer to a question is yes."""
        with contextlib.suppress(OSError):
            self._keep(_hash([question.encode()]), b"yes")

    def _precompile(self, words: list[str]) -> None:
        """Precompile the header of the run with which a source begins, which takes half of the time of most builds.

        Newer releases than 2.6 do this themselves. The compiler finds the result beside the header, and builds the same
        bytes as without it. One process does it; others do not wait.
        """
        sources = [word for word in words if word.endswith(".cpp") and word.startswith(self.home)]
        begin = FIRST_INCLUDE.match(Path(sources[0]).read_bytes()) if len(sources) == 1 else None
        header = "" if begin is None else os.fsdecode(begin[1])
        target = Path(f"{header}.gch")
        if not header.startswith(self.home) or target.exists():
            return
        command = [word for word in words if word not in ("-shared", "-c") and not word.startswith(("-l", "-L"))]
        at = command.index("-o") + 1
        command[command.index(sources[0])] = header
        with contextlib.suppress(OSError, subprocess.SubprocessError), _claimed(Path(f"{target}.claim")) as mine:
            if not mine:
                return
            command[at] = str(target)
            key = self.key(command, target)
            if key is None or self._restore(key, target):
                return
            unfinished = command[at] = f"{target}.new"
            command[1:1] = ["-x", "c++-header"]
            subprocess.run(command, check=True, capture_output=True, timeout=PRECOMPILING)
            os.replace(unfinished, target)  # noqa: PTH105
            self._keep(key, target.read_bytes())

    def key(self, words: list[str], target: Path) -> str | None:
        """Return the hash of a build; None if it reads what cannot be known."""
        parts = [str(len(self.home)).encode()]
        for word in words:
            if word == str(target):
                parts.append(b"the target")
            elif self.home not in word:
                parts.append(word.encode())
            elif word.startswith("-") or not os.path.isfile(word):  # noqa: PTH113 - Path.is_file raises if forbidden
                return None
            else:
                content = self._content(Path(word), set())
                if content is None:
                    return None
                parts.append(content + Path(word).suffix.encode())
        return _hash(parts)

    def _content(self, path: Path, seen: set[Path]) -> bytes | None:
        """Return the hash of a file of this run, with those that it includes; None if it reads others."""
        text = path.read_bytes()
        if OTHER_FILES.search(text):
            return None
        seen.add(path)
        parts = [text.replace(self._home, MARK)]
        for match in INCLUDE.finditer(text):
            included = Path(os.fsdecode(match[1]))
            if str(included).startswith(self.home) and included not in seen:
                content = self._content(included, seen)
                if content is None:
                    return None
                parts.append(content)
        return _hash(parts).encode()

    def _restore(self, key: str, target: Path) -> bool:
        """Write a kept build to its target, whole or not at all."""
        content = self._read(key)
        if content is None:
            return False
        if _has_texts(target):
            content = content.replace(self._stand_in, self._home)
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".kept-")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, 0o755)  # noqa: PTH101, S103 - as a linker writes it
        os.replace(name, target)  # noqa: PTH105
        return True

    def _read(self, key: str) -> bytes | None:
        """Return what is kept under a key; None for what is absent, or damaged."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        content = data[DIGEST:]
        if hashlib.sha256(content).digest() != data[:DIGEST]:
            path.unlink(missing_ok=True)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # what was not used for the longest time is removed first
        return content

    def _keep(self, key: str, content: bytes) -> None:
        path = self._path(key)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".kept-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(content).digest() + content)
            os.replace(name, path)  # noqa: PTH105
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:]


@contextlib.contextmanager
def _claimed(claim: Path) -> Iterator[bool]:
    """Yield whether this process is the first one that claims something; a claim is never given back."""
    try:
        claim.touch(exist_ok=False)
    except FileExistsError:
        yield False
    else:
        yield True


def _hash(parts: list[bytes]) -> str:
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def _has_texts(target: Path) -> bool:
    """Whether the folder of the run can be in a file as text: messages of a library name its source.

    In precompiled headers, too, but they are only read by the compiler, and are kept as they are.
    """
    return target.suffix in (".o", ".so")


def _target(words: list[str]) -> Path | None:
    """Return the file that a command writes."""
    places = [number for number, word in enumerate(words) if word == "-o"]
    return Path(words[places[0] + 1]) if len(places) == 1 and places[0] + 1 < len(words) else None


@functools.cache
def _environment() -> str:
    """Return a name for everything outside the run that a build depends on: torch, compiler, libraries, processor."""
    import torch

    root = Path(torch.__file__).parent
    compiler = os.environ.get("CXX") or "g++"
    facts: list[object] = [torch.__version__, torch.version.git_version, root, sys.version, sys.prefix, sys.base_prefix]
    facts += [platform.machine(), platform.libc_ver(), _processor()]
    facts += [(name, os.environ.get(name)) for name in SEARCHED]
    for name in (compiler, "gcc", "ld", "as"):
        facts.append((name, _identity(shutil.which(name))))
    facts += [_identity(str(path)) for path in (root / "version.py", root / "lib" / "libtorch_cpu.so")]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _identity(path: str | None) -> tuple[str, int, int] | None:
    """Return the real path, size and time of a file; None if it is absent."""
    try:
        real = os.path.realpath(path or "")
        status = os.stat(real)  # noqa: PTH116
    except OSError:
        return None
    return real, status.st_size, status.st_mtime_ns


def _processor() -> list[str]:
    """Return the processor's model and instruction sets: code is compiled for the processor at hand."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return list(
            dict.fromkeys(line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part")))
        )
    return [platform.processor()]


_folder: str | None = None
"""The folder that this server was given."""

_kept: KeptBuilds | None = None
"""The builds that this process and those that it forks keep; None if it keeps none."""


def take_folder() -> None:
    """Remember the folder of kept builds that the environment names, and remove it there: no task sees it."""
    global _folder  # noqa: PLW0603 - of this process
    _folder = os.environ.pop(VARIABLE, None)


def keep_builds() -> None:
    """Make this process, and those it forks, use kept builds, if it was given a folder of them.

    Where a release builds in another way, it builds as usual.
    """
    global _kept  # noqa: PLW0603 - children inherit it
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if _folder is None or cache is None:
        return
    try:
        _kept = _kept or KeptBuilds(Path(_folder), Path(cache).parent)
    except OSError:  # a full disk
        return
    builder: Any = getattr(_module("torch._inductor.cpp_builder"), "CppBuilder", None)
    if hasattr(builder, "build"):
        builder.build = keeping(builder.build)
    isa: Any = getattr(_module("torch._inductor.cpu_vec_isa"), "VecISA", None)
    if hasattr(isa, "check_build"):
        isa.check_build = _answered(isa.check_build)
    codecache = _module("torch._inductor.codecache")
    if hasattr(codecache, "run_command_and_check"):  # up to 2.6
        codecache.run_command_and_check = _keeping_command(codecache.run_command_and_check)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception:  # an older release, or a package is missing
        return None


def keeping(build: Any) -> Any:
    """Return a ``CppBuilder.build`` that uses kept builds, if this process keeps any."""
    if _kept is None or hasattr(build, "keeps"):
        return build
    returns_target = getattr(build, "__annotations__", {}).get("return") is not None  # before about 2.7

    @functools.wraps(build)
    def kept_build(self: Any) -> Any:
        builds, result = _kept, []
        if builds is None:
            return build(self)
        command, target = self.get_command_line(), self.get_target_file_path()
        if builds.build(command, lambda: result.append(build(self))):
            return (b"", target) if returns_target else None
        return result[0]

    kept_build.keeps = True  # type: ignore[attr-defined]
    return kept_build


def _keeping_command(run: Any) -> Any:
    """Return a function that runs a command of a compiler, as text, that uses kept builds."""
    if hasattr(run, "keeps"):
        return run

    @functools.wraps(run)
    def kept_run(command: str) -> None:
        if _kept is None:
            run(command)
        else:
            _kept.build(command, lambda: run(command))

    kept_run.keeps = True  # type: ignore[attr-defined]
    return kept_run


def _answered(check: Any) -> Any:
    """Return a ``VecISA.check_build`` that asks once for each environment.

    For each set of instructions, torch compiles a library and loads it in a new Python that imports torch, in every
    process. Here a fork of this process loads it, which has torch already. Only the answer "yes" is kept: another one
    may have a cause that passes.
    """
    if hasattr(check, "keeps"):
        return check

    @functools.wraps(check)
    def kept_check(self: Any, code: str) -> bool:
        builds = _kept
        if builds is None:
            return bool(check(self, code))
        question = repr((str(self), self.build_arch_flags(), self.build_macro(), code))
        if builds.has_answer(question):
            return True
        with _loading_in_forks():
            answer = bool(check(self, code))
        if answer:
            builds.keep_answer(question)
        return answer

    kept_check.keeps = True  # type: ignore[attr-defined]
    return kept_check


LOADED = re.compile(r"cdll\.LoadLibrary\(\"([^\"]+)\"\)")
"""The library in the program with which torch loads one in a new Python."""


@contextlib.contextmanager
def _loading_in_forks() -> Iterator[None]:
    """Let a fork of this process load a library for which torch would start a Python that imports torch first.

    A library with instructions that the processor lacks ends the fork by a signal, as it does the other process.
    """
    check_call: Any = subprocess.check_call

    def checked(command: Any, *arguments: Any, **options: Any) -> int:
        is_program = isinstance(command, list) and command[:2] == [sys.executable, "-c"] and len(command) == 3
        library = LOADED.search(command[2]) if is_program else None
        if library is None or threading.active_count() > 1:  # a fork of several threads may wait for ever
            return int(check_call(command, *arguments, **options))
        status = _status_of_loading(library[1])
        if status:
            raise subprocess.CalledProcessError(status, command)
        return 0

    module: Any = subprocess
    module.check_call = checked
    try:
        yield
    finally:
        module.check_call = check_call


def _status_of_loading(library: str) -> int:
    """Return the exit status of a fork that loads a library."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            faulthandler.disable()  # what it would print is an answer, and no fault
            ctypes.CDLL(library)
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def prune(folder: Path, limit: int) -> None:
    """Remove the builds that were not used for the longest time, until those in a folder have at most `limit` bytes."""
    files = sorted(_files(folder))
    size = sum(bytes_ for _, bytes_, _ in files)
    for _, bytes_, path in files:
        if size <= limit:
            return
        with contextlib.suppress(OSError):
            path.unlink()
            size -= bytes_


def _files(folder: Path) -> Iterator[tuple[float, int, Path]]:
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                status = Path(place, name).lstat()
                yield status.st_mtime, status.st_size, Path(place, name)
