"""``environment.json``: every fact about the machine and installation that may affect a verdict or a figure.

Results are published, so no host names, user names or absolute paths are recorded.

Some facts are volatile: they can differ between machines or runs with the same packages. Examples are the CPU's model,
the kernel, the git revision, and whether recapture is installed or runs from its checkout. If a run produces exactly
the records already on file, and only volatile facts differ (`only_volatile_differ`), the finished files are left
unchanged and keep describing the run that first produced these records. So repeating committed results on a second
machine shows no change in git unless the results have changed.

History of the file format, newest first (``SCHEMA_VERSION``):

1. first version.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from recapture.base.decode import Count, Format
from recapture.base.escape import indented_json
from recapture.base.files import is_file_name, write_atomically
from recapture.base.scrub import without_paths, without_secrets
from recapture.base.text import shorten
from recapture.machine.doctor.register import Check
from recapture.machine.hardware import CpuInfo, GpuInfo

SCHEMA_VERSION: Literal[1] = 1
Flag = str | int | bool

OWN_PACKAGES = frozenset(
    {
        "click",
        "cloudpickle",
        "markdown-it-py",
        "mdurl",
        "msgspec",
        "nvidia-ml-py",
        "packaging",
        "psutil",
        "pygments",
        "recapture",
        "rich",
        "tabulate",
        "tomli",
        "uv",
    }
)
"""Packages that recapture needs and torch does not: they run this tool, not what it measures."""

TEST_PACKAGES = frozenset(
    {"coverage", "execnet", "iniconfig", "pluggy", "pytest", "pytest-cov", "pytest-timeout", "pytest-xdist"}
)
"""Packages that run tests: they may be installed beside torch, and no case imports them."""

DECISIVE = (
    "schema",
    "image",
    "lock_hash",
    "lock_mismatches",
    "capability",
    "device",
    "planned",
    "recorded",
    "selection",
    "judge",
)
"""The fields of an environment, beside packages, suites and doctor, that are not volatile."""

ENVIRONMENT = "environment.json"


class Origin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine and a revision of the suites; `cells` is the number of rows measured there. None means unknown."""

    cpu: str | None
    instructions: str | None
    gpu: str | None
    platform: str
    cxx: str | None
    suite_commit: str | None
    cells: Count = 0


class TorchInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The torch build. The git revision and architectures distinguish wheels of the same version."""

    version: str
    cuda: str | None
    cudnn: str | None
    git_version: str | None
    arch_list: list[str]


class SuiteEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One suite of a run and its number of cases; `error` says why it could not be collected."""

    name: str
    cases: Count
    error: str | None = None


class Environment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of ``environment.json``; the run fills in the last group of fields.

    `image` is the name that results are filed under. `image_digest` is ``bare`` outside a container image. `lock_hash`
    is the hash of the lock that the packages match; if they match none, `lock_mismatches` lists the differences from
    the nearest. `capability` is ``cpu`` or a GPU's, such as ``sm_90``. `worker` is ``fork`` or ``fresh``, with the
    reason. `planned` and `recorded` count cells. `selection` is the selection given on the command line, `doctor` the
    checks that are not ok. `origins` says by id where the rows were measured, because some may be
    of earlier runs. Older files do not have it. `judge` is the version of the judge, the oldest if some rows are of
    earlier runs; files of its version 1 do not have it.
    """

    schema: Literal[1] = SCHEMA_VERSION
    image: str
    image_digest: str
    lock_hash: str | None
    lock_mismatches: list[str]
    capability: str
    device: str
    packages: dict[str, str]
    python: str
    platform: str
    libc: str | None
    torch: TorchInfo
    gpu: GpuInfo | None
    cpu: CpuInfo
    flags: dict[str, Flag]
    compilers: dict[str, str | None]
    suite_commit: str | None
    worker: str | None = None
    planned: Count | None = None
    recorded: Count | None = None
    suites: list[SuiteEntry] = []
    selection: list[str] = []
    doctor: list[Check] = []
    origins: dict[str, Origin] = {}
    judge: Count | None = None

    @property
    def judge_version(self) -> int:
        """The version of the judge that gave the verdicts."""
        return 1 if self.judge is None else self.judge


def differences(before: Environment, now: Environment) -> str:
    """Return how two installations differ, in words; empty where their results may stand in one table.

    Of Python the minor version counts, as it does for an image. `OWN_PACKAGES` do not count: recapture may be installed
    or run from its checkout, and its requirements may change. `TEST_PACKAGES` do not count either.
    """
    changes = [] if _minor(before.python) == _minor(now.python) else ["python"]
    changes += [] if before.torch == now.torch else ["torch"]
    for name in sorted((before.packages.keys() | now.packages.keys()) - OWN_PACKAGES - TEST_PACKAGES):
        was, has = (environment.packages.get(name, "absent") for environment in (before, now))
        if was != has:
            changes.append(f"{name} {was}, now {has}")
    # The message is one line: the first changes are enough to say that the installations differ.
    return ", ".join(changes[:3]) + (f" and {len(changes) - 3} more" if len(changes) > 3 else "")


def _minor(python: str) -> str:
    """Return Python's minor version, such as ``3.11``."""
    return ".".join(python.split(".")[:2])


