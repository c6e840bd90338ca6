"""What others wrote is shown as text: on a terminal, in Markdown, in an HTML block and in JSON."""

import io
import json
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from rich.table import Table

from recapture.base.escape import LONGEST, html_text, json_text, markdown_code, markdown_text
from recapture.base.text import one_line, printable, shorten
from recapture.command import output
from recapture.command.main import _run
from recapture.report.terminal_writer import SafeConsole

pytestmark = pytest.mark.hostile

PACKAGE = Path(__file__).parents[1] / "recapture"
CONTROLS = ["\x1b[31m", "\x1b]52;c;eA==\x07", "\x9b31m", "\x00", "\x7f", "\r", "\u202e", "\u2066", "\u200b", "\ufeff", "\u2028",
            "\u00ad", "\ud800", "\u3164", "\u115f", "\ufe0f"]  # fmt: skip


@pytest.mark.parametrize("control", CONTROLS, ids=ascii)
def test_no_control_character_is_printable(control):
    for text in (printable(f"a{control}b"), one_line(f"a{control}b"), shorten(f"a{control}b", 20)):
        assert not set(text) & {
            character for character in control if not character.isprintable() or ord(character) > 127
        }


def test_other_text_is_left_as_it_is():
    for text in ("plain", "größer ≤ 3 µs × 2", "a\nb", "漢字 😀", "a\xa0b"):
        assert printable(text) == text


@pytest.mark.parametrize("control", CONTROLS, ids=ascii)
def test_a_console_prints_no_control_character_for_any_text(control):
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"t{control}")
    table.add_column(f"h{control}")
    table.add_row(Text(f"c{control}"))
    out = io.StringIO()
    console = SafeConsole(file=out, width=80, force_terminal=True, color_system=None)
    console.print(f"a{control}b", style="bold", markup=False)
    console.print(Text(f"a{control}b"))
    console.print(table)
    without_style = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()) if "31m" not in control else out.getvalue()
    assert control not in without_style


def test_a_string_on_a_console_is_one_line():
    out = io.StringIO()
    SafeConsole(file=out, width=80).print("\nname\nno regression", markup=False)
    assert out.getvalue() == "\nname\ufffdno regression\n"


def test_a_name_between_colons_is_no_emoji():
    table = Table()
    table.add_column("cell", no_wrap=True)
    table.add_row("suite::key::fx")
    out = io.StringIO()
    console = SafeConsole(file=out, width=80)
    console.print("suite::key::fx", markup=False)
    console.print(table)
    assert out.getvalue().count("suite::key::fx") == 2


def test_colours_of_our_own_are_kept():
    out = io.StringIO()
    SafeConsole(file=out, force_terminal=True, color_system="standard").print("text", style="red")
    assert out.getvalue() == "\x1b[31mtext\x1b[0m\n"


@pytest.mark.parametrize(
    "text",
    ["<script>x</script>", "[a](javascript:x)", "![a](b)", "# a", "- a", "+ a", "1. a", "12) a", "> a", "```", "~~~", "a|b", "`a", "a`", "``",
     "*a*", "_a_", "$a$", "&lt;", "\\", "\\|", "\\\\|", "<https://a.b>", "---", "a\n\n# b", "***", "~~a~~", "[^1]"],
)  # fmt: skip
def test_markdown_shows_text_and_code_as_they_are(text):
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    for form in (markdown_text(text), markdown_code(text)):
        [inline] = [token for token in parser.parse(f"{form}\n") if token.type == "inline"]
        rendered = "".join(child.content for child in inline.children)
        assert rendered.strip() == one_line(text)
        assert {child.type for child in inline.children} <= {"text", "code_inline", "text_special"}
    for form in (markdown_text(text), markdown_code(text, in_table=True)):
        tokens = parser.parse(f"| a | b |\n|---|---|\n| {form} | c |\n")
        assert [token.type for token in tokens].count("td_open") == 2


def test_addresses_do_not_become_links_by_themselves():
    assert markdown_text("https://a.b www.a.b a@b.c") == r"https\://a.b www\.a.b a\@b.c"


def test_one_text_cannot_widen_a_table_without_end():
    assert len(markdown_code("x" * 500_000)) < LONGEST + 10


def test_an_html_block_has_no_tag_and_no_blank_line_of_anothers():
    assert html_text("<b>\n\n&") == "&lt;b&gt; &amp;"


def test_json_on_a_terminal_means_the_same_without_control_characters():
    document = {"a\u202e": "\x9b\U000e0101\u200b größer\n"}
    text = json_text(json.dumps(document, ensure_ascii=False))
    assert json.loads(text) == document
    assert printable(text) == text


def test_errors_that_quote_an_argument_are_one_clean_line(capfd):
    assert _run(["rep\x1b[31mort\u202e\nfine"]) == 2
    err = capfd.readouterr().err
    assert err.startswith("recapture: ")
    assert err.count("\n") == 1
    assert not set(err) & set("\x1b\u202e")


def test_everything_is_printed_through_the_console_and_the_echoes_that_escape():
    """A plain ``print``, ``click.echo`` or rich console would let control characters through."""
    allowed = {PACKAGE / "command" / "output.py", PACKAGE / "report" / "terminal_writer.py"}
    # These print ASCII of their own for the process that started them.
    allowed |= {PACKAGE / "images" / "installed.py", PACKAGE / "images" / "uv.py"}
    allowed.add(PACKAGE / "tools" / "upgrade" / "supervisor.py")  # to the file with the output of a user's command
    direct_prints = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for folder in (
            "command",
            "report",
            "known",
            "records",
            "base",
            "images",
            "tools/check",
            "tools/compare",
            "tools/fleet",
            "tools/upgrade",
        )
        for path in sorted((PACKAGE / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if path not in allowed
        and path.name != "__main__.py"
        and re.search(r"click\.s?echo\(|(?<![\w.])print\(|(?<!\w)Console\(|sys\.std(?:out|err)\.write", line)
    ]
    assert direct_prints == []


def test_a_script_keeps_its_bytes_in_a_pipe_and_is_clean_on_a_terminal(capfd, monkeypatch):
    output.echo_source("x = '\u200b'\n")
    assert capfd.readouterr().out == "x = '\u200b'\n"
    monkeypatch.setattr(output.sys.stdout, "isatty", lambda: True, raising=False)
    output.echo_source("x = '\u200b'\n")
    assert capfd.readouterr().out == "x = '\ufffd'\n"
