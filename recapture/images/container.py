"""Runs an image in a hardened container, with streamed output, a deadline, and cleanup.

Results are in a mounted folder of this machine. On an engine that cannot mount one, they are in a volume that is copied
back.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import socket
import tarfile
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

from recapture.base.errors import EnvironmentUnfitError, UsageError, did_you_mean
from recapture.base.option_fields import GIB, MOST_GIB, WEEK, option
from recapture.cases.collection import shipped_groups, shipped_suites
from recapture.images.engine import SETTLE_SECONDS, engine_lost, is_local, reporting
from recapture.machine.pins import can_run_on
from recapture.records.directories import PARTIALS
from recapture.records.record import CONFORMANCE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from typing_extensions import Self

    from recapture.machine.nvidia_gpus import Gpu
    from recapture.machine.pins import Image

    Write = Mapping[str, Callable[[bytes], object]]

RESULTS = "/results"
"""Path of the results folder inside a container."""

CASES = "/cases"
"""Path of the folder with a user's cases inside a container."""

IMAGE_USER = 10001
"""User id of the Dockerfile's user, used if the caller is root, because no case may run as root."""

_SPOOL = 64 << 20
"""Bytes of results kept in memory during copying; larger results go to a temporary file."""


OWNER = "org.recapture.owner"
"""Label of a container with the host and process id of the run that created it."""

_WITHOUT_RESULTS = ("check", "doctor")
"""Names of the commands that write no results."""

_OWN_CODE = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_][\w.]*)")
"""A target of `recapture check`, or its function of inputs."""

_STOP_SECONDS = 10
"""Seconds between the signal that ends a container and the one that kills it."""

_POLL_SECONDS = 0.3
"""Seconds between checks of a container's state."""

_NO_TOOLKIT = (
    "the engine cannot provide NVIDIA GPUs: install nvidia-container-toolkit, run "
    "`nvidia-ctk runtime configure --runtime=docker` and restart Docker"
)


@dataclass(frozen=True, kw_only=True)
class ContainerOptions:
    """The options of a container: `deadline` in seconds, sizes in bytes; without `memory`, all that the engine has."""

    gpus: tuple[str, ...] = option("--gpu", default=(), metavar="all|UUID", help="GPUs for the container, to run on.")
    results: Path = option("--results", default=Path("results"), help="Folder for the results of all images.")
    deadline: float = option(
        "--deadline", default=4 * 3600.0, between=(1, WEEK), help="Seconds that the whole run may take."
    )
    memory: int | None = option(
        "--container-memory",
        default=None,
        unit=GIB,
        between=(0.5, MOST_GIB),
        help="GiB for the whole container. [default: what the engine has]",
    )
    shared_memory: int = 2 * GIB
    scratch: int = 8 * GIB


def check_image_runs_on(image: Image, gpus: tuple[str, ...], present: list[Gpu]) -> None:
    """Raise UsageError for missing GPUs, and EnvironmentUnfitError for GPUs that the image cannot run on.

    `present` are the GPUs of the machine that runs the image. If the driver lists none, ``all`` is left to the engine.
    """
    known = {gpu.uuid: gpu for gpu in present}
    for name in gpus:
        if name != "all" and not present:
            raise EnvironmentUnfitError(f"no GPU {name!r}: no NVIDIA driver of this machine names any GPU")
        if name != "all" and name not in known:
            listed = ", ".join(f"{gpu.uuid} ({gpu.name})" for gpu in present)
            raise UsageError(f"no GPU {name!r}; this machine has {listed}{did_you_mean(name, known)}")
    for gpu in present if "all" in gpus else [known[name] for name in gpus]:
        reason = can_run_on(image, gpu.capability, driver=gpu.driver)
        if reason:
            raise EnvironmentUnfitError(
                f"{image.name} cannot run on {gpu.name}: {reason} (see `recapture images list`)"
            )


