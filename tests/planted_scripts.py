"""What the tests of `recapture repro` share (fixtures of `conftest`): a suite, the script of a cell, and a run of it in this process."""

import runpy
import shutil
import sys
from pathlib import Path

import pytest

from recapture.base.errors import UsageError
from recapture.cases.collection import collect_suite, find_suites
from recapture.records.verdicts import RIGHT, Verdict
from recapture.tools.explain.script.replay import FAULT_SHOWS, NO_FAULT
from recapture.tools.explain.script.repro import CellToPrint, SuitePrinter, print_cell
from recapture.torch_api.compat import reset_dynamo

SUITE = Path(__file__).parent / "resources" / "scripts" / "mine.py"


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """A suite of cases and compilers that take every way through the printer."""
    return Path(shutil.copy(SUITE, tmp_path_factory.mktemp("suites")))


@pytest.fixture
def restored(monkeypatch):
    """What executing suites and scripts in this process changes is put back."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    before = dict(sys.modules)
    yield
    for name in [name for name in sys.modules if name.startswith("recapture")]:
        if name in before:
            sys.modules[name] = before[name]
        else:
            del sys.modules[name]


def in_process(address, device="cpu", results=Path("nowhere")):
    """The script of a cell, made in this process; raises UsageError with the one line where there is none."""
    suite, case, compiler = address.rsplit("::", 2)
    (info,) = find_suites((suite,)).suites
    script = print_cell(CellToPrint(info.name, str(info.path), case, compiler, device, str(results)))
    if script.error is not None:
        raise UsageError(script.error)
    return script.text


@pytest.fixture
def printed(mine):
    """The script of a cell of that suite."""
    return lambda cell, device="cpu": in_process(f"{mine}::{cell}", device)


@pytest.fixture
def run_script(tmp_path, capsys):
    """Run a script as the main program of this process, and return what it printed; it ends with its verdict's status."""
    import torch

    def execute(text):
        path = tmp_path / "cell.py"
        path.write_text(text, encoding="utf-8")
        reset_dynamo()
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(path), run_name="__main__")
        torch.set_printoptions(profile="default")
        output = capsys.readouterr().out
        verdict = Verdict(output.rpartition("== verdict: ")[2].split()[0].rstrip(":"))
        assert end.value.code == (NO_FAULT if verdict in RIGHT else FAULT_SHOWS)
        return output

    return execute


def printers():
    """What prints the cells of each shipped suite, of torch's examples, and of models of libraries that are there."""
    suites = [suite for names in ((), ("exportdb",), ("zoo",)) for suite in find_suites(names).suites]
    return {suite.name: SuitePrinter(suite) for suite in suites if not collect_suite(suite.name, suite.path).lacking}
