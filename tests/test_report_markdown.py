"""The report in Markdown: its tables, texts with special characters, and counts that add up."""

import random
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from markdown_it import MarkdownIt

from recapture.base.errors import UsageError
from recapture.base.escape import markdown_code as code
from recapture.base.escape import markdown_text as plain
from recapture.known.claims import CLAIMS
from recapture.records.difference import Difference
from recapture.records.directories import read_results
from recapture.records.record import ClaimResult, ErrorInfo, Record
from recapture.records.verdicts import Verdict
from recapture.report.conformance_report import render_conformance, write_report
from recapture.report.document import Table, code_span
from recapture.report.markdown_writer import link, table_markdown

IMAGES = Path(__file__).parent / "resources" / "results" / "images"
BARE = IMAGES / "bare-torch2.11.0-cu130" / "cpu"
UGLY = [
    "a|b",
    "a\\|b",
    "a\\\\|b|c\\",
    "`tick`",
    "``two`` and ` one",
    "<class 'int'> & <br>",
    "*star* _under_ __dunder__ [link](x) ![i](x) $math$ ~~no~~ # h",
    "line\nbreak\r\n\n\nand tab\t.",
    "|",
    "\\",
    " ",
    "漢字 ✓ e\u0301",
    "\x1b[31mred\x00",
]


@pytest.fixture
def results():
    return read_results(BARE)


def html(markdown):
    return MarkdownIt("gfm-like", {"linkify": False}).render(markdown)


def tables(markdown):
    """The source lines of every table."""
    blocks = re.findall(r"(?:^\|.*\|$\n?)+", markdown, re.MULTILINE)
    return [block.splitlines() for block in blocks]


def width(row):
    """The number of cells of a table's row, as GitHub's parser counts them: a backslash protects the next character."""
    return len(re.sub(r"\\.", "", row).strip("|").split("|"))


def section(markdown, title):
    return markdown.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_the_same_records_give_the_same_bytes_in_any_order(results):
    shuffled = list(results.records)
    random.Random(0).shuffle(shuffled)
    once = render_conformance(results.records, results.environment)
    assert render_conformance(shuffled, results.environment) == once


def test_what_passes_in_a_minute_is_not_in_the_report(results):
    assert any(check.name == "memory" for check in results.environment.doctor)
    markdown = render_conformance(results.records, results.environment)
    assert "GiB of memory available" not in markdown
    assert "at fault: python-headers: no Python.h" in markdown


def test_every_table_has_as_many_cells_in_each_row_as_in_its_head(results):
    blocks = tables(render_conformance(results.records, results.environment))
    assert len(blocks) >= 7
    for rows in blocks:
        assert len(rows) >= 3
        assert {width(row) for row in rows} == {width(rows[0])}


