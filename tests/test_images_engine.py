"""Images on a real engine: `.ci/engine` gives a bare Debian machine one. Nothing here is simulated but the disk's size."""

import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from conftest import wait_for
from planted_engines import (
    BASE,
    CA,
    IMAGE,
    OWNER,
    RECORDS,
    ROOT,
    Engine,
    as_root,
    containers,
    images,
    line_after_the_run,
    need_base,
    one_line,
)

from recapture.base.errors import EnvironmentUnfitError
from recapture.images import container
from recapture.images.container import ContainerOptions, run_image
from recapture.images.engine import connect
from recapture.machine.describe import installed_packages
from recapture.machine.image_match import image_for, pinned_images
from recapture.machine.pins import find_image, lock_hash, lock_path

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]


@pytest.fixture(scope="session")
def client():
    try:
        with connect() as docker_client:
            yield docker_client
    except EnvironmentUnfitError as error:  # these tests were asked for by name: they must not be skipped
        pytest.fail(f"{error}; .ci/engine starts one")


@pytest.fixture(scope="session")
def built(client):
    """Build the image from its lock, on a base made of Debian's packages, and return what the command printed."""
    need_base(client)
    ca = ["--ca", CA] if Path(CA).is_file() else []
    done = images("build", IMAGE.name, "--base", BASE, "--network", "host", *ca)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_build_prints_size_time_and_digest_and_labels_what_it_was_made_of(client, built):
    match = re.fullmatch(r"recapture:torch2\.11\.0-cu130: ([\d.]+) GB, built in \d+ s, (sha256:[0-9a-f]{64})\n", built)
    image = client.images.get(IMAGE.tag)
    assert image.id == match[2]
    assert 4 < float(match[1]) < 7
    assert image.labels["org.recapture.lock"] == lock_hash(lock_path(IMAGE.name))
    assert image.labels["org.opencontainers.image.base.digest"] == client.images.get(BASE).id
    assert "org.opencontainers.image.revision" in image.labels
    assert image.attrs["Config"]["User"] == "10001:10001"
    assert image.attrs["Config"]["Entrypoint"] == ["recapture"]


def test_the_image_keeps_neither_caches_nor_the_authority_it_was_built_with(client, built):
    code = (
        "import pathlib, shutil; left = [str(path) for top in ('/root', '/tmp', '/var/lib/apt/lists', '/run/secrets')"
        " for path in pathlib.Path(top).rglob('*') if path.is_file() and path.stat().st_size > 100_000];"
        "print(left, shutil.which('pip', path='/opt/recapture/bin'))"
    )
    out = client.containers.run(
        IMAGE.tag, ["-c", code], entrypoint="python", user="0", network_mode="none", remove=True
    )
    assert out.decode().split() == ["[]", "None"]


def test_a_base_of_another_python_is_refused(client, built):
    done = images("build", "torch2.0.1-cu117", "--base", BASE, "--network", "host")
    assert done.returncode == 1
    assert re.fullmatch(
        r"recapture: torch2\.0\.1-cu117 was not built: the base has Python 3\.\d+, the image wants 3\.10",
        one_line(done),
    )


FENCED = '''"""Can only be collected where the fences hold."""
import os
import pathlib
import socket

import torch

from recapture import case

assert os.getuid() != 0
for place in ("/", "/opt/recapture", os.path.dirname(__file__)):
    try:
        pathlib.Path(place, "written").write_text("")
    except OSError:
        continue
    raise AssertionError(place + " is writable")
assert [name for _, name in socket.if_nameindex()] == ["lo"]
assert "CapEff:\\t0000000000000000" in pathlib.Path("/proc/self/status").read_text()
assert "NoNewPrivs:\\t1" in pathlib.Path("/proc/self/status").read_text()


@case(example=lambda: (torch.ones(3),))
def twice(x):
    """Doubles."""
    return x * 2
'''


def test_a_run_is_fenced_in_and_leaves_results_to_the_caller_and_nothing_else(client, built, tmp_path):
    cases = tmp_path / "fenced.py"
    cases.write_text(FENCED, encoding="utf-8")
    results = tmp_path / "results"
    done = images("run", IMAGE.name, cases, "--compiler", "eager", "--compiler", "compile", "--results", results)
    assert done.returncode == 0, done.stderr
    assert f"on this machine: {results}" in done.stdout
    assert "2 planned" in done.stdout  # the output of the run itself came through
    folder = results / IMAGE.name / "cpu"  # under the image's name: what is installed is what its lock says
    verdicts = [json.loads(line)["verdict"] for line in (folder / RECORDS).read_text(encoding="utf-8").splitlines()]
    assert verdicts == ["pass", "pass"]
    environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    assert environment["image_digest"] == client.images.get(IMAGE.tag).id
    assert environment["lock_hash"] == lock_hash(lock_path(IMAGE.name))
    assert {path.stat().st_uid for path in [results, *results.rglob("*")]} == {os.getuid()}
    assert containers(client) == []


