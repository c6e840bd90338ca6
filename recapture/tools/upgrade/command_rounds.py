"""The rounds of one command in the environments of places: where each is kept, and what makes an earlier one count."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from recapture.base.locks import locked
from recapture.tools.upgrade.compile_counts import Count
from recapture.tools.upgrade.places import Place, Places, sources_digest
from recapture.tools.upgrade.rounds import KEY, Round

_NAME = re.compile(r"(run|again)-\d+(-[0-9a-f]{12})?")


@dataclass(frozen=True, kw_only=True)
class CommandRounds:
    """Runs `words` in the folder `root`; `state` has a folder for each round, `timeout` is in seconds."""

    words: tuple[str, ...]
    root: Path
    state: Path
    places: Places
    timeout: float
    _keys: dict[str, str] = field(default_factory=dict)

    def at(self, place: Place, name: str, *, only: Sequence[str] | None = None, count: tuple[Count, ...] = ()) -> Round:
        """Return a round at a place: of all tests or `only` some, in which `count` is counted.

        `name` is ``run`` or ``again`` with a number. What else decides the outcomes is part of the round's key.
        """
        if place.name not in self._keys:
            # Once, because the command itself may write into its folder.
            parts = [*self.words, str(self.timeout), self.places.key(place), sources_digest(self.root, self.state)]
            self._keys[place.name] = _hash(parts)
        key, folder = self._keys[place.name], name
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
