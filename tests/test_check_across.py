"""A check on several releases: sentences, gaps, kept answers, exit statuses, and bad input."""

from __future__ import annotations

import importlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from planted_images import PlantedImages

import recapture
from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.command.main import _run
from recapture.images import environments
from recapture.images.interpreter import Interpreter
from recapture.machine.pins import find_release
from recapture.tools.check.across import AcrossReport, ReleaseAnswer, code_files, failures, guilty_layer
from recapture.tools.check.answers import CheckReport, CheckRow
from recapture.tools.check.api import CheckFailedError
from recapture.tools.check.report import across_html, across_markdown, across_text


class PlantedReleases(PlantedImages):
    """Images whose checks are answered from `said`; `ran` has the image and the words of each check."""

    def __init__(self, folder):
        super().__init__(folder)
        self.said = {}
        self.ran = []


def row(compiler, verdict, **fields):
    if verdict == "specialized":
        fields = {"input": "batch=1", "wrong_on": ("batch=1",), **fields}
    return CheckRow(compiler=compiler, verdict=verdict, **fields)


def answer(release, *rows, inputs=("batch=1", "zeros"), **fields):
    report = CheckReport(target="model.py:Net", torch=release, device="cpu", inputs=inputs, rows=rows)
    return ReleaseAnswer(release=release, image=f"torch{release}", report=report, **fields)


def layers(release, eager, aot, inductor):
    names = ("compile:eager", "compile:aot_eager", "compile")
    return answer(release, *(row(name, verdict) for name, verdict in zip(names, (eager, aot, inductor), strict=True)))


def across(*answers):
    return AcrossReport(target="model.py:Net", device="cpu", releases=answers)


# --- the answer in words --------------------------------------------------------------------------------------------------


def test_a_compiler_that_turns_wrong_and_right_again_has_one_sentence_with_the_guilty_layer():
    report = across(
        layers("2.9.1", "pass", "pass", "pass"),
        layers("2.10.0", "pass", "pass", "specialized"),
        layers("2.12.1", "pass", "pass", "specialized"),
        layers("2.13.0", "pass", "pass", "pass"),
        layers("2.15.0", "pass", "pass", "pass"),
    )
    (sentence,) = report.changes
    assert sentence == (
        "compile: right on 2.9.1, silently wrong on 2.10.0 to 2.12.1 (wrong on batch=1, guilty: Inductor), "
        "right again from 2.13.0"
    )
    assert report.constants == "right under compile:aot_eager, compile:eager"
    assert report.headline == "model.py:Net: 1 of 3 compilers changes its answer from torch 2.9.1 to 2.15.0"
    lines = across_text(report).splitlines()
    assert " ".join(line.strip() for line in lines[1:3]) == report.changes[0]  # wrapped, with nothing lost
    assert all(len(line) <= 80 for line in lines)


def test_up_to_a_release_is_said_where_several_are_alike():
    releases = ("2.6.0", "2.7.1", "2.11.0")
    verdicts = ("pass", "pass", "specialized")
    report = across(*(answer(release, row("fx", verdict)) for release, verdict in zip(releases, verdicts, strict=True)))
    assert report.changes == ["fx: right up to 2.7.1, silently wrong from 2.11.0 (wrong on batch=1)"]


@pytest.mark.parametrize(
    ("verdicts", "layer"),
    [
        (("specialized", "specialized", "specialized"), "Dynamo"),
        (("pass", "wrong", "wrong"), "AOTAutograd"),
        (("pass_with_breaks", "pass", "wrong"), "Inductor"),
        (("unstable", "pass", "wrong"), ""),
    ],
)
def test_the_first_layer_that_is_not_right_is_guilty(verdicts, layer):
    assert guilty_layer(layers("2.11.0", *verdicts).report, "compile") == layer


def test_aoti_is_guilty_alone_only_where_export_is_right():
    for export, layer in (("pass", "AOTInductor"), ("specialized", "torch.export")):
        assert guilty_layer(answer("2.11.0", row("export", export), row("aoti", "wrong")).report, "aoti") == layer
    assert guilty_layer(answer("2.11.0", row("jit.trace", "wrong")).report, "jit.trace") == ""


