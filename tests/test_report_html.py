"""The report as an HTML page: what it holds, how it is filtered in a browser, and the command that writes it."""

import json
import re
import shutil
import subprocess
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from command_lines import recapture

from recapture.known.claims import CLAIMS
from recapture.records.difference import Difference
from recapture.records.directories import read_results
from recapture.records.kinds import KINDS
from recapture.records.record import ClaimResult, ErrorInfo, Record
from recapture.records.verdicts import SILENTLY_WRONG, Verdict
from recapture.report.claim_sources import source_text
from recapture.report.html_page import render_html

IMAGES = Path(__file__).parent / "resources" / "results" / "images"
BARE = IMAGES / "bare-torch2.11.0-cu130" / "cpu"
VOID = {"meta", "input", "br", "link", "img", "hr", "wbr"}


class Page(HTMLParser):
    """The page as tags; raises where they do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.tags = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def results():
    return read_results(BARE)


@pytest.fixture
def page(results):
    return render_html(results.records, results.environment)


def details(page):
    return json.loads(re.search(r'<script type="application/json" id="details">(.*?)</script>', page, re.DOTALL)[1])


def test_the_same_records_give_the_same_bytes_in_any_order(results, page):
    assert render_html(results.records[::-1], results.environment) == page


def test_the_page_is_well_formed_and_needs_nothing_else(page):
    tags = Page(page).tags
    assert not [attrs for _, attrs in tags if {"src", "srcset"} & attrs.keys()]
    linked = {(tag, attrs["href"][:8]) for tag, attrs in tags if "href" in attrs}
    assert {tag for tag, _ in linked} == {"a"}
    assert {start for _, start in linked if not start.startswith("#")} == {"https://"}
    assert not re.search(r"@import|url\(|fetch\(", page)
    (policy,) = (attrs["content"] for tag, attrs in tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")


def test_links_inside_the_page_point_at_something_on_it(page):
    tags = Page(page).tags
    ids = {attrs["id"] for _, attrs in tags if "id" in attrs}
    cells = {f"{detail['case']}::{detail['compiler']}" for detail in details(page)}
    inside = [unquote(attrs["href"][1:]) for _, attrs in tags if attrs.get("href", "").startswith("#")]
    assert {target for target in inside if "::" in target} <= cells
    assert {target for target in inside if "::" not in target} <= ids


def test_counts_claims_and_silent_wrongs_come_before_the_matrix(page, results):
    head = page[: page.index('<section id="matrix">')]
    assert [int(number) for number in re.findall(r'<a class="tile \w+" href="#[\w-]+"><b>(\d+)</b>', head)] == [
        8,
        5,
        7,
        3,
    ]
    assert "5 reproduced, 1 partly reproduced, 1 not reproduced" in head
    wrong = {record.case for record in results.records if record.verdict in SILENTLY_WRONG}
    assert len(re.findall('<li><div class="head">', head)) == len(wrong) == 4
    assert head.index(">S5<") < head.index(">T18<") < head.index(">T1<")  # not reproduced, partly, reproduced


def test_a_claim_shows_its_sentence_and_links_to_its_source(page):
    known = CLAIMS.shipped["T1"]
    assert f'<a href="{known.source.link}" rel="noreferrer" title="{escape(source_text("T1"))}">T1</a>' in page
    assert f"<summary>{escape(known.claim, quote=False)}</summary>" in page.replace("&#39;", "'")
    texts = json.loads(re.search(r'id="claims-data">(.*?)</script>', page, re.DOTALL)[1])
    assert texts["T1"] == {"sentence": known.claim, "link": known.source.link}


def test_a_claim_that_is_not_defined_has_no_link():
    mine = ClaimResult("MINE", "right", holds=True)
    record = Record(case="s::c", compiler="fx", device="cpu", verdict=Verdict.PASS, claims=(mine,), case_hash="0")
    page = render_html([record], None)
    assert '<span title="">MINE</span>' in page
    assert not [attrs for _, attrs in Page(page).tags if attrs.get("href", "#")[0] != "#"]


def test_every_record_is_a_cell_that_opens_on_its_own_details(results, page):
    buttons = [attrs for tag, attrs in Page(page).tags if tag == "button"]
    cells = details(page)
    assert len(buttons) == len(results.records) == len(cells)
    places = [int(attrs["data-at"]) for attrs in buttons]
    assert sorted(places) == list(range(len(cells)))
    for attrs in buttons:
        detail = cells[int(attrs["data-at"])]
        assert attrs["title"] == f"{detail['compiler']}: {detail['verdict']}"


def test_details_hold_what_was_seen_and_leave_out_what_is_empty(page):
    by_cell = {f"{detail['case']}::{detail['compiler']}": detail for detail in details(page)}
    assert by_cell["basics::sine::jit.trace"].keys() == {"case", "compiler", "device", "verdict", "case_hash"}
    assert len(by_cell["types::scale::compile"]["differences"]) == 6
    assert by_cell["control_flow::loop::compile"]["graph_breaks"] == 2


def test_text_from_records_cannot_become_markup():
    evil = "</script><script>alert(1)</script><img src=x>"
    error = ErrorInfo(evil, evil, "f")
    record = Record(
        case=f"s::{evil}", compiler=evil, device="cpu", verdict=Verdict.ERROR, phase="call", error=error, case_hash="0"
    )
    page = render_html([record], None)
    tags = [tag for tag, _ in Page(page).tags]
    assert tags.count("script") == 3
    assert "img" not in tags
    assert details(page)[0]["error"]["message"] == evil


def in_browser(tmp_path, page, script, width=1600):
    """Run a script at the end of a page in a browser, and return what it leaves as the body's text, read as JSON."""
    path = tmp_path / "page.html"
    path.write_text(
        page.replace("</body>", f"<script>document.body.textContent = JSON.stringify({script})</script></body>")
    )
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--dump-dom"]
    browser.append(f"--window-size={width},1000")
    done = subprocess.run([*browser, path.as_uri()], capture_output=True, text=True, check=True, timeout=100)
    return json.loads(re.search(r"<body>(.*)</body>", done.stdout, re.DOTALL)[1])


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser, to lay out the page")
@pytest.mark.parametrize("width", [500, 800, 1040, 1600])
def test_no_text_runs_out_of_its_tile(tmp_path, width):
    verdicts = [Verdict.PASS] * 100 + [Verdict.PASS_WITH_BREAKS] * 100
    records = [
        Record(case=f"s::c{i}", compiler="compile", device="cpu", verdict=verdict, case_hash="0")
        for i, verdict in enumerate(verdicts)
    ]
    script = """[innerWidth, ...[...document.querySelectorAll(".tile")].map((tile) => {
      const range = document.createRange();
      range.selectNodeContents(tile);
      return range.getBoundingClientRect().right - tile.getBoundingClientRect().right;
    })]"""
    page_width, *over = in_browser(tmp_path, render_html(records, None), script, width)
    assert page_width == pytest.approx(width, abs=20)
    assert len(over) == 4
    assert max(over) <= 0


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser, to lay out the page")
def test_claims_and_silent_wrongs_fill_the_first_screen_and_the_matrix_its_width(tmp_path):
    records = [
        Record(
            case=f"s::c{i}",
            compiler="fx",
            device="cpu",
            verdict=Verdict.WRONG,
            differences=(Difference("example", "result", list(KINDS)[i % len(KINDS)], "1 of 1"),),  # in several lines
            claims=(ClaimResult(f"M{i}", "right", holds=False),),
            case_hash="0",
        )
        for i in range(60)
    ]
    script = """["#claims", "#claims .scroll", "#wrong", "#wrong .scroll", "#matrix .frame", "#matrix table"].map((one) => {
      const box = document.querySelector(one).getBoundingClientRect();
      return [box.left, box.top, box.right, box.bottom];
    }).concat([[innerWidth, innerHeight]])"""
    claims, of_claims, wrong, of_wrong, frame, matrix, (width, height) = in_browser(
        tmp_path, render_html(records, None), script, 1600
    )
    for panel, inside in ((claims, of_claims), (wrong, of_wrong)):
        assert panel[3] <= height  # above the fold
        assert panel[3] - panel[1] > height / 2
        assert inside[3] == pytest.approx(panel[3], abs=3)  # the list reaches the end of its panel
    assert claims[2] < wrong[0]  # side by side
    assert wrong[2] - claims[0] > 0.9 * width
    assert frame[2] - frame[0] > 0.9 * width
    assert matrix[2] - matrix[0] == pytest.approx(frame[2] - frame[0], abs=40)  # a narrow matrix, too


