"""Code of the user's that never ends, ends its process, or closes its output: no compiler is blamed for it."""

import re
import time

import pytest
from planted_own_code import checked

from recapture.base.errors import UsageError
from recapture.cases.target import parse_input
from recapture.tools.check.request import CheckOptions, CheckRequest
from recapture.tools.check.session import prepare


def test_a_stage_that_takes_too_long_is_named(served, tmp_path):
    path = tmp_path / "slow.py"
    for text, stage in (
        ("import time\ntime.sleep(60)\ndef f(x):\n    return x\n", r"while its file is loaded \(line 2 of slow.py\)"),
        ("import time\ndef f(x):\n    time.sleep(60)\n", r"in the call with the example \(line 3 of slow.py\)"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=rf"is not done after --timeout 4 s, {stage}"):
            checked("f", "3", place=path, timeout=4.0)


def test_the_function_of_the_inputs_may_not_hang(served, tmp_path):
    path = tmp_path / "slow.py"
    path.write_text("import time\ndef make():\n    time.sleep(60)\ndef f(x):\n    return x\n")
    with pytest.raises(
        UsageError, match=r"not done after --timeout 4 s, while its inputs are made \(line 3 of slow.py"
    ):
        checked("f", place=path, inputs_from=(str(path), "make"), timeout=4.0)


def test_derived_inputs_that_never_end_share_the_time(served, tmp_path):
    """Each is left out and counted, and those that end are tried all the same."""
    path = tmp_path / "slow.py"
    path.write_text("def f(x):\n    while x.shape[0] > 3:\n        pass\n    return x\n")
    request = CheckRequest(place=str(path), name="f", inputs=(parse_input("3"),))
    began = time.monotonic()
    prepared = prepare(served, request, CheckOptions(timeout=40.0))
    assert time.monotonic() - began < 60.0
    assert "batch=4" in dict(prepared.unaffordable)
    assert "negated" in prepared.inputs


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("import os\ndef f(x):\n    os._exit(7)\n", "ends its process with exit status 7 in the call with the example"),
        # the status with which recapture's own processes say that they failed
        (
            "import os\ndef f(x):\n    os._exit(70)\n",
            "ends its process with exit status 70 in the call with the example",
        ),
        (
            "import sys\nsys.exit('bye')\ndef f(x):\n    return x\n",
            "it ends the program when it is imported \\(with 'bye'\\)",
        ),
        (
            "import ctypes\ndef f(x):\n    ctypes.string_at(0)\n",
            r"dies of SIGSEGV in the call with the example \(line 3 of theirs.py\)",
        ),
        ("def f(x):\n    raise SystemExit(3)\n", r"raises SystemExit on its input \(line 2 of theirs.py\): 3"),
    ],
)
def test_what_the_user_s_code_did_is_said(served, tmp_path, text, complaint):
    path = tmp_path / "theirs.py"
    path.write_text(text)
    with pytest.raises(UsageError, match=complaint):
        checked("f", "3", place=path)


LEAVES = """
import os
import torch


def when_traced(x):
    if isinstance(x, torch.fx.Proxy):
        os._exit(0)
    return x * 2


def on_one(x):
    if x.shape[0] == 1:
        os._exit(0)
    return x * 2
"""


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nsys.stdout.close()\nsys.stderr = None\n",
        "import sys\nsys.stdout = sys.stderr = None\n",
    ],
)
def test_code_that_closes_its_output_is_judged_all_the_same(served, tmp_path, text):
    path = tmp_path / "theirs.py"
    path.write_text(f"{text}def f(x):\n    return x * 2 if x.sum() > 0 else x\n")
    result = checked("f", "3", place=path, compilers=("jit.trace", "fx"), most_inputs=3)
    assert (result["jit.trace"].verdict, result["fx"].verdict) == ("specialized", "error")


def test_code_that_ends_its_process_while_it_is_captured_is_no_compiler_s_fault(served, tmp_path):
    path = tmp_path / "leaves.py"
    path.write_text(LEAVES)
    result = checked("when_traced", "3", place=path, compilers=("jit.trace", "fx"), most_inputs=2)
    assert result["jit.trace"].verdict == "pass"
    row = result["fx"]
    assert (row.verdict, row.words) == ("crash", "crash: the code ends its process")
    assert row.reason == "the code ends its process: exited with status 0 and without a result"
    assert row.advice.endswith("no compiler is at fault")
    assert "the code ends its process under fx" in result.report.sentence
    assert "not usable" not in result.report.sentence


GIVES_UP = """
import ctypes
import os
import torch


def give_up(x):
    os.write(2, b"libgomp: Thread creation failed: Resource temporarily unavailable\\n")
    ctypes.CDLL(None).exit(1)


def when_traced(x):
    if isinstance(x, torch.fx.Proxy):
        give_up(x)
    return x * 2


def on_one(x):
    if x.shape[0] == 1:
        give_up(x)
    return x * 2
"""


GAVE_UP = "C code called exit(1): libgomp: Thread creation failed: Resource temporarily unavailable"


def test_a_library_that_ends_the_process_is_not_taken_for_the_code(served, tmp_path):
    path = tmp_path / "gives_up.py"
    path.write_text(GIVES_UP)
    row = checked("when_traced", "3", place=path, compilers=("fx",), most_inputs=2)["fx"]
    assert (row.verdict, row.words) == ("crash", "crash")
    assert row.reason == GAVE_UP
    assert "no compiler is at fault" not in row.advice
    result = checked("on_one", "3", place=path, most_inputs=4)
    assert dict(result.report.unaffordable) == {"batch=1": GAVE_UP}
    assert "1 left out because eager's process ends" in result.report.inputs_in_words
    with pytest.raises(UsageError, match=re.escape(f"ends its process ({GAVE_UP}) in the call with the example")):
        checked("give_up", "3", place=path)


def test_an_input_that_ends_the_process_of_eager_is_counted_apart(served, tmp_path):
    path = tmp_path / "leaves.py"
    path.write_text(LEAVES)
    result = checked("on_one", "3", place=path, most_inputs=4)
    assert dict(result.report.unaffordable) == {"batch=1": "exited with status 0 and without a result"}
    assert "1 left out because eager's process ends" in result.report.inputs_in_words
    assert "too much time" not in result.report.inputs_in_words
