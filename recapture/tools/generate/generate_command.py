"""``recapture generate``: programs that nobody wrote, compared with eager under every compiler."""

from __future__ import annotations

import click

from recapture.command.options import console, json_flag, require_torch, takes
from recapture.command.output import echo_error, print_json, write_beside
from recapture.tools.generate.session import GenerateOptions


@click.command("generate")
@takes(options=GenerateOptions)
@json_flag
def generate_command(options: GenerateOptions, *, as_json: bool) -> int:
    """Make programs from torch's own operator samples, and compare them with eager.

    Each sample becomes a program in several forms: called, in place, with out=, on views, with a backward, and others.
    The programs are cases in FOLDER/suites. Many cells share a process; of those that do not pass, some of each kind
    run again alone, and have their records in FOLDER/records. What they show is grouped into families.

    A generation that was interrupted goes on with the same command. The exit status is 0 whatever is found.
    """
    require_torch()
    from recapture.report.markdown_writer import to_markdown
    from recapture.report.terminal_writer import print_document
    from recapture.tools.generate.folder import REPORT
    from recapture.tools.generate.report import document, facts, write_facts
    from recapture.tools.generate.session import generate

    generation = generate(options, echo_error)
    found = facts(generation)
    write_facts(options.results, found)
    blocks = document(found)
    write_beside(options.results / REPORT, to_markdown(blocks))
    if as_json:
        print_json(found)
    else:
        print_document(console(), blocks)
    return 0
