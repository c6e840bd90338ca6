"""Every command and program of the documents runs as the document says, or is marked with the reason why it does not."""

import documents
import pytest
from documents import DocumentError, check_blocks, find_blocks, find_documents, make_copy, matches, run_document

RUN_SERVERS = {
    "README.md",
    "docs/before-an-upgrade.md",
    "docs/leaving-torchscript.md",
    "docs/many-machines.md",
    "docs/operators.md",
    "docs/reading-a-verdict.md",
    "docs/upgrade-in-ci.md",
    "docs/upgrade-your-tests.md",
    "docs/why.md",
    "docs/your-own-case.md",
    "docs/your-own-code.md",
    "examples/gate_your_tests/README.md",
    "examples/leaving_torchscript/README.md",
    "examples/own_case/README.md",
    "examples/pytest_plugin/README.md",
    "examples/reading_a_verdict/README.md",
}
"""Documents whose commands take from 5 to 25 seconds, because several of them start a worker server."""


def each_document():
    """Every document to run; those that take long are slow."""
    paths = {str(path.relative_to(documents.ROOT)): path for path in find_documents()}
    assert paths.keys() >= RUN_SERVERS
    for name, path in paths.items():
        yield pytest.param(path, marks=[pytest.mark.slow] if name in RUN_SERVERS else [], id=name)


@pytest.mark.parametrize("path", list(each_document()))
def test_the_blocks_of_a_document_run(path, tmp_path):
    make_copy(tmp_path)
    run_document(path.read_text(encoding="utf-8"), tmp_path)


@pytest.mark.parametrize("path", find_documents(), ids=lambda path: str(path.relative_to(documents.ROOT)))
def test_each_block_of_a_document_is_run_or_says_why_not(path):
    check_blocks(find_blocks(path.read_text(encoding="utf-8")))


def test_the_readme_and_the_guides_have_commands_that_run():
    for name in (
        "README.md",
        "docs/your-own-case.md",
        "docs/reading-a-verdict.md",
        "docs/upgrade-in-ci.md",
        "docs/speed.md",
    ):
        blocks = find_blocks((documents.ROOT / name).read_text(encoding="utf-8"))
        assert [block for block in blocks if block.language == "sh" and "not run" not in block.marks], name


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```sh\nfalse\n```\n", "failed:\nfalse"),
        ("```sh\ntrue  # exit status 1\n```\n", "status 0"),
        ("```sh\nfalse  # exit status 2\ntrue\n```\n", "status 1"),
        ("```sh\nfalse\ntrue\n```\n", "failed"),
        ("```sh\nfalse | true\n```\n", "failed"),
        ("```sh\necho one\n```\n<!-- output -->\n```text\ntwo\n```\n", "the document shows"),
        ("```python\nraise SystemExit(3)\n```\n", "failed"),
        ("```python\nprint(1)  # raises an AssertionError\n```\n", "says that this raises AssertionError"),
        ("```python\nint('a')  # raises an AssertionError\n```\n", "ValueError"),
        ("```bash\ntrue\n```\n", "label the block"),
        ("```\ntrue\n```\n", "label the block"),
        ("<!-- not run: -->\n```sh\ntrue\n```\n", "no reason"),
        ("<!-- only in a clone: -->\n```sh\ntrue\n```\n", "no reason"),
        ("<!-- file: a.py -->\n```python\n1\n```\n", "no later command names a.py"),
        ("<!-- output -->\n```text\none\n```\n", "without a command"),
        ("```sh\ntrue\n", "no end"),
        ("```sh\n.venv/bin/nox -s tests\n```\n", "failed"),
    ],
)
def test_what_is_wrong_with_a_document_is_found(text, complaint, tmp_path):
    make_copy(tmp_path)
    with pytest.raises(DocumentError, match=complaint):
        run_document(text, tmp_path)


def test_a_right_document_runs_in_order(tmp_path):
    make_copy(tmp_path)
    text = (
        "<!-- file: a.py -->\n```python\nprint('one')\n```\n\n```sh\npython a.py > a.txt\n```\n\n"
        "```sh\nfalse  # exit status 1\ncat a.txt\n```\n<!-- output -->\n```text\none\n```\n\n<!-- not run: no GPU -->\n```sh\nfalse\n```\n"
        "<!-- only in a clone: slow -->\n```sh\nfalse\n```\n```python\nassert 0  # raises an AssertionError\n```\n"
    )
    assert run_document(text, tmp_path) == 3


def test_a_marked_block_inside_a_list_is_found():
    (block,) = find_blocks("1. First:\n\n   <!-- not run: slow -->\n   ```sh\n   make all\n   ```\n")
    assert (block.language, block.text, block.marks) == ("sh", "make all\n", {"not run": "slow"})
    check_blocks([block])


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\nc\n", False),
        ("a\n…\n", "a\nb\nc\n", True),
        ("a\n…\nc\n", "a\nb\n", False),
        ("a … c\n", "a b c\n", True),
        ("  a  b\n", " a b  \n", True),
        ("a b\n", "ab\n", False),
        ("a\n", "a\nb\n", False),
        ("torch2.11.0-cu130 on cpu\n", "bare-torch2.11.0-cu130 on cpu\n", True),
    ],
)
def test_an_output_may_leave_things_out(expected, printed, same):
    assert matches(expected, printed) is same
