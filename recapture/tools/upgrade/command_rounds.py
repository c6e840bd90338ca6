"""The rounds of one command in the environments of places: where each is kept, and what makes an earlier one count."""

from __future__ import annotations

import hashlib
import itertools
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from recapture.base.locks import locked
from recapture.images.command_container import CommandContainer
from recapture.images.interpreter import Interpreter
from recapture.tools.upgrade.compile_counts import Count
from recapture.tools.upgrade.places import Place, Places
from recapture.tools.upgrade.rounds import KEY, Round, RoundResult
from recapture.tools.upgrade.sources import Sources

_NAME = re.compile(r"(run|again)-\d+(-[0-9a-f]{12})?")


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

    def at(self, place: Place, name: str, *, only: Sequence[str] | None = None, count: tuple[Count, ...] = ()) -> Round:
        """Return a round at a place: of all tests or `only` some, in which `count` is counted.

        `name` is ``run`` or ``again`` with a number. What else decides the outcomes is part of the round's key.
        """
        if place.name not in self._sources:
            # Once, because the command itself may write into its folder.
            self._sources[place.name] = self._read()
        digest = self._sources[place.name].digest
        key, folder = _hash([*self.words, str(self.timeout), self.places.key(place), digest]), name
        if only is not None or count:
            choice = _hash([*count, "", *(only or ())])
            key, folder = key + choice, f"{name}-{choice[:12]}"
        return Round(
            folder=self.state / re.sub(r"[^\w.+-]", "_", place.name) / folder,
            words=self.words,
            root=self.root,
            timeout=self.timeout,
            key=key,
            only=only,
            count=count,
        )

    def read_again(self, place: Place) -> None:
        """Let a place run what the user has edited while its environment was made."""
        now = self._read()
        if self._sources[place.name].edits(now):
            self._sources[place.name] = now

    def complete(self, place: Place, round_: Round) -> RoundResult | None:
        """Return the result of a complete round at a place; None if it was not run to its end."""
        result = round_.result()
        if result is not None:
            self._used.append(self._sources[place.name])
        return result

    def run(self, place: Place, round_: Round, interpreter: Interpreter | CommandContainer) -> RoundResult:
        """Run a round at a place. No later call takes it for complete if the user has edited the sources meanwhile."""
        complete = self.complete(place, round_)
        if complete is not None:
            return complete
        result = round_.run(interpreter)
        before, now = self._sources[place.name], self._read()
        self._used.append(before)
        if before.edits(now):
            self._used.append(now)
            round_.discard()
        return result

    def _read(self) -> Sources:
        latest = list(self._sources.values())[-1:]
        return Sources.read(self.root, self.state, *latest)

    @property
    def edited(self) -> list[str]:
        """The sources that are not alike for all results, sorted."""
        names = set()
        for before, after in itertools.pairwise(self._used):
            if before is not after:
                names.update(before.edits(after))
        return sorted(names)

    @contextmanager
    def held(self, *, again: bool = False) -> Iterator[None]:
        """Keep every other call away from the folder of rounds; with `again`, remove the rounds that are in it.

        Nothing else in the folder is removed: the user may have named one that is not empty.
        """
        with locked(self.state / ".lock", wait=False):
            for folder in self.state.glob("*/*") if again else ():
                if _NAME.fullmatch(folder.name) and (folder / KEY).is_file():
                    shutil.rmtree(folder, ignore_errors=True)
            yield


def _hash(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()
