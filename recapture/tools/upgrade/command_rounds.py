"""The rounds of one command in the environments of places: where each is kept, and what makes an earlier one count."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from recapture.base.errors import UsageError
from recapture.base.files import read_regular, write_atomically
from recapture.base.locks import locked
from recapture.images.command_container import CommandContainer
from recapture.images.interpreter import Interpreter
from recapture.tools.upgrade.compile_counts import Count
from recapture.tools.upgrade.places import HERE, Place, Places
from recapture.tools.upgrade.rounds import DISCARDED, KEY, Round, RoundResult
from recapture.tools.upgrade.sources import Sources, named_files

_NAME = re.compile(r"(run|again)-\d+(-[0-9a-f]{12})?")

_WRITTEN = "written.json"
"""The file of `state` with the names of the sources that the command itself writes in each run."""


@dataclass(frozen=True, kw_only=True)
class CommandRounds:
    """Runs `words` in the folder `root`; `state` has a folder for each round, `timeout` is in seconds."""

    words: tuple[str, ...]
    root: Path
    state: Path
    places: Places
    timeout: float
    _sources: dict[str, Sources] = field(default_factory=dict)
    """The sources with which each place runs the command."""
    _used: list[Sources] = field(default_factory=list)
    """The sources that results come from, in the order in which they were seen."""
    _written: dict[str, set[str]] = field(default_factory=dict)
    """The sources that the command itself writes in each run at a place, so that they decide nothing."""

    def __post_init__(self) -> None:
        try:
            self._written.update(msgspec.json.decode(read_regular(self.state / _WRITTEN), type=dict[str, set[str]]))
        except (UsageError, ValueError):  # there is none, or a kill cut it
            pass

    def at(self, place: Place, name: str, *, only: Sequence[str] | None = None, count: tuple[Count, ...] = ()) -> Round:
        """Return a round at a place: of all tests or `only` some, in which `count` is counted.

        `name` is ``run`` or ``again`` with a number. What else decides the outcomes is part of the round's key.
        """
        if place.name not in self._sources:
            # Once, because the command itself may write into its folder.
            self._sources[place.name] = self._read()
        folder = f"{name}-{_choice(only, count)[:12]}" if only is not None or count else name
        return Round(
            folder=self.state / re.sub(r"[^\w.+-]", "_", place.name) / folder,
            words=self.words,
            root=self.root,
            timeout=self.timeout,
            key=self._key(place, only, count),
            only=only,
            count=count,
        )

    def _key(self, place: Place, only: Collection[str] | None, count: tuple[Count, ...]) -> str:
        """Return what decides the outcomes of a round at a place."""
        digest = self._sources[place.name].digest(without=self._names_written)
        key = _hash([*self.words, str(self.timeout), self.places.key(place), digest])
        return key + _choice(only, count) if only is not None or count else key

    def read_again(self, place: Place) -> None:
        """Let a place run what the user has edited while its environment was made."""
        now = self._read()
        if self._edits(self._sources[place.name], now):
            self._sources[place.name] = now

    def complete(self, place: Place, round_: Round) -> RoundResult | None:
        """Return the result of a complete round at a place; None if it was not run to its end."""
        result = round_.result()
        if result is not None:
            self._used.append(self._sources[place.name])
        return result

    def run(self, place: Place, round_: Round, interpreter: Interpreter | CommandContainer) -> RoundResult:
        """Run a round at a place. If sources changed meanwhile, it runs once more, with what is there then.

        What is written in that run again, the command itself writes, and it is no edit as long as each run of the whole
        command writes it. No later call takes a round for complete in which something else changed. Raises UsageError
        if pytest ran in another environment.
        """
        round_ = replace(round_, key=self._key(place, round_.only, round_.count))  # an earlier round may have edits
        complete = self.complete(place, round_)
        if complete is not None:
            return complete
        result = round_.run(interpreter)
        if problem := _of_another_python(place, result, interpreter):
            round_.rekey(DISCARDED)
            raise UsageError(problem)
        before, after = self._sources[place.name], self._read()
        if round_.only is None:
            self._note_written(place, self._written.get(place.name, set()) & before.rewritten(after))
        edits = self._edits(before, after)
        if edits:
            round_.rekey(DISCARDED)
            self.places.show(f"{place.name}: runs once more, because {named_files(edits)} changed meanwhile")
            self._sources[place.name] = before = after
            round_ = replace(round_, key=self._key(place, round_.only, round_.count))
            result, after = round_.run(interpreter), self._read()
            again = before.rewritten(after) & set(edits)
            self._note_written(place, self._written.get(place.name, set()) | again)
            edits = self._edits(before, after)
        round_.rekey(DISCARDED if edits else self._key(place, round_.only, round_.count))
        self._used.extend([before, after] if edits else [before])
        return result

    @property
    def _names_written(self) -> set[str]:
        return set().union(*self._written.values())

    def _edits(self, before: Sources, after: Sources) -> list[str]:
        written = self._names_written
        return [name for name in before.edits(after) if name not in written]

    def _note_written(self, place: Place, names: set[str]) -> None:
        """Remember which sources the command itself writes at a place, for later calls as well."""
        if names != self._written.get(place.name, set()):
            self._written[place.name] = names
            write_atomically(self.state / _WRITTEN, msgspec.json.encode(self._written, order="sorted"))

    def _read(self) -> Sources:
        latest = list(self._sources.values())[-1:]
        return Sources.read(self.root, self.state, *latest)

    @property
    def edited(self) -> list[str]:
        """The sources that are not alike for all results, sorted."""
        names = set()
        for before, after in itertools.pairwise(self._used):
            if before is not after:
                names.update(self._edits(before, after))
        return sorted(names)

    @contextmanager
    def held(self, *, again: bool = False) -> Iterator[None]:
        """Keep every other call away from the folder of rounds; with `again`, remove the rounds that are in it.

        Nothing else in the folder is removed: the user may have named one that is not empty.
        """
        with locked(self.state / ".lock", wait=False):
            if again:
                self._written.clear()
                (self.state / _WRITTEN).unlink(missing_ok=True)
            for folder in self.state.glob("*/*") if again else ():
                if _NAME.fullmatch(folder.name) and (folder / KEY).is_file():
                    shutil.rmtree(folder, ignore_errors=True)
            yield


def _of_another_python(place: Place, result: RoundResult, interpreter: Interpreter | CommandContainer) -> str:
    """Return that pytest ran outside the environment of its place, whose torch it does not have; empty if it did not.

    The Python of this process is no such environment: the command may name any other.
    """
    if not isinstance(interpreter, Interpreter) or place.name == HERE or not result.prefix:
        return ""
    if os.path.realpath(result.prefix) == os.path.realpath(interpreter.variables.get("VIRTUAL_ENV", "")):
        return ""
    return (
        f"pytest ran in {result.prefix} and not in the environment of the release: "
        "name pytest itself, without what has an environment of its own, such as `uv run`, tox or nox"
    )


def _choice(only: Collection[str] | None, count: tuple[Count, ...]) -> str:
    return _hash([*count, "", *(only or ())])


def _hash(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()
