"""The text of an issue: its script shows the recorded fault, and nothing in it breaks out of its Markdown."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch
from conftest import REPOSITORY

from recapture.base.errors import UsageError
from recapture.command.main import _run
from recapture.machine.environment import read_environment
from recapture.records.difference import Difference
from recapture.records.directories import read_results
from recapture.records.verdicts import FAILING, SILENTLY_WRONG, Verdict
from recapture.run.cell import CellResult
from recapture.tools.explain.reduce.reducing import ReduceOptions, open_reduction
from recapture.tools.explain.script.choice import ScriptEnd, TriedScript
from recapture.tools.explain.script.upstream import Upstream, gather, issue_text, versions

COMMITTED = REPOSITORY / "results" / "torch2.11.0-cu130" / "cpu"

LIGHT = ("fx-specialized",)
"""The cells of the default tests, which take some seconds."""


def kinds_of_failing_cells():
    """One committed cell for each verdict and each family of compilers, the smallest address of each."""
    examples = {}
    for record in sorted(read_results(COMMITTED).records, key=lambda record: record.cell):
        if record.verdict in SILENTLY_WRONG | FAILING and record.compiler != "eager":
            examples.setdefault((record.compiler.split(":")[0], str(record.verdict)), record)
    return [
        pytest.param(record, id=f"{family}-{verdict}", marks=() if f"{family}-{verdict}" in LIGHT else pytest.mark.slow)
        for (family, verdict), record in sorted(examples.items())
    ]


def script_in(issue):
    """The script in an issue's text."""
    return re.search(r"^(`{3,})python\n(.*?)^\1$", issue, re.DOTALL | re.MULTILINE)[2]


def execute(text, folder, *arguments):
    """Run a script with torch alone: recapture cannot be imported."""
    path = folder / "issue.py"
    path.write_text(text, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-I", str(path), *arguments], capture_output=True, text=True, check=False, cwd=folder
    )


