"""``recapture migrate``: what TorchScript does with a user's code, and what stands in the way of leaving it."""

from __future__ import annotations

import click

from recapture.cases.target import refuse_unknown_name
from recapture.command.options import require_torch, takes
from recapture.command.output import echo, echo_error, print_json
from recapture.tools.check.request import CheckOptions, request_of


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

    from recapture.tools.check.migration import NEXT, TODAY, MigrationReport, lines_in_the_way, migration_text
    from recapture.tools.check.session import CheckEvents, run_check

    request = request_of(target, options)
    refuse_unknown_name(request.place, request.name)
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
