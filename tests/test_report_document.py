"""One description of a document, in Markdown, in HTML and on a terminal."""

import io
import re

from recapture.report.document import (
    Fold,
    Heading,
    Item,
    Items,
    Paragraph,
    Span,
    Table,
    code_list,
    code_span,
    strong,
    verbatim,
)
from recapture.report.html_writer import to_html
from recapture.report.markdown_writer import table_markdown, to_markdown
from recapture.report.terminal_writer import SafeConsole, print_document, say_table, split, terminal_lines

TABLE = Table(
    ["name", "old\nnew", verbatim("ratio [95 %]")],
    [
        [code_span("a|b"), ["1/", strong("2"), "/3"], verbatim("2.0× [1.9, 2.1]")],
        [Span("T1", link="https://a.example/x"), 7, code_list(["p", "q"])],
    ],
    "lr",
)


def test_markdown_sets_code_bold_and_links_and_escapes_the_rest():
    assert table_markdown(TABLE).splitlines() == [
        "| name                      |   old<br>new |    ratio [95 %] |",
        "|:--------------------------|-------------:|----------------:|",
        "| `a\\|b`                    |    1/**2**/3 | 2.0× [1.9, 2.1] |",
        "| [T1](https://a.example/x) |            7 |        `p`, `q` |",
    ]


def test_a_terminal_gets_the_same_table_without_markup():
    assert [line.plain for line in terminal_lines(TABLE)] == [
        "name    old     ratio [95 %]",
        "        new",
        "a|b   1/2/3  2.0× [1.9, 2.1]",
        "T1        7             p, q",
    ]


def test_text_is_never_cut_without_a_width_and_folded_with_one():
    table = Table(["a", "b"], [["x" * 200, "word " * 40]])
    assert terminal_lines(table)[1].plain == f"{'x' * 200}  {('word ' * 40).strip()}"
    narrow = terminal_lines(Table(["a", "b"], [["name", "word " * 40]]), width=40, wrapped=(1,))
    assert max(line.cell_len for line in narrow) <= 40
    assert sum(line.plain.count("word") for line in narrow) == 40


def test_nothing_in_a_cell_is_markup_of_rich_or_a_control_character():
    (_, line) = terminal_lines(Table(["a"], [["[red]x[/red] \x1b[31m y\nz"]]))
    assert line.plain == "[red]x[/red] \ufffd[31m y z"


def test_a_style_colours_its_span_alone():
    (line,) = terminal_lines(Table([""], [[["a ", Span("b", style="red")]]]))
    assert line.plain == "a b"
    assert [
        (line.plain[span.start : span.end], str(span.style)) for span in line.spans if str(span.style) == "red"
    ] == [("b", "red")]


def test_headers_of_several_words_are_stacked():
    printed = io.StringIO()
    say_table(SafeConsole(file=printed), Table(["", "newly wrong"], [["2.0 → 2.1", 3]], "lr"))
    assert printed.getvalue().splitlines() == [
        "           newly",
        "           wrong",
        "2.0 → 2.1      3",
    ]


def test_a_table_too_wide_for_the_terminal_is_split_into_blocks_that_fit():
    table = Table(["name", *(f"column{i}" for i in range(7))], [["first", *"abcdefg"]], "lr")
    blocks = [terminal_lines(block) for block in split(table, 30)]
    assert [lines[0].plain.split() for lines in blocks] == [
        ["name", "column0", "column1"],
        ["name", "column2", "column3"],
        ["name", "column4", "column5"],
        ["name", "column6"],
    ]
    assert [lines[1].plain.split() for lines in blocks] == [["first", *cells] for cells in ("ab", "cd", "ef", "g")]
    assert max(line.cell_len for lines in blocks for line in lines) <= 30
    assert [part.headers for part in split(table, 1000)] == [table.headers]


def test_a_table_without_headers_has_no_line_for_them():
    assert [line.plain for line in terminal_lines(Table(["", ""], [["a", "b"]]))] == ["a  b"]


DOCUMENT = [
    Heading(["Changes of ", code_span("a_b")]),
    Paragraph("More than 1 * 2."),
    Items([Item("first", items=[Item(["below: ", strong("x<y")])])]),
    Fold(["2 cells: ", code_span("<tag>")], [Items([Item(code_span("case"))])]),
    Fold("1 cell", [Paragraph("Why: & why")]),
]


def test_markdown_of_a_document_escapes_text_and_writes_folds_as_one_block_of_html():
    assert to_markdown(DOCUMENT).splitlines() == [
        "## Changes of `a_b`",
        "",
        "More than 1 \\* 2.",
        "",
        "- first",
        "  - below: **x\\<y**",
        "",
        "<details><summary>2 cells: <code>&lt;tag&gt;</code></summary>",
        "<ul>",
        "<li><code>case</code></li>",
        "</ul>",
        "</details>",
        "<details><summary>1 cell</summary>",
        "<p>Why: &amp; why</p>",
        "</details>",
    ]


def test_html_of_a_table_escapes_every_cell():
    table = Table(["a<b", "n"], [[code_span("<x>"), 1], [["p & q ", strong("r")], ""]])
    assert to_html([Heading("1 < 2"), table]).splitlines() == [
        "<h2>1 &lt; 2</h2>",
        "<table>",
        "<tr><th>a&lt;b</th><th>n</th></tr>",
        "<tr><td><code>&lt;x&gt;</code></td><td>1</td></tr>",
        "<tr><td>p &amp; q <b>r</b></td><td></td></tr>",
        "</table>",
    ]


def test_a_terminal_shows_the_same_document_with_a_gap_before_each_section():
    assert printed([*DOCUMENT[:3], Heading("Next"), Table(["a", "b"], [["1", "2"]])], terminal=False) == [
        "Changes of a_b",
        "More than 1 * 2.",
        "  first",
        "    below: x<y",
        "",
        "Next",
        "a  b",
        "1  2",
    ]


def test_a_sentence_is_wrapped_between_words_with_an_indent_and_is_one_line_in_a_pipe():
    address = "suite::" + "x" * 40
    blocks = [Items([Item(f"a sentence that is longer than the line {address} goes on")])]
    assert printed(blocks, terminal=True) == [
        "  a sentence that is longer",
        "    than the line",
        f"    {address}",
        "    goes on",
    ]
    assert len(printed(blocks, terminal=False)) == 1


def test_what_four_rows_say_alike_is_printed_once_with_their_number():
    rows = [[f"case{number}", "fx", "pass", "error", "no data" if number < 4 else "other"] for number in range(5)]
    table = Table(["case", "compilers", "old", "new", "why"], rows, terminal="groups")
    assert printed([table], terminal=False) == [
        "  4× pass → error  no data",
        *(f"    case{number}  fx" for number in range(4)),
        "  case4",
        "    fx  pass → error  other",
    ]


def test_a_column_wider_than_the_terminal_is_wrapped_between_words():
    lines = printed([Table(["name", "what"], [["n", "some words " * 6]])], terminal=True)
    assert max(map(len, lines)) <= 30
    assert " ".join(line[4:].strip() for line in lines[1:]).split() == ["some", "words"] * 6


def printed(blocks, *, terminal):
    """The lines of a document on a terminal of 30 columns, or in a pipe."""
    output = io.StringIO()
    print_document(SafeConsole(file=output, width=30, force_terminal=terminal, no_color=True, highlight=False), blocks)
    return re.sub(r"\x1b\[[0-9;]*m", "", output.getvalue()).splitlines()
