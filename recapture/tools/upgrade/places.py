"""Where a command runs: releases of torch, each with the user's requirements and project on top."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.version import InvalidVersion, Version

from recapture.base.errors import UsageError
from recapture.base.files import write_atomically
from recapture.images.command_container import CommandContainer, use_container
from recapture.images.environments import Environments, UnpinnedRelease, environments_folder, size_limit
from recapture.images.interpreter import Interpreter
from recapture.images.requirements import Requirements
from recapture.images.uv import find_uv, run_uv
from recapture.machine.pins import Image, find_release, find_releases, load_images, lock_path, read_lock
from recapture.tools.upgrade.declared_project import FILE, DeclaredProject, is_declared, read_project
from recapture.tools.upgrade.sources import Sources

HERE = "here"
"""The name of the Python that runs recapture, as a place."""

Install = Literal["editable", "wheel", "no"]
"""How the project of the current folder is installed."""

Via = Literal["venv", "docker"]
"""An environment on this machine, or a container."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """An environment: that of an image, perhaps with a mixed lock, of a torch that no image pins, or this Python."""

    name: str
    image: Image | None = None
    mixed: Path | None = None
    unpinned: UnpinnedRelease | None = None

    @property
    def lock(self) -> Path | None:
        """The lock that the environment is made from; None if there is none."""
        return self.mixed or (lock_path(self.image.name) if self.image is not None else None)

    @property
    def packages(self) -> dict[str, str]:
        """The versions that the lock names; none if there is no lock."""
        return read_lock(self.lock) if self.lock is not None else {}

    @property
    def pinned(self) -> bool:
        """Whether a lock names every package of it."""
        return self.image is not None


def find_places(text: str, index: str = "") -> tuple[Place, ...]:
    """Return the places of a list such as ``2.6.0,2.11.0``, ``all`` or ``here``, in the order given, each once.

    What no image has is a torch of its own if it is the file of a wheel, or if an `index` is named that may have it.
    """
    if text.strip() == "all":
        return tuple(place_of(image) for image in find_releases("all"))
    places = [_find_place(name.strip(), index) for name in text.split(",")]
    return tuple({place.name: place for place in places}.values())


def place_of(image: Image) -> Place:
    """Return the place of an image, named after its torch where that is clear."""
    return Place(name=image.torch if image.drifted_from is None else image.name, image=image)


def _find_place(name: str, index: str) -> Place:
    if name == HERE:
        return Place(name=HERE)
    *_, newest = (image for image in load_images().values() if image.drifted_from is None)
    if name.endswith(".whl"):
        path = Path(name)
        if not path.is_file():
            raise UsageError(f"no file {name}")
        return Place(name=path.name, unpinned=UnpinnedRelease(str(path.absolute()), index, newest.python))
    try:
        return place_of(find_release(name))
    except UsageError as error:
        try:
            Version(name)
        except InvalidVersion:
            raise error from None
        if not index:
            raise UsageError(f"{error}; for another torch, name an index that has it with --index") from None
        return Place(name=name, unpinned=UnpinnedRelease(name, index, newest.python))


@dataclass(frozen=True, kw_only=True)
class Places:
    """Makes the environments of places; `requirements` are installed on top of each.

    `via` says whether an environment is on this machine or a container.
    """

    requirements: Requirements
    via: Via = "venv"
    keep: int | None = None
    show: Callable[[str], object] = lambda _: None

    @property
    def environments(self) -> Environments:
        """The environments of all places but this Python's."""
        return Environments(root=environments_folder(), limit=size_limit(), keep=self.keep, show=self.show)

    def has(self, place: Place) -> bool:
        """Whether the environment of a place is there; what the requirements add to it is small."""
        if place.unpinned is not None:
            return self.environments.has_unpinned(place.unpinned, self.requirements)
        return place.image is None or self.environments.has(place.image, place.mixed)

    @contextlib.contextmanager
    def interpreter(self, place: Place) -> Iterator[Interpreter | CommandContainer]:
        """Yield the Python of a place, or its container. Raises what says why it cannot be made."""
        if self.via == "docker":
            if place.image is None or place.mixed is not None:
                raise UsageError(f"--via docker is for releases that have an image, and {place.name} has none")
            with use_container(self.environments, place.image, self.requirements) as container:
                yield container
            return
        if place.image is None and place.unpinned is None:
            yield Interpreter.here()
            return
        with contextlib.ExitStack() as stack:
            if place.unpinned is not None:
                yield stack.enter_context(self.environments.use_unpinned(place.unpinned, self.requirements))
            elif place.image is not None and self.requirements.files:
                yield stack.enter_context(self.environments.use_with(place.image, self.requirements, place.mixed))
            elif place.image is not None:
                yield stack.enter_context(self.environments.use(place.image, place.mixed))

    def key(self, place: Place) -> str:
        """Return a hash of what decides which packages a place has."""
        if place.lock is not None:
            digest = self.requirements.digest(place.lock)
            return digest if self.via == "venv" else f"{digest} {self.via}"
        text = [*(place.unpinned.identity if place.unpinned else (sys.executable,)), *self.requirements.identity]
        return hashlib.sha256("\n".join(text).encode()).hexdigest()