def test_a_claim_says_how_many_of_its_cells_cannot_run_here():
    verdicts = {"fx": (Verdict.PASS, True), "aoti": (Verdict.NOT_APPLICABLE, None)}
    records = [
        Record(
            case="s::c",
            compiler=compiler,
            device="cpu",
            verdict=verdict,
            reason=None if holds else "not here",
            claims=(ClaimResult("M", "pass", holds=holds),),
            case_hash="0",
        )
        for compiler, (verdict, holds) in verdicts.items()
    ]
    assert "in 1 of 2 cells; 1 not runnable here</span>" in render_html(records, None)
    assert "in 1 of 1 cell</span>" in render_html(records[:1], None)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser, to run the page's script")
def test_the_keyboard_moves_through_the_matrix_and_links_open_cells(tmp_path, page):
    script = """(() => {
      const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
      const at = () => details[document.activeElement.dataset.at];
      const name = () => at().case + "::" + at().compiler;
      const stops = () => buttons.filter((one) => one.tabIndex === 0).length;
      const seen = [];
      buttons[0].focus(); seen.push(stops(), name());
      press("ArrowRight"); seen.push(name());
      press("ArrowDown"); seen.push(name());
      press("ArrowUp"); seen.push(name()); press("End"); press("Home"); seen.push(name());
      document.activeElement.click(); seen.push(document.querySelectorAll("tr.detail").length);
      press("Escape"); seen.push(document.querySelectorAll("tr.detail").length);
      field.value = "no such cell"; filter(); seen.push(stops());
      location.hash = document.querySelector("a.chip.wrong").hash; openTarget();
      seen.push(name(), document.querySelector("tr.detail b").textContent, field.value, stops());
      return seen;
    })()"""
    states = in_browser(tmp_path, page, script)
    first = ["basics::sine::compile", "basics::sine::jit.trace"]
    assert states[:3] == [1, *first]
    assert states[3] != states[2]
    assert states[3].endswith("::jit.trace")
    assert states[4:6] == first[::-1]
    assert states[6:9] == [1, 0, 0]
    assert states[9] == states[10]
    assert states[11:] == ["", 1]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser, to run the page's script")
