"""The site of the committed results in a real browser: twelve questions of users, search, queries, keyboard and colours.

The questions are those of public threads. Each is answered within three steps, a step being what somebody types, chooses
or clicks. What the pages show is compared with what the records say, so that the answers may change with them.
"""

from __future__ import annotations

import shutil
import statistics
import time
from pathlib import Path

import pytest

from recapture.tools.site.collect import collect
from recapture.tools.site.pages import site_files
from recapture.tools.site.strips import phrase
from recapture.tools.site.view import Site

playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

RESULTS = Path(__file__).resolve().parents[1] / "results"
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
BYTES = 300_000
"""The most bytes of a page."""

MILLISECONDS = 100
"""The most milliseconds of a query over all records."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser"),
]


SECONDS = 60
"""The most seconds of the processor that the site of all committed results takes to build."""


@pytest.fixture(scope="module")
def seconds():
    """The seconds of the processor that each step of the building took, by name."""
    return {}


@pytest.fixture(scope="module")
def document(seconds):
    start = time.process_time()
    document = collect(RESULTS)
    seconds["collect"] = time.process_time() - start
    return document


@pytest.fixture(scope="module")
def site(document, seconds, tmp_path_factory):
    """The folder of the site."""
    folder = tmp_path_factory.mktemp("site")
    start = time.process_time()
    for name, content in site_files(document):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    seconds["pages"] = time.process_time() - start
    return folder


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()


class Visitor:
    """Somebody who uses the site; counts what they type, choose and click."""

    def __init__(self, page, site):
        self.page, self.site, self.steps = page, site, 0

    def search(self, text):
        self.steps += 1
        self.page.fill("#q", text)
        self.page.keyboard.press("Enter")
        return self.drawn()

    def choose(self, name, value):
        self.steps += 1
        self.page.select_option(f"#filters [name={name}]", value)
        return self.drawn()

    def click(self, selector, **options):
        self.steps += 1
        self.page.locator(selector, **options).first.click()
        self.page.wait_for_load_state()
        return self

    def drawn(self):
        """Wait until what the search line and the filters say is on the page."""
        self.page.wait_for_function(
            """() => {
              const values = { q: document.getElementById("q").value.trim(), ...Object.fromEntries(new FormData(document.getElementById("filters"))) };
              return document.body.dataset.drawn === JSON.stringify(values);
            }"""
        )
        return self

    @property
    def hits(self):
        return self.page.locator(".hits > li").all_inner_texts()

    @property
    def status(self):
        return self.page.inner_text("#status")

    @property
    def text(self):
        return self.page.inner_text("main")


@pytest.fixture
def open_page(browser, site):
    """Open a page of the site; at the end no page has written an error to the console."""
    contexts, faults = [], []

    def open_page(name="index.html", **options):
        context = browser.new_context(**({"viewport": WIDE} | options))
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto((site / name.partition("#")[0]).as_uri() + (f"#{name.partition('#')[2]}" if "#" in name else ""))
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture
def visitor(open_page, site):
    visitor = Visitor(open_page(), site)
    yield visitor
    assert 0 < visitor.steps <= 3


def words_of(document, case, compiler, capability="cpu"):
    """What the strip of a cell amounts to, in words."""
    return phrase(document, document.cases[case].cells[compiler][capability].marks).words


def cells_where(document, test):
    """The numbers of cells, and of their cases, that pass a test of the compiler, the strips and the case."""
    cells = [
        (name, compiler)
        for name, case in document.cases.items()
        for compiler, strips in case.cells.items()
        if test(compiler, strips, case)
    ]
    return f"{len(cells)} {'cell' if len(cells) == 1 else 'cells'} of {len({name for name, _ in cells})} cases"


def group(document, mark):
    return None if mark == "." else document.marks[mark].group


# Twelve questions


def test_is_item_in_an_if_safe_under_export_and_since_when(visitor, document):
    visitor.search("is .item() in an if safe under export, since when")
    assert ".item() in a condition" in visitor.hits[0]
    assert "export" in visitor.hits[0]
    visitor.click(".hits a")
    assert words_of(document, "graphs::item_in_condition", "export") in visitor.text


def test_which_release_repaired_argmin_of_a_transpose(visitor, document):
    visitor.search("which release broke argmin of a transpose")
    assert "argmin" in visitor.hits[0]
    visitor.click(".hits a")
    case = "known_inductor::argmin_of_a_transpose_after_tan"
    visitor.click(f"tr[data-key='{case}::compile'] td a")
    assert words_of(document, case, "compile") in visitor.page.inner_text("tr.record")
    assert f"recapture run {case}::compile --image" in visitor.page.inner_text("tr.record")


def test_what_changed_from_one_release_to_the_next(visitor, document):
    def newly_wrong(at):
        return sum(
            group(document, strips["cpu"].marks[at - 1]) == "right"
            and group(document, strips["cpu"].marks[at]) == "silently wrong"
            for case in document.cases.values()
            for strips in case.cells.values()
            if "cpu" in strips
        )

    at = max(range(1, len(document.releases)), key=newly_wrong)
    old, new = document.releases[at - 1 : at + 1]
    visitor.search(f"{old} → {new}")
    visitor.click(".hits a", has_text=f"{old} → {new}")
    wrong = newly_wrong(at)
    assert f"{wrong} newly silently wrong" in visitor.text


def test_does_scipy_fft_work_under_compile(visitor, document):
    visitor.search("scipy.fft under compile")
    assert "scipy.fft" in visitor.hits[0]
    assert (
        phrase(document, document.cases["scipy_numpy::scipy_dct"].cells["compile"]["cpu"].marks).words
        in visitor.hits[0]
    )


def test_does_resnet18_compile_on_a_gpu(visitor, document):
    visitor.search("resnet18 torchvision on an H100")
    visitor.click(".hits a", has_text="resnet18 (torchvision)")
    strips = document.cases["zoo_torchvision::resnet18"].cells["compile"]
    (capability,) = (name for name in strips if name != "cpu")
    assert phrase(document, strips[capability].marks).words in visitor.text
    visitor.click(f"tr[data-key='zoo_torchvision::resnet18::compile'] td a[href$='/{capability}']")
    assert "recapture run suites/zoo/zoo_torchvision.py -k resnet18 --compiler compile --device cuda" in visitor.text


def test_what_does_this_message_mean(visitor, document):
    visitor.search(
        "Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y): "
        "(attempted to jump with TensorVariable()) at my_model.py:412"
    )
    assert visitor.hits[0].startswith("message")
    assert "attempted to jump with TensorVariable()" in visitor.hits[0]
    visitor.click(".hits a")
    assert "attempted to jump with TensorVariable()" in visitor.page.inner_text("tr.record")


def test_does_this_issue_still_hold(visitor, document):
    issue = document.issues["174073"]
    visitor.search("174073")
    visitor.click(".hits a", has_text="#174073")
    rows = visitor.page.locator("#cpu + .scroll tbody tr").all_inner_texts()
    newest = {"w": "wrong", "r": "right"}[issue.measured["cpu"][-1]]
    assert rows[-1].split()[:1] == [document.releases[-1]]
    assert newest in rows[-1]


def test_where_does_the_gpu_differ_from_the_cpu(visitor, document):
    visitor.click("a", has_text="cpu:right cuda:wrong")
    visitor.drawn()

    def differs(_compiler, strips, _case):
        return any(
            group(document, strips["cpu"].marks[at]) == "right"
            and any(
                group(document, strip.marks[at]) == "silently wrong"
                for capability, strip in strips.items()
                if capability != "cpu"
            )
            for at in range(len(document.releases))
            if "cpu" in strips
        )

    assert visitor.status == cells_where(document, differs)


def test_which_graph_breaks_came_with_a_release(visitor, document):
    old, new = document.releases[-4], document.releases[-3]
    visitor.choose("from", old)
    visitor.choose("to", new)
    visitor.choose("is", "breaks")

    def came(compiler, strips, _case):
        was, now = document.releases.index(old), document.releases.index(new)
        marks = [strip.marks for strip in strips.values()]
        newest = [line.rstrip(".")[-1] for line in marks if line.strip(".")]
        return (
            compiler == "compile"
            and any(line[was] != line[now] and "." not in (line[was], line[now]) for line in marks)
            and any(document.marks[mark].tone == "broken" for mark in newest)
        )

    assert visitor.status.startswith(cells_where(document, came))


def test_what_can_i_write_instead_of_a_branch_on_a_value(visitor, document):
    visitor.search("branch on the value of a tensor")
    visitor.click(".hits a")
    assert document.behaviours["branch-on-tensor-value"].cure.replace("`", "") in visitor.text
    rewrite = document.behaviours["branch-on-tensor-value"].rewrite[0]
    visitor.click("main a", has_text=rewrite)
    assert rewrite in visitor.text
    assert words_of(document, rewrite, "compile") in visitor.text


def test_how_much_faster_is_a_training_step(visitor, document):
    visitor.click("nav a", has_text="Speed")
    visitor.click("main a", has_text="densenet121_train")
    timed = [speed for speed in document.speeds if speed.workload == "densenet121_train" and speed.speedup]
    assert timed
    for speed in timed:
        assert f"{speed.speedup[0]:.2f}×" in visitor.text
    assert visitor.page.locator("figure.intervals circle").count() == len(timed)


def test_which_wrong_aliases_are_in_no_thread_yet(visitor, document):
    visitor.search("kind:alias is:wrong no-thread")

    def unknown(compiler, strips, case):
        newest = [strip.marks.rstrip(".")[-1] for strip in strips.values() if strip.marks.strip(".")]
        return (
            any("alias" in run.kinds for strip in strips.values() for run in strip.runs)
            and any(group(document, mark) == "silently wrong" for mark in newest)
            and not any(not names or compiler in names for names in case.threads.values())
        )

    assert visitor.status == cells_where(document, unknown)


# Queries


def strips_with(document, words):
    """A test of cells: whether neighbouring outcomes of one of the strips are these words, one after the other."""

    def test(_compiler, strips, _case):
        for strip in strips.values():
            groups = [document.marks[mark].group for mark in strip.marks if mark != "."]
            groups = [name for name in groups if name != "not run"]
            groups = [name for at, name in enumerate(groups) if not at or groups[at - 1] != name]
            if any(groups[at : at + len(words)] == words for at in range(len(groups))):
                return True
        return False

    return test


def turned_bad_in(document, release):
    def test(_compiler, strips, _case):
        at = document.releases.index(release)
        for strip in strips.values():
            groups = [group(document, mark) for mark in strip.marks[: at + 1]]
            if groups[-1] not in ("silently wrong", "failing"):
                continue
            before = [name for name in groups[:-1] if name not in (None, "not run")]
            if not before or before[-1] == "right":
                return True
        return False

    return test


def queries(document):
    release = document.releases[-2]
    return {
        "compiler:compile seq(right wrong)": lambda *cell: (
            cell[0] == "compile" and strips_with(document, ["right", "silently wrong"])(*cell)
        ),
        "seq(wrong right wrong)": strips_with(document, ["silently wrong", "right", "silently wrong"]),
        f"first-bad:{release}": turned_bad_in(document, release),
        "kind:alias": lambda _compiler, strips, _case: any(
            "alias" in run.kinds for strip in strips.values() for run in strip.runs
        ),
        "no-thread": lambda compiler, _strips, case: (
            not any(not names or compiler in names for names in case.threads.values())
        ),
        "ever:crash": lambda _compiler, strips, _case: any(
            mark != "." and document.marks[mark].verdict == "crash" for strip in strips.values() for mark in strip.marks
        ),
        "compiler:export* -compiler:export:strict": lambda compiler, *_: (
            compiler.startswith("export") and compiler != "export:strict"
        ),
        "compiler:fx or compiler:make_fx": lambda compiler, *_: compiler in ("fx", "make_fx"),
        f"{release}:wrong on:cpu": lambda _compiler, strips, _case: (
            "cpu" in strips and group(document, strips["cpu"].marks[-2]) == "silently wrong"
        ),
    }


def test_every_query_counts_what_the_records_say_and_is_fast(open_page, site, document):
    visitor = Visitor(open_page(), site)
    for query, test in queries(document).items():
        milliseconds = []
        for _ in range(3):
            visitor.search("")
            visitor.search(query)
            milliseconds.append(float(visitor.page.evaluate("document.body.dataset.milliseconds")))
        assert visitor.status == cells_where(document, test), query
        assert statistics.median(milliseconds) < MILLISECONDS, query


WIDTHS = """[...document.querySelectorAll("table.strips tbody tr[data-key]")].map((row) => [
  [...row.querySelectorAll("td")].reduce((sum, cell) => sum + cell.colSpan, 0),
  row.closest("table").querySelectorAll("thead .release").length,
])"""
"""For each row of strips, the columns that its cells take, and the releases of its table."""


def test_strips_of_a_query_are_as_wide_as_the_columns_of_their_table(open_page, site):
    """The releases of a GPU are not neighbours among all releases."""
    visitor = Visitor(open_page(), site).search("suite:scipy_numpy compiler:compile:reduce-overhead")
    widths = visitor.page.evaluate(WIDTHS)
    assert len(widths) > 5
    assert {wide - columns for wide, columns in widths} == {0}


def test_a_query_has_an_address_and_back_returns_to_it(open_page, site):
    page = open_page("index.html#q=compiler%3Aexport%20seq(right%20wrong)")
    visitor = Visitor(page, site).drawn()
    status = visitor.status
    assert "cells" in status
    visitor.search("argmin")
    assert "q=argmin" in page.url
    page.go_back()
    visitor.drawn()
    assert page.input_value("#q") == "compiler:export seq(right wrong)"
    assert visitor.status == status


@pytest.mark.parametrize(
    "query", ["is:purple", "compiler:nothing", "kind:vibes", "first-bad:9.9.9", "colour:red", "on:tpu"]
)
def test_a_term_that_does_not_exist_is_said_in_one_line(open_page, site, query):
    visitor = Visitor(open_page(), site).search(query)
    assert visitor.page.get_attribute("#status", "class") == "fault"
    assert visitor.status.startswith("no ")
    assert visitor.page.locator("#results table").count() == 0


def test_words_with_a_colon_in_a_pasted_message_are_no_terms(open_page, site):
    visitor = Visitor(open_page(), site).search(
        "torch.fx.proxy.TraceError: symbolically traced variables at line:12 cannot be used as inputs to control flow"
    )
    assert visitor.page.get_attribute("#status", "class") != "fault"
    assert any("symbolically traced variables cannot be used" in hit for hit in visitor.hits)


def test_a_filter_shows_another_compiler_and_device_and_is_in_the_address(open_page, site, document):
    page = open_page()
    visitor = Visitor(page, site)
    name = "branch-on-tensor-value"
    visitor.choose("compiler", "jit.trace")
    assert "compiler=jit.trace" in page.url
    marks = Site(document).worst_of(document.behaviours[name].cases, "jit.trace")["cpu"]
    cell = page.locator(f"#overview tr[data-key='{name}'] td").first
    assert document.marks[marks[0]].short in cell.inner_text()
    again = Visitor(open_page(page.url.rpartition("/")[2]), site).drawn()
    assert again.page.input_value("#filters [name=compiler]") == "jit.trace"
    assert (
        document.marks[marks[0]].short in again.page.locator(f"#overview tr[data-key='{name}'] td").first.inner_text()
    )
    visitor.choose("on", document.capabilities[-1])
    assert page.locator("#overview thead th.release").first.inner_text() in document.releases


# Keyboard, colours, sizes


def test_the_keyboard_alone_searches_opens_a_page_and_its_records(open_page, site):
    page = open_page()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.type("branch on the value")
    Visitor(page, site).drawn()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/behaviours/**")
    page.locator("section.case table.strips td a[tabindex='0']").first.focus()
    before = page.evaluate("document.activeElement.href")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.href") != before
    page.keyboard.press("Enter")
    page.wait_for_selector("tr.record")
    assert "recapture repro" in page.inner_text("tr.record")
    assert "@" in page.url
    page.keyboard.press("Escape")
    assert page.locator("tr.record").count() == 0
    assert page.evaluate("document.activeElement.closest('table.strips') !== null")


def test_one_table_of_strips_is_one_stop_of_the_tab_key(open_page):
    page = open_page("behaviours/branch-on-tensor-value.html")
    stops = page.evaluate(
        "[...document.querySelectorAll('table.strips')].map((table) => table.querySelectorAll('td > a:not([tabindex=\"-1\"])').length)"
    )
    assert set(stops) == {1}


def test_the_address_of_a_record_opens_it(open_page, document):
    case = "graphs::item_in_condition"
    page = open_page(f"behaviours/item-in-condition.html#{case}::jit.trace@{document.releases[0]}/cpu")
    page.wait_for_selector("tr.record")
    text = page.inner_text("tr.record")
    assert document.releases[0] in text
    image = next(entry.image for entry in document.environments if entry.release == document.releases[0])
    assert f"results/{image}/cpu/conformance.jsonl" in text
    assert f"recapture run {case}::jit.trace --image {image}" in text


PAGES = [
    "index.html",
    "index.html#q=argmin",
    "index.html#q=kind%3Aalias",
    "behaviours/branch-on-tensor-value.html",
    "behaviours/argmin-of-transpose.html#known_inductor::argmin_of_a_transpose_after_tan::compile@2.6.0/cpu",
    "releases.html",
    "releases/2.11.0.html",
    "upgrades/2.10.0-2.11.0.html",
    "compilers.html",
    "compilers/export.html",
    "models.html",
    "models/torchvision-resnet18.html",
    "speed.html",
    "speed/resnet18_eval.html",
    "issues.html",
    "issues/174073.html",
    "help.html",
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_no_page_has_a_fault_of_accessibility_in_either_colours(open_page, name, scheme):
    page = open_page(name, color_scheme=scheme)
    page.wait_for_timeout(200)
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
    # The colours are all that differs in the dark. Preloading asks for files, which a browser refuses to a page of a folder.
    rules = {"type": "tag", "values": tags} if scheme == "light" else {"type": "rule", "values": ["color-contrast"]}
    audit = axe.Axe().run(page, options={"runOnly": rules, "preload": False, "resultTypes": ["violations"]})
    violations = {
        violation["id"]: [node["html"][:200] for node in violation["nodes"]][:3]
        for violation in audit.response["violations"]
    }
    assert violations == {}


@pytest.mark.parametrize("viewport", [NARROW, WIDE], ids=["narrow", "wide"])
@pytest.mark.parametrize("name", PAGES)
def test_no_page_is_wider_than_the_screen(open_page, name, viewport):
    page = open_page(name, viewport=viewport)
    page.wait_for_timeout(100)
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


def test_dark_and_light_follow_the_system_and_the_button_which_is_remembered(open_page):
    def background(page):
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light, dark = open_page(color_scheme="light"), open_page(color_scheme="dark")
    assert background(light) != background(dark)
    night = background(dark)
    light.click(".theme")
    assert background(light) == night
    light.reload()
    assert background(light) == night


def test_a_printed_page_has_strips_and_no_navigation(open_page):
    page = open_page("behaviours/branch-on-tensor-value.html")
    page.emulate_media(media="print")
    assert not page.locator("header.top").is_visible()
    assert page.locator("section.case table.strips").first.is_visible()
    colour = page.evaluate("getComputedStyle(document.querySelector('td.t-wrong')).printColorAdjust")
    assert colour == "exact"


def test_the_front_page_works_without_a_script(browser, site, document):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / "index.html").as_uri())
    assert page.locator("#overview tr[data-key]").count() == len(document.behaviours)
    context.close()


def test_the_site_is_built_in_less_than_a_minute(site, seconds):
    assert set(seconds) == {"collect", "pages"}
    assert sum(seconds.values()) < SECONDS


def test_no_page_is_large(site):
    sizes = {str(path.relative_to(site)): path.stat().st_size for path in site.rglob("*.html")}
    assert len(sizes) > 300
    assert {name: size for name, size in sizes.items() if size >= BYTES} == {}


def test_the_front_page_can_be_used_within_a_second_on_a_processor_a_quarter_as_fast(browser, site):
    """The page's own time of the processor counts, because other processes of the machine are not the page's."""
    context = browser.new_context(viewport=NARROW)
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto((site / "index.html").as_uri())
    page.wait_for_function("document.body.dataset.ready === 'yes'")
    metrics = {row["name"]: row["value"] for row in session.send("Performance.getMetrics")["metrics"]}
    assert 0 < metrics["ThreadTime"] * 4 < 1
    context.close()


def test_the_front_page_lays_out_what_is_on_the_screen_and_the_rest_when_it_is_scrolled_to(open_page):
    """Layout is most of what the page's start costs: 361 rows of strips."""
    page = open_page(viewport=NARROW)
    groups = page.locator("#overview details.group")
    script = "group => group.querySelector('tbody a').checkVisibility({contentVisibilityAuto: true})"
    assert groups.count() > 5
    assert groups.first.evaluate(script)
    assert not groups.last.evaluate(script)
    groups.last.scroll_into_view_if_needed()
    page.wait_for_function(f"({script})(document.querySelector('#overview details.group:last-of-type'))")
    page.emulate_media(media="print")
    assert groups.nth(2).locator("table").bounding_box()["height"] > 100