# --- the project of the current folder -------------------------------------------------------------------------------


def project_requirements(
    root: Path,
    state: Path,
    files: Sequence[Path],
    words: Sequence[str],
    *,
    install: Install | None = None,
    extras: Sequence[str] = (),
) -> Requirements:
    """Return the requirements of a command: the user's files, the project in `root`, and pytest where it is called.

    Without `install`, a project that can be installed is installed as editable. `state` is a folder for what this
    writes. Raises UsageError for what is no requirement.
    """
    stated = Requirements.read(files)
    installable = is_declared(root) or (root / "setup.py").is_file()
    if install in ("editable", "wheel") and not installable:
        raise UsageError(f"{root} has no pyproject.toml with a project and no setup.py to install")
    if extras and not installable:
        raise UsageError("--extra is for a project that is installed")
    declared = DeclaredProject()
    lines: list[str] = []
    if installable and install != "no":
        declared = read_project(root)
        declared.check_extras(extras, str(root / FILE))
        chosen_extras = f"[{','.join(extras)}]" if extras else ""
        if install == "wheel":
            lines.append(f"{_wheel(root, state)}{chosen_extras}")
        else:
            lines.append(f"-e {root}{chosen_extras}")
    named = {requirement.name.lower() for _, requirement in stated.named()}
    if _calls_pytest(words) and "pytest" not in named:
        lines.append("pytest")
    if not lines:
        return stated
    state.mkdir(parents=True, exist_ok=True)
    path = state / "project.txt"
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode())
    # What the project requires decides what is installed, and stands in these files.
    digest = hashlib.sha256(b"".join(_content(root / name) for name in (FILE, "setup.py", "setup.cfg")))
    rows = [*((path, line) for line in lines), *((root / FILE, line) for line in declared.needed(extras))]
    if installable and install != "no":
        rows.append((path, f"-e {root} of {digest.hexdigest()}"))
    label = "the project" if installable and install != "no" else "pytest"
    return Requirements((*stated.files, path), (*stated.lines, *rows), ((path, label),))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _calls_pytest(words: Sequence[str]) -> bool:
    """Whether a command line starts pytest itself."""
    programs = [Path(word).name for word in words[:4]]
    return any(re.fullmatch(r"(py\.?test)", program) for program in programs)


def _wheel(root: Path, state: Path) -> Path:
    """Return a wheel of the project as it is now, built by uv."""
    folder = state / f"wheel-{Sources.read(root).digest()[:12]}"
    if not list(folder.glob("*.whl")):
        folder.mkdir(parents=True, exist_ok=True)
        words = (find_uv("build the project"), "build", "--wheel", "--out-dir", str(folder), str(root))
        run_uv(words, folder=root, environment=os.environ)
    (path,) = folder.glob("*.whl")
    return path