def test_the_words_of_the_filter_must_all_be_of_one_cell(tmp_path):
    def row(case, compiler, verdict, **fields):
        return Record(case=case, compiler=compiler, device="cpu", verdict=verdict, case_hash="0", **fields)

    by_nan = (Difference("held_out[0]", "result", "value", "eager 1, this NaN"),)
    records = [
        row("s::a", "jit.script", Verdict.PASS),
        row("s::a", "fx", Verdict.WRONG, differences=by_nan),
        row("s::b", "jit.script", Verdict.WRONG),
        row("t::c", "fx", Verdict.ERROR, phase="call", error=ErrorInfo("TraceError", "no Proxy", "0123456789")),
    ]
    wanted = {
        "": ["s::a", "s::b", "t::c"],
        "jit.script wrong": ["s::b"],
        "WRONG": ["s::a", "s::b"],
        "s:: fx nan": ["s::a"],
        "traceerror proxy": ["t::c"],
        "pass": ["s::a"],
        "case": [],
        "cpu": [],
    }
    script = (
        f"{json.dumps([*wanted])}.map((said) => {{ field.value = said; filter(); "
        "return rows.filter((row) => !row.hidden).map((row) => row.dataset.case); })"
    )
    counts = in_browser(tmp_path, render_html(records, None), script)
    assert dict(zip(wanted, counts)) == wanted  # noqa: B905 - of one length


KINDS_SHOWN = [
    Record(case="s::a", compiler="fx", device="cpu", verdict=Verdict.PASS, case_hash="0", noted=(
        Difference("example", "result", "alias", "shares memory with args[0] in eager"),
        Difference("example", "result", "value", "", bits="signed-zero", ulps=0, elements=(1, 4)),
    )),
    Record(case="s::b", compiler="fx", device="cpu", verdict=Verdict.WRONG, case_hash="0", input="example",
           differences=(Difference("example", "result", "value", "", bits="value", ulps=9, elements=(3, 4)),)),
    Record(case="s::c", compiler="fx", device="cpu", verdict=Verdict.PASS, case_hash="0"),
]  # fmt: skip


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser, to run the page's script")
def test_the_page_is_filtered_by_kind_of_silent_or_noted_difference_and_shows_how_far(tmp_path):
    wanted = {
        "": ["s::a", "s::b", "s::c"],
        "differences value": ["s::b"],
        "noted value": ["s::a"],
        "noted alias": ["s::a"],
    }
    script = f"""(() => {{
      const select = document.getElementById("difference");
      const offered = [...select.options].map((one) => one.value);
      const shown = {json.dumps([*wanted])}.map((said) => {{
        select.value = said; select.dispatchEvent(new Event("change"));
        return rows.filter((row) => !row.hidden).map((row) => row.dataset.case); }});
      select.value = ""; filter();
      const cards = buttons.map((button) => {{ button.click(); return document.querySelector(".card").textContent; }});
      return [offered, shown, cards];
    }})()"""
    offered, counts, cards = in_browser(tmp_path, render_html(KINDS_SHOWN, None), script)
    assert sorted(offered) == sorted(wanted)
    assert dict(zip(wanted, counts, strict=True)) == wanted
    assert "result: value (signed-zero, 1 of 4 elements, 0 ulp)" in cards[0]


