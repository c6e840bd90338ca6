"""``recapture list``: the cases of the suites, the compilers, or the published claims."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.text import plural
from recapture.command.options import require_torch, suite_option
from recapture.command.output import echo, echo_error, echo_line, print_json
from recapture.known.issues import chosen_issues
from recapture.machine.hardware import cores

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recapture.cases.collection import CaseInfo, SuiteFile, SuiteInfo
    from recapture.known.claims import PublishedClaim, Source
    from recapture.known.issues import KnownIssue

WIDEST = 60
"""Largest width in characters of the column of addresses; a longer address moves its description alone."""


@click.command("list")
@click.argument("what", nargs=-1, metavar="[SUITE|FILE|ID]...")
@click.option("-k", "keyword", metavar="EXPR", help="Only cases whose suite::name matches: words, and, or, not.")
@suite_option
@click.option("--compilers", "show_compilers", is_flag=True, help="List the compilers instead of the cases.")
@click.option("--claims", "show_claims", is_flag=True, help="List the published claims, all or those of the IDs given.")
@click.option(
    "--issues", "show_issues", is_flag=True, help="List the known public issues, all or those of the IDs given."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def list_command(
    what: tuple[str, ...],
    keyword: str | None,
    suites: tuple[str, ...],
    show_compilers: bool,
    show_claims: bool,
    show_issues: bool,
    as_json: bool,
) -> int:
    """List the cases of the suites, with a description of each."""
    is_asked_by_option = {"--compilers": show_compilers, "--claims": show_claims, "--issues": show_issues}
    lists = [name for name, is_asked in is_asked_by_option.items() if is_asked]
    if len(lists) > 1:
        raise UsageError(f"{' and '.join(lists)} cannot be combined")
    if (keyword or suites) and lists:
        raise UsageError(f"-k and --suite choose among cases: they cannot be combined with {lists[0]}")
    if show_issues:
        issues = chosen_issues(what)
        _print(_issues_as_text(issues), issues, as_json=as_json)
        return 0
    if show_claims:
        chosen = _chosen_claims(what)
        _print(_claims_as_text(chosen), chosen, as_json=as_json)
        return 0
    if show_compilers:
        return _list_compilers(what, as_json=as_json)
    return _list_cases((*what, *suites), keyword, as_json=as_json)


def _list_compilers(what: tuple[str, ...], *, as_json: bool) -> int:
    from recapture.cases.compilers import builtin_compilers
    from recapture.cases.requirements import absent_modules

    if what:
        raise UsageError(f"--compilers takes no argument: {what[0]!r}")
    compilers = builtin_compilers().values()
    width = max(len(compiler.name) for compiler in compilers)
    rows = [
        {
            "name": compiler.name,
            "summary": compiler.describe(),
            "since": compiler.since,
            "requires": list(compiler.requires),
            "only_when_named": compiler.only_when_named,
        }
        for compiler in compilers
    ]
    _print((f"{compiler.name:{width}}  {compiler.describe()}" for compiler in compilers), rows, as_json=as_json)
    if not as_json:
        lacking = {compiler.name: ", ".join(absent_modules(compiler.requires)) for compiler in compilers}
        named = [compiler.name for compiler in compilers if compiler.only_when_named]
        echo("")
        echo_line(
            "run only when named: "
            + ", ".join(f"{name} (needs {lacking[name]})" if lacking[name] else name for name in named)
        )
    return 0


def _list_cases(what: tuple[str, ...], keyword: str | None, *, as_json: bool) -> int:
    from recapture.cases.collection import find_suites, shipped_groups
    from recapture.cases.name_filter import matcher

    selection = find_suites(what)
    matches = matcher(keyword) if keyword else None
    status = 0
    suites = _collected(selection.suites)
    for info in suites:
        if info.error is not None:
            echo_error(f"suite {info.name!r} cannot be collected: {info.error}")
            status = 2
        for case in info.refused:
            if matches is None or matches(f"{info.name}::{case.name}"):
                echo_error(f"in suite {info.name!r}, {case}")
                status = 2
    cases = [(f"{info.name}::{case.name}", case) for info in suites for case in info.cases]
    cases = [(address, case) for address, case in cases if matches is None or matches(address)]
    rows = [
        {"case": address, "summary": case.summary, "claims": case.claims, "options": case.options, "hash": case.hash}
        for address, case in cases
    ]
    _print(_by_suite(cases), rows, as_json=as_json)
    if not what and not as_json:
        groups = "; ".join(
            f"{name} ({', '.join(suite.name for suite in group)})" for name, group in shipped_groups().items()
        )
        echo("")
        if groups:
            echo_line(f"run only when named: {groups}")
    return status


def _collected(suites: tuple[SuiteFile, ...]) -> list[SuiteInfo]:
    """Return what suites declare. Those that ship are read, which takes no torch; others may do anything on import."""
    from recapture.cases.collection import SuiteInfo, shipped_groups, shipped_suites
    from recapture.cases.declarations import declared_cases

    shipped = {*shipped_suites(), *(suite for group in shipped_groups().values() for suite in group)}
    collected: dict[SuiteFile, SuiteInfo] = {}
    for suite in suites:
        cases = declared_cases(suite.path) if suite in shipped else None
        if cases is not None:
            collected[suite] = SuiteInfo(suite.name, str(suite.path), cases)
    executed = tuple(suite for suite in suites if suite not in collected)
    if executed:
        from recapture.pool.worker_pool import WorkerPool
        from recapture.run.preparation import IMPORTS, collect_suites

        require_torch()
        with WorkerPool(device="cpu", jobs=cores(), imports=IMPORTS) as pool:
            collected |= dict(zip(executed, collect_suites(pool, executed), strict=True))
    return [collected[suite] for suite in suites]


def _by_suite(cases: list[tuple[str, CaseInfo]]) -> Iterator[str]:
    """Yield lines: each suite with its number of cases, then its cases; last, the sums, if there are several suites."""
    numbers = Counter(address.split("::", 1)[0] for address, _ in cases)
    for suite, number in numbers.items():
        yield f"{suite}: {plural(number, 'case')}"
        members = [(address, case) for address, case in cases if address.split("::", 1)[0] == suite]
        width = min(max(len(address) for address, _ in members), WIDEST)
        yield from (f"  {address:{width}}  {_described(case)}".rstrip() for address, case in members)
    if len(numbers) > 1:
        yield f"{plural(len(cases), 'case')} in {plural(len(numbers), 'suite')}"


def _described(case: CaseInfo) -> str:
    """Return a case's description, with the options that it was declared with."""
    options = "; ".join(f"{name}: {value}" for name, value in case.options.items())
    return f"{case.summary} [{options}]".strip() if options else case.summary


