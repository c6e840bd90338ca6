"""``recapture generate``: programs that nobody wrote, compared with eager under every compiler."""

from __future__ import annotations

from pathlib import Path

import click

from recapture.base.errors import UsageError
from recapture.command.options import PathParameter, console, json_flag, require_torch, takes
from recapture.command.output import echo, echo_error, print_json, write_beside
from recapture.tools.generate.generate_options import GenerateOptions


@click.command("generate")
@takes(options=GenerateOptions)
@click.option("--keep", metavar="FINDING", help="Generate nothing: add this finding of FOLDER to --suite as a case.")
@click.option("--suite", type=PathParameter(), metavar="FILE", help="With --keep: the file of cases.")
@json_flag
def generate_command(options: GenerateOptions, *, keep: str | None, suite: Path | None, as_json: bool) -> int:
    """Make programs from torch's own operator samples, and compare them with eager.

    Each sample becomes a program in several forms: called, in place, with out=, on views, with a backward, and others.
    With --source python, programs are made of operators and Python, each in two spellings. The programs are cases in
    FOLDER/suites. Many cells share a process; of those that do not pass, some of each kind run again alone, and have
    their records in FOLDER/records. What they show is grouped into families, and each family that is not known becomes
    a finding in FOLDER/findings: a smallest program, an issue for PyTorch, and the releases that have it.

    A generation that was interrupted goes on with the same command. The exit status is 0 whatever is found.
    """
    if (keep is None) != (suite is None):
        raise UsageError("--keep and --suite belong together")
    if keep is not None and suite is not None:
        from recapture.tools.generate.findings import keep as keep_finding

        echo(f"{suite}: {keep_finding(options.results, keep, suite)}")
        return 0
    require_torch()
    from recapture.report.markdown_writer import to_markdown
    from recapture.report.terminal_writer import print_document
    from recapture.tools.generate.findings import work_out
    from recapture.tools.generate.folder import REPORT
    from recapture.tools.generate.report import document, facts_of, write_facts
    from recapture.tools.generate.session import generate

    generation = generate(options, echo_error)
    facts = facts_of(generation)
    write_facts(options.results, facts)
    findings = work_out(options, generation, facts, echo_error)
    blocks = document(facts, findings)
    write_beside(options.results / REPORT, to_markdown(blocks))
    if as_json:
        print_json(facts)
    else:
        print_document(console(), blocks)
    return 0
