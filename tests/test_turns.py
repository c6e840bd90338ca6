"""Where cells turn: first bad, fixed, bad again; what `bisect` finds from records, and by running what is missing."""

from __future__ import annotations

import json
import shutil

import msgspec
import pytest
from conftest import REPOSITORY
from planted_data import planted
from planted_images import PlantedImages, plant_runs
from planted_records import evidence

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.command.main import _run
from recapture.data import Environment
from recapture.images import environments
from recapture.machine.environment import read_environment
from recapture.machine.pins import load_images
from recapture.records.difference import Difference
from recapture.records.record import ErrorInfo, Record, read_jsonl, write_jsonl
from recapture.records.verdicts import Verdict
from recapture.report.history import PackageChange, TurnEntry, history, turning_points
from recapture.tools.compare.failure_changes import changed_words, failure_words, only_wording
from recapture.tools.upgrade.cell_bisect import may_run, mixed_lock, search_packages, search_releases
from recapture.tools.upgrade.shipped_records import SHIPPED_SOURCE, shipped_records

RESULTS = REPOSITORY / "results"
LINE = [
    image
    for image in load_images().values()
    if image.drifted_from is None and (RESULTS / image.name).is_dir()  # the others have no records
]
NAMES = [image.name for image in LINE]
LETTERS = {
    "r": Verdict.PASS,
    "b": Verdict.PASS_WITH_BREAKS,
    "w": Verdict.WRONG,
    "e": Verdict.ERROR,
    "n": Verdict.NOT_APPLICABLE,
}


def record(verdict, case_hash="h", **fields):
    fields = {"case": "s::c", "compiler": "compile", "device": "cpu"} | evidence(verdict) | fields
    return Record(verdict=verdict, case_hash=case_hash, **fields)


def line_of(letters):
    return [
        TurnEntry(name, None if letter == " " else record(LETTERS[letter]), None)
        for name, letter in zip(NAMES, letters, strict=False)
    ]


@pytest.mark.parametrize(
    ("letters", "turns"),
    [
        ("rrbr", []),
        ("eeww", [("first_bad", 0, None, 0)]),
        ("rrwwr", [("first_bad", 2, 1, 0), ("fixed", 4, 3, 0)]),
        ("rwre", [("first_bad", 1, 0, 0), ("fixed", 2, 1, 0), ("bad_again", 3, 2, 0)]),
        ("r nw", [("first_bad", 3, 0, 2)]),
        ("nnr", []),
        ("wr", [("first_bad", 0, None, 0), ("fixed", 1, 0, 0)]),
    ],
)
def test_a_cell_turns_where_its_verdict_does(letters, turns):
    points = [(turn.kind, turn.image, turn.before, turn.skipped) for turn in turning_points(line_of(letters))]
    wanted = [
        (kind, NAMES[image], None if before is None else NAMES[before], skipped)
        for kind, image, before, skipped in turns
    ]
    assert points == wanted


def test_an_edited_case_begins_anew_and_twins_are_no_releases():
    entries = line_of("rw")
    edited = TurnEntry(NAMES[2], record(Verdict.PASS, case_hash="other"), None)
    assert turning_points([*entries, edited]) == []
    twin = TurnEntry("torch2.6.0-cu124-drifted", record(Verdict.WRONG), None)
    assert turning_points([*line_of("rr"), twin]) == []
    assert len(turning_points([*line_of("rr"), twin], every=True)) == 1


def test_a_turn_names_the_packages_that_changed():
    old = read_environment(RESULTS / "torch2.6.0-cu124" / "cpu" / "environment.json")
    new = msgspec.structs.replace(old, packages=old.packages | {"scipy": "9.9", "rich": "1"})
    entries = [TurnEntry(NAMES[0], record(Verdict.PASS), old), TurnEntry(NAMES[1], record(Verdict.WRONG), new)]
    (turn,) = turning_points(entries)
    assert [package.name for package in turn.changed] == ["scipy"]
    assert turn.changed[0].new == "9.9"


