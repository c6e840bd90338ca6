"""Measures what an upstream issue states: the script's outcome with each backend, and the installation it ran in."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.machine.environment import Environment
from recapture.pool.protocol import Ended
from recapture.records.verdicts import Verdict
from recapture.run import tasks
from recapture.run.preparation import SURVEY_SECONDS
from recapture.tools.explain.script.choice import choose, run

if TYPE_CHECKING:
    from recapture.run.cell import CellResult
    from recapture.tools.explain.reduce.reducing import Reduced, Reduction
    from recapture.tools.explain.script.choice import Standalone
    from recapture.tools.explain.script.script_runs import ScriptEnd

LADDER = ("eager", "aot_eager", "inductor")
"""The backends of `torch.compile` that an issue compares, in the order of their stages."""


class Upstream(NamedTuple):
    """What an issue states about a cell.

    `reduced` is its reduction, if one was asked for. `backends` has how the script ended with each backend, where the
    cell's compiler is `torch.compile`.
    """

    address: str
    device: str
    found: CellResult
    script: Standalone
    backends: tuple[tuple[str, ScriptEnd], ...]
    environment: Environment
    reduced: Reduced | None


def gather(reduction: Reduction, reduced: Reduced | None) -> Upstream:
    """Run what an issue states. Raises UsageError for a cell without a fault, or without any script."""
    if reduced is None:
        program, found, _ = reduction.begin()
    else:
        program, found = reduced.program, reduced.found
    if found.verdict is Verdict.UNSTABLE:
        raise UsageError(f"{reduction.address} is unstable: eager disagrees with itself, so no compiler is at fault")
    script = choose(reduction, program, found)
    if script is None:
        raise UsageError(f"{reduction.address} cannot be printed as a script")
    backends = LADDER if script.has_backends else ()
    outcomes = tuple((name, run(reduction, script.text, name)) for name in backends)
    pool = reduction.runner.pool
    environment = pool.client.run(tasks.ENVIRONMENT, reduction.spec.device, Environment, timeout=SURVEY_SECONDS)
    if isinstance(environment, Ended):
        raise EnvironmentUnfitError("this environment cannot be described")
    return Upstream(reduction.address, reduction.spec.device, found, script, outcomes, environment, reduced)
