"""The data package and the pages that are built from it, with planted data of a few cells."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import jsonschema
import msgspec
import pytest
from planted_data import pages_of, planted

from recapture import data as data_module
from recapture.command.main import main
from recapture.data import (
    Environment,
    Run,
    Span,
    Strip,
    decode,
    encode,
    load,
)
from recapture.tools.site.collect import called_names, collect
from recapture.tools.site.data_package import package_files
from recapture.tools.site.pages import site_files
from recapture.tools.site.strips import in_short, phrase, segments, worst
from recapture.tools.site.view import MOST_CASES, Site, script_json

REPOSITORY = Path(__file__).resolve().parents[1]
PLANTED = Path(__file__).parent / "resources" / "results" / "images"
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
VOID = {"meta", "input", "br", "link", "img", "hr", "col", "wbr"}


class Page(HTMLParser):
    """The tags and ids of a page; raises where tags do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags = [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID and not (self.open and self.open[-1] == "svg" and tag == "line"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def files():
    return dict(site_files(planted()))


# The document


def test_a_document_survives_writing_and_reading_and_is_the_same_bytes_again():
    document = planted()
    assert decode(encode(document)) == document
    assert encode(decode(encode(document))) == encode(document)


def test_a_document_fits_its_schema_and_another_does_not():
    schema = data_module.json_schema()
    document = json.loads(encode(planted()))
    jsonschema.validate(document, schema)
    del document["cases"]["suite::branch"]["cells"]["compile"]["cpu"]["marks"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{}", "required field"),
        (encode(planted()).replace(b"PwwP", b"Pww"), "are not those of 4 releases"),
        (encode(planted()).replace(b"PwwP", b"PwXP"), "are not those of 4 releases"),
        (encode(planted()).replace(b'"schema":1', b'"schema":2'), "Invalid enum value 2"),
        (gzip.compress(encode(planted()))[:200], "Compressed file ended"),
    ],
)
def test_a_file_that_is_no_document_is_one_clear_line(tmp_path, capsys, content, message):
    path = tmp_path / "data.json"
    path.write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        main(["site", "--data", str(path), "--output", str(tmp_path / "site")])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert str(path) in error
    assert error.count("\n") == 1
    assert not (tmp_path / "site").exists()


def test_without_data_the_reader_says_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setattr(data_module, "CHECKOUT", tmp_path)
    monkeypatch.setattr(data_module, "PACKAGE", "no_such_package_at_all")
    with pytest.raises(data_module.UsageError, match="install the package recapture-data, or run `recapture data`"):
        load()


def test_the_packages_hold_the_document_and_its_schema_and_are_the_same_bytes_again(tmp_path):
    document = planted()
    files = package_files(document)
    assert files == package_files(decode(encode(document)))
    assert decode(gzip.decompress(files["pip/recapture_data/data.json.gz"])) == document
    assert decode(files["npm/data.json"]) == document
    assert json.loads(files["npm/package.json"])["version"] == "1.2.3"
    assert b'\nversion = "1.2.3"\n' in files["pip/pyproject.toml"]
    assert json.loads(files["npm/schema.json"]) == json.loads(json.dumps(data_module.json_schema()))
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    program = "import recapture_data; print(len(recapture_data.load()['cases']))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(tmp_path / 'pip')!r}); {program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "3\n"


def test_the_reader_imports_neither_torch_nor_a_tool():
    program = "import sys, recapture.data; print([name for name in sys.modules if 'torch' == name or 'recapture.tools' in name])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_document_of_results_has_every_recorded_cell_with_its_mark():
    document = collect(PLANTED)
    recorded = {}
    for path in PLANTED.rglob("conformance.jsonl"):
        image, capability = path.parts[-3:-1]
        for line in path.read_text().splitlines():
            row = json.loads(line)
            recorded[row["case"], row["compiler"], capability, image] = row["verdict"]
    assert recorded
    for (case, compiler, capability, image), verdict in recorded.items():
        (environment,) = (
            entry for entry in document.environments if (entry.image, entry.capability) == (image, capability)
        )
        strip = document.cases[case].cells[compiler][capability]
        mark = strip.marks[document.releases.index(environment.release)]
        same_release = [
            sibling
            for sibling in document.environments
            if (sibling.release, sibling.capability) == (environment.release, capability)
        ]
        if len(same_release) == 1:
            assert document.marks[mark].verdict == verdict
    assert document.releases == tuple(sorted(document.releases, key=lambda name: [*map(int, name.split("."))]))
    assert encode(collect(PLANTED)) == encode(document)


# Strips in words


def test_neighbouring_releases_with_one_outcome_are_a_span():
    document = planted()
    strip = document.cases["suite::branch"].cells["compile"]["cpu"]
    assert list(document.spans(strip)) == [
        Span("2.0.1", "2.0.1", "right"),
        Span("2.1.2", "2.10.0", "silently wrong"),
        Span("2.11.0", "2.11.0", "right"),
    ]


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        ("PPPP", "right on every release"),
        ("wwww", "silently wrong on every release"),
        ("-EEE", "fails on every release from 2.1.2 on"),
        ("PwwP", "silently wrong since 2.1.2, right again in 2.11.0"),
        ("PPpp", "right until 2.1.2, right, with graph breaks since 2.10.0"),
        ("..w.", "silently wrong on 2.10.0"),
        ("PwEP", "right on 2.0.1, silently wrong on 2.1.2, fails on 2.10.0, right on 2.11.0"),
        ("----", "does not apply to any release"),
        ("w.ww", "silently wrong on every release"),
    ],
)
def test_a_strip_in_words(marks, words):
    assert phrase(planted(), marks).words == words


