"""The figures of docs/found.md are those of the committed records."""

import re
from collections import Counter

import pytest
import results_pages
from documents import ROOT, section

from recapture.cases.compilers import builtin_compilers
from recapture.records.record import read_conformance
from recapture.records.verdicts import FAILING, RIGHT, SILENTLY_WRONG, Verdict

FOUND = (ROOT / "docs" / "found.md").read_text(encoding="utf-8")


def group(record):
    for name, verdicts in {"right": RIGHT, "wrong": SILENTLY_WRONG, "failing": FAILING}.items():
        if record.verdict in verdicts:
            return name
    return "not run"


def records_by_cell(folder):
    return {record.cell: record for record in read_conformance(folder)}


def records_of_models(library, capability):
    """The records of a library's models; a folder with smaller images has later ones of some of them."""
    folders = sorted((ROOT / "results" / "zoo").glob(f"{library}*/bare-torch2.11.0-cu130/{capability}"))
    cells = {record.cell: record for folder in folders for record in read_conformance(folder)}
    return list(cells.values())


def latest_of(version):
    (folder,) = (path for path in (ROOT / "results").glob(f"torch{version}-cu???/cpu"))
    return folder


def test_its_counts_are_those_of_the_records():
    documented = dict(re.findall(r"^\| `([^`]+)` \| (\d+) \|$", section(FOUND, "On one release"), flags=re.MULTILINE))
    rows = read_conformance(results_pages.LATEST)
    counts = Counter(row.compiler for row in rows if row.verdict in SILENTLY_WRONG)
    assert len(documented) == 7
    assert {name: int(number) for name, number in documented.items()} == {name: counts[name] for name in documented}
    cases = len({row.case for row in rows})
    assert f"Of {cases} cases on the CPU" in section(FOUND, "On one release")


def test_its_counts_of_the_examples_for_export_are_those_of_the_records():
    text = " ".join(section(FOUND, "Torch's own examples for export").split())
    rows = read_conformance(ROOT / "results" / "exportdb" / "torch2.11.0-cu130" / "cpu")
    right = Counter(row.compiler for row in rows if row.verdict in RIGHT)
    other_size = [row for row in rows if row.compiler == "aoti" and row.verdict is Verdict.SPECIALIZED]
    other_shape = [row for row in other_size if any(difference.kind == "shape" for difference in row.differences)]
    assert f"has the {right['eager']} examples" in text
    assert f"`torch.compile` is right on {right['compile']}, `export:dynamic` on {right['export:dynamic']}" in text
    assert f"`export` on {right['export']}," in text
    assert f"`aoti` is right on {right['aoti']}." in text
    assert f"wrong on {len(other_size)} for another size alone, which it does not check: {len(other_shape)} " in text


def test_its_counts_of_compilers_that_run_only_when_named_are_those_of_the_records():
    rows = re.findall(
        r"^\| `(\S+)` \| `(\S+)` \| (.+) \|$", section(FOUND, "Compilers that run only when named"), re.MULTILINE
    )
    named = {name for name, compiler in builtin_compilers().items() if compiler.optional}
    assert {name for name, _, _ in rows} == named
    for name, default, documented in rows:
        counts = []
        for variants, folder in (
            ("torch2.11.0-cu130/cpu", "torch2.11.0-cu130/cpu"),
            ("bare-torch2.11.0-cu130/sm_90", "torch2.11.0-cu130/sm_90"),
        ):
            mine = records_by_cell(ROOT / "results" / "variants" / variants)
            cases = {record.case for record in mine.values()}
            assert len(cases) == 405
            beside = records_by_cell(ROOT / "results" / folder)
            for compiler_name, records in ((name, mine), (default, beside)):
                groups = Counter(group(records[f"{case}::{compiler_name}"]) for case in cases)
                counts.append("/".join(str(groups[which]) for which in ("right", "wrong", "failing")))
        assert documented.split(" | ") == counts


