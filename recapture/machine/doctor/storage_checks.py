"""Checks of storage: caches, home directory, temporary directory, disk and memory."""

from __future__ import annotations

import ctypes
import getpass
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

from recapture.base.option_fields import GIB
from recapture.machine.doctor.facts import Facts
from recapture.machine.doctor.register import Finding, check, fault, ok, warning

NETWORK_FILESYSTEMS = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "lustre",
        "gpfs",
        "beegfs",
        "ceph",
        "glusterfs",
        "fuse.sshfs",
        "fuse.glusterfs",
    }
)
REFUSED = r"Permission denied|Read-only file system|\[Errno (?:13|30)\]"


@check("user-name", affects="codegen", signature=r"uid not found|No username set in the environment")
def user_name(_facts: Facts) -> Finding:
    """Look up the user's name as Inductor does to name its cache."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        message = f"user id {os.getuid()} has no name and USER is not set"
        if os.environ.get("TORCHINDUCTOR_CACHE_DIR") is not None:
            return ok(f"{message}; not needed, TORCHINDUCTOR_CACHE_DIR is set")
        return fault(message, "set USER, or TORCHINDUCTOR_CACHE_DIR")
    return ok("the user has a name")


@check("temporary-directory", affects="all", signature=r"No usable temporary directory")
def temporary_directory(_facts: Facts) -> Finding:
    """Ask Python for a writable temporary directory."""
    try:
        place = tempfile.gettempdir()
    except FileNotFoundError:
        return fault("no temporary directory can be written", "set TMPDIR to a writable directory")
    if any(char.isspace() for char in place):
        message = f"{place} has a blank in its path, at which Inductor splits the commands that it compiles C++ with"
        return warning(message, "set TMPDIR to a directory whose path has no blank")
    return ok(place)


@check("executable-caches", affects="codegen", signature=r"failed to map segment from shared object")
def executable_caches(facts: Facts) -> Finding:
    """Load a shared library from each directory that compiled code is loaded from."""
    # AOTInductor packages are unpacked into /tmp, regardless of TMPDIR, and loaded from there.
    places = {**facts.caches, "the temporary directory": Path(tempfile.gettempdir()), "/tmp": Path("/tmp")}  # noqa: S108
    sample = _a_shared_library()
    refused = []
    for name, place in places.items():
        existing = _nearest_existing(place)
        # The mount option is not the only obstacle, so a library is loaded as well.
        if os.statvfs(existing).f_flag & os.ST_NOEXEC or (sample is not None and _refuses_to_load(sample, existing)):
            refused.append(f"{name} ({existing})" if name != str(existing) else name)
    if not refused:
        return ok(
            "shared libraries load from "
            + " and ".join(dict.fromkeys(str(_nearest_existing(p)) for p in places.values()))
        )
    fix = "mount it with exec (docker: --tmpfs /tmp:exec), or set TMPDIR and TORCHINDUCTOR_CACHE_DIR to another"
    return fault(f"no shared library loads from {', '.join(refused)}: mounted noexec", fix)


@check("writable-caches", affects="codegen", signature=rf"{REFUSED}|\[Errno 20\]|FileNotFoundError")
def writable_caches(facts: Facts) -> Finding:
    """Write into each directory that compilers use for their output."""
    refused = {name: reason for name, place in facts.caches.items() if (reason := _refuses_to_write(place))}
    if not refused:
        return ok(", ".join(f"{name} is {place}" for name, place in facts.caches.items()))
    message = "; ".join(f"{name} cannot be written: {reason}" for name, reason in refused.items())
    return fault(message, "set TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR to writable directories")


@check("writable-home", affects="codegen", signature=rf"(?:{REFUSED}|FileNotFoundError).*\.(?:triton|cache)\b")
def writable_home(facts: Facts) -> Finding:
    """Write into the home directory, where Triton and torch.hub keep their caches by default."""
    fix = "set HOME to a writable directory"
    try:
        reason = _refuses_to_write(facts.home)
    except RuntimeError as error:  # neither HOME nor the user database names one
        reason = str(error)
    if not reason:
        return ok(f"{facts.home} can be written")
    message = f"the home directory cannot be written: {reason}"
    if facts.device == "cuda" and os.environ.get("TRITON_CACHE_DIR") is None:
        return fault(message, f"{fix}, or set TRITON_CACHE_DIR")
    return warning(message, fix)


@check("cache-on-network", affects="codegen", signature=r"Stale file handle|\[Errno 116\]|\.nfs[0-9a-f]+")
def cache_on_network(facts: Facts) -> Finding:
    """Look up the file system of each cache: network file systems distort compile times, and their locks are unsafe."""
    mounted = {name: _filesystem(_nearest_existing(place)) for name, place in facts.caches.items()}
    remote = [f"{name} is on {kind}" for name, kind in mounted.items() if kind in NETWORK_FILESYSTEMS]
    if remote:
        return warning("; ".join(remote), "set TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR to local directories")
    return ok(", ".join(f"{name} is on {kind}" for name, kind in mounted.items()))


@check(
    "shared-memory", affects="all", signature=r"Bus error|SIGBUS|unable to (?:open|allocate|write to).*shared memory"
)
def shared_memory(_facts: Facts) -> Finding:
    """Measure /dev/shm, which tensors pass through between processes."""
    fix = "give /dev/shm 1 GiB or more (docker: --shm-size 2g)"
    try:
        status = os.statvfs("/dev/shm")  # noqa: S108
    except OSError as error:
        return warning(f"no /dev/shm: {error.strerror}", fix)
    size = status.f_blocks * status.f_frsize
    return ok(_gib(size, "in /dev/shm")) if size >= GIB else warning(_gib(size, "in /dev/shm"), fix)


@check("disk-space", affects="all", signature=r"No space left on device|\[Errno (?:28|122)\]|Disk quota exceeded")
def disk_space(facts: Facts) -> Finding:
    """Measure the free disk space where compilers write; one suite can write two GiB."""
    places = [*facts.caches.values(), Path(tempfile.gettempdir())]
    free = min(shutil.disk_usage(_nearest_existing(place)).free for place in places)
    message = _gib(free, "free for caches and temporary files")
    fix = "free some space, or set TMPDIR and TORCHINDUCTOR_CACHE_DIR to directories on another disk"
    if free < 2 * GIB:
        return fault(message, fix)
    return warning(message, fix) if free < 5 * GIB else ok(message)


@check("memory", affects="all", signature=r"Cannot allocate memory|\[Errno 12\]|Killed signal terminated program")
def memory(_facts: Facts) -> Finding:
    """Measure the available memory, within the container's limit if it has one; one compilation can take a GiB."""
    import psutil

    available = min(int(psutil.virtual_memory().available), _container_headroom())
    message = _gib(available, "of memory available")
    fix = "end other programs, or give this machine or container more memory"
    if available < GIB:
        return fault(message, fix)
    return warning(message, fix) if available < 4 * GIB else ok(message)


