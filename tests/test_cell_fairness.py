"""What a compiler is not to blame for: the file's warning filters, where state lives, rounding of a rewrite, the machine."""

import sys
import warnings

import msgspec
import pytest
import torch

from recapture.machine.doctor import Check
from recapture.pool.protocol import Ended
from recapture.records.difference import Difference
from recapture.records.verdicts import Verdict
from recapture.run.cell import CellResult, CellSpec, examine
from recapture.run.outcomes import OutcomeReader, explainable
from recapture.torch_api.compat import reset_dynamo

pytestmark = pytest.mark.filterwarnings("ignore")

HEAD = "import warnings\n\nimport torch\nfrom recapture import case\n\n\n"


@pytest.fixture
def cell(tmp_path, monkeypatch):
    """Runs the case `f` of a file through a compiler in this process."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    reset_dynamo()

    def run(text, compiler):
        path = tmp_path / "fair.py"
        path.write_text(HEAD + text)
        spec = CellSpec(suite="fair", path=str(path), case="f", compiler=compiler, device="cpu")
        with warnings.catch_warnings():
            return examine(spec, lambda _: None)

    return run


WARNS = """
warnings.filterwarnings("error", category=RuntimeWarning)


@case(example=lambda: (torch.ones(3),), held_out=[lambda: (-torch.ones(3),)])
def f(x):
    if x.sum() < 0:
        warnings.warn("negative", RuntimeWarning)
    return x + 1
"""


def test_a_warning_that_the_file_turns_into_an_error_is_one_for_all(cell):
    assert cell(WARNS, "eager").verdict is Verdict.PASS
    result = cell(WARNS, "compile:eager")
    assert result.verdict in (Verdict.PASS, Verdict.PASS_WITH_BREAKS), result


def test_torchs_own_warnings_are_noted_all_the_same(cell):
    text = "@case(example=lambda: (torch.ones(3),))\ndef f(x):\n    return x + int(x.sum())\n"
    assert "warned: TracerWarning" in cell(text, "jit.trace").notes


REASSIGNS = """
@case(example=lambda: (torch.ones(3),), held_out=[lambda: (torch.full((3,), 2.0),)])
class f(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total = self.total + x
        return self.total.clone()
"""


def test_a_scripted_module_keeps_its_own_state(cell):
    assert cell(REASSIGNS, "eager").verdict is Verdict.PASS
    assert cell(REASSIGNS, "jit.script").verdict is Verdict.PASS
    assert cell(REASSIGNS, "jit.trace").verdict in (Verdict.WRONG, Verdict.SPECIALIZED)  # it forgets


REWRITE = """
def original(x):
    return x.sum()


@case(example=lambda: (torch.cat([torch.full((50_000,), 1.1), torch.full((50_000,), -1.0999)]),), rewrite_of=original)
def f(x):
    return sum(part.sum() for part in x.chunk(7))
"""


def test_a_rewrite_that_only_rounds_otherwise_is_right(cell):
    assert cell(REWRITE, "eager").verdict is Verdict.PASS
    wrong = REWRITE.replace("chunk(7)", "chunk(7)[1:]")
    assert cell(wrong, "eager").verdict is Verdict.WRONG


def test_where_the_machine_breaks_eager_too_nothing_passed():
    check = Check(name="numpy-version", status="fault", found="numpy 2 with torch 2.1", mend="", affects="numpy")
    outcomes = OutcomeReader(CellResult, timeout=1.0, memory=1, checks=[check], explainable=explainable)

    def judged(verdict, stderr, **fields):
        result = msgspec.json.encode(CellResult(verdict=verdict, **fields)).decode()
        ended = Ended(
            id=1, cause="exit", status=0, phase=None, result=result, seconds=0.1, peak_rss=1, stdout="", stderr=stderr,
            rss_server=1,
        )  # fmt: skip
        return outcomes.read(ended)

    outcome = judged(Verdict.PASS, "Traceback …\nRuntimeError: Numpy is not available\n")
    assert (outcome.verdict, outcome.reason) == (Verdict.ENVIRONMENT, check.reason)
    assert judged(Verdict.PASS, "nothing of the kind").verdict is Verdict.PASS
    assert judged(Verdict.WRONG, "RuntimeError: Numpy is not available").verdict is Verdict.WRONG
    eager_alone = Difference("example", "result", "exception", unlike="raises", eager="RuntimeError")
    value = Difference("held_out[0]", "result", "value", "value differs: eager 1, this 2")
    for differences, verdict in (([eager_alone], Verdict.ENVIRONMENT), ([eager_alone, value], Verdict.WRONG)):
        outcome = judged(Verdict.WRONG, "RuntimeError: Numpy is not available", differences=differences)
        assert outcome.verdict is verdict
        assert list(outcome.differences) == (differences if verdict is Verdict.WRONG else [])
    assert judged(Verdict.WRONG, "nothing of the kind", differences=[eager_alone]).verdict is Verdict.WRONG


def test_what_eager_raises_is_written_down(cell, capsys):
    text = "@case(example=lambda: (torch.ones(3),))\ndef f(x):\n    raise ValueError('as it should')\n"
    assert cell(text, "eager").verdict is Verdict.PASS
    assert "ValueError: as it should" in capsys.readouterr().err
    assert msgspec.json.encode(cell(text, "fx"))


def test_the_filters_of_torchs_warnings_are_found():
    from recapture.judge.steps import _categories_of_torch

    assert torch.jit.TracerWarning in _categories_of_torch()
    assert UserWarning not in _categories_of_torch()
