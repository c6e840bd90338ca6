"""Records of versions 1 and 2: every form of sentence is split into fields that make it again, to the byte."""

import json
from collections import Counter
from typing import get_args

import convert_records
import msgspec
import pytest
from planted_records import difference

from recapture.base.scrub import recorded_fingerprint
from recapture.records.difference import SENTENCES, Difference, InputChange, Unlike
from recapture.records.older_versions import SentenceDifference, difference_of, sentence_difference
from recapture.records.record import CONFORMANCE, Record, read_conformance, read_jsonl, write_jsonl

SHAPE = InputChange("args[0]", "shape", "(2,)", "(4,)")

FORMS = [
    # kind, sentence, what the sides are unlike in, eager, other
    ("value", "eager 'a, this b', this 'c'", "value", "'a", "b', this 'c'"),
    ("value", "eager 1, this 2", "value", "1", "2"),
    ("value", "value differs", "value", None, None),
    ("value", "value differs: eager 1.5, this nan", "value", "1.5", "nan"),
    ("value", "3 of 4 elements differ: eager -inf, this 1+2j at [0, 3]", "value", "-inf", "1+2j"),
    ("mutation", "eager False, this True", "value", "False", "True"),
    ("type", "eager gives torch.Tensor, this list", "type", "torch.Tensor", "list"),
    ("type", "eager has 3 items, this a value", "structure", "3 items", "a value"),
    ("type", "eager has a tensor, this 2 items", "structure", "a tensor", "2 items"),
    ("type", "eager has 3 items, this 2", "items", "3", "2"),
    ("type", "eager has ['a', 'b'], this ['a', 'c']", "keys", "['a', 'b']", "['a', 'c']"),
    ("metadata", "keys in another order than in eager", "order", None, None),
    ("metadata", "default factory list in eager, None here", "default_factory", "list", "None"),
    ("dtype", "eager torch.float32, this torch.int64", "dtype", "torch.float32", "torch.int64"),
    ("mutation", "eager torch.float32, this torch.int64", "dtype", "torch.float32", "torch.int64"),
    ("shape", "eager (3, 7), this (10,)", "shape", "(3, 7)", "(10,)"),
    ("mutation", "eager (), this (10,)", "shape", "()", "(10,)"),
    ("metadata", "eager cpu, this cuda", "device", "cpu", "cuda"),
    ("type", "eager torch.strided, this torch.sparse_coo", "layout", "torch.strided", "torch.sparse_coo"),
    ("metadata", "stride (1, 2) in eager, (2, 1) here", "stride", "(1, 2)", "(2, 1)"),
    ("metadata", "requires_grad True in eager, False here", "requires_grad", "True", "False"),
    ("metadata", "eager leaf and conj, this none of its flags", "flags", "leaf and conj", "none of its flags"),
    ("mutation", "eager has a value, this none", "property", "a value", None),
    ("gradient", "eager has none, this a value", "property", None, "a value"),
    ("alias", "shares memory with args[0] in eager, not here", "memory", "args[0]", None),
    ("alias", "shares memory with example: result here, not in eager", "memory", None, "example: result"),
    ("mutation", "12 bytes outside the view differ", "outside", None, "12"),
    ("mutation", "eager sets it, this does not", "set", "set", None),
    ("mutation", "eager does not set it, this does", "set", None, "set"),
    ("gradient", "a gradient in eager, none on the other side", "gradient", "a gradient", None),
    ("gradient", "a gradient here, none on the other side", "gradient", None, "a gradient"),
    ("gradient", "zeros in eager, None on the other side", "zero_gradient", "zeros", None),
    ("gradient", "zeros here, None on the other side", "zero_gradient", None, "zeros"),
    ("gradient", "eager's backward raises RuntimeError, this returned", "backward", "RuntimeError", None),
    ("exception", "eager raises torch._LinAlgError, this returned", "raises", "torch._LinAlgError", None),
    ("exception", "eager raises LookupError, this its subclass KeyError", "raises", "LookupError", "KeyError"),
    ("exception", "eager's message 'a\\nb', this \"c'\"", "message", "'a\\nb'", '"c\'"'),
    ("exception", "refuses another rank: RuntimeError: x, this y", "rank", None, "RuntimeError: x, this y"),
    ("output", "eager printed '1\\n', this printed ''", "output", "'1\\n'", "''"),
    ("state", "eager leaves False, this leaves True", "setting", "False", "True"),
    ("state", "another state than eager leaves", "random_state", None, None),
    ("state", "another value than eager leaves", "environment", None, None),
    ("mutation", "capturing changes it", "capture", None, "changed"),
    ("state", "capturing changes it, as a call does", "capture", "changed", "changed"),
    ("state", "its inputs cannot be made any more: ValueError", "inputs", None, "ValueError"),
    ("state", "the original raises KeyError after the capture", "original_raises", None, "KeyError"),
    ("state", "the original works differently after the capture: type", "original", None, "type"),
    ("alias", "eager moves it to other memory, this does not", "moved", "moves", None),
    ("alias", "this moves it to other memory, eager does not", "moved", None, "moves"),
    ("mutation", "eager overwrites what an earlier call left, this does not", "overwritten", "writes", None),
    ("mutation", "this overwrites what an earlier call left, eager does not", "overwritten", None, "writes"),
    ("metadata", "autograd counts a change in eager, not here", "version", "raises", None),
    ("metadata", "autograd counts a change here, not in eager", "version", None, "raises"),
    ("output", "eager warned ['UserWarning: a'], this warned []", "warnings", "['UserWarning: a']", "[]"),
    ("output", "eager wrote 3 bytes past sys.stdout, this 0", "written", "3", "0"),
    ("metadata", "eager keeps 8 bytes alive, this 32", "storage", "8", "32"),
    ("value", "a part was not compared: more than 10000 objects", "cut", None, "more than 10000 objects"),
]