def test_compilers_of_one_history_share_a_sentence_and_silent_wrongs_come_first():
    report = across(
        answer("2.6.0", row("fx", "pass"), row("export", "pass"), row("jit.trace", "pass")),
        answer(
            "2.11.0",
            row("fx", "error", phase="capture"),
            row("export", "error", phase="capture"),
            row("jit.trace", "specialized"),
        ),
    )
    assert [sentence.partition(": ")[0] for sentence in report.changes] == ["jit.trace", "fx, export"]
    assert report.changes[1] == "fx, export: right on 2.6.0, refused from 2.11.0"


def test_what_a_release_does_not_have_is_no_change():
    report = across(
        answer("2.0.1", row("export", "not_applicable"), row("fx", "pass")),
        answer("2.6.0", row("export", "pass"), row("fx", "pass")),
    )
    assert report.changes == []
    assert report.constants == "right under fx, export"
    assert report.marks("export") == ["–", "P"]
    assert report.headline.endswith("no compiler changes its answer from torch 2.0.1 to 2.6.0 (2 compilers)")


def test_a_gap_is_stated_and_never_a_pass():
    report = across(
        answer("2.6.0", row("fx", "pass")),
        ReleaseAnswer(release="2.9.1", image="torch2.9.1", gap="no room", status=3),
        answer("2.11.0", row("fx", "error", phase="call")),
    )
    text = across_text(report)
    assert "2.9.1: not checked: no room" in text
    assert report.marks("fx") == ["P", "?", "e"]
    assert "? not checked" in text
    assert report.changes == ["fx: right on 2.6.0, failing from 2.11.0"]


def test_other_derived_inputs_are_told():
    report = across(answer("2.6.0", row("fx", "pass")), answer("2.11.0", row("fx", "pass"), inputs=("batch=1", "tiny")))
    assert report.other_inputs == ["2.11.0 was tried without zeros and also with tiny, compared with 2.6.0"]


def test_a_regression_is_worse_on_the_newest_release_than_on_the_oldest():
    right, wrong = row("fx", "pass"), row("fx", "specialized")
    worse = across(answer("2.6.0", right), answer("2.11.0", wrong))
    assert failures(worse, ("regression",)) == ["fx: right on 2.6.0, specialized: wrong on batch=1 on 2.11.0"]
    assert failures(across(answer("2.6.0", wrong), answer("2.11.0", right)), ("regression",)) == []
    assert failures(across(answer("2.6.0", wrong), answer("2.11.0", right)), ("silently_wrong",)) == [
        "fx on 2.6.0: specialized: wrong on batch=1"
    ]


def test_hostile_names_are_escaped():
    hostile = msgspec.structs.replace(across(answer("2.6.0", row("fx", "pass"))), target="<script>|x\x1b[2J")
    assert "<script>" not in across_html(hostile)
    assert "<script>" not in across_markdown(hostile)


# --- the command ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def planted_releases(tmp_path, monkeypatch):
    """Images of the torch releases 1.0 and 1.1, whose checks a planted function answers; the target is a file."""
    images = PlantedReleases(tmp_path)
    images.use(monkeypatch)
    monkeypatch.setattr(environments, "EXPECTED_BYTES", 1 << 20)
    toml = images.docker / "images.toml"
    head, first, second, _ = toml.read_text().split("[images.")
    tables = [table.replace("torch = ", f'torch = "1.{number}"\n# ', 1) for number, table in enumerate((first, second))]
    toml.write_text("[images.".join([head, *tables]))
    monkeypatch.setattr(environments, "check_installed", lambda *_, **__: None)
    (tmp_path / "helper.py").write_text("N = 1\n")
    (tmp_path / "model.py").write_text("import helper\n\n\ndef net(x):\n    return x\n")
    monkeypatch.chdir(tmp_path)

    def recapture(self, *words, write):
        name = self.python.parent.parent.name.rpartition("-")[0]
        images.ran.append((name, words))
        reply = images.said.get(name.removesuffix("+with"), [row("fx", "pass")])
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, tuple):
            status, line = reply
            write["stderr"](b"recapture: 2 compilers\nrecapture: " + line.encode() + b"\n")
            return status
        report = answer(name, *reply).report
        write["stdout"](msgspec.json.encode({"sentence": "", **msgspec.to_builtins(report)}))
        return 0

    monkeypatch.setattr(Interpreter, "recapture", recapture)
    return images


