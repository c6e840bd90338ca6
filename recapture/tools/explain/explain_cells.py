"""The work of `recapture explain`: runs the chosen cells in children of the pool, and puts together what it says."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.option_fields import argument, option
from recapture.base.scrub import without_secrets
from recapture.cases.collection import Selection, find_suites
from recapture.machine.describe import PUBLIC_VARIABLES, SWITCHES
from recapture.records.artifact_folders import ARTIFACTS, INDEX, artifacts_folder
from recapture.records.cell_facts import CellFacts
from recapture.records.directories import holds_results, read_results
from recapture.records.record import Record
from recapture.report.findings import known_lines
from recapture.report.reasons.reason import reason_of
from recapture.run.cell_options import CellOptions
from recapture.run.plan import RunOptions
from recapture.run.runner import CellProgress, RunSummary, run_cells
from recapture.tools.explain.run_options import EXPLAIN


def _chosen(arguments: tuple[str, ...]) -> Selection:
    if not arguments:
        raise UsageError("name a cell: suite::case::compiler, or suite::case for all compilers of a case")
    return find_suites(arguments)


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(CellOptions):
    """The options of `recapture explain`."""

    selection: Selection = argument("CELL...", parse=_chosen)
    results: Path = option(
        "--results", default=Path("results"), help="Folder of the results of all images; --debug writes below it."
    )
    debug: bool = option(
        "--debug", default=False, help="Leave graphs, IR, generated code and torch's trace beside the results."
    )


def explain_cells(
    options: ExplainOptions, progress: CellProgress, warn: Callable[[str], None]
) -> tuple[RunSummary, dict[str, Path]]:
    """Run the chosen cells; return what a run returns, and the folders of artifacts by the cell's address.

    Nothing is recorded: with debugging on, a cell runs under other settings than a recorded one.
    """
    with tempfile.TemporaryDirectory(prefix="recapture-explain-") as name:
        place = Path(name)
        run = RunOptions(
            **options.for_cells,
            selection=options.selection,
            results=place / "results",
            examiner=EXPLAIN,
            artifacts=place / ARTIFACTS if options.debug else None,
            words=("explain",),
        )
        summary = run_cells(run, progress, warn)
        environment = summary.environment
        artifacts = options.results / environment.image / environment.capability / ARTIFACTS
        folders = {}
        for record in summary.selected if options.debug else ():
            suite, _, case = record.case.partition("::")
            source = artifacts_folder(place / ARTIFACTS, suite, case, record.compiler)
            if source.is_dir():
                remove_secrets(source)
                folders[record.cell] = _keep(source, artifacts_folder(artifacts, suite, case, record.compiler))
        return summary, folders


def remove_secrets(folder: Path) -> None:
    """Remove secrets from the text files of a folder of artifacts, which people send to one another.

    Torch's scripts set every environment variable whose name begins with TORCH. Of those, the values of switches and of
    `PUBLIC_VARIABLES` stay. A file that is no text, such as a compiled library, stays as it is.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        try:
            text = path.read_bytes().decode()
        except UnicodeDecodeError:
            continue
        public = without_secrets(_SET_VARIABLE.sub(_public_setting, text))
        if public != text:
            path.write_bytes(public.encode())


_SET_VARIABLE = re.compile(r"os\.environ\['(?P<name>\w+)'\] = '(?P<value>[^']*)'")
"""A line of a script that torch writes, also inside a JSON text; torch replaces quotation marks in values."""


def _public_setting(setting: re.Match[str]) -> str:
    public = setting["name"] in PUBLIC_VARIABLES or setting["value"] in SWITCHES
    return setting[0] if public else f"# {setting['name']} was set"


def _keep(source: Path, folder: Path) -> Path:
    """Move a folder of artifacts to its place; an older one there is replaced. Returns the place."""
    import shutil

    try:
        if folder.is_symlink() or (folder.exists() and not (folder / INDEX).is_file()):
            raise UsageError(f"{folder} is not a folder of artifacts: it is left as it is")
        if folder.exists():
            shutil.rmtree(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Not renamed: the temporary folder may be on another file system.
        shutil.copytree(source, folder, symlinks=True)
    except OSError as error:
        raise EnvironmentUnfitError(f"cannot write {folder}: {error.strerror}") from None
    return folder


def recorded_beside(options: ExplainOptions, summary: RunSummary) -> list[Record]:
    """Return records of the same cases that are filed for this image; an unreadable file has none."""
    directory = options.results / summary.environment.image / summary.environment.capability
    hashes = {record.case: record.case_hash for record in summary.selected}
    try:
        records = read_results(directory).records if holds_results(directory) else ()
    except UsageError:
        return []
    return [record for record in records if hashes.get(record.case) == record.case_hash]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """One explained cell: `kind` and `why` are the reason, `known` is what was found; `folder` has its artifacts."""

    cell: str
    torch: str
    image: str
    why: str | None
    kind: str | None
    record: Record
    known: tuple[str, ...] = ()
    facts: CellFacts | None = None
    folder: str | None = None


def explanation_of(
    record: Record, facts: CellFacts | None, torch: str, image: str, beside: list[Record], folder: str | None = None
) -> Explanation:
    """Return the explanation of one cell; `beside` are other records of its case, of this run or an earlier one."""
    reason = reason_of(record, beside)
    return Explanation(
        cell=record.cell,
        torch=torch,
        image=image,
        why=None if reason is None else str(reason),
        kind=None if reason is None else reason.kind,
        record=record,
        known=tuple(known_lines(record)),
        facts=facts,
        folder=folder,
    )
