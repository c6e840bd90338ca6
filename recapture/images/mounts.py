"""Where a container keeps its results while it runs: in a mounted folder of this machine, or a volume copied back."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from recapture.conformance.ledger import PARTIALS
from recapture.results.records import CONFORMANCE

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["IMAGE_USER", "RESULTS", "Copied", "Mounted", "fetch_results"]

RESULTS = "/results"
"""The results folder inside a container."""

CASES = "/cases"
"""The folder of a user's cases inside a container."""

IMAGE_USER = 10001
"""Id of the Dockerfile's user, used where the caller is root: no case may run as root."""

_SPOOL = 64 << 20
"""Bytes of results that are kept in memory while they are copied; more go to a temporary file."""


class Mounted:
    """Results on a local engine: written into the caller's folder by a process with the caller's user id.

    When the caller is root the container runs as the image's user, who owns the folder until the run ends.
    """

    def __init__(self, client: Any, results: Path) -> None:  # noqa: ARG002  (both places are made alike)
        from docker.types import Mount

        self._results = results
        self._owner_changed = os.getuid() == 0
        self.user = f"{IMAGE_USER}:{IMAGE_USER}" if self._owner_changed else f"{os.getuid()}:{os.getgid()}"
        self.mounts = [Mount(RESULTS, str(results), type="bind")]
        self.labels: dict[str, str] = {}

    def __enter__(self) -> Self:
        if self._owner_changed:
            self._owners = {
                # Files of the image's user, left by an interrupted run, go back to root as well.
                path: (0, 0) if status.st_uid == IMAGE_USER else (status.st_uid, status.st_gid)
                for path, status in _tree(self._results)
            }
            for path in self._owners:
                os.chown(path, IMAGE_USER, IMAGE_USER, follow_symlinks=False)
        return self

    def give(self, source: Path, target: str) -> None:
        """Let the container read a file or folder of this machine at `target`."""
        from docker.types import Mount

        self.mounts.append(Mount(target, str(source), type="bind", read_only=True))

    def prepare(self, container: Any) -> None:
        """Do nothing: everything is mounted."""

    def collect(self, container: Any) -> None:
        """Do nothing: results are where they belong."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owner_changed:
            new = self._owners[self._results]
            for path, _ in _tree(self._results):
                os.chown(path, *self._owners.get(path, new), follow_symlinks=False)


class Copied:
    """Results on an engine that cannot mount this machine's folders: kept in a volume there, copied back at the end."""

    def __init__(self, client: Any, results: Path) -> None:
        from docker.types import Mount

        self._client = client
        self._results = results
        # Also without --resume: a run of a selection keeps the rows that are there.
        self._given: list[tuple[Path, str]] = [(results, RESULTS)]
        self.user = f"{IMAGE_USER}:{IMAGE_USER}"
        # Volumes take over the owner and mode that the image gives these folders.
        self.mounts = [Mount(RESULTS, None, type="volume"), Mount(CASES, None, type="volume")]
        self.labels = {"org.recapture.results": str(results)}

    def __enter__(self) -> Self:
        return self

    def give(self, source: Path, target: str) -> None:
        """Let the container read a copy of a file or folder of this machine at `target`."""
        self._given.append((source, target))

    def prepare(self, container: Any) -> None:
        """Copy what was given into the container's volumes."""
        for source, target in self._given:
            archive = io.BytesIO()
            with tarfile.open(fileobj=archive, mode="w") as tar:
                # Below the mount point: its own entry would take the folder's owner and mode away.
                top = RESULTS if target == RESULTS else CASES
                inside = PurePosixPath(target).relative_to(top)
                for path in sorted(source.rglob("*")) if target == RESULTS else [source]:
                    name = inside / path.relative_to(source) if target == RESULTS else inside
                    tar.add(path, arcname=str(name), recursive=target != RESULTS, filter=_as_image_user)
            container.put_archive(top, archive.getvalue())

    def collect(self, container: Any) -> None:
        """Copy the results back, owned by the caller."""
        fetch_results(container, self._results)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the volumes to the container's removal: without names, they go with it."""


def fetch_results(container: Any, results: Path) -> None:
    """Write the files below a container's results folder into `results`; links and devices are left out.

    What an interrupted run had left here, and a finished one has tidied up there, goes.
    """
    brought: dict[Path, set[str]] = {}
    with tempfile.SpooledTemporaryFile(max_size=_SPOOL) as spool:
        stream, _ = container.get_archive(RESULTS)
        for chunk in stream:
            spool.write(chunk)
        spool.seek(0)
        with tarfile.open(fileobj=spool) as tar:
            for member in tar:
                inside = PurePosixPath(member.name).relative_to(PurePosixPath(RESULTS).name)
                content = tar.extractfile(member) if member.isreg() else None
                if content is None or ".." in inside.parts:
                    continue
                path = results / inside
                path.parent.mkdir(parents=True, exist_ok=True)
                partial = path.with_name(f".{path.name}.fetched")
                with content, partial.open("wb") as out:
                    shutil.copyfileobj(content, out)
                partial.replace(path)
                brought.setdefault(path.parent, set()).add(path.name)
    for folder, names in brought.items():
        if CONFORMANCE in names:
            for name in {*PARTIALS} - names:
                (folder / name).unlink(missing_ok=True)


def _as_image_user(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = IMAGE_USER
    member.uname = member.gname = ""
    return member


def _tree(folder: Path) -> list[tuple[Path, os.stat_result]]:
    found = []
    for path in [folder, *folder.rglob("*")]:
        with contextlib.suppress(FileNotFoundError):  # another run of the same folder may be tidying up
            found.append((path, path.lstat()))
    return found
