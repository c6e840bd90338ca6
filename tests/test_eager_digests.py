"""What eager itself gave: its digests, their file beside the records, and the row of a diff."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from command_lines import recapture

from recapture.base.errors import UsageError
from recapture.judge.digest import _within_size, digest_of
from recapture.judge.snapshot import snapshot_of
from recapture.records.directories import EAGER_FILE
from recapture.records.eager_calls import Digest, EagerCall, agreeing_digits, change_of_call
from recapture.records.eager_file import EagerRow, eager_line, json_schema, read_eager

SUITE = """
import os
import torch
from recapture import case

@case(example=lambda: (torch.randn(64),), held_out=[lambda: (torch.zeros(64),)])
def plain(x):
    return torch.softmax(x, 0)

@case(example=lambda: (torch.randn(64),), held_out=[])
def from_outside(x):
    return x + float(int.from_bytes(os.urandom(6), "big"))

@case(example=lambda: (torch.randn(4),), held_out=[lambda: (-torch.ones(4),)])
def refuses(x):
    if x.sum() == -4:
        raise KeyError("negative")
    return x

@case(example=lambda: (torch.randn(4, requires_grad=True),), held_out=[])
def writes(x):
    x.detach().mul_(2)
    return x * x
"""


def digest(*values):
    return digest_of(snapshot_of(values))


def change(old, new):
    eager_change = change_of_call(EagerCall("example", result=digest(old)), EagerCall("example", result=digest(new)))
    return None if eager_change is None else eager_change.kind


# --- the digest of values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.complex64])
@pytest.mark.parametrize("size", [1, 1000, 600_000])
def test_one_rounding_of_every_element_is_rounding_and_a_thousandth_of_the_size_is_not(dtype, size):
    values = torch.randn(size, dtype=dtype, generator=torch.Generator().manual_seed(3))
    assert change(values, values.clone()) is None
    step = {torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float64: 2**-52}.get(dtype, 2**-23)
    assert change(values, values * (1 + step)) in ("rounding", None)
    assert change(values, values * 1.5) == "changed"
    if dtype not in (torch.bfloat16, torch.float16):
        assert change(values, values * 1.001) == "changed"


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (torch.ones(4), torch.ones(4, dtype=torch.float64), "dtype"),
        (torch.ones(4), torch.ones(2, 2), "form"),
        (torch.ones(2, 2), [torch.ones(2, 2)], "form"),
        (torch.ones(2, 3), torch.ones(3, 2).t(), "form"),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "changed"),
        (torch.zeros(3), -torch.zeros(3), "rounding"),
        (torch.ones(3), torch.tensor([1.0, torch.nan, 1.0]), "changed"),
        (torch.ones(3), torch.tensor([1.0, torch.inf, 1.0]), "changed"),
        (torch.full((3,), 1e300, dtype=torch.float64), torch.full((3,), 2e300, dtype=torch.float64), "changed"),
        (0.5, 0.25, "changed"),
        ("a", "b", "changed"),
    ],
)
def test_a_change_has_its_kind(old, new, kind):
    assert change(old, old) is None
    assert change(old, new) == kind


def test_a_gradient_that_cancels_to_nothing_beside_another_has_no_digits_of_its_own():
    large = torch.randn(100, generator=torch.Generator().manual_seed(1))
    assert change([large, torch.full((10,), 1e-8)], [large, torch.full((10,), -3e-8)]) == "rounding"
    assert change([large, torch.full((10,), 1e-1)], [large, torch.full((10,), 2e-1)]) == "changed"


def test_digits_of_equal_numbers_are_many_and_of_other_ones_few():
    assert agreeing_digits((0.5, 0.25), (0.5, 0.25)) == 16.0
    assert agreeing_digits((0.5, 0.25), (0.5, 0.35)) == pytest.approx(1.0)
    assert agreeing_digits((), ()) is None


def test_other_inputs_and_calls_that_are_not_stable_say_nothing_about_the_result():
    first, second = digest(torch.ones(3)), digest(torch.zeros(3))
    eager_change = change_of_call(EagerCall("example", "a", first), EagerCall("example", "b", second))
    assert eager_change.kind == "inputs"
    assert change_of_call(EagerCall("example", "a", first), EagerCall("example", "a", unstable=True)) is None
    raises = change_of_call(EagerCall("example", "a", first), EagerCall("example", "a", raised="KeyError"))
    assert (raises.kind, raises.words) == ("raises", "result: returns → KeyError")


def test_many_inputs_are_joined_so_that_a_row_stays_small():
    calls = [
        EagerCall(f"held_out[{number}]", "a", digest(torch.ones(3)), digest(torch.ones(2))) for number in range(30)
    ]
    few = _within_size(calls)
    assert few[-1].input == "others"
    assert few[: len(few) - 1] == tuple(calls[: len(few) - 1])
    assert len(eager_line(EagerRow(case="s::c", device="cpu", case_hash="0", calls=few))) < 2048
    trimmed = _within_size([*calls[:-1], EagerCall("held_out[29]", "a", digest(torch.zeros(3)), digest(torch.ones(2)))])
    assert change_of_call(few[-1], trimmed[-1]).kind == "changed"
    assert _within_size([*calls[:-1], EagerCall("held_out[29]", "a", unstable=True)])[-1].unstable


# --- the file --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "planted_eager.py"
    path.write_text(SUITE)
    return path


def run(suite, results, *options):
    assert recapture("run", suite, "--compiler", "eager", "--compiler", "fx", "--results", results, *options) == 0
    (path,) = results.rglob(EAGER_FILE)
    return path


def test_two_runs_give_the_same_bytes_and_each_case_has_one_row(suite, tmp_path, warm, capsys):
    first, second = run(suite, tmp_path / "a"), run(suite, tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
    rows = {key.case.partition("::")[2]: row for key, row in read_eager(first).items()}
    assert list(rows) == ["from_outside", "plain", "refuses", "writes"]
    assert [call.unstable for call in rows["from_outside"].calls] == [True]
    assert [call.raised for call in rows["refuses"].calls] == [None, "KeyError"]
    assert rows["writes"].calls[0].effects is not None
    assert rows["writes"].calls[0].gradients is not None
    assert rows["plain"].calls[0].effects is None
    assert all(len(line) < 2048 for line in first.read_bytes().splitlines())
    assert not list(tmp_path.rglob("*.partial.jsonl"))


def test_a_selection_keeps_the_rows_of_the_other_cases_and_older_results_have_no_file(suite, tmp_path, warm, capsys):
    path = run(suite, tmp_path)
    before = path.read_bytes()
    assert run(f"{suite}::plain", tmp_path).read_bytes() == before
    path.unlink()  # as in results of an earlier version
    assert recapture("run", f"{suite}::plain::fx", "--results", tmp_path) == 0
    assert not path.exists()


def test_shards_that_are_merged_give_the_rows_of_one_run(suite, tmp_path, warm, capsys):
    whole = run(suite, tmp_path / "whole")
    for part in ("1/2", "2/2"):
        folder = tmp_path / "parts" / part[0]
        assert (
            recapture("run", suite, "--compiler", "eager", "--compiler", "fx", "--results", folder, "--shard", part)
            == 0
        )
    assert recapture("merge", tmp_path / "parts", "--results", tmp_path / "merged") == 0
    (merged,) = (tmp_path / "merged").rglob(EAGER_FILE)
    assert merged.read_bytes() == whole.read_bytes()


def test_a_damaged_row_is_refused_by_name(tmp_path):
    path = tmp_path / EAGER_FILE
    row = EagerRow(case="s::c", device="cpu", case_hash="0", calls=(EagerCall("example", "a", Digest("0", "0")),))
    path.write_bytes(eager_line(row))
    assert read_eager(path) == {row.key: row}
    for damage in (b'"input":"example",', b'"form":"0"'):
        path.write_bytes(eager_line(row).replace(damage, damage + b',"other":1' if damage[-1:] != b"," else b""))
        with pytest.raises(UsageError, match=f"{EAGER_FILE}:1: "):
            read_eager(path)


def test_rows_obey_the_shipped_schema():
    jsonschema = pytest.importorskip("jsonschema")
    calls = (
        EagerCall("example", "a", digest(torch.ones(3)), digest(1.5)),
        EagerCall("held_out[0]", "b", unstable=True),
    )
    line = json.loads(eager_line(EagerRow(case="s::c", device="cpu", case_hash="0", calls=calls)))
    validator = jsonschema.Draft202012Validator(json_schema())
    assert validator.is_valid(line)
    assert not validator.is_valid({**line, "more": 1})
    line["calls"][0]["more"] = 1
    assert not validator.is_valid(line)


# --- the row of a diff and of a history ----------------------------------------------------------------------------


def test_a_diff_and_a_history_say_how_eager_itself_changed(suite, tmp_path, warm, capsys):
    old = run(suite, tmp_path).parent
    new = tmp_path / "torch2.12.1-cu130" / old.name
    shutil.copytree(old, new)
    assert recapture("diff", old, new, "--fail-on", "eager") == 0
    assert "Eager itself" not in capsys.readouterr().out

    lines = [json.loads(line) for line in (new / EAGER_FILE).read_bytes().splitlines()]
    plain, writes = (next(line for line in lines if line["case"].endswith(name)) for name in ("plain", "writes"))
    plain["calls"][0]["result"] |= {
        "bits": "0",
        "numbers": [value + 1e-7 for value in plain["calls"][0]["result"]["numbers"]],
    }
    writes["calls"][0]["gradients"] |= {"bits": "0", "numbers": [9.0, 9.0, 9.0]}
    (new / EAGER_FILE).write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    assert recapture("diff", old, new, "--fail-on", "eager") == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "2 cases changed" in output
    assert "other numbers, beyond rounding" in output
    assert "1 case with other bits, within rounding: planted_eager::plain (7.0 digits)" in output
    assert "eager itself changed in 1 case" in output
    assert "eager itself changed on example" not in output
    assert recapture("diff", old, new, "--format", "json") == 0
    assert [entry["change"]["kind"] for entry in json.loads(capsys.readouterr().out)["eager"]["changed"]] == [
        "changed",
        "rounding",
    ]
    assert recapture("history", "writes", "--results", tmp_path) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "Eager itself changed:" in output
    assert "gradients: other numbers, beyond rounding, 0.0 digits agree (example)" in output
    (new / EAGER_FILE).unlink()  # results of an earlier version
    assert recapture("diff", old, new, "--fail-on", "eager") == 0


@pytest.mark.parametrize(
    ("old", "new", "case", "verdict"),
    [
        ("torch2.11.0-cu130", "torch2.12.1-cu130", "dtype_promotion::infinite_bound", "specialized → pass"),
        (
            "torch2.13.0-cu130",
            "torch2.14.1-cu130",
            "dtype_promotion::subtracts_masks",
            "pass → error(capture):Inductor",
        ),
    ],
)
def test_a_changed_cell_says_that_eager_itself_changed(capsys, old, new, case, verdict):
    results = Path(__file__).parents[1] / "results"
    assert recapture("diff", results / old / "cpu", results / new / "cpu") == 0
    lines = capsys.readouterr().out.splitlines()
    marked = [number for number, line in enumerate(lines) if "eager itself changed on held_out[" in line]
    assert marked
    assert any(verdict in lines[number] for number in marked)
    # The case stands above its rows, which are indented further.
    for number in marked:
        assert next(line.strip() for line in reversed(lines[:number]) if re.match(r"  \S", line)) == case