def test_there_is_a_sample_of_every_form():
    assert list(get_args(Unlike)) == list(SENTENCES)
    forms = {(unlike, eager is not None, other is not None) for _, _, unlike, eager, other in FORMS}
    sides = {"both": (True, True), "eager": (True, False), "other": (False, True), "neither": (False, False)}
    assert forms == {
        (unlike, *sides[form]) for unlike in SENTENCES for form, text in SENTENCES[unlike]._asdict().items() if text
    }


@pytest.mark.parametrize(("kind", "sentence", "unlike", "eager", "other"), FORMS, ids=[form[1] for form in FORMS])
def test_a_sentence_is_split_into_fields_that_make_it_again(kind, sentence, unlike, eager, other):
    converted = difference("example", "result", kind, sentence)
    assert (converted.unlike, converted.eager, converted.other, converted.detail) == (unlike, eager, other, sentence)


@pytest.mark.parametrize(
    ("bits", "sentence"), [("signed-zero", "zeros of another sign"), ("nan-payload", "NaNs with other bits")]
)
def test_numbers_whose_bits_alone_differ_have_sentences_of_their_own(bits, sentence):
    converted = difference("example", "result", "value", sentence, bits=bits, elements=(1, 4))
    assert converted == Difference("example", "result", "value", unlike="value", bits=bits, elements=(1, 4))
    assert converted.detail == sentence


@pytest.mark.parametrize(
    ("remark", "changes", "more"),
    [
        ("args[0] has shape (2,), the example's (4,)", (SHAPE,), None),
        ("args[1] is 3, the example's 2", (InputChange("args[1]", "value", "3", "2"),), None),
        ("args[1] is float, the example's int", (InputChange("args[1]", "type", "float", "int"),), None),
        ("args[0]['b'] has 2 items, the example's 2", (InputChange("args[0]['b']", "items", "2", "2"),), None),
        (
            "args[0] has shape (2,), the example's (4,), args[1] is 'a, b', the example's None",
            (SHAPE, InputChange("args[1]", "value", "'a, b'", "None")),
            None,
        ),
        (", ".join([str(SHAPE)] * 3) + " and 2 more", (SHAPE,) * 3, 2),
    ],
)
def test_what_an_input_is_unlike_the_example_in_is_split_too(remark, changes, more):
    sentence = f"2 of 3 elements differ: eager 1, this 2 at [0]; {remark}"
    converted = difference("held_out[0]", "result", "value", sentence, bits="value")
    assert (converted.changes, converted.more_changes, converted.detail) == (changes, more, sentence)
    hidden = difference("held_out[0]", "result", "value", f"value differs; {remark}")
    assert (hidden.changes, hidden.more_changes, hidden.eager) == (changes, more, None)