def test_the_documents_docker_run_does_the_same(client, built, tmp_path):
    """The command of the documents, with another image, other cells, and no GPU."""
    page = (ROOT / "docs" / "gpu-hosts.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^mkdir -p results && docker run (?:.*\\\n)*.*", page, re.MULTILINE)
    assert line.count("--gpus all ") == line.count("--device cuda") == 1
    line = re.sub(r"recapture:torch[\w.-]+", IMAGE.tag, line.replace("--gpus all ", ""))
    line = line.replace("--device cuda", "--compiler eager /cases/fenced.py")
    (tmp_path / "fenced.py").write_text(FENCED.replace("os.getuid() != 0", "True"), encoding="utf-8")
    line = line.replace(" -v ", f" -v {tmp_path}/fenced.py:/cases/fenced.py:ro -v ", 1)
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "results" / IMAGE.name / "cpu"
    assert '"verdict":"pass"' in (folder / RECORDS).read_text(encoding="utf-8")
    environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    assert environment["image_digest"] == client.images.get(IMAGE.tag).id
    assert {path.stat().st_uid for path in (tmp_path / "results").rglob("*")} == {os.getuid()}


def _run_as(user, group, results, cases, queue):
    # Read before: the checkout, too, may lie where that user cannot read.
    suites, groups = container.shipped_suites(), container.shipped_groups()
    container.shipped_suites, container.shipped_groups = (lambda: suites), (lambda: groups)
    with connect() as client:
        os.setgroups([group])
        os.setgid(user)
        os.setuid(user)
        queue.put(run_image(client, IMAGE, (str(cases), "--compiler", "eager"), ContainerOptions(results=results), {}))


@as_root
def test_another_user_of_the_engine_owns_the_results_too(client, built):
    group = Path("/var/run/docker.sock").stat().st_gid
    with tempfile.TemporaryDirectory() as folder:
        cases = Path(folder, "fenced.py")
        cases.write_text(FENCED, encoding="utf-8")
        cases.chmod(0o644)
        os.chown(folder, 12345, 12345)
        context = multiprocessing.get_context("fork")  # the interpreter itself may lie where that user cannot read
        queue = context.SimpleQueue()
        child = context.Process(target=_run_as, args=(12345, group, Path(folder, "results"), cases, queue))
        child.start()
        child.join(300)
        assert child.exitcode == 0
        assert queue.get() == 0
        results = list(Path(folder, "results").rglob("*"))
        assert any(path.name == RECORDS for path in results)
        assert {path.stat().st_uid for path in results} == {12345}


@pytest.fixture(scope="session")
def plain_python(tmp_path_factory):
    """Give a Python with the very packages of the lock: this one where it has them, else a new environment."""
    import platform

    packages = installed_packages()
    if (
        image_for(packages, platform.python_version(), pinned_images(torch=IMAGE.torch), cuda="13.0").image
        == IMAGE.name
    ):
        yield sys.executable
        return
    uv, python = shutil.which("uv"), shutil.which(f"python{IMAGE.python}")
    if not uv or not python:
        pytest.skip(f"needs uv and Python {IMAGE.python} for a plain environment of the lock")
    folder = tmp_path_factory.mktemp("plain")
    subprocess.run([uv, "venv", "--quiet", "--python", python, folder / "venv"], check=True)
    lock = ["--require-hashes", "--only-binary", ":all:", "-r", lock_path(IMAGE.name)]
    environment = {**os.environ, "VIRTUAL_ENV": str(folder / "venv")}
    subprocess.run([uv, "pip", "install", "--quiet", *lock], check=True, env=environment)
    yield str(folder / "venv" / "bin" / "python")
    shutil.rmtree(folder)  # six gigabytes


@pytest.mark.timeout(2400)
def test_an_image_and_a_plain_environment_of_one_lock_record_the_same_bytes(client, built, plain_python, tmp_path):
    """All the cases, in the hardened container and outside it; of the compilers that generate code the one most used."""
    suites = ["basic_use", "control_flow", "graphs", "scipy_numpy", "types"]
    compilers = ["eager", "compile", "compile:aot_eager", "jit.trace", "jit.script", "fx", "fx:concrete_args"]
    arguments = suites + [word for name in [*compilers, "make_fx", "export"] for word in ("--compiler", name)]
    done = images("run", IMAGE.name, *arguments, "--results", tmp_path / "image")
    assert done.returncode == 0, done.stderr[-3000:]
    plain = [plain_python, "-m", "recapture", "run", *arguments, "--results", str(tmp_path / "plain")]
    subprocess.run(plain, check=True, capture_output=True, cwd=ROOT)
    first, second = ((tmp_path / where / IMAGE.name / "cpu" / RECORDS).read_bytes() for where in ("image", "plain"))
    lines = first.splitlines()
    assert len(lines) > 600
    assert {json.loads(line)["case"].partition("::")[0] for line in lines} == set(suites)
    assert [pair for pair in zip(lines, second.splitlines(), strict=True) if pair[0] != pair[1]] == []
    assert first == second
    assert {path.stat().st_uid for path in tmp_path.rglob("*")} == {os.getuid()}
    assert containers(client) == []


