"""`bisect` of a command: the first bad release to the patch, and the package that turned it bad."""

from __future__ import annotations

import io
import json
import platform
import random
import re
import statistics
import sys
from dataclasses import replace

import pytest
from planted_releases import RELEASES, PlantedReleases

from recapture.base.errors import UsageError
from recapture.command.main import _run
from recapture.machine.pins import find_image
from recapture.tools.upgrade.command_bisect import (
    TORCH,
    Answer,
    BisectReport,
    PackageGroup,
    PackageSearch,
    Search,
    Trial,
    package_groups,
)
from recapture.tools.upgrade.command_probe import CommandProbe, printed_number
from recapture.tools.upgrade.command_search import known_changes
from recapture.tools.upgrade.places import Place, place_of

LINE = [Place(name=release) for release in RELEASES]
GOOD, BAD = Place(name="old"), Place(name="new")


class Planted:
    """A command that is bad from one release on, and cannot be judged on some; it notes what was tried."""

    def __init__(self, first, skipped=()):
        self.first, self.skipped = first, skipped
        self.tried = []

    def __call__(self, place, *, run=1):
        if run == 1:
            self.tried.append(place.name)
        number = RELEASES.index(place.name)
        if number in self.skipped:
            return Answer(state="skip")
        return Answer(state="bad" if number >= self.first else "good", signature="s")


def searched(probe, *, trusted=True, line=LINE):
    search = Search(("false",), probe, lambda _: None)
    search.over_releases(line, trusted=trusted)
    return search.report


@pytest.mark.parametrize("first", range(1, len(RELEASES)))
def test_the_first_bad_release_is_found_to_the_patch(first):
    probe = Planted(first)
    report = searched(probe)
    assert (report.good, report.bad) == (RELEASES[first - 1], RELEASES[first])
    assert report.release_runs <= 6  # the ends that the user vouched for are tried only as neighbours


def test_half_of_all_searches_try_at_most_five_releases():
    tried = [searched(Planted(first)).release_runs for first in range(1, len(RELEASES))]
    assert statistics.median(tried) <= 5


def test_a_release_that_cannot_be_judged_is_named_where_it_lies_between():
    report = searched(Planted(9, skipped=(8,)))
    assert (report.good, report.bad, report.undecided) == (RELEASES[7], RELEASES[9], (RELEASES[8],))
    assert f"with {RELEASES[8]} between them undecided" in report.sentence


@pytest.mark.parametrize(("first", "expected"), [(0, "it is bad on 2.0.0"), (99, "it is good on 2.15.0")])
@pytest.mark.parametrize("trusted", [False, True])
def test_a_command_that_never_turns_says_so(first, expected, trusted):
    report = searched(Planted(first), trusted=trusted)
    assert report.never.startswith(expected)
    assert report.bad == "" or trusted
    assert report.sentence.startswith("not decided")


def test_a_command_that_disagrees_with_itself_is_never_blamed_on_a_release():
    blamed = 0
    for seed in range(200):
        chance = random.Random(seed)
        share = chance.choice((0.2, 0.3, 0.5, 0.7, 0.9))

        def probe(_place, *, run=1, chance=chance, share=share):
            return Answer(state="bad" if chance.random() < share else "good")

        report = searched(probe, trusted=False)
        blamed += not (report.flaky or report.never)
    assert blamed == 0


# packages


def search_of(guilty, packages=("Triton", "numpy", "scipy", "cuDNN"), refuse=lambda _: False):
    """What a search among packages says of a command that is bad where all the `guilty` are new."""
    groups = [PackageGroup(name, (name,)) for name in (*packages, TORCH)]
    tried = []

    def trial(names):
        if names == frozenset(group.name for group in groups):
            return "bad"
        tried.append(names)
        return "skip" if refuse(names) else "bad" if set(guilty) <= names else "good"

    report = BisectReport(command=("x",), good="old", bad="new")
    PackageSearch(trial, groups, GOOD, BAD).run(report)
    return report, tried


