"""Where a container writes its results: a mounted folder of this machine, or a volume that is copied back."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

from recapture.records.directories import PARTIALS
from recapture.records.record import CONFORMANCE

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

RESULTS = "/results"
"""Path of the results folder inside a container."""

CASES = "/cases"
"""Path of the folder with a user's cases inside a container."""

IMAGE_USER = 10001
"""User id of the Dockerfile's user, used if the caller is root, because no case may run as root."""

_SPOOL = 64 << 20
"""Bytes of results kept in memory during copying; larger results go to a temporary file."""


class Mounted:
    """Results on a local engine: written into the caller's folder by a process with the caller's user id.

    If the caller is root, the container runs as the image's user, who owns the folder until the run ends.
    """

    def __init__(self, client: Any, results: Path) -> None:  # noqa: ARG002  (same signature as Copied)
        from docker.types import Mount

        self._results = results
        self._owner_changed = os.getuid() == 0
        self.user = f"{IMAGE_USER}:{IMAGE_USER}" if self._owner_changed else f"{os.getuid()}:{os.getgid()}"
        self.mounts = [Mount(RESULTS, str(results), type="bind")]
        self.labels: dict[str, str] = {}

    def __enter__(self) -> Self:
        if self._owner_changed:
            self._owners = {
                # This also returns files that an interrupted run left to the image's user.
                path: (0, 0) if status.st_uid == IMAGE_USER else (status.st_uid, status.st_gid)
                for path, status in _tree(self._results)
            }
            for path in self._owners:
                os.chown(path, IMAGE_USER, IMAGE_USER, follow_symlinks=False)
        return self

    def give(self, source: Path, target: str) -> None:
        """Make a file or folder of this machine readable in the container at `target`."""
        from docker.types import Mount

        self.mounts.append(Mount(target, str(source), type="bind", read_only=True))

    def prepare(self, container: Any) -> None:
        """Do nothing: everything is mounted."""

    def collect(self, container: Any) -> None:
        """Do nothing: results are already in place."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owner_changed:
            new = self._owners[self._results]
            for path, _ in _tree(self._results):
                os.chown(path, *self._owners.get(path, new), follow_symlinks=False)


class Copied:
    """Results on an engine that cannot mount this machine's folders: kept in a volume and copied back at the end."""

    def __init__(self, client: Any, results: Path) -> None:
        from docker.types import Mount

        self._client = client
        self._results = results
        # Also without --resume, because a run of a selection keeps existing rows.
        self._given: list[tuple[Path, str]] = [(results, RESULTS)]
        self.user = f"{IMAGE_USER}:{IMAGE_USER}"
        # Volumes get the owner and mode that these folders have in the image.
        self.mounts = [Mount(RESULTS, None, type="volume"), Mount(CASES, None, type="volume")]
        self.labels = {"org.recapture.results": str(results)}

    def __enter__(self) -> Self:
        return self

    def give(self, source: Path, target: str) -> None:
        """Make a copy of a file or folder of this machine readable in the container at `target`."""
        self._given.append((source, target))

    def prepare(self, container: Any) -> None:
        """Copy the given files and folders into the container's volumes."""
        for source, target in self._given:
            archive = io.BytesIO()
            with tarfile.open(fileobj=archive, mode="w") as tar:
                # Only entries below the mount point: its own entry would overwrite the folder's owner and mode.
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
        """Do nothing: anonymous volumes are removed with the container."""


def fetch_results(container: Any, results: Path) -> None:
    """Write the files below a container's results folder into `results`, without links and devices.

    Files of an interrupted run that the finished run has removed in the container are removed here, too.
    """
    brought: dict[Path, set[str]] = {}
    with tempfile.SpooledTemporaryFile(max_size=_SPOOL) as spool:
        stream, _ = container.get_archive(RESULTS)
        for chunk in stream:
            spool.write(chunk)
        spool.seek(0)
        with tarfile.open(fileobj=spool) as tar:
            for member in tar:
                top, *inside = PurePosixPath(member.name).parts or ("",)
                content = tar.extractfile(member) if member.isreg() else None
                if content is None or top != PurePosixPath(RESULTS).name or not inside or ".." in inside:
                    continue
                path = results.joinpath(*inside)
                path.parent.mkdir(parents=True, exist_ok=True)
                _replace(path, content)
                brought.setdefault(path.parent, set()).add(path.name)
    for folder, names in brought.items():
        if CONFORMANCE in names:
            for name in {*PARTIALS} - names:
                (folder / name).unlink(missing_ok=True)


def _replace(path: Path, content: IO[bytes]) -> None:
    """Replace a file in one step; the new file's name is random, because a case could plant a link under any other."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".fetched-")
    try:
        with content, os.fdopen(handle, "wb") as out:
            umask = os.umask(0)
            os.umask(umask)
            os.fchmod(out.fileno(), 0o666 & ~umask)  # mkstemp's 0600 would hide results from other users
            shutil.copyfileobj(content, out)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _as_image_user(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = IMAGE_USER
    member.uname = member.gname = ""
    return member


def _tree(folder: Path) -> list[tuple[Path, os.stat_result]]:
    found = []
    for path in [folder, *folder.rglob("*")]:
        with contextlib.suppress(FileNotFoundError):  # another run may be cleaning up the same folder
            found.append((path, path.lstat()))
    return found
