"""The options --image, --via and --keep: what is passed on to which Python, and the exit status of several images."""

from __future__ import annotations

import signal

import click
import pytest
from conftest import REPOSITORY, wait_for
from planted_images import PlantedImages

from recapture.command.in_images import ImageOptions, typed_words
from recapture.command.main import _run
from recapture.command.options import takes
from recapture.images import container, engine, environments
from recapture.images.interpreter import Interpreter
from recapture.run.plan import RunOptions
from recapture.tools.speed.selection import BenchOptions

CELL = "types::signed_zero::compile"
IMAGE = "torch2.6.0-cu124"


@pytest.fixture
def planted(tmp_path, monkeypatch):
    images = PlantedImages(tmp_path)
    images.use(monkeypatch)
    monkeypatch.setattr(environments, "EXPECTED_BYTES", 1 << 20)
    monkeypatch.chdir(tmp_path)
    return images


@pytest.fixture
def commands(monkeypatch):
    """The commands that a Python was asked to run, which ends with the status in `status`."""
    calls = []

    def recapture(self, *arguments):
        image = self.variables.get("VIRTUAL_ENV", "here").rpartition("/")[2].rpartition("-")[0] or "here"
        calls.append((image, *arguments))
        return 3 if "fails" in arguments else 0

    monkeypatch.setattr(Interpreter, "recapture", recapture)
    return calls


def words_of(options, *arguments):
    """What is passed on for these arguments, and the options that they mean."""
    parsed = []

    @click.command()
    @takes(options=options, where=ImageOptions)
    @click.option("--beside", is_flag=True)
    @click.pass_context
    def command(context, options, where, *, beside):
        parsed.append((typed_words(context), options))

    command.main(list(arguments), standalone_mode=False)
    return parsed[0]


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        (
            RunOptions,
            ["types", "-k", "not a", "--compiler", "fx,export", "--compiler", "trace", "--timeout", "1.5", "--resume"],
        ),
        (RunOptions, ["--jobs=3", "--results", "x", "--memory", "2", "control_flow::branch_on_sum::fx"]),
        (BenchOptions, ["--model", "a:b", "--input", "1x2", "--input", "3", "--train", "--seconds", "2", "w", "w2"]),
        (RunOptions, []),
    ],
)
def test_what_is_passed_on_means_the_same(options, arguments):
    passed, meant = words_of(options, "--image", "torch2.6.0-cu124", *arguments, "--via=venv", "--keep", "2")
    assert not {"--image", "--via", "--keep"} & set(passed)
    again, same = words_of(options, *passed)
    assert again == passed
    for name in meant.__dataclass_fields__:
        if name != "keyword":  # a function
            assert getattr(same, name) == getattr(meant, name)
    assert ("-k" in passed) == ("-k" in arguments)


def test_an_argument_that_looks_like_an_option_stays_an_argument():
    passed, _ = words_of(BenchOptions, "--image", "torch2.6.0-cu124", "--resume", "--", "--image")
    assert passed == ("--resume", "--", "--image")


def test_a_command_runs_in_every_image_and_the_worst_status_is_returned(planted, commands, capsys):
    (planted.docker / "locks" / "b.txt").unlink()
    assert _run(["run", "--image", "a,b", "types", "--image", "a-drifted", "--results", "here"]) == 2
    assert commands == [(name, "run", "--results", "here", "types") for name in ("a", "a-drifted")]
    *_, first, second, third = capsys.readouterr().err.splitlines()
    assert first.startswith("recapture: a: done in ")
    assert second == "recapture: b: not finished: b has no lock yet: recapture images lock b"
    assert third.startswith("recapture: a-drifted: done in ")


def test_all_means_every_image_once(planted, commands):
    assert _run(["doctor", "--image", "all", "--image", "b", "--keep", "1"]) == 0
    assert commands == [("a", "doctor"), ("b", "doctor"), ("a-drifted", "doctor")]
    assert len([path for path in planted.root.iterdir() if path.is_dir()]) == 1


def test_what_several_images_would_install_is_said_first(planted, commands, capsys):
    assert _run(["doctor", "--image", "a,b"]) == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("recapture: installs 2 environments of 5 to 7 GB each in ")
    assert first.endswith("; --keep N keeps at most N of them")
    assert _run(["doctor", "--image", "a,b", "--keep", "2"]) == 0
    assert "installs" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [("reduce", "--seconds", "5.0", CELL), ("repro", "--upstream", CELL), ("stage", CELL), ("explain", CELL)],
    ids=lambda words: words[0],
)
def test_what_says_why_runs_in_an_image_too(planted, commands, words):
    assert _run([*words, "--image", "a"]) == 0
    assert commands == [("a", *words)]