@pytest.mark.parametrize("guilty", ["Triton", "numpy", "scipy", "cuDNN", "torch"])
def test_the_package_that_turns_a_command_bad_is_named_and_sure(guilty):
    report, _ = search_of([guilty])
    assert (report.culprit, report.sure) == (guilty, True)


def test_torch_is_named_only_after_all_others_were_tried():
    report, tried = search_of(["torch"])
    assert tried[0] == {"Triton", "numpy", "scipy", "cuDNN"}
    assert "old stays good with Triton, numpy, scipy and cuDNN of new" in report.how


@pytest.mark.parametrize("partner", ["Triton", "numpy"])
def test_a_change_that_needs_torch_and_a_package_names_both(partner):
    report, _ = search_of(["torch", partner])
    assert (report.culprit, report.sure) == (f"torch + {partner}", True)


def test_two_packages_that_are_bad_together_alone_are_named_together():
    report, _ = search_of(["numpy", "scipy"])
    assert "numpy" in report.culprit
    assert "scipy" in report.culprit
    assert "torch" not in report.culprit


@pytest.mark.parametrize("guilty", ["Triton", "numpy", "scipy", "cuDNN"])
@pytest.mark.parametrize("seed", range(8))
def test_a_package_is_never_called_torch_whatever_cannot_be_tried(guilty, seed):
    chance = random.Random(seed)
    refused: dict[frozenset[str], bool] = {}
    report, _ = search_of([guilty], refuse=lambda names: refused.setdefault(names, chance.random() < 0.4))
    assert report.culprit != "torch"
    assert not report.sure or report.culprit == guilty


def test_torch_alone_is_not_named_as_sure_if_it_was_not_tried():
    report, _ = search_of(["torch"], refuse=lambda names: "torch" in names)
    assert (report.culprit, report.sure) == ("torch", False)
    assert report.how.endswith("torch of new with the old ones was not decided")


def test_packages_that_belong_to_one_torch_go_with_it():
    old = {"torch": "1", "triton": "1", "nvidia-cudnn-cu12": "1", "nvidia-nccl-cu12": "1", "sympy": "1", "same": "1"}
    new = old | {"torch": "2", "triton": "2", "nvidia-cudnn-cu12": "2", "nvidia-nccl-cu12": "2", "sympy": "2"}
    groups = {group.name: group.packages for group in package_groups(old, new)}
    assert groups == {
        "Triton": ("triton",),
        "cuDNN": ("nvidia-cudnn-cu12",),
        "sympy": ("sympy",),
        "torch": ("nvidia-nccl-cu12", "torch"),
    }


@pytest.mark.parametrize(
    ("good", "bad", "operator", "expected"),
    [
        ("2.7.0", "2.7.1", "torch.tanh", "Sleef's tanh now. (https://github.com/pytorch/pytorch/pull/148254)"),
        ("2.5.1", "2.6.0", "torch.nn.functional.dropout", "/issues/142853)"),
        ("2.6.0", "2.7.0", "torch.nn.functional.dropout", ""),
        ("2.7.0", "2.7.1", "aten::sinh", ""),
        ("2.7.0", "2.7.1", "", ""),
    ],
)
def test_what_is_known_about_the_operator_between_both_releases_is_told(good, bad, operator, expected):
    trials = [Trial(place=bad, answer=Answer(state="bad", operator=operator))]
    lines = known_changes(BisectReport(command=("x",), trials=trials, good=good, bad=bad))
    assert any(expected in line for line in lines) if expected else lines == ()


def test_a_mixture_that_does_not_fit_the_project_is_undecided_and_a_release_is_refused(tmp_path):
    class Rounds:
        def at(self, *_, **__):
            raise UsageError("the project does not fit")

    probe = CommandProbe(rounds=Rounds())
    release = place_of(find_image("torch2.6.0-cu124"))
    assert probe(replace(release, mixed=tmp_path)) == Answer(state="skip", why="the project does not fit")
    with pytest.raises(UsageError, match="does not fit"):
        probe(release)


# whole commands, in environments of planted releases


@pytest.fixture
def planted(tmp_path, monkeypatch):
    releases = PlantedReleases(tmp_path)
    releases.use(monkeypatch)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return releases


