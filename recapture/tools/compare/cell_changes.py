"""Finds the changes between two results directories, cell by cell."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import msgspec

from recapture.base.errors import UsageError
from recapture.base.text import plural, shorten
from recapture.command.command_table import of_tools
from recapture.machine.environment import Environment
from recapture.records.difference import Difference
from recapture.records.directories import BEFORE, Results, find_results, holds_results, read_results
from recapture.records.eager_calls import EAGER_CHANGES, change_of_calls
from recapture.records.record import CellKey, Record
from recapture.records.verdicts import FAILING, NOT_RUN, RIGHT, SILENTLY_WRONG, Verdict
from recapture.report import environment_facts, summary
from recapture.report.differences import has_kind, identity, notes_of, stage_changed
from recapture.tools.compare.changes import (
    Change,
    ClaimChange,
    Diff,
    EagerDiff,
    EagerOfCase,
    FactChange,
    Rename,
    Side,
    SpeedChange,
)


def compare(old: Path, new: Path) -> Diff:
    """Compare two results directories: their cells and their benchmarks, if both have them.

    Raises UsageError if they have nothing of the same kind, or if reading them fails.
    """
    sides = (old, new)
    lacking = [name for name, path in zip(("OLD", "NEW"), sides, strict=True) if not holds_results(path)]
    if lacking:
        changes = diff(*(Results(path, (), _environment_of(path)) for path in sides))
    else:
        changes = diff(*map(read_results, sides))
    speeds, notes = diff_speeds(old, new)
    if lacking and not speeds:
        raise UsageError(f"{old} and {new} hold nothing of one kind: {' and '.join(lacking)} has no cells")
    notes = (*(f"{name} has no cells, so none are compared" for name in lacking), *notes)
    return msgspec.structs.replace(changes, warnings=(*changes.warnings, *notes), speeds=speeds)


def _environment_of(directory: Path) -> Environment | None:
    """Return the environment of a directory's cells, or else of its benchmark."""
    if holds_results(directory):
        return read_results(directory).environment
    return environment_of_benchmark(directory)


def diff(old: Results, new: Results) -> Diff:
    """Compare two results by cell.

    If each side has exactly one device, devices are ignored, so that a CPU can be compared with a GPU. A case with
    unchanged source and a new address is compared with its old self, and listed as renamed. Cells that only one side
    was selected to run are counted, not compared.
    """
    renamed = _renamed(old.records, new.records)
    with_device = (
        len({record.device for record in old.records}) > 1 or len({record.device for record in new.records}) > 1
    )
    before = {_key(record, renamed, with_device=with_device): record for record in old.records}
    after = {_key(record, {}, with_device=with_device): record for record in new.records}
    missing_before, missing_after = _not_asked(old, before.keys()), _not_asked(new, after.keys())
    not_asked = [key for key in after.keys() - before.keys() if missing_before(key)]
    not_asked_now = [key for key in before.keys() - after.keys() if missing_after(key)]
    changes: dict[str, list[Change]] = defaultdict(list)
    compared = (before.keys() | after.keys()) - {*not_asked, *not_asked_now}
    # Most cells are the same from one release to the next. Reading made one object of equal lines, so that this costs
    # nothing.
    differing = [key for key in compared if before.get(key) is not after.get(key)]  # one object: the same line in both
    unchanged = len(compared) - len(differing)
    judges_differ = len(set(_judges(old, new))) == 2
    for key in sorted(differing, key=lambda key: (key[0], summary.compiler_key(key[1]), key[2])):
        was, now = before.get(key), after.get(key)
        name = category(was, now)
        if judges_differ and can_be_the_judges(was, now, name):
            name = "judged_differently"
        if name is None:
            unchanged += 1
            continue
        # A busy machine makes cells late.
        timed_out = any(record is not None and record.verdict is Verdict.TIMEOUT for record in (was, now))
        changes[name].append(Change(case=key[0], compiler=key[1], old=was, new=now, maybe_noise=timed_out))
    result = Diff(
        old=_side(old, len(not_asked)),
        new=_side(new, len(not_asked_now)),
        environment=_environment(old, new),
        warnings=tuple(_warnings(old, new)),
        claims=_claims(before, after),
        renamed=tuple(Rename(was, now) for was, now in sorted(renamed.items())),
        unchanged=unchanged,
        eager=_eager(old, new, renamed),
    )
    return msgspec.structs.replace(result, **{name: tuple(members) for name, members in changes.items()})


BY_THE_JUDGE = ("newly_wrong", "fixed", "failing_differently", "noted_differently", "noise")
"""Categories of changes that another version of the judge can make."""


