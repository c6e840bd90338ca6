"""Names that a case gives its classes reach records, reports and the terminal as text."""

from __future__ import annotations

import pytest
from conftest import records_below

from recapture.command.main import _run
from tests.fuzz import checks

pytestmark = pytest.mark.hostile

SUITE = '''
import torch
from recapture.cases.case import case

NAME = "Evil\\x1b[31m\\x1b]52;c;eA==\\x07\\u202e<script>alert(1)</script>|\\n# injected\\n`x`"

Evil = type(NAME, (Exception,), {"__module__": NAME})
EvilWarning = type(NAME, (UserWarning,), {"__module__": NAME})
EvilResult = type(NAME, (), {"__module__": NAME})


@case(example=lambda: (torch.ones(2),))
def raises_while_captured(x):
    """Raises an exception with a hostile name."""
    if isinstance(x, torch.fx.Proxy):
        raise Evil(NAME)
    return x + 1


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (-torch.ones(2),)])
def returns_another_type(x):
    """Returns an object of a class with a hostile name."""
    return EvilResult() if isinstance(x, torch.fx.Proxy) else x + 1


@case(example=lambda: (torch.ones(2),))
def raises_always(x):
    """Raises in eager execution as well, which capturing has to keep."""
    raise Evil(NAME)
'''


def test_the_name_of_an_exception_class_is_shown_as_text_everywhere(warm, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text(SUITE)
    assert _run(["run", "evil.py", "--compiler", "fx", "--compiler", "eager", "--results", "results"]) == 0
    outputs = {"run": "".join(capfd.readouterr())}
    records = records_below(tmp_path / "results")
    assert {str(row.verdict) for row in records.values()} >= {"error", "pass"}
    named = [row for row in records.values() if row.error is not None and "Evil" in row.error.type]
    assert len(named) >= 2, "the exceptions are recorded under their own names"

    (folder,) = (path.parent for path in (tmp_path / "results").rglob("conformance.jsonl"))
    assert checks.markdown((folder / "conformance.md").read_text(), "conformance.md") == []
    assert _run(["report", "results", "--html", "--output", "page.html"]) == 0
    assert checks.page((tmp_path / "page.html").read_text(), "the page") == []
    for words in (["diff", str(folder), str(folder)], ["history", "--results", "results"], ["report", "results"]):
        capfd.readouterr()
        _run(words)
        outputs[words[0]] = "".join(capfd.readouterr())
    for what, text in outputs.items():
        assert checks.control(text, what) == []
