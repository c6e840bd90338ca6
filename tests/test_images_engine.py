"""Images on a real engine: `.ci/engine` gives a bare Debian machine one. Nothing here is simulated but the disk's size."""

import contextlib
import io
import json
import multiprocessing
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import pytest

from recapture.base.errors import EnvironmentUnfitError
from recapture.images.container import ContainerOptions, run_image
from recapture.images.engine import connect
from recapture.machine.describe import installed_packages
from recapture.machine.image_match import image_for, pinned_images
from recapture.machine.pins import find_image, lock_hash, lock_path

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[1]
IMAGE = find_image("torch2.11.0-cu130")
BASE = os.environ.get("RECAPTURE_TEST_BASE", "recapture-base:bookworm")
CA = os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")
OWNER = "org.recapture.owner"
RECORDS = "conformance.jsonl"

as_root = pytest.mark.skipif(
    os.getuid() != 0, reason="needs root: starts an engine of its own, or becomes another user"
)


def images(*arguments, **options):
    """Run `recapture images …` as a user does, in a process of its own."""
    command = [sys.executable, "-m", "recapture", "images", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, **options)


def one_line(done):
    """Return the only line of error output that recapture itself wrote."""
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("recapture: ")]
    return line


def line_after_the_run(done):
    """Return the line that recapture wrote after the run in the container, which may say that it was terminated."""
    *inside, line = [line for line in done.stderr.splitlines() if line.startswith("recapture: ")]
    assert all(one.startswith("recapture: terminated") for one in inside)
    return line


def containers(client):
    return [each.name for each in client.containers.list(all=True, filters={"label": OWNER})]


@pytest.fixture(scope="session")
def client():
    try:
        with connect() as found:
            yield found
    except EnvironmentUnfitError as error:  # these tests were asked for by name: they must not be skipped
        pytest.fail(f"{error}; .ci/engine starts one")


def need_base(client):
    if not client.images.list(BASE):
        pytest.fail(f"the engine has no image {BASE}: .ci/engine makes it")


@pytest.fixture(scope="session")
def built(client):
    """Build the image from its lock, on a base made of Debian's packages, and return what the command printed."""
    need_base(client)
    ca = ["--ca", CA] if Path(CA).is_file() else []
    done = images("build", IMAGE.name, "--base", BASE, "--network", "host", *ca)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_build_prints_size_time_and_digest_and_labels_what_it_was_made_of(client, built):
    found = re.fullmatch(r"recapture:torch2\.11\.0-cu130: ([\d.]+) GB, built in \d+ s, (sha256:[0-9a-f]{64})\n", built)
    image = client.images.get(IMAGE.tag)
    assert image.id == found[2]
    assert 4 < float(found[1]) < 7
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
    found = [path.read_text(encoding="utf-8") for path in results.rglob("*.jsonl")]
    return "".join(found)


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


def wait_for(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.2)


class Engine:
    """A Docker engine of the test's own, in a folder of its own, that can be stopped and started again."""

    def __init__(self, folder):
        self.folder = folder
        self.local = f"unix://{folder}/sock"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.remote = f"tcp://127.0.0.1:{free.getsockname()[1]}"

    def start(self):
        command = ["dockerd", "--data-root", f"{self.folder}/data", "--exec-root", f"{self.folder}/exec"]
        command += ["--pidfile", f"{self.folder}/pid", "--host", self.local, "--host", self.remote, "--tls=false"]
        with Path(self.folder, "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--iptables=false", "--bridge=none"], stdout=log, stderr=subprocess.STDOUT
            )
        wait_for(lambda: self.docker("info").returncode == 0)

    def stop(self):
        self.process.terminate()
        self.process.wait(60)

    def docker(self, *arguments, **options):
        command = ["docker", "--host", self.local, *arguments]
        return subprocess.run(command, capture_output=True, check=False, **options)


@pytest.fixture
def own_engine():
    if not shutil.which("dockerd"):
        pytest.fail("needs dockerd: .ci/engine installs it")
    folder = tempfile.mkdtemp(prefix="engine", dir="/tmp")  # a short path, for a socket's name is limited
    engine = Engine(folder)
    engine.start()
    yield engine
    engine.stop()
    shutil.rmtree(folder, ignore_errors=True)


STAND_IN = """
echo recorded > /results/records
echo started
case "$*" in *hang*) sleep 600;; esac
"""


