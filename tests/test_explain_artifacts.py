"""What `recapture explain --debug` leaves of a cell that generates code (claim I5)."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from planted_machine import needs_cxx

from recapture.command.main import _run
from recapture.records.artifact_folders import INDEX, TRACE

pytestmark = [pytest.mark.slow, needs_cxx]

CELL = "basic_use::negate_maximum_concatenate::compile"


def test_a_debug_run_leaves_graphs_ir_code_and_trace_in_one_folder(tmp_path, warm, capsys):
    assert _run(["explain", CELL, "--debug", "--results", str(tmp_path)]) == 0
    (index,) = tmp_path.rglob(INDEX)
    folder = index.parent
    assert str(folder) in capsys.readouterr().out
    assert "neg" in (folder / "dynamo_graph_0.py").read_text()
    code = min(folder.glob("inductor/**/output_code.py"))
    left = {path.name: path.read_text() for path in code.parent.iterdir() if path.is_file()}
    assert "torch.ops.aten.neg.default" in left["fx_graph_runnable.py"]
    assert "torch.ops.aten.maximum.default" in left["fx_graph_transformed.py"]
    assert "ops.neg" in left["ir_pre_fusion.txt"]
    assert "ops.neg" in left["ir_post_fusion.txt"]
    assert "#pragma" in left["output_code.py"]
    assert "dynamo_output_graph" in (folder / TRACE).read_text()
    assert not list(folder.glob(".inductor"))
    beside = Path(sys.executable).with_name("tlparse")
    if shutil.which("tlparse") or beside.is_file():
        assert (folder / "tlparse" / "index.html").is_file()