def bisected(capsys, *words, program=None):
    """The report of ``bisect`` as JSON."""
    command = ("--", "python", "-c", program) if program else ()
    status = _run(["bisect", "--json", "--yes", *words, *command])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    return json.loads(captured.out)


VERSIONS = """
import sys
def v(name):
    return tuple(map(int, __import__(name).__version__.split(".")))
"""


@pytest.mark.parametrize(
    ("condition", "ends", "bad", "culprit"),
    [
        pytest.param("v('torch') >= (2, 9, 1)", "2.7.0,2.10.0", "2.9.1", "torch", marks=pytest.mark.slow),
        ("v('triton') >= (3, 9)", "2.8.0,2.9.1", "2.9.0", "Triton"),
        pytest.param("v('numpy') >= (1, 6)", "2.8.0,2.9.1", "2.9.0", "numpy", marks=pytest.mark.slow),
    ],
)
def test_a_planted_change_is_found_with_its_release_and_package(planted, capsys, condition, ends, bad, culprit):
    good, last = ends.split(",")
    program = f"{VERSIONS}\nsys.exit(1 if {condition} else 0)"
    report = bisected(capsys, "--good", good, "--bad", last, program=program)
    assert (report["bad"], report["culprit"], report["sure"]) == (bad, culprit, True), report["sentence"]


@pytest.mark.slow
def test_one_test_decides_and_the_others_may_fail(planted, capsys, tmp_path):
    (tmp_path / "project" / "test_it.py").write_text(
        "import torch\ndef test_broken(): assert False\ndef test_it(): assert torch.__version__ != '2.9.1', 'no'\n"
    )
    words = ("--across", "2.9.0,2.9.1", "--test", "test_it.py::test_it", "--", "pytest", "-q")
    report = bisected(capsys, *words)
    assert (report["good"], report["bad"], report["culprit"]) == ("2.9.0", "2.9.1", "torch")
    assert any(re.search("AssertionError: no", trial["answer"]["why"]) for trial in report["trials"])


@pytest.mark.slow
def test_a_number_decides_by_its_interval(planted, capsys):
    program = (
        f"{VERSIONS}\nimport random\nprint('loss=0.1')\n"
        "print('loss=%.3f' % ((2 if v('torch') >= (2, 9, 1) else 1) + random.random() / 4))"
    )
    words = ("--across", "2.9.0,2.9.1", "--metric", r"loss=([\d.]+)", "--worse", "higher")
    report = bisected(capsys, *words, program=program)
    assert (report["bad"], report["culprit"]) == ("2.9.1", "torch")
    noise = f"import random\nprint('loss=%.3f' % random.random())\n{VERSIONS}"
    assert "is not certainly worse than" in bisected(capsys, *words, program=noise)["sentence"]


@pytest.mark.slow
def test_a_command_that_writes_into_its_folder_is_found_again(planted, capsys):
    program = f"{VERSIONS}\nprint('x=%d' % (v('torch') >= (2, 9, 1)))\nopen('log.txt', 'a').write('x')"
    words = ("--across", "2.9.0,2.9.1", "--metric", "x=([01])", "--worse", "higher", "--repeat", "2")
    assert bisected(capsys, *words, program=program)["culprit"] == "torch"