def test_ugly_text_survives_a_table_and_a_list_unchanged():
    for text in UGLY:
        expected = " ".join(re.sub(r"[\x00\x1b]", "\ufffd", text).split())
        rows = html(table_markdown(Table(["x", "y"], [[code_span(text), text], ["end", "end"]])))
        cells = [unescaped(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", rows)]
        assert cells == [expected, expected, "end", "end"], text
        listed = [unescaped(item) for item in re.findall(r"<li>(.*?)</li>", html(f"- x{code(text)}\n- x{plain(text)}"))]
        assert listed == [f"x{expected}", f"x{expected}"] or not expected, text


def unescaped(fragment):
    import html as entities

    return entities.unescape(re.sub(r"</?code>", "", fragment)).strip()


def test_a_report_of_ugly_records_keeps_its_tables_whole(results):
    ugly = [
        Record(
            case=f"s::case_{i}",
            compiler=text,
            device="cpu",
            verdict=Verdict.WRONG if i % 2 else Verdict.ERROR,
            phase=None if i % 2 else "call",
            error=None if i % 2 else ErrorInfo(text, text, text),
            differences=(Difference("example", text, "value", text),) if i % 2 else (),
            claims=(ClaimResult(text, "pass|wrong", None),),
            case_hash="0",
        )
        for i, text in enumerate(UGLY)
    ]
    markdown = render_conformance(ugly, results.environment)
    for rows in tables(markdown):
        assert {width(row) for row in rows} == {width(rows[0])}
    assert markdown.isascii() or "\x1b" not in markdown
    assert html(markdown).count("<details>") == html(markdown).count("</details>")


def test_accounting_says_when_a_run_is_incomplete(results):
    def first_lines(environment):
        return render_conformance(results.records, environment)[:400]

    assert "Cells: 23 planned = 23 recorded:" in first_lines(results.environment)
    cut_off = msgspec.structs.replace(results.environment, planned=30)
    assert "**30 planned, but only 23 recorded**" in first_lines(cut_off)
    assert "Cells: 23 recorded:" in first_lines(None)


def test_the_claims_table_names_every_claim_with_what_was_measured(results):
    claims = section(render_conformance(results.records, results.environment), "Published claims")
    assert "7 claims: 5 reproduced, 1 partly reproduced, 1 not reproduced." in claims
    by_claim = claims.split("### Claim by claim")[1]
    rows = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in tables(by_claim)[0][2:]]
    ids = [row[0].split("]")[0].strip("[") for row in rows]
    assert ids == ["S5", "T1", "T10", "T12", "T13", "T16", "T18", "T18"]
    expected = "`error:InternalTorchDynamoError message~IF_NEEDED`"
    assert rows[0][1:] == ["**not reproduced**", "`foreign::dct`", "`compile`", expected, "`pass`"]
    assert rows[6][1:2] + rows[6][4:] == ["**not reproduced**", "`right graphs=3`", "`pass graphs=2`"]


def test_a_claim_says_what_it_says_and_links_to_its_source(results):
    claims = section(render_conformance(results.records, results.environment), "Published claims")
    known = CLAIMS.shipped["T1"]
    (row,) = (line for line in claims.splitlines() if line.startswith("| [T1]") and known.claim[:20] in line)
    assert f"[T1]({known.source.link})" in row
    assert plain(known.claim) in row


def test_a_claim_that_is_not_defined_is_shown_without_a_link():
    record = Record(
        case="s::c",
        compiler="fx",
        device="cpu",
        verdict=Verdict.PASS,
        claims=(ClaimResult("MINE_1", "right", holds=True),),
        case_hash="0",
    )
    claims = section(render_conformance([record], None), "Published claims")
    assert "| MINE_1  | reproduced |" in claims
    assert "](" not in claims


def test_the_address_of_a_link_cannot_end_the_link():
    (address,) = re.findall('href="(.*?)"', html(link("x", "https://a.example/b)|(c d`<e>\\")))
    assert address == "https://a.example/b%29%7C%28c%20d%60%3Ce%3E%5C"


def test_every_silent_wrong_is_spelled_out_under_its_case(results):
    wrong = section(render_conformance(results.records, results.environment), "Silently wrong")
    assert "5 cells of 4 cases" in wrong
    for record in results.records:
        if record.verdict in (Verdict.WRONG, Verdict.SPECIALIZED):
            under = wrong.split(f"- `{record.case}` (")[1].split("\n- ")[0]
            (line,) = (line for line in under.splitlines() if f"`{record.compiler}`" in line)
            assert f"({record.verdict}): on `{record.differences[0].input}`: `{record.differences[0].where}`" in line
    assert "and 2 more" in wrong


def noting(case, compiler, *noted, **fields):
    row = {"case": case, "compiler": compiler, "device": "cpu", "case_hash": "0", "verdict": Verdict.PASS}
    return Record(**row | fields, noted=noted)


def test_silent_differences_are_counted_by_kind(results):
    wrong = section(render_conformance(results.records, results.environment), "Silently wrong")
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in tables(wrong)[0][2:]]
    counted = {kind.strip("`"): (int(cells), int(cases)) for kind, cells, cases, _ in rows}
    for kind, (cells, cases) in counted.items():
        having = [
            record for record in results.records if kind in {difference.kind for difference in record.differences}
        ]
        assert (cells, cases) == (len(having), len({record.case for record in having}))
    assert set(counted) == {difference.kind for record in results.records for difference in record.differences}


