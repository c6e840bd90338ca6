"""Container engines for tests: how they are used, and one of the test's own that can be stopped and started again."""

import contextlib
import io
import os
import re
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from conftest import wait_for

from recapture.machine.pins import find_image

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
    assert all(line.startswith("recapture: terminated") for line in inside)
    return line


def need_base(client):
    if not client.images.list(BASE):
        pytest.fail(f"the engine has no image {BASE}: .ci/engine makes it")


def containers(client):
    """The names of the containers that recapture started, those that have ended among them."""
    return [each.name for each in client.containers.list(all=True, filters={"label": OWNER})]


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