@pytest.mark.skipif(not torch.__version__.startswith("2.11."), reason="the committed records are of torch 2.11")
@pytest.mark.parametrize("record", kinds_of_failing_cells())
def test_the_script_shows_what_the_record_says(record, pool, tmp_path):
    with open_reduction(record.cell, ReduceOptions(jobs=2), pool) as reduction:
        facts = gather(reduction, None)
        text = issue_text(facts, None)
    assert facts.result.verdict is record.verdict
    assert facts.script.end.status == 1, facts.script.end.output
    script = script_in(text)
    done = execute(script, tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    if record.error is not None and facts.script.form == "a short script":
        assert record.error.type.rpartition(".")[2] in done.stdout
    if facts.script.form == "a short script":  # the same program without its compiler has no fault
        start = script.index("def capture(")
        end = script.index("\n\n\n", start)
        harmless = f"{script[:start]}def capture(fn, example):\n    return fn\n{script[end:]}"
        fine = execute(harmless, tmp_path)
        assert fine.returncode == 0, fine.stdout + fine.stderr
    else:
        assert f"verdict: {record.verdict}" in done.stdout


SUITE = '''\
import torch
from recapture import case, compiler


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (-torch.ones(2),)])
def branch(x):
    """Takes a branch; ``` is in its text."""
    fence = "```" + "</script>"
    if x.sum() > 0:
        return x + len(fence)
    return x - 1


@case(example=lambda: (torch.ones(2),))
def noise(x):
    return x + torch.rand(1000)


@case(example=lambda: (torch.ones(2, requires_grad=True),))
def differentiable(x):
    return x * 3


@compiler("own")
def own(fn, example):
    """Adds one."""
    return lambda *args: fn(*args) + 1
'''


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    path = tmp_path_factory.mktemp("suites") / "planted_upstream.py"
    path.write_text(SUITE)
    return path


def test_the_command_prints_the_sections_of_the_template(shared, suite, capsysbinary):
    assert _run(["repro", f"{suite}::branch::jit.trace", "--upstream"]) == 0
    text = capsysbinary.readouterr().out.decode()
    headings = [line for line in text.splitlines() if line.startswith("### ")]
    assert headings == ["### 🐛 Describe the bug", "### Error logs", "### Versions"]
    assert f"PyTorch version: {torch.__version__}" in text
    assert "[pip3] torch==" in text
    assert "Here it exits with 1." in text
    assert "eager tensor([-2., -2.])" in text, "what the script printed"
    assert "float64" in text
    for private in (str(Path.home()), str(suite.parent)):
        assert private not in text


@pytest.mark.slow
def test_a_fence_in_the_program_does_not_end_its_block(shared, suite, capsysbinary, tmp_path):
    assert _run(["repro", f"{suite}::branch::jit.trace", "--upstream"]) == 0
    text = capsysbinary.readouterr().out.decode()
    assert "````python\n" in text
    assert execute(script_in(text), tmp_path).returncode == 1


@pytest.mark.slow
def test_the_reduced_program_is_printed_if_it_is_asked_for(shared, suite, capsysbinary):
    assert _run(["repro", f"{suite}::branch::jit.trace", "--upstream", "--reduce", "--seconds", "30"]) == 0
    text = capsysbinary.readouterr().out.decode()
    assert "The case was reduced from" in text
    assert "fence" not in script_in(text)


@pytest.mark.slow
def test_an_own_compiler_is_printed_with_the_whole_comparison(shared, suite, capsysbinary, tmp_path):
    assert _run(["repro", f"{suite}::differentiable::own", "--upstream"]) == 0
    done = execute(script_in(capsysbinary.readouterr().out.decode()), tmp_path)
    assert done.returncode == 1
    assert "verdict: wrong" in done.stdout


def test_options_that_do_not_fit_are_refused(suite, capsys):
    assert _run(["repro", f"{suite}::branch::jit.trace", "--reduce"]) == 2
    assert _run(["repro", f"{suite}::branch::jit.trace", "--upstream", "--seconds", "3"]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_a_cell_without_a_fault_is_no_issue(pool, suite):
    with (
        open_reduction(f"{suite}::differentiable::jit.trace", ReduceOptions(), pool) as reduction,
        pytest.raises(UsageError, match="nothing to reduce"),
    ):
        gather(reduction, None)


def facts_with(detail, output="printed"):
    """Facts whose texts are hostile."""
    difference = Difference("example", "result", "value", detail)
    result = CellResult(verdict=Verdict.WRONG, input="example", differences=(difference,))
    script = TriedScript("print(1)  # `````\n", "a short script", ScriptEnd(1, output), has_backends=True)
    environment = read_environment(COMMITTED / "environment.json")
    outcomes = (("eager", ScriptEnd(0, "")), ("inductor", ScriptEnd(None, "died of SIGSEGV | x")))
    return Upstream("s::c::compile", "cpu", result, script, outcomes, environment, None)


def test_hostile_texts_stay_in_their_place():
    output = "```\n# heading\n--> \x1b[31m\u202e"
    text = issue_text(facts_with("<script> ![x](http://a) `b` --> \x1b[31m", output), None)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "``````python\n" in text
    assert "````text\n```\n# heading" in text
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert text.splitlines()[0].count("-->") == 1
    assert "| `eager` | as eager (exit status 0) |" in text
    assert "its process died of SIGSEGV \\| x" in text


def test_versions_have_what_collect_env_lists_and_nothing_private():
    environment = read_environment(COMMITTED / "environment.json")
    text = versions(environment)
    assert "PyTorch version: 2.11.0+cu130" in text
    assert "Python version: 3.11.7" in text
    assert "Is CUDA available: False" in text
    assert "[pip3] numpy==2.4.4" in text
    assert "click" not in text
    assert "/" not in text.replace("N/A", "")
    bare = msgspec.structs.replace(environment, libc=None, packages={}, compilers={})
    assert "Libc version: N/A" in versions(bare)


def test_the_releases_come_from_the_records(tmp_path):
    from recapture.report.history import history

    histories = history("control_flow::branch_on_sum::jit.trace", REPOSITORY / "results")
    text = issue_text(facts_with("eager 1, this 2"), histories)
    assert "first bad in torch2\\.0" in text or "first bad in torch2.0" in text
    assert "2.11.0+cu130 specialized" in text
    assert "Other releases: not recorded." in issue_text(facts_with("eager 1, this 2"), None)
