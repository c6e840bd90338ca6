"""The fuzzer of `tests/fuzz`: some inputs by default, 10,000 with ``-m fuzz``, and proof that it sees what it looks for.

RECAPTURE_FUZZ_INPUTS and RECAPTURE_FUZZ_SEED set the number of inputs of the default test and their first seed;
``.ci/run user`` sets the number so that it takes a minute.
"""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from recapture.base.errors import UsageError
from recapture.images.requirements import Requirements
from tests.fuzz import checks, commands, corpus, requirement_files, resuming

pytestmark = pytest.mark.hostile

REPOSITORY = Path(__file__).parents[1]


def fuzz(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.fuzz", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow  # `.ci/run user` runs it
def test_damaged_and_hostile_files_end_in_one_line_or_in_a_clean_report():
    inputs = os.environ.get("RECAPTURE_FUZZ_INPUTS", "60")
    done = fuzz("--inputs", inputs, "--seed", os.environ.get("RECAPTURE_FUZZ_SEED", "1"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{inputs} inputs" in done.stdout
    assert "no findings" in done.stdout


@pytest.mark.fuzz
@pytest.mark.timeout(7200)
def test_ten_thousand_inputs():
    done = fuzz("--inputs", "10000", "--seed", "1000", "--jobs", str(len(os.sched_getaffinity(0))))
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_reads_the_undamaged_files_and_none_is_left_over():
    done = fuzz("--undamaged")
    assert done.returncode == 0, done.stdout + done.stderr
    statuses = dict(line.rsplit(": ", 1) for line in done.stdout.splitlines() if re.fullmatch(r"[\w -]+: \S+", line))
    wanted = commands.expected()
    assert {name: status for name, status in statuses.items() if int(status) not in wanted[name]} == {}
    assert statuses.keys() == wanted.keys()


def test_every_file_of_the_corpus_has_commands_and_every_command_a_file(tmp_path):
    corpus.build(tmp_path)
    files = {path: commands.names_for(path, tmp_path) for path in corpus.files(tmp_path)}
    assert [path for path, names in files.items() if not names] == []
    assert {name for names in files.values() for name in names} == commands.expected().keys()


def test_requirements_files_of_their_own_reach_options_hashes_loops_and_refusals(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    kinds = ("not a text file", "a FIFO", "a device", "a directory", "No such file", "is not a requirement")
    complaints, read = set(), 0
    for seed in range(300):
        requirement_files.write(random.Random(seed), tmp_path)
        message = ""
        try:
            requirements = Requirements.read([tmp_path / requirement_files.FILES[0]])
        except UsageError as error:
            message = str(error)
        else:
            read += bool(requirements.options) + bool(requirements.hashes)
        complaints |= {words for words in kinds if words in message}
    assert len(complaints) == 6
    assert read > 10


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a \x1b[31m b", "U+001B"),
        ("a \x9b b", "U+009B"),
        ("a \u202e b", "U+202E"),
        ("a \u200b b", "U+200B"),
        ("a\n\n<script>alert(1)</script>\n", "<script>"),
        ("a <img src=x> b", "<img"),
        ("<details onclick=x><summary>a</summary></details>", "onclick"),
        ("see [evil](javascript:alert(1))", "]("),
        ("see [evil](http://evil.example)", "link"),
        ("# injected-heading", "injected"),
        ("| a |\n|---|\n| injected |", "injected"),
        ("```\ncode\n```", "fence"),
        ("> quote", "blockquote"),
    ],
)
def test_the_fuzzer_sees_what_must_not_be_in_markdown(text, problem):
    problems = checks.markdown(text, "it")
    assert problems
    assert problem in problems[0] or problem == "]("


def test_the_fuzzer_accepts_what_reports_are_made_of():
    text = "# Title `code`\n\n| a | b |\n|:--|--:|\n| `x` | **1**<br>2 |\n\n<details><summary>1</summary>\n<ul>\n</ul>\n</details>\n"
    assert checks.markdown(text, "it") == []


def test_a_cell_of_a_check_may_hold_a_hostile_text_as_a_whole_but_no_part_of_one():
    assert checks.markdown("| a |\n|---|\n| injected-block more |", "it", titled=False) == []
    assert checks.markdown("| a |\n|---|\n| injected |", "it", titled=False)
    assert checks.markdown("| a |\n|---|\n| injected-block more |", "it")


def test_the_fuzzer_sees_a_script_and_a_handler_in_a_page():
    assert checks.page("<script>1</script><p onclick=x>", "it")


@pytest.mark.parametrize("loses", [False, True])
def test_the_fuzzer_sees_a_record_that_a_resumed_run_loses(tmp_path, loses):
    corpus.build(tmp_path)
    folder = resuming.directory(tmp_path, "run --resume")
    before = resuming.measured(tmp_path, "run --resume")
    if loses:
        for path in folder.glob("conformance*"):
            path.write_bytes(path.read_bytes().partition(b"\n")[2])
    resuming.run(tmp_path, "run --resume")
    assert not (folder / "conformance.partial.jsonl").exists()
    assert len(resuming.lost(folder, before)) == loses