def test_one_image_ends_with_the_status_of_its_command(planted, monkeypatch):
    monkeypatch.setattr(Interpreter, "recapture", lambda *_: 2)
    assert _run(["bench", "--image", "a", "--list"]) == 2


def test_here_is_refused_where_this_python_is_not_the_image_s(commands, capsys):
    assert _run(["run", "--image", "torch2.0.1-cu117", "--via", "here"]) == 3
    err = capsys.readouterr().err
    assert err.startswith("recapture: this is not the environment of torch2.0.1-cu117 (")
    assert err.count("\n") == 1
    assert commands == []


def test_here_runs_where_this_python_is_the_image_s(planted, commands):
    planted.match_this_python()
    assert _run(["doctor", "--image", "a", "--via", "here"]) == 0
    assert commands == [("here", "doctor")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--image", "torch2.6.0-cu123"], "did you mean 'torch2.6.0-cu124'"),
        (["run", "--image", "torch2.6.0-cu124,"], "no image ''"),
        (["run", "--via", "venv"], "name it with --image"),
        (["bench", "--keep", "2"], "name it with --image"),
        (["run", "--image", "all", "--keep", "0"], "--keep"),
        (["run", "--image", "all", "--via", "docker", "--keep", "2"], "--keep is for --via venv"),
        (["run", "--image", "all", "no_such_suite"], "no_such_suite"),
        (["run", "--image", "all", "--compiler", "fxx"], "unknown compiler 'fxx'"),
        (["doctor", "--image", "all", "--json"], "name one image"),
        (["reduce", CELL, "--image", "all", "--json"], "name one image"),
        (["reduce", CELL, "--image", "all", "--output", "x.py"], "name one image"),
        (
            ["reduce", CELL, "--image", IMAGE, "--via", "docker", "--output", "x.py"],
            "cannot be written from a container",
        ),
        (["repro", CELL, "--image", "all"], "name one image"),
        (["repro", CELL, "--via", "venv"], "name it with --image"),
    ],
)
def test_bad_input_is_refused_before_anything_is_installed(planted, monkeypatch, capsys, arguments, message):
    monkeypatch.undo()
    monkeypatch.setenv("RECAPTURE_CACHE", str(planted.root.parent))
    assert _run(arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not planted.root.exists()


def test_a_container_gets_the_same_words_without_the_folder_of_this_machine(planted, monkeypatch):
    calls = []

    class Engine:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    def run_image(_client, image, arguments, options, _write, command):
        calls.append((image.name, command, arguments, options.results.name, options.gpus))
        return 0

    monkeypatch.setattr(engine, "connect", Engine)
    monkeypatch.setattr(container, "run_image", run_image)
    assert _run(["run", "--image", "a", "--via", "docker", "--results", "mine", "--resume"]) == 0
    assert _run(["doctor", "--image", "a", "--via", "docker", "--device", "cuda"]) == 0
    assert calls == [
        ("a", "run", ("--resume",), "mine", ()),
        ("a", "doctor", ("--device", "cuda"), "results", ("all",)),
    ]


@pytest.mark.slow
def test_a_run_in_an_environment_records_cells(planted, monkeypatch, capfd):
    monkeypatch.setenv("PLANTED_UV", "real torch")
    words = ("control_flow::branch_on_sum", "--compiler", "eager", "--compiler", "fx", "--results", "mine")
    assert _run(["run", "--image", "a", *words]) == 0
    (records,) = planted.root.parent.glob("mine/*/cpu/conformance.jsonl")
    assert len(records.read_text().splitlines()) == 2
    assert "2 planned = 2 recorded" in capfd.readouterr().out


CLOSING = """
import pathlib, signal, sys, time
def close(*_):
    time.sleep(0.2)
    pathlib.Path("closed").touch()
    sys.exit(143)
signal.signal(signal.SIGTERM, close)
pathlib.Path("begun").touch()
time.sleep(100)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interruption_lets_the_command_in_the_environment_close_its_files(planted, tmp_path, number):
    planted.match_this_python()
    process = planted.start(
        "from recapture.command.main import main\nfrom recapture.images import interpreter\n"
        "interpreter.check_installed = lambda *_: None\n"
        f"interpreter.command = lambda *_: ['', '-c', {CLOSING!r}]\n"
        "main(['run', '--image', 'a', '--via', 'here'])",
        PYTHONPATH=str(REPOSITORY),
    )
    with process:
        wait_for((tmp_path / "begun").exists)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    wait_for((tmp_path / "closed").exists)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number), err