def only_volatile_differ(before: Environment, now: Environment) -> bool:
    """Whether two runs used the same packages and ran the same selection, so that one file can describe both.

    This compares the installation (`differences`), the fields in `DECISIVE`, the suites, and which of the doctor's
    checks were not ok. It ignores the texts of checks, which may contain varying values such as free space.
    """

    def checks(environment: Environment) -> list[tuple[str, str]]:
        return [(check.name, check.status) for check in environment.doctor]

    before, now = without_private_paths(before), without_private_paths(now)
    return (
        not differences(before, now)
        and all(getattr(before, name) == getattr(now, name) for name in DECISIVE)
        and before.suites == now.suites
        and checks(before) == checks(now)
    )


def origin_of(environment: Environment) -> Origin:
    """Return where a run with this environment measures."""
    return Origin(
        cpu=environment.cpu.model,
        instructions=environment.cpu.instructions,
        gpu=environment.gpu.name if environment.gpu else None,
        platform=environment.platform,
        cxx=environment.compilers.get("c++"),
        suite_commit=environment.suite_commit,
    )


def without_private_paths(environment: Environment) -> Environment:
    """Return an environment without secrets and absolute paths, which contain user names, in what a run filled in."""

    def public(text: str) -> str:
        return without_paths(without_secrets(text))

    return msgspec.structs.replace(
        environment,
        suites=[
            msgspec.structs.replace(suite, error=suite.error and public(suite.error)) for suite in environment.suites
        ],
        selection=[public(word) for word in environment.selection],
        doctor=[
            msgspec.structs.replace(check, found=public(check.found), mend=public(check.mend))
            for check in environment.doctor
        ],
    )


def write_environment(path: Path, environment: Environment) -> None:
    """Write an environment as indented JSON, atomically, without private paths."""
    public = without_private_paths(environment)
    write_atomically(path, indented_json(public).encode())


def read_environment(path: Path) -> Environment:
    """Read ``environment.json``, given its path or that of its directory.

    Raises UsageError, naming the file and the field, if this version does not understand the content.
    """
    return _FORMAT.read(path / ENVIRONMENT if path.is_dir() else path)


def _check_names(environment: Environment) -> None:
    """Raise ValueError, naming the field, for a name that is no file name.

    Results are filed under these two: as parts of a path they could lead out of the folder of results.
    """
    for name in ("image", "capability"):
        text = getattr(environment, name)
        if not is_file_name(text):
            raise ValueError(f"`{name}` is {shorten(repr(text), 60)}, which is not a name of a folder")


_FORMAT = Format(Environment, "environment", SCHEMA_VERSION, _check_names)


def id_of(origin: Origin) -> str:
    """Return the id of an origin, eight hexadecimal digits: equal facts have the same one, whatever `cells` is."""
    # The number of rows grows during a run, in which the id has to stay.
    facts = msgspec.json.encode(msgspec.structs.replace(origin, cells=0))
    return hashlib.sha256(facts).hexdigest()[:8]


def counted(known: Mapping[str, Origin], ids: Iterable[str | None]) -> dict[str, Origin]:
    """Return the origins that rows have, each with its number of rows; `ids` has the id of each row."""
    rows = Counter(ids)
    return {name: msgspec.structs.replace(known[name], cells=rows[name]) for name in sorted(known) if rows[name]}
