"""``recapture explain``: says why a cell has its verdict."""

from __future__ import annotations

from pathlib import Path

import click

from recapture.command.in_images import ImageOptions, run_in_images
from recapture.command.options import require_torch, takes
from recapture.command.output import echo, print_json
from recapture.tools.explain.explain_cells import ExplainOptions, explain_cells, recorded_beside

TLPARSE_SECONDS = 120.0
"""Seconds that tlparse may take for one trace."""


@click.command("explain")
@takes(options=ExplainOptions, where=ImageOptions)
@click.option("--json", "as_json", is_flag=True, help="Print the explanations as JSON.")
@click.pass_context
def explain_command(context: click.Context, options: ExplainOptions, where: ImageOptions, *, as_json: bool) -> int:
    """Run cells and say why each has its verdict: graphs, breaks, recompilations, refusals, with the user's lines.

    CELL is SUITE::CASE::COMPILER, such as control_flow::branch_on_sum::jit.trace; SUITE::CASE means all compilers of a
    case, SUITE all cells of a suite. Nothing is recorded. With --debug, the graphs, the generated code and torch's
    trace are left in results/IMAGE/CAPABILITY/debug/, which the report links.
    """
    from recapture.report.run_progress import RunProgress
    from recapture.report.terminal_writer import SafeConsole
    from recapture.tools.explain.explain_cells import explanation_of
    from recapture.tools.explain.explain_report import explanation_lines

    if where.images:
        return run_in_images(context, where, results=options.results, device=options.device)
    require_torch()
    with RunProgress(SafeConsole(stderr=True)) as progress:
        summary, folders = explain_cells(options, progress, lambda text: echo(f"recapture: {text}", err=True))
    for folder in folders.values():
        _parse_trace(folder)
    beside = [*summary.selected, *recorded_beside(options, summary)]
    environment = summary.environment
    explanations = [
        explanation_of(
            record,
            summary.facts.get(record.cell),
            torch=environment.torch.version,
            image=environment.image,
            beside=[other for other in beside if other.case == record.case],
            folder=str(folders[record.cell]) if record.cell in folders else None,
        )
        for record in summary.selected
    ]
    if as_json:
        print_json(explanations)
        return 0
    for number, explanation in enumerate(explanations):
        if number:
            echo("")
        echo("\n".join(explanation_lines(explanation, brief=len(explanations) > 1)))
    return 0


def _parse_trace(folder: Path) -> None:
    """Make tlparse's page of a trace, where tlparse is installed; a trace that it cannot read stays as it is."""
    import shutil
    import subprocess
    import sys
    from pathlib import Path

    from recapture.records.artifact_folders import TRACE

    trace = folder / TRACE
    beside_python = Path(sys.executable).with_name("tlparse")
    program = str(beside_python) if beside_python.is_file() else shutil.which("tlparse")
    if program is None or not trace.is_file() or not trace.stat().st_size:
        return
    try:
        done = subprocess.run(
            [program, str(trace), "--no-browser", "-o", str(folder / "tlparse")],
            capture_output=True,
            timeout=TLPARSE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    if done.returncode:
        echo(f"recapture: tlparse could not read {trace}", err=True)