def test_history_says_first_bad_and_fixed(tmp_path, capsys):
    for name, verdict in (("torch2.6.0-cu124", Verdict.PASS), ("torch2.9.1-cu128", Verdict.ERROR)):
        shutil.copytree(RESULTS / name / "cpu", tmp_path / name / "cpu")
        path = tmp_path / name / "cpu" / "conformance.jsonl"
        rows = read_jsonl(path, Record)
        write_jsonl(path, [*rows[:-1], record(verdict, case=rows[-1].case, compiler=rows[-1].compiler)])
    cell = f"{rows[-1].case}::{rows[-1].compiler}"
    assert _run(["history", cell, "--results", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "first bad in 2.9.1 (error" in out
    assert ", after 2.6.0; changed: torch 2.6.0+cu124 → 2.9.1+cu128, " in out
    (cell_history,) = history(cell, tmp_path)
    assert [turn.kind for turn in cell_history.turns] == ["first_bad"]
    for form in ("markdown", "json"):
        assert _run(["history", cell, "--results", str(tmp_path), "--format", form]) == 0
        assert ("first bad" if form == "markdown" else '"kind": "first_bad"') in capsys.readouterr().out


# bisect


class Runs:
    """Runs of a cell that is bad in some images, with those that were needed, and which ran beside each other."""

    def __init__(self, letters, at_once=1, ready=NAMES):
        self.outcomes = dict(zip(NAMES, letters, strict=True))
        self.at_once, self.ready = at_once, ready
        self.rounds = []

    @property
    def ran(self):
        return [name for names in self.rounds for name in names]

    def is_ready(self, image):
        return image.name in self.ready

    def run(self, images):
        self.rounds.append([image.name for image in images])
        return [self.outcome(image.name) for image in images]

    def outcome(self, name):
        letter = self.outcomes[name]
        if letter == "x":
            return EnvironmentUnfitError("no Python 3.10")
        return record(LETTERS[letter])


def boundaries(search):
    return [(boundary.kind, boundary.before, boundary.image) for boundary in search.boundaries]


def test_records_that_suffice_run_nothing():
    letters = "rrrrwwwwrrrrrrr"[: len(NAMES)].ljust(len(NAMES), "r")
    runs = Runs(letters)
    records = {name: record(LETTERS[letter]) for name, letter in runs.outcomes.items()}
    search = search_releases(LINE, records, runs)
    assert boundaries(search) == [("first_bad", NAMES[3], NAMES[4]), ("fixed", NAMES[7], NAMES[8])]
    assert runs.ran == []
    assert all(boundary.sure.startswith("sure") for boundary in search.boundaries)


@pytest.mark.parametrize("first", range(1, len(NAMES)))
def test_without_records_a_boundary_is_found_in_a_few_runs(first):
    runs = Runs("r" * first + "w" * (len(NAMES) - first))
    search = search_releases(LINE, {}, runs)
    assert boundaries(search) == [("first_bad", NAMES[first - 1], NAMES[first])]
    assert len(runs.ran) <= 2 + len(NAMES).bit_length()
    assert search.ran == runs.ran
    assert "torch" in {package.name for package in search.boundaries[0].changed}


@pytest.mark.parametrize(("at_once", "rounds"), [(2, 4), (4, 3)])
@pytest.mark.parametrize("first", range(1, len(NAMES)))
def test_images_that_are_ready_run_beside_each_other(first, at_once, rounds):
    runs = Runs("r" * first + "w" * (len(NAMES) - first), at_once)
    search = search_releases(LINE, {}, runs)
    assert boundaries(search) == [("first_bad", NAMES[first - 1], NAMES[first])]
    assert runs.rounds[0] == [NAMES[0], NAMES[-1]]
    assert len(runs.rounds) <= rounds
    assert max(map(len, runs.rounds)) <= at_once
    assert len(set(runs.ran)) == len(runs.ran)


def test_no_environment_is_made_for_a_run_beside_another():
    letters = "r" * 7 + "w" * (len(NAMES) - 7)
    alone = Runs(letters)
    search_releases(LINE, {}, alone)
    none_ready, some_ready = Runs(letters, 4, ready=()), Runs(letters, 4, ready=NAMES[:8])
    search_releases(LINE, {}, none_ready)
    assert none_ready.rounds == alone.rounds
    search = search_releases(LINE, {}, some_ready)
    assert boundaries(search) == [("first_bad", NAMES[6], NAMES[7])]
    assert all(len(names) == 1 or set(names) <= set(NAMES[:8]) for names in some_ready.rounds)


def test_several_boundaries_are_looked_for_beside_each_other():
    letters = "r" * 4 + "w" * 8 + "r" * (len(NAMES) - 12)
    on_file = {NAMES[place]: record(LETTERS[letters[place]]) for place in (0, 7, len(NAMES) - 1)}
    runs = Runs(letters, 2)
    search = search_releases(LINE, on_file, runs)
    assert boundaries(search) == [("first_bad", NAMES[3], NAMES[4]), ("fixed", NAMES[11], NAMES[12])]
    assert len(runs.rounds) == 3


def test_of_images_that_ran_beside_each_other_one_may_fail():
    runs = Runs("x" + "r" * 7 + "w" * (len(NAMES) - 9) + "x", 2)
    search = search_releases(LINE, {}, runs)
    assert boundaries(search) == [("first_bad", NAMES[7], NAMES[8])]
    assert search.failed == {NAMES[0]: "no Python 3.10", NAMES[-1]: "no Python 3.10"}


def test_only_what_lies_between_two_that_differ_runs():
    letters = "rrrwwwrrrrrrrrrrrrrr"[: len(NAMES)]
    runs = Runs(letters)
    on_file = {NAMES[place]: record(LETTERS[letters[place]]) for place in (0, 1, 4, 8, len(NAMES) - 1)}
    search = search_releases(LINE, on_file, runs)
    assert boundaries(search) == [("first_bad", NAMES[2], NAMES[3]), ("fixed", NAMES[5], NAMES[6])]
    assert set(runs.ran) <= set(NAMES[2:8])


def test_an_image_that_cannot_run_leaves_the_boundary_open():
    runs = Runs("rrx" + "w" * (len(NAMES) - 3))
    search = search_releases(LINE, {}, runs)
    (boundary,) = search.boundaries
    assert (boundary.before, boundary.image, boundary.undecided) == (NAMES[1], NAMES[3], (NAMES[2],))
    assert boundary.sure.startswith(f"not sure: between the two lie {NAMES[2]}")
    assert search.failed == {NAMES[2]: "no Python 3.10"}


def test_a_cell_that_never_turns_says_so():
    assert search_releases(LINE, {}, Runs("r" * len(NAMES))).always == "right"
    assert search_releases(LINE, {}, Runs("w" * len(NAMES))).always == "bad"
    assert search_releases(LINE, {}, Runs("x" * len(NAMES))).always == "unknown"


def test_records_of_an_edited_case_say_nothing():
    runs = Runs("w" * len(NAMES))
    old = {NAMES[0]: record(Verdict.PASS, case_hash="old"), NAMES[-1]: record(Verdict.WRONG)}
    assert search_releases(LINE, old, runs).always == "bad"
    assert NAMES[0] in runs.ran


@pytest.mark.parametrize(
    ("records", "images"),
    [
        ("rrrr", []),
        ("rwww", []),
        ("r  w", [1, 2]),
        (" r  ", [0, 2, 3]),
        ("    ", [0, 1, 2, 3]),
    ],
)
def test_only_where_no_record_decides_may_something_be_installed(records, images):
    verdicts = {"r": Verdict.PASS, "w": Verdict.WRONG}
    known = {name: record(verdicts[at]) for name, at in zip(NAMES, records, strict=False) if at in verdicts}
    assert {image.name for image in may_run(LINE[:4], known)} == {NAMES[number] for number in images}


CHANGED = [PackageChange(name, "1", "2") for name in ("scipy", "numpy", "setuptools", "filelock", "sympy")]


@pytest.mark.parametrize(
    ("culprits", "expected", "alone", "needed"),
    [
        ({"numpy"}, [("numpy",)], True, True),
        ({"filelock"}, [("filelock", "sympy")], True, True),
        ({"scipy", "numpy"}, [("numpy",)], False, True),
    ],
)
def test_the_package_that_turns_a_cell_bad_is_singled_out(culprits, expected, alone, needed):
    search = search_packages(CHANGED, lambda names: culprits <= names)
    assert [tuple(package.name for package in culprit.packages) for culprit in search.culprits] == expected
    assert [(culprit.alone, culprit.needed) for culprit in search.culprits] == [(alone, needed)]
    assert "1 → 2" in search.sentence


def test_one_changed_package_needs_no_run_and_undecided_trials_are_not_taken_for_right():
    def refuse(_names):
        raise AssertionError

    assert search_packages(CHANGED[:1], refuse).culprits[0].packages == (CHANGED[0],)
    search = search_packages(CHANGED, lambda names: None if len(names) > 1 else "numpy" in names)
    assert [culprit.needed for culprit in search.culprits] == [None]
    assert "not decided" in search.sentence


def test_a_mixed_lock_has_whole_entries_of_both():
    old_lock = "# head\nA_b==1 \\\n    --hash=sha256:1\nc==1 \\\n    --hash=sha256:2\n"
    new_lock = "a-b==2 \\\n    --hash=sha256:3\n    --hash=sha256:4\nd==5\n"
    assert mixed_lock(old_lock, new_lock, ["a-b", "d"]) == (
        "a-b==2 \\\n    --hash=sha256:3\n    --hash=sha256:4\nc==1 \\\n    --hash=sha256:2\nd==5\n"
    )
    assert mixed_lock(old_lock, new_lock, ["c"]) == "A_b==1 \\\n    --hash=sha256:1\n"
    with pytest.raises(UsageError, match="no lock has zzz"):
        mixed_lock(old_lock, new_lock, ["zzz"])


def test_what_comes_with_recapture_is_the_record_of_each_image_and_of_no_other_source():
    data = planted()
    bare = Environment(release="2.11.0", capability="cpu", image="bare-y", torch="2.11.0", bare=True)
    data = msgspec.structs.replace(data, environments=(*data.environments, bare))
    records = shipped_records(data, "suite::branch::compile", "cpu")
    assert {name: (str(entry.verdict), entry.reason) for name, entry in records.items()} == {
        "torch2.0.1": ("pass", None),
        "torch2.1.2": ("specialized", data.texts[0]),
        "torch2.10.0": ("specialized", data.texts[0]),
        "torch2.11.0": ("pass", None),
    }
    assert [*shipped_records(data, "suite::branch::compile", "cuda")] == ["bare-x"]
    assert shipped_records(data, "own::branch::compile", "cpu") == {}
    with pytest.raises(UsageError, match="did you mean 'suite::branch::compile'"):
        shipped_records(data, "suite::branhc::compile", "cpu")


def test_a_run_adds_to_the_records_that_come_with_recapture():
    shipped = {NAMES[0]: record(Verdict.PASS, SHIPPED_SOURCE), NAMES[2]: record(Verdict.WRONG, SHIPPED_SOURCE)}
    search = search_releases(LINE[:3], shipped, Runs("rrw".ljust(len(NAMES), "w")))
    assert boundaries(search) == [("first_bad", NAMES[1], NAMES[2])]
    assert search.ran == [NAMES[1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x"], "write SUITE::NAME::COMPILER"),
        (["typs::b::c"], "unknown suite 'typs'; did you mean 'types'?"),
        (["a::b::c", "--good", "torch2.6.0-cu124"], "belong together"),
        (["types::b::c", "--good", "torch2.6", "--bad", "torch2.9"], "no image 'torch2.6'"),
        (
            ["types::b::c", "--good", "torch2.6.0-cu124", "--bad", "torch2.7.1-cu126", "--no-run"],
            "not right in torch2.6.0-cu124: it is not recorded",
        ),
        (
            ["types::b::c", "--good", "torch2.6.0-cu124", "--bad", "torch2.6.0-cu124-drifted", "--no-run"],
            "not right in torch2.6.0-cu124: it is not recorded",
        ),
    ],
)
def test_bad_input_of_bisect_is_one_line(capsys, arguments, message):
    assert _run(["bisect", *arguments, "--results", str(RESULTS)]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_a_release_names_its_image(capsys):
    cell = "types::half_overflows_between::jit.script"
    words = ["bisect", cell, "--no-run", "--results", str(RESULTS), "--good"]
    assert _run([*words, "torch2.6.0-cu124", "--bad", "torch2.11.0-cu130"]) == 2
    by_image = capsys.readouterr().err
    assert _run([*words, "2.6", "--bad", "2.11.0"]) == 2
    assert capsys.readouterr().err == by_image
    assert _run([*words, "2.6", "--bad", "2.99.0"]) == 2
    assert "no image has torch '2.99.0'" in capsys.readouterr().err


def test_bisect_runs_a_cell_in_environments_with_exchanged_packages(tmp_path, monkeypatch, capsys):
    planted = PlantedImages(tmp_path)
    planted.use(monkeypatch)
    monkeypatch.setattr(environments, "EXPECTED_BYTES", 1 << 20)
    toml = (planted.docker / "images.toml").read_text()
    head, a, b, drifted = toml.partition("[images.a]")[0], *toml.split("[images.")[1:]
    drifted = drifted.replace('scipy = "0"', 'scipy = "9"').replace('numpy = "0"', 'numpy = "9"')
    (planted.docker / "images.toml").write_text(
        head + "".join(f"[images.{image_name}" for image_name in (a, b, drifted))
    )
    for name, version in (("a", 0), ("a-drifted", 9)):
        lock = planted.docker / "locks" / f"{name}.txt"
        lock.write_text(f"{lock.read_text()}numpy=={version}\nscipy=={version}\n")
    installed = []

    def run(interpreter, words, _stderr):
        """The cell fails where scipy is 9."""
        site = next(interpreter.python.parent.parent.glob("lib/*/site-packages"))
        bad = bool(list(site.glob("scipy-9*")))
        installed.append(sorted(path.name for path in site.glob("*py-*.dist-info")))
        folder = tmp_path / words[words.index("--results") + 1] / "a" / "cpu"
        folder.mkdir(parents=True)
        write_jsonl(folder / "conformance.jsonl", [record(Verdict.ERROR if bad else Verdict.PASS, case="types::c")])
        return 0

    plant_runs(monkeypatch, run)
    arguments = [
        "bisect",
        "--yes",
        "types::c::compile",
        "--good",
        "a",
        "--bad",
        "a-drifted",
        "--results",
        str(tmp_path / "none"),
    ]
    assert _run(arguments) == 0
    out = capsys.readouterr().out
    assert "types::c::compile: right in a, bad in a-drifted" in out
    assert "  a with scipy of a-drifted: bad" in out
    assert "  a with numpy of a-drifted: right" in out
    assert "scipy 0 → 9: alone makes it bad, and all other changes without it are right" in out
    assert "which of its versions: recapture bisect types::c::compile --image a --package scipy==9\n" in out
    assert installed[2:] == [
        ["numpy-0.dist-info", "scipy-9.dist-info"],
        ["numpy-9.dist-info", "scipy-0.dist-info"],
    ]
    shutil.rmtree(tmp_path / "bisect")
    assert _run([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["culprits"][0]["packages"] == [{"name": "scipy", "old": "0", "new": "9"}]
    shutil.rmtree(tmp_path / "bisect")
    plant_runs(monkeypatch, lambda interpreter, *arguments: 2 if len(installed) == 11 else run(interpreter, *arguments))
    assert _run(arguments) == 0  # its fourth run has no record; what is known is printed
    captured = capsys.readouterr()
    assert "not decided in a with numpy of a-drifted: the run ended with status 2 and without a record" in captured.err
    assert "  a with numpy of a-drifted: undecided" in captured.out
    assert "scipy 0 → 9: alone makes it bad; the other changes without it were not decided" in captured.out


@pytest.mark.parametrize(
    ("message", "status", "expected"),
    [
        ("recapture: unknown compiler 'compil'; did you mean 'compile'?", 2, "unknown compiler 'compil'"),
        ("recapture: suite 'types' cannot be collected: no module named new", 2, "the run ended with status 2"),
    ],
)
def test_a_cell_that_no_file_declares_ends_the_search_at_once(tmp_path, monkeypatch, capsys, message, status, expected):
    """Another reason may hold for one image alone, so that the others are tried."""
    planted = PlantedImages(tmp_path)
    planted.use(monkeypatch)
    monkeypatch.setattr(environments, "EXPECTED_BYTES", 1 << 20)
    pythons = []

    def run(interpreter, _words, stderr):
        pythons.append(interpreter.python)
        stderr.write(message.encode())
        stderr.flush()
        return status

    plant_runs(monkeypatch, run)
    code = _run(["bisect", "--yes", "types::c::compil", "--results", str(tmp_path / "none")])
    captured = capsys.readouterr()
    assert expected in captured.out + captured.err
    assert (code, len(pythons) > 1) == ((2, False) if "unknown" in message else (0, True))
    assert len(set(pythons)) == len(pythons)


# Words


def test_the_words_that_changed_are_shown_and_not_the_same_message_twice():
    old = "Unsupported: call_function BuiltinVariable(str) in line 12 of the program that was compiled here"
    new = "Unsupported: call_method BuiltinVariable(str) in line 14 of the program that was compiled here"
    assert str(changed_words(old, new, 100)) == "call_function … 12 → call_method … 14"
    assert str(changed_words("a b", "completely other", 100)) == "a b → completely other"
    assert str(changed_words("x y z", "x z", 100)) == "y → (nothing)"
    assert len(changed_words("a " * 5000, "b " * 5000, 50).old) <= 50


def test_a_change_of_wording_alone_is_told_from_other_changes():
    def failing(message, **fields):
        return record(Verdict.ERROR, error=ErrorInfo("E", message, message[:4]), **fields)

    assert only_wording(failing("one two"), failing("one three"))
    assert not only_wording(failing("one two"), failing("one two", phase="capture"))
    assert not only_wording(failing("one two"), record(Verdict.WRONG))
    assert failure_words(failing("one two three"), failing("one two four", input="example"), 99) == "three → four"
    dtype_difference = Difference("held_out[0]", "result", "dtype", "float32 against float64")
    old, new = record(Verdict.WRONG), record(Verdict.WRONG)
    new = msgspec.structs.replace(new, differences=(*new.differences, dtype_difference))
    assert failure_words(old, new, 99) == "now dtype of result on held_out[0]: float32 against float64"
    assert failure_words(new, old, 99) == "no longer dtype of result on held_out[0]"


# The committed results


def verdict(image, cell):
    rows = read_jsonl(RESULTS / image / "cpu" / "conformance.jsonl", Record)
    (cell_record,) = [row for row in rows if row.cell == cell]
    return cell_record


def test_the_scipy_boundary_within_torch_2_6_is_found_from_the_records():
    """S5 against T16: scipy.fft.dct under torch.compile depends on the pair of torch and scipy."""
    cell = "scipy_numpy::scipy_dct::compile"
    assert verdict("torch2.6.0-cu124", cell).verdict is Verdict.PASS_WITH_BREAKS
    drifted = verdict("torch2.6.0-cu124-drifted", cell)
    assert drifted.verdict is Verdict.ERROR
    assert "'str' object has no attribute 'IF_NEEDED'" in drifted.error.message
    assert verdict("torch2.11.0-cu130", cell).verdict is Verdict.PASS_WITH_BREAKS


@pytest.mark.parametrize("image", ["torch2.0.1-cu117", "torch2.6.0-cu124", "torch2.11.0-cu130"])
def test_a_branch_is_specialized_by_tracing_in_every_release(image):
    """T10 to T14."""
    verdicts = {
        how: verdict(image, f"control_flow::branch_on_sum::{how}").verdict for how in ("jit.trace", "jit.script", "fx")
    }
    assert verdicts == {"jit.trace": Verdict.SPECIALIZED, "jit.script": Verdict.PASS, "fx": Verdict.ERROR}


def test_export_begins_with_torch_2_1():
    cell_record = verdict("torch2.0.1-cu117", "control_flow::branch_on_sum::export")
    assert (cell_record.verdict, cell_record.reason) == (Verdict.NOT_APPLICABLE, "export needs torch 2.1 or newer")
