"""``recapture migrate``: what TorchScript does with a user's code, and what stands in the way of leaving it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recapture.command.options import require_torch, takes
from recapture.command.output import echo, echo_error, print_json
from recapture.tools.check.arguments import CheckOptions, refuse_unknown_name, request_of

if TYPE_CHECKING:
    from recapture.tools.check.migration import LineInTheWay
    from recapture.tools.check.obstacles import Obstacle


@click.command("migrate")
@click.argument("target", metavar="TARGET")
@takes(options=CheckOptions)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def migrate_command(target: str, options: CheckOptions, *, as_json: bool) -> None:
    """Say what moving TARGET from TorchScript to torch.compile, torch.export or AOTInductor takes.

    TARGET and its inputs are written as for recapture check, and derived in the same way. The answer names the lines
    that a compiler refuses or breaks the graph at, and the rewrites that the collection has for them.
    """
    import dataclasses

    import msgspec

    from recapture.tools.check.migration import NEXT, TODAY, MigrationReport
    from recapture.tools.check.migration_report import migration_text
    from recapture.tools.check.session import CheckEvents, run_check

    request = request_of(target, options)
    refuse_unknown_name(request)
    require_torch()
    options = dataclasses.replace(options, compilers=options.compilers or (*TODAY, *NEXT))
    events = CheckEvents(
        finished=lambda row: echo_error(f"{row.compiler}: {row.words}"), warn=echo_error, obstacles=True
    )
    outcome = run_check(request, options, events)
    left = TODAY if any(row.compiler not in TODAY for row in outcome.report.rows) else ()
    report = MigrationReport(report=outcome.report, lines=lines_in_the_way(outcome.obstacles, left))
    if as_json:
        data = {"sentence": report.sentence, **msgspec.to_builtins(report)}
        print_json(data)
    else:
        echo(migration_text(report))


def lines_in_the_way(obstacles: tuple[Obstacle, ...], left: tuple[str, ...] = ()) -> tuple[LineInTheWay, ...]:
    """Return obstacles by line, in the order of the source; those without a line come last.

    A line that stops only compilers which the code leaves is in nobody's way.
    """
    from recapture.tools.check.migration import LineInTheWay, hints

    places: dict[tuple[str, int, str], list[Obstacle]] = {}
    for obstacle in obstacles:
        places.setdefault((obstacle.file, obstacle.line, obstacle.text), []).append(obstacle)
    lines = []
    for (file, line, text), group in sorted(places.items(), key=lambda item: (not item[0][0], item[0])):
        if all(obstacle.compiler in left for obstacle in group):
            continue
        reasons: dict[str, list[str]] = {}
        for obstacle in group:
            reasons.setdefault(obstacle.reason, []).append(f"{obstacle.compiler} {KINDS[obstacle.kind]}")
        rewrites = [hint for obstacle in group for hint in hints(obstacle.reason, text, obstacle.following)]
        lines.append(
            LineInTheWay(
                file=file,
                line=line,
                text=text,
                reasons=tuple((", ".join(dict.fromkeys(names)), reason) for reason, names in reasons.items()),
                rewrites=tuple(dict.fromkeys(rewrites)),
            )
        )
    return tuple(lines)


KINDS = {"refused": "refuses it", "break": "breaks the graph", "constant": "records a constant"}
"""What happens at an obstacle, in words."""
