"""What a user's pyproject.toml says about the project; a mistake in it is named before anything is installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidName, canonicalize_name
from packaging.version import InvalidVersion, Version

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.text import shorten
from recapture.base.toml_file import load_toml

FILE = "pyproject.toml"
"""The name of the file."""

LONGEST = 100
"""Characters shown of a value that is none."""


class _Project(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    name: str
    version: str = ""
    dynamic: tuple[str, ...] = ()
    requires_python: str = ""
    dependencies: tuple[str, ...] = ()
    optional_dependencies: dict[str, tuple[str, ...]] = {}


class _BuildSystem(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    requires: tuple[str, ...]


class DeclaredProject(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The tables that decide how a project is installed."""

    project: _Project | None = None
    build_system: _BuildSystem | None = None

    def needed(self, extras: Sequence[str]) -> Iterator[str]:
        """Yield the requirements of the project with some of its extras."""
        if self.project is None:
            return
        yield from self.project.dependencies
        chosen = set(map(canonicalize_name, extras))
        for name, lines in self.project.optional_dependencies.items():
            if canonicalize_name(name) in chosen:
                yield from lines

    def check_extras(self, extras: Sequence[str], place: str) -> None:
        """Raise UsageError for an extra that the project does not have, as far as the file lists them."""
        if self.project is None or "optional-dependencies" in self.project.dynamic:
            return
        known = {canonicalize_name(name): name for name in self.project.optional_dependencies}
        for extra in extras:
            if canonicalize_name(extra) not in known:
                raise UsageError(f"{place} has no extra {extra!r}{did_you_mean(extra, known.values())}")


def is_declared(root: Path) -> bool:
    """Whether the file of a folder declares something that can be installed. Raises UsageError for invalid TOML."""
    table = load_toml(root / FILE, "the project", dict) if (root / FILE).is_file() else {}
    return "project" in table or "build-system" in table


def read_project(root: Path) -> DeclaredProject:
    """Return what the file of a folder declares; raises UsageError, naming the file and the field, for a mistake."""
    return load_toml(root / FILE, "the project", _decode) if (root / FILE).is_file() else DeclaredProject()


def _decode(content: dict[str, Any]) -> DeclaredProject:
    declared = msgspec.convert(content, DeclaredProject)
    for field, why in _mistakes(declared):
        raise ValueError(f"{field}: {why}")
    return declared


def _mistakes(declared: DeclaredProject) -> Iterator[tuple[str, str]]:
    """Yield fields with values that no installer accepts, each with the reason."""
    for line in declared.build_system.requires if declared.build_system is not None else ():
        yield from _invalid_requirement("build-system.requires", line)
    project = declared.project
    if project is None:
        return
    try:
        canonicalize_name(project.name, validate=True)
    except InvalidName:
        allowed = "letters, digits, '-', '_' and '.' between letters or digits"
        yield "project.name", f"{shorten(project.name, LONGEST)!r} is not a name of a package, which has {allowed}"
    if project.version:
        try:
            Version(project.version)
        except InvalidVersion:
            yield "project.version", f"{shorten(project.version, LONGEST)!r} is not a version"
    elif "version" not in project.dynamic:
        yield "project.version", "it is missing, and project.dynamic does not have it"
    try:
        SpecifierSet(project.requires_python)
    except InvalidSpecifier:
        yield "project.requires-python", f"{shorten(project.requires_python, LONGEST)!r} is not a set of versions"
    for line in project.dependencies:
        yield from _invalid_requirement("project.dependencies", line)
    for extra, lines in project.optional_dependencies.items():
        for line in lines:
            yield from _invalid_requirement(f"project.optional-dependencies.{extra}", line)


def _invalid_requirement(field: str, line: str) -> Iterator[tuple[str, str]]:
    try:
        Requirement(line)
    except InvalidRequirement as error:
        yield field, f"{shorten(line, LONGEST)!r} is not a requirement: {str(error).splitlines()[0]}"
    except RecursionError:
        yield field, f"{shorten(line, LONGEST)!r} is not a requirement: nested too deeply"
