"""Give recorded cells of ``torch.export`` the names of their calls: ``python tools/rename_export.py results``.

``export`` forced ``strict=True``. Now it is the release's own default call: strict before torch 2.8, not strict from
2.8 on. The strict records of 2.8 and later become those of ``export:strict``. On every release, one of the two named
forms makes the same call as ``export``, so that one record stands under both names: ``export:strict`` has those of
``export`` before 2.8, and ``export`` has those of ``export:nonstrict`` from 2.8 on. Timings follow their cells.
``export:dynamic`` keeps its name: its records from 2.8 on stay those of the strict call until they are recorded anew.

Nothing is measured. Published claims are about the strict call. A folder that has records of ``export:strict`` is left
as it is.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection
from pathlib import Path

import msgspec

from recapture.base.files import write_atomically
from recapture.machine.environment import ENVIRONMENT
from recapture.records.directories import find_results, read_results
from recapture.records.record import CONFORMANCE, TIMINGS, Record, write_jsonl
from recapture.records.releases import torch_version, version_key

DEFAULT, STRICT, NONSTRICT = "export", "export:strict", "export:nonstrict"


def named(record: Record, compiler: str) -> Record:
    """Return a record under the name of another compiler, as a run of that compiler would have written it."""
    reason = record.reason
    if reason is not None and reason.startswith(f"{record.compiler} needs "):
        reason = compiler + reason.removeprefix(record.compiler)
    renamed = msgspec.structs.replace(record, compiler=compiler, reason=reason)
    if compiler == STRICT:
        return renamed
    # Only compilers that are built on Dynamo on every release have counts.
    return msgspec.structs.replace(renamed, claims=(), graphs=None, graph_breaks=None, recompiles=None)


def names_of(case: str, compiler: str, exported: Collection[str], *, strict_by_default: bool) -> tuple[str, ...]:
    """Return the names of a recorded cell; `exported` are the cases that the default call is recorded of."""
    if compiler == DEFAULT:
        return (DEFAULT, STRICT) if strict_by_default else (STRICT,)
    # A case may be about the form that is not strict alone.
    if compiler == NONSTRICT and case in exported and not strict_by_default:
        return (DEFAULT, NONSTRICT)
    return (compiler,)


def convert(directory: Path) -> str:
    """Rename the cells of one results directory, and say what was done."""
    results = read_results(directory)
    compilers = {record.compiler for record in results.records}
    if DEFAULT not in compilers or STRICT in compilers:
        return "left as it is"
    strict_by_default = version_key(torch_version(results)) < version_key("2.8")
    exported = {record.case for record in results.records if record.compiler == DEFAULT}
    records = [
        record if name == record.compiler != DEFAULT else named(record, name)
        for record in results.records
        for name in names_of(record.case, record.compiler, exported, strict_by_default=strict_by_default)
    ]
    write_jsonl(directory / CONFORMANCE, records)
    # As they stand, because reading and writing would add the fields of later versions.
    lines = (directory / TIMINGS).read_text(encoding="utf-8").splitlines()
    timings = [
        row | {"compiler": name}
        for row in map(json.loads, lines)
        for name in names_of(row["case"], row["compiler"], exported, strict_by_default=strict_by_default)
    ]
    timings.sort(key=lambda row: (row["case"], row["compiler"], row["device"]))
    texts = [json.dumps(row, separators=(",", ":")) + "\n" for row in timings]
    write_atomically(directory / TIMINGS, "".join(texts).encode())
    if results.environment is not None:
        text = (directory / ENVIRONMENT).read_text(encoding="utf-8")
        old, new = len(results.records), len(records)
        for field in ("planned", "recorded"):
            text = text.replace(f'"{field}": {old},', f'"{field}": {new},', 1)
        write_atomically(directory / ENVIRONMENT, text.encode())
    numbers = {name: sum(record.compiler == name for record in records) for name in (DEFAULT, STRICT, NONSTRICT)}
    return ", ".join(f"{number} cells of {name}" for name, number in numbers.items())


def main() -> int:
    """Rename the cells of every results directory below a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    for directory in find_results(parser.parse_args().folder):
        print(f"{directory}: {convert(directory)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
