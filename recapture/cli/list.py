"""``recapture list``: the cases of the suites, or the compilers."""

from __future__ import annotations

import click

from recapture.cli.options import require_torch
from recapture.cli.output import echo

__all__ = ["list_command"]


@click.command("list")
@click.argument("what", nargs=-1, metavar="[SUITE|FILE]...")
@click.option("-k", "keyword", metavar="EXPR", help="Only cases whose suite::name matches: words, and, or, not.")
@click.option("--compilers", "show_compilers", is_flag=True, help="List the compilers instead of the cases.")
def list_command(what: tuple[str, ...], keyword: str | None, show_compilers: bool) -> int:
    """List the cases of the suites, with what each shows."""
    from recapture.conformance.preparation import IMPORTS, collect_suites
    from recapture.declare.collection import find_suites
    from recapture.declare.compilers import builtin_compilers
    from recapture.declare.name_filter import matcher
    from recapture.pool.worker_pool import WorkerPool

    if show_compilers:
        for name, compiler in builtin_compilers().items():
            echo(f"{name:25} {compiler.describe()}")
        return 0
    selection = find_suites(what)
    require_torch()
    matches = matcher(keyword) if keyword else None
    status = 0
    with WorkerPool(device="cpu", jobs=1, imports=IMPORTS) as pool:
        found = collect_suites(pool, selection.suites)
    for info in found:
        if info.error is not None:
            echo(f"recapture: suite {info.name!r} cannot be collected: {info.error}", err=True)
            status = 2
        for case in info.cases:
            address = f"{info.name}::{case.name}"
            if matches is None or matches(address):
                echo(f"{address:45} {case.summary}")
    return status