@pytest.mark.slow
def test_status_125_is_no_answer_and_a_mixture_that_breaks_otherwise_is_none_either(planted, capsys):
    program = (
        f"{VERSIONS}\nif v('torch') == (2, 9, 0): sys.exit(125)\n"
        "if v('torch') < (2, 9) and v('triton') >= (3, 9): sys.exit('Triton does not fit')\n"
        "if v('torch') >= (2, 9, 1): sys.exit('wrong')"
    )
    report = bisected(capsys, "--good", "2.8.0", "--bad", "2.9.1", program=program)
    assert (report["good"], report["bad"], report["undecided"]) == ("2.8.0", "2.9.1", ["2.9.0"])
    assert (report["culprit"], report["sure"]) == ("torch", False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name a cell, SUITE::NAME::COMPILER, or a command after two dashes"),
        (("a::b::c", "--", "true"), "give a cell or a command, and not both"),
        (("--worse", "lower", "--", "true"), "--worse is for --metric and --measure"),
        (("--measure", "seconds", "--test", "x", "--", "true"), "all say what decides"),
        (("--test", "x"), "are for a command: write it after two dashes"),
        (("--metric", "x", "--", "true"), "--metric needs --worse"),
        (("--metric", "x", "--worse", "higher", "--", "true"), "needs one group"),
        (("--metric", "(", "--worse", "higher", "--", "true"), "is not a regular expression"),
        (("--good", "2.6.0", "--bad", "2.6.0", "--", "true"), "a search needs two releases"),
        (("--good", "2.6.0", "--", "true"), "belong together"),
        (("--across", "2.66", "--", "true"), "no image has torch '2.66'"),
        (("--no-run", "--", "true"), "are for a cell"),
        (("--test", "gone.py::test_it", "--", "pytest"), "--test gone.py::test_it: there is no file gone.py here"),
        (("--yes", "--across", "2.6.0,2.7.0", "--", "no-such-program"), "'no-such-program' cannot be run"),
    ],
)
def test_bad_input_is_one_line(planted, capsys, words, message):
    assert _run(["bisect", *words]) == 2
    err = capsys.readouterr().err
    assert message in err.splitlines()[-1]
    assert "Traceback" not in err


def test_a_machine_that_counts_no_instructions_is_told_before_anything_runs(planted, capsys, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "planted")
    words = ("bisect", "--across", "2.6.0,2.7.0", "--measure", "compile-instructions", "--yes", "--", "no-such-program")
    assert _run(words) == 2
    why = "this machine counts no instructions of a process: not known how on planted"
    assert capsys.readouterr().err == f"recapture: --measure compile-instructions: {why}\n"


def test_the_last_match_is_the_number():
    assert printed_number("x=([0-9]+)")(None, "x=1 x=23\ny=4") == 23
    assert printed_number("x=([0-9]+)")(None, "y=4") is None
    with pytest.raises(UsageError, match="one group"):
        printed_number("(a)(b)")
    with pytest.raises(UsageError, match="not a number"):
        printed_number("x=(.)")(None, "x=a")


@pytest.mark.slow
def test_the_memory_of_the_largest_process_decides(planted, capsys):
    program = f"{VERSIONS}\nimport subprocess\nsize = 200_000_000 if v('torch') >= (2, 9, 1) else 1000\n"
    program += "subprocess.run([sys.executable, '-c', f'x = b\"a\" * {size}'])"
    words = ("--across", "2.9.0,2.9.1", "--measure", "peak-memory", "--repeat", "3")
    report = bisected(capsys, *words, program=program)
    assert (report["bad"], report["culprit"]) == ("2.9.1", "torch")
    assert report["trials"][0]["answer"]["numbers"][0] < 100


@pytest.mark.slow
def test_counts_of_what_torch_compiles_decide(planted, capsys):
    """The planted torch compiles nothing: the program writes what its processes would."""
    program = (
        f"{VERSIONS}\nimport json, os\n"
        "end = {'torch': '2.9.0', 'graphs': 5 if v('triton') >= (3, 9) else 2}\n"
        "open(os.environ['RECAPTURE_COUNTS'], 'a').write(json.dumps({'end': end}) + '\\n')"
    )
    words = ("--good", "2.8.0", "--bad", "2.9.0", "--measure", "graphs", "--repeat", "1")
    report = bisected(capsys, *words, program=program)
    assert (report["bad"], report["culprit"], report["sure"]) == ("2.9.0", "Triton", True)
    numbers = {trial["place"]: trial["answer"]["numbers"] for trial in report["trials"]}
    assert numbers["2.9.0"] == [5.0]
    assert _run(["bisect", *words[:4], "--measure", "saved-for-backward", "--", "python", "-c", "pass"]) == 2
    assert "has no number on 2.8.0: no process of the command imports torch" in capsys.readouterr().err


