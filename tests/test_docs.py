"""The documents agree with the code and the records: links, names of files, figures, the drawing, the reference."""

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, get_args, get_type_hints

import check_site
import click
import msgspec
import package_graph
import page_text
import pytest
import reference
import results_pages
from documents import ROOT, find_documents, section

from recapture.cases.compilers import builtin_compilers
from recapture.command.command_table import COMMANDS
from recapture.known.claims import CLAIMS
from recapture.machine.doctor import examine
from recapture.machine.pins import load_images
from recapture.records.difference import Difference, InputChange
from recapture.records.record import Record, read_conformance
from recapture.records.verdicts import SILENTLY_WRONG, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def wrong_links(path):
    """Links to missing files; pages that are generated when the site is built count as existing."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        file = target.split("#")[0]
        generated = file.startswith("generated/") and Path(file).stem in reference.PAGES
        if file and not re.match(r"\w+:", file) and not generated and not (path.parent / file).exists():
            yield target


@pytest.mark.parametrize("path", find_documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_document_leads_somewhere(path):
    assert list(wrong_links(path)) == []


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "there.md").write_text("here")
    page = tmp_path / "page.md"
    page.write_text("[a](there.md#top) [b](gone.md) [c](generated/verdicts.md) [d](generated/gone.md)")
    assert list(wrong_links(page)) == ["gone.md", "generated/gone.md"]


class TestReadme:
    def test_the_command_and_its_output_are_within_the_first_screen(self):
        lines = README.splitlines()
        assert lines.index("```text") < 25
        assert any("silently wrong" in line for line in lines[:40])

    def test_it_names_every_verdict(self):
        assert set(re.findall(r"`(\w+)`", section(README, "What it says").split("|---|---|")[1])) == set(Verdict)

    def test_its_two_commands_are_there(self):
        start = "python3 -m venv .venv && .venv/bin/pip install -q nox uv && .venv/bin/nox -s "
        assert f"\n{start}cpu-suite\n" in README
        assert f"\n{start}tests\n" in README

    def test_ones_own_model_comes_first_and_the_set_up_before_what_needs_it(self):
        commands = re.findall(r"^```sh\n(.+)", README, flags=re.MULTILINE)
        assert commands[0].startswith("recapture check ")
        assert commands[1].startswith("python3 -m venv .venv && .venv/bin/pip install -q nox uv && ")
        assert any(command.startswith(".venv/bin/nox ") for command in commands[2:])

    def test_words_are_explained_before_they_are_used(self):
        prose = re.sub(r"<!--.*?-->|```.*?```", "", README, flags=re.DOTALL)
        explained = {word: prose.index(f"**{word}**") for word in ("case", "compiler", "cell", "image", "capability")}
        for word in ("cell", "image", "capability"):  # the two others have their everyday sense in the first sentences
            assert re.search(rf"\b{word}s?\b", prose[: explained[word]]) is None, word

    def test_its_counts_are_those_of_the_records(self):
        counts = Counter(
            row.compiler for row in read_conformance(results_pages.LATEST) if row.verdict in SILENTLY_WRONG
        )
        documented = {
            name: int(number)
            for number, name in re.findall(r"(\d+)\s+under\s+`([^`]+)`", section(README, "What it found"))
        }
        documented["compile"] = documented.pop("torch.compile")
        assert len(documented) == 5
        assert documented == {name: counts[name] for name in documented}
        cases = len({row.case for row in read_conformance(results_pages.LATEST)})
        assert f"Of {cases} cases on the CPU" in section(README, "What it found")


class TestArchitecture:
    def test_the_drawing_and_the_table_are_those_of_the_source(self):
        imports = package_graph.package_imports([*package_graph.tools(), *package_graph.layers()])
        hint = "python tools/package_graph.py --write"
        assert package_graph.with_table(ARCHITECTURE, imports) == ARCHITECTURE, hint
        assert package_graph.DRAWING.read_text(encoding="utf-8") == package_graph.drawing(imports), hint
        assert package_graph.upward(imports) == []

    def test_an_import_of_a_higher_layer_or_of_another_tool_is_found_in_the_source(self, tmp_path):
        shutil.copytree(ROOT / "recapture", tmp_path / "recapture", ignore=shutil.ignore_patterns("__pycache__"))
        (tmp_path / "tools").mkdir()
        for name in ("tools/package_graph.py", "pyproject.toml"):
            shutil.copy(ROOT / name, tmp_path / name)
        planted = tmp_path / "recapture" / "base" / "text.py"
        planted.write_text(planted.read_text() + "\n\ndef planted():\n    import recapture.report.conformance_report\n")
        planted = tmp_path / "recapture" / "tools" / "compare" / "__init__.py"
        planted.write_text(planted.read_text() + "\n\ndef planted():\n    import recapture.tools.fleet\n")
        ended = subprocess.run(
            [sys.executable, "tools/package_graph.py"],
            cwd=tmp_path,
            env={"PYTHONPATH": "."},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 1
        assert ended.stderr == "tools.compare imports tools.fleet\nbase imports report\n"

    def test_implied_arrows_are_left_out_and_the_rest_drawn(self):
        imports = {"c": {"a", "b"}, "b": {"a"}, "a": set()}
        assert package_graph.direct(imports) == {"c": {"b"}, "b": {"a"}, "a": set()}
        assert package_graph.drawing(imports).count("<path d=") == 2 + 1  # and the head of the arrows

    def test_every_package_and_tool_has_a_row(self):
        packages = re.findall(r"^\| `(\w+)` \|", section(ARCHITECTURE, "Packages"), flags=re.MULTILINE)
        tools = re.findall(r"^\| `(tools\.\w+)` \| (.+?) \|", section(ARCHITECTURE, "Tools"), flags=re.MULTILINE)
        assert packages == package_graph.layers()
        assert {name for name, _ in tools} == set(package_graph.tools())
        for name, commands in tools:
            tool_commands = {key for key, command in COMMANDS.items() if command.place.startswith(f"recapture.{name}.")}
            assert set(re.findall(r"`([a-z]+)`", commands)) == tool_commands, name

    def test_every_file_it_names_exists(self):
        named = re.findall(r"`((?:recapture|suites|docker|results|docs)/[\w./]*)`", ARCHITECTURE)
        inside = re.findall(r"`(\w+/[\w/]+(?:\.py|/))`", ARCHITECTURE)
        assert len(named) > 10
        assert [name for name in named if not (ROOT / name).exists()] == []
        known = [name for name in inside if (ROOT / "recapture" / name).exists() or (ROOT / name).exists()]
        assert sorted(set(inside) - set(known)) == []

    @pytest.mark.parametrize(
        "title", ["From a case to a record", "From a record to a diff", "From your code to an answer"]
    )
    def test_a_walk_opens_few_files(self, title):
        steps = re.findall(r"`(\w+/(?:\w+/)?\w+\.py)`", section(ARCHITECTURE, title))
        assert 8 <= len(set(steps)) <= 20


class TestReference:
    def test_every_verdict_has_its_meaning(self):
        page = reference.verdict_page()
        for verdict in Verdict:
            assert re.search(rf"^\| `{verdict}` \| [a-z ]+ \| [A-Z].*\. \|$", page, flags=re.MULTILINE), verdict

    def test_every_command_and_option_is_there(self):
        page = reference.command_line_page()
        for name in COMMANDS:
            assert f"## recapture {name}\n" in page
            command = reference.command_of(name)
            for option in (parameter for parameter in command.params if isinstance(parameter, click.Option)):
                assert option.opts[0] in page, (name, option.name)
        assert "## recapture images build\n" in page

    def test_every_exit_status_is_there(self):
        listed = re.findall(r"^\| `(\d+)` \| (.+\.) \|$", reference.exits(), flags=re.MULTILINE)
        assert [int(status) for status, _ in listed] == [0, 1, 2, 3, 124, 130, 143]

    def test_every_field_of_every_file_is_there(self):
        page = reference.files_page()
        for _, kinds in reference.FILES.values():
            for kind in kinds:
                listed = page.split(f"### {kind.__name__}\n", 1)[1].split("\n##", 1)[0]
                assert re.findall(r"^\| `(\w+)` \|", listed, flags=re.MULTILINE) == names_of_fields(kind)

    def test_every_type_of_a_record_is_listed(self):
        listed = {kind for _, kinds in reference.FILES.values() for kind in kinds}
        nested = types_with_fields(Record)
        assert {Difference, InputChange} < nested
        assert nested <= listed

    def test_every_compiler_check_image_and_claim_is_there(self):
        pages = reference.compilers_page(), reference.checks_page(), reference.images_page(), reference.claims_page()
        names: tuple[Iterable[str], ...] = (
            builtin_compilers(),
            [check.name for check in examine("cpu")],
            load_images(),
            CLAIMS.shipped,
        )
        for page, wanted in zip(pages, names, strict=True):
            assert {name for name in wanted if f"| `{name}` |" not in page} == set()

    def test_text_is_escaped_but_for_what_is_in_back_ticks(self):
        assert page_text.plain("a_b `c_d` <e> ``f*g`` [h]") == r"a\_b `c_d` \<e\> ``f*g`` \[h\]"

    def test_pages_that_did_not_change_are_not_written_again(self, tmp_path, monkeypatch):
        pages = {"verdicts": reference.verdict_page, "api": lambda: "one page"}  # others render all results
        monkeypatch.setattr(reference, "PAGES", pages)
        reference.write(tmp_path)
        before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
        reference.write(tmp_path)
        assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
        assert {path.stem for path in before} == set(pages)


def fields_of(kind):
    """The fields that msgspec reads and writes; none for a type that has no named fields."""
    facts = msgspec.inspect.type_info(kind)
    return getattr(facts, "fields", ())


def names_of_fields(kind):
    return [field.name for field in fields_of(kind)]


def types_with_fields(kind):
    """A type and the types within its fields that have fields too: structs, dataclasses and named tuples."""
    if not isinstance(kind, type) or not fields_of(kind):
        return {nested for argument in get_args(kind) for nested in types_with_fields(argument)}
    return {kind}.union(*(types_with_fields(hint) for hint in get_type_hints(kind).values()))


class TestSite:
    def test_a_right_site_has_no_problem(self, tmp_path):
        (tmp_path / "a.html").write_text('<h1 id="top">A</h1><a href="b.html#b">b</a><a href="#top">a</a>')
        (tmp_path / "b.html").write_text('<p id="b">B</p><a href="https://pytorch.org/">out</a>')
        assert check_site.problems(tmp_path) == []

    @pytest.mark.parametrize(
        ("html", "complaint"),
        [
            ('<a href="gone.html">x</a>', "gone.html does not exist"),
            ('<a href="#gone">x</a>', "#gone names no place"),
            ('<script src="https://cdn.example/x.js"></script>', "loads https://cdn.example/x.js from elsewhere"),
            ('<link rel="stylesheet" href="//fonts.example/x.css">', "loads //fonts.example/x.css from elsewhere"),
            ('<img src="gone.svg">', "gone.svg does not exist"),
        ],
    )
    def test_a_problem_is_found(self, tmp_path, html, complaint):
        (tmp_path / "index.html").write_text(html)
        (problem,) = check_site.problems(tmp_path)
        assert complaint in problem

    def test_an_empty_site_is_a_problem(self, tmp_path):
        assert check_site.problems(tmp_path) == [f"no page in {tmp_path}"]


INSTALLS = re.compile(
    r"\b(pip|uv|uvx|pipx|npm|conda|apt-get|session)\b[^#\n]{0,60}\binstall\b|^\s*(- )?uses: |additional_dependencies|"
    r"^\s*(container|image): |^FROM |@sha256:|\bdebootstrap\b",
    re.MULTILINE,
)
"""What downloads packages, actions or images, in documents, scripts, workflows and recipes."""


def test_security_names_each_file_that_downloads_something():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split("|") for line in section(text, "What is downloaded").splitlines() if "|" in line]
    patterns = {pattern for row in rows[2:] for pattern in re.findall(r"`([^`]+)`", row[2])}
    ways = (".ci/*", ".github/workflows/*", "*.*", "docs/*.md", "docker/Dockerfile", "examples/*/*.y*ml")
    files = {path for way in ways for path in ROOT.glob(way) if path.is_file()} - {ROOT / "SECURITY.md"}
    files = {path for path in files if path.suffix != ".lock" and INSTALLS.search(path.read_text(encoding="utf-8"))}
    named = {path for pattern in patterns for path in ROOT.glob(pattern)}
    assert len(files) > 12
    assert {path.relative_to(ROOT).as_posix() for path in files - named} == set()
    for pattern in patterns:
        assert set(ROOT.glob(pattern)) & files, pattern