def run_image(
    client: Any,
    image: Image,
    arguments: tuple[str, ...],
    options: ContainerOptions,
    write: Write,
    command: str = "run",
) -> int:
    """Run ``recapture COMMAND ARGUMENTS`` in a container of the image and return its exit status.

    `write` maps ``stdout`` and ``stderr``, as far as wanted, to a function that is called with each chunk. Arguments
    that are files or folders of this machine are available in the container, read-only. Raises EnvironmentUnfitError
    if the image is not built, the engine has no NVIDIA toolkit or stops during the run, memory runs out or the deadline
    passes; records up to then are kept.
    """
    results = _results_folder(options.results)
    if options.gpus and not any(word.partition("=")[0] == "--device" for word in arguments):
        arguments = ("--device", "cuda", *arguments)
    with reporting(client, "the container engine stopped answering"):
        digest = image_digest(client, image)
        clear_left_behind(client)
        place = (Mounted if is_local(client) else Copied)(client, results)
    with place, reporting(client, _engine_stopped(options, place)):
        words = [command, *_give_cases(arguments, place)]
        words += [] if command in _WITHOUT_RESULTS else ["--results", RESULTS]
        settings = {
            **_hardening(options),
            "image": digest,
            "name": f"recapture-{uuid.uuid4().hex[:12]}",
            "user": place.user,
            "command": words,
            "environment": {"RECAPTURE_IMAGE_DIGEST": digest},
            "labels": {OWNER: this_process(), **place.labels},
            "mounts": place.mounts,
        }
        return _in_container(client, settings, place, options, write)


def image_digest(client: Any, image: Image) -> str:
    """Return the digest of a built image; raises EnvironmentUnfitError if it is not built."""
    from docker.errors import ImageNotFound

    try:
        return str(client.images.get(image.tag).id)
    except ImageNotFound:
        raise EnvironmentUnfitError(f"{image.name} is not built: recapture images build {image.name}") from None


def _in_container(
    client: Any, settings: dict[str, Any], place: Mounted | Copied, options: ContainerOptions, write: Write
) -> int:
    """Create, start and watch a container, collect its records, and always remove it."""
    container = None
    try:
        container = client.containers.create(**settings)
        place.prepare(container)
        _start(container)
        try:
            return _watch(client, container, options, write)
        finally:
            if not engine_lost(client):
                container.stop(timeout=_STOP_SECONDS)  # has an effect only after an interruption or the deadline
                place.collect(container)
    finally:
        if container is not None:
            with contextlib.suppress(Exception):  # fails if the engine is lost: the next run removes it
                container.remove(force=True, v=True)


def _start(container: Any) -> None:
    from docker.errors import APIError

    try:
        container.start()
    except APIError as error:
        message = " ".join(str(error.explanation).split())
        if "could not select device driver" in message:
            raise EnvironmentUnfitError(_NO_TOOLKIT) from error
        if "nvidia-container-cli" in message:
            raise EnvironmentUnfitError(f"the engine's NVIDIA toolkit refused the GPU: {message}") from error
        raise


def _watch(client: Any, container: Any, options: ContainerOptions, write: Write) -> int:
    """Stream the output until the container ends, and return its exit status; enforces the deadline on this side."""
    # One reader per stream: the SDK's combined reader can lose data sent together with the response header.
    followers = [threading.Thread(target=_follow, args=(container, name, write), daemon=True) for name in write]
    for follower in followers:
        follower.start()
    deadline = time.monotonic() + options.deadline
    while True:
        container.reload()
        if container.status in ("exited", "dead"):
            break
        if time.monotonic() > deadline:
            container.stop(timeout=_STOP_SECONDS)
            raise EnvironmentUnfitError(
                f"stopped at its deadline of {options.deadline:g} s: what was recorded is in {options.results}; "
                "continue with --resume, or raise --deadline"
            )
        time.sleep(_POLL_SECONDS)
    for follower in followers:
        follower.join(SETTLE_SECONDS)
    state = container.attrs["State"]
    if state.get("OOMKilled"):
        raise EnvironmentUnfitError(f"the container ran out of memory; what was recorded is in {options.results}")
    if state["ExitCode"] > 128:
        if engine_lost(client, within=SETTLE_SECONDS):  # it kills its containers before it stops answering
            raise ConnectionError
        raise EnvironmentUnfitError(
            f"the container was killed by signal {state['ExitCode'] - 128}; what was recorded is in {options.results}"
        )
    return int(state["ExitCode"])


def _follow(container: Any, name: str, write: Write) -> None:
    # The output is only shown: if the connection breaks, `_watch` finds the cause.
    with contextlib.suppress(Exception):
        for chunk in container.logs(stream=True, follow=True, **{"stdout": False, "stderr": False, name: True}):
            write[name](chunk)