def test_notes_are_counted_by_kind_and_compiler_on_the_page():
    page = render_html(KINDS_SHOWN, None)
    table = page.split('id="noted">')[1].split("</table>")[0]
    assert re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", table) == ["compiler", "alias", "value", "fx", "1", "1"]
    assert re.search(r">value 1</span>", page)
    assert "reference is suspect" not in page
    assert '<section id="noted">' not in render_html(KINDS_SHOWN[1:], None)
    assert Page(page).tags


def test_a_suspect_reference_is_marked_on_the_page():
    differences = (Difference("example", "result", "value", "eager 1, this 2"),)
    names = ("compile", "jit.trace", "fx", "export")
    rows = [
        Record(case="s::a", compiler=name, device="cpu", verdict=Verdict.WRONG, case_hash="0", differences=differences)
        for name in names
    ]
    assert render_html(rows, None).count("The reference is suspect") == 1


def test_claims_faults_and_uncollected_suites_are_on_the_page(page):
    assert "✗ not reproduced" in page
    assert "The machine is at fault: python-headers" in page
    assert "Suite <code>broken</code> could not be collected" in page


def test_a_page_without_records_or_environment_is_still_a_page():
    assert "0 recorded" in render_html([], None)
    assert Page(render_html([], None)).tags


def test_the_command_writes_the_page_and_the_markdown_beside_the_records(tmp_path, page, capsys):
    directory = tmp_path / "results" / "bare-torch2.11.0-cu130" / "cpu"
    directory.mkdir(parents=True)
    for name in ("conformance.jsonl", "environment.json"):
        (directory / name).write_bytes((BARE / name).read_bytes())
    assert recapture("report", tmp_path / "results", "--html") == 0
    assert (directory / "conformance.html").read_text() == page
    assert (directory / "conformance.md").is_file()
    assert "silently wrong: 5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([str(IMAGES), "--output", "-"], "--output takes one results directory, and there are 3"),
        ([str(IMAGES / "torch2.6")], "does not exist; did you mean 'torch2.6.0-cu124'?"),
        ([str(BARE), "--output", "/proc/none/report.md"], "cannot write /proc/none/report.md"),
    ],
)
def test_what_cannot_be_reported_is_one_clear_line_and_exit_status_2(arguments, message, capsys):
    assert recapture("report", *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_command_prints_one_report_on_request(capsys):
    assert recapture("report", BARE, "--output", "-") == 0
    assert capsys.readouterr().out.startswith("# Conformance: `bare-torch2.11.0-cu130` on `cpu`\n")


@pytest.fixture
def copied(tmp_path):
    directory = tmp_path / "bare-torch2.11.0-cu130" / "cpu"
    directory.mkdir(parents=True)
    for name in ("conformance.jsonl", "environment.json"):
        (directory / name).write_bytes((BARE / name).read_bytes())
    return directory


def test_a_report_of_some_kinds_shows_their_cells_and_writes_nothing_beside_the_records(copied, results, capsys):
    having = [record for record in results.records if "dtype" in {difference.kind for difference in record.differences}]
    assert 0 < len(having) < len(results.records)
    assert recapture("report", copied, "--kind", "dtype") == 0
    out = capsys.readouterr().out
    assert f"23 planned = 23 recorded, {len(having)} shown: " in out
    assert sorted(path.name for path in copied.iterdir()) == ["conformance.jsonl", "environment.json"]
    page = copied.parent / "page.html"
    assert recapture("report", copied, "--kind", "dtype", "--html", "--output", page) == 0
    assert len(details(page.read_text())) == len(having)
    assert recapture("report", copied, "--kind", "dtype", "--kind", "value", "--output", "-") == 0
    assert "## Silently wrong" in capsys.readouterr().out


def test_a_kind_that_does_not_exist_and_a_page_without_a_place_are_refused(copied, capsys):
    assert recapture("report", copied, "--kind", "vibes") == 2
    assert recapture("report", copied, "--kind", "dtype", "--html") == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2
    assert errors[1] == (
        "recapture: --suite, -k and --kind with --html need --output: the page beside the records has all cells"
    )
