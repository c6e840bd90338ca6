"""``recapture bisect``: which release, or which package, turned a cell bad."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from recapture import data
from recapture.base.errors import RecaptureError, UsageError
from recapture.base.text import plural
from recapture.cases.collection import find_suites
from recapture.command.options import PathParameter, check_device, takes
from recapture.command.output import echo, print_json
from recapture.machine.pins import Image, find_image, find_release, load_images
from recapture.records.directories import find_results, read_results
from recapture.records.record import Record
from recapture.report import summary
from recapture.report.history import IN_WORDS, is_bad
from recapture.tools.upgrade.cell_bisect import (
    CellPlace,
    CellRuns,
    LineRuns,
    PackageSearch,
    ReleaseSearch,
    lock_changes,
    may_run,
    recorded_cell,
    search_packages,
    search_releases,
)
from recapture.tools.upgrade.command_options import CommandAfterDashes, CommandOptions, words_after_dashes
from recapture.tools.upgrade.command_search import CommandSearchOptions, bisect_words
from recapture.tools.upgrade.consent import agree_to_install, halvings
from recapture.tools.upgrade.package_versions import releases_from
from recapture.tools.upgrade.shipped_records import shipped_records


@click.command("bisect", cls=CommandAfterDashes)
@click.argument("cell", metavar="[CELL]", required=False)
@click.option("--good", metavar="IMAGE|RELEASE", help="An image in which the cell or the command is right.")
@click.option("--bad", metavar="IMAGE|RELEASE", help="An image in which it is wrong or fails.")
@click.option("--image", "within", metavar="IMAGE", help="The image in which versions of one package are tried.")
@click.option("--package", metavar="NAME[==VERSION]", help="Its versions up to this, or to the newest.")
@click.option("--results", type=PathParameter(), default=Path("results"), show_default=True, help="Recorded results.")
@click.option("--device", default="cpu", callback=check_device, metavar="cpu|cuda", help="Device to run on.")
@click.option("--no-run", is_flag=True, help="Use the recorded results alone.")
@click.option("--yes", is_flag=True, help="Install the environments that the search needs without asking.")
@takes(of_command=CommandSearchOptions, options=CommandOptions)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.pass_context
def bisect_command(
    context: click.Context,
    cell: str | None,
    good: str | None,
    bad: str | None,
    within: str | None,
    package: str | None,
    results: Path,
    device: str,
    of_command: CommandSearchOptions,
    options: CommandOptions,
    *,
    no_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Find the release, or the package, that turned a cell or a command bad.

    CELL is SUITE::NAME::COMPILER. What the results have recorded is not run again; between two images that differ, and
    that have others between them, the cell runs in environments made with uv; where these are there already, up to four
    run beside each other. --across names the only releases to try. With --good and --bad of one torch release, such as
    an image and its drifted twin, packages are exchanged one by one. With --image and --package, one image gets other
    versions of one package: those between its own and the one named.

    Where there is no folder `results`, the records that come with recapture answer, without torch; with --yes, the cell
    also runs where they do not decide.

    COMMAND is any command: it is good if it ends with status 0, undecided with 125, and bad otherwise, as for git
    bisect run. With --test, one test of pytest decides, and with --metric a number that it prints. It is searched over
    the releases first, and then over the packages that differ between the two neighbours.

    Before anything is installed, it says what, how large and where, and asks; without a terminal, --yes is needed.
    """
    words = words_after_dashes(context, of_project=cell is None)
    if (good is None) != (bad is None):
        raise UsageError("--good and --bad belong together")
    if words:
        if cell is not None:
            raise UsageError(f"give a cell or a command, and not both: {cell!r} stands before the two dashes")
        if within is not None or package is not None or no_run:
            raise UsageError("--image, --package and --no-run are for a cell")
        bisect_words(words, good, bad, of_command, options, yes=yes, as_json=as_json)
        return
    if of_command.only_for_commands:
        raise UsageError("--test, --metric and the like are for a command: write it after two dashes")
    if cell is None:
        raise UsageError("name a cell, SUITE::NAME::COMPILER, or a command after two dashes")
    if of_command.across is not None and (good is not None or within is not None):
        raise UsageError("--across names the releases of a cell: give neither --good and --bad nor --image with it")
    releases = None if of_command.across in (None, "all") else str(of_command.across).split(",")
    along = None if releases is None else [find_release(name.strip()) for name in releases]
    _bisect_cell(
        cell,
        good,
        bad,
        within,
        package,
        results,
        device,
        options.keep,
        across=along,
        no_run=no_run,
        yes=yes,
        as_json=as_json,
    )