COMPARED_BY_ALL = ("value", "dtype", "shape", "type", "exception", "alias")
"""Kinds of differences of a call's result that every version of the judge compares.

Three releases were judged by versions 1 and 2, 22,000 cells. Four of these cells turned right or wrong by such a
difference, all of ``export:dynamic``, which had become another call.
"""


def can_be_the_judges(old: Record | None, new: Record | None, name: str | None) -> bool:
    """Whether another version of the judge can explain a change: on both sides the calls came to an end.

    It cannot where the result itself, on the side that is wrong, differs in a way that every version compares.
    """
    judged = {*RIGHT, *SILENTLY_WRONG, Verdict.UNSTABLE}
    sides = [record for record in (old, new) if record is not None]
    if name not in BY_THE_JUDGE or not all(record.verdict in judged for record in sides):
        return False
    wrong = {"newly_wrong": new, "fixed": old}.get(name)
    return wrong is None or not any(map(_is_of_the_result, wrong.differences))


def _is_of_the_result(difference: Difference) -> bool:
    return difference.kind in COMPARED_BY_ALL and re.match(r"result\b", difference.where) is not None


def _judges(*sides: Results) -> list[int]:
    """Return the version of the judge of each side whose environment is known."""
    return [results.environment.judge_version for results in sides if results.environment is not None]


def category(old: Record | None, new: Record | None) -> str | None:
    """Return the category of a cell in `CATEGORIES`, or None if nothing changed."""
    name = _category_of_outcome(old, new)
    if name is None and stage_changed(old, new):
        return "noted_differently"
    if name is None and old is not None and new is not None and notes_of(old).keys() != notes_of(new).keys():
        return "noted_differently" if old.schema == new.schema else None  # version 1 has no noted differences
    return name


def _category_of_outcome(old: Record | None, new: Record | None) -> str | None:
    if old is None:
        return "added"
    if new is None:
        return "removed"
    # Another case: whether it is better or worse than the old one says nothing about torch.
    if old.case_hash != new.case_hash:
        return "case_edited"
    # Eager itself does not repeat, so the change may be chance.
    if old.verdict is not new.verdict and Verdict.UNSTABLE in (old.verdict, new.verdict):
        return "noise"
    if old.verdict in NOT_RUN or new.verdict in NOT_RUN:
        return _run_or_not(old.verdict, new.verdict)
    if new.verdict in RIGHT:
        return _right_now(old, new)
    if new.verdict in SILENTLY_WRONG and old.verdict not in SILENTLY_WRONG:
        return "newly_wrong"
    if new.verdict in FAILING and old.verdict in RIGHT:
        return "newly_failing"
    return "failing_differently" if _failure(old) != _failure(new) else None


def _run_or_not(old: Verdict, new: Verdict) -> str | None:
    if old in NOT_RUN and new in NOT_RUN:
        return None if old is new else "not_run_differently"
    return "newly_run" if old in NOT_RUN else "no_longer_run"


def _right_now(old: Record, new: Record) -> str | None:
    if old.verdict not in RIGHT:
        return "fixed"
    if old.verdict is not new.verdict:
        return "newly_breaking" if new.verdict is Verdict.PASS_WITH_BREAKS else "whole_again"
    counts = [(getattr(old, name), getattr(new, name)) for name in ("graphs", "graph_breaks", "recompiles")]
    known = [(was, now) for was, now in counts if was is not None and now is not None]
    return "captured_differently" if any(was != now for was, now in known) else None


def _failure(record: Record) -> tuple[object, ...]:
    """Return a value that is equal for equal failures.

    It excludes the numbers in a difference's detail, which change with every kernel, the reason of a timeout or an
    out-of-memory error, which is only the limit, and the input of a timeout, which depends on how busy the machine is.
    """
    counts = Counter(map(identity, record.differences))  # in any order: records of older versions have their own
    error = (record.error.type, record.error.fingerprint) if record.error else None
    signal = record.reason if record.verdict is Verdict.CRASH else None
    label = None if record.verdict is Verdict.TIMEOUT else record.input
    return (record.verdict, record.phase, label, error, signal, counts)


def _key(record: Record, renamed: dict[str, str], *, with_device: bool) -> CellKey:
    return CellKey(renamed.get(record.case, record.case), record.compiler, record.device if with_device else "")


def _renamed(old: Iterable[Record], new: Iterable[Record]) -> dict[str, str]:
    """Return cases that are missing on one side and new on the other with the same source, if the pair is unique."""
    before = {record.case: record.case_hash for record in old}
    after = {record.case: record.case_hash for record in new}
    gone, come = defaultdict(list), defaultdict(list)
    for case in before.keys() - after.keys():
        gone[before[case]].append(case)
    for case in after.keys() - before.keys():
        come[after[case]].append(case)
    return {cases[0]: come[source][0] for source, cases in gone.items() if len(cases) == 1 == len(come.get(source, ()))}