def _hardening(options: ContainerOptions) -> dict[str, Any]:
    """Return the settings of every run: no network, only /tmp and the results writable, no privileges."""
    from docker.types import DeviceRequest, LogConfig, Ulimit

    settings: dict[str, Any] = {
        "network_mode": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "pids_limit": 8192,
        "init": True,
        "shm_size": options.shared_memory,
        # Executable, because Inductor and triton load compiled code from there.
        "tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={options.scratch}"},  # noqa: S108
        "ulimits": [Ulimit(name="core", soft=0, hard=0)],
        "log_config": LogConfig(type="json-file", config={"max-size": "16m", "max-file": "2"}),
    }
    if options.memory is not None:
        settings["mem_limit"] = options.memory
    if "all" in options.gpus:
        settings["device_requests"] = [DeviceRequest(count=-1, capabilities=[["gpu"]])]
    elif options.gpus:
        settings["device_requests"] = [DeviceRequest(device_ids=list(options.gpus), capabilities=[["gpu"]])]
    return settings


def _give_cases(arguments: tuple[str, ...], place: Mounted | Copied) -> list[str]:
    """Make files and folders of cases available in the container; return the arguments with their paths there."""
    command: list[str] = []
    previous = ""
    suites = {suite.name for suite in shipped_suites()} | shipped_groups().keys()
    for word in arguments:
        target = _OWN_CODE.fullmatch(word)
        if target is not None and Path(target["file"]).is_file():
            file = Path(target["file"]).resolve()
            inside = f"{CASES}/{len(command)}/{file.parent.name or 'root'}"
            place.give(file.parent, inside)  # the modules beside the file may be imported
            command.append(f"{inside}/{file.name}:{target['name']}")
            continue
        name, mark, cell = word.partition("::")
        path = Path(name)
        is_path = not previous.startswith("-k") and (path.suffix == ".py" or os.sep in name)
        # A bare name also counts as a folder, unless it is a suite's name or an option's value.
        is_path = is_path or (path.is_dir() and not previous.startswith("-") and name not in suites)
        if is_path and not name.startswith("-") and path.exists():
            inside = f"{CASES}/{len(command)}/{path.resolve().name}"
            place.give(path.resolve(), inside)
            command.append(f"{inside}{mark}{cell}")
        else:
            command.append(word)
        previous = word
    return command


def _results_folder(results: Path) -> Path:
    try:
        results.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the results folder {results}: {error.strerror}") from error
    if not os.access(results, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write into the results folder {results}")
    return results.resolve()


def this_process() -> str:
    """Return the host and process id of this process, as a label of its containers."""
    return f"{socket.gethostname()}:{os.getpid()}"


def clear_left_behind(client: Any) -> None:
    """Collect and remove containers whose run on this machine has died, as when an engine or client was killed."""
    for container in client.containers.list(all=True, filters={"label": OWNER}, ignore_removed=True):
        host, _, pid = container.labels[OWNER].rpartition(":")
        if host != socket.gethostname() or Path("/proc", pid).exists():
            continue
        container.stop(timeout=_STOP_SECONDS)
        if "org.recapture.results" in container.labels:
            try:
                fetch_results(container, Path(container.labels["org.recapture.results"]))
            except OSError:  # the folder is no longer writable: leave the results in place
                continue
        container.remove(force=True, v=True)


def _engine_stopped(options: ContainerOptions, place: Mounted | Copied) -> str:
    records = (
        f"what was recorded is in {options.results}"
        if isinstance(place, Mounted)
        else f"what was recorded is still there, and the next run brings it to {options.results}"
    )
    return f"the container engine stopped during the run; {records}"


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
        self._sources: list[tuple[Path, str]] = [(results, RESULTS)]
        self.user = f"{IMAGE_USER}:{IMAGE_USER}"
        # Volumes get the owner and mode that these folders have in the image.
        self.mounts = [Mount(RESULTS, None, type="volume"), Mount(CASES, None, type="volume")]
        self.labels = {"org.recapture.results": str(results)}

    def __enter__(self) -> Self:
        return self

    def give(self, source: Path, target: str) -> None:
        """Make a copy of a file or folder of this machine readable in the container at `target`."""
        self._sources.append((source, target))

    def prepare(self, container: Any) -> None:
        """Copy the given files and folders into the container's volumes."""
        for source, target in self._sources:
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
    fetched: dict[Path, set[str]] = {}
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
                fetched.setdefault(path.parent, set()).add(path.name)
    for folder, names in fetched.items():
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
    entries = []
    for path in [folder, *folder.rglob("*")]:
        with contextlib.suppress(FileNotFoundError):  # another run may be cleaning up the same folder
            entries.append((path, path.lstat()))
    return entries