def plant(planted):
    """Twenty regressions: the condition of each, its first bad release, and what turns it bad."""
    releases = list(planted.releases)
    chance = random.Random(43)
    rows = [
        (f"v('torch') >= {tuple(map(int, releases[number].split('.')))}", releases[number], "torch")
        for number in chance.sample(range(1, len(releases)), 11)
    ]
    modules = (("triton", "Triton"), ("numpy", "numpy"), ("scipy", "scipy"), ("nvidia-cudnn-cu12", "cuDNN"))
    for package, name in modules:
        changes = [
            number
            for number in range(1, len(releases))
            if planted.versions[releases[number]][package] != planted.versions[releases[number - 1]][package]
        ]
        for number in chance.sample(changes, 2 if package != "scipy" else 1):
            version = tuple(map(int, planted.versions[releases[number]][package].split(".")))
            rows.append((f"v('{package.replace('-', '_')}') >= {version}", releases[number], name))
    for number in (9, 18):  # where numpy changes as well
        torch = tuple(map(int, releases[number].split(".")))
        numpy = tuple(map(int, planted.versions[releases[number]]["numpy"].split(".")))
        rows.append((f"v('torch') >= {torch} and v('numpy') >= {numpy}", releases[number], "torch + numpy"))
    return rows


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_twenty_planted_regressions_are_found_to_the_patch_with_their_package(planted, capsys, monkeypatch):
    rows = plant(planted)
    assert len(rows) == 20
    runs = []
    for number, (condition, bad, culprit) in enumerate(rows):
        by_number = number % 4 == 0  # which also tries both ends
        program = f"{VERSIONS}\nprint('loss=%d' % ({condition}))\nsys.exit({not by_number} and {condition})"
        words = ["--good", "2.0.0", "--bad", "2.15.0"]
        if by_number:
            words += ["--metric", r"loss=(\d+)", "--worse", "higher", "--repeat", "1"]
        report = bisected(capsys, *words, program=program)
        assert (report["bad"], report["culprit"], report["sure"]) == (bad, culprit, True), report["sentence"]
        runs.append(report["release_runs"])
    with capsys.disabled():
        print(f"\nreleases tried: {sorted(runs)}, median {statistics.median(runs)}")
    assert statistics.median(runs) <= 5


# what is installed is said before


class Terminal(io.StringIO):
    """A standard input with a person at it, who types this."""

    def isatty(self):
        return True


AT_THE_ENDS = f"{VERSIONS}\nsys.exit(1 if v('torch') >= (2, 9, 1) else 0)"


def search_without_yes(
    capsys, monkeypatch, typed, *words, ends=("--good", "2.6.0", "--bad", "2.10.0"), program=AT_THE_ENDS
):
    """The status of a search without --yes, and what it says; without `typed`, there is no terminal."""
    monkeypatch.setattr(sys, "stdin", io.StringIO() if typed is None else Terminal(typed))
    status = _run(["bisect", *words, *ends, "--", "python", "-c", program])
    return status, capsys.readouterr().err


def environments_of(planted):
    root = planted.root
    return sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def test_without_a_terminal_nothing_is_installed_unasked(planted, capsys, monkeypatch):
    status, err = search_without_yes(capsys, monkeypatch, None)
    assert (status, environments_of(planted)) == (2, [])
    (line,) = err.splitlines()
    assert re.search(r"installs up to \d of \d environments, 5 to 7 GB each, in \S+: 2\.6\.0, .*2\.10\.0", line), line
    assert "and then one for each exchange of packages that it tries" in line
    assert line.endswith("give --yes")


def test_a_person_is_asked_and_may_say_no(planted, capsys, monkeypatch):
    status, err = search_without_yes(capsys, monkeypatch, "n\n")
    assert (status, environments_of(planted)) == (2, [])
    assert "5 to 7 GB each" in err
    assert "Install? [y/N]" in err
    assert err.endswith("recapture: nothing was installed\n")


def test_what_is_there_is_used_without_a_question(planted, capsys, monkeypatch):
    ends = ("--across", "2.9.0,2.9.1")
    status, err = search_without_yes(capsys, monkeypatch, "y\n", ends=ends)
    assert status == 0, err
    assert environments_of(planted) != []
    status, err = search_without_yes(capsys, monkeypatch, None, ends=ends)
    assert status == 0, err
    assert "5 to 7 GB each, in" not in err