def _eager(old: Results, new: Results, renamed: dict[str, str]) -> EagerDiff | None:
    """Compare what eager itself gave for the cases of both sides; None where a side does not have it."""
    before, after = old.eager(), new.eager()
    if not before or not after:
        return None
    devices = [{key.device for key in rows} for rows in (before, after)]
    ignored = all(len(names) == 1 for names in devices)  # so that a CPU can be compared with a GPU
    earlier = {(renamed.get(key.case, key.case), "" if ignored else key.device): row for key, row in before.items()}
    same = unstable = 0
    changed = []
    for key, row in after.items():
        was = earlier.get((key.case, "" if ignored else key.device))
        if was is None or was.case_hash != row.case_hash or not was.calls or not row.calls:
            continue
        change = change_of_calls(was.calls, row.calls)
        if change is not None:
            changed.append(EagerOfCase(key.case, change))
        elif any(call.unstable for call in (*was.calls, *row.calls)):
            unstable += 1
        else:
            same += 1
    order = list(EAGER_CHANGES)
    changed.sort(key=lambda entry: (order.index(entry.change.kind), entry.change.digits or 0.0, entry.case))
    return EagerDiff(changed=tuple(changed), same=same, unstable=unstable)


def _not_asked(results: Results, keys: Iterable[CellKey]) -> Callable[[CellKey], bool]:
    """Return a predicate for missing cells of a side: whether its selection did not include the cell.

    A missing cell that was selected no longer exists: its suite was run with all its cases. An incomplete run gives no
    information.
    """
    environment = results.environment
    if (
        environment is None
        or not environment.selection
        or not environment_facts.accounting(results.records, environment)[1]
    ):
        return lambda _key: False
    cases = {key[0] for key in keys}
    cases_of_suite = Counter(summary.suite_of(case) for case in cases)
    # A suite of which every case ran was selected as a whole: a case of it that is missing no longer exists.
    whole = {suite.name for suite in environment.suites if suite.cases == cases_of_suite[suite.name]}
    return lambda key: key[0] in cases or summary.suite_of(key[0]) not in whole


def _side(results: Results, not_asked: int) -> Side:
    return Side(image=results.image, capability=results.capability, cells=len(results.records), not_asked=not_asked)


def _environment(old: Results, new: Results) -> tuple[FactChange, ...]:
    before, after = environment_facts.comparable(old.environment), environment_facts.comparable(new.environment)
    if not before or not after:
        return ()
    names = sorted(before.keys() | after.keys(), key=environment_facts.importance)
    return tuple(
        FactChange(
            name=name,
            old=before.get(name),
            new=after.get(name),
            minor=any(environment_facts.is_minor(name, side.environment) for side in (old, new)),
        )
        for name in names
        if before.get(name) != after.get(name)
    )


def _warnings(old: Results, new: Results) -> Iterable[str]:
    judges = _judges(old, new)
    if len(set(judges)) == 2:
        yield f"the two runs were judged by versions {judges[0]} and {judges[1]}: what can come from that is apart"
    for side, results in (("OLD", old), ("NEW", new)):
        environment = results.environment
        if environment is None:
            yield f"{side} has no environment.json: what else differs is not known"
            continue
        if results.misfiled:
            yield f"{side}: {results.misfiled}"
        accounting, complete = environment_facts.accounting(results.records, environment)
        if not complete:
            yield f"{side} is incomplete: {accounting}"
        for name, error in environment_facts.uncollected(environment):
            yield f"suite {name} could not be collected in {side}: {shorten(error, 120)}"
        for check in environment_facts.failing_checks(environment):
            yield f"{side}'s machine is at fault: {shorten(check, 120)}"
    versions = [sorted({record.schema for record in results.records}) for results in (old, new)]
    if versions[0] != versions[1] and all(versions):
        yield (
            f"OLD has records of version {_listed(versions[0])}, NEW of version {_listed(versions[1])}: a change may "
            "come from the rules that judged them"
        )
    devices = [sorted({record.device for record in results.records}) for results in (old, new)]
    if devices[0] != devices[1]:
        yield f"OLD ran on {', '.join(devices[0]) or 'nothing'}, NEW on {', '.join(devices[1]) or 'nothing'}"


def _listed(versions: Iterable[int]) -> str:
    return " and ".join(map(str, versions))