def test_each_release_is_checked_with_the_same_words(planted_releases, capsys):
    planted_releases.said = {"b": [row("fx", "specialized")]}
    assert _run(["check", "model.py:net", "--input", "3", "--across", "1.1,1.0", "--compiler", "fx"]) == 0
    words = ("--input", "3", "--compiler", "fx", "model.py:net", "--json")
    assert planted_releases.ran == [("a", ("check", *words)), ("b", ("check", *words))]
    out = capsys.readouterr().out
    assert out.splitlines()[:2] == [
        "model.py:net: 1 of 1 compiler changes its answer from torch 1.0 to 1.1",
        "fx: right on 1.0, silently wrong from 1.1 (wrong on batch=1)",
    ]


def test_a_second_call_runs_nothing_and_an_edited_helper_runs_all(planted_releases, tmp_path, capsys):
    words = ["check", "model.py:net", "--across", "1.0,1.1"]
    assert _run(words) == 0
    assert _run([*words, "--json"]) == 0
    assert len(planted_releases.ran) == 2
    document = json.loads(capsys.readouterr().out.partition("{")[2].join(["{", ""]))
    assert [release["reused"] for release in document["releases"]] == [True, True]
    (tmp_path / "helper.py").write_text("N = 2\n")
    assert _run(words) == 0
    assert len(planted_releases.ran) == 4
    assert _run([*words, "--again"]) == 0
    assert len(planted_releases.ran) == 6


@pytest.mark.parametrize(
    ("reply", "gap", "status"),
    [
        ((3, "model.py cannot be imported: No module named 'timm'"), "No module named 'timm'", 3),
        ((2, "model.py has no 'net'"), "has no 'net'", 2),
        (EnvironmentUnfitError("the disk is full"), "the disk is full", 3),
        (OSError(28, "No space left on device", "/x"), "/x: No space left on device", 3),
        ((0, "no report"), "printed no report", 3),
    ],
)
def test_a_release_that_cannot_be_checked_does_not_stop_the_rest(planted_releases, capsys, reply, gap, status):
    planted_releases.said = {"a": reply}
    assert _run(["check", "model.py:net", "--across", "all"]) == status
    out = capsys.readouterr().out
    (line,) = (text for text in out.splitlines() if text.startswith("1.0: not checked: "))
    assert gap in line
    assert "right under fx" in out
    planted_releases.said = {}
    assert _run(["check", "model.py:net", "--across", "all"]) == 0  # a gap is not kept