def _bisect_cell(
    cell: str,
    good: str | None,
    bad: str | None,
    within: str | None,
    package: str | None,
    results: Path,
    device: str,
    keep: int | None,
    *,
    across: list[Image] | None,
    no_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Find the releases or packages that turned a cell bad or right, and print them; `across` are the only ones."""
    if cell.count("::") != 2:
        raise UsageError(f"{cell!r} is not a cell: write SUITE::NAME::COMPILER")
    if (within is None) != (package is None):
        raise UsageError("--image and --package belong together")
    if within is not None and good is not None:
        raise UsageError("give --good and --bad, or --image and --package")
    good, bad = (None if name is None else find_image(name).name for name in (good, bad))
    runs = CellRuns(cell, device, keep, lambda text: echo(f"recapture: {text}", err=True))
    shipped = None if results.exists() or results != Path("results") else _shipped(cell, device)
    records = _recorded(cell, results, device) if shipped is None else shipped
    if not records:
        find_suites((cell,))  # refuses an unknown suite
    if good is not None and bad is not None:
        first, last = find_image(good), find_image(bad)
        if (first.torch, first.python) == (last.torch, last.python) and first.name != last.name:
            _over_packages(runs, first, last, records, no_run=no_run, yes=yes, as_json=as_json)
            return
    if within is not None and package is not None:
        if no_run:
            raise UsageError("--no-run: the results have no records of other versions of a package")
        line, along = _versions(runs, find_image(within), package)
    else:
        line, along = across or _line(good, bad), LineRuns(runs)
        no_run = no_run or bool(shipped and not yes)  # what is shipped answers without a question
    if not no_run:
        undecided = may_run(line, records)
        absent = [image.name for image in undecided if not along.is_ready(image)]
        agree_to_install(absent, 2 + halvings(len(undecided)), yes=yes)
    search = search_releases(line, records, None if no_run else along)
    if good is not None and bad is not None:
        for name, should_be_bad in ((good, False), (bad, True)):
            record = search.records.get(name)
            if is_bad(record) is not should_be_bad:
                what = search.failed.get(name) or (f"it is {record.verdict}" if record else "it is not recorded")
                raise UsageError(f"{cell} is not {'bad' if should_be_bad else 'right'} in {name}: {what}")
    if as_json:
        print_json(_data(cell, search))
    else:
        _print(cell, search, "that come with recapture" if shipped else "on file")


def _recorded(cell: str, results: Path, device: str) -> dict[str, Record]:
    """Return the cell's records on file, by image."""
    records = {}
    for path in find_results(results, needed=False) if results.is_dir() else ():
        for record in read_results(path).records:
            if record.cell == recorded_cell(cell) and record.device == device:
                records[path.parent.name] = record
    return records


def _shipped(cell: str, device: str) -> dict[str, Record] | None:
    """Return the cell's records that come with recapture, by image; None if there are no data."""
    return None if data.find() is None else shipped_records(data.load(), cell, device)


def _line(good: str | None, bad: str | None) -> list[Image]:
    """Return the images of releases, oldest first, from the good to the bad one or the reverse."""
    named = {good, bad}
    line = [image for image in load_images().values() if image.drifted_from is None or image.name in named]
    if good is None or bad is None:
        return line
    places = sorted(number for number, image in enumerate(line) if image.name in named)
    return line[places[0] : places[-1] + 1]


def _versions(runs: CellRuns, image: Image, package: str) -> tuple[list[Image], LineRuns]:
    """Return an image for each version of a package, the given image first, and the runs of the cell in them."""
    releases = {f"{release.name} {release.version}": release for release in releases_from(image, package)}
    line = [image]
    for name, release in releases.items():
        pin = {release.name: release.version} if release.name in image.pinned else {}
        line.append(msgspec.structs.replace(image, name=name, **pin))

    def place(member: Image) -> CellPlace:
        return CellPlace(image.name, image) if member is image else runs.with_release(image, releases[member.name])

    return line, LineRuns(runs, place)


def _over_packages(
    runs: CellRuns, good: Image, bad: Image, records: dict[str, Record], *, no_run: bool, yes: bool, as_json: bool
) -> None:
    if not no_run:
        unrecorded = [image for image in (good, bad) if image.name not in records]
        absent = [image.name for image in unrecorded if not runs.environments.has(image)]
        changed, _ = lock_changes(good, bad)
        if len(changed) > 1:  # one is the culprit without a run
            absent.append(f"{good.name} with packages of {bad.name}")
        agree_to_install(absent, len(absent), yes=yes, mixtures=len(changed) > 1)
    for image, should_be_bad in ((good, False), (bad, True)):
        record = records.get(image.name) or (None if no_run else runs.run_one(CellPlace(image.name, image)))
        if is_bad(record) is not should_be_bad:
            what = f"it is {record.verdict}" if record else "it is not recorded"
            raise UsageError(f"{runs.cell} is not {'bad' if should_be_bad else 'right'} in {image.name}: {what}")
    changed, others = lock_changes(good, bad)
    if no_run and len(changed) > 1:
        named = ", ".join(map(str, changed))
        raise UsageError(f"{len(changed)} packages differ ({named}): without running, none can be singled out")

    def bad_with(names: frozenset[str]) -> bool | None:
        place = runs.with_packages(good, bad, names)
        try:
            return is_bad(runs.run_one(place))
        except RecaptureError as error:  # another mixture may still decide
            runs.show(f"not decided in {place.name}: {error}")
            return None

    search = search_packages(changed, bad_with)
    if as_json:
        print_json(_package_data(runs.cell, search))
        return
    echo(f"{runs.cell}: right in {good.name}, bad in {bad.name}")
    for names, is_wrong in search.trials:
        state = "undecided" if is_wrong is None else "bad" if is_wrong else "right"
        echo(f"  {good.name} with {', '.join(names)} of {bad.name}: {state}")
    echo(search.sentence)
    if len(search.culprits) == 1 and len(search.culprits[0].packages) == 1:
        (change,) = search.culprits[0].packages
        if change.old and change.new:
            more = f"--image {good.name} --package {change.name}=={change.new}"
            echo(f"which of its versions: recapture bisect {runs.cell} {more}")
    echo(f"differ: {', '.join(map(str, changed))}" + (f", and {others} others" if others else ""))


def _package_data(cell: str, search: PackageSearch) -> dict[str, object]:
    return {
        "schema": 1,
        "cell": cell,
        "changed": search.changed,
        "trials": [{"packages": names, "bad": bad} for names, bad in search.trials],
        "culprits": [
            {"packages": culprit.packages, "alone": culprit.alone, "needed": culprit.needed, "sure": culprit.sure}
            for culprit in search.culprits
        ],
    }


def _data(cell: str, search: ReleaseSearch) -> dict[str, object]:
    return {
        "schema": 1,
        "cell": cell,
        "verdicts": {name: record.verdict for name, record in search.records.items()},
        "ran": search.ran,
        "failed": search.failed,
        "always": search.always,
        "boundaries": [
            {
                "kind": boundary.kind,
                "before": boundary.before,
                "image": boundary.image,
                "old": boundary.old.verdict,
                "new": boundary.new.verdict,
                "undecided": boundary.undecided,
                "changed": boundary.changed,
                "others": boundary.others,
                "sure": boundary.sure,
            }
            for boundary in search.boundaries
        ],
    }


def _print(cell: str, search: ReleaseSearch, origin: str) -> None:
    echo(cell)
    for boundary in search.boundaries:
        words = IN_WORDS[boundary.kind]
        before = f"before, in {boundary.before}: {summary.measured(boundary.old)}"
        echo(f"{words} {boundary.image}: {summary.measured(boundary.new)}; {before}")
        echo(f"  {boundary.sure}")
        others = f", and {boundary.others} others" if boundary.others else ""
        if boundary.changed:
            echo(f"  changed: {', '.join(map(str, boundary.changed))}{others}")
        for record in (boundary.new, boundary.old):
            if why := summary.explain(record, 160):
                echo(f"  {why}")
                break
    if search.always:
        known = "nothing is known" if search.always == "unknown" else f"{search.always} in every image with a verdict"
        echo(f"no change found: {known}")
    echo(f"{plural(len(search.records) - len(search.ran), 'record')} {origin}, {len(search.ran)} run now")
    for name, why in search.failed.items():
        echo(f"not decided in {name}: {why}")