def test_a_strip_without_a_record_has_no_words():
    assert phrase(planted(), "....") is None


def test_the_worst_of_strips_is_worst_release_by_release():
    assert worst(planted(), ["PP.w", "pE-P", "..--"]) == "pE-w"
    assert worst(planted(), ["....", "P..."]) == "P..."


def test_compilers_with_the_same_words_are_one_line_and_the_worst_comes_first():
    lines = in_short(planted(), {"a": "PPPP", "b": "wwww", "c": "PPPP", "d": "EEEE", "e": "...."})
    assert [(line.tone, line.compilers) for line in lines] == [
        ("wrong", ("b",)),
        ("failing", ("d",)),
        ("right", ("a", "c")),
    ]


def test_segments_cover_the_columns_without_overlap():
    parts = segments(planted(), "PPw.", (0, 1, 2, 3))
    assert [(part.first, part.width, part.mark, part.tone) for part in parts] == [
        (0, 2, "P", "right"),
        (2, 1, "w", "wrong"),
        (3, 1, ".", "empty"),
    ]
    assert [(part.first, part.width) for part in segments(planted(), "P..P", (0, 3))] == [(0, 2)]


def test_the_page_of_models_has_the_newest_outcome_of_each_compiler():
    strips = {
        "eager": {"cpu": Strip("PPPP")},
        "compile": {"cpu": Strip("PPw."), "sm_90": Strip("..P.")},
    }
    document = planted()
    cases = dict(document.cases)
    for model, cells in [("net", strips), ("other", {"compile": {"cpu": Strip("...E")}})]:
        cases[f"zoo::{model}"] = msgspec.structs.replace(
            cases["suite::branch"], behaviour=None, model=("zoo", model), cells=cells
        )
    page = pages_of(dict(site_files(msgspec.structs.replace(document, cases=cases))))["models.html"]
    heads = re.findall(r'<a href="compilers/([\w.]+)\.html">', page)
    rows = {
        name: re.findall(r'<td(?: class="t-(\w+)")?', row)
        for name, row in re.findall(r'models/zoo-(\w+)\.html">.*?</th>(.*?)</tr>', page)
    }
    assert heads == ["compile", "compile"]
    assert rows == {"net": ["wrong", "right"], "other": ["failing", ""]}


def test_names_that_code_calls_are_found_without_those_of_its_decorators():
    import ast

    body = ast.parse("y = torch.argmin(x.t())\nF.relu(y)\nhelper(y)\nnp.fft.fft(y)").body
    assert called_names(body) == {"torch.argmin", ".t", "torch.nn.functional.relu", "numpy.fft.fft"}


# The pages


def test_every_page_is_well_formed_and_names_itself(files):
    pages = pages_of(files)
    assert {"index.html", "behaviours/branch.html", "suites/lone.html", "releases/2.11.0.html"} <= pages.keys()
    assert {
        "upgrades/2.10.0-2.11.0.html",
        "compilers/compile.html",
        "speed/net.html",
        "issues/123.html",
    } <= pages.keys()
    titles = set()
    for text in pages.values():
        tags = Page(text).tags
        assert [tag for tag, _ in tags].count("h1") == 1
        titles.add(re.search("<title>(.*?)</title>", text)[1])
    assert len(titles) == len(pages)