def test_what_is_wrong_everywhere_is_one_line(planted_releases, capsys):
    planted_releases.said = dict.fromkeys("ab", (2, "net needs arguments (size)"))
    assert _run(["check", "model.py:net", "--across", "all"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1] == "recapture: net needs arguments (size)"


def test_fail_on_decides_the_status(planted_releases, tmp_path, capsys):
    planted_releases.said = {"b": [row("fx", "specialized")]}
    words = ["check", "model.py:net", "--across", "all"]
    assert _run([*words, "--fail-on", "regression", "--html", "page.html"]) == 1
    assert "--fail-on: fx: right on 1.0" in capsys.readouterr().err
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert _run([*words, "--fail-on", "failing"]) == 0


def test_answers_where_the_machine_is_at_fault_are_not_kept(planted_releases):
    planted_releases.said = {"a": [row("fx", "environment")]}
    for _ in range(2):
        assert _run(["check", "model.py:net", "--across", "1.0"]) == 0
    assert len(planted_releases.ran) == 2


def test_the_code_that_a_target_imports_is_found_without_executing_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "inner.py").write_text("import torch\n")
    (tmp_path / "model.py").write_text("import package.inner\nraise SystemExit\n")
    (tmp_path / "broken.py").write_text("def f(\n")
    assert [path.name for path in code_files([str(tmp_path / "model.py")])] == ["model.py", "__init__.py", "inner.py"]
    assert [path.name for path in code_files(["package.inner"])] == ["__init__.py", "inner.py"]
    assert [path.name for path in code_files([str(tmp_path / "broken.py")])] == ["broken.py"]
    assert code_files(["torchvision"]) == []


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--across", "1.7"], "no image has torch '1.7'"),
        (["--across", "1.0,,"], "no image has torch ''"),
        (["--across", "1.0", "--with", "absent.txt"], "absent.txt: No such file or directory"),
        (["--across", "1.0", "--with", "model.py"], "is not a requirement"),
        (["--across", "1.0", "--compiler", "jit.trce"], "unknown compiler 'jit.trce'; did you mean 'jit.trace'?"),
        (["--across", "1.0", "--time"], "--time is for a check on one release"),
        (["--across", "1.0", "--save", "x.py"], "--save is for a check on one release"),
        (["--across", "1.0", "--keep", "1", "--via", "docker"], "--keep is for --via venv"),
        (["--across", "1.0", "--via", "docker", "--with", "fits.txt"], "--with is for --via venv"),
        (["--with", "fits.txt"], "name them with --across"),
        (["--fail-on", "regression"], "name them with --across"),
        (["--across", "1.0", "--with", "conflict.txt"], "conflict.txt asks for marker>5, and a pins marker==1"),
    ],
)
def test_bad_input_is_one_line(planted_releases, tmp_path, capsys, words, complaint):
    (tmp_path / "fits.txt").write_text("marker\n")
    (tmp_path / "conflict.txt").write_text("marker>5\n")
    assert _run(["check", "model.py:net", *words]) == 2
    assert complaint in capsys.readouterr().err.splitlines()[-1]
    assert planted_releases.ran == []


def test_from_python_it_is_the_same_check(planted_releases, tmp_path):
    planted_releases.said = {"b": [row("fx", "specialized")]}
    (tmp_path / "needs.txt").write_text("marker\n")
    result = recapture.check_across(
        "model.py:net", "3, 4:int64", releases=["1.0", "1.1"], requirements=["needs.txt"], compilers=["fx"]
    )
    words = ("check", "--input", "3", "--input", "4:int64", "--compiler", "fx", "--device", "cpu", "--timeout", "600.0")
    assert planted_releases.ran[0] == ("a+with", (*words, f"{tmp_path}/model.py:net", "--json"))
    assert result.to_dict()["changes"] == ["fx: right on 1.0, silently wrong from 1.1 (wrong on batch=1)"]
    assert repr(result).splitlines()[0] == result.report.headline
    assert "<table>" in result._repr_html_()
    with pytest.raises(CheckFailedError, match=r"specialized: wrong on batch=1 on 1\.1"):
        result.raise_if()
    with pytest.raises(UsageError, match=r"unknown 'regresion'; known: .*; did you mean 'regression'\?$"):
        result.raise_if("regresion")
    assert result.raise_if("failing") is result


def test_a_release_that_was_not_checked_raises_too(planted_releases):
    planted_releases.said = {"b": (3, "no module timm")}
    result = recapture.check_across("model.py:net", "model.py:net", releases=["all"])
    with pytest.raises(CheckFailedError, match=r"1\.1: not checked: no module timm"):
        result.raise_if("failing")


def test_objects_of_this_process_are_refused_in_one_line(planted_releases):
    for target, example in ((lambda x: x, "3"), ("model.py:net", [3])):
        with pytest.raises(UsageError, match="the target is in a file and the example is text"):
            recapture.check_across(target, example, releases=["1.0"])


# --- layers ---------------------------------------------------------------------------------------------------------------