def _chosen_claims(ids: tuple[str, ...]) -> list[PublishedClaim]:
    from recapture.known.claims import CLAIMS

    known = CLAIMS.shipped
    for name in ids:
        if name not in known:
            raise UsageError(f"no claim {name!r}{did_you_mean(name, known)} (`recapture list --claims` names them all)")
    return [claim for name, claim in known.items() if not ids or name in ids]


def _claims_as_text(claims: list[PublishedClaim]) -> Iterator[str]:
    """Yield lines: each document, then its claims, with figures, releases, and what checks them."""
    for source in dict.fromkeys(claim.source for claim in claims):
        yield from _source_as_text(source)
        for claim in (claim for claim in claims if claim.source == source):
            yield f"  {claim.id:4}{claim.claim}"
            details = [
                ("published", claim.figures),
                ("claimed for torch", claim.torch),
                *(("shown by", str(evidence)) for evidence in claim.shown_by),
                ("not shown", claim.not_shown),
            ]
            yield from (f"      {label}: {text}" for label, text in details if text)


def _issues_as_text(issues: list[KnownIssue]) -> Iterator[str]:
    """Yield lines: each issue with the range that its sources give, then the cells that try it."""
    for issue in issues:
        yield f"{issue.id}: {issue.what} ({issue.compares}; {issue.span}; {issue.sure})"
        details = [
            ("advisory", issue.advisory),
            *(("shown by", cell) for cell in issue.shown_by),
            ("not shown", issue.not_shown),
            ("remark", issue.explanation),
        ]
        yield from (f"    {label}: {text}" for label, text in details if text)


def _source_as_text(source: Source) -> Iterator[str]:
    when = f", {source.year}" if source.year else ""
    yield f"{source.id}: {source.title} ({source.kind}{when}; torch {source.torch}; {source.language})"
    yield from (f"   {text}" for text in (source.link, source.note) if text)


def _print(lines: Iterable[str], rows: list[Any], *, as_json: bool) -> None:
    if as_json:
        print_json(rows)
    else:
        for line in lines:
            echo_line(line, hang=4)