@pytest.mark.parametrize("sentence", ["something of long ago", "3 of 4 elements differ"])
def test_a_sentence_that_no_fields_make_is_kept(sentence):
    old = SentenceDifference("example", "result", "value", sentence, bits="value", elements=(3, 4))
    converted = difference_of(old)
    assert converted == Difference("example", "result", "value", sentence, bits="value", elements=(3, 4))
    assert sentence_difference(converted) == old


OLD = {
    "case": "s::a",
    "compiler": "export",
    "device": "cpu",
    "verdict": "error",
    "phase": "call",
    "input": "held_out[0]",
    "error": None,
    "reason": None,
    "differences": [],
    "noted": [],
    "notes": [],
    "graphs": None,
    "graph_breaks": None,
    "recompiles": None,
    "break_reasons": [],
    "claims": [],
    "case_hash": "0",
    "schema": 2,
}

MESSAGES = {
    'from user code:\n   File "export.py", line 22, in forward\n    return fn(*args)\n  File "a.py", line 2, in f\n    x': (
        'from user code:\n  File "a.py", line 2, in f\n    x'
    ),
    '  File "export.py", line 19, in forward\n    return fn(*args)\n           ^^^^^^^^^\n  File "a.py", line 2, in f\n    x': (
        '  File "a.py", line 2, in f\n    x'
    ),
    'from user code:\n   File "export.py", line 22, in forw…': "from user code:\n…",
    'from user code:\n   File "export.py", line 22, in forward\n    return fn(*ar…': "from user code:\n…",
    'from user code:\n   File "export.py", line 22, in forward\n…': "from user code:\n…",
    'from user code:\n   File "export.py", line 22, in forward\n    return fn(*args)\n  Fil…': "from user code:\n  Fil…",
    'at:\n  File "bootstrap.py", line 4, in _run\n    run()\n  File "<frozen runpy>", line 8, in r\n  File "a.py", line 2': (
        'at:\n  File "a.py", line 2'
    ),
    'from user code:\n  File "a.py", line 2, in f\n    export(x)': 'from user code:\n  File "a.py", line 2, in f\n    export(x)',
}


def old_line(number, message):
    differences = [
        {"input": "held_out[1]", "where": "result", "kind": kind, "detail": sentence} for kind, sentence, *_ in FORMS
    ]
    error = {"type": "E", "message": message, "fingerprint": recorded_fingerprint("E", message)}
    row = {**OLD, "case": f"s::{number}", "differences": differences, "noted": differences, "error": error}
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n"


def test_converted_results_have_the_same_sentences_and_no_frames_of_recapture(tmp_path, capsys):
    path = tmp_path / CONFORMANCE
    path.write_text("".join(old_line(number, message) for number, message in enumerate(MESSAGES)))
    before = convert_records.sentences(path)
    assert convert_records.convert(path, Counter())
    records = read_conformance(tmp_path)
    assert {
        (record.case, record.compiler, record.device): [
            difference.detail for difference in (*record.differences, *record.noted)
        ]
        for record in records
    } == before
    assert [record.error.message for record in records] == list(MESSAGES.values())
    assert {record.schema for record in records} == {3}
    for record in records:
        assert record.error.fingerprint == recorded_fingerprint("E", record.error.message)
    assert capsys.readouterr().out.count("loses frames of recapture") == len(MESSAGES) - 1
    once = path.read_bytes()
    assert b"detail" not in once
    assert b":null" not in once
    assert convert_records.convert(path, Counter())
    assert path.read_bytes() == once


def test_a_file_in_which_a_sentence_would_be_lost_stays_as_it_is(tmp_path, capsys, monkeypatch):
    path = tmp_path / CONFORMANCE
    path.write_text(old_line(1, "m"))
    before = path.read_bytes()
    read = convert_records.read_jsonl

    def losing(path, kind):
        return [msgspec.structs.replace(row, noted=row.noted[1:]) for row in read(path, kind)]

    monkeypatch.setattr(convert_records, "read_jsonl", losing)
    assert not convert_records.convert(path, Counter())
    assert "would lose a sentence" in capsys.readouterr().out
    assert path.read_bytes() == before


def test_a_record_of_version_2_is_written_as_one_of_the_present_version(tmp_path):
    (tmp_path / "old").write_text(old_line(1, "m"))
    write_jsonl(tmp_path / "new", read_jsonl(tmp_path / "old", Record))
    assert read_jsonl(tmp_path / "new", Record) == read_jsonl(tmp_path / "old", Record)
    assert json.loads((tmp_path / "new").read_text())["schema"] == 3