def test_requirements_are_a_layer_that_is_used_again_and_removed(planted_releases, tmp_path, capsys):
    (tmp_path / "needs.txt").write_text("extra==1.5\nmarker\n")
    words = ["check", "model.py:net", "--across", "1.0", "--with", "needs.txt"]
    assert _run(words) == 0
    assert [name for name, _ in planted_releases.ran] == ["a+with"]
    (site,) = planted_releases.root.glob("a+with-*/lib/python*/site-packages")
    assert [path.name for path in site.glob("*.dist-info")] == ["extra-1.5.dist-info"]
    assert _run([*words, "--again"]) == 0
    assert planted_releases.log.read_text().splitlines().count("pip install") == 1
    (tmp_path / "needs.txt").write_text("extra==1.6\n")
    assert _run(words) == 0
    assert planted_releases.log.read_text().splitlines().count("pip install") == 2
    assert planted_releases.installed() == 1
    assert _run(["images", "clean", "a"]) == 0
    assert "3 environments removed" in capsys.readouterr().out
    assert not [path for path in planted_releases.root.iterdir() if path.is_dir()]


def test_a_dependency_that_does_not_fit_is_named_and_no_layer_is_left(planted_releases, tmp_path, monkeypatch, capsys):
    (tmp_path / "needs.txt").write_text("extra==1.5\n")
    message = "say x No solution found: Because extra==1.5 depends on marker==7 and you require marker==1, it is so."
    monkeypatch.setenv("PLANTED_UV_COMPILE", message.removeprefix("say "))
    assert _run(["check", "model.py:net", "--across", "1.0", "--with", "needs.txt"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "recapture: needs.txt does not fit a: extra==1.5 depends on marker==7, and a pins marker==1"
    assert not list(planted_releases.root.glob("*with*/bin"))


# --- the workflow ---------------------------------------------------------------------------------------------------------

WORKFLOW = Path(__file__).resolve().parents[1] / "examples" / "gate_an_upgrade" / "torch-upgrade.yml"


def parsed_workflow():
    """The workflow's content."""
    return importlib.import_module("yaml").safe_load(WORKFLOW.read_text(encoding="utf-8"))


def workflow_words():
    """The words of the workflow's check, with its variables in place, for the planted target and releases."""
    workflow = parsed_workflow()
    (line,) = (step["run"] for step in workflow["jobs"]["check"]["steps"] if "recapture check" in step.get("run", ""))
    for name, value in {**workflow["env"], "TARGET": "model.py:net", "OLD": "1.0", "NEW": "1.1"}.items():
        line = line.replace(f"${name}", value)
    return shlex.split(line.replace("\\\n", " "))[1:]


def test_the_workflow_names_releases_that_exist():
    env = parsed_workflow()["env"]
    for name in ("OLD", "NEW"):
        assert find_release(env[name]).python == "3.11", "the Python that the workflow sets up"


@pytest.mark.parametrize(
    ("now", "status", "annotation"),
    [
        ([row("fx", "pass")], 0, ""),
        (
            [row("fx", "specialized")],
            1,
            "::error::model.py:net: fx: right on 1.0, specialized: wrong on batch=1 on 1.1",
        ),
        ((3, "no module timm"), 3, "::warning::model.py:net: 1.1: not checked: no module timm"),
    ],
)
def test_the_workflow_fails_where_a_release_is_worse_or_missing(
    planted_releases, tmp_path, monkeypatch, capsys, now, status, annotation
):
    (tmp_path / "requirements.txt").write_text("marker\n")
    (tmp_path / "needs.txt").write_text("")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    planted_releases.said = {"b": now}
    assert _run(workflow_words()) == status
    assert annotation in capsys.readouterr().err
    assert (tmp_path / "summary.md").read_text().startswith("## model.py:net")
    assert (tmp_path / "torch-upgrade.html").is_file()


def test_the_workflow_is_one_that_github_accepts():
    program = shutil.which("actionlint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert program, "actionlint comes with the development dependencies"
    done = subprocess.run([program, WORKFLOW], capture_output=True, text=True, check=False)
    assert done.stdout == ""