def give_stand_in(engine, script=STAND_IN):
    """Give an engine a small image under the pinned one's name: a shell that records something, and hangs when asked."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for folder, mode in (("tmp", 0o1777), ("results", 0o1777), ("cases", 0o1777), ("proc", 0o755), ("dev", 0o755)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        entry = tarfile.TarInfo("entry")
        entry.size = len(script)
        tar.addfile(entry, io.BytesIO(script.encode()))
        needed = {"/bin/sh", "/bin/sleep"}
        for program in sorted(needed):
            needed.update(re.findall(r"(/\S+) \(0x", subprocess.check_output(["ldd", program], text=True)))
        for path in sorted(needed):
            entry = tar.gettarinfo(os.path.realpath(path), arcname=path[1:])
            with Path(path).open("rb") as file:
                tar.addfile(entry, file)
    change = ["--change", 'ENTRYPOINT ["/bin/sh", "/entry"]']
    done = engine.docker("import", *change, "-", IMAGE.tag, input=content.getvalue())
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def hanging_run(host, results):
    """Run the stand-in so that it hangs, and go on when its output has come through."""
    command = [sys.executable, "-m", "recapture", "images", "run", IMAGE.name, "hang", "--host", host]
    with subprocess.Popen(
        [*command, "--results", str(results)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "started\n"
        yield process


@as_root
def test_an_engine_that_stops_during_a_run_loses_nothing_recorded(own_engine, tmp_path):
    give_stand_in(own_engine)
    with hanging_run(own_engine.local, tmp_path / "results") as process:
        own_engine.stop()
        assert process.wait(60) == 3
        assert process.stderr.read() == (
            f"recapture: the container engine stopped during the run; what was recorded is in {tmp_path / 'results'}\n"
        )
    record = tmp_path / "results" / "records"
    assert record.read_text(encoding="utf-8") == "recorded\n"
    assert record.stat().st_uid == os.getuid()
    own_engine.start()
    assert images("run", IMAGE.name, "--host", own_engine.local, "--results", tmp_path / "results").returncode == 0
    assert own_engine.docker("ps", "--all", "--quiet").stdout == b""


@as_root
def test_another_machines_engine_sends_the_results_back(own_engine, tmp_path):
    give_stand_in(own_engine)
    done = images("run", IMAGE.name, "--host", own_engine.remote, "--results", tmp_path / "results")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("started\n")
    record = tmp_path / "results" / "records"
    assert record.read_text(encoding="utf-8") == "recorded\n"
    assert record.stat().st_uid == os.getuid()
    assert own_engine.docker("ps", "--all", "--quiet").stdout == b""
    assert own_engine.docker("volume", "ls", "--quiet").stdout == b""


@as_root
def test_an_engine_behind_ssh_sends_the_results_back(own_engine, tmp_path):
    """The last word of an ssh command is what runs over there: an `ssh` that runs it here is as good as a machine."""
    give_stand_in(own_engine)
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/bash\necho "$@" >> {tmp_path}/asked\nDOCKER_HOST={own_engine.local} exec ${{@: -1}}\n')
    ssh.chmod(0o755)
    environment = {**os.environ, "PATH": f"{ssh.parent}{os.pathsep}{os.environ['PATH']}"}
    arguments = ("--host", "ssh://ann@gpu-machine", "--results", tmp_path / "results")
    done = images("run", IMAGE.name, *arguments, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("started\n")
    assert re.match(
        r"-l ann .*gpu-machine docker system dial-stdio\n", (tmp_path / "asked").read_text(encoding="utf-8")
    )
    assert (tmp_path / "results" / "records").read_text(encoding="utf-8") == "recorded\n"
    assert own_engine.docker("ps", "--all", "--quiet").stdout == b""


@as_root
def test_another_machines_deadline_still_brings_what_was_recorded(own_engine, tmp_path):
    give_stand_in(own_engine)
    arguments = ("hang", "--deadline", "3", "--host", own_engine.remote, "--results", tmp_path / "results")
    done = images("run", IMAGE.name, *arguments)
    assert done.returncode == 3
    assert "deadline of 3 s" in line_after_the_run(done)
    assert (tmp_path / "results" / "records").is_file()
    assert own_engine.docker("volume", "ls", "--quiet").stdout == b""


@as_root
def test_results_on_another_machine_whose_engine_stopped_come_with_the_next_run(own_engine, tmp_path):
    give_stand_in(own_engine)
    with hanging_run(own_engine.remote, tmp_path / "first") as process:
        own_engine.stop()
        assert process.wait(60) == 3
        assert "the next run brings it" in process.stderr.read()
    assert not list((tmp_path / "first").iterdir())
    own_engine.start()
    assert images("run", IMAGE.name, "--host", own_engine.remote, "--results", tmp_path / "second").returncode == 0
    assert (tmp_path / "first" / "records").read_text(encoding="utf-8") == "recorded\n"
    assert own_engine.docker("ps", "--all", "--quiet").stdout == b""


@as_root
def test_cases_and_earlier_results_reach_another_machine(own_engine, tmp_path):
    give_stand_in(own_engine)
    give_stand_in(own_engine, 'read line < "$2"; read old < /results/old; echo "$line $old" > /results/records\n')
    cases = tmp_path / "mine.py"
    cases.write_text("given\n", encoding="utf-8")
    results = tmp_path / "results"
    results.mkdir()
    (results / "old").write_text("before\n", encoding="utf-8")
    done = images("run", IMAGE.name, cases, "--resume", "--host", own_engine.remote, "--results", results)
    assert done.returncode == 0, done.stderr
    assert (results / "records").read_text(encoding="utf-8") == "given before\n"


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
        made = client.containers.create(BASE, "true", network_mode="none")
        try:
            with subprocess.Popen(["docker", "export", made.id], stdout=subprocess.PIPE) as exported:
                assert engine.docker("import", "-", BASE, stdin=exported.stdout).returncode == 0
        finally:
            made.remove()
        ca = ["--ca", CA] if Path(CA).is_file() else []
        done = images("build", IMAGE.name, "--base", BASE, "--network", "host", *ca, "--host", engine.local)
        assert done.returncode == 3, done.stderr[-3000:]
        assert "the engine's disk is full" in one_line(done)
    finally:
        engine.stop()
        subprocess.run(["umount", "--lazy", f"{folder}/data"], check=False)
        shutil.rmtree(folder, ignore_errors=True)
