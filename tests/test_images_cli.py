"""`recapture images` as a user meets it: what it prints and its exit status. No engine is needed here."""

import hashlib
import json
import subprocess
import sys

import pytest

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.command.main import main
from recapture.images.container import check_image_runs_on
from recapture.machine.nvidia_gpus import Gpu
from recapture.machine.pins import find_image

V100 = Gpu("GPU-11111111-aaaa", "Tesla V100", "7.0", 570)
H100 = Gpu("GPU-22222222-bbbb", "NVIDIA H100", "9.0", 580)


def outcome(capsys, *arguments):
    """Run a command in this process; return its exit status, its output and its error output."""
    with pytest.raises(SystemExit) as caught:
        main(["images", *arguments])
    out, err = capsys.readouterr()
    return caught.value.code, out, err


def test_list_names_every_image_with_its_packages(capsys):
    status, out, _ = outcome(capsys, "list")
    assert status == 0
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.startswith("torch")}
    assert rows["torch2.3.1-cu121"][:5] == ["3.11", "0.18.1", "2.3.1", "1.26.4", "1.13.1"]
    assert len(rows) == 32


def test_list_for_a_gpu_says_which_run_there_and_why_the_others_do_not(capsys):
    status, out, _ = outcome(capsys, "list", "--gpu", "7.0")
    assert status == 0
    answers = {line.split()[0]: line.split()[-1] for line in out.splitlines() if line.endswith((" yes   ", " no    "))}
    assert answers["torch2.10.0-cu128"] == "yes"
    assert answers["torch2.11.0-cu130"] == "no"
    *_, which, why = out.splitlines()
    assert which.startswith("not on 7.0: torch2.11.0-cu130, torch2.12.0-cu130, torch2.12.1-cu130, ")
    assert (
        why
        == "  (its torch has no machine code for capability 7.0, only for 7.5-7.x, 8.0-8.x, 9.0-9.x, 10.0-10.x, 12.0-12.x)"
    )


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["list", "--gpu", "banana"], 2, "not a GPU capability: 'banana'"),
        (["lock", "torch2.60-cu124"], 2, "did you mean 'torch2.6.0-cu124'"),
        (["build", "torch9"], 2, "no image 'torch9'"),
        (["run", "torch2.6.0-cu123"], 2, "did you mean 'torch2.6.0-cu124'"),
        (["run", "torch2.11.0-cu130", "--gpu", "all", "--capability", "7.0"], 3, "no machine code for capability 7.0"),
        (["run", "torch2.11.0-cu130", "--host", "tcp://127.0.0.1:9"], 3, "no container engine answers at tcp://127"),
        (["run", "torch2.11.0-cu130", "--host", "machine"], 2, "not an engine's address: 'machine'"),
        (["run", "torch2.11.0-cu130", "--context", "nowhere"], 2, "no Docker context 'nowhere'"),
        (["run", "torch2.11.0-cu130", "--context", "a", "--host", "tcp://b:1"], 2, "give one of them"),
    ],
)
def test_what_cannot_be_done_is_reported_on_one_line(capsys, arguments, status, message):
    exit_status, out, err = outcome(capsys, *arguments)
    assert (exit_status, out) == (status, "")
    assert message in err
    assert err.startswith("recapture: ")
    assert err.count("\n") == 1


def test_a_socket_that_is_not_there_is_named():
    # In a process of its own: the SDK leaves the socket it could not connect to the garbage collector.
    command = [
        sys.executable,
        "-m",
        "recapture",
        "images",
        "run",
        "torch2.11.0-cu130",
        "--host",
        "unix:///no/such.sock",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "no container engine answers at unix:///no/such.sock" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.fixture
def contexts(tmp_path, monkeypatch):
    """A Docker configuration with one context and, as on a fresh installation, no config.json."""
    folder = tmp_path / "contexts" / "meta" / hashlib.sha256(b"lab").hexdigest()
    folder.mkdir(parents=True)
    stored = {"Name": "lab", "Metadata": {}, "Endpoints": {"docker": {"Host": "tcp://127.0.0.1:9"}}}
    (folder / "meta.json").write_text(json.dumps(stored), encoding="utf-8")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.delenv("DOCKER_HOST", raising=False)


def test_a_docker_context_names_the_engine(capsys, contexts):
    status, _, err = outcome(capsys, "run", "torch2.11.0-cu130", "--context", "lab")
    assert status == 3
    assert "no container engine answers at tcp://127.0.0.1:9" in err


def test_an_unknown_docker_context_is_refused_with_the_nearest(capsys, contexts):
    status, _, err = outcome(capsys, "run", "torch2.11.0-cu130", "--context", "lap")
    assert status == 2
    assert "no Docker context 'lap'; did you mean 'lab'?" in err


@pytest.mark.parametrize("stored", ["{", "[]", '{"Name": "pod", "Endpoints": {"kubernetes": {}}}', '{"Endpoints": 3}'])
def test_a_context_that_is_none_of_dockers_is_passed_over(capsys, contexts, tmp_path, stored):
    other_context = tmp_path / "contexts" / "meta" / "other"
    other_context.mkdir()
    (other_context / "meta.json").write_text(stored, encoding="utf-8")
    status, _, err = outcome(capsys, "run", "torch2.11.0-cu130", "--context", "lab")
    assert status == 3
    assert "tcp://127.0.0.1:9" in err


@pytest.mark.parametrize("option", ["--deadline", "--container-memory"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_limit_of_a_container_that_is_none_is_refused(capsys, option, value):
    status, _, err = outcome(capsys, "run", "torch2.11.0-cu130", option, value)
    assert status == 2
    assert len(err.splitlines()) == 1


def test_the_context_of_the_environment_counts_where_no_engine_is_named(capsys, contexts, monkeypatch):
    monkeypatch.setenv("DOCKER_CONTEXT", "lab")
    status, _, err = outcome(capsys, "run", "torch2.11.0-cu130")
    assert status == 3
    assert "tcp://127.0.0.1:9" in err


def test_docker_host_decides_where_no_engine_is_named(capsys, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
    status, _, err = outcome(capsys, "run", "torch2.11.0-cu130")
    assert status == 3
    assert "no container engine answers" in err


def test_a_gpu_the_image_was_not_compiled_for_is_refused_before_anything_runs():
    with pytest.raises(EnvironmentUnfitError, match=r"cannot run on Tesla V100: .*7\.0"):
        check_image_runs_on(find_image("torch2.11.0-cu130"), ("all",), [H100, V100])
    check_image_runs_on(find_image("torch2.11.0-cu130"), (H100.uuid,), [H100, V100])
    check_image_runs_on(find_image("torch2.10.0-cu128"), ("all",), [H100, V100])


def test_an_unknown_gpu_is_refused_with_the_nearest_and_the_list():
    with pytest.raises(UsageError, match=r"this machine has .*Tesla V100.*; did you mean 'GPU-22222222-bbbb'\?$"):
        check_image_runs_on(find_image("torch2.10.0-cu128"), ("GPU-22222222-bbbc",), [H100, V100])


def test_a_gpu_by_name_where_there_is_none_is_the_machines_lack():
    with pytest.raises(EnvironmentUnfitError, match="no GPU 'GPU-1': no NVIDIA driver"):
        check_image_runs_on(find_image("torch2.10.0-cu128"), ("GPU-1",), [])


def test_the_commands_about_images_do_not_import_torch():
    code = (
        "import sys\nfrom recapture.command.main import main\ntry:\n    main(['images', 'list'])\n"
        "except SystemExit:\n    pass\nsys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0
