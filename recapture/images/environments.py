"""Virtual environments of images in a cache folder: each is complete or absent, and is not removed while in use.

An environment is made under a temporary name, checked, and published by a rename. Only one is made at a time, under
the lock of the whole folder. A process that uses an environment holds a shared lock on it; removal needs that lock
alone. A temporary folder that a killed process left is removed before the next environment is made.

Their programs are executed, and their names can be predicted. So a folder that is a link, belongs to another user, or
can be written by others is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recapture.base.cache_folder import cache_root, check_trusted, gib_of
from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.locks import LockedError, locked
from recapture.base.option_fields import GIB
from recapture.images.interpreter import Interpreter, check_installed
from recapture.images.requirements import (
    LAYER,
    LAYER_BYTES,
    Requirements,
    build_layer,
    check_against,
    layer_on,
    put_on_environment,
    put_on_image,
)
from recapture.images.uv import find_python, find_uv, run_uv
from recapture.machine.pins import lock_hash, lock_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from recapture.machine.pins import Image

EXPECTED_BYTES = 8 * GIB
"""Bytes that must be free for a new environment; the largest image has 7 GB."""

DEFAULT_LIMIT = 60 * GIB
"""Bytes of all environments together, if RECAPTURE_CACHE_GIB is not set."""

SMALLEST_GIB = 1e-9
"""The smallest limit, in GiB: no environment fits into nothing."""

IMPORT_SECONDS = 600.0
"""Seconds that the first import of torch may take in a new environment."""

_LOCK = ".lock"
_PARTIAL = ".partial"
_WHEELS = f".wheels{_PARTIAL}"
_HASH_DIGITS = 12


def environments_folder() -> Path:
    """Return the folder of environments."""
    return cache_root() / "environments"


def size_limit() -> int:
    """Return the bytes that all environments may take: RECAPTURE_CACHE_GIB, or `DEFAULT_LIMIT`."""
    return gib_of("RECAPTURE_CACHE_GIB", DEFAULT_LIMIT, least=SMALLEST_GIB)


class Stored(NamedTuple):
    """A complete environment: the name of its image, its folder, its bytes, and when it was last used."""

    image: str
    folder: Path
    size: int
    used: float


class UnpinnedRelease(NamedTuple):
    """A torch that no image pins: its version or the file of its wheel, an index beside the usual, and its Python."""

    torch: str
    index_url: str
    python: str

    @property
    def requirement(self) -> str:
        """What uv installs."""
        return self.torch if self._is_file else f"torch=={self.torch}"

    @property
    def identity(self) -> tuple[str, ...]:
        """What tells it from another one: of a wheel also its size and time, because a build writes the same name."""
        if not self._is_file:
            return tuple(self)
        status = Path(self.torch).stat()
        return (*self, str(status.st_size), str(status.st_mtime_ns))

    @property
    def _is_file(self) -> bool:
        return self.torch.endswith(".whl")


@dataclass(frozen=True, kw_only=True)
class Environments:
    """The environments in a folder; at most `keep` of them, and at most `limit` bytes, are kept at a time."""

    root: Path
    limit: int = DEFAULT_LIMIT
    keep: int | None = None
    show: Callable[[str], object] = lambda _: None

    @contextlib.contextmanager
    def use(self, image: Image, mixed: Path | None = None) -> Iterator[Interpreter]:
        """Yield the Python of the image's environment, which is made first if it is absent.

        `mixed` is another lock to install instead: the image's with some packages of another image.

        The environment is not removed before this context and every process that inherits the interpreter's lock end.
        Raises EnvironmentUnfitError if the environment cannot be made, or was changed since, and OSError if the folder
        cannot be written.
        """
        name = _folder_name(image, mixed)

        def make(handle: int) -> None:
            self._make_room()
            self._make(image, name, handle, mixed or lock_path(image.name), same=mixed is None)

        with self._present(name, make) as (held, is_new):
            interpreter = Interpreter.of_environment(self.root / name, keep_open=(held,))
            if not is_new and mixed is None:  # else it was checked before it was published
                check_installed(interpreter, image, f"remove it with `recapture images clean {image.name}`")
            yield interpreter

    def has(self, image: Image, mixed: Path | None = None) -> bool:
        """Whether the environment of an image, or of another lock, is there, so that `use` need not make it."""
        has_lock = (mixed or lock_path(image.name)).is_file()
        return has_lock and (self.root / _folder_name(image, mixed)).is_dir()

    @contextlib.contextmanager
    def use_with(self, image: Image, requirements: Requirements, mixed: Path | None = None) -> Iterator[Interpreter]:
        """Yield the Python of the image's environment with further packages, which a layer holds.

        The layer is made first if it is absent; it is kept and removed as an environment is. `mixed` is another lock,
        as in `use`. Raises UsageError if a requirement does not fit the lock, and what `use` raises.
        """
        check_against(image, requirements, mixed)
        digest = requirements.digest(mixed or lock_path(image.name))
        name = f"{image.name}{LAYER}-{digest[:_HASH_DIGITS]}"
        with self.use(image, mixed) as base:

            def make(handle: int) -> None:
                self._make_room(LAYER_BYTES)
                with self._made_layer(image, name, base, requirements, mixed) as partial:
                    put_on_environment(partial, base)
                    if mixed is None:  # a mixed lock belongs to no image
                        changes = f"{requirements.names} changes packages of the image"
                        check_installed(layer_on(base, partial, handle), image, changes)

            with self._present(name, make) as (held, _):
                yield layer_on(base, self.root / name, held)

    @contextlib.contextmanager
    def use_container_layer(self, image: Image, requirements: Requirements, python: str) -> Iterator[Path]:
        """Yield a layer for `python`, the path of the Python in a container's image; it is kept in this context.

        It is made with a Python of the same version of this machine. Raises what `use_with` raises.
        """
        check_against(image, requirements)
        digest = hashlib.sha256(f"{requirements.digest(lock_path(image.name))} {python}".encode()).hexdigest()
        name = f"{image.name}{LAYER}-{digest[:_HASH_DIGITS]}"

        def make(_: int) -> None:
            self._make_room(LAYER_BYTES)
            local = find_python(image.python)
            base = Interpreter.of_environment(local.parent.parent, keep_open=())._replace(python=local)
            with self._made_layer(image, name, base, requirements) as partial:
                put_on_image(partial, self.root / name, python)

        with self._present(name, make):
            yield self.root / name

    @contextlib.contextmanager
    def _present(self, name: str, make: Callable[[int], object]) -> Iterator[tuple[int, bool]]:
        """Hold the shared lock of an environment that is there; `make` makes it if it is absent.

        Yields the lock, and whether the environment was made now. `make` gets the lock of the whole folder. Raises
        EnvironmentUnfitError for a folder that is not to be trusted.
        """
        self.root.mkdir(mode=0o755, parents=True, exist_ok=True)
        # Whoever can write it can exchange what is in it, unless it is sticky as /tmp is.
        check_trusted(self.root.resolve(), sticky=True)
        is_new = False
        while True:
            with locked(self._lock_of(name), wait=True, shared=True) as held:
                if os.path.lexists(self.root / name):
                    check_trusted(self.root / name)
                    os.utime(held)
                    yield held, is_new
                    return
            with self._alone() as handle:
                if not os.path.lexists(self.root / name):
                    make(handle)
                    is_new = True

    @contextlib.contextmanager
    def use_unpinned(self, release: UnpinnedRelease, requirements: Requirements) -> Iterator[Interpreter]:
        """Yield the Python of an environment with a torch that no image pins, and what the requirements name.

        uv chooses every other version as of today. Raises EnvironmentUnfitError, in one line, if it cannot be made.
        """
        name = _unpinned_name(release, requirements)

        def make(handle: int) -> None:
            self._make_room()
            self._make_unpinned(release, requirements, name, handle)

        with self._present(name, make) as (held, _):
            yield Interpreter.of_environment(self.root / name, keep_open=(held,))

    def has_unpinned(self, release: UnpinnedRelease, requirements: Requirements) -> bool:
        """Whether the environment of such a torch is there, so that `use_unpinned` need not make it."""
        return (self.root / _unpinned_name(release, requirements)).is_dir()

    def stored(self) -> list[Stored]:
        """Return the complete environments, and links and files in their place, the least recently used first."""
        environments = []
        for folder in self.root.iterdir() if self.root.is_dir() else ():
            image, _, digits = folder.name.rpartition("-")
            if folder.name.startswith(".") or len(digits) != _HASH_DIGITS:
                continue
            if folder.is_symlink() or not folder.is_dir():  # of no use, but in the way
                environments.append(Stored(image, folder, 0, 0.0))
            else:
                with contextlib.suppress(FileNotFoundError):  # removed by another run
                    lock = self._lock_of(folder.name)
                    used = (lock if lock.is_file() else folder).stat().st_mtime
                    environments.append(Stored(image, folder, _size(folder), used))
        return sorted(environments, key=lambda environment: environment.used)

    def clean(self, images: tuple[str, ...] = ()) -> list[Stored]:
        """Remove the environments of these images, or all, and what interrupted runs left; return those removed.

        An environment that is in use, or that cannot be removed, is kept and shown.
        """
        if not self.root.is_dir():
            return []
        removed = []
        with self._alone():
            for environment in self.stored():
                if images and environment.image.removesuffix(LAYER) not in images:
                    continue
                try:
                    if self._remove(environment):
                        removed.append(environment)
                    else:
                        self.show(f"{environment.image} is in use and was kept")
                except OSError as error:  # of another user
                    self.show(f"{environment.image} was kept: {error.filename}: {error.strerror}")
        return removed

    @contextlib.contextmanager
    def _alone(self) -> Iterator[int]:
        """Hold the lock of the whole folder, without what killed processes left in it."""
        path = self.root / _LOCK
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(path.lstat().st_mode):  # nobody can hold it, and it would be in the way for ever
                _delete(path)
        with contextlib.ExitStack() as stack:
            try:
                handle = stack.enter_context(locked(path, wait=False))
            except LockedError:
                self.show("another run is making an environment: waiting for it")
                handle = stack.enter_context(locked(path, wait=True))
            for unfinished in self.root.glob(f".*{_PARTIAL}"):
                _delete(unfinished)
            for lock in self.root.glob(f"*-*{_LOCK}"):
                if lock.is_symlink() or not lock.is_file():  # nobody can hold it, and it would be in the way for ever
                    _delete(lock)
            yield handle

    def _make_room(self, expected: int | None = None) -> None:
        """Remove the least recently used environments until one more fits, or raise EnvironmentUnfitError.

        `expected` are the bytes of a layer; without it, there must be room for an environment.
        """
        present = self.stored()
        candidates = list(present)
        while why := self._too_full(present, expected):
            if not candidates:
                raise EnvironmentUnfitError(f"no room for another environment in {self.root}: {why}")
            oldest = candidates.pop(0)
            if self._remove(oldest):
                present.remove(oldest)
                self.show(f"removed the environment of {oldest.image}, {oldest.size / 1e9:.1f} GB")

    def _too_full(self, present: list[Stored], layer: int | None = None) -> str:
        """Return why no further environment, or layer of this size in bytes, fits beside these, or an empty string."""
        size = sum(environment.size for environment in present)
        expected = EXPECTED_BYTES if layer is None else layer
        free = shutil.disk_usage(self.root).free
        whole = [environment for environment in present if not environment.image.endswith(LAYER)]
        if self.keep is not None and layer is None and len(whole) >= self.keep:
            return f"{len(whole)} are in use, and --keep allows {self.keep}"
        if present and size + expected > self.limit:
            return f"{size / 1e9:.1f} GB are in use, and RECAPTURE_CACHE_GIB allows {self.limit / 1e9:.1f} GB"
        if free < expected:
            return f"one needs up to {expected / 1e9:.0f} GB, and the disk has {free / 1e9:.1f} GB free"
        return ""

    def _make(self, image: Image, name: str, handle: int, lock: Path, *, same: bool) -> None:
        """Install a lock under a temporary name, check it if it is the same as the image's, and publish it."""
        uv = find_uv("make environments")
        python = find_python(image.python)
        self.show(f"making the environment of {image.name}, 5 to 7 GB, with {python}")
        install = ("sync", "--quiet", "--require-hashes", "--only-binary", ":all:", str(lock))
        with self._published(uv, python, name, handle, install, folder=self.root) as interpreter:
            if same:
                damaged = "the lock or the package index is damaged"
                check_installed(interpreter, image, damaged, "torch", seconds=IMPORT_SECONDS)

    @contextlib.contextmanager
    def _published(
        self, uv: str, python: Path, name: str, handle: int, install: Sequence[str], *, folder: Path
    ) -> Iterator[Interpreter]:
        """Make an environment under a temporary name and install into it; publish it unless the body raises.

        `install` are the words after ``uv pip``, without the Python to install for; uv runs in `folder`.
        """
        started = time.monotonic()
        partial = self.root / f".{name}{_PARTIAL}"
        interpreter = Interpreter.of_environment(partial, keep_open=(handle,))
        variables = {**interpreter.variables, "UV_HTTP_TIMEOUT": os.environ.get("UV_HTTP_TIMEOUT", "300")}
        # Without a cache of the user's choice, wheels are not kept: beside the environments, they would fill the disk.
        variables.setdefault("UV_CACHE_DIR", str(self.root / _WHEELS))
        create = (uv, "venv", "--quiet", "--no-project", "--no-python-downloads", "--relocatable")
        try:
            partial.mkdir(mode=0o700)  # whatever the umask is, nobody else reaches what will be executed
            for words in (
                (*create, "--python", str(python), str(partial)),
                (uv, "pip", install[0], "--python", str(interpreter.python), *install[1:]),
            ):
                run_uv(words, folder=folder, environment=variables, keep_open=(handle,))
            yield interpreter
            self._lock_of(name).touch()  # from now on its time is when the environment was last used
            partial.rename(self.root / name)
        finally:
            for unfinished in (partial, self.root / _WHEELS):
                shutil.rmtree(unfinished, ignore_errors=True)
        self.show(f"made in {time.monotonic() - started:.0f} s, {_size(self.root / name) / 1e9:.1f} GB")

    def _make_unpinned(self, release: UnpinnedRelease, requirements: Requirements, name: str, handle: int) -> None:
        """Install a torch that no image pins, with the requirements, under a temporary name; publish it."""
        uv = find_uv("make environments")
        python = find_python(release.python)
        self.show(f"making an environment of its own for torch {release.torch}, which is not pinned")
        install = ["install", "--quiet", "--prerelease", "if-necessary-or-explicit"]
        install += ["--index", release.index_url] if release.index_url else []
        install += [release.requirement, *(word for path in requirements.files for word in ("-r", str(path)))]
        # From the user's folder, to which a relative path of the requirements leads.
        with self._published(uv, python, name, handle, install, folder=Path.cwd()):
            pass

    @contextlib.contextmanager
    def _made_layer(
        self, image: Image, name: str, base: Interpreter, requirements: Requirements, mixed: Path | None = None
    ) -> Iterator[Path]:
        """Make a layer under a temporary name, yield it to be put on what is below it, and publish it after that."""
        self.show(f"installing {requirements.names} for {image.name}")
        started = time.monotonic()
        partial = self.root / f".{name}{_PARTIAL}"
        variables = dict(base.variables)
        variables.setdefault("UV_CACHE_DIR", str(self.root / _WHEELS))
        try:
            partial.mkdir(mode=0o700)
            build_layer(image, base, requirements, partial, variables, mixed)
            yield partial
            self._lock_of(name).touch()
            partial.rename(self.root / name)
        finally:
            for folder in (partial, self.root / _WHEELS):
                shutil.rmtree(folder, ignore_errors=True)
        self.show(f"installed in {time.monotonic() - started:.0f} s, {_size(self.root / name) / 1e9:.1f} GB")

    def _remove(self, environment: Stored) -> bool:
        """Remove an environment, or a link in its place; return False if it is in use."""
        try:
            with locked(self._lock_of(environment.folder.name), wait=False):
                partial = self.root / f".{environment.folder.name}{_PARTIAL}"
                environment.folder.rename(partial)
                _delete(partial)
        except LockedError:
            return False
        return True

    def _lock_of(self, name: str) -> Path:
        return self.root / f"{name}{_LOCK}"


def _delete(path: Path) -> None:
    """Remove a folder as far as possible, or a link or a file."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)


def _folder_name(image: Image, mixed: Path | None) -> str:
    """Return the name of the folder of an image's environment, or of one with another lock."""
    lock = mixed or lock_path(image.name)
    if not lock.is_file():
        raise UsageError(f"{image.name} has no lock yet: recapture images lock {image.name}")
    return f"{image.name}-{lock_hash(lock).partition(':')[2][:_HASH_DIGITS]}"


def _unpinned_name(release: UnpinnedRelease, requirements: Requirements) -> str:
    """Return the name of the folder of an environment with a torch that no image pins."""
    text = "\n".join([*release.identity, *requirements.identity])
    return f"unpinned-{hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]}"


def _size(folder: Path) -> int:
    """Return the bytes that a folder takes on disk."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += Path(place, name).lstat().st_blocks * 512
    return total
