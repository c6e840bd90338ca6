"""What a run does before its first cell: collect suites, examine the machine, decide what the server preloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from recapture.base.errors import EnvironmentUnfitError
from recapture.conformance import tasks
from recapture.declare.collection import DYNAMO, SuiteInfo
from recapture.declare.compilers import builtin_compilers
from recapture.machine import doctor  # noqa: TC001 - msgspec resolves annotations at run time
from recapture.machine.environment import Environment  # noqa: TC001 - likewise
from recapture.pool.client import ServerDiedError
from recapture.pool.protocol import Ended
from recapture.pool.worker_pool import cause_of_death

if TYPE_CHECKING:
    from recapture.declare.collection import SuiteFile
    from recapture.pool.worker_pool import WorkerPool

__all__ = ["IMPORTS", "collect_suites", "preload_level", "survey"]

IMPORTS = (tasks.__name__,)
"""Modules that every server of a run imports when it starts."""

COLLECT_SECONDS = 120.0
"""Seconds that importing a suite may take."""

COLLECT_MEMORY = 8 << 30
"""Bytes of memory that importing a suite may take."""

SURVEY_SECONDS = 180.0
"""Seconds that examining the machine may take; initialising a GPU is part of it."""

TORCH_ALONE = frozenset({"eager", "jit.trace", "jit.script", "fx", "fx:concrete_args"})
"""Compilers that need nothing beyond ``import torch``: importing Dynamo takes longer than all their cells."""


class _Survey(msgspec.Struct):
    checks: list[doctor.Check]
    environment: Environment


def collect_suites(pool: WorkerPool, suites: tuple[SuiteFile, ...]) -> list[SuiteInfo]:
    """Collect suites, each in a process of its own: a suite file may do anything when it is imported."""
    found = []
    for suite in suites:
        try:
            where = (suite.name, str(suite.path))
            info = pool.client.run(tasks.COLLECT, where, SuiteInfo, timeout=COLLECT_SECONDS, memory=COLLECT_MEMORY)
        except ServerDiedError:
            pool.restart()
            info = SuiteInfo(suite.name, str(suite.path), error="killed the worker server on import")
        if isinstance(info, Ended):
            info = SuiteInfo(suite.name, str(suite.path), error=f"died on import: {cause_of_death(info)}")
        found.append(info)
    return found


def survey(pool: WorkerPool) -> tuple[list[doctor.Check], Environment]:
    """Examine the machine, in a child: for CUDA that initialises the device."""
    found = pool.client.run(tasks.SURVEY, pool.device, _Survey, timeout=SURVEY_SECONDS)
    if isinstance(found, Ended):
        last = (found.stderr.strip().splitlines() or [cause_of_death(found)])[-1]
        raise EnvironmentUnfitError(f"this environment cannot be examined: {last}")
    return found.checks, found.environment


def preload_level(device: str, modules: list[str], compilers: set[str], *, compiles: bool) -> str:
    """Return how much a server should import for these compilers, and for suites that import these modules.

    `compiles` False means that none of the cells to run generates code, even where suites or compilers could.
    """
    ours = {name: how for name, how in builtin_compilers().items() if name in compilers}
    if ours.keys() <= TORCH_ALONE and DYNAMO not in modules:
        return "bare"
    compiles = compiles and (DYNAMO in modules or any(how.generates_code for how in ours.values()))
    if device != "cpu":
        return "cuda" if compiles else "light"
    if not compiles:
        return "capture"
    return "aoti" if "aoti" in ours else "codegen"