def test_releases_that_only_a_gpu_makes_neighbours_have_a_page_and_no_strip_is_wider_than_its_columns():
    document = planted()
    branch = document.cases["suite::branch"]
    older = Environment(release="2.0.1", capability="sm_90", image="torch2.0.1", torch="2.0.1", hardware="H1")
    compiled = branch.cells["compile"] | {"sm_90": Strip("P.w.", (Run(2, 0, ("value",)),))}
    cells = branch.cells | {"compile": compiled, "eager": branch.cells["eager"] | {"sm_90": Strip("P.P.")}}
    cases = document.cases | {"suite::branch": msgspec.structs.replace(branch, cells=cells)}
    pages = pages_of(dict(site_files(planted(cases=cases, environments=(*document.environments, older)))))
    assert "1 newly silently wrong" in pages["upgrades/2.0.1-2.10.0.html"]
    assert "upgrades/2.0.1-2.10.0.html#sm_90-newly_wrong" in pages["releases/2.10.0.html"]
    assert "upgrades/2.0.1-2.10.0.html" not in pages["releases/2.11.0.html"]
    widths = []
    for text in pages.values():
        for table in re.findall(r'<table class="strips.*?</table>', text, flags=re.DOTALL):
            columns = table.count('class="release')
            for row in re.findall(r"<tr data-key.*?</tr>", table):
                wide = [int(number) for number in re.findall(r'<td colspan="(\d+)"', row)]
                widths.append(sum(wide) + len(re.findall(r"<td class", row)) == columns)
    assert len(widths) > 4
    assert all(widths)


def test_the_table_of_releases_counts_the_cpu_alone():
    document = planted()
    cases = dict(document.cases)
    cells = {"compile": {"cpu": Strip("PPPw"), "sm_90": Strip("PPPw")}}
    cases["suite::branch"] = msgspec.structs.replace(cases["suite::branch"], cells=cells)
    page = pages_of(dict(site_files(msgspec.structs.replace(document, cases=cases))))["releases.html"]
    (row,) = re.findall(r'<a href="releases/2.11.0.html">.*?</th>(.*?)</tr>', page, re.DOTALL)
    newly_wrong, newly_failing, *_ = re.findall(r'<td class="number">(\d+)</td>', row)
    assert (newly_wrong, newly_failing) == ("1", "0")


def test_every_link_within_the_site_leads_to_a_file_and_a_place_on_it(files):
    pages = pages_of(files)
    ids = {name: {attrs["id"] for _, attrs in Page(text).tags if "id" in attrs} for name, text in pages.items()}
    checked = 0
    for name, text in pages.items():
        for _, attrs in Page(text).tags:
            address = attrs.get("href") or attrs.get("src")
            if address is None or address.startswith(("https://", "data:")):
                continue
            path, place = urldefrag(address)
            target = (Path("/") / Path(name).parent / path).resolve().relative_to("/").as_posix() if path else name
            assert target in files, (name, address)
            place = unquote(place)
            if place and "=" not in place and "@" not in place:
                assert place in ids[target], (name, address)
            checked += 1
    assert checked > 100


def test_no_page_loads_anything_from_elsewhere(files):
    for name, text in pages_of(files).items():
        loaded = [attrs for tag, attrs in Page(text).tags if tag in ("script", "img", "link", "iframe")]
        for attrs in loaded:
            assert not (attrs.get("src") or attrs.get("href") or "").startswith(("http", "//")), name
    style = files["assets/site.css"].decode()
    assert "@import" not in style
    assert "url(" not in style
    assert "fetch(" not in files["assets/site.js"].decode()


def test_every_cell_is_on_the_page_of_its_case(files):
    document = planted()
    pages = pages_of(files)
    site = Site(document)
    for name, case in document.cases.items():
        text = pages[site.pages[name].partition("#")[0]]
        page_data = json.loads(re.search('id="page-data">(.*?)</script>', text, re.DOTALL)[1])
        for compiler, strips in case.cells.items():
            assert f'data-key="{name}::{compiler}"' in text
            for capability, strip in strips.items():
                assert page_data["cells"][f"{name}::{compiler}"][capability][0] == strip.marks


def test_a_strip_of_the_page_opens_the_records_of_its_cell(files):
    text = pages_of(files)["behaviours/branch.html"]
    assert 'href="#suite::branch::compile@2.1.2/cpu"' in text
    assert "silently wrong since 2.1.2, right again in 2.11.0" in text
    assert "Guards were lost." in text