def test_its_counts_of_inputs_that_aotinductor_checks_are_those_of_the_records():
    text = " ".join(section(FOUND, "Compilers that run only when named").split())
    mine = records_by_cell(ROOT / "results" / "variants" / "torch2.11.0-cu130" / "cpu")
    beside = records_by_cell(results_pages.LATEST)
    cases = {record.case for record in mine.values()}
    changes = Counter(
        (form, group(beside[f"{case}::aoti"]), group(mine[f"{case}::aoti:{form}"]))
        for case in cases
        for form in ("checked", "dynamic")
    )
    assert f"{changes['checked', 'wrong', 'failing']} cases end in an error" in text
    assert changes["checked", "right", "failing"] == 6
    assert "Six cases with another size" in text
    right, failing = (changes["dynamic", "wrong", which] for which in ("right", "failing"))
    assert f"is right on {right} cases that `aoti` gets wrong, and {failing} do not compile" in text


@pytest.mark.parametrize(("title", "capability"), [("On a CPU", "cpu"), ("On one H100", "sm_90")])
def test_its_counts_of_models_are_those_of_the_records(title, capability):
    models = section(FOUND, "Models")
    text = models.split(f"### {title}\n", 1)[1].split("\n### ", 1)[0]
    documented = dict(re.findall(r"^\| `([\w:.]+)` \| (.+) \|$", text, flags=re.MULTILINE))
    rows = {name: records_of_models(name, capability) for name in ("torchvision", "timm", "transformers")}
    counts = Counter((row.compiler, name, group(row)) for name, records in rows.items() for row in records)
    assert documented == {
        compiler: " | ".join(
            "/".join(str(counts[compiler, name, verdict]) for verdict in ("right", "wrong", "failing"))
            if any(row.compiler == compiler for row in records)
            else "–"
            for name, records in rows.items()
        )
        for compiler in {compiler for compiler, _, _ in counts}
    }
    number = sum(len({row.case for row in records}) for records in rows.values())
    assert f"has {number} models" in " ".join(models.split())
    if capability == "cpu":
        dynamic = sum(counts["export:dynamic", name, "right"] for name in rows)
        assert f"is right on {dynamic} models" in " ".join(text.split())


def test_its_changes_are_those_of_the_records():
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+) \| (\d+) \| (\d+) \| (\d+) \| \d+ \|$", FOUND, flags=re.MULTILINE)
    assert len(rows) == 15
    for old, new, wrong, failing, fixed in rows:
        before, after = ({row.cell: group(row) for row in read_conformance(latest_of(name))} for name in (old, new))
        changed = Counter((before[cell], after[cell]) for cell in before.keys() & after if before[cell] != after[cell])
        assert changed["right", "wrong"] + changed["failing", "wrong"] == int(wrong)
        assert changed["right", "failing"] == int(failing)
        assert changed["wrong", "right"] + changed["failing", "right"] == int(fixed)


def test_its_counts_of_drifted_images_are_those_of_the_records():
    rows = re.findall(
        r"^\| ([\d.]+) \| [^|]+ → [^|]+ \| [^|]+ → [^|]+ \| ([\d,]+) \| (.+) \|$",
        section(FOUND, "Packages"),
        re.MULTILINE,
    )
    twins = sorted(path for path in (ROOT / "results").glob("torch*-drifted/cpu"))
    assert len(rows) == len(twins) == 4
    for version, cells, documented in rows:
        (twin,) = (path for path in twins if path.parent.name.startswith(f"torch{version}-"))
        before, after = records_by_cell(latest_of(version)), records_by_cell(twin)
        pairs = [(group(before[cell]), group(record)) for cell, record in after.items()]
        changed = Counter(pair for pair in pairs if pair[0] != pair[1])
        assert cells == f"{len(pairs):,}"
        assert documented == " | ".join(
            str(count)
            for count in (
                sum(number for (_, new), number in changed.items() if new == "wrong"),
                changed["right", "failing"],
                sum(number for (_, new), number in changed.items() if new == "right"),
                sum(number for (_, new), number in changed.items() if new == "not run"),
            )
        )
