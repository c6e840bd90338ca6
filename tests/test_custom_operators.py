"""Custom operators that a user's code defines: `check` tests them, and `migrate` lists what is behind them."""

import json

import pytest
import torch

from recapture.command.main import _run
from recapture.tools.check import session
from recapture.tools.check.answers import CheckedOperator

pytestmark = pytest.mark.skipif(not hasattr(torch.library, "opcheck"), reason="opcheck is in torch 2.4 and newer")

MODEL = """
import os
import torch
import torch.onnx.ops, torchvision.io  # which have custom operators of their own
from torch.library import Library, custom_op


@custom_op("planted43::good", mutates_args=())
def good(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


good.register_fake(torch.empty_like)
good.register_autograd(lambda context, gradient: 2 * gradient)


@custom_op("planted43::without_fake", mutates_args=())
def without_fake(x: torch.Tensor) -> torch.Tensor:
    return 3 * x


LIBRARY = Library("planted43", "FRAGMENT")
LIBRARY.define("writes(Tensor x) -> Tensor")
LIBRARY.define("not_called(Tensor x) -> Tensor")
LIBRARY.impl("writes", lambda x: x.mul_(2).clone(), "CompositeExplicitAutograd")


def right(x):
    return good(x)


def silent(x):
    return good(x) + torch.ops.planted43.writes(x.clone())


def several(x):
    if x.sum() > 100:
        return x
    x = without_fake(x)
    if x.mean() > 100:
        return x
    return x + 1


@custom_op("planted43::dies", mutates_args=())
def dies(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@dies.register_fake
def _(x):
    os._exit(5)
"""


@pytest.fixture
def model(warm, monkeypatch, tmp_path):
    monkeypatch.setattr(session, "WorkerPool", lambda **_: warm)
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def operators(capsys, target, *words):
    assert _run(["check", target, "--input", "3", "--compiler", "fx", "--most-inputs", "1", "--json", *words]) == 0
    return {row["name"]: row for row in json.loads(capsys.readouterr().out)["operators"]}


def test_an_operator_that_changes_its_argument_against_its_schema_is_found(model, capsys):
    rows = operators(capsys, f"{model}:silent")
    assert set(rows) == {f"planted43::{name}" for name in ("dies", "good", "not_called", "without_fake", "writes")}
    assert (rows["planted43::good"]["calls"], rows["planted43::good"]["failures"]) == (1, [])
    assert rows["planted43::not_called"]["calls"] == rows["planted43::without_fake"]["calls"] == 0
    tests = dict(rows["planted43::writes"]["failures"])
    assert "was mutated" in tests["test_schema"]
    assert (rows["planted43::writes"]["file"], rows["planted43::writes"]["line"]) == ("model.py", 22)


def test_gradients_are_tested_where_the_example_has_them(model, capsys):
    rows = operators(capsys, f"{model}:right", "--train")
    assert (rows["planted43::good"]["calls"], rows["planted43::good"]["failures"]) == (1, [])
    rows = operators(capsys, f"{model}:several", "--train")
    assert "test_aot_dispatch_dynamic" in dict(rows["planted43::without_fake"]["failures"])


def test_an_operator_that_ends_its_process_costs_no_verdict(model, capsys):
    path = model.parent / "dying.py"
    path.write_text(MODEL + "\n\ndef dying(x):\n    return dies(x)\n")
    assert _run(["check", f"{path}:dying", "--input", "3", "--compiler", "fx", "--most-inputs", "1"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "right under fx" in out
    assert "custom operator planted43::dies, torch.library.opcheck: not tested: " in out


def test_a_target_without_operators_has_none(model, capsys):
    path = model.parent / "plain.py"
    path.write_text("import torchvision\n\n\ndef plain(x):\n    return x + 1\n")
    assert operators(capsys, f"{path}:plain") == {}


def test_every_obstacle_of_export_is_listed_and_not_the_first_alone(model, capsys):
    assert _run(["migrate", f"{model}:several", "--input", "3", "--compiler", "export", "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["lines"]
    texts = {line["text"]: line["reasons"] for line in lines}
    assert set(texts) == {
        "if x.sum() > 100:",
        '@custom_op("planted43::without_fake", mutates_args=())',
        "if x.mean() > 100:",
    }
    assert "has no fake implementation" in texts['@custom_op("planted43::without_fake", mutates_args=())'][0][1]
    branch = next(line for line in lines if line["text"] == "if x.mean() > 100:")
    assert "both_paths_and_a_choice" in branch["rewrites"][0]


def test_tests_that_fail_for_one_reason_are_one_sentence():
    row = CheckedOperator(
        name="a::b", file="m.py", line=3, calls=1, failures=(("x", "no"), ("y", "no"), ("z", "other"))
    )
    assert row.sentence == "custom operator a::b (m.py:3), torch.library.opcheck: fails x, y: no; fails z: other"