def test_text_from_records_cannot_become_markup():
    base = planted()
    case = msgspec.structs.replace(base.cases["suite::branch"], title=EVIL, code=EVIL)
    behaviour = msgspec.structs.replace(base.behaviours["branch"], title=EVIL, sentence=EVIL, example=EVIL, cure=EVIL)
    hostile = planted(
        texts=(EVIL, EVIL, EVIL),
        cases={**base.cases, "suite::branch": case},
        behaviours={**base.behaviours, "branch": behaviour},
        issues={"123": msgspec.structs.replace(base.issues["123"], what=EVIL, explanation=EVIL)},
        changes=(msgspec.structs.replace(base.changes[0], what=EVIL, source=EVIL),),
    )
    plain = {
        name: sorted({tag for tag, _ in Page(text).tags}) for name, text in pages_of(dict(site_files(base))).items()
    }
    for name, text in pages_of(dict(site_files(hostile))).items():
        tags = [tag for tag, _ in Page(text).tags]
        assert "img" not in tags, name
        assert tags.count("script") <= 4, name
        assert set(tags) <= {*plain[name], "code", "div", "ul", "li", "details", "summary", "h2", "p"}
    for name in ("cells", "pages", "messages", "common"):
        assert b"</script" not in dict(site_files(hostile))[f"assets/{name}.js"]
    assert json.loads(script_json(EVIL)) == EVIL


def test_many_cases_of_one_behaviour_are_spread_over_pages():
    base = planted()
    names = [f"suite::case_{number:02}" for number in range(2 * MOST_CASES + 1)]
    cases = {name: msgspec.structs.replace(base.cases["suite::branch"], behaviour="branch") for name in names}
    behaviour = msgspec.structs.replace(base.behaviours["branch"], cases=tuple(names))
    document = planted(cases=cases, behaviours={"branch": behaviour}, issues={}, changes=())
    pages = pages_of(dict(site_files(document)))
    parts = ["behaviours/branch.html", "behaviours/branch-2.html", "behaviours/branch-3.html"]
    assert [sum(f'id="{name}"' in pages[part] for name in names) for part in parts] == [MOST_CASES, MOST_CASES, 1]
    assert Site(document).pages[names[-1]] == f"behaviours/branch-3.html#{names[-1]}"


# The commands


def test_the_command_writes_the_same_site_again_and_leaves_other_folders_alone(tmp_path, capsys):
    path = tmp_path / "data.json.gz"
    path.write_bytes(gzip.compress(encode(planted())))
    output = tmp_path / "site"
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            main(["site", "--data", str(path), "--output", str(output), "--json"])
        assert ended.value.code == 0
        contents = {
            file.relative_to(output).as_posix(): file.read_bytes() for file in output.rglob("*") if file.is_file()
        }
        assert contents.pop(".recapture-site") == b""
        assert contents == dict(site_files(planted()))
        (output / "left-over.html").write_text("of an earlier build")
    assert '"pages": 2' in capsys.readouterr().out
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file").write_text("")
    with pytest.raises(SystemExit) as ended:
        main(["site", "--data", str(path), "--output", str(mine)])
    assert ended.value.code == 2
    assert "files that `recapture site` did not write" in capsys.readouterr().err
    assert [file.name for file in mine.iterdir()] == ["file"]


def test_the_command_writes_the_packages_from_results(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["data", "--results", str(PLANTED), "--output", str(tmp_path / "out"), "--json"])
    assert ended.value.code == 0
    summary = json.loads(capsys.readouterr().out)
    document = load(tmp_path / "out" / "pip" / "recapture_data" / "data.json.gz")
    assert document == collect(PLANTED)
    assert summary["cases"] == len(document.cases)
    assert summary["cells"] == sum(len(case.cells) for case in document.cases.values())


def test_the_workflow_that_publishes_the_site_is_one_that_github_accepts():
    program = shutil.which("actionlint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert program, "actionlint comes with the development dependencies"
    workflow = REPOSITORY / "examples" / "site" / "pages.yml"
    done = subprocess.run([program, workflow], capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_a_release_on_which_few_suites_ran_is_no_column(tmp_path):
    shutil.copytree(PLANTED, tmp_path, dirs_exist_ok=True)
    whole = next(path.parent for path in sorted(tmp_path.rglob("conformance.jsonl")))
    few = tmp_path / "known" / "torch2.9.0-cu128" / whole.name
    few.mkdir(parents=True)
    rows = (whole / "conformance.jsonl").read_bytes().splitlines(keepends=True)
    (few / "conformance.jsonl").write_bytes(b"".join(rows[:2]))
    assert collect(tmp_path).releases == collect(PLANTED).releases
    (few / "conformance.jsonl").write_bytes(b"".join(rows))
    assert "2.9.0" in collect(tmp_path).releases
