"""The commands, and what tools add to the core: one table of names, so that nothing is imported before it is used.

No module of the core imports a tool, and no tool imports another. Where one of them calls a tool, it asks here for what
has a certain role (`of_tools`). A tool whose folder is absent has no commands and adds nothing.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any, Literal, NamedTuple

from recapture.base.by_name import load, module_of

Group = Literal["Your own code", "The suites", "Results", "Many releases and machines", "This machine"]
"""The headings of the commands in ``recapture --help``, in their order."""


class Command(NamedTuple):
    """One command: where it is, its heading in the help, and its summary there."""

    place: str
    group: Group
    summary: str


COMMANDS = {
    "check": Command(
        "recapture.tools.check.check_command:check_command",
        "Your own code",
        "Compare every compiler with eager on your function or model.",
    ),
    "lint": Command(
        "recapture.tools.lint.lint_command:lint_command",
        "Your own code",
        "Warn about lines recorded as silently wrong, without running them.",
    ),
    "migrate": Command(
        "recapture.tools.check.migrate_command:migrate_command",
        "Your own code",
        "Say what moving it from TorchScript to other compilers takes.",
    ),
    "upgrade": Command(
        "recapture.tools.upgrade.upgrade_command:upgrade_command",
        "Your own code",
        "Run your test suite on several releases, and say what is new.",
    ),
    "drift": Command(
        "recapture.tools.drift.drift_command:drift_command",
        "Your own code",
        "Say whether two releases, devices or compilers give the same numbers.",
    ),
    "list": Command(
        "recapture.command.list:list_command",
        "The suites",
        "List the cases of the suites, the compilers or the claims.",
    ),
    "run": Command(
        "recapture.command.run:run_command",
        "The suites",
        "Run cases with compilers and record a verdict for every cell.",
    ),
    "explain": Command(
        "recapture.tools.explain.explain_command:explain_command",
        "The suites",
        "Run cells and say why each has its verdict.",
    ),
    "stage": Command(
        "recapture.tools.explain.stage_command:stage_command",
        "The suites",
        "Find the guilty stage of wrong or failing cells.",
    ),
    "reduce": Command(
        "recapture.tools.explain.reduce_command:reduce_command",
        "The suites",
        "Reduce a wrong or failing cell to the smallest program.",
    ),
    "repro": Command(
        "recapture.tools.explain.repro_command:repro_command",
        "The suites",
        "Print a cell as a stand-alone script that needs only torch.",
    ),
    "generate": Command(
        "recapture.tools.generate.generate_command:generate_command",
        "The suites",
        "Make programs from torch's operators and compare them with eager.",
    ),
    "bench": Command(
        "recapture.tools.speed.bench_command:bench_command",
        "The suites",
        "Measure the speed of compilers over eager on workloads.",
    ),
    "report": Command(
        "recapture.command.report:report",
        "Results",
        "Render reports from the records.",
    ),
    "diff": Command(
        "recapture.tools.compare.diff_command:diff",
        "Results",
        "Show what changed between two results, cell by cell.",
    ),
    "history": Command(
        "recapture.tools.compare.history_command:history",
        "Results",
        "Show a cell's verdict with every torch release that has results.",
    ),
    "data": Command(
        "recapture.tools.site.data_command:data_command",
        "Results",
        "Write every verdict as one document, packaged for pip and npm.",
    ),
    "site": Command(
        "recapture.tools.site.site_command:site_command",
        "Results",
        "Build the site in which people look up what works since when.",
    ),
    "results": Command(
        "recapture.tools.contribute.results_command:results",
        "Results",
        "Verify results that somebody sends.",
    ),
    "bisect": Command(
        "recapture.tools.upgrade.bisect_command:bisect_command",
        "Many releases and machines",
        "Find the release or package that turned a cell or a command bad.",
    ),
    "matrix": Command(
        "recapture.tools.fleet.matrix_command:matrix_command",
        "Many releases and machines",
        "Run the suites in all images, and continue where it stopped.",
    ),
    "plan": Command(
        "recapture.tools.fleet.plan_command:plan",
        "Many releases and machines",
        "Print the work of a matrix: a task for each image, GPU and part.",
    ),
    "merge": Command(
        "recapture.tools.fleet.merge_command:merge",
        "Many releases and machines",
        "Join the parts of a run into results as of one run.",
    ),
    "images": Command(
        "recapture.command.images:images",
        "Many releases and machines",
        "List, lock, build and run the pinned images.",
    ),
    "doctor": Command(
        "recapture.command.doctor:doctor",
        "This machine",
        "Check this machine for faults that would look like a compiler's.",
    ),
}
"""The commands by name, in the order of the help."""

Role = Literal[
    "additions to run",
    "additions to report",
    "schema",
    "script of a cell",
    "speed of a case",
    "speeds to compare",
    "speed through releases",
]

ROLES: dict[Role, tuple[str, ...]] = {
    # Dataclasses of options, with the method `applied`: see `recapture.command.run`.
    "additions to run": ("recapture.tools.explain.run_options:ExplainOption",),
    # Dataclasses of options, derived from `recapture.command.report_addition.ReportAddition`.
    "additions to report": (
        "recapture.tools.check.report_addition:MovesReport",
        "recapture.tools.speed.report_addition:SpeedReports",
    ),
    # Functions that return the path and the content of a JSON Schema that ships.
    "schema": ("recapture.tools.speed.speedups:shipped_schema",),
    # Functions that print a cell as a script: see `recapture.tools.check.session`.
    "script of a cell": ("recapture.tools.explain.script.printing:script_of_cell",),
    # Functions that time the compilers of a generated case: see `recapture.tools.check.check_command`.
    "speed of a case": ("recapture.tools.speed.case_speeds:speedups_of",),
    # Modules that compare the benchmarks of two results: see `recapture.tools.compare.cell_changes`.
    "speeds to compare": ("recapture.tools.speed.speed_changes",),
    # Functions that return the histories of a workload's speeds: see `recapture.tools.compare.history_command`.
    "speed through releases": ("recapture.tools.speed.speed_history:speed_history",),
}
"""What tools do for the core and for each other: ``module:name``, or a module."""


@cache
def is_there(place: str) -> bool:
    """Whether this installation has the module of a place; the folder of a tool may be absent."""
    try:
        return importlib.util.find_spec(module_of(place)) is not None
    except ModuleNotFoundError:
        return False


def commands() -> dict[str, Command]:
    """Return the commands of this installation."""
    return {name: command for name, command in COMMANDS.items() if is_there(command.place)}


def of_tools(role: Role) -> list[Any]:
    """Return what the tools of this installation do in a role; nothing is imported for any other."""
    return [load(place) for place in ROLES[role] if is_there(place)]