def test_differences_that_decide_nothing_are_counted_by_compiler_and_kind_and_listed():
    stride = Difference("example", "result", "metadata", "stride (1, 2) in eager, (2, 1) here")
    zero = Difference("held_out[0]", "result", "value", "eager 0.0, this -0.0", bits="signed-zero")
    markdown = render_conformance([noting("s::a", "fx", stride, zero), noting("s::a", "compile", stride)], None)
    noted = section(markdown, "Differences that do not decide a verdict")
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in tables(noted)[0]]
    assert rows[0] == ["compiler", "`value`", "`metadata`"]
    assert rows[2:] == [["`compile`", "", "1"], ["`fx`", "1", "1"]]
    assert "2 cells: <b>metadata</b> <code>result: stride (1, 2) in eager, (2, 1) here</code>" in noted
    assert "1 cell: <b>value</b> <code>result: signed-zero: eager 0.0, this -0.0</code>" in noted
    assert "Differences that do not" not in render_conformance([noting("s::a", "fx")], None)


def test_a_suspect_reference_is_named_with_its_compilers():
    differences = (Difference("example", "result", "value", "eager 1, this 2", bits="value", ulps=3),)
    rows = [
        noting("s::a", name, verdict=Verdict.WRONG, input="example", differences=differences)
        for name in ("compile", "jit.trace", "fx", "export")
    ]
    line = "- `s::a`: on `example`: `result` value (3 ulp) `eager 1, this 2`: `compile`, `jit.trace`, `fx`, `export`\n"
    assert line in render_conformance(rows, None).split("### Suspect references")[1]
    assert "Suspect references" not in render_conformance(rows[1:], None)


def test_the_matrix_marks_silent_wrongs_in_bold_and_leaves_missing_cells_empty(results):
    matrix = section(render_conformance(results.records, results.environment), "Matrix")
    (row,) = (line for line in matrix.splitlines() if line.startswith("| `branch_on_sum`"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["`branch_on_sum`", "P", "P", "e", "**w**", "E", "**w**", ""]


def test_counts_add_up_to_the_records(results):
    counts = section(render_conformance(results.records, results.environment), "Counts")
    (last,) = (line for line in counts.splitlines() if line.startswith("| all "))
    numbers = [[int(number) for number in cell.replace("*", "").split("/")] for cell in last.strip("|").split("|")[1:]]
    assert numbers[0] == [sum(column) for column in zip(*numbers[1:], strict=True)] == [8, 5, 7, 3]


def test_a_suite_that_could_not_be_collected_and_why_results_are_bare_are_in_the_report(results):
    markdown = render_conformance(results.records, results.environment)
    assert "- `broken`: `SyntaxError: '(' was never closed | line 3`" in section(
        markdown, "Suites that could not be collected"
    )
    assert "bare, not the image, because nearest image: torch2.11.0-cu130, numpy 2.3.5, locked 2.4.0" in markdown


def test_no_records_at_all_still_make_a_report():
    assert "0 recorded: none" in render_conformance([], None)


def test_a_report_is_written_beside_its_records(tmp_path, results):
    (tmp_path / "conformance.jsonl").write_bytes((BARE / "conformance.jsonl").read_bytes())
    (tmp_path / "environment.json").write_bytes((BARE / "environment.json").read_bytes())
    path = write_report(tmp_path)
    assert path == tmp_path / "conformance.md"
    assert path.read_text() == render_conformance(results.records, results.environment)


def test_a_report_without_records_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match=r"no conformance\.jsonl in"):
        write_report(tmp_path)


def test_reading_and_rendering_results_never_imports_torch():
    script = (
        "import sys; from pathlib import Path\n"
        "from recapture.tools.compare.cell_changes import diff; from recapture.tools.compare.diff_report import to_json; from recapture.report import history; from recapture.records.directories import read_results\n"
        "from recapture.report import html_page as html, conformance_report as markdown, terminal_summary as terminal\n"
        f"results = read_results(Path({str(BARE)!r}))\n"
        "markdown.render_conformance(results.records, results.environment); html.render_html(results.records, results.environment)\n"
        "to_json(diff(results, results)); assert 'torch' not in sys.modules, 'torch was imported'"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