def _claims(before: dict[CellKey, Record], after: dict[CellKey, Record]) -> tuple[ClaimChange, ...]:
    changes = []
    for key in before.keys() & after.keys():
        was = {(claim.id, claim.expected): claim.holds for claim in before[key].claims}
        for claim in after[key].claims:
            holds = was.get((claim.id, claim.expected), claim.holds)
            if holds is not claim.holds:
                changes.append(
                    ClaimChange(
                        id=claim.id,
                        case=key[0],
                        compiler=key[1],
                        expected=claim.expected,
                        old=str(summary.claim_status(holds=holds)),
                        new=str(summary.claim_status(holds=claim.holds)),
                    )
                )
    return tuple(
        sorted(
            changes,
            key=lambda change: (
                summary.natural_key(change.id),
                change.case,
                summary.compiler_key(change.compiler),
                change.expected,
            ),
        )
    )


# Which directories, and which of the changes


def locate(old: Path, new: Path) -> tuple[Path, Path]:
    """Return the two results directories to compare.

    Each path may also be an image's directory, ``results/<image>``, or contain exactly one. Then the capability is that
    of the other path, or the only one that both images have. Raises UsageError if there are no results, or if the
    choice is ambiguous.
    """
    before, after = _capabilities(old), _capabilities(new)
    if len(before) == 1 == len(after) and "" in (*before, *after):
        return next(iter(before.values())), next(iter(after.values()))
    # The name of a results directory is its capability, and so determines the capability of the other path.
    before, after = (
        {path.resolve().name: path for path in side.values()} if "" in side else side for side in (before, after)
    )
    common = sorted(before.keys() & after.keys())
    if len(common) == 1:
        return before[common[0]], after[common[0]]
    if common:
        raise UsageError(f"{old} and {new} both hold {', '.join(common)}: say which, as in {before[common[0]]}")
    capabilities = [", ".join(sorted(side)) for side in (before, after)]
    sides = " and ".join(f"{path} ({names})" for path, names in zip((old, new), capabilities, strict=True))
    raise UsageError(f"{sides} have no capability in common: name a directory of each")


def _capabilities(directory: Path) -> dict[str, Path]:
    """Return a path's results directories by capability; the key is empty if the path itself is one."""
    if holds_results(directory) or has_benchmark(directory):
        return {"": directory}
    timed = {path for path in folders_with_benchmarks(directory) if not path.name.startswith(BEFORE)}
    directories = sorted({*find_results(directory, needed=not timed), *timed})
    images = {path.parent for path in directories}
    if len(images) > 1:
        names = ", ".join(sorted(image.name for image in images))
        raise UsageError(f"{directory} holds several images' results, name one: {names}")
    return {path.name: path for path in directories}


def restricted(changes: Diff, *, kinds: Collection[str], categories: Collection[str]) -> Diff:
    """Return a diff with only the cells of some categories whose differences, on either side, have one of some kinds.

    An empty collection does not restrict. A warning says how many changed cells are left out.
    """
    if not kinds and not categories:
        return changes
    chosen: dict[str, tuple[Change, ...]] = {}
    left_out = 0
    for name, members in changes.categories():
        in_category = members if not categories or name in categories else ()
        chosen[name] = tuple(change for change in in_category if not kinds or _has_kind(change, kinds))
        left_out += len(members) - len(chosen[name])
    note = f"{plural(left_out, 'other changed cell')} left out by --category or --kind"
    warnings = (*changes.warnings, note) if left_out else changes.warnings
    return msgspec.structs.replace(changes, warnings=warnings, eager=None, **chosen)


def _has_kind(change: Change, kinds: Collection[str]) -> bool:
    return any(record is not None and has_kind(record, kinds) for record in (change.old, change.new))


def folders_with_benchmarks(root: Path) -> set[Path]:
    """Return the directories at or below a directory that have a benchmark."""
    return {folder for tool in of_tools("speeds to compare") for folder in tool.folders_below(root)}


def has_benchmark(directory: Path) -> bool:
    """Whether a results directory has a benchmark."""
    return any(tool.speedups_of(directory) for tool in of_tools("speeds to compare"))


def environment_of_benchmark(directory: Path) -> Environment | None:
    """Return the environment in which a directory's benchmark was measured; None if it has none."""
    for tool in of_tools("speeds to compare"):
        for path in tool.speedups_of(directory).values():
            environment: Environment = tool.environment_of(path)
            return environment
    return None


def diff_speeds(old: Path, new: Path) -> tuple[tuple[SpeedChange, ...], tuple[str, ...]]:
    """Compare the benchmarks of two results directories; return the changes and warnings.

    Without a tool that measures speed, there are none. Raises UsageError if reading them fails.
    """
    changes: list[SpeedChange] = []
    notes: list[str] = []
    for tool in of_tools("speeds to compare"):
        fields, warnings = tool.diff_speeds(old, new)
        changes += msgspec.convert(fields, list[SpeedChange])
        notes += warnings
    return tuple(changes), tuple(notes)