HANGING = '''"""One case that ends and one that does not."""
import time

import torch

from recapture import case


@case(example=lambda: (torch.ones(3),))
def a_ends(x):
    """Ends."""
    return x + 1


@case(example=lambda: (torch.ones(3),))
def b_hangs(x):
    """Hangs."""
    time.sleep(10_000)
    return x
'''


def recorded(results):
    """Return what any file of records below a folder says, finished or not."""
    texts = [path.read_text(encoding="utf-8") for path in results.rglob("*.jsonl")]
    return "".join(texts)


def test_the_deadline_ends_a_hanging_run_and_keeps_what_was_recorded(client, built, tmp_path):
    cases = tmp_path / "hanging.py"
    cases.write_text(HANGING, encoding="utf-8")
    results = tmp_path / "results"
    arguments = (cases, "--compiler", "eager", "--jobs", "1", "--timeout", "9000", "--results", results)
    started = time.monotonic()
    done = images("run", IMAGE.name, *arguments, "--deadline", "60")
    assert 60 < time.monotonic() - started < 110
    assert done.returncode == 3
    assert "stopped at its deadline of 60 s" in line_after_the_run(done)
    assert '"a_ends' in recorded(results) or "::a_ends" in recorded(results)
    assert {path.stat().st_uid for path in results.rglob("*")} == {os.getuid()}
    assert containers(client) == []


def test_a_client_that_is_asked_to_end_takes_its_container_along(client, built, tmp_path):
    cases = tmp_path / "hanging.py"
    cases.write_text(HANGING, encoding="utf-8")
    command = [sys.executable, "-m", "recapture", "images", "run", IMAGE.name, cases, "--results", tmp_path / "results"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: client.containers.list(filters={"label": OWNER}))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    assert containers(client) == []


def test_a_container_whose_client_was_killed_is_removed_by_the_next_run(client, built, tmp_path):
    cases = tmp_path / "hanging.py"
    cases.write_text(HANGING, encoding="utf-8")
    command = [sys.executable, "-m", "recapture", "images", "run", IMAGE.name, cases, "--results", tmp_path / "results"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: client.containers.list(filters={"label": OWNER}))
        process.kill()
    assert len(containers(client)) == 1
    assert images("run", IMAGE.name, "no_such_suite", "--results", tmp_path / "results").returncode == 2
    assert containers(client) == []


def test_a_gpu_without_the_nvidia_toolkit_says_what_to_install(client, built, tmp_path):
    if "nvidia" in client.info()["Runtimes"]:
        pytest.skip("this engine has the NVIDIA toolkit")
    done = images("run", IMAGE.name, "--gpu", "all", "--results", tmp_path)
    assert done.returncode == 3
    assert "install nvidia-container-toolkit" in one_line(done)
    assert containers(client) == []


def test_an_image_that_is_not_built_says_how_to_build_it(client, tmp_path):
    name = "torch2.7.1-cu126"
    if client.images.list(find_image(name).tag):
        pytest.skip("it is built here")
    done = images("run", name, "--results", tmp_path)
    assert done.returncode == 3
    assert one_line(done) == f"recapture: {name} is not built: recapture images build {name}"


def test_a_build_without_an_engine_says_so(tmp_path):
    done = images("build", IMAGE.name, "--host", f"unix://{tmp_path}/none.sock")
    assert done.returncode == 3
    assert one_line(done) == (
        f"recapture: {IMAGE.name}: no container engine answers: start Docker, or choose another with --host"
    )


@as_root
def test_a_disk_that_fills_up_during_a_build_is_named(client):
    need_base(client)
    folder = tempfile.mkdtemp(prefix="engine", dir="/tmp")
    Path(folder, "data").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1100m", "none", f"{folder}/data"]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("may not mount a small disk here")
    engine = Engine(folder)
    engine.start()
    try:
        base_container = client.containers.create(BASE, "true", network_mode="none")
        try:
            with subprocess.Popen(["docker", "export", base_container.id], stdout=subprocess.PIPE) as exported:
                assert engine.docker("import", "-", BASE, stdin=exported.stdout).returncode == 0
        finally:
            base_container.remove()
        ca = ["--ca", CA] if Path(CA).is_file() else []
        done = images("build", IMAGE.name, "--base", BASE, "--network", "host", *ca, "--host", engine.local)
        assert done.returncode == 3, done.stderr[-3000:]
        assert "the engine's disk is full" in one_line(done)
    finally:
        engine.stop()
        subprocess.run(["umount", "--lazy", f"{folder}/data"], check=False)
        shutil.rmtree(folder, ignore_errors=True)