def _container_headroom() -> int:
    """Return the bytes that a control group (version 2) still allows; a very large number without a limit."""
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
        counters = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
    except (OSError, ValueError):  # no limit ("max"), or not this kind of control group
        return 2**63
    return limit - used + int(counters.get("inactive_file", 0))  # page cache that the kernel can reclaim


def _nearest_existing(place: Path) -> Path:
    return next(folder for folder in (place, *place.parents) if os.path.exists(folder))  # noqa: PTH110 - Path's own raises


def _refuses_to_write(place: Path) -> str:
    """Return why nothing can be created in a directory or its nearest existing parent; empty if it can."""
    existing = _nearest_existing(place)
    if not existing.is_dir():
        return f"{existing} is not a directory"
    try:
        with tempfile.TemporaryFile(dir=existing):
            return ""
    except OSError as error:
        return f"{existing}: {error.strerror}"


def _a_shared_library() -> Path | None:
    spec = importlib.util.find_spec("msgspec._core")  # a small compiled module that is always installed
    path = spec.origin if spec is not None else None
    return Path(path) if path else None


def _refuses_to_load(sample: Path, directory: Path) -> bool:
    try:
        handle, name = tempfile.mkstemp(dir=directory, suffix=".so")
    except OSError:  # not writable: another check reports it
        return False
    os.close(handle)
    try:
        shutil.copyfile(sample, name)
        ctypes.CDLL(name)
    except OSError as error:
        return "failed to map segment" in str(error)
    finally:
        Path(name).unlink(missing_ok=True)
    return False


def _filesystem(path: Path) -> str:
    """Return the type of the file system that a path is on: that of the deepest, latest mount above it."""
    best, kind = -1, "unknown"
    resolved = path.resolve()
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split()
        point = Path(fields[4].replace("\\040", " "))
        # Of several mounts on one directory the last counts: it hides the others.
        if (point == resolved or point in resolved.parents) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[fields.index("-") + 1]
    return kind


def _gib(size: int, what: str) -> str:
    return f"{size / GIB:.1f} GiB {what}"
